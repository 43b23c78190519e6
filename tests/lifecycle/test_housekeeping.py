"""Sweep, scrub, migrate; damaged markers; stores that ignore conditions."""

from __future__ import annotations

import dataclasses
from datetime import timedelta

import lance
import pytest
from lance.namespace import DirectoryNamespace as NativeNamespace
from lance_namespace import DeregisterTableRequest
from tests.lifecycle.conftest import Open
from tests.support.calls import drop, make, rows, tables
from tests.support.failures import interrupt
from tests.support.internals import context_of, replace_context
from tests.support.patches import original, substitute
from tests.support.roots import stream_of

import relance
from relance.errors import InvalidTableStateError, RelanceError, UnsupportedOperationError
from relance.lifecycle import moves
from relance.lifecycle.marker_store import new_nonce, put_marker, read_marker
from relance.lifecycle.states import State
from relance.lifecycle.status import Exists, NotFound, SoftDeleted
from relance.operations.findings import Problem
from relance.testing.clock import ManualClock
from relance.testing.faults import CarelessStorage

Catalog = relance.DirectoryNamespace


def _keys(catalog: Catalog) -> set[str]:
    return {info.key for info in context_of(catalog).storage.list_level("").files}


def test_sweep_removes_only_markers_older_than_the_quarantine(catalog: Catalog, clock: ManualClock) -> None:
    make(catalog, "undropped", 1)
    drop(catalog, "undropped")
    catalog.undrop_table(["undropped"])
    make(catalog, "purged", 1)
    drop(catalog, "purged", purge="true")
    make(catalog, "dropped", 1)
    drop(catalog, "dropped")
    assert catalog.sweep_markers() == []
    clock.advance(timedelta(days=8))
    assert catalog.sweep_markers(dry_run=True) == ["purged", "undropped"]
    assert "purged.deleted" in _keys(catalog)
    assert catalog.sweep_markers() == ["purged", "undropped"]
    assert {key for key in _keys(catalog) if key.endswith(".deleted")} == {"dropped.deleted"}
    assert rows(catalog, "undropped") == [1]
    catalog.undrop_table(["dropped"])
    assert rows(catalog, "dropped") == [1]


def test_sweep_keeps_a_tombstone_with_files_below_it(catalog: Catalog, clock: ManualClock) -> None:
    make(catalog, "t", 1)
    drop(catalog, "t", purge="true")
    context_of(catalog).storage.create("t.lance/_versions/1.manifest", b"a late create")
    clock.advance(timedelta(days=8))
    assert catalog.sweep_markers() == []
    assert tables(catalog) == []


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"x" * 200,
        b'{"format": 2, "state": "frozen", "why": "a later release wrote this one, and knows"}',
    ],
    ids=["empty", "damaged", "newer"],
)
def test_unreadable_marker_is_never_purged_revived_or_overwritten(
    catalog: Catalog, clock: ManualClock, body: bytes
) -> None:
    make(catalog, "t", 1)
    storage = context_of(catalog).storage
    storage.create("t.deleted", body)
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
        with pytest.raises(InvalidTableStateError, match="marker for table id 't'"):
            call()
    assert catalog.purge_tables() == []
    assert catalog.sweep_markers() == []
    assert catalog.list_dropped_tables() == []
    findings = catalog.scrub(repair=True)
    assert [(each.name, each.problem, each.repaired) for each in findings] == [
        ("t", Problem.DAMAGED_MARKER, False)
    ]
    assert storage.read("t.deleted").body == body
    assert lance.dataset(
        context_of(catalog).location("t"), storage_options=dict(context_of(catalog).lance_options()) or None
    ).to_table()["x"].to_pylist() == [1]


