"""A purge on disk trashes the table's directory first: stalls, crashes and refusals after that."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from tests.support.calls import drop, make, rows
from tests.support.patches import original, substitute, substituted

import relance
from relance.catalog.resolve import NotFound
from relance.errors import ConcurrentModificationError
from relance.storage.protocol import TrashClaim
from relance.storage.trash import Trash
from relance.testing.clock import ManualClock

Catalog = relance.DirectoryNamespace
LEASE_IS_OVER = timedelta(minutes=10 + 15 + 1, seconds=1)


@pytest.fixture
def clock() -> ManualClock:
    # Ahead of the times that the disk stamps files with, which the trash compares with a claim's limit.
    return ManualClock(datetime.now(UTC) + timedelta(minutes=5))


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "lake"


def _open(root: Path, clock: ManualClock) -> Catalog:
    return Catalog(clock=clock, root=str(root), manifest_enabled="false")


def _trashed(root: Path) -> list[str]:
    return [str(path) for path in (root / ".relance-local/trash").rglob("*/*/*") if path.is_file()]


@pytest.mark.parametrize("guarded", [True, False])
def test_purge_stalled_before_trashing_restores_a_newer_table(
    root: Path, clock: ManualClock, guarded: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    catalog = _open(root, clock)
    make(catalog, "t", 1)
    drop(catalog, "t")
    rename, stalled = os.rename, [False]

    def stall(source: str, target: str, **folders: int) -> None:
        if source == "t.lance" and not stalled[0]:
            stalled[0] = True
            clock.advance(LEASE_IS_OVER)
            other = _open(root, clock)
            assert other.purge_table(["t"]).purged
            make(other, "t", 2)
        rename(source, target, **folders)

    monkeypatch.setattr(os, "rename", stall)
    if not guarded:
        remove = original("trash.remove")

        def careless(
            self: Trash, claims: Mapping[str, TrashClaim], still_owned: Callable[[str], bool]
        ) -> Iterator[list[str]]:
            removed: Iterator[list[str]] = remove(self, claims, lambda directory: True)
            return removed

        substitute(monkeypatch, "trash.remove", careless)
    with pytest.raises(ConcurrentModificationError):
        catalog.purge_table(["t"], force=True)
    assert stalled[0]
    assert (root / "t.lance").exists() is guarded
    if guarded:
        assert rows(catalog, "t") == [2]


@pytest.mark.parametrize("released", [True, False], ids=["interrupted", "died"])
def test_purge_that_stopped_while_deleting_is_completed_by_a_later_one(
    root: Path, clock: ManualClock, released: bool
) -> None:
    class Death(BaseException):
        pass

    catalog = _open(root, clock)
    for name in ("t", "u", "live"):
        make(catalog, name, 1)
    for name in ("t", "u"):
        drop(catalog, name)
    with ExitStack() as stack:
        stack.enter_context(substituted("trash.remove_tree"))
        stack.enter_context(substituted("trash.end_part", side_effect=Death))
        if not released:
            stack.enter_context(substituted("purge.release"))
        stack.enter_context(pytest.raises(Death))
        catalog.purge_tables([["t"], ["u"]], force=True)
    assert len(_trashed(root)) > 6
    if not released:
        assert catalog.purge_tables() == [], "its lease runs"
        clock.advance(LEASE_IS_OVER)
    assert {result.id for result in catalog.purge_tables() if result.purged} == {("t",), ("u",)}
    assert _trashed(root) == []
    assert [catalog.table_status([name]) for name in ("t", "u")] == [NotFound(("t",)), NotFound(("u",))]
    assert rows(catalog, "live") == [1]


def test_directory_that_cannot_be_deleted_is_restored_and_deleted_file_by_file(
    root: Path, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    catalog = _open(root, clock)
    make(catalog, "t", 1)
    make(catalog, "live", 1)
    drop(catalog, "t")
    files = len([path for path in (root / "t.lance").rglob("*") if path.is_file()])
    refuse = mock.Mock(side_effect=PermissionError(1, "not as a whole"))
    substitute(monkeypatch, "trash.remove_tree", refuse)
    one_by_one = mock.Mock(wraps=original("purge.delete_listed"))
    substitute(monkeypatch, "purge.delete_listed", one_by_one)
    result = catalog.purge_table(["t"], force=True)
    assert (result.purged, result.files) == (True, files)
    assert refuse.called
    assert len(one_by_one.call_args.args[1]) == 1
    assert not (root / "t.lance").exists()
    assert rows(catalog, "live") == [1]


@pytest.mark.parametrize("younger", [False, True])
def test_file_written_after_trashing_is_deleted_unless_it_is_younger_than_the_drop(
    root: Path, clock: ManualClock, younger: bool
) -> None:
    catalog = _open(root, clock)
    make(catalog, "t", 1)
    drop(catalog, "t")
    remove = original("trash.remove_tree")
    late = root / "t.lance/data/late.lance"

    def while_a_writer_is_late(*place: Any) -> None:
        if younger:
            clock.advance(timedelta(minutes=1))
        late.parent.mkdir(parents=True)
        late.write_bytes(b"late")
        remove(*place)

    with substituted("trash.remove_tree", while_a_writer_is_late):
        assert catalog.purge_table(["t"], force=True).purged
    assert late.exists() is younger
    assert catalog.table_status(["t"]) == NotFound(("t",))
