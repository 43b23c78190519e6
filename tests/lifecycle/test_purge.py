"""Purge: never a live table, never before its retention period ends, never another table's files."""

from __future__ import annotations

import time
from datetime import timedelta

import lance
import pytest
from tests.lifecycle.conftest import Open
from tests.support.calls import drop, make, rows, tables
from tests.support.internals import context_of
from tests.support.patches import original, substitute
from tests.support.roots import stream_of

import relance
from relance.catalog.arbiter import swap_file
from relance.catalog.layout import read_control
from relance.catalog.purge import PurgeOptions, PurgeProgress, purge_table
from relance.catalog.resolve import NotFound, SoftDeleted
from relance.catalog.states import MARGIN, purging, seconds
from relance.errors import (
    ConcurrentModificationError,
    InvalidTableStateError,
    OutcomeUnknownError,
    TableAlreadyExistsError,
    TableNotFoundError,
)
from relance.identifiers import TableId
from relance.storage.protocol import Replacement
from relance.testing.clock import ManualClock

Catalog = relance.DirectoryNamespace
WEEK = timedelta(days=7)


def _files(catalog: Catalog, name: str) -> list[str]:
    return sorted(info.key for info in context_of(catalog).storage.list_recursive(f"{name}.lance"))


def test_purge_of_a_live_table_is_refused(catalog: Catalog) -> None:
    make(catalog, "t", 1)
    for force in (False, True):
        with pytest.raises(InvalidTableStateError, match="drop it first"):
            catalog.purge_table(["t"], force=force)
    result = catalog.purge_tables([["t"]], force=True)
    assert isinstance(result[0].error, InvalidTableStateError)
    assert catalog.purge_tables() == []
    assert rows(catalog, "t") == [1]


def test_purge_before_the_retention_period_ends_requires_force(catalog: Catalog, clock: ManualClock) -> None:
    make(catalog, "t", 1)
    drop(catalog, "t")
    clock.advance(WEEK)  # the margin is still to come
    with pytest.raises(InvalidTableStateError, match="force=True"):
        catalog.purge_table(["t"])
    assert isinstance(catalog.purge_tables([["t"]])[0].error, InvalidTableStateError)
    assert catalog.purge_tables() == []
    result = catalog.purge_table(["t"], force=True)
    assert result.purged
    assert _files(catalog, "t") == []


def test_purge_removes_all_files_and_counts_them(catalog: Catalog, clock: ManualClock) -> None:
    make(catalog, "t", 1, 2, 3)
    lance.dataset(namespace_client=catalog, table_id=["t"]).tags.create("v1", 1)
    make(catalog, "other", 9)
    infos = list(context_of(catalog).storage.list_recursive("t.lance"))
    drop(catalog, "t")
    clock.advance(WEEK + MARGIN)
    seen: list[PurgeProgress] = []
    plan = catalog.purge_tables(dry_run=True)
    assert [(each.id, each.files, each.dry_run, each.purged) for each in plan] == [
        (("t",), len(infos), True, False)
    ]
    assert len(_files(catalog, "t")) == len(infos)
    done = catalog.purge_tables(progress=seen.append)
    assert [(each.id, each.files, each.bytes, each.left, each.error) for each in done] == [
        (("t",), len(infos), sum(info.size for info in infos), (), None)
    ]
    assert seen[-1].files == len(infos)
    assert catalog.table_status(["t"]) == NotFound(("t",))
    assert tables(catalog) == ["other"]
    assert rows(catalog, "other") == [9]
    for call in (catalog.purge_table, catalog.undrop_table):
        with pytest.raises(TableNotFoundError, match="was purged"):
            call(["t"])


def test_purge_tables_takes_exactly_the_expired_tables(catalog: Catalog, clock: ManualClock) -> None:
    for name, ttl in (("old", "1h"), ("older", "1h"), ("young", "30d")):
        make(catalog, name, 1)
        drop(catalog, name, ttl_ms=ttl)
        clock.advance(timedelta(minutes=1))
    clock.advance(timedelta(hours=2))
    assert [each.id for each in catalog.list_purgable_tables()] == [("old",), ("older",)]
    cut_off = clock.now() - timedelta(hours=2, minutes=2, seconds=30)
    assert [each.id for each in catalog.list_purgable_tables(cut_off)] == [("old",)]
    assert [each.id for each in catalog.purge_tables(deleted_before=cut_off)] == [("old",)]
    assert [each.id for each in catalog.purge_tables()] == [("older",)]
    assert [each.id for each in catalog.list_dropped_tables()] == [("young",)]


