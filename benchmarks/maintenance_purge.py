"""Purge and cleanup of many tables, as maintenance jobs on threads, beside loops over single calls."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping
from datetime import timedelta
from time import perf_counter

import lance
import pyarrow as pa
from lance_namespace import DropTableRequest
from tests.servers import count_requests, start_moto

from benchmarks.results import Benchmark, Result, Sample, Unit, times_faster
from benchmarks.roots import V1, fill_bucket, open_native, table_name, temporary_root
from relance import CleanupPolicy
from relance.locations import LAYOUT_KEY, MARKER_SUFFIX
from relance.maintenance.maintain import maintain
from relance.maintenance.removal.expired_drops import PurgeDropped
from relance.maintenance.removal.old_versions import CleanUp
from relance.maintenance.work import CatalogRef, Job

TABLES = 1_000
VERSIONS = 20
S3_TABLES = 200
S3_DELAY = 0.015
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
                # Dropped tables are purged days later, when they are on the disk; and what one side has
                # left to be written must not be written in the other one's time.
                os.sync()
                names = [[f"t{number}"] for number in range(TABLES)]
                ours.append(_seconds_of_job(left, PurgeDropped(force=True), names))
                peer, start = open_native(right), perf_counter()
                for name in names:
                    peer.drop_table(DropTableRequest(id=name))
                native.append(perf_counter() - start)
    what = f"purge of {TABLES:,} small dropped tables on threads"
    yield Result(what, Unit.SECONDS, Sample(tuple(ours)), Sample(tuple(native)), times_faster(1))


def purge_many_on_s3() -> Iterator[Result]:
    """Measure the same on an S3 server whose answers take as long as those of a real one."""
    from benchmarks.lifecycle import _dropped_marker

    with start_moto() as server, count_requests(server, delay=S3_DELAY) as far:
        bucket, client, marker = server.make_bucket("purge-many"), server.client(), _dropped_marker()
        for side in ("left", "right"):
            client.put_object(Bucket=bucket, Key=f"{side}/{LAYOUT_KEY}", Body=b"{}")
            fill_bucket(server, bucket, side, S3_TABLES)
        names = [[table_name(number)] for number in range(S3_TABLES)]
        for (table,) in names:
            client.put_object(Bucket=bucket, Key=f"left/{table}{MARKER_SUFFIX}", Body=marker)
        options = far.server.storage_options()
        ours = _seconds_of_job(f"s3://{bucket}/left", PurgeDropped(force=True), names, options)
        peer, start = open_native(f"s3://{bucket}/right", options), perf_counter()
        for name in names:
            peer.drop_table(DropTableRequest(id=name))
        native = perf_counter() - start
    what = f"purge of {S3_TABLES:,} small dropped tables on S3, {S3_DELAY * 1000:.0f} ms a request"
    yield Result(what, Unit.SECONDS, Sample((ours,)), Sample((native,)), times_faster(1))


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


def _seconds_of_job(
    root: str, job: Job, tables: list[list[str]] | None, options: Mapping[str, str] | None = None
) -> float:
    storage = {f"storage.{key}": value for key, value in (options or {}).items()}
    catalog = CatalogRef(tuple({"root": root, **V1, **storage}.items()))
    start = perf_counter()
    report = maintain(catalog, job, tables, engine="local")
    seconds = perf_counter() - start
    if report.failed or len(report.changed) != (TABLES if tables is None else len(tables)):
        raise RuntimeError(f"{len(report.failed)} tables failed: {report.failed[:1]}")
    return seconds


BENCHMARKS: tuple[Benchmark, ...] = (
    Benchmark("purge-many", f"purge {TABLES:,} small dropped tables", purge_many),
    Benchmark("purge-many-s3", f"purge {S3_TABLES} small dropped tables on an S3 server", purge_many_on_s3),
    Benchmark("cleanup-many", f"clean {TABLES:,} tables of {VERSIONS} versions", clean_many),
)
