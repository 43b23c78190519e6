"""What operations on a manifest ask of an S3 server, beside native's."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import count

import pyarrow as pa
from lance_namespace import (
    CreateNamespaceRequest,
    CreateTableRequest,
    DeclareTableRequest,
    DescribeTableRequest,
    DropTableRequest,
    LanceNamespace,
    ListTablesRequest,
    RenameTableRequest,
    TableExistsRequest,
    connect,
)
from tests.support.servers import RequestCounter, count_requests, start_moto

import relance
from benchmarks.manifest_roots import (
    LARGE,
    PAGE,
    manifest_rows,
    open_native,
    open_ours,
    rows_of,
    storage_properties,
    write_manifest,
)
from benchmarks.results import Benchmark, Result, Sample, Target, Unit, at_most
from benchmarks.roots import ROOT_FLAG, fill_bucket, table_name
from relance.locations import LAYOUT_KEY

ENTRIES = 1_000
ROUNDS = 5
COMPATIBLE_TABLES = 2_000
KEYS_PER_PAGE = 1_000

Call = Callable[[LanceNamespace, int], object]


def _body() -> bytes:
    sink = pa.BufferOutputStream()
    table = pa.table({"x": [1, 2, 3]})
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    body: bytes = sink.getvalue().to_pybytes()
    return body


BODY = _body()


def _looked_at(number: int) -> list[str]:
    """Return the id of one of the tables; never the same twice, which would be known already."""
    return [LARGE, f"table_{number * 10 + next(_TURNS) % 10:07d}"]


_TURNS = count()


def _undrop(namespace: LanceNamespace, number: int) -> None:
    assert isinstance(namespace, relance.DirectoryNamespace)  # native has none
    namespace.undrop_table(["ns_001", f"created_{number}"])


SHARED: dict[str, Call] = {
    "create_namespace": lambda it, n: it.create_namespace(CreateNamespaceRequest(id=["ns_001", f"ns_{n}"])),
    "declare_table": lambda it, n: it.declare_table(DeclareTableRequest(id=["ns_001", f"declared_{n}"])),
    "create_table": lambda it, n: it.create_table(CreateTableRequest(id=["ns_001", f"created_{n}"]), BODY),
    "describe_table": lambda it, n: it.describe_table(DescribeTableRequest(id=_looked_at(n))),
    "table_exists": lambda it, n: it.table_exists(TableExistsRequest(id=_looked_at(n))),
    f"list_tables, a page of {PAGE}": lambda it, n: it.list_tables(ListTablesRequest(id=[LARGE], limit=PAGE)),
    "drop_table": lambda it, n: it.drop_table(DropTableRequest(id=["ns_001", f"created_{n}"])),
}
"""In this order each call finds what the one before it left."""

OURS: dict[str, Call] = {
    "undrop_table": _undrop,
    "rename_table": lambda it, n: it.rename_table(
        RenameTableRequest(id=["ns_001", f"created_{n}"], new_table_name=f"renamed_{n}")
    ),
}

LOOKS = ("describe_table", "table_exists", f"list_tables, a page of {PAGE}")


@dataclass(frozen=True, slots=True)
class Requests:
    """The requests of some calls of one kind."""

    totals: Sample
    kinds: Counter[str]
    """Of the call with the fewest requests."""

    def __str__(self) -> str:
        return " ".join(f"{number} {kind}" for kind, number in sorted(self.kinds.items())) or "none"


def count_requests_of_operations() -> Iterator[Result]:
    """Count what each operation asks of the server, by a client that has asked before and by a new one."""
    with start_moto() as server, count_requests(server) as counter:
        options = counter.server.storage_options()
        roots = [f"s3://{server.make_bucket(name)}/lake" for name in ("ours", "native")]
        for root in roots:
            write_manifest(root, manifest_rows(ENTRIES), options)
        ours, native = open_ours(roots[0], options), open_native(roots[1], options)
        _warm_up(ours)
        _warm_up(native)
        ours.maintain_manifest()
        of_native = _rounds(counter, native, SHARED)
        for name, of_ours in _rounds(counter, ours, SHARED | OURS).items():
            yield _result(f"{name} on S3", of_ours, of_native.get(name))
        for name in LOOKS:
            new = _of_new_clients(counter, lambda: open_ours(roots[0], options), SHARED[name])
            new_native = _of_new_clients(counter, lambda: open_native(roots[1], options), SHARED[name])
            yield _result(f"{name} by a new client on S3", new, new_native)


def _warm_up(namespace: LanceNamespace) -> None:
    namespace.create_namespace(CreateNamespaceRequest(id=["warm_up"]))


def _rounds(
    counter: RequestCounter, namespace: LanceNamespace, calls: Mapping[str, Call]
) -> dict[str, Requests]:
    seen: dict[str, list[Counter[str]]] = {name: [] for name in calls}
    for number in range(ROUNDS):
        for name, call in calls.items():
            counter.reset()
            call(namespace, number)
            seen[name].append(_kinds(counter))
    return {name: _summary(each) for name, each in seen.items()}


def _of_new_clients(counter: RequestCounter, opener: Callable[[], LanceNamespace], call: Call) -> Requests:
    seen = []
    for number in range(ROUNDS):
        namespace = opener()
        counter.reset()
        call(namespace, number)
        seen.append(_kinds(counter))
    return _summary(seen)


def _kinds(counter: RequestCounter) -> Counter[str]:
    return Counter("LIST" if "list-type=" in path else method for method, path in counter.requests)


def _summary(seen: list[Counter[str]]) -> Requests:
    return Requests(
        Sample(tuple(float(each.total()) for each in seen)), sorted(seen, key=Counter.total)[len(seen) // 2]
    )


def _result(what: str, ours: Requests, native: Requests | None, target: Target | None = None) -> Result:
    label = f"{what} (ours {ours}; native {native})" if native else f"{what} ({ours})"
    return Result(
        label, Unit.REQUESTS, ours.totals, native.totals if native else None, target, by_median=True
    )


AT_ROOT: dict[str, Call] = {
    "declare_table": lambda it, n: it.declare_table(DeclareTableRequest(id=[f"declared_{n}"])),
    "create_table": lambda it, n: it.create_table(CreateTableRequest(id=[f"created_{n}"]), BODY),
    "describe_table": lambda it, n: it.describe_table(DescribeTableRequest(id=[f"created_{n}"])),
    "table_exists": lambda it, n: it.table_exists(TableExistsRequest(id=[f"created_{n}"])),
    "drop_table": lambda it, n: it.drop_table(DropTableRequest(id=[f"created_{n}"])),
}
"""Of tables that lie in the directory of their name, whose marker and row are kept in step."""


def _undrop_at_root(namespace: LanceNamespace, number: int) -> None:
    assert isinstance(namespace, relance.DirectoryNamespace)  # native has none
    namespace.undrop_table([f"created_{number}"])


OURS_AT_ROOT: dict[str, Call] = {
    "undrop_table": _undrop_at_root,
    "rename_table": lambda it, n: it.rename_table(
        RenameTableRequest(id=[f"created_{n}"], new_table_name=f"renamed_{n}")
    ),
}


def count_requests_at_root() -> Iterator[Result]:
    """Count what operations on root tables ask in compatibility mode."""
    with start_moto() as server, count_requests(server) as counter:
        options = storage_properties(counter.server.storage_options())
        roots = [f"s3://{server.make_bucket(name)}/lake" for name in ("ours", "native")]
        ours = relance.DirectoryNamespace(clock=None, root=roots[0], **options)
        native = connect("lance.namespace.DirectoryNamespace", {"root": roots[1], **options})
        _warm_up(ours)
        _warm_up(native)
        of_native = _rounds(counter, native, AT_ROOT)
        for name, of_ours in _rounds(counter, ours, AT_ROOT | OURS_AT_ROOT).items():
            yield _result(f"{name} at the root on S3", of_ours, of_native.get(name))


def list_compatible_root() -> Iterator[Result]:
    """Count what a listing of the root asks in compatibility mode, where directories and rows are merged."""
    with start_moto() as server, count_requests(server) as counter:
        bucket = server.make_bucket("compatible")
        fill_bucket(server, bucket, "lake", COMPATIBLE_TABLES)
        server.client().put_object(Bucket=bucket, Key=f"lake/{LAYOUT_KEY}", Body=ROOT_FLAG)
        root, options = f"s3://{bucket}/lake", counter.server.storage_options()
        homes = {table_name(number): f"{table_name(number)}.lance" for number in range(COMPATIBLE_TABLES)}
        write_manifest(root, rows_of(homes), options)

        def open_compatible() -> relance.DirectoryNamespace:
            return relance.DirectoryNamespace(clock=None, root=root, **storage_properties(options))

        catalog = open_compatible()
        catalog.create_namespace(CreateNamespaceRequest(id=["warm_up"]))
        _list_all(catalog, 0)
        again = _rounds(counter, catalog, {"list": _list_all})["list"]
        new = _of_new_clients(counter, open_compatible, _list_all)
        native = connect("lance.namespace.DirectoryNamespace", {"root": root, **storage_properties(options)})
        counter.reset()
        _list_all(native, 0)
        native_counts = _summary([_kinds(counter)])
    pages = COMPATIBLE_TABLES // KEYS_PER_PAGE + 1
    what = f"list_tables, {COMPATIBLE_TABLES:,} in compatibility mode"
    limit = at_most(pages + 1, f"at most {pages} + 1")
    yield _result(f"{what} on S3", again, native_counts, limit)
    yield _result(f"{what} by a new client on S3", new, native_counts)


def _list_all(namespace: LanceNamespace, _: int) -> None:
    names = namespace.list_tables(ListTablesRequest(id=[])).tables
    if len(names) != COMPATIBLE_TABLES:
        raise RuntimeError(f"{len(names)} of {COMPATIBLE_TABLES} tables were listed")


BENCHMARKS: tuple[Benchmark, ...] = (
    Benchmark("manifest-s3", "count the requests of operations on a manifest", count_requests_of_operations),
    Benchmark(
        "manifest-root-requests", "the same of root tables in compatibility mode", count_requests_at_root
    ),
    Benchmark("manifest-root", "the same of a root listing in compatibility mode", list_compatible_root),
)
