"""rename_table: another name for the same files, within a namespace, across them, to and from the root."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from lance.namespace import DirectoryNamespace as NativeNamespace
from lance_namespace import ListTablesRequest
from lance_namespace.errors import LanceNamespaceError
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
    ident,
    make,
    rename,
    rows,
    spaces,
    tables,
    write,
)
from tests.support.codes import INVALID_INPUT, NAMESPACE_NOT_FOUND, TABLE_EXISTS, TABLE_NOT_FOUND
from tests.support.lakes import Lake
from tests.support.modes import COMPATIBILITY, V1, V2
from tests.support.patches import substitute
from tests.support.roots import refused

from relance import DirectoryNamespace

MOVES = [("t", "u"), ("t", "a/u"), ("a/t", "a/u"), ("a/t", "b/t"), ("a/t", "a/c/u"), ("a/t", "u")]


@pytest.fixture
def catalog(lake: Lake) -> DirectoryNamespace:
    """A catalog with a few namespaces."""
    catalog = lake.open()
    spaces(catalog, "a", "b", "a/c")
    return catalog


def inodes(folder: Path) -> dict[str, int]:
    """Return the identity of every data file and manifest, which a copy would not have."""
    return {
        str(path): os.stat(path).st_ino
        for path in sorted(folder.rglob("*"))
        if path.is_file() and {"data", "_versions"} & set(path.parts) and "__manifest" not in path.parts
    }


@pytest.mark.parametrize(("old", "new"), MOVES, ids=lambda path: path)
def test_rename_changes_the_name_and_leaves_the_files_in_place(
    old: str, new: str, lake: Lake, catalog: DirectoryNamespace
) -> None:
    make(catalog, old, 1, properties={"owner": "me"})
    write(catalog, old, 2, mode="append")
    place, files = directory(lake, old), inodes(lake.folder)
    rename(catalog, old, new)
    for client in (catalog, lake.open()):
        assert_gone(client, old)
        assert_whole(client, new, 1, 2)
        assert describe(client, new).properties == {"owner": "me"}
        assert rows(client, new, version=1) == [1]
    assert directory(lake, new) == place
    assert inodes(lake.folder) == files
    with refused(TABLE_NOT_FOUND):
        rename(catalog, old, "elsewhere")
    write(catalog, new, 3, mode="append")
    assert rows(lake.open(), new) == [1, 2, 3]


def test_rename_without_a_namespace_stays_in_the_current_one(catalog: DirectoryNamespace) -> None:
    make(catalog, "a/t", 1)
    catalog.rename_table({"id": ["a", "t"], "new_table_name": "u"})
    assert_whole(catalog, "a/u", 1)
    catalog.rename_table({"id": ["a", "u"], "new_table_name": "u", "new_namespace_id": []})
    assert_whole(catalog, "u", 1)


def test_declared_table_can_be_renamed_and_then_written(catalog: DirectoryNamespace) -> None:
    for old, new in (("t", "a/u"), ("a/t", "u")):
        declare(catalog, old, properties={"n": "1"})
        rename(catalog, old, new)
        assert_gone(catalog, old)
        assert describe(catalog, new, check_declared=True).is_only_declared is True
        write(catalog, new, 1, mode="append")
        assert_whole(catalog, new, 1)
        assert describe(catalog, new).properties == {"n": "1"}


class TestRefusals:
    def test_rename_to_a_taken_name_is_refused(self, lake: Lake, catalog: DirectoryNamespace) -> None:
        make(catalog, "t", 1)
        make(catalog, "a/t", 2)
        declare(catalog, "declared")
        before = lake.files()
        for old, new in (("t", "a/t"), ("a/t", "t"), ("t", "declared"), ("a/t", "declared"), ("t", "b")):
            with refused(TABLE_EXISTS) as caught:
                rename(catalog, old, new)
            assert "$".join(ident(new)) in str(caught.value)
        assert lake.files() == before
        assert_whole(catalog, "t", 1)
        assert_whole(catalog, "a/t", 2)

    def test_rename_to_a_missing_namespace_is_refused(self, lake: Lake, catalog: DirectoryNamespace) -> None:
        make(catalog, "t", 1)
        make(catalog, "a/t", 2)
        before = lake.files()
        for new in ("x/t", "a/x/t", "t/t", "a/t/t"):
            for old in ("t", "a/t"):
                with refused(NAMESPACE_NOT_FOUND):
                    rename(catalog, old, new)
        assert lake.files() == before

    def test_rename_of_a_missing_or_dropped_table_is_not_found(self, catalog: DirectoryNamespace) -> None:
        make(catalog, "gone", 1)
        drop(catalog, "gone")
        make(catalog, "a/gone", 1)
        drop(catalog, "a/gone")
        make(catalog, "hidden", 1)
        deregister(catalog, "hidden")
        for old in ("x", "a/x", "x/y", "gone", "a/gone", "hidden", "a"):
            with refused(TABLE_NOT_FOUND):
                rename(catalog, old, "new")
        assert tables(catalog) == []

    def test_rename_to_an_invalid_name_or_to_itself_is_refused(
        self, lake: Lake, catalog: DirectoryNamespace
    ) -> None:
        make(catalog, "t", 1)
        before = lake.files()
        for name in ("", "a$b", "a/b", "..", "__manifest", "__dropped", "x" * 221, "t"):
            with refused(INVALID_INPUT):
                catalog.rename_table({"id": ["t"], "new_table_name": name})
        with refused(INVALID_INPUT):
            catalog.rename_table({"id": ["t"], "new_table_name": "u", "new_namespace_id": ["a$b"]})
        assert lake.files() == before

    def test_rename_to_the_name_of_a_directory_without_a_row_is_refused(self, compatible: Lake) -> None:
        make(compatible.open(V1), "v1", 1)
        catalog = compatible.open()
        spaces(catalog, "a")
        make(catalog, "a/t", 2)
        make(catalog, "t", 3)
        for old in ("a/t", "t"):
            with refused(TABLE_EXISTS):
                rename(catalog, old, "v1")
        assert_whole(catalog, "v1", 1)


class TestReusedNames:
    def test_three_tables_can_swap_names(self, lake: Lake, catalog: DirectoryNamespace) -> None:
        for number, name in enumerate(("t", "u", "v")):
            make(catalog, name, number)
        for old, new in (("t", "a/t"), ("u", "t"), ("v", "u"), ("a/t", "v")):
            rename(catalog, old, new)
        for client in (catalog, lake.open()):
            assert tables(client) == ["t", "u", "v"]
            assert [rows(client, name) for name in ("t", "u", "v")] == [[1], [2], [0]]
        rename(catalog, "v", "a/t")
        rename(catalog, "u", "v")
        rename(catalog, "t", "u")
        rename(catalog, "a/t", "t")
        for number, name in enumerate(("t", "u", "v")):
            assert_whole(lake.open(), name, number)

    def test_table_can_be_renamed_back_to_the_name_of_its_directory(
        self, lake: Lake, catalog: DirectoryNamespace
    ) -> None:
        make(catalog, "t", 1, properties={"n": "1"})
        place = directory(lake, "t")
        for _ in range(2):
            rename(catalog, "t", "a/u")
            assert_gone(lake.open(), "t")
            rename(catalog, "a/u", "t")
            assert_gone(lake.open(), "a/u")
            assert_whole(lake.open(), "t", 1)
            assert directory(lake, "t") == place
            assert describe(lake.open(), "t").properties == {"n": "1"}
        drop(catalog, "t")
        assert_gone(lake.open(), "t")
        catalog.undrop_table(["t"])
        assert_whole(lake.open(), "t", 1)
        assert make(catalog, "t", 2, mode="overwrite").version == 2
        drop(catalog, "t", purge="true")
        assert not (lake.folder / place).exists()
        make(catalog, "t", 3)
        assert_whole(lake.open(), "t", 3)

    def test_old_name_can_be_used_again_after_a_rename(self, lake: Lake, catalog: DirectoryNamespace) -> None:
        for old, new in (("t", "a/moved"), ("a/t", "moved")):
            make(catalog, old, 1)
            rename(catalog, old, new)
            make(catalog, old, 2)
            assert_whole(lake.open(), old, 2)
            assert_whole(lake.open(), new, 1)
            assert directory(lake, old) != directory(lake, new)
            with refused(TABLE_EXISTS):
                rename(catalog, new, old)
            drop(catalog, old)
            declare(catalog, old)
            write(catalog, old, 3, mode="append")
            assert_whole(lake.open(), old, 3)
            drop(catalog, old)
            write(catalog, old, 4)
            assert_whole(lake.open(), old, 4)
            assert_whole(lake.open(), new, 1)

    def test_table_can_be_renamed_to_the_name_of_a_dropped_table(
        self, lake: Lake, catalog: DirectoryNamespace
    ) -> None:
        for new in ("t", "a/t"):
            make(catalog, new, 1)
            drop(catalog, new)
            make(catalog, "b/other", 2)
            rename(catalog, "b/other", new)
            assert_whole(lake.open(), new, 2)
            with refused(TABLE_EXISTS):
                catalog.undrop_table(ident(new))
            catalog.undrop_table(ident(new), new_id=["b", "other"])
            assert_whole(lake.open(), "b/other", 1)
            assert_whole(lake.open(), new, 2)
            drop(catalog, "b/other")


@pytest.mark.parametrize(("old", "new"), [("t", "a/u"), ("a/t", "u"), ("a/t", "a/u")], ids=lambda path: path)
def test_lifecycle_continues_under_the_new_name(
    old: str, new: str, lake: Lake, catalog: DirectoryNamespace
) -> None:
    make(catalog, old, 1)
    place = directory(lake, old)
    make(catalog, "other", 9)
    rename(catalog, old, new)
    drop(catalog, new)
    assert_gone(lake.open(), new)
    assert_gone(lake.open(), old)
    assert len(generations(catalog, new)) == 1
    assert generations(catalog, old) == []
    with refused(TABLE_NOT_FOUND):
        catalog.undrop_table(ident(old))
    catalog.undrop_table(ident(new))
    assert_whole(lake.open(), new, 1)
    assert make(catalog, new, 2, mode="overwrite").version == 2
    drop(catalog, new)
    assert make(catalog, new, 3).version == 3, "a create over the dropped one goes on with its history"
    assert rows(catalog, new, version=1) == [1]
    drop(catalog, new)
    catalog.purge_table(ident(new), force=True)
    assert not (lake.folder / place).exists()
    assert_gone(lake.open(), new)
    make(catalog, old, 4)
    assert_whole(lake.open(), old, 4)
    assert_whole(lake.open(), "other", 9)


class TestOtherClients:
    def test_clients_that_list_directories_do_not_see_the_old_name(self, compatible: Lake) -> None:
        catalog = compatible.open()
        spaces(catalog, "a")
        make(catalog, "t", 1)
        make(catalog, "u", 2)
        rename(catalog, "t", "a/t")
        native = NativeNamespace(root=str(compatible.folder), manifest_enabled="false")
        assert native.list_tables(ListTablesRequest(id=[])).tables == ["u"]
        assert tables(compatible.open(V1)) == ["u"]
        with refused(TABLE_NOT_FOUND):
            compatible.open(V1).describe_table({"id": ["t"]})
        assert_whole(compatible.open(V2), "a/t", 1)
        assert not exists(compatible.open(V2), "t")
        rename(catalog, "a/t", "t")
        assert_whole(compatible.open(V2), "t", 1)

    def test_v1_client_cannot_reuse_the_old_name(self, compatible: Lake) -> None:
        catalog = compatible.open()
        make(catalog, "t", 1)
        rename(catalog, "t", "u")
        v1 = compatible.open(V1)
        for attempt in (
            lambda: make(v1, "t", 2),
            lambda: declare(v1, "t"),
            lambda: drop(v1, "t"),
            lambda: v1.undrop_table(["t"]),
            lambda: v1.purge_table(["t"], force=True),
            lambda: v1.register_table({"id": ["t"], "location": "t.lance"}),
        ):
            with pytest.raises(LanceNamespaceError):
                attempt()
        assert_whole(compatible.open(), "u", 1)
        assert all_tables(compatible.open()) == ["u"]


def _there_and_back(catalog: DirectoryNamespace, old: str, new: str) -> None:
    rename(catalog, old, new)
    rename(catalog, new, old)


class Killed(BaseException):
    """The client is gone; no handler of errors goes on from here."""


class TestKilledRename:
    """The manifest says that the table has another name, the marker beside its directory does not yet."""

    @pytest.fixture(params=["sync.move_away", "sync.end_move"])
    def lake(self, request: pytest.FixtureRequest, compatible: Lake, monkeypatch: pytest.MonkeyPatch) -> Lake:
        """A root in which a rename of t to a/u stopped before one of its steps."""
        catalog = compatible.open()
        spaces(catalog, "a")
        make(catalog, "t", 1, properties={"n": "1"})
        make(catalog, "other", 9)

        def stop(*_: object, **__: object) -> None:
            raise Killed

        with monkeypatch.context() as patches:
            substitute(patches, request.param, stop)
            with pytest.raises(Killed):
                rename(catalog, "t", "a/u")
        return compatible

    def test_reads_after_a_killed_rename_see_only_the_new_name(self, lake: Lake) -> None:
        before = lake.files()
        for mode in (COMPATIBILITY, V2):
            assert_gone(lake.open(mode), "t")
            assert_whole(lake.open(mode), "a/u", 1)
            assert describe(lake.open(mode), "a/u").properties == {"n": "1"}
        assert lake.files() == before

    @pytest.mark.parametrize(
        "act",
        [
            lambda catalog: make(catalog, "t", 5),
            lambda catalog: write(catalog, "t", 5),
            lambda catalog: rename(catalog, "other", "t"),
            lambda catalog: spaces(catalog, "t"),
            lambda catalog: _there_and_back(catalog, "a/u", "t"),
            lambda catalog: catalog.migrate_to_manifest(),
        ],
        ids=["create", "write", "rename onto it", "namespace", "rename back", "migrate"],
    )
    def test_next_operation_on_the_old_name_repairs_a_killed_rename(
        self, act: Callable[[DirectoryNamespace], object], lake: Lake
    ) -> None:
        act(lake.open())
        assert_whole(lake.open(), "a/u", 1)
        assert tables(lake.open(V1), include_declared=False).count("t") == 0
        assert not [row for row in lake.manifest_rows().values() if "moved_to" in (row["metadata"] or "")]

    def test_after_a_killed_rename_the_old_name_is_missing_and_the_new_one_works(self, lake: Lake) -> None:
        for attempt in (
            lambda: rename(lake.open(), "t", "new"),
            lambda: drop(lake.open(), "t"),
            lambda: deregister(lake.open(), "t"),
            lambda: lake.open().undrop_table(["t"]),
            lambda: lake.open().purge_table(["t"], force=True),
        ):
            with pytest.raises(LanceNamespaceError):
                attempt()
            assert_whole(lake.open(), "a/u", 1)
        drop(lake.open(), "a/u")
        assert_gone(lake.open(), "t")
        lake.open().undrop_table(["a", "u"])
        assert_whole(lake.open(), "a/u", 1)
        drop(lake.open(), "a/u", purge="true")
        assert not (lake.folder / "t.lance" / "data").exists()
        make(lake.open(), "t", 5)
        assert_whole(lake.open(), "t", 5)


def test_rename_works_on_an_object_store(any_lake: Lake) -> None:
    catalog = any_lake.open()
    spaces(catalog, "a")
    make(catalog, "t", 1)
    place = describe(catalog, "t").location
    rename(catalog, "t", "a/u")
    assert_gone(any_lake.open(), "t")
    assert_whole(any_lake.open(), "a/u", 1)
    assert describe(catalog, "a/u").location == place
    make(catalog, "t", 2)
    rename(catalog, "t", "v")
    rename(catalog, "a/u", "t")
    assert_whole(any_lake.open(), "t", 1)
    assert_whole(any_lake.open(), "v", 2)
