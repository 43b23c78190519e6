"""Namespaces as rows: modes in any spelling, parents, properties, pages; what is refused changes nothing."""

from __future__ import annotations

from typing import Any

import lancedb
import pytest
from tests.support.calls import (
    IMPLEMENTATION,
    all_tables,
    assert_whole,
    declare,
    drop,
    exists,
    ident,
    make,
    namespaces,
    rename,
    rows,
    space_exists,
    spaces,
    tables,
)
from tests.support.codes import (
    INVALID_INPUT,
    NAMESPACE_EXISTS,
    NAMESPACE_NOT_EMPTY,
    NAMESPACE_NOT_FOUND,
    TABLE_EXISTS,
    TABLE_NOT_FOUND,
)
from tests.support.lakes import Lake
from tests.support.modes import V1
from tests.support.roots import refused

from relance import DirectoryNamespace
from relance.identifiers import format_id

CREATE = ("create", "Create", "CREATE", None)
EXIST_OK = ("exist_ok", "ExistOk", "EXIST_OK", "existok")
OVERWRITE = ("overwrite", "Overwrite", "OVERWRITE")


def create(catalog: DirectoryNamespace, path: str, **fields: Any) -> dict[str, str] | None:
    """Create a namespace and return the properties of the answer."""
    return catalog.create_namespace({"id": ident(path), **fields}).properties


def drop_space(catalog: DirectoryNamespace, path: str, **fields: Any) -> dict[str, str] | None:
    """Drop a namespace and return the properties of the answer."""
    return catalog.drop_namespace({"id": ident(path), **fields}).properties


def properties(catalog: DirectoryNamespace, path: str) -> dict[str, str] | None:
    """Return the properties of a namespace."""
    return catalog.describe_namespace({"id": ident(path)}).properties


def test_namespaces_nest_and_are_visible_to_every_client(any_lake: Lake) -> None:
    catalog = any_lake.open()
    assert create(catalog, "a", properties={"owner": "me"}) == {"owner": "me"}
    assert create(catalog, "a/b") is None
    create(catalog, "a/b/c", properties={"é": "日本語"})
    other = any_lake.open()
    assert namespaces(other) == ["a"]
    assert namespaces(other, "a") == ["b"]
    assert namespaces(other, "a/b") == ["c"]
    assert namespaces(other, "a/b/c") == []
    assert properties(other, "a") == {"owner": "me"}
    assert properties(other, "a/b") == {}
    assert properties(other, "a/b/c") == {"é": "日本語"}
    assert tables(other, "a/b") == []
    drop_space(other, "a/b/c")
    assert not space_exists(catalog, "a/b/c")
    assert namespaces(catalog, "a/b") == []


class TestEmptyRoot:
    def test_reads_of_an_empty_root_find_and_write_nothing(
        self, lake: Lake, catalog: DirectoryNamespace
    ) -> None:
        assert namespaces(catalog) == tables(catalog) == all_tables(catalog) == []
        assert properties(catalog, "") == {}
        catalog.namespace_exists({"id": []})
        for path in ("a", "a/b"):
            for look in (namespaces, tables, properties):
                with refused(NAMESPACE_NOT_FOUND):
                    look(catalog, path)
            assert not space_exists(catalog, path)
            assert not exists(catalog, path)
        assert catalog.list_dropped_tables() == []
        assert not lake.folder.exists()

    def test_refused_operations_on_an_empty_root_write_nothing(
        self, lake: Lake, catalog: DirectoryNamespace
    ) -> None:
        with refused(NAMESPACE_NOT_FOUND):
            create(catalog, "a/b")
        with refused(NAMESPACE_NOT_FOUND):
            drop_space(catalog, "a")
        with refused(NAMESPACE_NOT_FOUND):
            make(catalog, "a/t")
        with refused(NAMESPACE_NOT_FOUND):
            declare(catalog, "a/t")
        with refused(NAMESPACE_NOT_FOUND):
            drop(catalog, "a/t")
        assert drop_space(catalog, "a", mode="Skip") is None
        assert not lake.folder.exists()

    def test_root_namespace_always_exists_and_cannot_be_dropped(
        self, lake: Lake, catalog: DirectoryNamespace
    ) -> None:
        for mode in ("create", "overwrite", None):
            with refused(NAMESPACE_EXISTS):
                create(catalog, "", mode=mode)
        assert create(catalog, "", mode="ExistOk") is None
        for behavior in ("Restrict", "Cascade"):
            with refused(INVALID_INPUT):
                drop_space(catalog, "", behavior=behavior, mode="Skip")
        assert properties(catalog, "") == {}
        assert catalog.describe_namespace({}).properties == {}, "no id means the root"
        assert not lake.folder.exists()


