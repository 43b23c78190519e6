"""A lost response to a conditional write never turns a success into a failure."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
from tests.support.patches import original, substituted
from tests.support.scenarios.lifecycle import OPTIONS, TABLE, TABLE_ID, context_on

from relance.catalog.arbiter import settle
from relance.catalog.context import Context
from relance.catalog.create import create, declare
from relance.catalog.drop import drop, undrop
from relance.catalog.layout import Bodies, inspect_name
from relance.catalog.purge import PurgeOptions, purge_table
from relance.catalog.resolve import Exists, NotFound, SoftDeleted, table_status
from relance.catalog.states import Mark
from relance.errors import (
    ConcurrentModificationError,
    OutcomeUnknownError,
    RelanceError,
    TableNotFoundError,
)
from relance.lance_io import CreateMode, NewTable
from relance.locations import CONTROL_SUFFIX, MARKER_SUFFIX, RESERVED_FILE
from relance.storage.memory import MemoryStorage
from relance.storage.probe import capabilities
from relance.storage.protocol import ObjectStorage, Version
from relance.testing.clock import ManualClock
from relance.testing.faults import Fault, FaultyStorage, Request
from relance.testing.model_rows import MODEL_KEY

Step = Callable[[Context], object]


def _creates(data: str, mode: CreateMode = CreateMode.CREATE) -> Step:
    return lambda context: create(context, NewTable(TABLE_ID, data, OPTIONS), mode)


def _purges(context: Context) -> None:
    (result,) = purge_table(context, TABLE_ID, PurgeOptions(force=True))
    if result.error is not None:
        raise result.error


def _drops(context: Context) -> None:
    drop(context, TABLE_ID, None)


def _undrops(context: Context) -> None:
    undrop(context, TABLE_ID)


def _declares(context: Context) -> None:
    declare(context, TABLE_ID, {})


LIVE: Sequence[Step] = (_creates("a"),)
DROPPED: Sequence[Step] = (*LIVE, _drops)

CASES: dict[str, tuple[Sequence[Step], Step, type]] = {
    "drop": (LIVE, _drops, SoftDeleted),
    "undrop": (DROPPED, _undrops, Exists),
    "purge": (DROPPED, _purges, NotFound),
    "create": ((), _creates("b"), Exists),
    "create over dropped": (DROPPED, _creates("b"), Exists),
    "create over purged": ((*DROPPED, _purges), _creates("b"), Exists),
    "overwrite": (LIVE, _creates("b", CreateMode.OVERWRITE), Exists),
    "declare": ((), _declares, Exists),
}


def _decides(request: Request) -> bool:
    """Tell whether a request is a conditional write, or removes a marker."""
    if request.verb == "delete_many":
        return MARKER_SUFFIX in request.key
    suffixes = (CONTROL_SUFFIX, MARKER_SUFFIX, RESERVED_FILE, MODEL_KEY)
    return request.verb in {"create", "replace"} and (
        request.key.endswith(suffixes) or "/_versions/" in request.key
    )


def _outcomes(case: str, mode: str, fault: Fault) -> list[tuple[str | None, type]]:
    """Do the step once for each write that decides, with that one struck; return what came of it."""
    start, step, _ = CASES[case]
    outcomes: list[tuple[str | None, type]] = []
    while True:
        store, clock = MemoryStorage(f"lost responses {case}"), ManualClock()
        capabilities(store)
        for before in start:
            before(context_on(store, clock, mode))
        struck: list[Request] = []
        target = len(outcomes)

        def plan(request: Request, struck: list[Request] = struck, target: int = target) -> Fault | None:
            if not _decides(request):
                return None
            struck.append(request)
            return fault if len(struck) == target + 1 else None

        error = None
        try:
            step(context_on(FaultyStorage(store, plan), clock, mode))
        except RelanceError as failure:
            error = type(failure).__name__
        if len(struck) <= target:
            return outcomes
        outcomes.append((error, _seen(context_on(store, clock, mode))))


def _seen(context: Context) -> type:
    return type(table_status(context, TABLE_ID))


@pytest.mark.parametrize("fault", [Fault.LOST_ANSWER, Fault.RETRIED])
@pytest.mark.parametrize("mode", ["1", "c"], ids=["V1", "compatibility"])
@pytest.mark.parametrize("case", list(CASES))
def test_lost_response_to_a_conditional_write_is_resolved_by_reading_back(
    case: str, mode: str, fault: Fault
) -> None:
    outcomes = _outcomes(case, mode, fault)
    assert outcomes, "nothing was struck"
    assert outcomes == [(None, CASES[case][2])] * len(outcomes)


@pytest.mark.parametrize("case", [case for case in CASES if case != "create"])  # it writes a version only
def test_without_reading_back_a_client_mistakes_its_own_write_for_a_conflict(case: str) -> None:
    def believe(
        storage: ObjectStorage,
        key: str,
        body: bytes,
        doubt: ConcurrentModificationError | OutcomeUnknownError,
    ) -> Version:
        raise doubt

    with substituted("readback.own_version", believe):
        outcomes = _outcomes(case, "1", Fault.RETRIED)
    assert any(error is not None for error, _ in outcomes)


MODES = pytest.mark.parametrize("mode", ["1", "c"], ids=["V1", "compatibility"])


def _drop_beside(mode: str, *meanwhile: Step, sent_before: bool = False) -> None:
    """Drop a table while other clients act before its marker arrives, or between the two times it is sent."""
    store, clock = MemoryStorage("a drop beside others"), ManualClock()
    capabilities(store)
    other = context_on(store, clock, mode)
    LIVE[0](other)
    put_mark, begun = original("guard.put_mark"), list[str]()

    def put(context: Context, name: str, mark: Mark, *, over: Version | None) -> None:
        if not begun:
            begun.append(name)
            if sent_before:
                put_mark(context, name, mark, over=over)
            for step in meanwhile:
                step(other)
        put_mark(context, name, mark, over=over)

    with substituted("guard.put_mark", put):
        _drops(context_on(store, clock, mode))


def _drops_as_the_seed_does(context: Context) -> None:
    context.storage.create(TABLE + MARKER_SUFFIX, b'{"deleted_at_ms": 1767225600000, "ttl_ms": 86400000}')


def _adopts(context: Context) -> None:
    settle(context, inspect_name(context, TABLE, bodies=Bodies.ALL))


@MODES
@pytest.mark.parametrize(
    "meanwhile",
    [(_drops,), (_drops_as_the_seed_does,), (_drops_as_the_seed_does, _adopts)],
    ids=["by Relance", "by the seed", "by the seed, adopted"],
)
def test_drop_that_another_drop_overtook_finds_no_table(meanwhile: Sequence[Step], mode: str) -> None:
    with pytest.raises(TableNotFoundError, match="can be undropped until"):
        _drop_beside(mode, *meanwhile)


@MODES
@pytest.mark.parametrize(
    "meanwhile",
    [(_undrops, _drops), (_adopts, _undrops, _drops), (_adopts, _undrops, _drops_as_the_seed_does)],
    ids=["and dropped again", "adopted, and dropped again", "and dropped by the seed"],
)
def test_drop_sent_twice_that_was_undone_in_between_is_in_doubt(meanwhile: Sequence[Step], mode: str) -> None:
    with pytest.raises(OutcomeUnknownError, match="check its status"):
        _drop_beside(mode, *meanwhile, sent_before=True)
