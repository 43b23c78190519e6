"""Sweep, scrub, migrate; dead creates; damaged arbiters; stores that ignore conditions."""

from __future__ import annotations

import dataclasses
from contextlib import suppress
from datetime import timedelta
from typing import Any

import lance
import pytest
from lance.namespace import DirectoryNamespace as NativeNamespace
from lance_namespace import DeregisterTableRequest
from tests.lifecycle.conftest import Open
from tests.support.calls import drop, make, rows, tables
from tests.support.failures import interrupt
from tests.support.internals import context_of, replace_context
from tests.support.mortal_clients import Death, make_failing, make_mortal
from tests.support.patches import original, substitute
from tests.support.roots import stream_of

import relance
from relance.catalog.arbiter import put_mark, swap_file
from relance.catalog.layout import read_control
from relance.catalog.repair import Problem
from relance.catalog.resolve import Exists, NotFound, SoftDeleted
from relance.catalog.states import Mark, Marked, State, new_nonce, purging, reviving, writing
from relance.errors import (
    InvalidTableStateError,
    PermissionDeniedError,
    RelanceError,
    UnsupportedOperationError,
)
from relance.jobs import PurgeDropped
from relance.storage.protocol import ObjectStorage
from relance.testing.clock import ManualClock
from relance.testing.faults import CarelessStorage

Catalog = relance.DirectoryNamespace


def _keys(catalog: Catalog) -> set[str]:
    return {info.key for info in context_of(catalog).storage.list_level("").files}


def _arbiter(catalog: Catalog, name: str) -> Marked:
    marked = read_control(context_of(catalog), name)
    assert marked is not None
    return marked


def _bodies(storage: ObjectStorage, name: str) -> dict[str, bytes]:
    keys = [info.key for info in storage.list_recursive(f"{name}.lance")]
    return {key: storage.read(key).body for key in keys}


def test_sweep_removes_only_arbiters_without_a_table_older_than_the_quarantine(
    catalog: Catalog, clock: ManualClock
) -> None:
    make(catalog, "undropped", 1)
    drop(catalog, "undropped")
    catalog.undrop_table(["undropped"])
    for name in ("purged", "gone"):
        make(catalog, name, 1)
        drop(catalog, name, purge="true")
    make(catalog, "dropped", 1)
    drop(catalog, "dropped")
    assert catalog.sweep_markers() == []
    clock.advance(timedelta(days=8))
    assert catalog.sweep_markers(dry_run=True) == ["gone", "purged"]
    assert "purged.control" in _keys(catalog)
    assert catalog.sweep_markers() == ["gone", "purged"]
    assert catalog.sweep_markers() == []
    assert {key for key in _keys(catalog) if key.endswith(".control")} == {
        "dropped.control",
        "undropped.control",
    }
    assert rows(catalog, "undropped") == [1]
    catalog.undrop_table(["dropped"])
    assert rows(catalog, "dropped") == [1]


def test_sweep_keeps_a_tombstone_with_files_below_it(catalog: Catalog, clock: ManualClock) -> None:
    make(catalog, "t", 1)
    drop(catalog, "t", purge="true")
    context_of(catalog).storage.create("t.lance/data/late.lance", b"a late create")
    clock.advance(timedelta(days=8))
    assert catalog.sweep_markers() == []
    assert "t.control" in _keys(catalog)


@pytest.mark.parametrize(
    "body",
    [
        b"x" * 200,
        b'{"format": 3, "state": "frozen", "why": "a later release wrote this one, and knows"}',
    ],
    ids=["damaged", "newer"],
)
def test_unreadable_arbiter_is_never_purged_revived_or_overwritten(
    catalog: Catalog, clock: ManualClock, body: bytes
) -> None:
    make(catalog, "t", 1)
    storage = context_of(catalog).storage
    storage.create("t.control", body)
    clock.advance(timedelta(days=9999))
    calls = (
        lambda: catalog.create_table({"id": ["t"], "mode": "overwrite"}, stream_of(2)),
        lambda: catalog.declare_table({"id": ["t"]}),
        lambda: drop(catalog, "t"),
        lambda: catalog.undrop_table(["t"]),
        lambda: catalog.purge_table(["t"], force=True),
        lambda: catalog.table_status(["t"]),
        lambda: catalog.describe_table({"id": ["t"]}),
        lambda: catalog.register_table({"id": ["t"], "location": "t.lance"}),
    )
    for call in calls:
        with pytest.raises(InvalidTableStateError, match="arbiter of table id 't'"):
            call()
    _assert_only_reported(catalog, body)


