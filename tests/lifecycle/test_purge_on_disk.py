"""A purge on disk trashes the table's directory first: stalls, crashes and refusals after that."""

from __future__ import annotations

import os
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from tests.support.calls import drop, make, rows
from tests.support.patches import original, substitute, substituted

import relance
from relance.errors import ConcurrentModificationError
from relance.lifecycle.status import NotFound
from relance.storage.set_aside import SetAside
from relance.testing.clock import ManualClock

Catalog = relance.DirectoryNamespace
LEASE_IS_OVER = timedelta(minutes=10 + 5 + 15, seconds=1)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "lake"


def _open(root: Path, clock: ManualClock) -> Catalog:
    return Catalog(clock=clock, root=str(root), manifest_enabled="false")


def _taken_away(root: Path) -> list[str]:
    return [str(path) for path in (root / ".relance-local/aside").rglob("*") if path.is_file()]


@pytest.mark.parametrize("guarded", [True, False])
def test_purge_stalled_before_trashing_restores_a_newer_table(
    root: Path, clock: ManualClock, guarded: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    catalog = _open(root, clock)
    make(catalog, "t", 1)
    drop(catalog, "t")
    rename, stalled = os.rename, [False]

    def stall(source: str, target: str) -> None:
        if source.endswith("t.lance") and not stalled[0]:
            stalled[0] = True
            clock.advance(LEASE_IS_OVER)
            other = _open(root, clock)
            assert other.purge_table(["t"]).purged
            make(other, "t", 2)
        rename(source, target)

    monkeypatch.setattr(os, "rename", stall)
    if not guarded:
        discard = original("trash.discard")

        def careless(self: SetAside, paths: list[str], sure: Callable[[str], bool]) -> Any:
            return discard(self, paths, lambda path: True)

        substitute(monkeypatch, "trash.discard", careless)
    with pytest.raises(ConcurrentModificationError):
        catalog.purge_table(["t"], force=True)
    assert stalled[0]
    assert (root / "t.lance").exists() is guarded
    if guarded:
        assert rows(catalog, "t") == [2]


def test_purge_that_crashed_while_deleting_is_completed_by_a_later_one(
    root: Path, clock: ManualClock
) -> None:
    class Death(BaseException):
        pass

    catalog = _open(root, clock)
    for name in ("t", "u", "live"):
        make(catalog, name, 1)
    for name in ("t", "u"):
        drop(catalog, name)
    with (
        substituted("trash.remove"),
        substituted("trash.finish_part", side_effect=Death),
        pytest.raises(Death),
    ):
        catalog.purge_tables([["t"], ["u"]], force=True)
    assert len(_taken_away(root)) > 6
    clock.advance(LEASE_IS_OVER)
    assert {each.id for each in catalog.purge_tables() if each.purged} == {("t",), ("u",)}
    assert _taken_away(root) == []
    assert [catalog.table_status([name]) for name in ("t", "u")] == [NotFound(("t",)), NotFound(("u",))]
    assert rows(catalog, "live") == [1]


def test_directory_that_cannot_be_trashed_is_restored_and_deleted_file_by_file(
    root: Path, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    catalog = _open(root, clock)
    make(catalog, "t", 1)
    make(catalog, "live", 1)
    drop(catalog, "t")
    files = len([path for path in (root / "t.lance").rglob("*") if path.is_file()])
    refuse = mock.Mock(side_effect=PermissionError(1, "not at once"))
    substitute(monkeypatch, "trash.remove", lambda self, path: refuse(path))
    one_by_one = mock.Mock(wraps=original("purge.delete_listed"))
    substitute(monkeypatch, "purge.delete_listed", one_by_one)
    result = catalog.purge_table(["t"], force=True)
    assert (result.purged, result.files) == (True, files)
    assert refuse.called
    assert len(one_by_one.call_args.args[1]) == 1
    assert not (root / "t.lance").exists()
    assert rows(catalog, "live") == [1]


def test_file_written_after_trashing_is_deleted_too(root: Path, clock: ManualClock) -> None:
    catalog = _open(root, clock)
    make(catalog, "t", 1)
    drop(catalog, "t")
    remove = original("trash.remove")

    def while_a_writer_is_late(self: SetAside, path: str) -> None:
        (root / "t.lance/data").mkdir(parents=True)
        (root / "t.lance/data/late.lance").write_bytes(b"late")
        remove(self, path)

    with substituted("trash.remove", while_a_writer_is_late):
        assert catalog.purge_table(["t"], force=True).purged
    assert not (root / "t.lance").exists()
