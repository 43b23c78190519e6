"""A lake for tests of maintenance jobs, which run on threads."""

from __future__ import annotations

import os
import time
from datetime import datetime, timedelta
from pathlib import Path

import pyarrow as pa
from tests.support.jobs.running import results_of
from tests.support.lakes import Lake
from tests.support.roots import ipc

from relance.clock import SystemClock
from relance.jobs.base import Job, Result
from relance.jobs.runner import ThreadRunner

DAY = 24 * 3600


class JobLake(Lake):
    """A lake whose tables hold one column of numbers, and on which jobs run."""

    def make(self, name: str, *values: int) -> None:
        """Create a table with these numbers."""
        self.catalog.create_table({"id": [name]}, ipc(pa.table({"a": list(values)})))

    def append(self, name: str, *values: int) -> None:
        """Add numbers in a new fragment."""
        self.write(pa.table({"a": list(values)}), name, mode="append")

    def values(self, name: str, version: int | str | None = None) -> list[int]:
        """Return the numbers of a table, in their order."""
        return sorted(self.dataset(name, version=version).to_table()["a"].to_pylist())

    def run(
        self,
        job: Job,
        *tables: tuple[str, ...],
        oversized_seconds: float = 20.0,
        dry_run: bool = False,
        threads: int = 2,
    ) -> list[Result]:
        """Run a job over tables, or over all that it is for."""
        chosen = list(tables) or list(job.targets(self.context))
        found = results_of(
            job,
            self.ref,
            chosen,
            ThreadRunner(threads),
            dry_run=dry_run,
            oversized_seconds=oversized_seconds,
        )
        return sorted(found, key=lambda each: each.table)


def data_file(number: int) -> str:
    """Return the name of a data file as Lance makes them up."""
    return f"{number:024b}{number:026x}.lance"


class ClockBehind(SystemClock):
    """The clock of a machine that is five seconds behind; the store's is right."""

    def now(self) -> datetime:
        return super().now() - timedelta(seconds=5)


def age(folder: Path, seconds: float) -> None:
    """Make every file below a folder so much older."""
    then = time.time() - seconds
    for each in folder.rglob("*"):
        if each.is_file():
            os.utime(each, (then, then))