def _assert_only_reported(catalog: Catalog, body: bytes) -> None:
    """Check that runs over all tables leave one with a damaged arbiter alone, and scrub reports it."""
    storage = context_of(catalog).storage
    for result in catalog.purge_tables():
        assert (result.id, type(result.error), result.files) == (("t",), InvalidTableStateError, 0)
    assert catalog.sweep_markers() == []
    assert catalog.list_dropped_tables() == []
    findings = catalog.scrub(repair=True)
    assert [(finding.name, finding.problem, finding.repaired) for finding in findings] == [
        ("t", Problem.DAMAGED_MARKER, False)
    ]
    assert storage.read("t.control").body == body
    assert lance.dataset(
        context_of(catalog).location("t"), storage_options=dict(context_of(catalog).lance_options()) or None
    ).to_table()["x"].to_pylist() == [1]


@pytest.mark.parametrize("body", [b"", b"c but not a cleared one"], ids=["empty", "damaged"])
def test_short_damaged_arbiter_hides_nothing_and_refuses_changes(
    catalog: Catalog, clock: ManualClock, body: bytes
) -> None:
    make(catalog, "t", 1)
    context_of(catalog).storage.create("t.control", body)
    clock.advance(timedelta(days=9999))
    assert tables(catalog) == ["t"]
    assert rows(catalog, "t") == [1]
    calls = (
        lambda: catalog.create_table({"id": ["t"], "mode": "overwrite"}, stream_of(2)),
        lambda: drop(catalog, "t"),
        lambda: catalog.purge_table(["t"], force=True),
    )
    for call in calls:
        with pytest.raises(InvalidTableStateError, match="arbiter of table id 't'"):
            call()
    _assert_only_reported(catalog, body)


def test_scrub_finds_and_repairs_leftovers_of_crashes(catalog: Catalog, clock: ManualClock) -> None:
    context = context_of(catalog)
    storage, timing = context.storage, context.timing
    for name in ("no-data", "stale-purge", "stale-create", "below"):
        make(catalog, name, 1)
        drop(catalog, name)
    storage.delete_many(_bodies(storage, "no-data"))
    marked = _arbiter(catalog, "stale-purge")
    swap_file(context, "stale-purge", purging(marked, timing, upto=None), over=marked)
    marked = _arbiter(catalog, "stale-create")
    swap_file(context, "stale-create", reviving(marked, new_nonce(), timing), over=marked)
    make(catalog, "stale-write", 1)
    swap_file(context, "stale-write", writing(None, new_nonce(), timing), over=None)
    late_files = _bodies(storage, "below")
    catalog.purge_table(["below"], force=True)
    for key, body in late_files.items():
        storage.create(key, body)
    make(catalog, "late-marker", 1)
    drop(catalog, "late-marker")
    catalog.undrop_table(["late-marker"])
    mark = Mark(clock.now(), timedelta(hours=1), new_nonce(), after=new_nonce())
    put_mark(context, "late-marker", mark, over=None)
    storage.create("leftover.lance/data/x", b"x")
    make(catalog, "signed", 1)
    storage.create("signed.creating", b"")
    young = {finding.problem for finding in catalog.scrub()}
    assert not young & {Problem.STALE_PURGE, Problem.STALE_REVIVAL, Problem.STALE_WRITE}, "leases run"
    clock.advance(timedelta(hours=1))
    unrepairable = {("below", Problem.DATA_BELOW_TOMBSTONE)}
    expected = unrepairable | {
        ("late-marker", Problem.LATE_MARKER),
        ("leftover", Problem.DATA_WITHOUT_TABLE),
        ("no-data", Problem.MARKER_WITHOUT_DATA),
        ("signed.creating", Problem.STALE_SIGN),
        ("stale-create", Problem.STALE_REVIVAL),
        ("stale-purge", Problem.STALE_PURGE),
        ("stale-write", Problem.STALE_WRITE),
    }
    findings = catalog.scrub()
    assert {(finding.name, finding.problem) for finding in findings} == expected
    assert not any(finding.repaired for finding in findings)
    assert all(finding.remedy for finding in findings)
    repaired = {(finding.name, finding.problem) for finding in catalog.scrub(repair=True) if finding.repaired}
    assert repaired == expected - unrepairable
    assert {(finding.name, finding.problem) for finding in catalog.scrub()} == unrepairable
    assert tables(catalog) == ["late-marker", "signed", "stale-write"]
    catalog.undrop_table(["stale-create"])
    assert rows(catalog, "stale-create") == [1]
    for name in ("no-data", "stale-purge", "below"):
        assert catalog.table_status([name]) == NotFound((name,))
    assert catalog.create_table({"id": ["below"]}, stream_of(2)).version == 2
    assert rows(catalog, "below") == [2]


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("failure", [KeyboardInterrupt, PermissionDeniedError])
@pytest.mark.parametrize("verb", ["sweep", "scrub"])
def test_housekeeping_that_is_stopped_keeps_nobody_waiting(
    open_catalog: Open, clock: ManualClock, verb: str, failure: Any, after: bool
) -> None:
    for writes in range(8):
        catalog, name = open_catalog(), f"t{writes}"
        make(catalog, name, 1)
        drop(catalog, name, purge="true" if verb == "sweep" else "false")
        storage = context_of(catalog).storage
        storage.delete_many(_bodies(storage, name))
        clock.advance(timedelta(days=8))
        stopped = make_failing(catalog, writes, failure, after=after)
        with suppress(failure):
            catalog.sweep_markers() if verb == "sweep" else catalog.scrub(repair=True)
        if not stopped.failed:
            break
        now, other = clock.now(), open_catalog()
        marked = read_control(context_of(other), name)
        if marked is not None and marked.state is State.PURGING:
            assert failure is KeyboardInterrupt or after
            assert other.purge_table([name]).purged
        make(other, name, 2)
        assert clock.now() == now
        assert rows(other, name) == [2]
    assert writes > 1


