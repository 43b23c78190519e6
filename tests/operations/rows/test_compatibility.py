"""Compatibility mode: tables of the directory and of the manifest as one, and markers and rows in step.

What a client that was killed between the two leaves is written by hand here: a marker without its row,
a row without its marker. Reads see it right, and the next operation brings it in step.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import lance
import pytest
from tests.seeds.clients import DirectoryClient
from tests.support.calls import (
    all_tables,
    assert_gone,
    assert_whole,
    declare,
    deregister,
    describe,
    directory,
    drop,
    exists,
    generations,
    make,
    namespaces,
    register,
    rename,
    rows,
    spaces,
    tables,
    write,
)
from tests.support.codes import (
    CONCURRENT_MODIFICATION,
    INVALID_TABLE_STATE,
    NAMESPACE_EXISTS,
    SERVICE_UNAVAILABLE,
    TABLE_EXISTS,
    TABLE_NOT_FOUND,
)
from tests.support.internals import context_of
from tests.support.lakes import Lake
from tests.support.modes import COMPATIBILITY, MANIFEST_MODES, V1, V2
from tests.support.patches import substitute
from tests.support.root_checks import check_all_versions
from tests.support.roots import numbers, refused

from relance import DirectoryNamespace
from relance.operations.drop_ttl import set_drop_ttl
from relance.storage.protocol import ObjectStorage


@pytest.fixture
def lake(compatible: Lake) -> Lake:
    """All tests here are about one mode."""
    return compatible


@pytest.fixture
def v1(lake: Lake) -> DirectoryNamespace:
    """A client that knows of directories alone."""
    return lake.open(V1)


def row_of(lake: Lake, name: str) -> dict[str, Any] | None:
    """Return the row with this id, if there is one."""
    return lake.manifest_rows().get(name)


class TestMergedReads:
    def test_listings_combine_tables_of_directories_and_manifest(
        self, lake: Lake, v1: DirectoryNamespace
    ) -> None:
        make(v1, "by v1", 1)
        declare(v1, "declared by v1")
        make(lake.open(V2), "by v2", 2)
        declare(lake.open(V2), "declared by v2")
        catalog = lake.open()
        make(catalog, "both", 3)
        spaces(catalog, "a")
        make(catalog, "a/t", 4)
        everything = ["both", "by v1", "by v2", "declared by v1", "declared by v2"]
        assert tables(catalog) == everything
        assert tables(catalog, include_declared=False) == ["both", "by v1", "by v2"]
        assert tables(catalog, limit=2, page_token="both") == ["by v1", "by v2"]
        assert all_tables(catalog) == ["a/t", *everything]
        for name, value in (("both", 3), ("by v1", 1), ("by v2", 2), ("a/t", 4)):
            assert_whole(catalog, name, value)
        assert tables(v1) == ["both", "by v1", "declared by v1"]
        assert tables(lake.open(V2)) == ["both", "by v2", "declared by v2"]

    def test_manifest_takes_precedence_when_both_have_a_name(
        self, lake: Lake, v1: DirectoryNamespace
    ) -> None:
        make(v1, "t", 1)
        make(lake.open(V2), "t", 2)
        catalog = lake.open()
        assert tables(catalog) == ["t"]
        assert rows(catalog, "t") == [2]
        rename(catalog, "t", "of v2")
        assert_whole(lake.open(), "of v2", 2)
        assert_whole(lake.open(), "t", 1)

    def test_reads_in_compatibility_mode_write_nothing(self, lake: Lake, v1: DirectoryNamespace) -> None:
        make(v1, "t", 1)
        drop(v1, "t")
        make(v1, "u", 1)
        before = lake.files()
        catalog = lake.open()
        assert tables(catalog) == ["u"]
        describe(catalog, "u")
        catalog.table_status(["t"])
        assert len(catalog.list_dropped_tables()) == 1
        catalog.purge_tables(dry_run=True)
        catalog.scrub()
        assert lake.files() == before

    def test_namespace_takes_precedence_over_a_directory_of_its_name(
        self, lake: Lake, v1: DirectoryNamespace
    ) -> None:
        spaces(lake.open(), "n")
        make(v1, "n", 1)
        catalog = lake.open()
        assert namespaces(catalog) == ["n"]
        assert tables(catalog) == []
        assert not exists(catalog, "n")
        make(catalog, "n/t", 2)
        assert_whole(catalog, "n/t", 2)


class TestV1Tables:
    def test_v1_tables_can_be_dropped_and_undropped(self, lake: Lake, v1: DirectoryNamespace) -> None:
        make(v1, "t", 1)
        catalog = lake.open()
        answer = drop(catalog, "t")
        for client in (catalog, v1, lake.open(V2)):
            assert not exists(client, "t")
            assert tables(client) == []
        assert [each.deletion_id for each in v1.list_dropped_tables()] == [answer["deletion_id"]]
        catalog.undrop_table(["t"])
        for client in (catalog, v1, lake.open(V2)):
            assert rows(client, "t") == [1]

    def test_table_dropped_by_v1_can_be_undropped_under_any_name(
        self, lake: Lake, v1: DirectoryNamespace
    ) -> None:
        make(v1, "t", 1)
        deletion_id = drop(v1, "t")["deletion_id"]
        catalog = lake.open()
        spaces(catalog, "a")
        assert generations(catalog, "t") == [deletion_id]
        catalog.undrop_table(["t"], new_id=["a", "t"], deletion_id=deletion_id)
        assert_whole(lake.open(), "a/t", 1)
        assert_gone(lake.open(), "t")
        assert tables(v1) == []
        assert directory(lake, "a/t") != "t.lance"
        for client in (catalog, v1):
            assert generations(client, "t") == [deletion_id], "the drop stays: the table was copied"
        v1.undrop_table(["t"])
        assert_whole(lake.open(), "t", 1)

    def test_v1_tables_can_be_purged(self, lake: Lake, v1: DirectoryNamespace) -> None:
        for name in ("t", "u", "live"):
            make(v1, name, 1)
        drop(v1, "t")
        catalog = lake.open()
        drop(catalog, "u", ttl_ms="1h")
        lake.clock.advance(timedelta(hours=2))
        assert [each.id for each in catalog.purge_tables()] == [("u",)]
        catalog.purge_table(["t"], force=True)
        assert not (lake.folder / "t.lance").exists()
        assert not (lake.folder / "u.lance").exists()
        assert_whole(lake.open(), "live", 1)
        for name in ("t", "u"):
            make(catalog, name, 2)
            assert_whole(lake.open(), name, 2)

    def test_v1_tables_can_be_renamed_and_registered(self, lake: Lake, v1: DirectoryNamespace) -> None:
        for name in ("t", "u"):
            make(v1, name, 1)
        catalog = lake.open()
        spaces(catalog, "a")
        rename(catalog, "t", "a/t")
        assert_whole(lake.open(), "a/t", 1)
        assert tables(v1) == ["u"]
        register(catalog, "u", "u.lance", properties={"n": "1"})
        assert describe(lake.open(V2), "u").properties == {"n": "1"}
        with refused(TABLE_EXISTS):
            register(catalog, "u", "u.lance")
        deregister(v1, "u")
        assert_gone(catalog, "u")
        register(catalog, "a/u", "u.lance")
        assert_whole(lake.open(), "a/u", 1)
        assert tables(v1) == []

    def test_v1_tables_can_be_protected(self, lake: Lake, v1: DirectoryNamespace) -> None:
        make(v1, "t", 1)
        catalog = lake.open()
        catalog.protect(["t"])
        with refused(19):
            drop(lake.open(), "t")
        with refused(19):
            deregister(lake.open(), "t")
        assert_whole(catalog, "t", 1)
        catalog.unprotect(["t"])
        drop(catalog, "t")

    def test_table_written_over_a_name_dropped_by_v1_gets_its_own_directory(
        self, lake: Lake, v1: DirectoryNamespace
    ) -> None:
        make(v1, "t", 1)
        drop(v1, "t")
        catalog = lake.open()
        write(catalog, "t", 2)
        assert directory(lake, "t") != "t.lance"
        assert_whole(lake.open(), "t", 2)
        assert tables(v1) == [], "where directories alone count, the dropped one has the name"
        drop(catalog, "t")
        lake.clock.advance(timedelta(minutes=1))
        v1.undrop_table(["t"])
        assert_whole(lake.open(), "t", 1)
        catalog.undrop_table(["t"], new_id=["second"])
        assert_whole(lake.open(), "second", 2)

    def test_table_undropped_by_v1_under_a_taken_name_keeps_its_properties(
        self, lake: Lake, v1: DirectoryNamespace
    ) -> None:
        catalog = lake.open()
        make(catalog, "t", 1, properties={"owner": "b"})
        drop(catalog, "t")
        declare(catalog, "t")
        v1.undrop_table(["t"])
        assert lake.open().scrub(repair=True) == []
        assert lake.open().migrate_to_manifest().shadowed == ("t",)
        assert lake.open(V2).list_dropped_tables() == lake.open().list_dropped_tables() == []
        deregister(lake.open(), "t")
        for _ in range(2):
            assert describe(lake.open(), "t").properties == {"owner": "b"}
            assert_whole(lake.open(), "t", 1)
            lake.open().scrub(repair=True)

    def test_v1_client_can_use_tables_made_in_compatibility_mode(
        self, lake: Lake, v1: DirectoryNamespace
    ) -> None:
        catalog = lake.open()
        make(catalog, "t", 1, properties={"n": "1"})
        write(v1, "t", 2, mode="append")
        assert make(v1, "t", 3, mode="overwrite").version == 4  # the properties are version 2
        drop(v1, "t")
        assert_gone(lake.open(), "t")
        assert len(generations(catalog, "t")) == 1
        v1.undrop_table(["t"])
        assert_whole(lake.open(), "t", 3)
        assert describe(lake.open(), "t").properties == {"n": "1"}
        drop(v1, "t", purge="true")
        assert_gone(lake.open(), "t")
        assert catalog.list_dropped_tables() == []
        with refused(TABLE_NOT_FOUND):
            drop(catalog, "t")
        make(catalog, "t", 4)
        assert_whole(lake.open(), "t", 4)


def _marker_without_row(lake: Lake) -> None:
    """The marker says dropped, the row still says live: killed after the marker was written."""
    manifest = lake.folder / "__manifest"
    shutil.copytree(manifest, lake.folder.parent / "kept")
    drop(lake.open(), "t")
    shutil.rmtree(manifest)
    shutil.copytree(lake.folder.parent / "kept", manifest)


def _row_without_marker(lake: Lake) -> None:
    """The row says dropped, the marker says live: killed after an undrop cleared the marker."""
    drop(lake.open(), "t")
    manifest = lake.folder / "__manifest"
    shutil.copytree(manifest, lake.folder.parent / "kept")
    lake.open().undrop_table(["t"])
    shutil.rmtree(manifest)
    shutil.copytree(lake.folder.parent / "kept", manifest)


def _live_without_row(lake: Lake) -> None:
    """The table is there, its row is not: killed after the data was written."""
    lance.dataset(str(lake.folder / "__manifest")).delete("object_id = 't'")


def _row_without_table(lake: Lake) -> None:
    """The row is there, the directory is gone: another client removed it by force."""
    shutil.rmtree(lake.folder / "t.lance")


def _purged_with_row(lake: Lake) -> None:
    """The files are purged, the row of the dropped generation is still there."""
    drop(lake.open(), "t")
    manifest = lake.folder / "__manifest"
    shutil.copytree(manifest, lake.folder.parent / "kept")
    lake.open().purge_table(["t"], force=True)
    shutil.rmtree(manifest)
    shutil.copytree(lake.folder.parent / "kept", manifest)


BREAKS: dict[str, Callable[[Lake], None]] = {
    "marker without row": _marker_without_row,
    "row without marker": _row_without_marker,
    "live without row": _live_without_row,
    "row without table": _row_without_table,
    "purged with row": _purged_with_row,
}


def home_positions(lake: Lake) -> list[str]:
    """Return the ids of the rows that lead to the home directory of t."""
    return [key for key, row in lake.manifest_rows().items() if row["location"] == "t.lance"]


class TestMarkerAndRowDisagree:
    @pytest.fixture
    def catalog(self, lake: Lake) -> DirectoryNamespace:
        catalog = lake.open()
        spaces(catalog, "a")
        make(catalog, "t", 1, properties={"n": "1"})
        make(catalog, "other", 9)
        return catalog

    @pytest.fixture(params=["marker without row", "purged with row", "row without table"])
    def hidden(self, request: pytest.FixtureRequest, lake: Lake, catalog: DirectoryNamespace) -> Lake:
        """A root in which there is no table t for readers, but its row is out of step."""
        BREAKS[request.param](lake)
        return lake

    @pytest.fixture(params=["row without marker", "live without row"])
    def shown(self, request: pytest.FixtureRequest, lake: Lake, catalog: DirectoryNamespace) -> Lake:
        """A root in which there is a table t for readers, but its row is out of step."""
        BREAKS[request.param](lake)
        return lake

    def test_marker_without_a_row_hides_the_table_from_reads(self, hidden: Lake) -> None:
        before = hidden.files()
        assert_gone(hidden.open(), "t")
        assert_whole(hidden.open(), "other", 9)
        assert hidden.files() == before

    def test_cleared_marker_shows_the_table_despite_its_dropped_row(self, shown: Lake) -> None:
        before = shown.files()
        assert_whole(shown.open(), "t", 1)
        assert shown.open().list_dropped_tables() == []
        assert shown.files() == before

    def test_create_takes_a_name_hidden_by_its_marker(self, hidden: Lake) -> None:
        make(hidden.open(), "t", 2)
        assert_whole(hidden.open(), "t", 2)
        assert_whole(hidden.open(V2), "t", 2)
        drop(hidden.open(), "t")
        assert_gone(hidden.open(V2), "t")
        hidden.open().undrop_table(["t"])
        assert_whole(hidden.open(V2), "t", 2)

    def test_pylance_write_takes_a_name_hidden_by_its_marker(self, hidden: Lake) -> None:
        write(hidden.open(), "t", 2)
        assert_whole(hidden.open(), "t", 2)
        assert_whole(hidden.open(V2), "t", 2)

    def test_rename_takes_a_name_hidden_by_its_marker(self, hidden: Lake) -> None:
        rename(hidden.open(), "other", "t")
        assert_whole(hidden.open(), "t", 9)
        assert_whole(hidden.open(V2), "t", 9)

    def test_namespace_takes_a_name_hidden_by_its_marker(self, hidden: Lake) -> None:
        spaces(hidden.open(), "t")
        make(hidden.open(), "t/t", 2)
        assert_whole(hidden.open(), "t/t", 2)

    def test_drop_deregister_and_rename_of_a_hidden_table_are_refused(self, hidden: Lake) -> None:
        for act in (drop, deregister):
            with refused(TABLE_NOT_FOUND):
                act(hidden.open(), "t")
        with refused(TABLE_NOT_FOUND):
            rename(hidden.open(), "t", "new")

    def test_drop_of_a_shown_table_syncs_its_row(self, shown: Lake) -> None:
        drop(shown.open(), "t")
        assert_gone(shown.open(), "t")
        assert not exists(shown.open(V2), "t")
        assert len(home_positions(shown)) == 1
        assert row_of(shown, "t") is None
        shown.open().undrop_table(["t"])
        assert_whole(shown.open(V2), "t", 1)

    def test_rename_of_a_shown_table_leaves_no_stale_row(self, shown: Lake) -> None:
        rename(shown.open(), "t", "a/t")
        assert_whole(shown.open(), "a/t", 1)
        assert_gone(shown.open(), "t")
        assert row_of(shown, "t") is None
        assert len(home_positions(shown)) == 1, "that of the drop of the old name"

    def test_name_of_a_shown_table_stays_taken(self, shown: Lake) -> None:
        with refused(TABLE_EXISTS):
            make(shown.open(), "t", 2)
        with refused(TABLE_EXISTS):
            declare(shown.open(), "t")
        with refused(TABLE_EXISTS):
            rename(shown.open(), "other", "t")
        with refused(NAMESPACE_EXISTS):
            spaces(shown.open(), "t")
        assert_whole(shown.open(), "t", 1)

    def test_dropped_table_with_a_live_row_is_undropped_with_its_properties(
        self, lake: Lake, catalog: DirectoryNamespace
    ) -> None:
        _marker_without_row(lake)
        assert len(lake.open().list_dropped_tables()) == 1
        lake.open().undrop_table(["t"])
        assert_whole(lake.open(), "t", 1)
        assert describe(lake.open(V2), "t").properties == {"n": "1"}

    def test_dropped_table_with_a_live_row_is_undropped_under_a_new_name(
        self, lake: Lake, catalog: DirectoryNamespace
    ) -> None:
        _marker_without_row(lake)
        lake.open().undrop_table(["t"], new_id=["a", "t"])
        assert_whole(lake.open(), "a/t", 1)
        assert_gone(lake.open(), "t")

    def test_dropped_table_with_a_live_row_is_purged(self, lake: Lake, catalog: DirectoryNamespace) -> None:
        _marker_without_row(lake)
        lake.open().purge_table(["t"], force=True)
        assert_gone(lake.open(), "t")
        assert row_of(lake, "t") is None
        assert not (lake.folder / "t.lance").exists()
        assert_whole(lake.open(), "other", 9)

    def test_migration_syncs_a_marker_without_its_row(self, lake: Lake, catalog: DirectoryNamespace) -> None:
        _marker_without_row(lake)
        found = lake.open().migrate_to_manifest()
        assert found.mended == ("t",)
        assert row_of(lake, "t") is None
        assert lake.open().migrate_to_manifest().mended == ()


@pytest.mark.parametrize("act", [make, declare])
def test_stalled_create_whose_name_was_taken_and_dropped_is_a_conflict(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, act: Callable[..., Any]
) -> None:
    other = lake.open()

    def sleep(storage: ObjectStorage, *, to_do: str) -> None:
        monkeypatch.undo()
        make(other, "t")
        drop(other, "t")

    substitute(monkeypatch, "create.require_create_only", sleep)
    # A declare has written its file by then, into the dropped table.
    with refused(SERVICE_UNAVAILABLE if act is declare else CONCURRENT_MODIFICATION):
        act(lake.open(), "t")
    # At no moment did two rows lead to the directory: that of the drop, and one that holds the name.
    assert check_all_versions(lake.folder) >= 2
    assert (tables(other), len(generations(other, "t"))) == ([], 1)
    other.undrop_table(["t"])
    assert tables(other) == ["t"]


def test_table_outside_the_catalog_is_never_touched(lake: Lake) -> None:
    lance.write_dataset(numbers(5), str(lake.folder / "free"))
    catalog = lake.open()
    make(catalog, "t", 1)
    drop(catalog, "t", purge="true")
    catalog.purge_tables(force=True)
    catalog.scrub(repair=True)
    catalog.sweep_markers()
    assert lance.dataset(str(lake.folder / "free")).to_table() == numbers(5)


def test_clients_of_all_modes_can_share_a_root(lake: Lake) -> None:
    first, second, third = lake.open(V1), lake.open(COMPATIBILITY), lake.open(V2)
    make(first, "t", 1)
    second.migrate_to_manifest()
    assert_whole(third, "t", 1)
    drop(third, "t")
    for client in (first, second, third):
        assert not exists(client, "t")
    first.undrop_table(["t"])
    for client in (first, second):
        assert rows(client, "t") == [1]
    # A client of directories alone does not tell the manifest; one of both does when it comes by.
    second.migrate_to_manifest()
    assert rows(third, "t") == [1]
    rename(third, "t", "u")
    assert tables(first) == []
    assert_whole(second, "u", 1)
    make(third, "t", 2)
    for client in (first, second, third):
        assert rows(client, "t") == [2], "a create over the dropped name goes on in its directory"
    assert_whole(second, "u", 1)


@pytest.mark.parametrize("verb", ["protect", "unprotect", "ttl"])
def test_table_whose_row_does_not_know_of_a_drop_is_not_changed(
    lake: Lake, v1: DirectoryNamespace, verb: str
) -> None:
    catalog = lake.open()
    make(catalog, "t", 1)
    DirectoryClient(lake.folder).drop("t")
    assert row_of(lake, "t") is not None
    verbs: dict[str, Callable[[], object]] = {
        "protect": lambda: catalog.protect(["t"]),
        "unprotect": lambda: catalog.unprotect(["t"]),
        "ttl": lambda: set_drop_ttl(context_of(catalog), ["t"], "3h"),
    }
    with refused(TABLE_NOT_FOUND if verb == "ttl" else INVALID_TABLE_STATE):
        verbs[verb]()
    assert row_of(lake, "t") is None, "the row follows the marker"
    catalog.undrop_table(["t"])
    assert_whole(catalog, "t", 1)
    assert_whole(v1, "t", 1)
    drop(catalog, "t")


@pytest.mark.parametrize("verb", ["declare", "namespace"])
def test_name_that_a_row_has_is_listed_once_though_its_home_is_undropped(verb: str, compatible: Lake) -> None:
    """Another client undrops the home directory after the name was given to something else."""
    catalog = compatible.open()
    make(catalog, "t", 1)
    drop(catalog, "t")
    if verb == "declare":
        declare(catalog, "t")
    else:
        catalog.create_namespace({"id": ["t"]})
    (compatible.folder / "t.deleted").unlink()
    expected = ["t"] if verb == "declare" else []
    for mode in MANIFEST_MODES.values():
        client = compatible.open(mode)
        assert client.list_tables({"id": []}).tables == expected
        assert client.list_all_tables({"id": []}).tables == expected
