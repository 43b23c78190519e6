"""Drop, undrop and purge: requests, seconds beside native's drop, and what markers cost a listing."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from time import perf_counter

from lance_namespace import DropTableRequest
from tests.support.internals import context_of
from tests.support.servers import S3Server, count_requests, start_moto

import relance
from benchmarks.measure import in_turns
from benchmarks.results import Benchmark, Result, Sample, Target, Unit, at_most, times_faster
from benchmarks.roots import (
    DATA_FILE,
    MANIFEST,
    ROOT_FLAG,
    V1,
    fill_folder,
    list_names,
    open_native,
    open_ours,
    table_name,
    temporary_root,
)
from relance.catalog.states import Mark, Timing, encode_mark, new_nonce
from relance.clock import SystemClock
from relance.locations import LAYOUT_KEY, MARKER_SUFFIX
from relance.storage.probe import capabilities

PURGED_FILES = 5_000
FILE_BYTES = 4096
"""A file without content frees nothing, and no Lance file is so."""
LISTED_TABLES = 20_000
DROPPED_TABLES = 10_000
MARKER_RATIO = 1.3
REPEATS = 7


def _open(root: str, server: S3Server | None = None) -> relance.DirectoryNamespace:
    options = server.storage_options() if server else {}
    properties = {"root": root, **V1, **{f"storage.{key}": value for key, value in options.items()}}
    return relance.DirectoryNamespace(clock=None, **properties)


def dropped_marker() -> bytes:
    """Return the marker of a drop; that it is there drops a table, without an arbiter."""
    return encode_mark(Mark(SystemClock().now(), Timing().drop_ttl, new_nonce()))


def _fill_table(folder: str) -> None:
    """Make one table of many files."""
    for directory in ("_versions", "data"):
        os.makedirs(f"{folder}/{directory}")
    for number in range(PURGED_FILES - 1):
        _write_file(f"{folder}/data/{number:05d}.lance")
    _write_file(f"{folder}/{MANIFEST}")


def _write_file(path: str) -> None:
    with open(path, "wb") as file:
        file.write(b"x" * FILE_BYTES)


def purge_on_local_disk() -> Iterator[Result]:
    """Measure the purge of a dropped table of many files beside native's drop of such a table."""
    ours: list[float] = []
    native: list[float] = []
    for _ in range(REPEATS):
        with temporary_root() as root:
            for name in ("ours", "native"):
                _fill_table(f"{root}/{name}.lance")
            with open(f"{root}/ours{MARKER_SUFFIX}", "wb") as marker:
                marker.write(dropped_marker())
            catalog, peer = _open(root), open_native(root)
            capabilities(context_of(catalog).storage)  # tried out once per root
            native.append(_seconds(lambda peer=peer: peer.drop_table(DropTableRequest(id=["native"]))))  # type: ignore[misc]  # bound per turn
            ours.append(_seconds(lambda catalog=catalog: catalog.purge_table(["ours"], force=True)))  # type: ignore[misc]  # bound per turn
    what = f"purge of {PURGED_FILES:,} files on local disk"
    yield Result(what, Unit.SECONDS, Sample(tuple(ours)), Sample(tuple(native)), times_faster(1))


def purge_on_s3() -> Iterator[Result]:
    """Measure the same on an S3 server."""
    ours: list[float] = []
    native: list[float] = []
    with start_moto() as server:
        for _ in range(2):
            bucket = server.make_bucket("purge")
            client = server.client()
            for name in ("ours", "native"):
                keys = [f"lake/{name}.lance/{MANIFEST}"]
                keys += [f"lake/{name}.lance/data/{number:05d}.lance" for number in range(PURGED_FILES - 1)]
                for key in keys:
                    client.put_object(Bucket=bucket, Key=key, Body=b"x")
            client.put_object(Bucket=bucket, Key=f"lake/ours{MARKER_SUFFIX}", Body=dropped_marker())
            root = f"s3://{bucket}/lake"
            catalog, peer = _open(root, server), open_native(root, server.storage_options())
            capabilities(context_of(catalog).storage)  # tried out once per root
            native.append(_seconds(lambda peer=peer: peer.drop_table(DropTableRequest(id=["native"]))))  # type: ignore[misc]  # bound per turn
            ours.append(_seconds(lambda catalog=catalog: catalog.purge_table(["ours"], force=True)))  # type: ignore[misc]  # bound per turn
    what = f"purge of {PURGED_FILES:,} files on S3"
    yield Result(what, Unit.SECONDS, Sample(tuple(ours)), Sample(tuple(native)), times_faster(1))


