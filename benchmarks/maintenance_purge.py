"""Purge and cleanup of many tables, as maintenance jobs, beside loops over single calls."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping
from datetime import timedelta
from time import perf_counter

import lance
import pyarrow as pa
from lance_namespace import DropTableRequest
from tests.support.servers import S3Server, count_requests, start_moto

from benchmarks.lifecycle import dropped_marker
from benchmarks.results import Benchmark, Result, Sample, Unit, times_faster
from benchmarks.roots import (
    ROOT_FLAG,
    V1,
    fill_bucket,
    keep_apart,
    open_native,
    open_ours,
    seconds_to_make_a_file,
    table_name,
    temporary_root,
)
from relance import CleanupPolicy, DirectoryNamespace
from relance.jobs import CleanUp, PurgeDropped, maintain
from relance.jobs.base import CatalogRef, Job
from relance.locations import LAYOUT_KEY, MARKER_SUFFIX

TABLES = 1_000
VERSIONS = 20
S3_TABLES = 200
S3_CLEANED = 40
S3_VERSIONS = 10
S3_DELAY = 0.015
THREADS_GAIN = 1.5
REPEATS = 3
PLACES = 10
USUAL_SECONDS = 0.00003
"""In which a file is made; if it takes longer, another place is tried."""
CLEANUPS = 4
"""How often each side cleans: the machine's own pace differs by more than the sides do."""
CLEAN_UP = CleanUp(retain_versions=1, allow_young=True)


def purge_many() -> Iterator[Result]:
    """Measure the purge of many small dropped tables beside native's drop of as many, one after another."""
    ours: list[float] = []
    native: list[float] = []
    names = [[f"t{number}"] for number in range(TABLES)]
    with temporary_root() as folder:
        keep_apart(folder)
        lance.write_dataset(pa.table({"a": [1]}), f"{folder}/t.lance")
        dropped = [_make_dropped(folder, number) for number in range(REPEATS)]
        for number in range(REPEATS):
            _copy_tables(f"{folder}/t.lance", f"{folder}/right{number}")
        # Dropped tables are purged days later, when they are on the disk; and what one side has left to be
        # written must not be written in the other one's time.
        os.sync()
        for number, root in enumerate(dropped):
            ours.append(_seconds_of_job(root, PurgeDropped(force=True), names))
            peer, start = open_native(f"{folder}/right{number}"), perf_counter()
            for name in names:
                peer.drop_table(DropTableRequest(id=name))
            native.append(perf_counter() - start)
    what = f"purge of {TABLES:,} small dropped tables"
    yield Result(what, Unit.SECONDS, Sample(tuple(ours)), Sample(tuple(native)), times_faster(1))


def _make_dropped(folder: str, number: int) -> str:
    """Make a root of dropped tables, at a place of the disk at which nothing was removed just before."""
    found: dict[str, float] = {}
    while len(found) < PLACES and min(found.values(), default=1.0) > USUAL_SECONDS:
        root = f"{folder}/left{number}-{len(found)}"
        _copy_tables(f"{folder}/t.lance", root, dropped=True)
        found[root] = seconds_to_make_a_file(f"{root}/.relance-local/tmp")
    return min(found, key=lambda root: found[root])


def _copy_tables(model: str, root: str, *, dropped: bool = False) -> None:
    """Make a root of many copies of one table."""
    os.mkdir(root)
    with open(f"{root}/{LAYOUT_KEY}", "wb") as flag:
        flag.write(ROOT_FLAG)
    for number in range(TABLES):
        shutil.copytree(model, f"{root}/t{number}.lance")
        if dropped:
            with open(f"{root}/t{number}{MARKER_SUFFIX}", "wb") as file:
                file.write(dropped_marker())


