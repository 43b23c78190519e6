"""Relance: a directory catalog for Lance tables."""

from relance.namespace import DirectoryNamespace
from relance.operations.cleaning.auto_cleanup import AutoCleanup
from relance.operations.cleaning.policy import CleanupPolicy, CleanupPolicyBuilder

__version__ = "0.1.0"

__all__ = ["AutoCleanup", "CleanupPolicy", "CleanupPolicyBuilder", "DirectoryNamespace", "__version__"]
