"""register_table and deregister_table: no name ever leads out of the root or into another table's files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lance
import pytest
from lance_namespace.errors import LanceNamespaceError
from tests.support.calls import (
    assert_gone,
    assert_whole,
    declare,
    deregister,
    describe,
    directory,
    drop,
    exists,
    ident,
    make,
    register,
    rename,
    rows,
    spaces,
    tables,
)
from tests.support.codes import (
    INVALID_INPUT,
    INVALID_TABLE_STATE,
    NAMESPACE_NOT_FOUND,
    TABLE_EXISTS,
    TABLE_NOT_FOUND,
)
from tests.support.failures import interrupt
from tests.support.lakes import Lake
from tests.support.modes import V1
from tests.support.patches import substitute
from tests.support.roots import numbers, refused, snapshot

from relance import DirectoryNamespace


@pytest.fixture
def catalog(lake: Lake) -> DirectoryNamespace:
    """A catalog with a namespace, and data in a directory that no table has."""
    catalog = lake.open()
    spaces(catalog, "a")
    lance.write_dataset(numbers(1, 2), str(lake.folder / "loose"))
    return catalog


class TestRoundTrips:
    def test_registered_directory_becomes_a_table_with_properties(self, lake: Lake, catalog: Any) -> None:
        for path in ("r", "a/r"):
            answer = register(catalog, path, "loose", properties={"owner": "me"})
            assert answer.location == "loose"
            assert answer.properties == {"owner": "me"}
            assert_whole(lake.open(), path, 1, 2)
            assert describe(lake.open(), path).properties == {"owner": "me"}
            before = lake.table_files()
            gone = deregister(catalog, path)
            assert (gone.id, gone.location) == (ident(path), f"{lake.folder}/loose")
            assert gone.properties == {"owner": "me"}
            assert_gone(lake.open(), path)
            assert lake.table_files() == before, "files stay as they are"

    def test_deregistered_table_can_be_registered_under_any_name(
        self, lake: Lake, catalog: DirectoryNamespace
    ) -> None:
        make(catalog, "a/t", 7)
        place = directory(lake, "a/t")
        deregister(catalog, "a/t")
        with refused(TABLE_NOT_FOUND):
            deregister(catalog, "a/t")
        register(catalog, "again", place)
        assert_whole(lake.open(), "again", 7)
        assert directory(lake, "again") == place

    def test_every_spelling_of_a_location_means_the_same_directory(
        self, lake: Lake, catalog: DirectoryNamespace
    ) -> None:
        root = str(lake.folder)
        for spelling in ("loose", "loose/", f"{root}/loose", f"{root}/loose/", f"file://{root}/loose"):
            register(catalog, "a/r", spelling)
            assert rows(catalog, "a/r") == [1, 2]
            deregister(catalog, "a/r")

    def test_nested_directory_can_be_registered(self, lake: Lake, catalog: DirectoryNamespace) -> None:
        lance.write_dataset(numbers(5), str(lake.folder / "deep" / "er" / "x.lance"))
        register(catalog, "a/deep", "deep/er/x.lance")
        assert_whole(lake.open(), "a/deep", 5)
        drop(catalog, "a/deep", purge="true")
        assert not (lake.folder / "deep" / "er" / "x.lance").exists()
        assert (lake.folder / "loose").exists()

    def test_registered_table_supports_the_whole_lifecycle(
        self, lake: Lake, catalog: DirectoryNamespace
    ) -> None:
        register(catalog, "a/r", "loose")
        drop(catalog, "a/r")
        catalog.undrop_table(["a", "r"])
        rename(catalog, "a/r", "r2")
        assert_whole(catalog, "r2", 1, 2)
        drop(catalog, "r2", purge="true")
        assert not (lake.folder / "loose").exists()

    def test_v1_directory_is_registered_in_place(self, v2: Lake) -> None:
        make(v2.open(V1), "t", 1)
        catalog = v2.open()
        spaces(catalog, "a")
        register(catalog, "t", "t.lance")
        assert_whole(catalog, "t", 1)
        assert directory(v2, "t") == "t.lance"


class TestRefusals:
    @pytest.mark.parametrize("path", ["r", "a/r"])
    def test_location_must_be_a_directory_below_the_root(
        self, path: str, lake: Lake, catalog: DirectoryNamespace
    ) -> None:
        root = str(lake.folder)
        before = lake.files()
        for location in (
            "", " ", ".", "./", "..", "../loose", "/", "//", "loose/..", "loose/../..", "x/../loose",
            "./loose", "loose/.", "a//b", "loose\0", root, f"{root}/", f"{root}/.", f"{root}/../x",
            f"{root}x/loose", f"file://{root}", "/etc", "file:///etc", "s3://bucket/loose", "memory://x/loose",
            "http://h/loose", "__manifest", "__manifest/", "__manifest/data", f"{root}/__manifest", "loose?x",
            "loo%73e", "loose#x",
        ):  # fmt: skip
            with pytest.raises(LanceNamespaceError) as caught:
                register(catalog, path, location)
            assert int(caught.value.code) == INVALID_INPUT, f"{location!r}: {caught.value}"
        assert lake.files() == before
        assert not exists(catalog, path)

    def test_register_of_a_directory_without_table_data_is_not_found(
        self, lake: Lake, catalog: DirectoryNamespace
    ) -> None:
        (lake.folder / "empty").mkdir()
        (lake.folder / "other").mkdir()
        (lake.folder / "other" / "file").write_bytes(b"x")
        (lake.folder / "a file").write_bytes(b"x")
        for location in ("nothing", "empty", "other", "a file"):
            with refused(TABLE_NOT_FOUND):
                register(catalog, "a/r", location)
        assert tables(catalog, "a") == []

    @pytest.mark.parametrize("kind", ["live", "declared", "dropped", "renamed", "registered"])
    @pytest.mark.parametrize("owner", ["t", "a/t"])
    def test_register_of_another_tables_directory_is_refused_in_every_state(
        self, owner: str, kind: str, lake: Lake, catalog: DirectoryNamespace
    ) -> None:
        place = _owned(lake, catalog, owner, kind)
        # Inside and around it there is data too, so that only the owner can be the reason.
        lance.write_dataset(numbers(9), str(lake.folder / place / "inside"))
        before = lake.table_files()
        for location in (place, f"{place}/", f"{place}/inside", f"{lake.folder}/{place}"):
            for mode in ("create", "overwrite"):
                with refused(INVALID_INPUT) as caught:
                    register(catalog, "a/thief", location, mode=mode)
                assert "thief" in str(caught.value)
        assert lake.table_files() == before
        assert not exists(catalog, "a/thief")

    def test_register_of_a_directory_containing_a_table_is_refused(
        self, lake: Lake, catalog: DirectoryNamespace
    ) -> None:
        lance.write_dataset(numbers(5), str(lake.folder / "outer"))
        lance.write_dataset(numbers(6), str(lake.folder / "outer" / "in" / "inner"))
        register(catalog, "a/inner", "outer/in/inner")
        with refused(INVALID_INPUT):
            register(catalog, "a/outer", "outer")
        drop(catalog, "a/inner")
        with refused(INVALID_INPUT):
            register(catalog, "a/outer", "outer")
        catalog.purge_table(["a", "inner"], force=True)
        register(catalog, "a/outer", "outer")
        assert_whole(catalog, "a/outer", 5)

    def test_register_of_a_live_or_dropped_v1_directory_is_refused(self, compatible: Lake) -> None:
        v1 = compatible.open(V1)
        make(v1, "live", 1)
        make(v1, "gone", 2)
        drop(v1, "gone")
        catalog = compatible.open()
        spaces(catalog, "a")
        for name in ("live", "gone"):
            lance.write_dataset(numbers(9), str(compatible.folder / f"{name}.lance" / "inside"))
            for location in (f"{name}.lance", f"{name}.lance/inside"):
                with refused(INVALID_INPUT):
                    register(catalog, "a/thief", location)
        with refused(TABLE_NOT_FOUND):
            register(catalog, "gone", "gone.lance")
        catalog.undrop_table(["gone"])
        assert_whole(catalog, "gone", 2)

    def test_register_inside_a_deregistered_table_is_refused(self, compatible: Lake) -> None:
        catalog = compatible.open()
        make(catalog, "t", 1)
        deregister(catalog, "t")
        lance.write_dataset(numbers(9), str(compatible.folder / "t.lance" / "inside"))
        with refused(INVALID_INPUT):
            register(catalog, "thief", "t.lance/inside")
        register(catalog, "new", "t.lance")
        assert_whole(catalog, "new", 1)
        with refused(INVALID_INPUT):
            register(catalog, "t", "t.lance")

    def test_register_requires_an_existing_namespace_and_a_free_name(
        self, lake: Lake, catalog: DirectoryNamespace
    ) -> None:
        make(catalog, "a/t", 1)
        make(catalog, "t", 1)
        for path in ("a/t", "t"):
            for mode in (None, "create", "Create"):
                with refused(TABLE_EXISTS):
                    register(catalog, path, "loose", mode=mode)
        with refused(NAMESPACE_NOT_FOUND):
            register(catalog, "x/r", "loose")
        with refused(TABLE_EXISTS):
            register(catalog, "a", "loose")
        with refused(INVALID_INPUT):
            register(catalog, "a/r", "loose", mode="bogus")
        with refused(INVALID_INPUT):
            register(catalog, "a/r", "loose", properties={"relance.marker": "x"})
        assert rows(catalog, "a/t") == [1]
        register(catalog, "a/r", "loose")
        with refused(TABLE_EXISTS):
            register(catalog, "a/r", "loose")

    def test_register_does_not_follow_links_out_of_the_root(
        self, lake: Lake, catalog: DirectoryNamespace, tmp_path: Path
    ) -> None:
        outside = tmp_path / "outside"
        lance.write_dataset(numbers(1), str(outside / "x"))
        (lake.folder / "link").symlink_to(outside / "x")
        (lake.folder / "folder").symlink_to(outside)
        before = snapshot(outside)
        for location in ("link", "folder/x"):
            with pytest.raises(LanceNamespaceError):
                register(catalog, "a/r", location)
        assert snapshot(outside) == before


def _owned(lake: Lake, catalog: DirectoryNamespace, path: str, kind: str) -> str:
    """Make a table and let something happen to it; return its directory."""
    if kind == "registered":
        register(catalog, path, "loose")
        return "loose"
    if kind == "declared":
        declare(catalog, path)
    else:
        make(catalog, path, 1)
    place = directory(lake, path)
    if kind == "dropped":
        drop(catalog, path)
    if kind == "renamed":
        rename(catalog, path, "a/renamed")
    return place


class TestOverwrite:
    def test_register_overwrite_takes_the_name_and_keeps_the_old_files(
        self, lake: Lake, catalog: DirectoryNamespace
    ) -> None:
        make(catalog, "a/t", 7, properties={"n": "1"})
        old = directory(lake, "a/t")
        for mode in ("overwrite", "Overwrite"):
            register(catalog, "a/t", "loose", mode=mode, properties={"n": "2"})
            assert_whole(lake.open(), "a/t", 1, 2)
            assert describe(catalog, "a/t").properties == {"n": "2"}
        register(catalog, "old", old)
        assert_whole(catalog, "old", 7)

    def test_register_overwrite_takes_the_name_of_a_root_table(
        self, lake: Lake, catalog: DirectoryNamespace
    ) -> None:
        make(catalog, "t", 7)
        old = directory(lake, "t")
        register(catalog, "t", "loose", mode="overwrite")
        assert_whole(lake.open(), "t", 1, 2)
        assert tables(lake.open()) == ["t"]
        drop(catalog, "t")
        assert_gone(lake.open(), "t")
        catalog.undrop_table(["t"])
        register(catalog, "old", old)
        assert_whole(lake.open(), "old", 7)
        assert_whole(lake.open(), "t", 1, 2)

    def test_refused_register_overwrite_changes_nothing(
        self, lake: Lake, catalog: DirectoryNamespace
    ) -> None:
        make(catalog, "t", 7)
        make(catalog, "u", 8)
        make(catalog, "a/v", 9)
        before = lake.table_files()
        for location in (directory(lake, "u"), directory(lake, "a/v"), "__manifest", "nothing"):
            with pytest.raises(LanceNamespaceError):
                register(catalog, "t", location, mode="overwrite")
        assert lake.table_files() == before
        assert_whole(lake.open(), "t", 7)

    def test_interrupted_register_overwrite_can_be_repeated(
        self, compatible: Lake, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        catalog = compatible.open()
        make(catalog, "t", 7)
        lance.write_dataset(numbers(1, 2), str(compatible.folder / "loose"))

        with monkeypatch.context() as patches:
            substitute(patches, "registration.free_name", interrupt)
            with pytest.raises(KeyboardInterrupt):
                register(catalog, "t", "loose", mode="overwrite")
        assert_gone(compatible.open(), "t")
        register(compatible.open(), "t", "loose", mode="overwrite")
        assert_whole(compatible.open(), "t", 1, 2)
        register(catalog, "old", "t.lance")
        assert_whole(compatible.open(), "old", 7)

    def test_register_overwrite_of_a_protected_table_is_refused(
        self, lake: Lake, catalog: DirectoryNamespace
    ) -> None:
        for path in ("t", "a/t"):
            make(catalog, path, 7)
            catalog.protect(ident(path))
            with refused(INVALID_TABLE_STATE):
                register(catalog, path, "loose", mode="overwrite")
            with refused(INVALID_TABLE_STATE):
                register(catalog, path, directory(lake, path), mode="overwrite", properties={"n": "2"})
            with refused(INVALID_TABLE_STATE):
                deregister(catalog, path)
            assert_whole(catalog, path, 7)

    def test_register_overwrite_of_a_namespace_is_refused(self, catalog: DirectoryNamespace) -> None:
        with refused(TABLE_EXISTS):
            register(catalog, "a", "loose", mode="overwrite")
        assert tables(catalog, "a") == []


class TestDeregisteredRootTables:
    def test_name_of_a_deregistered_table_is_free_for_a_new_directory(self, compatible: Lake) -> None:
        catalog = compatible.open()
        make(catalog, "t", 1)
        deregister(catalog, "t")
        for mode in ("create", "exist_ok", "overwrite"):
            make(catalog, "t", 2, mode=mode)
            assert_whole(compatible.open(), "t", 2)
            assert directory(compatible, "t") != "t.lance"
            drop(catalog, "t", purge="true")
        register(catalog, "old", "t.lance")
        assert_whole(compatible.open(), "old", 1)

    def test_deregistered_table_can_be_registered_again_while_its_name_is_free(
        self, compatible: Lake
    ) -> None:
        catalog = compatible.open()
        make(catalog, "t", 1, properties={"n": "1"})
        deregister(catalog, "t")
        declare(catalog, "t")
        with refused(TABLE_EXISTS):
            register(catalog, "t", "t.lance")
        drop(catalog, "t")
        register(catalog, "t", "t.lance", properties={"n": "2"})
        assert_whole(compatible.open(), "t", 1)
        assert describe(compatible.open(), "t").properties == {"n": "2"}
        assert directory(compatible, "t") == "t.lance"

    def test_deregistered_table_is_hidden_from_v1_clients(self, compatible: Lake) -> None:
        catalog = compatible.open()
        make(catalog, "t", 1)
        deregister(catalog, "t")
        assert_gone(compatible.open(), "t")
        assert tables(compatible.open(V1)) == []
        register(compatible.open(V1), "t", "t.lance")
        assert_whole(catalog, "t", 1)


def test_register_and_deregister_work_on_an_object_store(any_lake: Lake) -> None:
    catalog = any_lake.open()
    spaces(catalog, "a")
    place = make(catalog, "a/t", 1, properties={"n": "1"}).location
    make(catalog, "u", 2)
    deregister(catalog, "a/t")
    for bad in ("", "..", "__manifest", any_lake.properties["root"], "s3://other/lake/x"):
        with refused(INVALID_INPUT):
            register(catalog, "a/r", bad)
    with refused(INVALID_INPUT):
        register(catalog, "a/r", describe(catalog, "u").location)
    register(catalog, "a/r", place, properties={"n": "2"})
    assert_whole(any_lake.open(), "a/r", 1)
    assert describe(any_lake.open(), "a/r").properties == {"n": "2"}
    assert_gone(any_lake.open(), "a/t")
