"""Rows through the catalog beside pylance called directly on a table of the same rows.

Run as a module with a root, it makes one large query: `python -m benchmarks.data_operations ROOT`.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count

import lance
import numpy as np
import pyarrow as pa

import relance
from benchmarks.measure import in_turns, run_module, watch_memory
from benchmarks.results import Benchmark, Result, Sample, Unit, at_most, times_slower
from benchmarks.roots import temporary_root

ROWS = 1_000_000
BATCH = 100_000
DIMENSION = 32
SLOWER = 1.2
REPEATS = 7
LARGE_ROWS = 24_000_000
EXTRA_MB = 250

ID = ["t"]


def _rows(first: int, number: int) -> pa.Table:
    chance = np.random.default_rng(first)
    vectors = chance.random((number, DIMENSION), dtype=np.float32)
    return pa.table(
        {
            "id": np.arange(first, first + number),
            "value": chance.random(number),
            "vector": pa.FixedSizeListArray.from_arrays(pa.array(vectors.ravel()), DIMENSION),
        }
    )


def _stream(rows: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write_table(rows)
    body: bytes = sink.getvalue().to_pybytes()
    return body


def _read(body: bytes) -> pa.Table:
    return pa.ipc.open_stream(body).read_all()


def _file(scanner: lance.LanceScanner) -> bytes:
    sink = pa.BufferOutputStream()
    reader = scanner.to_reader()
    with pa.ipc.new_file(sink, reader.schema) as writer:
        for batch in reader:
            writer.write_batch(batch)
    body: bytes = sink.getvalue().to_pybytes()
    return body


@dataclass(frozen=True, slots=True)
class Pair:
    """The same operation through the catalog and by pylance."""

    what: str
    ours: Callable[[], object]
    direct: Callable[[], object]


def _pairs(catalog: relance.DirectoryNamespace, uri: str) -> Iterator[Pair]:
    def opened() -> lance.LanceDataset:
        return lance.dataset(uri)

    some = "value < 0.01"
    vector = [0.5] * DIMENSION
    yield Pair(
        "count_table_rows with a predicate",
        lambda: catalog.count_table_rows({"id": ID, "predicate": some}),
        lambda: opened().count_rows(some),
    )
    yield Pair(
        "query_table, 1 % of the rows",
        lambda: catalog.query_table({"id": ID, "filter": some, "k": ROWS, "vector": {}}),
        lambda: _file(opened().scanner(filter=some)),
    )
    yield Pair(
        "query_table, the nearest 10 vectors",
        lambda: catalog.query_table({"id": ID, "k": 10, "vector": {"single_vector": vector}}),
        lambda: _file(opened().scanner(nearest={"column": "vector", "q": vector, "k": 10})),
    )
    body = _stream(_rows(0, BATCH))
    yield Pair(
        f"insert_into_table, {BATCH:,} rows",
        lambda: catalog.insert_into_table({"id": ID}, body),
        lambda: lance.write_dataset(_read(body), uri, mode="append"),
    )
    mixed = _stream(_rows(ROWS - BATCH // 20, BATCH // 10))
    yield Pair(
        f"merge_insert_into_table, {BATCH // 10:,} rows",
        lambda: catalog.merge_insert_into_table(
            {"id": ID, "on": ["id"], "when_matched_update_all": True, "when_not_matched_insert_all": True},
            mixed,
        ),
        lambda: (
            opened()
            .merge_insert("id")
            .when_matched_update_all()
            .when_not_matched_insert_all()
            .execute(_read(mixed))
        ),
    )
    yield Pair(
        "update_table, 1 % of the rows",
        lambda: catalog.update_table({"id": ID, "predicate": some, "updates": [["value", "value / 2"]]}),
        lambda: opened().update({"value": "value / 2"}, where=some),
    )
    ours, direct = count(), count()
    yield Pair(
        "delete_from_table, 0.1 % of the rows",
        lambda: catalog.delete_from_table({"id": ID, "predicate": f"id % 1000 = {next(ours)}"}),
        lambda: opened().delete(f"id % 1000 = {next(direct)}"),
    )


def compare_operations() -> Iterator[Result]:
    """Measure each operation in turns with pylance's own on another table of the same rows."""
    with temporary_root() as root, temporary_root() as beside:
        catalog, uri = relance.DirectoryNamespace(root=root), f"{beside}/t.lance"
        rows = _rows(0, ROWS)
        lance.write_dataset(rows, namespace_client=catalog, table_id=ID, mode="create")
        lance.write_dataset(rows, uri)
        for pair in _pairs(catalog, uri):
            ours, direct = in_turns(pair.ours, pair.direct, repeats=REPEATS)
            what = f"{pair.what}, of {ROWS:,} (beside: pylance)"
            yield Result(what, Unit.SECONDS, ours, direct, times_slower(SLOWER))


def query_much() -> Iterator[Result]:
    """Measure what a large result needs beside itself, in a process of its own."""
    with temporary_root() as root:
        catalog = relance.DirectoryNamespace(root=root)
        rows = pa.table(
            {"a": np.arange(LARGE_ROWS // 8), "b": np.random.default_rng(0).random(LARGE_ROWS // 8)}
        )
        for number in range(8):
            mode = "append" if number else "create"
            lance.write_dataset(rows, namespace_client=catalog, table_id=ID, mode=mode)
        found = run_module("benchmarks.data_operations", [root])
    if found["rows"] != LARGE_ROWS:
        raise RuntimeError(f"{found['rows']} of {LARGE_ROWS} rows came")
    extra = found["peak"] - found["before"] - found["result"]
    what = f"query_table, peak memory beside a result of {found['result'] / 1e6:.0f} MB"
    limit = at_most(EXTRA_MB * 1e6, f"under {EXTRA_MB} MB")
    yield Result(what, Unit.BYTES, Sample((float(extra),)), None, limit)


def _query_once(root: str) -> dict[str, int]:
    catalog = relance.DirectoryNamespace(root=root)
    catalog.query_table({"id": ID, "k": 1, "vector": {}})
    with watch_memory() as memory:
        result = catalog.query_table({"id": ID, "k": LARGE_ROWS, "vector": {}})
    rows = pa.ipc.open_file(pa.py_buffer(result)).read_all().num_rows
    return {"before": memory.before, "peak": memory.peak, "result": len(result), "rows": rows}


BENCHMARKS: tuple[Benchmark, ...] = (
    Benchmark("data-operations", "rows through the catalog and by pylance alone", compare_operations),
    Benchmark("query-memory", "the memory of a large query", query_much),
)

if __name__ == "__main__":
    print(json.dumps(_query_once(sys.argv[1])))
