"""rename_table: another name within a namespace, across namespaces, to and from the root."""

from __future__ import annotations

import os
from datetime import timedelta
from pathlib import Path

import pytest
from lance.namespace import DirectoryNamespace as NativeNamespace
from lance_namespace import ListTablesRequest
from tests.support.calls import (
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
from tests.support.modes import V1, V2
from tests.support.roots import refused

from relance import DirectoryNamespace
from relance.identifiers import format_id

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


def is_copied(lake: Lake, path: str) -> bool:
    """Tell whether a rename copies this table: a root table in the directory of its name."""
    return "/" not in path and not lake.is_v2


@pytest.mark.parametrize(("old", "new"), MOVES, ids=lambda path: path)
def test_rename_gives_a_table_with_all_its_versions_another_name(
    old: str, new: str, lake: Lake, catalog: DirectoryNamespace
) -> None:
    make(catalog, old, 1, properties={"owner": "me"})
    write(catalog, old, 2, mode="append")
    place, files, copied = directory(lake, old), inodes(lake.folder), is_copied(lake, old)
    rename(catalog, old, new)
    for client in (catalog, lake.open()):
        assert_gone(client, old)
        assert_whole(client, new, 1, 2)
        assert describe(client, new).properties == {"owner": "me"}
        assert rows(client, new, version=1) == [1]
    assert (directory(lake, new) != place) is copied
    if not copied:
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
            assert format_id(ident(new)) in str(caught.value)
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

    def test_table_can_be_renamed_back_while_its_old_name_is_dropped(
        self, lake: Lake, catalog: DirectoryNamespace
    ) -> None:
        make(catalog, "t", 1, properties={"n": "1"})
        for _ in range(2):
            rename(catalog, "t", "a/u")
            assert_gone(lake.open(), "t")
            rename(catalog, "a/u", "t")
            assert_gone(lake.open(), "a/u")
            assert_whole(lake.open(), "t", 1)
            assert describe(lake.open(), "t").properties == {"n": "1"}
        place = directory(lake, "t")
        assert place != "t.lance"
        lake.clock.advance(timedelta(minutes=1))  # the drop of the home directory is older
        drop(catalog, "t")
        assert_gone(lake.open(), "t")
        catalog.undrop_table(["t"])
        assert_whole(lake.open(), "t", 1)
        assert make(catalog, "t", 2, mode="overwrite").version == 3  # its properties are version 2
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
    copied = is_copied(lake, old)
    make(catalog, old, 1)
    make(catalog, "other", 9)
    rename(catalog, old, new)
    place = directory(lake, new)
    drop(catalog, new)
    assert_gone(lake.open(), new)
    assert_gone(lake.open(), old)
    assert len(generations(catalog, new)) == 1
    assert len(generations(catalog, old)) == int(copied)
    if not copied:
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
        # The native client knows no drops, and the old directory stays until it is purged.
        assert native.list_tables(ListTablesRequest(id=[])).tables == ["t", "u"]
        assert tables(compatible.open(V1)) == ["u"]
        with refused(TABLE_NOT_FOUND):
            compatible.open(V1).describe_table({"id": ["t"]})
        assert_whole(compatible.open(V2), "a/t", 1)
        assert not exists(compatible.open(V2), "t")
        rename(catalog, "a/t", "t")
        assert_whole(compatible.open(V2), "t", 1)


def test_rename_works_on_an_object_store(any_lake: Lake) -> None:
    catalog = any_lake.open()
    spaces(catalog, "a")
    make(catalog, "t", 1)
    rename(catalog, "t", "a/u")
    assert_gone(any_lake.open(), "t")
    assert_whole(any_lake.open(), "a/u", 1)
    make(catalog, "t", 2)
    rename(catalog, "t", "v")
    rename(catalog, "a/u", "t")
    assert_whole(any_lake.open(), "t", 1)
    assert_whole(any_lake.open(), "v", 2)
