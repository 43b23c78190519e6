"""Looking at one table on local disk: table_exists, and describe_table with details and without.

Run as a module with a root, it takes the samples of one process: `python -m benchmarks.lookups ROOT`.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import lance
import pyarrow as pa
from lance_namespace import DescribeTableRequest, TableExistsRequest

from benchmarks.measure import in_turns, run_module
from benchmarks.results import Benchmark, Result, Sample, Unit, times_slower
from benchmarks.roots import open_native, open_ours, temporary_root

SLOWER = 1.5
REPEATS = 15
PROCESSES = 5
"""Native hands each call to a thread, which costs twice as much in one process as in the next,
depending on where the system puts that thread; among several processes there is a lucky one."""
MANY_VERSIONS = 100

NEW, OLD = "new_table", "old_table"


@dataclass(frozen=True, slots=True)
class Look:
    """One call on a namespace: which method, with what, and how often in a row to time it."""

    what: str
    method: str
    request: TableExistsRequest | DescribeTableRequest
    calls_per_repeat: int = 200


def _looks(name: str, versions: str) -> Iterator[Look]:
    detailed = DescribeTableRequest(id=[name], load_detailed_metadata=True)
    yield Look(f"table_exists, {versions}", "table_exists", TableExistsRequest(id=[name]))
    yield Look(f"describe_table, {versions}", "describe_table", DescribeTableRequest(id=[name]))
    yield Look(f"describe_table detailed, {versions}", "describe_table", detailed, calls_per_repeat=10)


LOOKS = (*_looks(NEW, "1 version"), *_looks(OLD, f"{MANY_VERSIONS} versions"))


def look_at_one_table() -> Iterator[Result]:
    """Measure lookups of a small table, and of one with many versions."""
    with temporary_root() as root:
        _write_table(f"{root}/{NEW}.lance", versions=1)
        _write_table(f"{root}/{OLD}.lance", versions=MANY_VERSIONS)
        runs = [run_module("benchmarks.lookups", [root]) for _ in range(PROCESSES)]
    for number, look in enumerate(LOOKS):
        ours, native = (
            Sample(tuple(seconds for run in runs for seconds in run[number][side])) for side in (0, 1)
        )
        yield Result(f"{look.what}, on local disk", Unit.SECONDS, ours, native, times_slower(SLOWER))


def _write_table(location: str, *, versions: int) -> None:
    rows = pa.table({"id": [1, 2, 3], "name": ["a", "b", "c"]})
    dataset = lance.write_dataset(rows, location)
    for _ in range(versions - 1):
        dataset = lance.write_dataset(rows, dataset, mode="overwrite")


def _look_in_turns(root: str) -> list[tuple[tuple[float, ...], ...]]:
    """Return for each look the seconds of ours and of native."""
    ours, native = open_ours(root), open_native(root)
    return [
        tuple(
            sample.values
            for sample in in_turns(
                partial(getattr(ours, look.method), look.request),
                partial(getattr(native, look.method), look.request),
                repeats=REPEATS,
                calls_per_repeat=look.calls_per_repeat,
            )
        )
        for look in LOOKS
    ]


BENCHMARKS: tuple[Benchmark, ...] = (
    Benchmark("lookups", "table_exists and describe_table on local disk", look_at_one_table),
)


if __name__ == "__main__":
    print(json.dumps(_look_in_turns(sys.argv[1])))
