"""The storage doubles stop before, or break, the same requests as a real store makes."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import TypeVar

import pytest
from tests.support.mortal_clients import Death, Life, MortalStorage

from relance.errors import InternalError, OutcomeUnknownError, ServiceUnavailableError
from relance.storage.memory import MemoryStorage
from relance.storage.protocol import CLOCK_KEY, ObjectStorage, TrashClaim, TrashReport
from relance.testing.clock import ManualClock
from relance.testing.faults import Fault, FaultyStorage
from relance.testing.stepped_storage import NoWaiting, Pending, SteppedStorage

_T = TypeVar("_T")


class _Recorder(NoWaiting):
    """Lets every request through and remembers it."""

    def __init__(self) -> None:
        self.requests: list[Pending] = []

    def request(self, pending: Pending, act: Callable[[], _T]) -> _T:
        self.requests.append(pending)
        return act()


def _use(storage: ObjectStorage) -> None:
    assert storage.now() == ManualClock().now()
    storage.copy("a", "b", share=True)
    assert [info.key for info in storage.list_after("a").objects] == ["b"]


@pytest.fixture
def inner() -> MemoryStorage:
    storage = MemoryStorage(clock=ManualClock())
    storage.create("a", b"x")
    return storage


def test_stepped_storage_stops_before_each_request(inner: MemoryStorage) -> None:
    recorder = _Recorder()
    _use(SteppedStorage(inner, recorder, takes_away=False))
    assert recorder.requests == [
        Pending("now", CLOCK_KEY, writes=False),
        Pending("copy", "b", writes=True),
        Pending("list_after", "a", writes=False),
    ]


def test_faults_strike_each_request(inner: MemoryStorage) -> None:
    healthy = FaultyStorage(inner)
    _use(healthy)
    assert [request.verb for request in healthy.requests] == ["now", "copy", "list_after"]
    for fault in (Fault.REFUSED, Fault.LOST_ANSWER):
        faulty = FaultyStorage(inner, lambda request, fault=fault: fault)  # type: ignore[misc]
        with pytest.raises(ServiceUnavailableError):
            faulty.now()
        with pytest.raises(ServiceUnavailableError):
            faulty.list_after("")
        with pytest.raises(OutcomeUnknownError):
            faulty.copy("a", f"copy {fault}", share=False)
    assert inner.which_exist(["copy refused", "copy lost answer"]) == {"copy lost answer"}


def test_dead_client_copies_nothing(inner: MemoryStorage) -> None:
    mortal = MortalStorage(inner, Life(left=1))
    _use(mortal)
    with pytest.raises(Death):
        mortal.copy("a", "c", share=False)
    with pytest.raises(Death):
        mortal.now()
    assert inner.which_exist(["c"]) == frozenset()


class _Caller(_Recorder):
    """One of several clients; lets another act before its requests."""

    def __init__(self, number: int, dead: set[int]) -> None:
        super().__init__()
        self.number = number
        self.dead = dead
        self.before: dict[str, Callable[[], object]] = {}

    def request(self, pending: Pending, act: Callable[[], _T]) -> _T:
        self.before.pop(pending.verb, lambda: None)()
        return super().request(pending, act)

    def caller(self) -> int:
        return self.number

    def is_dead(self, caller: int) -> bool:
        return caller in self.dead


class _Gone(BaseException):
    """The client is dead."""


def _die() -> None:
    raise _Gone


def _remove(storage: ObjectStorage, *prefixes: str, owned: bool = True) -> list[str]:
    claims = {prefix: TrashClaim(f"claim on {prefix}", ManualClock().now()) for prefix in prefixes}
    groups = storage.remove_directories(claims, still_owned=lambda prefix: owned)
    return [prefix for group in groups for prefix in group]


@pytest.fixture
def tables() -> MemoryStorage:
    storage = MemoryStorage(clock=ManualClock())
    for key in ("t/a", "t/b/c", "tt/a", "u/a"):
        storage.create(key, key.encode())
    return storage


def test_stepped_removal_takes_a_directory_away_before_it_asks(tables: MemoryStorage) -> None:
    caller = _Caller(1, set())
    stepped = SteppedStorage(tables, caller, takes_away=True)
    seen: list[tuple[str, ...]] = []
    caller.before["remove_taken"] = lambda: seen.append(stepped.list_level("").directories)
    assert _remove(stepped, "nothing", "t") == ["t"]
    assert seen == [("tt", "u")]
    assert [(request.verb, request.key) for request in caller.requests] == [
        ("take_away", "nothing"),
        ("take_away", "t"),
        ("list_level", ""),
        ("remove_taken", "t"),
    ]
    before = tables.snapshot()
    assert _remove(stepped, "u", owned=False) == []
    assert tables.snapshot() == before
    assert _remove(SteppedStorage(tables, caller, takes_away=False), "u") == []


def test_stepped_removal_restores_what_is_younger(tables: MemoryStorage) -> None:
    later = ManualClock()
    later.advance(timedelta(seconds=1))
    tables = tables.clone(later)
    tables.create("u/late", b"")
    before = tables.snapshot()
    assert _remove(SteppedStorage(tables, NoWaiting(), takes_away=True), "u", "t") == ["t"]
    assert set(tables.snapshot()) == {key for key in before if not key.startswith("t/")}


@pytest.mark.parametrize("allowed", [True, False])
def test_stepped_recovery_ends_what_dead_callers_left(tables: MemoryStorage, allowed: bool) -> None:
    dead: set[int] = set()
    first, second = _Caller(1, dead), _Caller(2, dead)
    first.before["remove_taken"] = _die
    with pytest.raises(_Gone):
        _remove(SteppedStorage(tables, first, takes_away=True), "t")
    before = tables.snapshot()
    asked: list[tuple[str, str]] = []

    def may_delete(prefix: str, record: str) -> bool:
        asked.append((prefix, record))
        return allowed

    stepped = SteppedStorage(tables, second, takes_away=True)
    assert stepped.recover_trash(may_delete) == TrashReport()
    assert tables.snapshot() == before
    dead.add(1)
    report = stepped.recover_trash(may_delete)
    assert report == (TrashReport(removed=("t",)) if allowed else TrashReport(restored=("t",)))
    assert asked == [("t", "claim on t")]
    assert set(tables.snapshot()) == {"tt/a", "u/a"} | (set() if allowed else {"t/a", "t/b/c"})
    assert stepped.recover_trash(may_delete) == TrashReport()


def test_stepped_trash_keeps_what_cannot_be_restored(tables: MemoryStorage) -> None:
    caller = _Caller(1, set())
    caller.before["remove_taken"] = lambda: tables.create("t/a", b"new")
    stepped = SteppedStorage(tables, caller, takes_away=True)
    with pytest.raises(InternalError):
        _remove(stepped, "t", "u", owned=False)
    assert tables.read("t/a").body == b"new"
    (kept,) = stepped.recover_trash(lambda prefix, record: False).kept
    assert kept.prefix == "t"
    tables.delete("t/a")
    assert stepped.recover_trash(lambda prefix, record: False) == TrashReport(restored=("t",))
    assert tables.read("t/a").body == b"t/a"