class TestCreateModes:
    def test_create_of_an_existing_namespace_is_refused(self, catalog: DirectoryNamespace) -> None:
        create(catalog, "a", properties={"n": "1"})
        for mode in CREATE:
            with refused(NAMESPACE_EXISTS) as caught:
                create(catalog, "a", mode=mode, properties={"n": "2"})
            assert "'a'" in str(caught.value)
        assert properties(catalog, "a") == {"n": "1"}

    def test_exist_ok_keeps_an_existing_namespace_and_returns_its_properties(
        self, catalog: DirectoryNamespace
    ) -> None:
        for mode in EXIST_OK:
            assert create(catalog, "a", mode=mode, properties={"n": mode}) == {"n": EXIST_OK[0]}
        assert properties(catalog, "a") == {"n": EXIST_OK[0]}

    def test_overwrite_replaces_only_the_properties(self, catalog: DirectoryNamespace) -> None:
        create(catalog, "a", mode="overwrite", properties={"n": "1", "old": "yes"})
        spaces(catalog, "a/b")
        make(catalog, "a/t", 1)
        for mode in OVERWRITE:
            assert create(catalog, "a", mode=mode, properties={"n": mode}) == {"n": mode}
            assert properties(catalog, "a") == {"n": mode}
        assert namespaces(catalog, "a") == ["b"]
        assert_whole(catalog, "a/t", 1)
        assert create(catalog, "a", mode="overwrite") is None
        assert properties(catalog, "a") == {}

    def test_unknown_create_mode_is_refused_and_named(self, v2: Lake) -> None:
        for mode in ("bogus", "", "create ", "append"):
            with refused(INVALID_INPUT) as caught:
                create(v2.open(), "a", mode=mode)
            assert repr(mode) in str(caught.value)
        assert not v2.folder.exists()

    def test_create_requires_an_existing_parent_in_every_mode(self, v2: Lake) -> None:
        catalog = v2.open()
        spaces(catalog, "a")
        make(catalog, "a/t")
        for mode in ("create", "exist_ok", "overwrite"):
            for path in ("x/y", "a/b/c", "a/t/c"):
                with refused(NAMESPACE_NOT_FOUND) as caught:
                    create(catalog, path, mode=mode)
                assert format_id(ident(path)[:-1]) in str(caught.value), "the one that is missing is named"
        assert namespaces(catalog) == ["a"]
        assert namespaces(catalog, "a") == []

    def test_reserved_property_keys_are_refused(self, v2: Lake) -> None:
        catalog = v2.open()
        for key in ("relance.marker", "relance.protected", "relance.anything"):
            with refused(INVALID_INPUT):
                create(catalog, "a", properties={key: "x"})
        assert namespaces(catalog) == []


