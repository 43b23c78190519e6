"""A lost response to a conditional write never turns a success into a failure."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from tests.support.patches import substituted
from tests.support.scenarios.lifecycle import (
    TABLE,
    Step,
    context_on,
    creates,
    declares,
    drops,
    overwrites,
    purges,
    undrops,
)

from relance.errors import ConcurrentModificationError, OutcomeUnknownError, RelanceError
from relance.locations import MARKER_SUFFIX, RESERVED_FILE
from relance.storage.memory import MemoryStorage
from relance.storage.probe import capabilities
from relance.storage.protocol import ObjectStorage, Version
from relance.testing.clock import ManualClock
from relance.testing.faults import Fault, FaultyStorage, Request
from relance.testing.lifecycle_model import Kind, observe

LIVE: Sequence[Step] = (creates("a"),)
DROPPED: Sequence[Step] = (*LIVE, drops())

CASES = {
    "drop": (LIVE, drops(), Kind.DROPPED),
    "undrop": (DROPPED, undrops(), Kind.LIVE),
    "purge": (DROPPED, purges(), Kind.NONE),
    "create": ((), creates("b"), Kind.LIVE),
    "create over dropped": (DROPPED, creates("b"), Kind.LIVE),
    "overwrite": (LIVE, overwrites("b"), Kind.LIVE),
    "declare": ((), declares(), Kind.DECLARED),
}


def _is_conditional_write(request: Request) -> bool:
    decides = request.key.endswith((MARKER_SUFFIX, RESERVED_FILE)) or "/_versions/" in request.key
    return request.verb in {"create", "replace"} and decides


def _outcomes(case: str, fault: Fault) -> list[tuple[str | None, Kind]]:
    """Do the step once for each of its conditional writes, with that one struck; return what came of it."""
    start, (_, step), _ = CASES[case]
    outcomes: list[tuple[str | None, Kind]] = []
    while True:
        store, clock = MemoryStorage(f"lost answers {case}"), ManualClock()
        capabilities(store)
        for _, before in start:
            before(context_on(store, clock))
        struck: list[Request] = []
        target = len(outcomes)

        def plan(request: Request, struck: list[Request] = struck, target: int = target) -> Fault | None:
            if not _is_conditional_write(request):
                return None
            struck.append(request)
            return fault if len(struck) == target + 1 else None

        error = None
        try:
            step(context_on(FaultyStorage(store, plan), clock))
        except RelanceError as failure:
            error = type(failure).__name__
        if len(struck) <= target:
            return outcomes
        outcomes.append((error, observe(store.snapshot(), TABLE)[0].kind))


@pytest.mark.parametrize("fault", [Fault.LOST_ANSWER, Fault.RETRIED])
@pytest.mark.parametrize("case", list(CASES))
def test_lost_response_to_a_conditional_write_is_resolved_by_reading_back(case: str, fault: Fault) -> None:
    outcomes = _outcomes(case, fault)
    assert outcomes, "nothing was struck"
    assert outcomes == [(None, CASES[case][2])] * len(outcomes)


@pytest.mark.parametrize("case", ["undrop", "purge", "declare", "overwrite"])
def test_without_reading_back_a_client_mistakes_its_own_write_for_a_conflict(case: str) -> None:
    def believe(
        storage: ObjectStorage,
        key: str,
        body: bytes,
        doubt: ConcurrentModificationError | OutcomeUnknownError,
    ) -> Version:
        raise doubt

    with substituted("readback.own_version", believe):
        outcomes = _outcomes(case, Fault.RETRIED)
    assert any(error is not None for error, _ in outcomes)