def purge_many_on_s3() -> Iterator[Result]:
    """Measure the same on an S3 server whose answers take as long as those of a real one."""
    with start_moto() as server, count_requests(server, delay=S3_DELAY) as far:
        bucket, client, marker = server.make_bucket("purge-many"), server.client(), dropped_marker()
        for side in ("left", "right"):
            client.put_object(Bucket=bucket, Key=f"{side}/{LAYOUT_KEY}", Body=ROOT_FLAG)
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
    """Measure the cleanup of many tables with versions beside loops: over Lance's own, over the catalog's."""
    times: dict[str, list[float]] = {"job": [], "catalog": [], "lance": []}
    with temporary_root() as folder:
        _write_versions(f"{folder}/t.lance", VERSIONS)
        for number in range(CLEANUPS):
            for side in times:
                _copy_tables(f"{folder}/t.lance", f"{folder}/{side}{number}")
        os.sync()
        for number in range(CLEANUPS):
            times["job"].append(_seconds_of_job(f"{folder}/job{number}", CLEAN_UP, TABLES))
            times["catalog"].append(_seconds_of_loop(f"{folder}/catalog{number}"))
            start = perf_counter()
            for table in range(TABLES):
                dataset = lance.dataset(f"{folder}/lance{number}/t{table}.lance")
                dataset.cleanup_old_versions(older_than=timedelta(0), retain_versions=1)
            times["lance"].append(perf_counter() - start)
    what = f"cleanup of {TABLES:,} tables x {VERSIONS} versions"
    job, catalog, alone = (Sample(tuple(each)) for each in times.values())
    yield Result(f"{what}, beside a loop", Unit.SECONDS, job, alone, times_faster(THREADS_GAIN))
    yield Result(
        f"{what}, beside a loop over the catalog's", Unit.SECONDS, job, catalog, times_faster(THREADS_GAIN)
    )


def clean_many_on_s3() -> Iterator[Result]:
    """Measure the same on an S3 server whose answers take as long as those of a real one."""
    with temporary_root() as folder, start_moto() as server, count_requests(server, delay=S3_DELAY) as far:
        _write_versions(f"{folder}/t.lance", S3_VERSIONS)
        bucket = server.make_bucket("clean-many")
        for side in ("left", "right"):
            server.client().put_object(Bucket=bucket, Key=f"{side}/{LAYOUT_KEY}", Body=ROOT_FLAG)
            for number in range(S3_CLEANED):
                _upload(server, bucket, f"{folder}/t.lance", f"{side}/t{number}.lance")
        options = far.server.storage_options()
        ours = _seconds_of_job(f"s3://{bucket}/left", CLEAN_UP, S3_CLEANED, options)
        loop = _seconds_of_loop(f"s3://{bucket}/right", options, tables=S3_CLEANED)
    what = (
        f"cleanup of {S3_CLEANED} tables x {S3_VERSIONS} versions on S3, {S3_DELAY * 1000:.0f} ms a request"
    )
    yield Result(what, Unit.SECONDS, Sample((ours,)), Sample((loop,)), times_faster(THREADS_GAIN))


def _write_versions(table: str, count: int) -> None:
    for number in range(count):
        mode = "overwrite" if number % 2 else "append"
        lance.write_dataset(pa.table({"a": list(range(100))}), table, mode=mode if number else "create")


def _upload(server: S3Server, bucket: str, folder: str, prefix: str) -> None:
    client = server.client()
    for where, _, files in os.walk(folder):
        for file in files:
            path = f"{where}/{file}"
            client.upload_file(path, bucket, f"{prefix}/{os.path.relpath(path, folder)}")


def _seconds_of_loop(root: str, options: Mapping[str, str] | None = None, *, tables: int = TABLES) -> float:
    catalog = open_ours(root, options)
    assert isinstance(catalog, DirectoryNamespace)
    start = perf_counter()
    for number in range(tables):
        stats = catalog.cleanup_with_policy([f"t{number}"], CleanupPolicy(retain_versions=1))
        if stats.old_versions == 0:
            raise RuntimeError("a table was clean already")
    return perf_counter() - start


def _seconds_of_job(
    root: str, job: Job, tables: list[list[str]] | int, options: Mapping[str, str] | None = None
) -> float:
    """Run a job over tables, named or as many as there are, and return how long it took."""
    storage = {f"storage.{key}": value for key, value in (options or {}).items()}
    catalog = CatalogRef(tuple({"root": root, **V1, **storage}.items()))
    start = perf_counter()
    named = None if isinstance(tables, int) else tables
    report = maintain(catalog, job, named, engine="local")
    seconds = perf_counter() - start
    if report.failed or len(report.changed) != (tables if isinstance(tables, int) else len(tables)):
        raise RuntimeError(f"{len(report.failed)} tables failed: {report.failed[:1]}")
    return seconds


BENCHMARKS: tuple[Benchmark, ...] = (
    Benchmark("purge-many", f"purge {TABLES:,} small dropped tables", purge_many),
    Benchmark("purge-many-s3", f"purge {S3_TABLES} small dropped tables on an S3 server", purge_many_on_s3),
    Benchmark("cleanup-many", f"clean {TABLES:,} tables of {VERSIONS} versions", clean_many),
    Benchmark("cleanup-many-s3", f"clean {S3_CLEANED} tables on an S3 server", clean_many_on_s3),
)
