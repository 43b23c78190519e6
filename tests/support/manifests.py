"""The manifest's table by itself, without a catalog."""

from __future__ import annotations

from pathlib import Path

from relance.catalog.manifest.table import LanceManifest, ManifestTable
from relance.config import StorageOptions
from relance.storage.local_disk import LocalDiskStorage


def open_manifest(root: Path, storage: LocalDiskStorage | None = None) -> LanceManifest:
    """Open the manifest of a root on local disk."""
    opened = storage or LocalDiskStorage(str(root))
    return LanceManifest(ManifestTable(opened, f"{root}/__manifest", StorageOptions()))
