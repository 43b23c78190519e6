"""Access to a catalog's private context: the only place in tests and benchmarks that touches it."""

from __future__ import annotations

from relance import DirectoryNamespace
from relance.catalog.context import Context
from relance.catalog.manifest.table import LanceManifest


def context_of(catalog: DirectoryNamespace) -> Context:
    """Return the context that the catalog's operations share."""
    return catalog._context


def replace_context(catalog: DirectoryNamespace, context: Context) -> None:
    """Make the catalog's operations use another context."""
    catalog._opened = context


def manifest_of(catalog: DirectoryNamespace) -> LanceManifest:
    """Return the catalog's manifest; the catalog must have one."""
    manifest = context_of(catalog).manifest
    assert isinstance(manifest, LanceManifest)
    return manifest
