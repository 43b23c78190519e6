"""Peak memory of processes that list a very large root, and that maintain many tables.

What they do is in list_once and maintain_many.
"""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.measure import run_module
from benchmarks.results import Benchmark, Result, Sample, Unit, at_most, times_its_own
from benchmarks.roots import MANIFEST, copy_tables, fill_folder, temporary_root

TABLES = 100_000
LIMIT_MB = 300
FEW, MANY = 1_000, 10_000
GROWTH = 1.1


def list_large_root() -> Iterator[Result]:
    """Measure the memory of one listing, in a process of its own for each implementation."""
    with temporary_root() as root:
        fill_folder(root, TABLES, files=(MANIFEST,))
        ours = run_module("benchmarks.list_once", ["ours", root])
        native = run_module("benchmarks.list_once", ["native", root])
    for each in (ours, native):
        if each["tables"] != TABLES:
            raise RuntimeError(f"{each['tables']} of {TABLES} tables were listed")
    what = f"list_tables, {TABLES:,} on local disk"
    limit = at_most(LIMIT_MB * 1e6, f"under {LIMIT_MB} MB")
    yield Result(f"{what}, peak memory", Unit.BYTES, _sample(ours["peak"]), _sample(native["peak"]), limit)
    yield Result(f"{what}, after import", Unit.BYTES, _sample(ours["imported"]), _sample(native["imported"]))


def maintain_many() -> Iterator[Result]:
    """Measure the memory of a job whose results are taken one by one, over few and over many tables."""
    few, many = (peak_of_maintenance(each) for each in (FEW, MANY))
    what = f"a job over {MANY:,} tables, peak memory (beside: over {FEW:,})"
    yield Result(what, Unit.BYTES, _sample(many), _sample(few), times_its_own(GROWTH))


def peak_of_maintenance(tables: int) -> int:
    """Return the peak memory of a process that looks at so many tables."""
    with temporary_root() as root:
        copy_tables(root, tables)
        seen = run_module("benchmarks.maintain_many", [root])
    if seen["tables"] != tables:
        raise RuntimeError(f"{seen['tables']} of {tables} tables were looked at")
    return int(seen["peak"])


def _sample(value: int) -> Sample:
    return Sample((value,))


BENCHMARKS: tuple[Benchmark, ...] = (
    Benchmark("memory", f"peak memory of listing {TABLES:,} tables on local disk", list_large_root),
    Benchmark("maintenance-memory", f"peak memory of a job over {FEW:,} and {MANY:,} tables", maintain_many),
)