def test_purge_tables_continues_after_a_failure(catalog: Catalog) -> None:
    make(catalog, "live", 1)
    make(catalog, "dropped", 2)
    drop(catalog, "dropped")
    results = catalog.purge_tables([["live"], ["missing"], ["dropped"]], force=True)
    assert [type(each.error).__name__ for each in results] == [
        "InvalidTableStateError",
        "TableNotFoundError",
        "NoneType",
    ]
    assert tables(catalog) == ["live"]


def test_drop_with_purge_removes_files_and_leaves_a_tombstone(catalog: Catalog) -> None:
    make(catalog, "t", 1)
    properties = drop(catalog, "t", purge="true")
    assert properties["purged"] == "true"
    assert int(properties["files"]) > 0
    assert _files(catalog, "t") == []
    assert catalog.table_status(["t"]) == NotFound(("t",))
    with pytest.raises(TableNotFoundError):
        drop(catalog, "t", purge="true")


def test_create_after_a_purge_starts_at_version_1(catalog: Catalog) -> None:
    make(catalog, "t", 1)
    drop(catalog, "t", purge="true")
    assert catalog.create_table({"id": ["t"]}, stream_of(2)).version == 1
    assert rows(catalog, "t") == [2]
    assert catalog.list_table_versions({"id": ["t"]}).versions[0].version == 1


def test_declare_after_a_purge_waits_for_older_creates(catalog: Catalog, clock: ManualClock) -> None:
    make(catalog, "t", 1)
    drop(catalog, "t", purge="true")
    with pytest.raises(TableAlreadyExistsError, match="create_table"):
        catalog.declare_table({"id": ["t"]})
    clock.advance(timedelta(minutes=51))
    lance.write_dataset([{"x": 4}], namespace_client=catalog, table_id=["t"], mode="create")
    assert rows(catalog, "t") == [4]


def test_purge_claimed_by_another_client_is_left_alone_until_its_lease_ends(
    catalog: Catalog, clock: ManualClock
) -> None:
    make(catalog, "t", 1)
    drop(catalog, "t")
    context = context_of(catalog)
    marked = read_control(context, "t")
    assert marked is not None
    swap_file(context, "t", purging(marked, context.timing, upto=seconds(clock.now())), over=marked)
    with pytest.raises(ConcurrentModificationError, match=r"is locked by another client \(purging it\)"):
        catalog.purge_table(["t"], force=True)
    with pytest.raises(ConcurrentModificationError, match=r"is locked by another client \(purging it\)"):
        catalog.create_table({"id": ["t"]}, stream_of(2))
    with pytest.raises(ConcurrentModificationError, match=r"is locked by another client \(purging it\)"):
        catalog.undrop_table(["t"])
    status = catalog.table_status(["t"])
    assert isinstance(status, SoftDeleted)
    assert status.state == "purging"
    clock.advance(timedelta(minutes=10 + 15 + 1, seconds=1))
    assert catalog.purge_table(["t"]).purged, "the TTL was overruled when the first claim was taken"
    assert catalog.table_status(["t"]) == NotFound(("t",))