class TestTakenIds:
    def test_namespace_cannot_take_the_id_of_a_table(self, catalog: DirectoryNamespace) -> None:
        spaces(catalog, "a")
        for path in ("o", "a/o"):
            make(catalog, path, 7)
            for mode in ("create", "exist_ok", "overwrite"):
                with refused(NAMESPACE_EXISTS) as caught:
                    create(catalog, path, mode=mode)
                assert "table" in str(caught.value)
            for behavior in ("restrict", "cascade"):
                with refused(NAMESPACE_NOT_FOUND):
                    drop_space(catalog, path, behavior=behavior)
            assert_whole(catalog, path, 7)

    @pytest.mark.parametrize("path", ["o", "a/o"])
    def test_table_cannot_take_the_id_of_a_namespace(
        self, path: str, lake: Lake, catalog: DirectoryNamespace
    ) -> None:
        create(catalog, "a")
        create(catalog, path)
        make(catalog, "t", 1)
        make(catalog, "gone", 2)
        drop(catalog, "gone")
        before = lake.table_files()
        for mode in ("create", "exist_ok", "overwrite"):
            with refused(TABLE_EXISTS) as caught:
                make(catalog, path, mode=mode)
            assert "namespace" in str(caught.value)
        with refused(TABLE_EXISTS):
            declare(catalog, path)
        with refused(TABLE_EXISTS):
            rename(catalog, "t", path)
        with refused(TABLE_EXISTS):
            catalog.undrop_table(["gone"], new_id=ident(path))
        with refused(TABLE_NOT_FOUND):
            drop(catalog, path)
        assert not exists(catalog, path)
        assert lake.table_files() == before
        assert_whole(catalog, "t", 1)

    def test_namespace_cannot_take_the_id_of_a_table_without_a_row(self, compatible: Lake) -> None:
        make(compatible.open(V1), "t", 1)
        catalog = compatible.open()
        with refused(NAMESPACE_EXISTS):
            create(catalog, "t")
        drop(catalog, "t")
        create(catalog, "t")
        with refused(TABLE_EXISTS):
            catalog.undrop_table(["t"])
        assert catalog.undrop_table(["t"], new_id=["t", "t"]).id == ("t", "t")
        assert_whole(catalog, "t/t", 1)


class TestDrop:
    def test_drop_with_skip_ignores_a_missing_namespace(self, catalog: DirectoryNamespace) -> None:
        spaces(catalog, "a")
        for mode in ("skip", "Skip", "SKIP"):
            for path in ("b", "a/b", "x/y"):
                assert drop_space(catalog, path, mode=mode) is None
        assert drop_space(catalog, "a", mode="skip")
        assert drop_space(catalog, "a", mode="skip") is None
        assert namespaces(catalog) == []

    def test_drop_with_fail_refuses_a_missing_namespace(self, catalog: DirectoryNamespace) -> None:
        spaces(catalog, "a")
        for mode in ("fail", "Fail", "FAIL", None):
            for path in ("b", "a/b", "x/y"):
                with refused(NAMESPACE_NOT_FOUND):
                    drop_space(catalog, path, mode=mode)
        drop_space(catalog, "a", mode="fail")
        with refused(NAMESPACE_NOT_FOUND):
            drop_space(catalog, "a", mode="fail")

    def test_drop_with_restrict_refuses_a_namespace_that_is_not_empty(
        self, catalog: DirectoryNamespace
    ) -> None:
        spaces(catalog, "a", "a/b", "c")
        declare(catalog, "c/t")
        for behavior in ("restrict", "Restrict", "RESTRICT", None):
            for mode in ("Skip", "Fail"):
                for path, inside in (("a", "a.b"), ("c", "c.t")):
                    with refused(NAMESPACE_NOT_EMPTY) as caught:
                        drop_space(catalog, path, mode=mode, behavior=behavior)
                    assert inside in str(caught.value)
        assert namespaces(catalog) == ["a", "c"]
        assert exists(catalog, "c/t")

    def test_unknown_drop_mode_or_behavior_is_refused_and_named(self, catalog: DirectoryNamespace) -> None:
        spaces(catalog, "a")
        for field in ("mode", "behavior"):
            with refused(INVALID_INPUT) as caught:
                drop_space(catalog, "a", **{field: "bogus"})
            assert "'bogus'" in str(caught.value)
        assert namespaces(catalog) == ["a"]

    def test_dropped_table_does_not_block_the_drop_of_its_namespace(
        self, catalog: DirectoryNamespace
    ) -> None:
        spaces(catalog, "a")
        make(catalog, "a/t", 1)
        drop(catalog, "a/t")
        drop_space(catalog, "a")
        with refused(NAMESPACE_NOT_FOUND):
            catalog.undrop_table(["a", "t"])
        spaces(catalog, "a")
        catalog.undrop_table(["a", "t"])
        assert_whole(catalog, "a/t", 1)

    def test_cascade_keeps_namespaces_with_similar_names(self, catalog: DirectoryNamespace) -> None:
        spaces(catalog, "a", "a!", "a-b", "a b", "aa", "A", "á")
        make(catalog, "aa/t", 1)
        make(catalog, "a.t", 2)
        spaces(catalog, "a/x")
        drop_space(catalog, "a", behavior="Cascade")
        assert namespaces(catalog) == ["A", "a b", "a!", "a-b", "aa", "á"]
        assert_whole(catalog, "aa/t", 1)
        assert_whole(catalog, "a.t", 2)

    def test_drop_response_has_the_cascade_id_for_undrop(
        self, lake: Lake, catalog: DirectoryNamespace
    ) -> None:
        spaces(catalog, "a")
        answer = drop_space(catalog, "a", context={"ttl_ms": "1h"})
        assert answer is not None
        assert int(answer["deleted_at_ms"]) == int(lake.clock.now().timestamp() * 1000)
        assert int(answer["purge_after_ms"]) - int(answer["deleted_at_ms"]) == 3_600_000
        assert catalog.undrop_namespace(["a"], cascade_id=answer["cascade_id"]) == [("a",)]
        assert namespaces(catalog) == ["a"]


