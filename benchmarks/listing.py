"""Listing the tables of a root: seconds on local disk and S3, and the requests S3 sees."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial

from lance_namespace import LanceNamespace
from tests.support.servers import S3Server, count_requests, start_moto

from benchmarks.measure import in_turns
from benchmarks.results import Benchmark, Result, Sample, Unit, at_most, times_faster
from benchmarks.roots import (
    ROOT_FLAG,
    check_listing,
    fill_bucket,
    fill_folder,
    list_names,
    open_native,
    open_ours,
    temporary_root,
)
from relance.locations import LAYOUT_KEY

LOCAL_TABLES = 10_000
LOCAL_FASTER = 3
LOCAL_REPEATS = 5

S3_TABLES = 2_000
S3_FASTER = 20
S3_REPEATS = 2
"""Few, and without a warm-up: native needs many seconds for one listing."""

PREFIX = "lake"

Opener = Callable[[str, Mapping[str, str]], LanceNamespace]


def list_on_local_disk() -> Iterator[Result]:
    """Measure listings of many tables in a folder."""
    with temporary_root() as root:
        fill_folder(root, LOCAL_TABLES)
        ours, native = open_ours(root), open_native(root)
        check_listing(ours, LOCAL_TABLES)
        check_listing(native, LOCAL_TABLES)
        for include_declared, note in ((True, ""), (False, ", declared left out")):
            ours_seconds, native_seconds = in_turns(
                partial(list_names, ours, include_declared=include_declared),
                partial(list_names, native, include_declared=include_declared),
                repeats=LOCAL_REPEATS,
            )
            what = f"list_tables, {LOCAL_TABLES:,} on local disk{note}"
            yield Result(what, Unit.SECONDS, ours_seconds, native_seconds, times_faster(LOCAL_FASTER))


def list_on_s3() -> Iterator[Result]:
    """Measure listings of a bucket: requests through a counting proxy, seconds straight from the server."""
    with start_moto() as server:
        bucket = server.make_bucket("bench")
        fill_bucket(server, bucket, PREFIX, S3_TABLES)
        root, options = f"s3://{bucket}/{PREFIX}", server.storage_options()
        ours, native = open_ours(root, options), open_native(root, options)
        check_listing(ours, S3_TABLES)
        # Before the root is flagged: what a root of other clients costs. Native knows no such flag.
        foreign_requests = _requests_of(open_ours, server, root)
        (foreign_seconds,) = in_turns(partial(list_names, ours), repeats=S3_REPEATS, warm_up=False)
        server.client().put_object(Bucket=bucket, Key=f"{PREFIX}/{LAYOUT_KEY}", Body=ROOT_FLAG)
        ours_requests = _requests_of(open_ours, server, root)
        native_requests = _requests_of(open_native, server, root)
        ours_seconds, native_seconds = in_turns(
            partial(list_names, ours), partial(list_names, native), repeats=S3_REPEATS, warm_up=False
        )
    what = f"list_tables, {S3_TABLES:,} on S3"
    limit = 2 + S3_TABLES // 1000
    yield Result(what, Unit.REQUESTS, ours_requests, native_requests, at_most(limit, f"at most {limit}"))
    yield Result(what, Unit.SECONDS, ours_seconds, native_seconds, times_faster(S3_FASTER))
    yield Result(f"{what}, root without flag", Unit.REQUESTS, foreign_requests, native_requests)
    yield Result(f"{what}, root without flag", Unit.SECONDS, foreign_seconds, native_seconds)


def _requests_of(opener: Opener, server: S3Server, root: str) -> Sample:
    """Return how many requests one listing makes."""
    with count_requests(server) as counter:
        namespace = opener(root, counter.server.storage_options())
        counter.reset()
        check_listing(namespace, S3_TABLES)
        return Sample((counter.count(),))


BENCHMARKS: tuple[Benchmark, ...] = (
    Benchmark("list-local", f"list {LOCAL_TABLES:,} tables on local disk", list_on_local_disk),
    Benchmark("list-s3", f"list {S3_TABLES:,} tables on an S3 server, and count its requests", list_on_s3),
)
