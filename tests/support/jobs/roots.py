"""What the tests of maintenance share: a root in each mode, and a run of a job on threads."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
from tests.support.roots import ipc

from relance import DirectoryNamespace
from relance.maintenance.execute import Run
from relance.maintenance.runner import ThreadRunner, open_catalog
from relance.maintenance.work import CatalogRef, Job, Result
from relance.operations.context import Context

MODES: dict[str, dict[str, str]] = {
    "V1": {"manifest_enabled": "false"},
    "V2": {"dir_listing_enabled": "false"},
    "compatibility": {},
}

DAY = 24 * 3600


@dataclass(slots=True)
class Root:
    """A root with a catalog on it."""

    uri: str
    mode: dict[str, str]
    options: dict[str, str] = field(default_factory=dict)
    catalog: DirectoryNamespace = field(init=False)

    def __post_init__(self) -> None:
        self.catalog = DirectoryNamespace(**self.properties)

    @property
    def properties(self) -> dict[str, Any]:
        storage = {f"storage.{key}": value for key, value in self.options.items()}
        return {"root": self.uri, **self.mode, **storage}

    @property
    def ref(self) -> CatalogRef:
        return CatalogRef(tuple(sorted(self.properties.items())))

    @property
    def context(self) -> Context:
        return open_catalog(self.ref)

    def make(self, name: str, *values: int) -> None:
        self.catalog.create_table({"id": [name]}, ipc(pa.table({"a": list(values)})))

    def location(self, name: str) -> str:
        location = self.catalog.describe_table({"id": [name]}).location
        assert location is not None
        return location.removeprefix("file://")

    def dataset(self, name: str, version: int | str | None = None) -> lance.LanceDataset:
        return lance.dataset(self.location(name), version=version, storage_options=self.options or None)

    def append(self, name: str, *values: int) -> None:
        lance.write_dataset(
            pa.table({"a": list(values)}),
            self.location(name),
            mode="append",
            storage_options=self.options or None,
        )

    def values(self, name: str, version: int | str | None = None) -> list[int]:
        return sorted(self.dataset(name, version).to_table()["a"].to_pylist())

    def all_keys(self, prefix: str = "") -> set[str]:
        return {each.key for each in self.context.storage.list_recursive(prefix)}

    def run(
        self,
        job: Job,
        *tables: tuple[str, ...],
        giant_seconds: float = 20.0,
        dry_run: bool = False,
        threads: int = 2,
    ) -> list[Result]:
        """Run a job over tables, or over all that it is for."""
        runner = ThreadRunner(threads)
        run = Run(job, self.ref, runner, runner, dry_run=dry_run, giant_seconds=giant_seconds)
        chosen = list(tables) or list(job.targets(self.context))
        return sorted(run.results(chosen), key=lambda each: each.table)


def age(folder: Path, seconds: float) -> None:
    """Make every file below a folder so much older."""
    then = time.time() - seconds
    for each in folder.rglob("*"):
        if each.is_file():
            os.utime(each, (then, then))