NAMES = ("z9", "z10", "a", "B", "_u", "é", "t.x", "t", "日", "😀", "t-x", "it's")


@pytest.fixture(scope="module")
def named(tmp_path_factory: pytest.TempPathFactory) -> DirectoryNamespace:
    """A catalog with namespaces of many names below p, which tests only look at."""
    catalog = DirectoryNamespace(root=tmp_path_factory.mktemp("named"))
    spaces(catalog, "p", *(f"p/{name}" for name in NAMES))
    # Children of the children come between them in the order of ids, and must not show.
    spaces(catalog, "p/a/x", "p/a/x/y", "p/t/x", "p/t/z", "px", "o")
    declare(catalog, "p/a/table")
    declare(catalog, "p/table")
    return catalog


class TestPages:
    def test_namespaces_are_sorted_by_their_utf_8_bytes(self, named: DirectoryNamespace) -> None:
        assert namespaces(named, "p") == sorted(NAMES, key=str.encode)
        assert namespaces(named) == ["o", "p", "px"]
        assert namespaces(named, "p/t") == ["x", "z"]

    @pytest.mark.parametrize("limit", [1, 2, 5, 11, 12, 13])
    def test_pages_list_every_namespace_once_in_order(self, limit: int, named: DirectoryNamespace) -> None:
        found: list[str] = []
        token: str | None = None
        while len(found) <= len(NAMES):
            page = named.list_namespaces({"id": ["p"], "limit": limit, "page_token": token})
            assert len(page.namespaces) <= limit
            found += page.namespaces
            token = page.page_token
            if token is None:
                break
            assert len(page.namespaces) == limit
            assert token == page.namespaces[-1]
        assert found == sorted(NAMES, key=str.encode)

    def test_edge_case_limits_and_page_tokens_are_accepted(self, named: DirectoryNamespace) -> None:
        assert namespaces(named, "p", limit=0) == []
        assert namespaces(named, "p", limit=-1) == namespaces(named, "p")
        assert namespaces(named, "p", page_token="") == namespaces(named, "p")
        assert namespaces(named, "p", page_token="t") == ["t-x", "t.x", "z10", "z9", "é", "日", "😀"]
        assert namespaces(named, "p", page_token="tz", limit=1) == ["z10"], "a token need not be a name"
        assert namespaces(named, "p", page_token="😀") == []


def test_page_token_of_a_dropped_namespace_still_works(lake: Lake) -> None:
    catalog = lake.open()
    spaces(catalog, "a", "b", "c", "d", "b/inside")
    token = catalog.list_namespaces({"id": [], "limit": 2}).page_token
    assert token == "b"
    drop_space(lake.open(), "b", behavior="Cascade")
    assert namespaces(catalog, page_token=token, limit=1) == ["c"]


