"""Purge and cleanup of many tables, as maintenance jobs on threads, beside loops over single calls."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from datetime import timedelta
from time import perf_counter

import lance
import pyarrow as pa
from lance_namespace import DropTableRequest

from benchmarks.results import Benchmark, Result, Sample, Unit, times_faster
from benchmarks.roots import V1, open_native, temporary_root
from relance import CleanupPolicy
from relance.locations import LAYOUT_KEY, MARKER_SUFFIX
from relance.maintenance.expired_drops import PurgeDropped
from relance.maintenance.maintain import maintain
from relance.maintenance.old_versions import CleanUp
from relance.maintenance.work import CatalogRef, Job

TABLES = 1_000
VERSIONS = 20
THREADS_GAIN = 1.5
REPEATS = 2


def purge_many() -> Iterator[Result]:
    """Measure the purge of many small dropped tables beside native's drop of as many, one after another."""
    from benchmarks.lifecycle import _dropped_marker

    ours: list[float] = []
    native: list[float] = []
    with temporary_root() as model:
        lance.write_dataset(pa.table({"a": [1]}), f"{model}/t.lance")
        for _ in range(REPEATS):
            with temporary_root() as left, temporary_root() as right:
                marker = _dropped_marker()
                for root in (left, right):
                    with open(f"{root}/{LAYOUT_KEY}", "wb") as flag:
                        flag.write(b"{}")
                    for number in range(TABLES):
                        shutil.copytree(f"{model}/t.lance", f"{root}/t{number}.lance")
                for number in range(TABLES):
                    with open(f"{left}/t{number}{MARKER_SUFFIX}", "wb") as file:
                        file.write(marker)
                names = [[f"t{number}"] for number in range(TABLES)]
                ours.append(_seconds_of_job(left, PurgeDropped(force=True), names))
                peer, start = open_native(right), perf_counter()
                for name in names:
                    peer.drop_table(DropTableRequest(id=name))
                native.append(perf_counter() - start)
    what = f"purge of {TABLES:,} small dropped tables on threads"
    yield Result(what, Unit.SECONDS, Sample(tuple(ours)), Sample(tuple(native)), times_faster(1))


def clean_many() -> Iterator[Result]:
    """Measure the cleanup of many tables with versions beside a loop over Lance's own cleanup."""
    ours: list[float] = []
    native: list[float] = []
    with temporary_root() as model:
        for number in range(VERSIONS):
            mode = "overwrite" if number % 2 else "append"
            lance.write_dataset(
                pa.table({"a": list(range(100))}), f"{model}/t.lance", mode=mode if number else "create"
            )
        for _ in range(REPEATS):
            with temporary_root() as left, temporary_root() as right:
                for root in (left, right):
                    for number in range(TABLES):
                        shutil.copytree(f"{model}/t.lance", f"{root}/t{number}.lance")
                job = CleanUp(CleanupPolicy(retain_versions=1), allow_young=True)
                ours.append(_seconds_of_job(left, job, None))
                start = perf_counter()
                for number in range(TABLES):
                    dataset = lance.dataset(f"{right}/t{number}.lance")
                    dataset.cleanup_old_versions(older_than=timedelta(0), retain_versions=1)
                native.append(perf_counter() - start)
    what = f"cleanup of {TABLES:,} tables x {VERSIONS} versions on threads"
    yield Result(what, Unit.SECONDS, Sample(tuple(ours)), Sample(tuple(native)), times_faster(THREADS_GAIN))


def _seconds_of_job(root: str, job: Job, tables: list[list[str]] | None) -> float:
    catalog = CatalogRef(tuple({"root": root, **V1}.items()))
    start = perf_counter()
    report = maintain(catalog, job, tables, engine="local")
    seconds = perf_counter() - start
    if report.failed or len(report.changed) != TABLES:
        raise RuntimeError(f"{len(report.failed)} tables failed: {report.failed[:1]}")
    return seconds


BENCHMARKS: tuple[Benchmark, ...] = (
    Benchmark("purge-many", f"purge {TABLES:,} small dropped tables", purge_many),
    Benchmark("cleanup-many", f"clean {TABLES:,} tables of {VERSIONS} versions", clean_many),
)
