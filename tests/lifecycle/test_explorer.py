"""Every interleaving of the lifecycle's real code, with crashes, lost answers and time passing.

`make test-long ARGS=tests/lifecycle/test_explorer.py` explores the larger budgets too.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

import pytest
from tests.support.exploration import assert_states_as_recorded
from tests.support.scenarios.lifecycle import (
    LONG,
    TICK,
    Step,
    creates,
    creates_of_files,
    declares,
    drops,
    make_scenario,
    overwrites,
    overwrites_of_files,
    purges,
    scrubs,
    sweeps,
    undrops,
)

from relance.testing.explorer import Budget, explore

LIVE: Sequence[Step] = (creates("a"),)
DROPPED: Sequence[Step] = (*LIVE, drops())
UNDROPPED: Sequence[Step] = (*DROPPED, undrops())
PURGED: Sequence[Step] = (*DROPPED, purges())
DECLARED: Sequence[Step] = (declares(),)


@dataclass(frozen=True)
class Case:
    """One scenario: what was before, what runs at once, how much may go wrong."""

    name: str
    actors: Sequence[Sequence[Step]]
    budgets: Sequence[Budget]
    start: Sequence[Step] = ()
    age: timedelta | None = None
    signs_matter: bool = False


EVERYTHING = (Budget(crashes=1, lost=1, ticks=1),)
ONE_FAULT = (Budget(crashes=1, ticks=1), Budget(lost=1, ticks=1))
SMALLER = (Budget(crashes=1, ticks=1), Budget(lost=1))
TWO_CRASHES = (Budget(crashes=2, ticks=1),)
TIME = (Budget(ticks=1),)
CRASH = (Budget(crashes=1),)
LOST = (Budget(lost=1),)
NO_FAULT = (Budget(),)

CASES: tuple[Case, ...] = (
    Case("drop, drop", [[drops()], [drops()]], EVERYTHING, LIVE),
    Case("drop, undrop", [[drops()], [undrops()]], EVERYTHING, LIVE),
    Case("undrop, undrop", [[undrops()], [undrops()]], EVERYTHING, DROPPED),
    Case("undrop, purge", [[undrops()], [purges()]], EVERYTHING, DROPPED),
    Case("undrop, purge, two crashes", [[undrops()], [purges()]], TWO_CRASHES, DROPPED),
    Case("purge, purge", [[purges()], [purges()]], ONE_FAULT, DROPPED),
    Case("create, create", [[creates("b")], [creates("c")]], ONE_FAULT),
    Case("create, drop", [[creates("b")], [drops()]], EVERYTHING),
    Case("create, purge of dropped", [[creates("b")], [purges()]], ONE_FAULT, DROPPED),
    Case("create, undrop of dropped", [[creates("b")], [undrops()]], EVERYTHING, DROPPED),
    Case("create, create over dropped", [[creates("b")], [creates("c")]], SMALLER, DROPPED),
    Case("create, create over purged", [[creates("b")], [creates("c")]], SMALLER, PURGED),
    Case("declare, create", [[declares()], [creates("b")]], ONE_FAULT),
    Case("declare, declare", [[declares()], [declares()]], ONE_FAULT),
    Case("declare, drop", [[declares()], [drops()]], EVERYTHING),
    Case("declare, create over purged", [[declares()], [creates("b")]], SMALLER, PURGED, TICK),
    Case("declare over dropped, undrop", [[declares()], [undrops()]], ONE_FAULT, DROPPED),
    Case("create over declared, drop", [[creates("b")], [drops()]], ONE_FAULT, DECLARED),
    Case("overwrite, drop", [[overwrites("b")], [drops()]], CRASH + LOST, LIVE),
    Case("overwrite of nothing, drop", [[overwrites("b")], [drops()]], (*CRASH, *LOST)),
    Case("overwrite, overwrite", [[overwrites("b")], [overwrites("c")]], NO_FAULT, LIVE),
    Case(
        "an overwrite that began before a drop, a purge and a create",
        [[overwrites("b")], [drops(), purges(), creates("c")]],
        NO_FAULT,
        LIVE,
    ),
    Case("undrop and drop again, undrop", [[undrops(), drops()], [undrops(), drops()]], SMALLER, DROPPED),
    Case("drop, undrop and drop", [[drops()], [undrops(), drops()]], SMALLER, LIVE),
    Case("undrop and drop again, purge", [[undrops(), drops()], [purges(), creates("b")]], CRASH, DROPPED),
    Case("sweep, drop", [[sweeps()], [drops()]], EVERYTHING, UNDROPPED, LONG),
    Case("sweep, create", [[sweeps()], [creates("b")]], ONE_FAULT, PURGED, LONG),
    Case("sweep, sweep", [[sweeps()], [sweeps()]], ONE_FAULT, PURGED, LONG),
    Case("scrub, purge", [[scrubs()], [purges()]], (Budget(crashes=1, ticks=1),), DROPPED, signs_matter=True),
    Case("scrub, create", [[scrubs()], [creates("b")]], CRASH, DROPPED, signs_matter=True),
    Case("drop, undrop, purge", [[drops()], [undrops()], [purges()]], (*CRASH, *LOST, *TIME), LIVE),
    Case("undrop, create, purge", [[undrops()], [creates("b")], [purges()]], (*CRASH, *NO_FAULT), DROPPED),
    Case("drop, undrop, create", [[drops()], [undrops()], [creates("b")]], (*CRASH, *NO_FAULT), DROPPED),
    Case(
        "a create that began before a drop and a purge",
        [[creates("b")], [creates("c"), drops(), purges(), creates("d")]],
        CRASH,
    ),
    Case(
        "a create that began before a purge, and a declare after it",
        [[creates("b")], [creates("c"), drops(), purges(), declares()]],
        TIME,
    ),
    Case("create of files, drop", [[creates_of_files("b")], [drops()]], EVERYTHING),
    Case("create of files, create", [[creates_of_files("b")], [creates("c")]], CRASH + LOST),
    Case("create of files, purge of dropped", [[creates_of_files("b")], [purges()]], SMALLER, DROPPED),
    Case("overwrite of files, drop", [[overwrites_of_files("b")], [drops()]], CRASH + LOST, LIVE),
    Case(
        "files that were written before a drop, a purge and a create",
        [[overwrites_of_files("b")], [drops(), purges(), creates("c")]],
        NO_FAULT,
        LIVE,
    ),
    Case(
        "drop, undrop, create and purge at once",
        [[drops()], [undrops()], [creates("b")], [purges()]],
        NO_FAULT,
        DROPPED,
    ),
)

LONG_CASES: tuple[Case, ...] = (
    Case("declare, create over purged", [[declares()], [creates("b")]], ONE_FAULT, PURGED, TICK),
    Case("create, create over purged", [[creates("b")], [creates("c")]], ONE_FAULT, PURGED),
    Case("create, create over dropped", [[creates("b")], [creates("c")]], ONE_FAULT, DROPPED),
    Case("create, create", [[creates("b")], [creates("c")]], EVERYTHING),
    Case("create, purge of dropped", [[creates("b")], [purges()]], EVERYTHING, DROPPED),
    Case("sweep, create, drop", [[sweeps()], [creates("b")], [drops()]], TIME, PURGED, LONG),
    Case("undrop, create, purge", [[undrops()], [creates("b")], [purges()]], (*ONE_FAULT, *TIME), DROPPED),
    Case("drop, undrop, create", [[drops()], [undrops()], [creates("b")]], ONE_FAULT, DROPPED),
    Case("drop, undrop, purge", [[drops()], [undrops()], [purges()]], ONE_FAULT, LIVE),
    Case(
        "a create that began before a drop and a purge",
        [[creates("b")], [creates("c"), drops(), purges(), creates("d")]],
        (*TIME, *LOST),
    ),
    Case("overwrite, overwrite", [[overwrites("b")], [overwrites("c")]], CRASH + LOST, LIVE),
    Case(
        "an overwrite that began before a drop, a purge and a create",
        [[overwrites("b")], [drops(), purges(), creates("c")]],
        (*CRASH, *LOST, *TIME),
        LIVE,
    ),
    Case(
        "four at once with a crash",
        [[drops()], [undrops()], [creates("b")], [purges()]],
        CRASH,
        DROPPED,
    ),
)

if os.environ.get("RELANCE_PROFILE") == "long":
    CASES += LONG_CASES


@pytest.mark.timeout(3600)
@pytest.mark.parametrize(
    ("case", "budget"),
    [
        pytest.param(case, budget, id=f"{case.name} ({budget.crashes}c {budget.lost}l {budget.ticks}t)")
        for case in CASES
        for budget in case.budgets
    ],
)
def test_no_interleaving_of_lifecycle_operations_breaks_an_invariant(
    case: Case, budget: Budget, request: pytest.FixtureRequest
) -> None:
    scenario = make_scenario(case.actors, start=case.start, age=case.age, signs_matter=case.signs_matter)
    result = explore(scenario, budget)
    assert result.violation is None, str(result.violation)
    assert result.states > 10
    assert_states_as_recorded(request, result)
