"""Operations on manifests of a thousand, a hundred thousand and a million entries, on local disk."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from time import perf_counter

from benchmarks.manifest_roots import PAGE, Calls, list_page, measured_roots, open_ours
from benchmarks.measure import in_turns
from benchmarks.results import Benchmark, Result, Sample, Target, Unit, times_faster, times_its_own

SMALL, MANY, MILLION = 1_000, 100_000, 1_000_000
GROWTH, GROWTH_TO_A_MILLION = 2, 8
COMMITS = 31
LOOKS = 31
CALLS_PER_LOOK = 10


@dataclass(frozen=True, slots=True)
class Operation:
    """What is timed, how often, and how much faster than native it should be with many entries."""

    what: str
    call: Callable[[Calls], None]
    faster: float
    repeats: int = LOOKS
    calls_per_repeat: int = CALLS_PER_LOOK
    grows: bool = False
    """Its own growth has a target too."""


OPERATIONS = (
    Operation("create_namespace", Calls.create_namespace, 8, COMMITS, 1, grows=True),
    Operation("declare_table", Calls.declare_table, 8, COMMITS, 1, grows=True),
    Operation("drop_table", Calls.drop_table, 8, COMMITS, 1, grows=True),
    Operation("describe_table", Calls.describe_table, 3),
    Operation("table_exists", Calls.table_exists, 3),
    Operation(f"list_tables, first {PAGE}", Calls.first_page, 4),
    Operation(f"list_tables, {PAGE} from the middle", Calls.middle_page, 4),
)

CHANGES = {"a create": Calls.create_namespace, "a drop": Calls.drop_table}


def compare_with_native() -> Iterator[Result]:
    """Measure both implementations on both sizes in turns, so that noise falls on all of them alike."""
    with ExitStack() as stack:
        small, small_native = stack.enter_context(measured_roots(SMALL))
        many, many_native = stack.enter_context(measured_roots(MANY))
        growth: list[Result] = []
        for each in OPERATIONS:
            samples = _timed(each, (many, many_native, small, small_native))
            ours, native, ours_small, native_small = samples
            yield _seconds(f"{each.what}, {MANY:,} entries", ours, native, times_faster(each.faster))
            yield _seconds(f"{each.what}, {SMALL:,} entries", ours_small, native_small)
            target = times_its_own(GROWTH) if each.grows else None
            growth.append(
                _seconds(f"{each.what}, {MANY:,} entries (beside: {SMALL:,})", ours, ours_small, target)
            )
        yield from growth
        yield from _after_changes(many, many_native)


def _timed(operation: Operation, opened: tuple[Calls, ...]) -> tuple[Sample, ...]:
    return in_turns(
        *(partial(operation.call, each) for each in opened),
        repeats=operation.repeats,
        calls_per_repeat=operation.calls_per_repeat,
    )


def _after_changes(ours: Calls, native: Calls) -> Iterator[Result]:
    """Measure pages that cannot come from what was read before: after a change, and by a new client."""
    for what, change in CHANGES.items():
        changed, beside = _pages_after(change, ours, native)
        yield _seconds(f"list_tables, first {PAGE} of {MANY:,} after {what}", changed, beside)
    new, beside = in_turns(
        lambda: list_page(open_ours(ours.root), None),
        native.first_page,
        repeats=5,
        warm_up=False,
    )
    yield _seconds(f"list_tables, first {PAGE} of {MANY:,} by a new client", new, beside)


def _pages_after(change: Callable[[Calls], None], one: Calls, other: Calls) -> tuple[Sample, Sample]:
    pages: tuple[list[float], list[float]] = ([], [])
    for _ in range(LOOKS):
        for each, values in zip((one, other), pages, strict=True):
            change(each)
            start = perf_counter()
            each.first_page()
            values.append(perf_counter() - start)
    return Sample(tuple(pages[0])), Sample(tuple(pages[1]))


def grow_to_a_million() -> Iterator[Result]:
    """Measure ours on a million entries in turns with ours on a thousand."""
    with ExitStack() as stack:
        small, _ = stack.enter_context(measured_roots(SMALL))
        million, _ = stack.enter_context(measured_roots(MILLION))
        for each in OPERATIONS:
            large, beside = _timed(each, (million, small))
            what = f"{each.what}, {MILLION:,} entries (beside: {SMALL:,})"
            yield _seconds(what, large, beside, times_its_own(GROWTH_TO_A_MILLION))
        for what, change in CHANGES.items():
            large, beside = _pages_after(change, million, small)
            label = f"list_tables, first {PAGE} of {MILLION:,} after {what} (beside: of {SMALL:,})"
            yield _seconds(label, large, beside, times_its_own(GROWTH_TO_A_MILLION))


def _seconds(what: str, ours: Sample, native: Sample, target: Target | None = None) -> Result:
    # The median: commits differ by what the head holds and upkeep does, and the best would flatter.
    return Result(what, Unit.SECONDS, ours, native, target, by_median=True)


BENCHMARKS: tuple[Benchmark, ...] = (
    Benchmark("manifest-local", f"a manifest of {MANY:,} entries on local disk", compare_with_native),
    Benchmark("manifest-million", f"a manifest of {MILLION:,} entries, ours alone", grow_to_a_million),
)
