"""Many creates in a row, with upkeep on: the last ones beside the first ones."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count

from lance_namespace import CreateNamespaceRequest, DeclareTableRequest

from benchmarks.manifest_roots import open_ours
from benchmarks.measure import in_turns
from benchmarks.results import Benchmark, Result, Sample, Unit, times_its_own
from benchmarks.roots import temporary_root

CREATES = 5_000
COMPARED = 500
CHUNK = 50
"""A sample is the mean of so many calls: what upkeep takes from some of them counts."""
GROWTH = 1.5


def _namespace_creator(root: str) -> Callable[[], object]:
    catalog, numbers = open_ours(root), count()
    return lambda: catalog.create_namespace(CreateNamespaceRequest(id=[f"namespace_{next(numbers)}"]))


def _table_declarer(root: str) -> Callable[[], object]:
    catalog, numbers = open_ours(root), count()
    catalog.create_namespace(CreateNamespaceRequest(id=["a"]))
    return lambda: catalog.declare_table(DeclareTableRequest(id=["a", f"table_{next(numbers)}"]))


def create_many() -> Iterator[Result]:
    """Measure the last creates in turns with the first ones of a fresh root.

    In one row of minutes the machine's other work differs between its beginning and its end.
    """
    for what, creator in (("create_namespace", _namespace_creator), ("declare_table", _table_declarer)):
        with temporary_root() as root, temporary_root() as fresh:
            create = creator(root)
            (row,) = in_turns(
                create, repeats=(CREATES - COMPARED) // CHUNK, calls_per_repeat=CHUNK, warm_up=False
            )
            last, first = in_turns(
                create, creator(fresh), repeats=COMPARED // CHUNK, calls_per_repeat=CHUNK, warm_up=False
            )
        label = f"{what}, last {COMPARED} of {CREATES:,}"
        beside = f"{label} (beside: first {COMPARED} of a fresh root, in turns)"
        yield Result(beside, Unit.SECONDS, last, first, times_its_own(GROWTH), by_median=True)
        began = Sample(row.values[: COMPARED // CHUNK])
        same = f"{label} (beside: its own first {COMPARED}, minutes before)"
        yield Result(same, Unit.SECONDS, last, began, times_its_own(GROWTH), by_median=True)


BENCHMARKS: tuple[Benchmark, ...] = (
    Benchmark("manifest-sustained", f"{CREATES:,} creates in a row with upkeep on", create_many),
)
