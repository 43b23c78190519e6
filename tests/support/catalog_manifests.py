"""The manifest's table by itself, without a catalog, as the rebuilt lifecycle sees it."""

from __future__ import annotations

from pathlib import Path

import lance
import pyarrow as pa

from relance.catalog.manifest.row import Row, encode_row
from relance.catalog.manifest.schema import SCHEMA
from relance.catalog.manifest.table import LanceManifest, ManifestTable
from relance.config import StorageOptions
from relance.storage.local_disk import LocalDiskStorage


def open_manifest(root: Path, storage: LocalDiskStorage | None = None) -> LanceManifest:
    """Open the manifest of a root on local disk."""
    opened = storage or LocalDiskStorage(str(root))
    return LanceManifest(ManifestTable(opened, f"{root}/__manifest", StorageOptions()))


def index_names(root: Path) -> list[str]:
    """Return the names of the manifest's indexes."""
    return sorted(index.name for index in lance.dataset(f"{root}/__manifest").describe_indices())


def drop_indexes(root: Path) -> None:
    """Remove all indexes of the manifest, as a native write does."""
    for name in index_names(root):
        lance.dataset(f"{root}/__manifest").drop_index(name)


def foreign_insert(manifest: LanceManifest, row: Row, *, use_index: bool = False) -> None:
    """Add a row as a client does that knows nothing of the head."""
    rows = pa.Table.from_pylist([encode_row(row)], schema=SCHEMA)
    merge = lance.dataset(manifest.table.uri).merge_insert("object_id").when_not_matched_insert_all()
    merge.use_index(use_index).execute(rows)
