"""A policy planned over many tables: how long it takes, and whether the driver's memory stays flat."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from typing import Any

import lance
import pyarrow as pa

from benchmarks.measure import run_module
from benchmarks.results import Benchmark, Result, Sample, Unit, at_most, times_its_own
from benchmarks.roots import ROOT_FLAG, table_name, temporary_root
from relance.locations import LAYOUT_KEY

FEW, MANY = 1_000, 10_000
WORN = 20
"""One of so many tables has fragments to merge and versions to remove."""

LIMIT_SECONDS = 300
GROWTH = 1.5


def plan_many() -> Iterator[Result]:
    """Measure a plan over many tables in a fresh process, and its memory beside that of a plan over few."""
    with temporary_root() as models:
        _write(f"{models}/plain", fragments=2)
        _write(f"{models}/worn", fragments=12)
        few, many = (_planned(models, count) for count in (FEW, MANY))
    limit = at_most(LIMIT_SECONDS, f"under {LIMIT_SECONDS} s")
    seconds, beside = Sample((many["seconds"],)), Sample((few["seconds"],))
    yield Result(f"plan of a policy, {MANY:,} tables beside {FEW:,}", Unit.SECONDS, seconds, beside, limit)
    what = f"memory of its own at the peak of a plan, {MANY:,} tables beside {FEW:,}"
    peak, smaller = Sample((many["peak"],)), Sample((few["peak"],))
    yield Result(what, Unit.BYTES, peak, smaller, times_its_own(GROWTH))


def _write(directory: str, *, fragments: int) -> None:
    data = pa.table({f"c{number}": list(range(100)) for number in range(20)})
    for number in range(fragments):
        lance.write_dataset(data, directory, mode="append" if number else "create")


def _planned(models: str, tables: int) -> Any:
    with temporary_root() as root:
        with open(f"{root}/{LAYOUT_KEY}", "w") as flag:
            flag.write(ROOT_FLAG.decode())
        for number in range(tables):
            model = "plain" if number % WORN else "worn"
            shutil.copytree(f"{models}/{model}", f"{root}/{table_name(number)}.lance")
        found = run_module("benchmarks.plan_once", [root])
    if found["tables"] != tables or found["planned"] < tables // WORN:
        raise RuntimeError(f"of {tables} tables the plan shows {found}")
    return found


BENCHMARKS: tuple[Benchmark, ...] = (
    Benchmark("policy-plan", f"plan a policy over {MANY:,} tables", plan_many),
)