# Over a dropped name a create stages its data, claims the name and commits: 3 writes.


def test_create_that_died_after_its_commit_is_finished_by_the_next_client(
    catalog: Catalog, open_catalog: Open
) -> None:
    make(catalog, "t", 1)
    drop(catalog, "t")
    dying = open_catalog()
    make_mortal(dying, 3)
    with pytest.raises(Death):
        dying.create_table({"id": ["t"]}, stream_of(2))
    assert tables(catalog) == []
    with pytest.raises(RelanceError, match="is not dropped"):
        catalog.undrop_table(["t"])
    assert rows(catalog, "t") == [2]
    assert rows(catalog, "t", version=1) == [1]
    assert "t.deleted" not in _keys(catalog)


def test_create_that_died_before_its_commit_is_undone_by_the_next_client(
    catalog: Catalog, open_catalog: Open
) -> None:
    make(catalog, "t", 1)
    drop(catalog, "t")
    dying = open_catalog()
    make_mortal(dying, 2)
    with pytest.raises(Death):
        dying.create_table({"id": ["t"]}, stream_of(2))
    status = catalog.table_status(["t"])
    assert isinstance(status, SoftDeleted)
    assert status.state == "reviving"
    catalog.undrop_table(["t"])
    assert rows(catalog, "t") == [1]


