"""Every interleaving of the lifecycle's real code where a manifest decides, with crashes and lost answers.

`make test-long ARGS=tests/lifecycle/test_manifest_explorer.py` explores the larger
budgets too.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass

import pytest
from tests.support.exploration import assert_states_as_recorded
from tests.support.scenarios.lifecycle import Step
from tests.support.scenarios.manifest import (
    Mode,
    creates,
    declares,
    drops,
    make_scenario,
    overwrites,
    purges,
    undrops,
)

from relance.testing.explorer import Budget, explore

LIVE: Sequence[Step] = (creates("a"),)
DROPPED: Sequence[Step] = (*LIVE, drops())
TWO_DROPPED: Sequence[Step] = (*DROPPED, declares(), drops())


@dataclass(frozen=True)
class Case:
    """One scenario: what was before, what runs at once, how much may go wrong."""

    name: str
    actors: Sequence[Sequence[Step]]
    budgets: Sequence[Budget]
    start: Sequence[Step] = ()
    modes: Sequence[Mode] = (Mode.ROWS, Mode.BOTH)


EVERYTHING = (Budget(crashes=1, lost=1, ticks=1),)
ONE_FAULT = (Budget(crashes=1, ticks=1), Budget(lost=1, ticks=1))
CRASH = (Budget(crashes=1),)
LOST = (Budget(lost=1),)
NO_FAULT = (Budget(),)
ROWS = (Mode.ROWS,)
BOTH = (Mode.BOTH,)

CASES: tuple[Case, ...] = (
    Case("drop, drop", [[drops()], [drops()]], EVERYTHING, LIVE, ROWS),
    Case("drop, drop", [[drops()], [drops()]], CRASH + LOST, LIVE, BOTH),
    Case("drop, undrop", [[drops()], [undrops()]], EVERYTHING, LIVE, ROWS),
    Case("drop, undrop", [[drops()], [undrops()]], CRASH + LOST, LIVE, BOTH),
    Case("undrop, purge", [[undrops()], [purges()]], ONE_FAULT, DROPPED, ROWS),
    Case("undrop, purge", [[undrops()], [purges()]], NO_FAULT, DROPPED, BOTH),
    Case("purge, purge", [[purges()], [purges()]], ONE_FAULT, DROPPED, ROWS),
    Case("create, create", [[creates("b")], [creates("c")]], CRASH + LOST, (), ROWS),
    Case("create, create over dropped", [[creates("b")], [creates("c")]], CRASH + LOST, DROPPED, ROWS),
    Case("create, undrop of dropped", [[creates("b")], [undrops()]], ONE_FAULT, DROPPED, ROWS),
    Case("create, purge of dropped", [[creates("b")], [purges()]], CRASH + LOST, DROPPED, ROWS),
    Case("declare, undrop of dropped", [[declares()], [undrops()]], ONE_FAULT, DROPPED, ROWS),
    Case("declare, create over dropped", [[declares()], [creates("b")]], CRASH + LOST, DROPPED, ROWS),
    Case("declare, undrop of dropped", [[declares()], [undrops()]], NO_FAULT, DROPPED, BOTH),
    Case("overwrite, drop", [[overwrites("b")], [drops()]], CRASH + LOST, LIVE, ROWS),
    Case("overwrite, drop and purge", [[overwrites("b")], [drops(), purges()]], CRASH, LIVE, ROWS),
    Case("two generations, undrop, purge", [[undrops()], [purges()]], NO_FAULT, TWO_DROPPED, ROWS),
    Case("drop, undrop, purge", [[drops()], [undrops()], [purges()]], NO_FAULT, LIVE, ROWS),
    Case("undrop, create, purge", [[undrops()], [creates("b")], [purges()]], NO_FAULT, DROPPED, ROWS),
)

LONG_CASES: tuple[Case, ...] = (
    Case("undrop, purge", [[undrops()], [purges()]], CRASH + LOST, DROPPED, BOTH),
    Case("create, create", [[creates("b")], [creates("c")]], NO_FAULT, (), BOTH),
    Case("create, drop", [[creates("b")], [drops()]], CRASH + LOST, (), BOTH),
    Case("create, undrop of dropped", [[creates("b")], [undrops()]], NO_FAULT, DROPPED, BOTH),
    Case("declare, undrop of dropped", [[declares()], [undrops()]], CRASH + LOST, DROPPED, BOTH),
    Case("create, purge of dropped", [[creates("b")], [purges()]], ONE_FAULT, DROPPED, ROWS),
    Case("drop, undrop, purge", [[drops()], [undrops()], [purges()]], CRASH + LOST, LIVE, ROWS),
    Case("undrop, create, purge", [[undrops()], [creates("b")], [purges()]], CRASH, DROPPED, ROWS),
)

if os.environ.get("RELANCE_PROFILE") == "long":
    CASES += LONG_CASES


@pytest.mark.timeout(3600)
@pytest.mark.parametrize(
    ("case", "mode", "budget"),
    [(case, mode, budget) for case in CASES for mode in case.modes for budget in case.budgets],
    ids=lambda value: (
        value.name
        if isinstance(value, Case)
        else value.value
        if isinstance(value, Mode)
        else f"{value.crashes}c {value.lost}l {value.ticks}t"
    ),
)
def test_no_interleaving_with_a_manifest_breaks_an_invariant(
    case: Case, mode: Mode, budget: Budget, request: pytest.FixtureRequest
) -> None:
    scenario = make_scenario(case.actors, mode=mode, start=case.start)
    result = explore(scenario, budget)
    assert result.violation is None, str(result.violation)
    assert result.states > 20
    assert_states_as_recorded(request, result)