@pytest.mark.parametrize(
    "parts",
    [None, "a", 7, [7], [None], {"a": "b"}, [""], ["a", ""], ["a$b"], ["a/b"], [".."],
     ["a", "x" * 221], ["a", "e\u0301"], ["a", "b\0"], ["a", " b"]],
    ids=ascii,
)  # fmt: skip
def test_invalid_namespace_id_is_refused_by_every_operation(parts: Any, v2: Lake) -> None:
    catalog: Any = v2.open()
    spaces(catalog, "a")
    before = v2.files()
    for call in (
        catalog.create_namespace,
        catalog.drop_namespace,
        catalog.namespace_exists,
        catalog.list_namespaces,
        catalog.list_tables,
    ):
        with refused(INVALID_INPUT):
            call({"id": parts})
    if parts is not None:
        with refused(INVALID_INPUT):
            catalog.describe_namespace({"id": parts})
    if isinstance(parts, list):
        for act in (catalog.undrop_namespace, catalog.protect, catalog.unprotect):
            with refused(INVALID_INPUT):
                act(parts)
    assert v2.files() == before


def test_unusual_namespace_names_work_like_any_other(v2: Lake) -> None:
    odd = ("it's", "a b", "é", "😀", "[a]", "_", "--x", "x" * 220)
    catalog = v2.open()
    for name in odd:
        spaces(catalog, name, f"{name}/{name}")
        make(catalog, f"{name}/{name}/{name}", 1)
    assert namespaces(catalog) == sorted(odd, key=str.encode)
    for name in odd:
        assert namespaces(v2.open(), name) == [name]
        assert_whole(v2.open(), f"{name}/{name}/{name}", 1)
        drop_space(catalog, name, behavior="Cascade")
    assert namespaces(catalog) == []
    for name in odd:
        catalog.undrop_namespace([name])
        assert rows(catalog, f"{name}/{name}/{name}") == [1]


class TestLancedb:
    @pytest.fixture
    def database(self, any_lake: Lake) -> Any:
        return lancedb.connect_namespace(IMPLEMENTATION, {**any_lake.properties, **any_lake.mode})

    def test_lancedb_modes_and_behaviors_are_honoured(self, database: Any) -> None:
        database.create_namespace(["a"], properties={"n": "1"})
        with pytest.raises(Exception, match="Namespace already exists"):
            database.create_namespace(["a"])
        assert database.create_namespace(["a"], mode="exist_ok").properties == {"n": "1"}
        database.create_namespace(["a"], mode="overwrite", properties={"n": "2"})
        assert database.describe_namespace(["a"]).properties == {"n": "2"}
        database.create_namespace(["a", "b"])
        assert database.list_namespaces().namespaces == ["a"]
        assert database.list_namespaces(["a"]).namespaces == ["b"]
        with pytest.raises(Exception, match="Namespace not empty"):
            database.drop_namespace(["a"], behavior="restrict")
        with pytest.raises(Exception, match="Namespace not found"):
            database.drop_namespace(["x"], mode="fail")
        database.drop_namespace(["x"], mode="skip")
        database.drop_namespace(["a"], behavior="cascade")
        assert database.list_namespaces().namespaces == []
        assert database.namespace_exists(["a"]) is False

    def test_lancedb_tables_live_in_namespaces(self, database: Any, any_lake: Lake) -> None:
        database.create_namespace(["a"])
        table = database.create_table("t", [{"x": 1}, {"x": 2}], namespace_path=["a"])
        table.add([{"x": 3}])
        catalog = any_lake.open()
        assert_whole(catalog, "a/t", 1, 2, 3)
        assert database.open_table("t", namespace_path=["a"]).count_rows() == 3
        with pytest.raises(Exception, match="already exists"):
            database.create_table("t", [{"x": 1}], namespace_path=["a"])
        database.create_namespace(["b"])
        database.rename_table("t", "u", cur_namespace_path=["a"], new_namespace_path=["b"])
        assert database.list_tables(["a"]).tables == []
        assert database.list_tables(["b"]).tables == ["u"]
        assert database.open_table("u", namespace_path=["b"]).count_rows() == 3
        database.drop_table("u", namespace_path=["b"])
        with pytest.raises(Exception, match="not found"):
            database.open_table("u", namespace_path=["b"])
        catalog.undrop_table(["b", "u"])
        assert database.open_table("u", namespace_path=["b"]).count_rows() == 3
