"""Small tables are purged as a group: each keeps its own claim, outcome and guarantees.

The interleavings of a purge with other verbs are explored in test_explorer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import timedelta
from typing import Any

import pytest
from tests.support.patches import original, substitute, substituted
from tests.support.scenarios.lifecycle import OPTIONS, OTHER, OTHER_ID, TABLE, TABLE_ID, context_on

from relance.catalog.context import Context
from relance.catalog.create import create
from relance.catalog.drop import drop, undrop
from relance.catalog.layout import inspect_name, read_control
from relance.catalog.purge import (
    REMEMBERED,
    PurgeOptions,
    PurgeProgress,
    PurgeResult,
    purge_tables,
)
from relance.catalog.resolve import Exists
from relance.catalog.states import Control, Marked, Situation, State, state_of
from relance.errors import (
    ConcurrentModificationError,
    OutcomeUnknownError,
    PermissionDeniedError,
    RelanceError,
    ServiceUnavailableError,
    TableNotFoundError,
)
from relance.identifiers import TableId
from relance.lance_io import CreateMode, NewTable
from relance.locations import CONTROL_SUFFIX, MARKER_SUFFIX
from relance.storage.memory import MemoryStorage
from relance.storage.probe import capabilities
from relance.storage.protocol import ObjectStorage, Version
from relance.testing.clock import ManualClock
from relance.testing.faults import Fault, FaultyStorage, Request

BY_FORCE = PurgeOptions(force=True)
LEASE_IS_OVER = timedelta(minutes=10 + 15 + 1, seconds=1)


@pytest.fixture(params=["1", "c"], ids=["V1", "compatibility"])
def mode(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def _make_dropped(context: Context, *table_ids: TableId) -> None:
    for table_id in table_ids:
        create(context, NewTable(table_id, str(table_id), OPTIONS), CreateMode.CREATE)
        drop(context, table_id, timedelta(days=1))


def _two_dropped(
    name: str, mode: str, store: MemoryStorage | None = None
) -> tuple[MemoryStorage, ManualClock]:
    store, clock = store or MemoryStorage(f"purge together {name}"), ManualClock()
    capabilities(store)
    _make_dropped(context_on(store, clock, mode), TABLE_ID, OTHER_ID)
    return store, clock


def _purge(
    storage: ObjectStorage,
    clock: ManualClock,
    mode: str,
    *table_ids: TableId,
    options: PurgeOptions = BY_FORCE,
) -> list[PurgeResult]:
    ids = list(table_ids or (TABLE_ID, OTHER_ID))
    context = context_on(storage, clock, mode)
    return purge_tables(context, ids, deleted_before=None, dry_run=False, options=options)


def _files(store: MemoryStorage) -> list[str]:
    return [key for key in store.snapshot() if ".lance/" in key]


def _states(store: MemoryStorage) -> dict[str, State | None]:
    context = context_on(store, ManualClock(), "1")
    return {name: state_of(read_control(context, name)) for name in (TABLE, OTHER)}


def test_files_written_during_a_group_purge_are_found_by_a_second_listing(mode: str) -> None:
    """Without that look, a name would be free for a declare while files of the old table lie there."""

    def nothing_left(storage: ObjectStorage, tables: Sequence[Any]) -> set[str]:
        return {table.directory for table in tables}

    store, clock = _two_dropped("late", mode)
    late: list[str] = []

    def plan(request: Request) -> Fault | None:
        if request.verb == "delete_many" and not late:
            late.append("u.lance/_versions/late.manifest")
            store.create(late[0], b"{}")
        return None

    with substituted("purge.empty_directories", nothing_left):
        _purge(FaultyStorage(store, plan), clock, mode)
    assert _files(store) == late, "the guard is off"
    late.clear()
    store, clock = _two_dropped("late again", mode)
    assert all(result.purged for result in _purge(FaultyStorage(store, plan), clock, mode))
    assert _files(store) == []


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
def test_lost_response_to_a_swap_does_not_stop_a_group_purge(fault: Fault, at: int, mode: str) -> None:
    store, clock = _two_dropped(f"lost {fault} {at}", mode)
    plan = _striking(fault, "replace", TABLE + CONTROL_SUFFIX, at=at)
    assert all(result.purged for result in _purge(FaultyStorage(store, plan), clock, mode))
    assert _states(store) == {TABLE: State.PURGED, OTHER: State.PURGED}
    assert _files(store) == []


def test_swap_that_never_arrived_fails_only_its_own_table(mode: str) -> None:
    store, clock = _two_dropped("refused", mode)
    plan = _striking(Fault.REFUSED, "replace", TABLE + CONTROL_SUFFIX)
    first, second = _purge(FaultyStorage(store, plan), clock, mode)
    assert isinstance(first.error, OutcomeUnknownError)
    assert second.purged
    assert _states(store) == {TABLE: State.DELETED, OTHER: State.PURGED}
    assert undrop(context_on(store, clock, mode), TABLE_ID) == Exists((TABLE,))


def test_group_purge_with_a_lost_delete_response_keeps_its_claims(mode: str) -> None:
    store, clock = _two_dropped("no answer", mode)
    plan = _striking(Fault.LOST_ANSWER, "delete_many", "_versions/")
    results = _purge(FaultyStorage(store, plan), clock, mode)
    assert {type(result.error) for result in results} == {OutcomeUnknownError}
    assert set(_states(store).values()) == {State.PURGING}
    assert {type(result.error) for result in _purge(store, clock, mode)} == {ConcurrentModificationError}
    clock.advance(LEASE_IS_OVER)
    assert all(result.purged for result in _purge(store, clock, mode))
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
    refused: str, error: type[RelanceError], mode: str
) -> None:
    store = _Guarded(f"guarded {refused} {error.__name__}")
    _, clock = _two_dropped("guarded", mode, store)
    store.refused, store.error = refused, error
    first, second = _purge(store, clock, mode)
    assert isinstance(first.error, OutcomeUnknownError)  # some of its files are gone
    assert isinstance(first.error.__cause__, error)
    assert second.purged
    assert _states(store) == {TABLE: State.PURGING, OTHER: State.PURGED}
    assert [key for key in _files(store) if key.startswith("u.")] == []


def test_table_with_many_files_is_purged_outside_the_group(
    mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, clock = _two_dropped("many files", mode)
    ids = [OTHER_ID, TABLE_ID, TableId((), "v")]
    _make_dropped(context_on(store, clock, mode), ids[2])
    for number in range(REMEMBERED):
        store.create(f"t.lance/data/more-{number}", b"x")
    groups: list[list[str]] = []
    swap = original("purge.swap_files")

    def watch(context: Context, swaps: Sequence[tuple[str, Control, Marked]]) -> Any:
        if all(control.state is State.PURGING for _, control, _ in swaps):
            groups.append([name for name, _, _ in swaps])
        return swap(context, swaps)

    substitute(monkeypatch, "purge.swap_files", watch)
    expected = [len([key for key in store.snapshot() if key.startswith(f"{name}.lance/")]) for name in ids]
    missing, *results = _purge(store, clock, mode, *ids, TableId((), "nothing"))
    assert isinstance(missing.error, TableNotFoundError)
    assert sorted(groups) == [["t"], ["u", "v"]]
    assert [result.id for result in results] == [tuple(table_id.parts) for table_id in ids]
    assert [result.files for result in results] == expected
    assert all(result.purged for result in results)
    assert _files(store) == []


def test_table_named_twice_is_purged_once(mode: str) -> None:
    store, clock = _two_dropped("twice", mode)
    first, again = _purge(store, clock, mode, TABLE_ID, TABLE_ID)
    assert first.purged
    assert isinstance(again.error, ConcurrentModificationError)
    assert _states(store)[TABLE] is State.PURGED


def test_progress_and_rate_are_those_of_each_table(mode: str) -> None:
    store, clock = _two_dropped("progress", mode)
    seen: list[PurgeProgress] = []
    slept: list[float] = []
    options = PurgeOptions(force=True, rate_limit=1.0, progress=seen.append, sleep=slept.append)
    results = _purge(store, clock, mode, options=options)
    for result in results:
        assert result.purged
        assert [progress.files for progress in seen if progress.id == result.id][-1] == result.files > 1
    assert sum(slept) == pytest.approx(sum(result.files for result in results))


def _die(*_: Any) -> None:
    raise _DeathError


class _DeathError(BaseException):
    pass


def test_group_purge_that_died_after_claiming_is_completed_later(mode: str) -> None:
    store, clock = _two_dropped("death", mode)
    before = _files(store)
    with (
        substituted("purge.delete_listed", _die),
        substituted("purge.release"),
        pytest.raises(_DeathError),
    ):
        _purge(store, clock, mode)
    assert set(_states(store).values()) == {State.PURGING}
    assert _files(store) == before
    assert {type(result.error) for result in _purge(store, clock, mode)} == {ConcurrentModificationError}
    clock.advance(LEASE_IS_OVER)
    assert all(result.purged for result in _purge(store, clock, mode))
    assert _files(store) == []


def test_interrupted_group_purge_gives_back_what_it_has_not_touched(mode: str) -> None:
    store, clock = _two_dropped("interrupted", mode)
    with substituted("purge.delete_listed", _die), pytest.raises(_DeathError):
        _purge(store, clock, mode)
    assert set(_states(store).values()) == {State.DELETED}
    assert undrop(context_on(store, clock, mode), TABLE_ID) == Exists((TABLE,))


def test_interrupted_group_purge_is_completed_at_once(mode: str) -> None:
    store, clock = _two_dropped("stopped", mode)
    with substituted("purge.finish_group", _die), pytest.raises(_DeathError):
        _purge(store, clock, mode)
    assert set(_states(store).values()) == {State.PURGING}
    assert all(result.purged for result in _purge(store, clock, mode))
    assert _files(store) == []


class _Interrupted(MemoryStorage):
    """Carries out the replacement of this number, and then Ctrl-C arrives instead of its response."""

    replacements: int | None = None

    def replace(self, key: str, body: bytes, *, expected: Version) -> Version:
        version = super().replace(key, body, expected=expected)
        if self.replacements is not None:
            self.replacements -= 1
            if self.replacements == 0:
                raise KeyboardInterrupt
        return version


@pytest.mark.parametrize(
    ("number", "state"), [(1, State.DELETED), (2, State.DELETED), (3, State.PURGING)], ids=["1", "2", "end"]
)
def test_interrupt_after_any_swap_of_a_group_purge_keeps_nobody_waiting(
    number: int, state: State, mode: str
) -> None:
    store = _Interrupted(f"interrupted after {number}")
    _, clock = _two_dropped("after", mode, store)
    store.replacements = number
    with pytest.raises(KeyboardInterrupt):
        _purge(store, clock, mode)
    assert _states(store)[OTHER] is state
    assert all(
        result.purged or isinstance(result.error, TableNotFoundError) for result in _purge(store, clock, mode)
    )
    assert _files(store) == []


def test_interrupt_while_a_purge_renews_its_lease_keeps_nobody_waiting(
    mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = _Interrupted("renewal")
    _, clock = _two_dropped("renewal", mode, store)
    substitute(monkeypatch, "purge.remembered_files", 0)
    substitute(monkeypatch, "purge.largest_batch", 1)
    store.replacements = 2
    options = PurgeOptions(force=True, progress=lambda _: clock.advance(timedelta(minutes=6)))
    with pytest.raises(KeyboardInterrupt):
        _purge(store, clock, mode, TABLE_ID, options=options)
    assert _states(store)[TABLE] is State.PURGING
    assert [result.purged for result in _purge(store, clock, mode, TABLE_ID)] == [True]


def test_progress_callback_that_fails_keeps_nobody_waiting(mode: str) -> None:
    store, clock = _two_dropped("callback", mode)
    with pytest.raises(_DeathError):
        _purge(store, clock, mode, options=PurgeOptions(force=True, progress=_die))
    assert all(result.purged for result in _purge(store, clock, mode))


def test_purge_that_takes_over_and_is_interrupted_never_gives_half_a_table_back(mode: str) -> None:
    store, clock = _two_dropped("half", mode)
    with substituted("purge.finish_group", _die), pytest.raises(_DeathError):
        _purge(store, clock, mode)  # manifests are gone already
    with substituted("purge.delete_listed", _die), pytest.raises(_DeathError):
        _purge(store, clock, mode)
    assert set(_states(store).values()) == {State.PURGING}
    assert all(result.purged for result in _purge(store, clock, mode))


def test_purge_that_was_refused_can_be_repeated_at_once(mode: str) -> None:
    store = _Guarded("repeated")
    _, clock = _two_dropped("repeated", mode, store)
    store.refused = "t.lance/_versions"
    (refused,) = _purge(store, clock, mode, TABLE_ID)
    assert isinstance(refused.error, OutcomeUnknownError)
    assert isinstance(refused.error.__cause__, PermissionDeniedError)
    store.refused = ""
    assert [result.purged for result in _purge(store, clock, mode, TABLE_ID)] == [True]


def test_purge_that_fails_before_it_deletes_anything_leaves_a_dropped_table(mode: str) -> None:
    store, clock = _two_dropped("untouched", mode)
    claimed: list[str] = []

    def plan(request: Request) -> Fault | None:
        if request.verb == "replace":
            claimed.append(request.key)
        looks_again = bool(claimed) and request.verb.startswith("list") and len(claimed) == 1
        return Fault.REFUSED if looks_again else None

    (failed,) = _purge(FaultyStorage(store, plan), clock, mode, TABLE_ID)
    assert isinstance(failed.error, ServiceUnavailableError)
    assert _states(store)[TABLE] is State.DELETED
    assert undrop(context_on(store, clock, mode), TABLE_ID) == Exists((TABLE,))


def test_interrupted_purge_gives_a_strict_drop_back_as_strict(mode: str) -> None:
    store, clock = _two_dropped("strict", mode)
    undrop(context_on(store, clock, mode), TABLE_ID)
    drop(context_on(store, clock, mode), TABLE_ID, timedelta(days=1))
    store.delete(TABLE + MARKER_SUFFIX)  # as a request of the undrop does that comes late
    with substituted("purge.delete_listed", _die), pytest.raises(_DeathError):
        _purge(store, clock, mode, TABLE_ID)
    assert inspect_name(context_on(store, clock, mode), TABLE).situation is Situation.DROPPED
