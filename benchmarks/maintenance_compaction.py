"""Compaction and the build of a scalar index in tasks, beside pylance's own calls on a copy of the table."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator

import lance
import numpy as np
import pyarrow as pa

from benchmarks.measure import in_turns
from benchmarks.results import Benchmark, Result, Unit, times_slower
from benchmarks.roots import temporary_root
from relance.jobs import Compact, RefreshIndexes
from relance.jobs.base import CatalogRef, Job
from relance.jobs.engine import Run, steps_of
from relance.jobs.runner import Placement, ThreadRunner, open_catalog

ROWS = 10_000_000
FRAGMENTS = 100
REPEATS = 3
COMPACTION_SLOWER = 1.1
INDEX_SLOWER = 1.2
WAYS = {"in one task": 1e9, "cut up": 0.0}
"""The plan is too big for one task from so many seconds on."""


def _fill(uri: str) -> None:
    each = ROWS // FRAGMENTS
    names = pa.array([f"name {number % 1000}" for number in range(each)])
    for number in range(FRAGMENTS):
        first = number * each
        columns = {
            "id": np.random.default_rng(number).permutation(each) + first,
            "value": np.random.default_rng(number).random(each),
            "name": names,
            "time": pa.array(np.arange(first, first + each), pa.timestamp("us")),
        }
        lance.write_dataset(pa.table(columns), uri, mode="append" if number else "create")


def _fresh(source: str, root: str) -> str:
    """Put a copy of the table below a root: of links, as Lance never changes a file that is there."""
    uri = f"{root}/t.lance"
    shutil.rmtree(uri, ignore_errors=True)
    shutil.copytree(source, uri, copy_function=os.link)
    return uri


def _do(root: str, job: Job, oversized_seconds: float) -> None:
    threads = ThreadRunner()
    catalog = CatalogRef((("root", root), ("manifest_enabled", "false")))
    steps = steps_of(job, open_catalog(catalog), [("t",)])
    run = Run(job.label, catalog, Placement(threads, threads, "local"), oversized_seconds=oversized_seconds)
    for _, result in run.results(steps):
        if result.error is not None or result.effect is None:
            raise RuntimeError(f"{job.label} did nothing: {result.error}")


def _compare(
    what: str, job: Job, source: str, direct: Callable[[lance.LanceDataset], object], slower: float
) -> Iterator[Result]:
    """Measure a job on threads, both ways, in turns with pylance's call; each on a fresh copy."""
    for way, oversized_seconds in WAYS.items():
        with temporary_root() as root:

            def ours(root: str = root, seconds: float = oversized_seconds) -> None:
                _fresh(source, root)
                _do(root, job, seconds)

            def native(root: str = root) -> None:
                direct(lance.dataset(_fresh(source, root)))

            mine, theirs = in_turns(ours, native, repeats=REPEATS, warm_up=False)
            text = f"{what}, {ROWS:,} rows, {way} on threads (beside: pylance)"
            yield Result(text, Unit.SECONDS, mine, theirs, times_slower(slower))


def compact() -> Iterator[Result]:
    """Measure the compaction of many fragments."""
    with temporary_root() as root:
        _fill(f"{root}/source")
        what = f"compaction of {FRAGMENTS} fragments"
        yield from _compare(
            what, Compact(), f"{root}/source", lambda each: each.optimize.compact_files(), COMPACTION_SLOWER
        )


def build_index() -> Iterator[Result]:
    """Measure the build of an index that covers no row yet."""
    with temporary_root() as root:
        source = f"{root}/source"
        _fill(source)
        lance.dataset(source).create_scalar_index("id", "BTREE", train=False)
        yield from _compare(
            "build of a BTREE index",
            RefreshIndexes(),
            source,
            lambda each: each.create_scalar_index("id", "BTREE", replace=True),
            INDEX_SLOWER,
        )


BENCHMARKS: tuple[Benchmark, ...] = (
    Benchmark("maintenance-compaction", "compaction in tasks and by pylance alone", compact),
    Benchmark("maintenance-index", "a scalar index built in tasks and by pylance alone", build_index),
)