def test_scrub_finds_and_repairs_leftovers_of_crashes(catalog: Catalog, clock: ManualClock) -> None:
    storage = context_of(catalog).storage
    for name in ("no-data", "stale-purge", "stale-create", "below"):
        make(catalog, name, 1)
        drop(catalog, name)
    storage.delete_many([info.key for info in storage.list_recursive("no-data.lance")])
    until = clock.now() + timedelta(minutes=10)
    for name, claim in (("stale-purge", moves.claim_purge), ("stale-create", moves.claim_revival)):
        stored = read_marker(storage, name)
        assert stored is not None
        put_marker(storage, name, claim(stored.marker, new_nonce(), token="dead", until=until), over=stored)
    catalog.purge_table(["below"], force=True)
    storage.create("below.lance/data/late", b"x")
    storage.create("leftover.lance/data/x", b"x")
    make(catalog, "signed", 1)
    storage.create("signed.creating", b"")
    assert Problem.STALE_PURGE not in {each.problem for each in catalog.scrub()}, "its lease is not over"
    clock.advance(timedelta(hours=1))
    expected = {
        ("below", Problem.DATA_BELOW_TOMBSTONE),
        ("leftover", Problem.DATA_WITHOUT_TABLE),
        ("no-data", Problem.MARKER_WITHOUT_DATA),
        ("signed.creating", Problem.STALE_SIGN),
        ("stale-create", Problem.STALE_REVIVAL),
        ("stale-purge", Problem.STALE_PURGE),
    }
    found = catalog.scrub()
    assert {(each.name, each.problem) for each in found} == expected
    assert not any(each.repaired for each in found)
    assert all(each.remedy for each in found)
    repaired = catalog.scrub(repair=True)
    assert {(each.name, each.problem) for each in repaired if each.repaired} == expected
    assert catalog.scrub() == []
    assert tables(catalog) == ["signed"]
    catalog.undrop_table(["stale-create"])
    assert rows(catalog, "stale-create") == [1]
    assert catalog.table_status(["stale-purge"]) == NotFound(("stale-purge",))


def test_create_that_crashed_after_its_commit_is_completed(
    catalog: Catalog, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(catalog, "t", 1)
    drop(catalog, "t")

    with monkeypatch.context() as patch:
        substitute(patch, "claim.settle", interrupt)
        with pytest.raises(KeyboardInterrupt):
            catalog.create_table({"id": ["t"]}, stream_of(2))
    assert tables(catalog) == []
    with pytest.raises(RelanceError, match=r"is locked by another client \(creating it\)"):
        catalog.undrop_table(["t"])
    clock.advance(timedelta(hours=1))
    with pytest.raises(RelanceError, match="is not dropped"):
        catalog.undrop_table(["t"])
    assert rows(catalog, "t") == [2]
    assert rows(catalog, "t", version=1) == [1]


def test_create_that_crashed_before_its_commit_is_rolled_back(
    catalog: Catalog, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(catalog, "t", 1)
    drop(catalog, "t")

    with monkeypatch.context() as patch:
        substitute(patch, "tables.commit", interrupt)
        with pytest.raises(KeyboardInterrupt):
            catalog.create_table({"id": ["t"]}, stream_of(2))
    clock.advance(timedelta(hours=1))
    catalog.undrop_table(["t"])
    assert rows(catalog, "t") == [1]


def test_migrate_moves_native_markers_to_the_root(open_catalog: Open, clock: ManualClock) -> None:
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
    assert {".relance-root", "hidden.deleted", "reserved.declared"} <= _keys(catalog)
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
    assert [each.id for each in catalog.list_dropped_tables()] == [("t",)]
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
    stored = read_marker(context_of(catalog).storage, "t")
    assert stored is not None
    assert stored.marker.state is State.DELETED


@pytest.mark.usefixtures("fresh_probes")
def test_store_without_create_only_writes_refuses_drop_and_declare(catalog: Catalog) -> None:
    make(catalog, "t", 1)
    _careless(catalog, ignores_create_only=True)
    for call in (lambda: drop(catalog, "t"), lambda: catalog.declare_table({"id": ["new"]})):
        with pytest.raises(UnsupportedOperationError, match="create-only"):
            call()
    assert tables(catalog) == ["t"]
    assert rows(catalog, "t") == [1]
