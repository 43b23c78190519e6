"""Every interleaving of a purge in tasks with the rest of the lifecycle.

And each of its guards is switched off once: the explorer must notice.
`RELANCE_PROFILE=long` explores larger budgets, with time that passes and lost answers.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import pytest
from tests.support.exploration import assert_states_as_recorded
from tests.support.patches import original, substituted
from tests.support.scenarios.lifecycle import (
    TABLE,
    Step,
    creates,
    drops,
    make_scenario,
    purges,
    undrops,
)

from relance.lifecycle.marker_store import StoredMarker
from relance.maintenance.removal.expired_drops import PurgeDropped
from relance.operations.context import Context
from relance.testing.explorer import Budget, Exploration, explore
from relance.testing.lifecycle_model import Verb

LIVE: Sequence[Step] = (creates("a"),)
DROPPED: Sequence[Step] = (*LIVE, drops())
JOB = PurgeDropped(force=True, giant_files=0, run="run")


def _purge_in_tasks(context: Context) -> int:
    plan = JOB.plan(context, (TABLE,))
    assert plan is not None
    return plan.finish(context, [task.run(context) for task in plan.tasks]).files


def _tasks_alone(context: Context) -> None:
    """Do what a task does that Spark believes lost: another one does the same, and the job goes on."""
    plan = JOB.plan(context, (TABLE,))
    assert plan is not None
    for task in plan.tasks:
        task.run(context)


def purges_in_tasks() -> Step:
    return Verb.PURGE.value, _purge_in_tasks


def lost_tasks() -> Step:
    return Verb.PURGE.value, _tasks_alone


def _explore(actors: Sequence[Sequence[Step]], budget: Budget, **options: Any) -> Exploration:
    return explore(make_scenario(actors, **options), budget)


UNDROP = ([purges_in_tasks()], [undrops(), drops()])
CREATE = ([purges_in_tasks()], [creates("b")])
PURGE = ([purges_in_tasks()], [purges(), creates("b")])
TWICE = ([purges_in_tasks()], [purges_in_tasks(), creates("b")])
LOST_TASKS = ([lost_tasks()], [purges_in_tasks(), creates("b")])

QUICK = [
    pytest.param(UNDROP, Budget(crashes=1), id="undrop"),
    pytest.param(CREATE, Budget(), id="create"),
    pytest.param(LOST_TASKS, Budget(), id="lost tasks"),
]
LONG = [
    pytest.param(actors, budget, id=f"{name}-{budget}")
    for name, actors in {
        "undrop": UNDROP,
        "create": CREATE,
        "purge": PURGE,
        "twice": TWICE,
        "lost tasks": LOST_TASKS,
    }.items()
    for budget in (Budget(ticks=1), Budget(crashes=1, ticks=1), Budget(lost=1))
]


@pytest.mark.parametrize(("actors", "budget"), LONG if os.environ.get("RELANCE_PROFILE") == "long" else QUICK)
def test_no_interleaving_of_a_purge_in_tasks_loses_a_table(
    actors: Sequence[Sequence[Step]], budget: Budget, request: pytest.FixtureRequest
) -> None:
    result = _explore(actors, budget, start=DROPPED)
    assert result.violation is None, result.violation
    assert result.states > 50
    assert_states_as_recorded(request, result)


def test_without_the_claim_tasks_delete_the_files_of_an_undropped_table() -> None:
    with substituted("expired_drops.check_claim"):
        result = _explore([[purges_in_tasks()], [undrops()]], Budget(), start=DROPPED)
    assert result.violation is not None


def test_without_its_own_token_a_purge_ends_twice_over_a_newer_table() -> None:
    real = original("shared_purge.claim_purge")

    def shared(context: Context, name: str, over: StoredMarker, token: str | None = None) -> Any:
        return real(context, name, over, token or over.marker.token)

    with substituted("shared_purge.claim_purge", shared):
        result = _explore([[purges_in_tasks()], [purges_in_tasks(), creates("b")]], Budget(), start=DROPPED)
    assert result.violation is not None


def test_if_tasks_deleted_manifests_a_late_task_would_hit_a_newer_table() -> None:
    with substituted("expired_drops.is_never_named_twice", return_value=True):
        result = _explore([[lost_tasks()], [purges_in_tasks(), creates("b")]], Budget(), start=DROPPED)
    assert result.violation is not None
