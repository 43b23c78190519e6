"""Every verb on a root table on local disk beside native, and what one look at a name costs on S3."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from time import perf_counter
from typing import Any

import pyarrow as pa
from lance_namespace import (
    CreateTableRequest,
    DeclareTableRequest,
    DescribeTableRequest,
    DropTableRequest,
    TableExistsRequest,
    connect,
)
from tests.support.internals import context_of
from tests.support.servers import start_minio, start_moto
from tests.support.services import ServiceUnavailable

import relance
from benchmarks.results import Benchmark, Result, Sample, Unit, times_its_own, times_slower
from benchmarks.roots import temporary_root
from relance.errors import KeyNotFoundError

TABLES = 40
SLOWER = 1.5
LOOKS = 60
NAMES = 2_000

MODES = {
    "compatibility": {"manifest_enabled": "true", "dir_listing_enabled": "true"},
    "V1": {"manifest_enabled": "false", "dir_listing_enabled": "true"},
}


def _stream() -> bytes:
    sink = pa.BufferOutputStream()
    rows = pa.table({"x": [1]})
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write_table(rows)
    return bytes(sink.getvalue())


def _times(call: Callable[[str], object], names: list[str]) -> Sample:
    times = []
    for name in names:
        start = perf_counter()
        call(name)
        times.append(perf_counter() - start)
    return Sample(tuple(times))


def _joined(samples: Iterable[Sample]) -> Sample:
    return Sample(tuple(seconds for sample in samples for seconds in sample.values))


def verbs_on_local_disk() -> Iterator[Result]:
    """Measure each verb in each mode; ours and native take turns, table by table."""
    for mode, properties in MODES.items():
        with temporary_root() as root, temporary_root() as other:
            ours = relance.DirectoryNamespace(clock=None, root=root, **properties)
            native = connect("lance.namespace.DirectoryNamespace", {"root": other, **properties})
            yield from _verbs(mode, ours, native)


def _verbs(mode: str, ours: relance.DirectoryNamespace, native: Any) -> Iterator[Result]:
    data = _stream()
    names = [f"t{number}" for number in range(TABLES)]

    def result(what: str, mine: Sample, peer: Sample | None) -> Result:
        target = times_slower(SLOWER) if peer is not None else None
        return Result(f"{what}, {mode}", Unit.SECONDS, mine, peer, target, by_median=True)

    def both(call: Callable[[Any, str], object]) -> tuple[Sample, Sample]:
        """Take turns table by table, so that other work on the machine slows both alike."""
        pairs = [
            (
                _times(lambda table: call(ours, table), [name]),
                _times(lambda table: call(native, table), [name]),
            )
            for name in names
        ]
        mine, peer = zip(*pairs, strict=True)
        return _joined(mine), _joined(peer)

    mine, created = both(lambda catalog, name: catalog.create_table(CreateTableRequest(id=[name]), data))
    yield result("create_table", mine, created)
    yield result(
        "declare_table",
        *both(lambda catalog, name: catalog.declare_table(DeclareTableRequest(id=[f"d{name}"]))),
    )
    yield result(
        "describe_table", *both(lambda catalog, name: catalog.describe_table(DescribeTableRequest(id=[name])))
    )
    yield result(
        "table_exists", *both(lambda catalog, name: catalog.table_exists(TableExistsRequest(id=[name])))
    )

    def overwrite(catalog: Any, name: str) -> object:
        return catalog.create_table(CreateTableRequest(id=[name], mode="overwrite"), data)

    if mode == "V1":  # where native refuses it
        yield result("create_table, overwrite", _times(lambda name: overwrite(ours, name), names), None)
    else:
        yield result("create_table, overwrite", *both(overwrite))
    mine, dropped = both(lambda catalog, name: catalog.drop_table(DropTableRequest(id=[name])))
    yield result("drop_table", mine, dropped)
    yield result("undrop_table", _times(lambda name: ours.undrop_table([name]), names), None)
    _times(lambda name: ours.drop_table(DropTableRequest(id=[name])), names)
    again = _times(lambda name: ours.create_table(CreateTableRequest(id=[name]), data), names)
    yield result("create_table over a dropped name (beside: create_table)", again, created)
    _times(lambda name: ours.drop_table(DropTableRequest(id=[name])), names)
    purged = _times(lambda name: ours.purge_table([name], force=True), names)
    yield result("purge_table (beside: drop_table)", purged, dropped)


def look_at_a_name() -> Iterator[Result]:
    """Measure one listing that shows all of a name beside two small requests at the same time."""
    try:
        with start_minio() as server:
            yield from _looks(server, "MinIO")
    except ServiceUnavailable:
        with start_moto() as server:
            yield from _looks(server, "moto")


def _looks(server: Any, store: str) -> Iterator[Result]:
    bucket, client = server.make_bucket("look"), server.client()
    for number in range(NAMES):
        manifest = f"lake/t{number:05d}.lance/_versions/18446744073709551614.manifest"
        client.put_object(Bucket=bucket, Key=manifest, Body=b"x")
    options = {f"storage.{key}": value for key, value in server.storage_options().items()}
    storage = context_of(relance.DirectoryNamespace(root=f"s3://{bucket}/lake", **options)).storage
    last = f"t{NAMES - 1:05d}"

    def page(name: str) -> None:
        storage.list_after(f"{name}.c")

    with ThreadPoolExecutor(2) as pool:

        def pair(name: str) -> None:
            def read() -> None:
                with suppress(KeyNotFoundError):
                    storage.read(f"{name}.control")

            listing = pool.submit(storage.list_level, f"{name}.lance")
            reading = pool.submit(read)
            listing.result(), reading.result()

        for what, name in (("of 1,000 keys", "t00010"), ("of few keys", last)):
            one, two = _times(page, [name] * LOOKS), _times(pair, [name] * LOOKS)
            yield Result(
                f"one listing {what} on {store} (beside: two small requests at once)",
                Unit.SECONDS,
                one,
                two,
                times_its_own(1),
                by_median=True,
            )


BENCHMARKS: tuple[Benchmark, ...] = (
    Benchmark("verbs-local", "each verb on a root table on local disk", verbs_on_local_disk),
    Benchmark("look-s3", "one look at a name on an S3 server: a page or two small requests", look_at_a_name),
)
