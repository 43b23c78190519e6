"""Invariants of a root, checked with Lance and the file system alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import lance

from relance import DirectoryNamespace
from relance.catalog.manifest.row import DROPPED_PREFIX, HEAD_ID, ObjectType, decode_row
from relance.clock import Clock
from relance.locations import MANIFEST_DIRECTORY

_TABLE_INSIDE = ("_versions", ".lance-reserved")
_OWN_DIRECTORIES = (MANIFEST_DIRECTORY, ".relance-local")
"""Of the catalog itself: the manifest, and the locks of a local disk."""


def open_root(root: Path, properties: Mapping[str, str], clock: Clock | None = None) -> DirectoryNamespace:
    """Open the catalog in a folder."""
    return DirectoryNamespace(clock=clock, root=str(root), **properties)


@dataclass(frozen=True, slots=True)
class Rows:
    """The rows of one version of the manifest, without the head."""

    rows: list[dict[str, Any]]

    @property
    def live(self) -> dict[str, dict[str, Any]]:
        """Rows that are not of a dropped object, by id."""
        return {
            each["object_id"]: each for each in self.rows if not each["object_id"].startswith(DROPPED_PREFIX)
        }

    @property
    def tables(self) -> dict[str, str]:
        """The location of each table that is not dropped, by id."""
        return {
            object_id: each["location"]
            for object_id, each in self.live.items()
            if each["object_type"] == ObjectType.TABLE
        }

    @property
    def locations(self) -> list[str]:
        """Where the tables are, the dropped ones too."""
        tables = (decode_row(each) for each in self.rows if each["object_type"] == ObjectType.TABLE)
        return [row.normalized_location or row.location or "" for row in tables]


def read_rows(root: Path, version: int | None = None) -> Rows:
    """Return the rows of the manifest; each id must be there once."""
    dataset = lance.dataset(str(root / MANIFEST_DIRECTORY), version=version)
    rows = dataset.to_table().to_pylist()
    twice = [key for key, count in Counter(each["object_id"] for each in rows).items() if count > 1]
    assert not twice, f"version {dataset.version} of the manifest holds {twice} more than once"
    return Rows([each for each in rows if each["object_id"] != HEAD_ID])


def check_all_versions(root: Path) -> int:
    """Check every version of the manifest that is kept, and return how many there are."""
    versions = [each["version"] for each in lance.dataset(str(root / MANIFEST_DIRECTORY)).versions()]
    for version in versions:
        _check(read_rows(root, version))
    return len(versions)


def check_rows(root: Path) -> Rows:
    """Check the latest version of the manifest, and return its rows."""
    rows = read_rows(root)
    _check(rows)
    return rows


def _check(rows: Rows) -> None:
    live = rows.live
    for object_id in live:
        parent, delimiter, _ = object_id.rpartition("$")
        if delimiter:
            assert parent in live, f"'{object_id}' is in a namespace that is gone"
            assert live[parent]["object_type"] == ObjectType.NAMESPACE, f"'{object_id}' is in a table"
    shared = [key for key, count in Counter(rows.locations).items() if count > 1]
    assert not shared, f"several rows lead to {shared}"


def orphans(root: Path) -> list[str]:
    """Return the directories that neither a row, nor a marker, nor a table of their name accounts for."""
    known = {*_OWN_DIRECTORIES, *(each.split("/")[0] for each in read_rows(root).locations)}
    found = [each for each in root.iterdir() if each.is_dir() and each.name not in known]
    return sorted(each.name for each in found if not _stands_for_itself(each))


def _stands_for_itself(directory: Path) -> bool:
    if directory.suffix != ".lance":
        return False
    return directory.with_suffix(".deleted").exists() or any(
        (directory / name).exists() for name in _TABLE_INSIDE
    )
