"""A root with a catalog on it, and direct access to its tables and files.

Kinds of lakes for particular tests derive from this one: JobLake, PolicyLake and CommandLake.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import lance
from tests.support.modes import V2
from tests.support.roots import snapshot

from relance import DirectoryNamespace
from relance.catalog.context import Context
from relance.clock import Clock
from relance.jobs.base import CatalogRef
from relance.jobs.runner import open_catalog
from relance.locations import CONTROL_SUFFIX, MARKER_SUFFIX
from relance.testing.clock import ManualClock

QUIET = {"manifest_upkeep": "false"}
"""Upkeep in the background would make what a test counts depend on the moment."""


LONG_AGO = timedelta(hours=1)


def make_older(*paths: Path) -> None:
    """Date files, and all below folders, long ago; what does not exist is skipped."""
    then = time.time() - LONG_AGO.total_seconds()
    for path in paths:
        for file in (path, *path.rglob("*")):
            if file.is_file():
                os.utime(file, (then, then))


@dataclass
class Lake:
    """A root on local disk or on S3, and how catalogs on it are opened."""

    uri: str
    mode: dict[str, str] = field(default_factory=dict)
    options: dict[str, str] = field(default_factory=dict)
    """Storage options, on S3."""
    settings: dict[str, str] = field(default_factory=dict)
    """Properties that every catalog on this lake is opened with."""
    manual_clock: ManualClock | None = None
    """If the test moves one."""
    _catalog: DirectoryNamespace | None = field(default=None, init=False, repr=False)

    @property
    def properties(self) -> dict[str, Any]:
        """What opens the root in this lake's mode, for any client."""
        storage = {f"storage.{key}": value for key, value in self.options.items()}
        return {"root": self.uri, **self.mode, **storage}

    def open(
        self, mode: dict[str, str] | None = None, *, clock: Clock | None = None, **more: str
    ) -> DirectoryNamespace:
        """Open another catalog on the root, in another mode if one is given."""
        lake = self if mode is None else Lake(self.uri, mode, self.options)
        return DirectoryNamespace(
            clock=clock or self.manual_clock, **{**self.settings, **lake.properties, **more}
        )

    @property
    def catalog(self) -> DirectoryNamespace:
        """The test's own catalog, opened at its first use."""
        if self._catalog is None:
            self._catalog = self.open()
        return self._catalog

    def drop_long_ago(self, *table: str, ttl: str = "0s") -> str:
        """Drop a table an hour ago by the store's clock, and return the id of the drop.

        On S3 only the client's clock is behind: nobody can date an object there.
        """
        location = self.location(*table)
        then = self.open(clock=ManualClock(datetime.now(UTC) - LONG_AGO))
        dropped = then.drop_table({"id": list(table), "context": {"ttl_ms": ttl}})
        if not self.options:
            beside = [self.folder / f"{table[-1]}{suffix}" for suffix in (CONTROL_SUFFIX, MARKER_SUFFIX)]
            make_older(Path(location), *beside)
        assert dropped.properties is not None
        return dropped.properties["deletion_id"]

    @property
    def clock(self) -> ManualClock:
        """The clock that the test moves."""
        assert self.manual_clock is not None
        return self.manual_clock

    @property
    def ref(self) -> CatalogRef:
        """What tasks open the catalog by."""
        return CatalogRef(self.catalog.properties)

    @property
    def context(self) -> Context:
        """The opened catalog, as tasks see it."""
        return open_catalog(self.ref)

    @property
    def folder(self) -> Path:
        """Where the root is, on local disk."""
        assert "://" not in self.uri, f"{self.uri} is not a folder"
        return Path(self.uri)

    @property
    def is_v2(self) -> bool:
        """Whether the manifest alone counts."""
        return self.mode == V2

    def location(self, *table: str) -> str:
        """Return where a table is, as Lance opens it."""
        location = self.catalog.describe_table({"id": list(table)}).location
        assert location is not None
        return location.removeprefix("file://")

    def dataset(self, *table: str, version: int | str | None = None) -> lance.LanceDataset:
        """Open a table with Lance alone."""
        return lance.dataset(self.location(*table), version=version, storage_options=self.options or None)

    def write(self, rows: Any, *table: str, mode: str) -> None:
        """Write rows into a table that exists, with Lance alone."""
        lance.write_dataset(rows, self.location(*table), mode=mode, storage_options=self.options or None)

    def all_keys(self, prefix: str = "") -> set[str]:
        """Return the keys of all files below a prefix, on any store."""
        return {info.key for info in self.context.storage.list_recursive(prefix)}

    def table_keys(self) -> set[str]:
        """Return the keys of files in directories: neither markers nor the catalog's own table."""
        return {key for key in self.all_keys() if "/" in key and not key.startswith("__manifest/")}

    def files(self) -> dict[str, bytes]:
        """Return everything in the folder: the bytes of each file by its key; folders end in a slash."""
        return snapshot(self.folder)

    def table_files(self) -> dict[str, bytes]:
        """Return everything but the manifest and what the store keeps for itself."""
        own = ("__manifest/", ".relance-local/")
        return {key: body for key, body in self.files().items() if not key.startswith(own)}

    def directories(self) -> set[str]:
        """Return the names of the directories in the root that are neither the manifest's nor the store's."""
        if not self.folder.exists():
            return set()
        own = {"__manifest", ".relance-local"}
        return {path.name for path in self.folder.iterdir() if path.is_dir()} - own

    def manifest_rows(self) -> dict[str, dict[str, Any]]:
        """Return the rows of the manifest by id, read by Lance alone."""
        rows = lance.dataset(str(self.folder / "__manifest")).to_table().to_pylist()
        return {row["object_id"]: row for row in rows}
