"""Row deletes and updates as jobs on threads, beside pylance's own calls on a table of the same rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count

import lance
import numpy as np
import pyarrow as pa

import relance
from benchmarks.measure import in_turns
from benchmarks.results import Benchmark, Result, Unit, times_slower
from benchmarks.roots import temporary_root
from relance.jobs import DeleteRows, UpdateRows, maintain
from relance.jobs.base import CatalogRef, Job

ROWS = 10_000_000
PER_FRAGMENT = 1_000_000
SLOWER = 1.2
SLOWER_UPDATE = 4.0
REPEATS = 7

ID = ["t"]


def _rows() -> pa.Table:
    chance = np.random.default_rng(0)
    return pa.table(
        {
            "id": np.arange(ROWS),
            "key": np.arange(ROWS),
            "value": chance.random(ROWS),
            "name": np.char.add("name-", chance.integers(0, 1000, ROWS).astype(str)),
        }
    )


@dataclass(frozen=True, slots=True)
class Pair:
    """The same change as a job and by pylance; each call changes other rows."""

    what: str
    ours: Callable[[], object]
    direct: Callable[[], object]
    slower: float = SLOWER


def _run(catalog: CatalogRef, job: Job) -> None:
    (result,) = maintain(catalog, job, [ID], engine="local").results
    if result.error is not None:
        raise result.error


def _deletes(catalog: CatalogRef, uri: str, what: str, predicate: Callable[[int], str]) -> Pair:
    ours, direct = count(), count()
    return Pair(
        what,
        lambda: _run(catalog, DeleteRows(where=predicate(next(ours)))),
        lambda: lance.dataset(uri).delete(predicate(next(direct))),
    )


def _pairs(catalog: CatalogRef, uri: str) -> Iterator[Pair]:
    yield _deletes(catalog, uri, "delete 1 row in 40", lambda turn: f"id % 40 = {turn}")
    yield _deletes(catalog, uri, "delete 1 row in 1000 by text", lambda turn: f"name = 'name-{turn}'")
    yield _deletes(
        catalog,
        uri,
        "delete 500,000 neighbours by an index",
        lambda turn: f"key >= {turn * 500_000} and key < {(turn + 1) * 500_000}",
    )
    yield _deletes(catalog, uri, "delete 3 rows by an index", lambda turn: _three(turn))
    yield Pair(
        "update 1 row in 100",
        lambda: _run(catalog, UpdateRows(set={"value": "value / 2"}, where="id % 100 = 77")),
        lambda: lance.dataset(uri).update({"value": "value / 2"}, where="id % 100 = 77"),
        SLOWER_UPDATE,
    )


def _three(turn: int) -> str:
    first = ROWS // 2 + turn
    return f"key in ({first}, {first + 1_000_000}, {first + 4_000_000})"


def compare_row_jobs() -> Iterator[Result]:
    """Measure each change in turns with pylance's own on another table of the same rows."""
    with temporary_root() as root, temporary_root() as beside:
        namespace, uri = relance.DirectoryNamespace(root=root), f"{beside}/t.lance"
        rows = _rows()
        lance.write_dataset(
            rows, namespace_client=namespace, table_id=ID, mode="create", max_rows_per_file=PER_FRAGMENT
        )
        lance.write_dataset(rows, uri, max_rows_per_file=PER_FRAGMENT)
        del rows
        location = namespace.describe_table({"id": ID}).location
        for each in (location, uri):
            lance.dataset(each).create_scalar_index("key", "BTREE")
        catalog = CatalogRef((("root", root),))
        for pair in _pairs(catalog, uri):
            ours, direct = in_turns(pair.ours, pair.direct, repeats=REPEATS)
            if lance.dataset(location).count_rows() != lance.dataset(uri).count_rows():
                raise RuntimeError(f"{pair.what}: the tables differ")
            what = f"{pair.what}, of {ROWS:,}, on threads (beside: pylance)"
            yield Result(what, Unit.SECONDS, ours, direct, times_slower(pair.slower))


BENCHMARKS: tuple[Benchmark, ...] = (
    Benchmark("maintenance-delete", "row deletes and updates as jobs and by pylance alone", compare_row_jobs),
)
