"""Cascading drop of a namespace and its undrop, which restores exactly what that drop removed."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from tests.support.calls import (
    all_tables,
    assert_gone,
    assert_whole,
    declare,
    describe,
    directory,
    drop,
    generations,
    ident,
    make,
    namespaces,
    rename,
    space_exists,
    spaces,
    tables,
)
from tests.support.codes import INVALID_TABLE_STATE, NAMESPACE_EXISTS, NAMESPACE_NOT_FOUND, TABLE_EXISTS
from tests.support.internals import manifest_of
from tests.support.lakes import Lake
from tests.support.modes import V1
from tests.support.roots import refused

from relance import DirectoryNamespace
from relance.catalog.resolve import SoftDeleted


@pytest.fixture
def catalog(lake: Lake) -> DirectoryNamespace:
    """A catalog with a branch of namespaces and tables, and neighbours."""
    catalog = lake.open()
    catalog.create_namespace({"id": ["a"], "properties": {"owner": "me"}})
    spaces(catalog, "a/b", "a/b/c", "a/empty", "z")
    make(catalog, "a/t", 1, properties={"n": "1"})
    make(catalog, "a/b/t", 2)
    declare(catalog, "a/b/c/declared")
    make(catalog, "z/t", 8)
    make(catalog, "t", 9)
    return catalog


TABLES = [("a", "b", "c", "declared"), ("a", "b", "t"), ("a", "t")]
BRANCH = sorted([*TABLES, ("a",), ("a", "b"), ("a", "b", "c"), ("a", "empty")])


def cascade(catalog: DirectoryNamespace, path: str, **context: str) -> dict[str, str]:
    """Drop a namespace with all that is in it, and return the properties of the answer."""
    request: dict[str, Any] = {"id": ident(path), "behavior": "Cascade", "context": context}
    return dict(catalog.drop_namespace(request).properties or {})


def assert_branch_is_whole(catalog: DirectoryNamespace) -> None:
    """Check that everything of the branch is there."""
    assert namespaces(catalog) == ["a", "z"]
    assert namespaces(catalog, "a") == ["b", "empty"]
    assert catalog.describe_namespace({"id": ["a"]}).properties == {"owner": "me"}
    assert_whole(catalog, "a/t", 1)
    assert describe(catalog, "a/t").properties == {"n": "1"}
    assert_whole(catalog, "a/b/t", 2)
    assert describe(catalog, "a/b/c/declared", check_declared=True).is_only_declared is True


def assert_neighbours_are_whole(catalog: DirectoryNamespace) -> None:
    """Check that nothing beside the branch was touched."""
    assert_whole(catalog, "z/t", 8)
    assert_whole(catalog, "t", 9)


def test_cascade_drops_the_whole_subtree_and_undrop_restores_it(
    lake: Lake, catalog: DirectoryNamespace
) -> None:
    files = lake.table_files()
    answer = cascade(catalog, "a", ttl_ms="2d")
    for client in (catalog, lake.open()):
        assert namespaces(client) == ["z"]
        assert all_tables(client) == ["t", "z/t"]
        for path in ("a", "a/b", "a/b/c", "a/empty"):
            assert not space_exists(client, path)
            with refused(NAMESPACE_NOT_FOUND):
                tables(client, path)
    assert_neighbours_are_whole(lake.open())
    assert lake.table_files() == files, "no file is touched"
    dropped = lake.open().list_dropped_tables()
    assert sorted(each.id for each in dropped) == TABLES
    for each in dropped:
        assert each.cascade_id == answer["cascade_id"]
        assert each.purge_after == each.deleted_at + timedelta(days=2)
    assert lake.open().undrop_namespace(["a"]) == BRANCH
    assert_branch_is_whole(lake.open())
    assert_neighbours_are_whole(lake.open())
    assert catalog.list_dropped_tables() == []
    with refused(NAMESPACE_NOT_FOUND):
        catalog.undrop_namespace(["a"])


def test_earlier_drops_stay_dropped_when_a_cascade_is_undone(lake: Lake, catalog: DirectoryNamespace) -> None:
    make(catalog, "a/earlier", 5)
    drop(catalog, "a/earlier")
    catalog.drop_namespace({"id": ["a", "empty"]})
    answer = cascade(catalog, "a")
    back = catalog.undrop_namespace(["a"], cascade_id=answer["cascade_id"])
    assert back == [each for each in BRANCH if each != ("a", "empty")]
    assert namespaces(catalog, "a") == ["b"]
    assert_gone(catalog, "a/earlier")
    catalog.undrop_table(["a", "earlier"])
    assert_whole(lake.open(), "a/earlier", 5)
    assert catalog.undrop_namespace(["a", "empty"]) == [("a", "empty")]


def test_subtree_dropped_separately_is_restored_separately(lake: Lake, catalog: DirectoryNamespace) -> None:
    inner = cascade(catalog, "a/b")
    outer = cascade(catalog, "a")
    assert inner["cascade_id"] != outer["cascade_id"]
    with refused(NAMESPACE_NOT_FOUND):
        catalog.undrop_namespace(["a", "b"])  # its parent is dropped
    assert catalog.undrop_namespace(["a"]) == [("a",), ("a", "empty"), ("a", "t")]
    assert namespaces(catalog, "a") == ["empty"]
    assert catalog.undrop_namespace(["a", "b"]) == [each for each in BRANCH if each[:2] == ("a", "b")]
    assert_branch_is_whole(lake.open())


def test_several_cascades_of_one_name_are_distinguished_by_id(
    lake: Lake, catalog: DirectoryNamespace
) -> None:
    first = cascade(catalog, "a")
    lake.clock.advance(timedelta(minutes=1))
    spaces(catalog, "a")
    make(catalog, "a/second", 7)
    second = cascade(catalog, "a")
    assert lake.open().undrop_namespace(["a"]) == [("a",), ("a", "second")], "the newest, if none is named"
    with refused(NAMESPACE_EXISTS):
        catalog.undrop_namespace(["a"], cascade_id=first["cascade_id"])
    cascade(catalog, "a")
    with refused(NAMESPACE_NOT_FOUND):
        catalog.undrop_namespace(["a"], cascade_id=second["cascade_id"])
    with refused(NAMESPACE_NOT_FOUND):
        catalog.undrop_namespace(["a"], cascade_id="nothing")
    with refused(NAMESPACE_NOT_FOUND):
        catalog.undrop_namespace(["z"], cascade_id=first["cascade_id"])
    assert catalog.undrop_namespace(["a"], cascade_id=first["cascade_id"]) == BRANCH
    assert_branch_is_whole(lake.open())


class TestConflicts:
    def test_undrop_under_a_name_taken_again_is_refused(
        self, lake: Lake, catalog: DirectoryNamespace
    ) -> None:
        cascade(catalog, "a")
        spaces(catalog, "a")
        before = lake.manifest_rows()
        with refused(NAMESPACE_EXISTS) as caught:
            catalog.undrop_namespace(["a"])
        assert "'a'" in str(caught.value)
        assert lake.manifest_rows().keys() == before.keys()
        catalog.drop_namespace({"id": ["a"]})
        lake.clock.advance(timedelta(minutes=1))
        make(catalog, "a", 1)
        with refused(TABLE_EXISTS):
            catalog.undrop_namespace(["a"])
        assert_whole(catalog, "a", 1)
        drop(catalog, "a")
        newest = max(catalog.list_dropped_tables(["a"]), key=lambda each: each.deleted_at)
        catalog.undrop_namespace(["a"], cascade_id=newest.cascade_id)
        assert_branch_is_whole(lake.open())

    def test_undrop_of_a_namespace_requires_its_parent(self, lake: Lake, catalog: DirectoryNamespace) -> None:
        make(catalog, "a/b/c/t", 3)
        cascade(catalog, "a/b/c")
        cascade(catalog, "a")
        with refused(NAMESPACE_NOT_FOUND):
            catalog.undrop_namespace(["a", "b", "c"])
        catalog.undrop_namespace(["a"])
        catalog.undrop_namespace(["a", "b", "c"])
        assert_whole(lake.open(), "a/b/c/t", 3)

    def test_table_of_a_cascade_can_be_undropped_alone(self, lake: Lake, catalog: DirectoryNamespace) -> None:
        cascade(catalog, "a")
        with refused(NAMESPACE_NOT_FOUND):
            catalog.undrop_table(["a", "t"])
        catalog.undrop_table(["a", "t"], new_id=["z", "saved"])
        assert_whole(lake.open(), "z/saved", 1)
        assert catalog.undrop_namespace(["a"]) == [each for each in BRANCH if each != ("a", "t")]
        rename(catalog, "z/saved", "a/t")
        assert_branch_is_whole(lake.open())

    def test_purge_of_one_table_in_a_cascade_leaves_the_rest(
        self, lake: Lake, catalog: DirectoryNamespace
    ) -> None:
        place = directory(lake, "a/t")
        cascade(catalog, "a")
        catalog.purge_table(["a", "t"], force=True)
        assert not (lake.folder / place).exists()
        assert catalog.undrop_namespace(["a"]) == [each for each in BRANCH if each != ("a", "t")]
        assert_whole(lake.open(), "a/b/t", 2)
        assert_gone(lake.open(), "a/t")

    def test_table_cannot_be_created_in_a_dropped_namespace(self, catalog: DirectoryNamespace) -> None:
        cascade(catalog, "a")
        for path in ("a/new", "a/b/new", "a/t"):
            with refused(NAMESPACE_NOT_FOUND):
                make(catalog, path, 1)
            with refused(NAMESPACE_NOT_FOUND):
                declare(catalog, path)


class TestPurge:
    def test_expired_cascade_is_purged_completely(self, lake: Lake, catalog: DirectoryNamespace) -> None:
        cascade(catalog, "a", ttl_ms="1h")
        assert catalog.purge_tables() == []
        lake.clock.advance(timedelta(hours=2))
        purged = catalog.purge_tables()
        assert sorted(each.id for each in purged) == [
            ("a", "b", "c", "declared"),
            ("a", "b", "t"),
            ("a", "t"),
        ]
        assert all(each.purged for each in purged)
        assert_neighbours_are_whole(lake.open())
        assert lake.directories() == {directory(lake, "t"), directory(lake, "z/t")}
        assert [each for each in lake.manifest_rows() if each.startswith("__dropped$")] == ["__dropped$head"]
        with refused(NAMESPACE_NOT_FOUND):
            catalog.undrop_namespace(["a"])

    def test_purge_dry_run_keeps_the_namespaces_of_a_cascade(
        self, lake: Lake, catalog: DirectoryNamespace
    ) -> None:
        cascade(catalog, "a", ttl_ms="1h")
        lake.clock.advance(timedelta(hours=2))
        assert len(catalog.purge_tables(dry_run=True)) == 3
        assert catalog.undrop_namespace(["a"]) == BRANCH
        assert_branch_is_whole(lake.open())


def test_retention_of_a_cascade_comes_from_its_namespace(lake: Lake, catalog: DirectoryNamespace) -> None:
    catalog.create_namespace({"id": ["a"], "mode": "overwrite", "properties": {"drop_ttl": "5h"}})
    cascade(catalog, "a")
    for each in catalog.list_dropped_tables():
        assert each.purge_after == each.deleted_at + timedelta(hours=5)


def test_status_of_a_table_includes_its_cascade_id(lake: Lake, catalog: DirectoryNamespace) -> None:
    answer = cascade(catalog, "a")
    status = catalog.table_status(["a", "t"])
    assert isinstance(status, SoftDeleted)
    assert status.cascade_id == answer["cascade_id"]
    assert generations(catalog, "a/t") == [status.deletion_id]
    spaces(catalog, "a")
    catalog.undrop_table(["a", "t"], deletion_id=status.deletion_id)
    assert_whole(lake.open(), "a/t", 1)


def test_large_cascade_and_its_undrop_take_one_commit_each(lake: Lake) -> None:
    catalog = lake.open()
    spaces(catalog, "big", *(f"big/n{number}" for number in range(15)))
    for number in range(15):
        declare(catalog, f"big/n{number}/t")
    before = lake.manifest_rows()
    version = manifest_of(catalog).latest().version
    cascade(catalog, "big")
    assert len(catalog.undrop_namespace(["big"])) == 31
    assert manifest_of(catalog).latest().version == version + 2
    assert lake.manifest_rows() == before


def test_cascade_works_on_an_object_store(any_lake: Lake) -> None:
    catalog = any_lake.open()
    spaces(catalog, "a", "a/b")
    make(catalog, "a/b/t", 1)
    make(catalog, "t", 2)
    cascade(catalog, "a")
    assert all_tables(any_lake.open()) == ["t"]
    assert catalog.undrop_namespace(["a"]) == [("a",), ("a", "b"), ("a", "b", "t")]
    assert_whole(any_lake.open(), "a/b/t", 1)
    with refused(INVALID_TABLE_STATE):
        catalog.purge_table(["a", "b", "t"], force=True)


def test_namespace_whose_name_a_v1_client_has_freed_again_can_be_undropped(compatible: Lake) -> None:
    catalog = compatible.open()
    spaces(catalog, "x")
    make(catalog, "x/t", 1)
    catalog.drop_namespace({"id": ["x"], "behavior": "Cascade"})
    make(catalog, "x", 2)
    drop(compatible.open(V1), "x")  # the row of its home directory stays at the id
    compatible.open().undrop_namespace(["x"])
    assert_whole(compatible.open(), "x/t", 1)
    assert [each.id for each in compatible.open().list_dropped_tables()] == [("x",)]
