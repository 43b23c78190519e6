"""Every interleaving of the real code where tables of two root names move, in compatibility mode.

`make test-long ARGS=tests/lifecycle/test_rename_explorer.py` explores more.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

import pytest
from tests.support.exploration import assert_states_as_recorded
from tests.support.patches import substituted
from tests.support.scenarios.lifecycle import Step
from tests.support.scenarios.rename import creates, drops, make_scenario, renames, undrops, undrops_as

from relance.manifest.store import Snapshot
from relance.operations.directory.claims import swap
from relance.operations.in_step import NameHold
from relance.testing.explorer import Budget, explore

LIVE: Sequence[Step] = (creates("t", "a"),)
DROPPED: Sequence[Step] = (*LIVE, drops("t"))
AWAY: Sequence[Step] = (*LIVE, renames("t", "u"))

NO_FAULT = (Budget(),)
CRASH = (Budget(crashes=1),)
LOST = (Budget(lost=1),)

Case = tuple[str, Sequence[Sequence[Step]], Sequence[Step], Sequence[Budget]]

CASES: tuple[Case, ...] = (
    ("rename, drop", [[renames("t", "u")], [drops("t")]], LIVE, CRASH),
    ("rename, create of the target", [[renames("t", "u")], [creates("u", "c")]], LIVE, NO_FAULT),
    ("rename, create of the old name", [[renames("t", "u")], [creates("t", "c")]], LIVE, CRASH),
    ("rename there and back", [[renames("t", "u")], [renames("u", "t")]], LIVE, CRASH),
    ("undrop, undrop as another", [[undrops("t")], [undrops_as("t", "u")]], DROPPED, NO_FAULT),
    ("undrop as another, drop there", [[undrops_as("t", "u")], [drops("u")]], DROPPED, CRASH),
    ("rename back, drop", [[renames("u", "t")], [drops("u")]], AWAY, CRASH),
)

LONG_CASES: tuple[Case, ...] = (
    ("rename, drop", [[renames("t", "u")], [drops("t")]], LIVE, LOST),
    ("rename, create of the target", [[renames("t", "u")], [creates("u", "c")]], LIVE, CRASH),
)


class Unheld(NameHold):
    """Holds nothing."""

    def __call__(self) -> None:
        return


ALL = [
    pytest.param(actors, start, budget, id=f"{name} ({budget.crashes}c {budget.lost}l)")
    for name, actors, start, budgets in (
        CASES + LONG_CASES if os.environ.get("RELANCE_PROFILE") == "long" else CASES
    )
    for budget in budgets
]


@pytest.mark.timeout(1800)
@pytest.mark.parametrize(("actors", "start", "budget"), ALL)
def test_no_interleaving_of_renames_loses_or_duplicates_a_table(
    actors: Sequence[Sequence[Step]], start: Sequence[Step], budget: Budget, request: pytest.FixtureRequest
) -> None:
    result = explore(make_scenario(actors, start=start), budget)
    assert result.violation is None, result.violation
    assert result.states > 10
    assert_states_as_recorded(request, result)


def test_without_syncing_a_drop_a_rename_interferes() -> None:
    with substituted("drop.announced_swap", swap):
        scenario = make_scenario([[renames("t", "u")], [drops("t")]], start=LIVE)
        assert explore(scenario, Budget()).violation is not None


def test_without_claiming_the_name_a_create_finds_it_taken() -> None:
    with substituted("create.name_claim", Unheld):
        scenario = make_scenario([[renames("t", "u")], [creates("u", "c")]], start=LIVE)
        assert explore(scenario, Budget()).violation is not None


def test_without_waiting_for_a_pending_sync_a_rename_interferes() -> None:
    def nothing(snapshot: Snapshot, name: str) -> None: ...

    with substituted("rename.refuse_pending", nothing):
        scenario = make_scenario([[renames("t", "u")], [drops("t")]], start=LIVE)
        assert explore(scenario, Budget()).violation is not None
