"""Peak memory of a process that lists a very large root. What that process does is in list_once."""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.measure import run_module
from benchmarks.results import Benchmark, Result, Sample, Unit, at_most
from benchmarks.roots import MANIFEST, fill_folder, temporary_root

TABLES = 100_000
LIMIT_MB = 300


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


def _sample(value: int) -> Sample:
    return Sample((value,))


BENCHMARKS: tuple[Benchmark, ...] = (
    Benchmark("memory", f"peak memory of listing {TABLES:,} tables on local disk", list_large_root),
)
