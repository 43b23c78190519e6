"""Relance: a directory catalog for Lance tables."""

from relance.namespace import DirectoryNamespace

__version__ = "0.1.0"

__all__ = ["DirectoryNamespace", "__version__"]
