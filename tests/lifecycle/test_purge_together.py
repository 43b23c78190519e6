"""Small tables are purged as a group: each keeps its own claim, outcome and guarantees.

Every interleaving with what others do to one of them, and each guard of it switched off once.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from tests.support.exploration import assert_states_as_recorded
from tests.support.patches import original, substitute, substituted
from tests.support.scenarios.lifecycle import (
    TABLE,
    TABLE_ID,
    TICK,
    Step,
    context_on,
    creates,
    drops,
    make_scenario,
    purges,
    undrops,
)

from relance.config import StorageOptions
from relance.errors import (
    ConcurrentModificationError,
    OutcomeUnknownError,
    PermissionDeniedError,
    RelanceError,
    ServiceUnavailableError,
)
from relance.identifiers import TableId
from relance.lifecycle.marker_store import StoredMarker, read_marker
from relance.lifecycle.states import State
from relance.locations import MARKER_SUFFIX
from relance.operations.context import Context
from relance.operations.create import create
from relance.operations.deletion import REMEMBERED, PurgeOptions, PurgeResult
from relance.operations.directory import claims, purge_group
from relance.operations.directory.purge import purge_names
from relance.operations.drop import drop, undrop_table
from relance.operations.new_table import CreateMode, NewTable
from relance.storage.memory import MemoryStorage
from relance.storage.probe import capabilities
from relance.storage.protocol import ObjectStorage
from relance.testing.clock import ManualClock
from relance.testing.explorer import Budget, Exploration, Run, explore
from relance.testing.faults import Fault, FaultyStorage, Request
from relance.testing.lifecycle_model import Verb, observe

_LONG = os.environ.get("RELANCE_PROFILE") == "long"

OTHER = "u"
OTHER_ID = TableId((), OTHER)
BY_FORCE = PurgeOptions(force=True)


def creates_other() -> Step:
    new = NewTable(OTHER_ID, "other", StorageOptions())
    return Verb.OTHER.value, lambda context: create(context, new, CreateMode.CREATE)


def drops_other() -> Step:
    return Verb.OTHER.value, lambda context: drop(context, OTHER_ID, timedelta(days=1))[2].deletion_id


def undrops_other() -> Step:
    return Verb.OTHER.value, lambda context: undrop_table(context, OTHER_ID)


def purges_both(*table_ids: TableId) -> Step:
    """Purge both tables in one call, in this order; the answer is the one for TABLE."""

    def purge(context: Context) -> int:
        results = {each.id: each for each in purge_names(context, table_ids, BY_FORCE)}
        result = results[TABLE,]
        if result.error is not None:
            raise result.error
        return result.files

    return Verb.PURGE.value, purge


FIRST, SECOND = purges_both(TABLE_ID, OTHER_ID), purges_both(OTHER_ID, TABLE_ID)
DROPPED: Sequence[Step] = (creates("a"), drops(), creates_other(), drops_other())


def _explore(actors: Sequence[Sequence[Step]], budget: Budget, *, takes_away: bool = False) -> Exploration:
    scenario = make_scenario(actors, start=DROPPED)

    def check(run: Run) -> str | None:
        _, broken = observe(run.store.snapshot(), OTHER)
        return f"the other table is broken: {broken}" if broken is not None else scenario.check(run)

    return explore(replace(scenario, check=check, takes_away=takes_away), budget)


QUICK = {
    "undrop": ([[FIRST], [undrops()]], (Budget(crashes=1, ticks=1), Budget(lost=1))),
    "undrop of the second": ([[SECOND], [undrops()]], (Budget(crashes=1), Budget(lost=1))),
    "undrop and drop": ([[FIRST], [undrops(), drops()]], (Budget(crashes=1),)),
    "create": ([[FIRST], [creates("b")]], (Budget(crashes=1), Budget(lost=1))),
    "purge and create": ([[SECOND], [purges(), creates("b")]], (Budget(),)),
    "both in the other order": ([[FIRST], [SECOND]], (Budget(crashes=1),)),
    "undrops of both": ([[FIRST], [undrops()], [undrops_other()]], (Budget(), Budget(crashes=1))),
}
LONG = {
    "undrop": ([[FIRST], [undrops()]], (Budget(crashes=1, lost=1, ticks=1),)),
    "create": ([[FIRST], [creates("b")]], (Budget(crashes=1, ticks=1), Budget(lost=1, ticks=1))),
    "purge and create": ([[SECOND], [purges(), creates("b")]], (Budget(ticks=1), Budget(crashes=1))),
    "both in the other order": ([[FIRST], [SECOND]], (Budget(crashes=1, ticks=1), Budget(lost=1))),
}
CASES = [
    pytest.param(actors, budget, id=f"{name} ({budget.crashes}c {budget.lost}l {budget.ticks}t)")
    for name, (actors, budgets) in (*QUICK.items(), *(LONG.items() if _LONG else ()))
    for budget in budgets
]


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("takes_away", [False, True], ids=["file by file", "directories taken away"])
@pytest.mark.parametrize(("actors", "budget"), CASES)
def test_no_interleaving_of_a_group_purge_loses_a_table(
    actors: Sequence[Sequence[Step]], budget: Budget, takes_away: bool, request: pytest.FixtureRequest
) -> None:
    result = _explore(actors, budget, takes_away=takes_away)
    assert result.violation is None, str(result.violation)
    assert result.states > 50
    assert_states_as_recorded(request, result)


def test_without_respecting_a_refused_claim_group_purge_deletes_a_table() -> None:
    real = original("purge.claim_group")

    def take_all(context: Context, names: Sequence[tuple[str, StoredMarker]]) -> list[claims.Claim]:
        taken = {each.name: each for each in real(context, names) if isinstance(each, claims.Claim)}
        deadline = context.clock.monotonic() + 3600
        return [
            taken.get(name) or claims.Claim(context, name, stored, deadline, lambda marker, *_: marker)
            for name, stored in names
        ]

    with substituted("purge.claim_group", take_all):
        result = _explore([[FIRST], [undrops()]], Budget())
    assert result.violation is not None


def test_without_checking_its_leases_a_stalled_group_purge_deletes_a_newer_table() -> None:
    with substituted("claim.ensure", return_value=None):
        result = _explore([[SECOND], [purges(), creates("b")]], Budget(ticks=1))
    assert result.violation is not None


@pytest.mark.deep
@pytest.mark.parametrize("guarded", [True, False])
def test_trashed_directory_is_deleted_only_while_the_lease_holds(guarded: bool) -> None:
    real = original("explorer.storage_discard")

    def careless(self: Any, prefixes: Sequence[str], *, sure: Callable[[str], bool]) -> Any:
        return real(self, prefixes, sure=sure if guarded else lambda prefix: True)

    with substituted("explorer.storage_discard", careless):
        result = _explore([[SECOND], [purges(), creates("b")]], Budget(ticks=1), takes_away=True)
    assert (result.violation is None) is guarded


def test_files_written_during_a_group_purge_are_found_by_a_second_listing() -> None:
    """Without that look, a name would be free for a declare while files of the old table lie there."""

    def nothing_left(storage: ObjectStorage, tables: Sequence[purge_group._Held]) -> set[str]:
        return {each.directory for each in tables}

    store, clock = _two_dropped("late")
    late: list[str] = []

    def plan(request: Request) -> Fault | None:
        if request.verb == "delete_many" and not late:
            late.append("u.lance/_versions/late.manifest")
            store.create(late[0], b"{}")
        return None

    with substituted("purge.empty_directories", nothing_left):
        _purge(FaultyStorage(store, plan), clock)
    assert _files(store) == late, "the guard is off"
    late.clear()
    store, clock = _two_dropped("late again")
    assert all(each.purged for each in _purge(FaultyStorage(store, plan), clock))
    assert _files(store) == []


def _two_dropped(name: str) -> tuple[MemoryStorage, ManualClock]:
    store, clock = MemoryStorage(f"purge together {name}"), ManualClock()
    capabilities(store)
    for _, step in DROPPED:
        step(context_on(store, clock))
    return store, clock


def _purge(storage: ObjectStorage, clock: ManualClock) -> list[PurgeResult]:
    return purge_names(context_on(storage, clock), [TABLE_ID, OTHER_ID], BY_FORCE)


def _files(store: MemoryStorage) -> list[str]:
    return [key for key in store.snapshot() if ".lance/" in key]


def _states(store: MemoryStorage) -> dict[str, State | None]:
    found = {name: read_marker(store, name) for name in (TABLE, OTHER)}
    return {name: each.marker.state if each is not None else None for name, each in found.items()}


def _striking(fault: Fault, verb: str, part: str, *, at: int = 1) -> Callable[[Request], Fault | None]:
    """Return a plan that strikes the request of this kind that comes as number `at`."""
    seen: list[Request] = []

    def plan(request: Request) -> Fault | None:
        if request.verb != verb or part not in request.key:
            return None
        seen.append(request)
        return fault if len(seen) == at else None

    return plan


@pytest.mark.parametrize("fault", [Fault.LOST_ANSWER, Fault.RETRIED])
@pytest.mark.parametrize("at", [1, 2], ids=["claim", "end"])
def test_lost_response_to_a_swap_does_not_stop_a_group_purge(fault: Fault, at: int) -> None:
    store, clock = _two_dropped(f"lost {fault} {at}")
    plan = _striking(fault, "replace", TABLE + MARKER_SUFFIX, at=at)
    assert all(each.purged for each in _purge(FaultyStorage(store, plan), clock))
    assert _states(store) == {TABLE: State.PURGED, OTHER: State.PURGED}
    assert _files(store) == []


def test_swap_that_never_arrived_fails_only_its_own_table() -> None:
    store, clock = _two_dropped("refused")
    plan = _striking(Fault.REFUSED, "replace", TABLE + MARKER_SUFFIX)
    first, second = _purge(FaultyStorage(store, plan), clock)
    assert isinstance(first.error, OutcomeUnknownError)
    assert second.purged
    assert _states(store) == {TABLE: State.DELETED, OTHER: State.PURGED}
    assert undrop_table(context_on(store, clock), TABLE_ID) is not None


def test_group_purge_with_a_lost_delete_response_keeps_its_claims() -> None:
    store, clock = _two_dropped("no answer")
    plan = _striking(Fault.LOST_ANSWER, "delete_many", "_versions/")
    results = _purge(FaultyStorage(store, plan), clock)
    assert {type(each.error) for each in results} == {OutcomeUnknownError}
    assert set(_states(store).values()) == {State.PURGING}
    assert {type(each.error) for each in _purge(store, clock)} == {ConcurrentModificationError}
    clock.advance(TICK)
    assert all(each.purged for each in _purge(store, clock))
    assert _files(store) == []


class _Guarded(MemoryStorage):
    """Refuses deletes of some keys, and says so, or gives no answer to any of names that never come again."""

    refused: str = ""
    error: type[RelanceError] = PermissionDeniedError

    def delete_many(self, keys: Iterable[str]) -> None:
        for key in keys:
            if self.refused and self.refused in key:
                raise self.error(f"{key!r} may not be deleted")
            self.delete(key)


@pytest.mark.parametrize(
    ("refused", "error"),
    [
        pytest.param("t.lance/_versions", PermissionDeniedError, id="a manifest, by permission"),
        pytest.param("t.lance/data", PermissionDeniedError, id="a data file, by permission"),
        pytest.param("t.lance/data", ServiceUnavailableError, id="a data file, without an answer"),
    ],
)
def test_undeletable_files_of_one_table_do_not_stop_the_other(
    refused: str, error: type[RelanceError]
) -> None:
    store, clock = _Guarded(f"guarded {refused} {error.__name__}"), ManualClock()
    capabilities(store)
    for _, step in DROPPED:
        step(context_on(store, clock))
    store.refused, store.error = refused, error
    first, second = _purge(store, clock)
    assert isinstance(first.error, error)
    assert second.purged
    assert _states(store) == {TABLE: State.PURGING, OTHER: State.PURGED}
    assert [key for key in _files(store) if key.startswith("u.")] == []


def test_table_with_many_files_is_purged_outside_the_group(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store, clock = _two_dropped("many files")
    names = [OTHER_ID, TABLE_ID, TableId((), "v"), TableId((), "nothing")]
    more = NewTable(names[2], "more", StorageOptions())
    context = context_on(store, clock)
    create(context, more, CreateMode.CREATE)
    drop(context, names[2], timedelta(days=1))
    for number in range(REMEMBERED):
        store.create(f"t.lance/data/more-{number}", b"x")
    groups: list[list[str]] = []
    claim = original("purge.claim_group")

    def take(context: Context, wanted: Sequence[tuple[str, StoredMarker]]) -> Any:
        groups.append([name for name, _ in wanted])
        return claim(context, wanted)

    substitute(monkeypatch, "purge.claim_group", take)
    expected = [len([key for key in store.snapshot() if key.startswith(f"{each}.lance/")]) for each in names]
    results = purge_names(context, names, BY_FORCE)
    assert sorted(groups) == [["t"], ["u", "v"]]
    assert [each.id for each in results] == [tuple(each.parts) for each in names]
    assert [each.files for each in results] == expected
    assert [each.purged for each in results] == [True, True, True, False]
    assert _files(store) == []


def test_table_named_twice_is_purged_once() -> None:
    store, clock = _two_dropped("twice")
    first, again = purge_names(context_on(store, clock), [TABLE_ID, TABLE_ID], BY_FORCE)
    assert first.purged
    assert isinstance(again.error, ConcurrentModificationError)
    assert _states(store)[TABLE] is State.PURGED


def test_group_purge_that_crashed_after_claiming_is_completed_later() -> None:
    class Death(BaseException):
        pass

    def die(*_: Any) -> None:
        raise Death

    store, clock = _two_dropped("death")
    before = _files(store)
    with substituted("purge.delete_listed", die), pytest.raises(Death):
        _purge(store, clock)
    assert set(_states(store).values()) == {State.PURGING}
    assert _files(store) == before
    assert {type(each.error) for each in _purge(store, clock)} == {ConcurrentModificationError}
    clock.advance(TICK)
    assert all(each.purged for each in _purge(store, clock))
    assert _files(store) == []