def test_interrupted_create_gives_its_claim_back(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    make(catalog, "t", 1)
    drop(catalog, "t")
    with monkeypatch.context() as patch:
        substitute(patch, "tables.commit", interrupt)
        with pytest.raises(KeyboardInterrupt):
            catalog.create_table({"id": ["t"]}, stream_of(2))
    status = catalog.table_status(["t"])
    assert isinstance(status, SoftDeleted)
    assert status.state == "deleted"
    catalog.undrop_table(["t"])
    assert rows(catalog, "t") == [1]


def test_purge_that_died_after_removing_the_marker_is_finished_by_the_next_run(
    catalog: Catalog, open_catalog: Open, clock: ManualClock
) -> None:
    without_marker = []
    for writes in range(1, 10):
        name = f"t{writes}"
        make(catalog, name, 1)
        drop(catalog, name)
        dying = open_catalog()
        make_mortal(dying, writes)
        try:
            dying.purge_table([name], force=True)
            break
        except Death:
            clock.advance(timedelta(minutes=27))
        if f"{name}.deleted" not in _keys(catalog):
            without_marker.append(name)
        assert PurgeDropped().targets(context_of(catalog)) == [(name,)]
        assert [each.id for each in catalog.purge_tables() if each.purged] == [(name,)]
        assert make(catalog, name, 2).version == 1
        assert rows(catalog, name) == [2]
    assert without_marker != []


def test_migrate_gives_native_tables_signs_at_the_root(open_catalog: Open, clock: ManualClock) -> None:
    catalog = open_catalog()
    root = context_of(catalog).connection.lance_root
    options = dict(context_of(catalog).lance_options())
    native = NativeNamespace(
        root=root, manifest_enabled="false", **{f"storage.{key}": value for key, value in options.items()}
    )
    for name in ("hidden", "plain"):
        lance.write_dataset([{"x": 1}], f"{root}/{name}.lance", storage_options=options or None)
    lance.write_dataset(
        [{"x": 1}], namespace_client=native, table_id=["written"], storage_options=options or None
    )
    native.deregister_table(DeregisterTableRequest(id=["hidden"]))
    context_of(catalog).storage.create("reserved.lance/.lance-reserved", b"reserved")
    assert tables(catalog) == ["plain", "reserved", "written"]
    plan = catalog.migrate_markers(dry_run=True)
    assert (plan.deregistered, plan.declared, plan.already_migrated) == (("hidden",), ("reserved",), False)
    assert ".relance-root" not in _keys(catalog)
    assert catalog.migrate_markers().declared == ("reserved",)
    assert {".relance-root", "hidden.deregistered", "reserved.declared"} <= _keys(catalog)
    assert "hidden.deleted" not in _keys(catalog), "it is not dropped"
    again = catalog.migrate_markers()
    assert (again.deregistered, again.declared, again.already_migrated) == ((), (), True)
    assert tables(catalog) == ["plain", "reserved", "written"]
    assert catalog.list_tables({"id": [], "include_declared": False}).tables == ["plain", "written"]
    catalog.register_table({"id": ["hidden"], "location": "hidden.lance"})
    assert "hidden" in tables(catalog)


def _careless(catalog: Catalog, *, ignores_create_only: bool) -> Catalog:
    """Give the catalog a store that takes conditional writes and ignores the conditions."""
    original("probe.seen").clear()
    context = context_of(catalog)
    storage = CarelessStorage(context.storage, ignores_create_only=ignores_create_only, ignores_replace=True)
    renamed = dataclasses.replace(
        context, connection=dataclasses.replace(context.connection, storage=storage)
    )
    replace_context(catalog, renamed)
    return catalog


@pytest.fixture
def fresh_probes(monkeypatch: pytest.MonkeyPatch) -> None:
    substitute(monkeypatch, "probe.seen", {})


@pytest.mark.usefixtures("fresh_probes")
def test_store_without_compare_and_swap_allows_drop_but_not_undrop_or_purge(catalog: Catalog) -> None:
    make(catalog, "t", 1)
    make(catalog, "u", 2)
    _careless(catalog, ignores_create_only=False)
    drop(catalog, "t")
    assert tables(catalog) == ["u"]
    assert isinstance(catalog.table_status(["t"]), SoftDeleted)
    assert [dropped.id for dropped in catalog.list_dropped_tables()] == [("t",)]
    calls = (
        lambda: catalog.undrop_table(["t"]),
        lambda: catalog.purge_table(["t"], force=True),
        lambda: catalog.create_table({"id": ["t"]}, stream_of(3)),
        lambda: drop(catalog, "u", purge="true"),
    )
    for call in calls:
        with pytest.raises(UnsupportedOperationError) as caught:
            call()
        assert context_of(catalog).storage.name in str(caught.value)
        assert "docs/stores.md" in str(caught.value)
    assert catalog.table_status(["u"]) == Exists(("u",))
    assert context_of(catalog).storage.read("t.deleted")


@pytest.mark.usefixtures("fresh_probes")
def test_store_without_create_only_writes_refuses_drop_and_declare(catalog: Catalog) -> None:
    make(catalog, "t", 1)
    _careless(catalog, ignores_create_only=True)
    for call in (lambda: drop(catalog, "t"), lambda: catalog.declare_table({"id": ["new"]})):
        with pytest.raises(UnsupportedOperationError, match="create-only"):
            call()
    assert tables(catalog) == ["t"]
    assert rows(catalog, "t") == [1]