def _seconds(call: Callable[[], object]) -> float:
    start = perf_counter()
    call()
    return perf_counter() - start


def list_with_markers() -> Iterator[Result]:
    """Measure what dropped tables cost a listing, per entry of the root."""
    with temporary_root() as root:
        fill_folder(root, LISTED_TABLES, files=(MANIFEST, DATA_FILE))
        with open(f"{root}/{LAYOUT_KEY}", "wb") as flag:
            flag.write(ROOT_FLAG)
        plain = f"{root}-plain"
        shutil.copytree(root, plain, copy_function=os.link)
        try:
            marker = dropped_marker()
            for number in range(DROPPED_TABLES):
                with open(f"{root}/{table_name(number)}{MARKER_SUFFIX}", "wb") as file:
                    file.write(marker)
            marked, unmarked = open_ours(root), open_ours(plain)
            if len(list_names(marked)) != LISTED_TABLES - DROPPED_TABLES:
                raise RuntimeError("the dropped tables are not hidden")
            with_markers, without = in_turns(
                lambda: list_names(marked), lambda: list_names(unmarked), repeats=5
            )
        finally:
            shutil.rmtree(plain)
    entries = LISTED_TABLES + DROPPED_TABLES
    per_entry = Sample(tuple(value / entries for value in with_markers.values))
    per_plain = Sample(tuple(value / LISTED_TABLES for value in without.values))
    target = Target(
        f"at most {MARKER_RATIO}x of the same without markers",
        lambda ours, native: native is not None and ours <= MARKER_RATIO * native,
    )
    what = f"list_tables per entry, {DROPPED_TABLES:,} of {LISTED_TABLES:,} dropped (beside: none dropped)"
    yield Result(what, Unit.SECONDS, per_entry, per_plain, target)


def count_lifecycle_requests() -> Iterator[Result]:
    """Count what a drop and an undrop ask of an S3 server, beside native's drop."""
    import lance

    with start_moto() as server, count_requests(server) as counter:
        bucket = server.make_bucket("requests")
        root, options = f"s3://{bucket}/lake", counter.server.storage_options()
        for name in ("warm_up", "t", "native"):
            lance.write_dataset([{"x": 1}], f"{root}/{name}.lance", storage_options=options)
        catalog, peer = _open(root, counter.server), open_native(root, options)
        catalog.drop_table({"id": ["warm_up"]})  # the store is tried out once per root
        counts = []
        for call in (
            lambda: catalog.drop_table({"id": ["t"]}),
            lambda: catalog.undrop_table(["t"]),
            lambda: peer.drop_table(DropTableRequest(id=["native"])),
        ):
            counter.reset()
            call()
            counts.append(Sample((counter.count(),)))
    dropped, undropped, native = counts
    yield Result("drop_table on S3", Unit.REQUESTS, dropped, native, at_most(5, "at most 5"))
    yield Result("undrop_table on S3", Unit.REQUESTS, undropped, None, at_most(4, "at most 4"))


BENCHMARKS: tuple[Benchmark, ...] = (
    Benchmark("purge-local", f"purge a table of {PURGED_FILES:,} files on local disk", purge_on_local_disk),
    Benchmark("purge-s3", f"purge a table of {PURGED_FILES:,} files on an S3 server", purge_on_s3),
    Benchmark("list-dropped", "list a root where half of the tables are dropped", list_with_markers),
    Benchmark("lifecycle-requests", "count the requests of a drop and an undrop", count_lifecycle_requests),
)
