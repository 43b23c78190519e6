"""Relance: a directory catalog for Lance tables."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from relance.catalog.resolve import Exists, NotFound, SoftDeleted
    from relance.namespace import DirectoryNamespace
    from relance.operations.cleaning.auto_cleanup import AutoCleanup
    from relance.operations.cleaning.cleanup import RemovalStats
    from relance.operations.cleaning.policy import CleanupPolicy, CleanupPolicyBuilder

__version__ = "0.1.0"

__all__ = [
    "AutoCleanup",
    "CleanupPolicy",
    "CleanupPolicyBuilder",
    "DirectoryNamespace",
    "Exists",
    "NotFound",
    "RemovalStats",
    "SoftDeleted",
    "__version__",
]

_HOMES = {
    "AutoCleanup": "relance.operations.cleaning.auto_cleanup",
    "CleanupPolicy": "relance.operations.cleaning.policy",
    "CleanupPolicyBuilder": "relance.operations.cleaning.policy",
    "DirectoryNamespace": "relance.namespace",
    "Exists": "relance.catalog.resolve",
    "NotFound": "relance.catalog.resolve",
    "RemovalStats": "relance.operations.cleaning.cleanup",
    "SoftDeleted": "relance.catalog.resolve",
}


def __getattr__(name: str) -> Any:
    # Only when it is asked for: with Lance it takes two seconds, which the command line's help need not.
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
