"""The store checkup finds what is wrong with a store and leaves nothing behind."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from tests.support.failures import deny
from tests.support.patches import original, substitute

from relance.storage.checkup import Check, Verdict, check_store
from relance.storage.memory import MemoryStorage
from relance.storage.protocol import Level
from relance.testing.clock import ManualClock

SKEW = timedelta(minutes=5)


def _checked(storage: Any) -> dict[str, Check]:
    found = check_store(storage, ManualClock(datetime.now(UTC)), skew=SKEW)
    return {each.name: each for each in found}


def _bad(storage: Any) -> set[str]:
    return {name for name, each in _checked(storage).items() if each.verdict is Verdict.BAD}


def test_checkup_of_a_working_store_passes_and_leaves_nothing() -> None:
    storage = MemoryStorage()
    found = _checked(storage)
    assert {each.verdict for each in found.values()} <= {Verdict.GOOD, Verdict.UNKNOWN}
    assert set(found) == {
        *("list", "write", "read", "list after write", "clock", "create-only", "replace", "delete")
    }
    assert storage.list_level("") == Level((), ())


def test_checkup_detects_a_store_that_ignores_conditions(monkeypatch: pytest.MonkeyPatch) -> None:
    storage = MemoryStorage()
    create = original("storage.create", on=storage)

    def replaces(key: str, body: bytes) -> Any:
        storage.delete(key)
        return create(key, body)

    substitute(monkeypatch, "storage.create", replaces, on=storage)
    assert "create-only" in _bad(storage)


def test_checkup_reports_a_read_only_store(monkeypatch: pytest.MonkeyPatch) -> None:
    storage = MemoryStorage()
    substitute(monkeypatch, "storage.create", deny, on=storage)
    found = _checked(storage)
    assert found["write"].verdict is Verdict.BAD
    assert found["write"].remedy
    assert found["list"].verdict is Verdict.GOOD
    assert found["delete"].verdict is Verdict.UNKNOWN


@pytest.mark.parametrize(
    ("method", "names"),
    [
        ("storage.list_level", {"list", "list after write"}),
        ("storage.read", {"read"}),
        ("storage.delete", {"delete", "create-only", "replace"}),
        ("storage.head", {"clock"}),
    ],
)
def test_checkup_names_a_missing_permission(
    method: str, names: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    storage = MemoryStorage()
    substitute(monkeypatch, method, deny, on=storage)
    assert names <= _bad(storage)


def test_checkup_detects_a_lagging_listing(monkeypatch: pytest.MonkeyPatch) -> None:
    storage = MemoryStorage()
    substitute(monkeypatch, "storage.list_level", lambda prefix: Level((), ()), on=storage)
    assert _bad(storage) == {"list after write"}


def test_checkup_detects_clock_skew() -> None:
    storage = MemoryStorage()
    late = ManualClock(datetime.now(UTC) + timedelta(hours=1))
    (clock,) = [each for each in check_store(storage, late, skew=SKEW) if each.name == "clock"]
    assert clock.verdict is Verdict.BAD
    assert "clock_skew" in clock.remedy
