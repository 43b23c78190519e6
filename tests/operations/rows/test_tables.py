"""Tables in namespaces and at the root: location, description and paging."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import lance
import lancedb
import pytest
from lance_namespace.errors import LanceNamespaceError, TableNotFoundError
from tests.support.calls import (
    IMPLEMENTATION,
    all_tables,
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
    namespaces,
    register,
    rename,
    rows,
    spaces,
    tables,
    write,
)
from tests.support.codes import INVALID_INPUT, NAMESPACE_NOT_FOUND, TABLE_EXISTS, TABLE_NOT_FOUND
from tests.support.lakes import Lake
from tests.support.modes import V1, V2
from tests.support.patches import substitute
from tests.support.roots import numbers, refused, stream_of

from relance import DirectoryNamespace
from relance.errors import InternalError
from relance.identifiers import format_id

HASHED = re.compile(r"[0-9a-f]{8}_")


class TestDirectories:
    def test_table_in_a_namespace_gets_a_hashed_directory(self, lake: Lake) -> None:
        catalog = lake.open()
        spaces(catalog, "a", "a/b")
        make(catalog, "a/t", 1)
        make(catalog, "a/b/t", 2)
        declare(catalog, "a/d")
        for path in ("a/t", "a/b/t", "a/d"):
            place = directory(lake, path)
            assert HASHED.match(place)
            assert HASHED.sub("", place, count=1) == "$".join(ident(path))
        assert lake.directories() == {directory(lake, path) for path in ("a/t", "a/b/t", "a/d")}
        assert_whole(catalog, "a/t", 1)
        assert_whole(catalog, "a/b/t", 2)

    def test_root_table_in_compatibility_mode_is_stored_under_its_name(self, compatible: Lake) -> None:
        catalog = compatible.open()
        assert make(catalog, "t", 1).location == f"{compatible.folder}/t.lance"
        assert declare(catalog, "d").location == f"{compatible.folder}/d.lance"
        for other in (V1, V2):
            assert tables(compatible.open(other)) == ["d", "t"]
            assert rows(compatible.open(other), "t") == [1]

    def test_root_table_in_manifest_mode_gets_a_hashed_directory(self, v2: Lake) -> None:
        catalog = v2.open()
        make(catalog, "t", 1)
        declare(catalog, "d")
        for name in ("t", "d"):
            assert re.fullmatch(rf"[0-9a-f]{{8}}_{name}", directory(v2, name))
        assert tables(v2.open(V1)) == []
        assert tables(v2.open({})) == ["d", "t"], "compatibility mode reads the manifest first"
        assert_whole(v2.open({}), "t", 1)

    def test_recreated_table_never_gets_the_same_directory(self, v2: Lake) -> None:
        catalog = v2.open()
        seen = set()
        for _ in range(3):
            declare(catalog, "t")
            seen.add(directory(v2, "t"))
            drop(catalog, "t", purge="true")
        assert len(seen) == 3

    def test_directories_are_ignored_in_manifest_only_mode(self, v2: Lake) -> None:
        make(v2.open(V1), "t", 1)
        catalog = v2.open()
        assert_gone(catalog, "t")
        make(catalog, "t", 2)
        assert_whole(catalog, "t", 2)
        assert rows(v2.open(V1), "t") == [1]

    def test_no_new_directory_looks_like_the_home_of_a_root_table(self, lake: Lake) -> None:
        catalog, name = lake.open(), "x.lance"
        make(catalog, name, 1)
        drop(catalog, name)
        write(catalog, name, 2)  # declares it first: a directory of its own
        assert tables(lake.open({})) == [name]
        assert tables(lake.open(V1)) == []
        assert rows(lake.open({}), name) == [2]

    @pytest.mark.parametrize("path", ["t", "a/t"])
    def test_declare_accepts_only_its_own_location(self, path: str, lake: Lake) -> None:
        catalog = lake.open()
        spaces(catalog, "a")
        before = lake.files()
        for location in ("", "..", "elsewhere", "a.lance", "/etc", f"{lake.folder}/x", "__manifest"):
            with refused(INVALID_INPUT):
                declare(catalog, path, location=location)
        assert lake.files() == before

    def test_very_long_table_id_works_end_to_end(self, lake: Lake) -> None:
        catalog = lake.open()
        path = ""
        for depth in range(12):
            path = f"{path}/{'é' * 100}{depth}".lstrip("/")
            spaces(catalog, path)
        one, two = f"{path}/{'x' * 200}", f"{path}/{'x' * 200}y"
        make(catalog, one, 1)
        write(catalog, two, 2)
        assert all(len(name.encode()) <= 255 for name in lake.directories())
        assert_whole(lake.open(), one, 1)
        assert_whole(lake.open(), two, 2)
        write(catalog, one, 3, mode="append")
        drop(catalog, one)
        catalog.undrop_table(ident(one))
        assert rows(catalog, one) == [1, 3]
        drop(catalog, one, purge="true")
        assert_whole(catalog, two, 2)

    @pytest.mark.parametrize("name", ["naïve 😀", "it's [a]:b", "x.lance"])
    def test_unusual_table_name_works_end_to_end(self, name: str, lake: Lake) -> None:
        catalog = lake.open()
        spaces(catalog, name)
        for path in (f"{name}/{name}", f"t {name}"):
            make(catalog, path, 1)
            write(catalog, path, 2, mode="append")
            assert_whole(lake.open(), path, 1, 2)
            rename(catalog, path, f"{name}/new {name}")
            assert_gone(catalog, path)
            drop(catalog, f"{name}/new {name}")
            catalog.undrop_table([name, f"new {name}"], new_id=ident(path))
            assert_whole(lake.open(), path, 1, 2)
            drop(catalog, path, purge="true")
        catalog.purge_tables([each.id for each in catalog.list_dropped_tables()], force=True)
        assert lake.directories() == set()


class TestMissingNamespaces:
    def test_write_into_a_missing_namespace_is_refused_and_writes_nothing(self, lake: Lake) -> None:
        catalog = lake.open()
        spaces(catalog, "a")
        make(catalog, "t", 1)
        make(catalog, "gone", 2)
        drop(catalog, "gone")
        make(catalog, "a/loose", 3)
        deregister(catalog, "a/loose")
        (loose,) = (each for each in lake.directories() if each.endswith("loose"))
        before = lake.files()
        for path in ("x/t", "a/b/t", "t/t"):
            for mode in ("create", "exist_ok", "overwrite"):
                with refused(NAMESPACE_NOT_FOUND):
                    make(catalog, path, mode=mode)
            with refused(NAMESPACE_NOT_FOUND):
                declare(catalog, path)
            with refused(NAMESPACE_NOT_FOUND):
                write(catalog, path, 1)
            with refused(NAMESPACE_NOT_FOUND):
                register(catalog, path, loose)
            with refused(NAMESPACE_NOT_FOUND):
                rename(catalog, "t", path)
            with refused(NAMESPACE_NOT_FOUND):
                catalog.undrop_table(["gone"], new_id=ident(path))
        assert lake.files() == before
        assert_whole(catalog, "t", 1)

    def test_stock_clients_say_that_the_namespace_is_missing_and_work_once_it_is_there(
        self, lake: Lake
    ) -> None:
        database: Any = lancedb.connect_namespace(IMPLEMENTATION, {**lake.properties, **lake.settings})
        table = {"namespace_path": ["x"]}
        calls: tuple[Callable[[], object], ...] = (
            lambda: database.open_table("t", **table),
            lambda: database.drop_table("t", **table),
            lambda: database.create_table("t", numbers(1), **table),
            lambda: database.create_table("t", numbers(1), mode="overwrite", **table),
            lambda: database.create_table("t", numbers(1), exist_ok=True, **table),
        )
        for call in calls:
            with pytest.raises(RuntimeError, match="Namespace not found: namespace 'x'"):
                call()
        for mode in ("create", "append", "overwrite"):
            with refused(NAMESPACE_NOT_FOUND):
                write(lake.open(), "x/t", 1, mode=mode)
        with refused(NAMESPACE_NOT_FOUND):
            lance.dataset(namespace_client=lake.open(), table_id=["x", "t"])
        database.create_namespace(["x"])
        assert database.create_table("t", numbers(1), exist_ok=True, **table).count_rows() == 1
        assert database.create_table("t", numbers(1, 2), mode="overwrite", **table).count_rows() == 2
        assert database.open_table("t", **table).count_rows() == 2
        write(lake.open(), "x/t", 3, mode="append")
        assert rows(lake.open(), "x/t") == [1, 2, 3]
        database.drop_table("t", **table)
        with pytest.raises(TableNotFoundError):
            database.open_table("t", **table)

    @pytest.mark.parametrize(
        ("path", "code"),
        [
            ("a/t", TABLE_NOT_FOUND),
            ("x/t", NAMESPACE_NOT_FOUND),
            ("a/b/t", NAMESPACE_NOT_FOUND),
            ("t/t", NAMESPACE_NOT_FOUND),
        ],
    )
    def test_missing_namespace_of_a_missing_table_is_named(self, lake: Lake, path: str, code: int) -> None:
        catalog = lake.open()
        spaces(catalog, "a")
        make(catalog, "t", 1)
        with refused(code) as caught:
            describe(catalog, path)
        assert format_id(ident(path)) in str(caught.value)
        for act in (catalog.drop_table, catalog.deregister_table, catalog.table_exists):
            with refused(code):
                act({"id": ident(path)})


class WithNamespace:
    """Tests on a catalog with the namespace `a`."""

    @pytest.fixture
    def catalog(self, lake: Lake) -> DirectoryNamespace:
        catalog = lake.open()
        spaces(catalog, "a")
        return catalog


@pytest.mark.parametrize("path", ["t", "a/t"])
class TestCreateModes(WithNamespace):
    def test_create_of_an_existing_table_is_refused(
        self, path: str, lake: Lake, catalog: DirectoryNamespace
    ) -> None:
        make(catalog, path, 1)
        before = lake.table_files()
        for mode in (None, "create", "Create", "CREATE"):
            with refused(TABLE_EXISTS) as caught:
                make(catalog, path, 2, mode=mode)
            assert format_id(ident(path)) in str(caught.value)
        with refused(TABLE_EXISTS):
            declare(catalog, path)
        with refused(TABLE_EXISTS):
            write(catalog, path, 2)
        assert lake.table_files() == before

    def test_exist_ok_keeps_an_existing_table(
        self, path: str, lake: Lake, catalog: DirectoryNamespace
    ) -> None:
        assert make(catalog, path, 1, mode="exist_ok", properties={"n": "1"}).version == 1
        write(catalog, path, 2, mode="append")
        before = lake.files()
        for mode in ("exist_ok", "ExistOk", "EXIST_OK"):
            answer = make(catalog, path, 9, mode=mode)
            # One version for the data, one for the properties, one for the rows appended.
            assert (answer.version, answer.properties) == (3, {"n": "1"})
            assert answer.location == describe(catalog, path).location
        assert lake.files() == before

    def test_overwrite_adds_a_version_in_the_same_directory(
        self, path: str, catalog: DirectoryNamespace
    ) -> None:
        first = make(catalog, path, 1, mode="Overwrite")
        second = make(catalog, path, 2, mode="OVERWRITE")
        assert (first.version, second.version) == (1, 2)
        assert first.location == second.location
        assert rows(catalog, path) == [2]
        assert rows(catalog, path, version=1) == [1]
        write(catalog, path, 3, mode="overwrite")
        assert rows(catalog, path) == [3]
        assert rows(catalog, path, version=2) == [2]

    def test_create_fills_a_declared_table_at_its_location(
        self, path: str, lake: Lake, catalog: DirectoryNamespace
    ) -> None:
        for mode in ("create", "exist_ok", "overwrite"):
            declared = declare(catalog, path)
            assert describe(catalog, path, check_declared=True).is_only_declared is True
            created = make(catalog, path, 1, mode=mode)
            assert (created.location, created.version) == (declared.location, 1)
            assert_whole(catalog, path, 1)
            drop(catalog, path, purge="true")
        declare(catalog, path)
        with refused(TABLE_EXISTS):
            declare(catalog, path)
        write(catalog, path, 2, mode="append")
        assert_whole(catalog, path, 2)

    def test_invalid_create_is_refused_and_leaves_nothing(
        self, path: str, lake: Lake, catalog: DirectoryNamespace
    ) -> None:
        before = lake.files()
        with refused(INVALID_INPUT):
            make(catalog, path, mode="bogus")
        with refused(INVALID_INPUT):
            catalog.create_table({"id": ident(path)}, b"garbage")
        with refused(INVALID_INPUT):
            make(catalog, path, properties={"relance.marker": "x"})
        with refused(INVALID_INPUT):
            declare(catalog, path, properties={"relance.id": "x"})
        assert lake.files() == before

    def test_failed_create_leaves_no_table_and_frees_the_name(
        self, path: str, lake: Lake, catalog: DirectoryNamespace, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def fail(*_: object, **__: object) -> None:
            raise OSError("the disk is full")

        for broken in ("write_fragments", "commit"):
            with monkeypatch.context() as patches:
                if broken == "commit":
                    substitute(patches, "tables.commit", _failing)
                else:
                    substitute(patches, "tables.write_fragments", fail)
                with pytest.raises(LanceNamespaceError, match="the disk is full"):
                    make(catalog, path, 1)
            assert_gone(catalog, path)
            assert_gone(lake.open(), path)
        if path == "a/t" or lake.is_v2:
            assert lake.directories() == set(), "nobody would ever find it"
        make(catalog, path, 2)
        assert_whole(catalog, path, 2)


def _failing(*_: object, **__: object) -> None:
    raise InternalError("the disk is full")


@pytest.mark.parametrize("path", ["t", "a/t"])
class TestProperties(WithNamespace):
    def test_properties_are_stored_and_returned(
        self, path: str, lake: Lake, catalog: DirectoryNamespace
    ) -> None:
        given = {"owner": "me", "é": '日本語 "quoted" it\'s', "empty": ""}
        assert make(catalog, path, 1, properties=given).properties == given
        assert describe(lake.open(), path).properties == given
        assert make(catalog, path, 9, mode="exist_ok", properties={"owner": "you"}).properties == given
        assert describe(lake.open(), path).properties == given

    def test_properties_of_a_declare_survive_the_first_write(
        self, path: str, catalog: DirectoryNamespace
    ) -> None:
        assert declare(catalog, path, properties={"owner": "me"}).properties == {"owner": "me"}
        write(catalog, path, 1, mode="append")
        assert describe(catalog, path).properties == {"owner": "me"}
        assert make(catalog, path, 2, mode="overwrite").properties == {"owner": "me"}
        assert describe(catalog, path).properties == {"owner": "me"}

    def test_create_over_a_declared_table_cannot_change_its_properties(
        self, path: str, lake: Lake, catalog: DirectoryNamespace
    ) -> None:
        declare(catalog, path, properties={"owner": "me"})
        before = lake.files()
        with refused(INVALID_INPUT) as caught:
            make(catalog, path, 1, properties={"owner": "you"})
        assert "declared" in str(caught.value)
        assert lake.files() == before
        assert make(catalog, path, 1).properties == {"owner": "me"}

    def test_overwrite_replaces_properties_if_given(self, path: str, catalog: DirectoryNamespace) -> None:
        make(catalog, path, 1, properties={"a": "1", "b": "2"})
        assert make(catalog, path, 2, mode="overwrite", properties={"a": "3"}).properties == {"a": "3"}
        assert describe(catalog, path).properties == {"a": "3"}

    def test_properties_survive_drop_undrop_and_rename(self, path: str, catalog: DirectoryNamespace) -> None:
        make(catalog, path, 1, properties={"owner": "me"})
        dropped = drop(catalog, path)
        assert dropped["owner"] == "me"
        catalog.undrop_table(ident(path))
        assert describe(catalog, path).properties == {"owner": "me"}
        rename(catalog, path, "a/new")
        assert describe(catalog, "a/new").properties == {"owner": "me"}
        assert deregister(catalog, "a/new").properties == {"owner": "me"}

    def test_table_without_properties_returns_none(self, path: str, catalog: DirectoryNamespace) -> None:
        assert make(catalog, path, 1, properties={}).properties is None
        assert describe(catalog, path).properties is None


class TestListing:
    NESTED = ("a/t", "a/u", "a/b/t", "a-b/t", "é/t", "é/日")

    @pytest.fixture
    def catalog(self, lake: Lake) -> DirectoryNamespace:
        catalog = lake.open()
        spaces(catalog, "a", "a/b", "a-b", "é", "empty")
        for path in self.NESTED:
            make(catalog, path, 1)
        for name in ("z", "B", "t.x", "日"):
            make(catalog, name, 1)
        declare(catalog, "declared")
        declare(catalog, "a/declared")
        for path in ("dropped", "a/dropped"):
            make(catalog, path, 1)
            drop(catalog, path)
        return catalog

    def test_listing_of_a_namespace_is_sorted_by_utf_8_bytes(self, catalog: DirectoryNamespace) -> None:
        assert tables(catalog) == ["B", "declared", "t.x", "z", "日"]
        assert tables(catalog, "a") == ["declared", "t", "u"]
        assert tables(catalog, "a/b") == ["t"]
        assert tables(catalog, "é") == ["t", "日"]
        assert tables(catalog, "empty") == []
        assert tables(catalog, include_declared=False) == ["B", "t.x", "z", "日"]
        assert tables(catalog, "a", include_declared=False) == ["t", "u"]
        for path in ("nothing", "a/nothing", "a/t", "z"):
            with refused(NAMESPACE_NOT_FOUND):
                tables(catalog, path)

    def test_listing_of_all_tables_is_sorted_by_the_bytes_of_the_ids(
        self, catalog: DirectoryNamespace
    ) -> None:
        at_root = ["B", "declared", "t.x", "z", "日"]
        expected = sorted(
            (each.replace("/", "$") for each in (*at_root, *self.NESTED, "a/declared")), key=str.encode
        )
        assert catalog.list_all_tables({}).tables == expected
        without = [each for each in expected if not each.endswith("declared")]
        assert catalog.list_all_tables({"include_declared": False}).tables == without
        for limit in (1, 3, len(expected), len(expected) + 1):
            assert _walk(catalog.list_all_tables, {"limit": limit}) == expected
            found = _walk(catalog.list_all_tables, {"limit": limit, "include_declared": False})
            assert found == without

    def test_pages_list_every_table_of_a_namespace_once(self, catalog: DirectoryNamespace) -> None:
        for path in ("", "a", "é"):
            for declared in (True, False):
                expected = tables(catalog, path, include_declared=declared)
                for limit in (1, 2, 3, 5):
                    request = {"id": ident(path), "limit": limit, "include_declared": declared}
                    assert _walk(catalog.list_tables, request) == expected
        assert tables(catalog, "a", limit=0) == tables(catalog, limit=0) == []
        assert tables(catalog, "a", limit=-1) == tables(catalog, "a")
        assert tables(catalog, "a", page_token="d") == ["declared", "t", "u"]
        assert tables(catalog, page_token="dz") == ["t.x", "z", "日"]

    def test_changes_of_another_client_are_listed_immediately(
        self, lake: Lake, catalog: DirectoryNamespace
    ) -> None:
        other = lake.open()
        assert tables(other, "a/b") == ["t"]
        make(catalog, "a/b/new", 1)
        rename(catalog, "a/b/t", "a/b/renamed")
        assert tables(other, "a/b") == ["new", "renamed"]
        assert tables(other, "a/b", include_declared=False) == ["new", "renamed"]
        drop(catalog, "a/b/new")
        assert tables(other, "a/b") == ["renamed"]
        assert "a/b/new" not in all_tables(other)


def _walk(call: Any, request: dict[str, Any]) -> list[str]:
    """Return all pages together, following the tokens."""
    found: list[str] = []
    token: str | None = None
    while len(found) < 100:
        page = call({**request, "page_token": token})
        found += page.tables
        token = page.page_token
        if token is None:
            return found
        assert len(page.tables) == request["limit"]
        assert token == page.tables[-1]
    raise AssertionError("the pages come to no end")


def test_pylance_reads_and_writes_tables_in_namespaces(any_lake: Lake) -> None:
    catalog = any_lake.open()
    spaces(catalog, "a", "a/b")
    write(catalog, "a/b/t", 1, 2)
    write(catalog, "a/b/t", 3, mode="append")
    assert_whole(any_lake.open(), "a/b/t", 1, 2, 3)
    opened = lance.dataset(namespace_client=catalog, table_id=["a", "b", "t"])
    opened.delete("x = 1")
    opened.merge_insert("x").when_not_matched_insert_all().execute(numbers(3, 4))
    assert rows(catalog, "a/b/t") == [2, 3, 4]
    described = describe(catalog, "a/b/t", load_detailed_metadata=True)
    assert (described.version, described.namespace, described.table) == (4, ["a", "b"], "t")
    assert [each.version for each in catalog.list_table_versions({"id": ["a", "b", "t"]}).versions] == [
        1, 2, 3, 4,
    ]  # fmt: skip
    make(catalog, "t", 7)
    assert_whole(any_lake.open(), "t", 7)
    assert all_tables(catalog) == ["a/b/t", "t"]
    drop(catalog, "a/b/t")
    assert not exists(any_lake.open(), "a/b/t")
    assert namespaces(catalog, "a") == ["b"]
    assert catalog.create_table({"id": ["t"], "mode": "overwrite"}, stream_of(8)).version == 2