def test_purge_whose_lease_expires_stops_before_the_next_batch(
    catalog: Catalog, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(catalog, "t", 1)
    drop(catalog, "t")
    before = _files(catalog, "t")
    storage = context_of(catalog).storage
    real = original("storage.replace_many", on=type(storage))

    def stall(self: object, changes: list[Replacement]) -> object:
        claimed = real(storage, changes)
        clock.advance(timedelta(minutes=11))
        return claimed

    substitute(monkeypatch, "storage.replace_many", stall, on=type(storage))
    with pytest.raises(ConcurrentModificationError, match="table id 't': the store responded too slowly"):
        catalog.purge_table(["t"], force=True)
    assert _files(catalog, "t") == before


def test_long_purge_renews_its_lease(
    catalog: Catalog, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(catalog, "t", 1)
    lance.write_dataset([{"x": 2}], namespace_client=catalog, table_id=["t"], mode="append")
    drop(catalog, "t")
    substitute(monkeypatch, "purge.largest_batch", 1)
    substitute(monkeypatch, "purge.remembered_files", 0)  # it counts as one of many files
    result = catalog.purge_table(["t"], force=True, progress=lambda _: clock.advance(timedelta(minutes=6)))
    assert result.purged
    assert result.files > 4


def test_rate_limit_slows_down_a_purge(catalog: Catalog) -> None:
    make(catalog, "t", 1)
    drop(catalog, "t")
    slept: list[float] = []
    options = PurgeOptions(force=True, rate_limit=2.0, sleep=slept.append)
    (result,) = purge_table(context_of(catalog), TableId((), "t"), options)
    assert sum(slept) == pytest.approx(result.files / 2.0)
    assert len(slept) >= result.files / 2


def test_files_that_cannot_be_deleted_are_reported_and_the_table_stays_claimed(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(catalog, "t", 1)
    drop(catalog, "t")
    storage = context_of(catalog).storage
    substitute(monkeypatch, "storage.delete_many", lambda *_: None, on=type(storage))
    substitute(monkeypatch, "storage.delete_below", lambda *_, **__: iter(()), on=type(storage))
    substitute(monkeypatch, "storage.remove_directories", lambda *_, **__: iter(()), on=type(storage))
    results = catalog.purge_tables([["t"]], force=True)
    assert isinstance(results[0].error, OutcomeUnknownError)
    assert "files remain. Run purge again" in str(results[0].error)
    assert len(results[0].left) == len(_files(catalog, "t")) > 0
    assert not results[0].purged


def test_expiry_allows_for_clock_skew_between_clients(open_catalog: Open, clock: ManualClock) -> None:
    ahead = ManualClock(clock.now() + timedelta(minutes=4))
    slow, fast = open_catalog(), open_catalog(clock=ahead)
    make(slow, "t", 1)
    drop(slow, "t", ttl_ms="60000")
    ahead.advance(timedelta(minutes=1))
    assert fast.list_purgable_tables() == [], "by the slow clock its time has not passed"
    ahead.advance(timedelta(minutes=1))
    assert [each.id for each in fast.list_purgable_tables()] == [("t",)]


def test_deregistered_table_cannot_be_purged_before_it_is_dropped(
    catalog: Catalog, clock: ManualClock
) -> None:
    make(catalog, "t", 1)
    catalog.deregister_table({"id": ["t"]})
    clock.advance(timedelta(days=1000))
    assert catalog.purge_tables() == []
    for force in (False, True):
        with pytest.raises(InvalidTableStateError, match=r"deregistered, not dropped.*drop it first"):
            catalog.purge_table(["t"], force=force)
    drop(catalog, "t")
    assert catalog.purge_table(["t"], force=True).purged


def test_purge_removes_what_is_younger_than_the_last_version_but_the_tables_own(catalog: Catalog) -> None:
    make(catalog, "t", 1)
    time.sleep(1.1)  # ages are compared in whole seconds
    storage = context_of(catalog).storage
    storage.create("t.lance/data/left-by-a-failed-write.lance", b"rows")
    catalog.deregister_table({"id": ["t"]})
    drop(catalog, "t")
    assert catalog.purge_table(["t"], force=True).purged
    assert _files(catalog, "t") == []
    make(catalog, "t", 2)
    assert rows(catalog, "t") == [2]


def test_purge_keeps_unrelated_files_in_the_root(catalog: Catalog) -> None:
    storage = context_of(catalog).storage
    for key in ("notes.txt", "t.lance.bak/data/x", "t.lancex/y", "tt.lance/_versions/1.manifest"):
        storage.create(key, b"precious")
    make(catalog, "t", 1)
    drop(catalog, "t", purge="true")
    kept = {info.key for info in storage.list_recursive("")}
    assert {"notes.txt", "t.lance.bak/data/x", "t.lancex/y", "tt.lance/_versions/1.manifest"} <= kept
