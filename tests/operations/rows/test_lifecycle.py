"""Drop, undrop, purge with a manifest: TTLs, generations of a name, conflicts, what clients write over."""

from __future__ import annotations

import shutil
from datetime import timedelta
from typing import Any

import lance
import lancedb
import pytest
from tests.support.calls import (
    IMPLEMENTATION,
    assert_gone,
    assert_whole,
    declare,
    describe,
    directory,
    drop,
    generations,
    ident,
    make,
    register,
    rename,
    rows,
    spaces,
    tables,
    write,
)
from tests.support.codes import (
    INVALID_INPUT,
    INVALID_TABLE_STATE,
    NAMESPACE_NOT_FOUND,
    TABLE_EXISTS,
    TABLE_NOT_FOUND,
)
from tests.support.lakes import Lake
from tests.support.roots import numbers, refused

from relance import DirectoryNamespace
from relance.catalog.resolve import Exists, NotFound, SoftDeleted
from relance.clock import to_millis
from relance.identifiers import format_id

WEEK = timedelta(days=7)
SKEW = timedelta(minutes=5)

BOTH = pytest.mark.parametrize("path", ["t", "a/t"])


@pytest.fixture
def catalog(lake: Lake) -> DirectoryNamespace:
    """A catalog with a namespace."""
    catalog = lake.open()
    spaces(catalog, "a")
    return catalog


def lifetime(answer: dict[str, str]) -> timedelta:
    """Return the TTL that the answer to a drop tells."""
    return timedelta(milliseconds=int(answer["purge_after_ms"]) - int(answer["deleted_at_ms"]))


class TestDrop:
    @BOTH
    def test_drop_response_has_the_location_properties_and_expiry(
        self, path: str, lake: Lake, catalog: DirectoryNamespace
    ) -> None:
        location = make(catalog, path, 1, properties={"owner": "me"}).location
        before = {key: body for key, body in lake.table_files().items() if "/data/" in key}
        response = catalog.drop_table({"id": ident(path)})
        assert (response.id, response.location) == (ident(path), location)
        answer = dict(response.properties or {})
        assert answer["owner"] == "me"
        assert int(answer["deleted_at_ms"]) == to_millis(lake.clock.now())
        assert lifetime(answer) == WEEK
        assert generations(catalog, path) == [answer["deletion_id"]]
        assert_gone(lake.open(), path)
        assert before.items() <= lake.table_files().items(), "no file is touched"
        with refused(TABLE_NOT_FOUND) as caught:
            describe(catalog, path)
        assert "undrop_table" in str(caught.value)
        with refused(TABLE_NOT_FOUND):
            drop(catalog, path)

    @BOTH
    def test_declared_table_can_be_dropped_and_undropped(
        self, path: str, catalog: DirectoryNamespace
    ) -> None:
        declare(catalog, path)
        drop(catalog, path)
        assert_gone(catalog, path)
        catalog.undrop_table(ident(path))
        assert describe(catalog, path, check_declared=True).is_only_declared is True

    @BOTH
    def test_drop_with_purge_removes_the_files_immediately(
        self, path: str, lake: Lake, catalog: DirectoryNamespace
    ) -> None:
        make(catalog, path, 1)
        place = directory(lake, path)
        answer = drop(catalog, path, purge="true")
        assert answer["purged"] == "true"
        assert int(answer["files"]) > 0
        assert not (lake.folder / place).exists()
        assert catalog.table_status(ident(path)) == NotFound(tuple(ident(path)))
        assert generations(catalog, path) == []
        make(catalog, path, 2)
        assert_whole(lake.open(), path, 2)

    @BOTH
    def test_invalid_drop_options_are_refused_and_nothing_is_dropped(
        self, path: str, lake: Lake, catalog: DirectoryNamespace
    ) -> None:
        make(catalog, path, 1)
        before = lake.files()
        for wishes in ({"ttl_ms": "soon"}, {"ttl_ms": "-1"}, {"purge": "maybe"}, {"ttl_ms": "99999999w"}):
            with refused(INVALID_INPUT):
                drop(catalog, path, **wishes)
        assert lake.files() == before


class TestRetention:
    @BOTH
    def test_retention_comes_from_the_request_then_the_table_then_the_catalog(
        self, path: str, lake: Lake
    ) -> None:
        catalog = lake.open(drop_ttl="3d")
        spaces(catalog, "a")
        make(catalog, path, 1, properties={"drop_ttl": "2h"})
        assert lifetime(drop(catalog, path, ttl_ms="90s")) == timedelta(seconds=90)
        catalog.undrop_table(ident(path))
        assert lifetime(drop(catalog, path)) == timedelta(hours=2)
        make(catalog, "other", 1)
        assert lifetime(drop(catalog, "other")) == timedelta(days=3)

    def test_retention_of_the_nearest_namespace_overrides_the_catalog(self, lake: Lake) -> None:
        catalog = lake.open()
        catalog.create_namespace({"id": ["a"], "properties": {"drop_ttl": "10d"}})
        catalog.create_namespace({"id": ["a", "b"]})
        catalog.create_namespace({"id": ["a", "b", "c"], "properties": {"drop_ttl": "12h"}})
        for path, expected in (
            ("a/t", timedelta(days=10)),
            ("a/b/t", timedelta(days=10)),
            ("a/b/c/t", timedelta(hours=12)),
            ("t", WEEK),
        ):
            make(catalog, path, 1)
            assert lifetime(drop(catalog, path)) == expected
        make(catalog, "a/b/own", 1, properties={"drop_ttl": "1m"})
        assert lifetime(drop(catalog, "a/b/own")) == timedelta(minutes=1)

    def test_retention_period_is_fixed_when_the_table_is_dropped(
        self, lake: Lake, catalog: DirectoryNamespace
    ) -> None:
        make(catalog, "a/t", 1)
        drop(catalog, "a/t")
        catalog.create_namespace({"id": ["a"], "mode": "overwrite", "properties": {"drop_ttl": "1ms"}})
        (dropped,) = lake.open(drop_ttl="1s").list_dropped_tables()
        assert (
            dropped.purge_after == lake.clock.now().replace(microsecond=dropped.deleted_at.microsecond) + WEEK
        )

    @pytest.mark.parametrize("ttl", ["soon", "30"])
    def test_drop_with_an_invalid_drop_ttl_property_is_refused(
        self, catalog: DirectoryNamespace, ttl: str
    ) -> None:
        make(catalog, "a/t", 1, properties={"drop_ttl": ttl})
        with refused(INVALID_INPUT) as caught:
            drop(catalog, "a/t")
        assert "drop_ttl" in str(caught.value)
        assert_whole(catalog, "a/t", 1)
        drop(catalog, "a/t", ttl_ms="1h")


class TestGenerations:
    @BOTH
    def test_generations_are_listed_and_undropped_by_id_or_under_a_new_name(
        self, path: str, lake: Lake, catalog: DirectoryNamespace
    ) -> None:
        ids = []
        for number in (1, 2, 3):
            write(catalog, path, number)
            lake.clock.advance(timedelta(minutes=1))
            ids.append(drop(catalog, path)["deletion_id"])
        assert generations(catalog, path) == ids
        status = catalog.table_status(ident(path))
        assert isinstance(status, SoftDeleted)
        assert status.deletion_id == ids[2], "the newest tells for the name"
        assert catalog.undrop_table(ident(path), deletion_id=ids[1]) == Exists(tuple(ident(path)))
        assert_whole(lake.open(), path, 2)
        assert generations(catalog, path) == [ids[0], ids[2]]
        new = ["a", "first"]
        assert catalog.undrop_table(ident(path), deletion_id=ids[0], new_id=new) == Exists(tuple(new))
        assert_whole(lake.open(), "a/first", 1)
        assert_whole(lake.open(), path, 2)
        with refused(TABLE_EXISTS) as caught:
            catalog.undrop_table(ident(path))
        assert format_id(ident(path)) in str(caught.value), "the live table is named"
        catalog.undrop_table(ident(path), new_id=["third"])
        assert_whole(lake.open(), "third", 3)
        # A table in its home directory is copied, and the drop stays.
        left = [] if lake.is_v2 or path != "t" else [ids[0]]
        assert generations(catalog, path) == left

    @BOTH
    def test_undrop_without_a_deletion_id_restores_the_newest_generation(
        self, path: str, lake: Lake, catalog: Any
    ) -> None:
        for number in (1, 2):
            write(catalog, path, number)
            lake.clock.advance(timedelta(minutes=1))
            drop(catalog, path)
        catalog.undrop_table(ident(path))
        assert_whole(lake.open(), path, 2)

    @BOTH
    def test_generations_dropped_at_the_same_instant_are_distinguished_by_id(
        self, path: str, lake: Lake, catalog: DirectoryNamespace
    ) -> None:
        ids = []
        for number in (1, 2, 3):
            write(catalog, path, number)
            ids.append(drop(catalog, path)["deletion_id"])
        for number, deletion_id in zip((1, 2, 3), ids, strict=True):
            catalog.undrop_table(ident(path), deletion_id=deletion_id, new_id=["a", f"n{number}"])
            assert_whole(lake.open(), f"a/n{number}", number)

    @BOTH
    def test_undrop_and_purge_by_an_unknown_deletion_id_are_not_found(
        self, path: str, catalog: DirectoryNamespace
    ) -> None:
        make(catalog, path, 1)
        with refused(TABLE_EXISTS):
            catalog.undrop_table(ident(path))
        drop(catalog, path)
        make(catalog, "a/other", 1)
        other = drop(catalog, "a/other")["deletion_id"]
        for wrong in ("nothing", "", other, "it's"):
            with refused(TABLE_NOT_FOUND):
                catalog.undrop_table(ident(path), deletion_id=wrong)
            with refused(TABLE_NOT_FOUND):
                catalog.purge_table(ident(path), deletion_id=wrong, force=True)
        for path_ in ("nothing", "a/nothing", "x/nothing"):
            with refused(TABLE_NOT_FOUND):
                catalog.undrop_table(ident(path_))

    @BOTH
    def test_undrop_under_a_taken_name_or_missing_namespace_is_refused(
        self, path: str, catalog: DirectoryNamespace
    ) -> None:
        make(catalog, path, 1)
        make(catalog, "live", 2)
        make(catalog, "a/live", 3)
        drop(catalog, path)
        for taken in ("live", "a/live"):
            with refused(TABLE_EXISTS):
                catalog.undrop_table(ident(path), new_id=ident(taken))
        with refused(NAMESPACE_NOT_FOUND):
            catalog.undrop_table(ident(path), new_id=["x", "t"])
        with refused(INVALID_INPUT):
            catalog.undrop_table(ident(path), new_id=["a", ".."])
        assert len(generations(catalog, path)) == 1
        catalog.undrop_table(ident(path))
        assert_whole(catalog, path, 1)

    @BOTH
    def test_repeated_drop_and_undrop_keeps_the_directory(
        self, path: str, lake: Lake, catalog: DirectoryNamespace
    ) -> None:
        make(catalog, path, 1)
        place = directory(lake, path)
        for _ in range(3):
            drop(catalog, path)
            catalog.undrop_table(ident(path))
            assert_whole(lake.open(), path, 1)
        assert directory(lake, path) == place
        assert lake.directories() == {place}


class TestWritingOverADroppedName:
    @BOTH
    def test_create_continues_the_newest_dropped_generation(
        self, path: str, lake: Lake, catalog: DirectoryNamespace
    ) -> None:
        write(catalog, path, 1)
        older = drop(catalog, path)["deletion_id"]
        lake.clock.advance(timedelta(minutes=1))
        write(catalog, path, 2)
        newest = directory(lake, path)
        drop(catalog, path)
        for number, mode in enumerate(("create", "exist_ok", "overwrite"), 2):
            answer = make(catalog, path, 10 * number, mode=mode)
            assert answer.version == number
            assert_whole(lake.open(), path, 10 * number)
            assert rows(catalog, path, version=1) == [2], "its history stays"
            assert directory(lake, path) == newest
            assert generations(catalog, path) == [older]
            drop(catalog, path)
        catalog.undrop_table(ident(path), deletion_id=older)
        assert_whole(lake.open(), path, 1)

    @BOTH
    def test_create_over_a_dropped_name_keeps_or_replaces_the_properties(
        self, path: str, catalog: DirectoryNamespace
    ) -> None:
        make(catalog, path, 1, properties={"n": "1"})
        drop(catalog, path)
        assert make(catalog, path, 2).properties == {"n": "1"}
        assert describe(catalog, path).properties == {"n": "1"}
        drop(catalog, path)
        assert make(catalog, path, 3, properties={"n": "2"}).properties == {"n": "2"}
        assert describe(catalog, path).properties == {"n": "2"}

    @BOTH
    def test_declare_over_a_dropped_name_gets_a_new_directory(
        self, path: str, lake: Lake, catalog: DirectoryNamespace
    ) -> None:
        make(catalog, path, 1, properties={"n": "1"})
        place = directory(lake, path)
        drop(catalog, path)
        declare(catalog, path)
        assert directory(lake, path) != place
        assert describe(catalog, path).properties is None, "it is another table"
        lance.write_dataset(numbers(2), namespace_client=catalog, table_id=ident(path), mode="append")
        assert_whole(lake.open(), path, 2)
        assert len(generations(catalog, path)) == 1
        with refused(TABLE_EXISTS):
            catalog.undrop_table(ident(path))
        catalog.undrop_table(ident(path), new_id=["a", "old"])
        assert_whole(lake.open(), "a/old", 1)
        assert describe(catalog, "a/old").properties == {"n": "1"}

    @BOTH
    @pytest.mark.parametrize("mode", ["create", "overwrite", "exist_ok"])
    def test_lancedb_write_over_a_dropped_name_leaves_the_drop_intact(
        self, mode: str, path: str, lake: Lake, catalog: DirectoryNamespace
    ) -> None:
        make(catalog, path, 1)
        drop(catalog, path)
        *namespace, name = ident(path)
        database: Any = lancedb.connect_namespace(IMPLEMENTATION, {**lake.properties, **lake.mode})
        wish = {"exist_ok": True} if mode == "exist_ok" else {"mode": mode}
        database.create_table(name, [{"x": 2}], namespace_path=namespace, **wish)
        assert database.open_table(name, namespace_path=namespace).to_arrow() == numbers(2)
        assert_whole(lake.open(), path, 2)
        assert len(generations(catalog, path)) == 1
        catalog.undrop_table(ident(path), new_id=["a", "old"])
        assert_whole(lake.open(), "a/old", 1)

    @BOTH
    def test_pylance_can_create_but_not_append_over_a_dropped_name(
        self, path: str, lake: Lake, catalog: DirectoryNamespace
    ) -> None:
        make(catalog, path, 1)
        drop(catalog, path)
        for mode in ("append", "overwrite"):
            with refused(TABLE_NOT_FOUND):
                write(catalog, path, 2, mode=mode)
        write(catalog, path, 2)
        assert_whole(lake.open(), path, 2)
        catalog.undrop_table(ident(path), new_id=["a", "old"])
        assert_whole(lake.open(), "a/old", 1)


class TestPurge:
    @BOTH
    def test_purge_before_the_retention_period_ends_requires_force(
        self, path: str, lake: Lake, catalog: DirectoryNamespace
    ) -> None:
        make(catalog, path, 1)
        place = directory(lake, path)
        with refused(INVALID_TABLE_STATE):
            catalog.purge_table(ident(path), force=True)
        drop(catalog, path)
        with refused(INVALID_TABLE_STATE) as caught:
            catalog.purge_table(ident(path))
        assert "force=True" in str(caught.value)
        lake.clock.advance(WEEK)
        with refused(INVALID_TABLE_STATE):
            catalog.purge_table(ident(path))  # another client's clock may be behind
        assert catalog.list_purgable_tables() == []
        lake.clock.advance(SKEW + timedelta(seconds=1))
        assert [each.id for each in catalog.list_purgable_tables()] == [tuple(ident(path))]
        result = catalog.purge_table(ident(path))
        assert result.purged
        assert result.files > 0
        assert not (lake.folder / place).exists()
        assert catalog.table_status(ident(path)) == NotFound(tuple(ident(path)))
        with refused(TABLE_NOT_FOUND):
            catalog.purge_table(ident(path), force=True)
        with refused(TABLE_NOT_FOUND):
            catalog.undrop_table(ident(path))

    @BOTH
    def test_purge_takes_one_or_all_generations_but_never_the_live_table(
        self, path: str, lake: Lake, catalog: DirectoryNamespace
    ) -> None:
        ids = []
        for number in (1, 2, 3):
            write(catalog, path, number)
            lake.clock.advance(timedelta(minutes=1))
            ids.append(drop(catalog, path)["deletion_id"])
        write(catalog, path, 4)
        catalog.purge_table(ident(path), deletion_id=ids[1], force=True)
        assert generations(catalog, path) == [ids[0], ids[2]]
        assert_whole(lake.open(), path, 4)
        catalog.purge_table(ident(path), force=True)
        assert generations(catalog, path) == []
        assert_whole(lake.open(), path, 4)
        assert lake.directories() == {directory(lake, path)}

    def test_purge_dry_run_lists_tables_and_touches_nothing(
        self, lake: Lake, catalog: DirectoryNamespace
    ) -> None:
        for path in ("t", "a/t", "a/u"):
            make(catalog, path, 1)
            drop(catalog, path, ttl_ms="1m" if path != "a/u" else "10d")
        lake.clock.advance(timedelta(hours=1))
        before = lake.files()
        planned = {each.id: each for each in catalog.purge_tables(dry_run=True)}
        assert planned.keys() == {("t",), ("a", "t")}
        assert all(each.files > 0 and each.dry_run and not each.purged for each in planned.values())
        (refusal,) = catalog.purge_tables([["a", "u"]], dry_run=True)
        assert refusal.error is not None
        (forced,) = catalog.purge_tables([["a", "u"]], dry_run=True, force=True)
        assert forced.error is None
        assert lake.files() == before
        done = {each.id: each for each in catalog.purge_tables()}
        assert {key: each.files for key, each in done.items()} == {
            key: each.files for key, each in planned.items()
        }
        assert generations(catalog, "a/u") != []

    def test_purge_tables_continues_after_a_failure(self, lake: Lake, catalog: DirectoryNamespace) -> None:
        make(catalog, "a/t", 1)
        make(catalog, "a/live", 2)
        drop(catalog, "a/t")
        results = catalog.purge_tables([["a", "nothing"], ["a", "live"], ["a", "t"]], force=True)
        assert {each.id[-1]: each.purged for each in results} == {"nothing": False, "live": False, "t": True}
        assert_whole(lake.open(), "a/live", 2)

    def test_purge_can_be_limited_to_drops_before_an_instant(
        self, lake: Lake, catalog: DirectoryNamespace
    ) -> None:
        for path in ("a/old", "a/new"):
            make(catalog, path, 1)
            drop(catalog, path, ttl_ms="0")
            lake.clock.advance(timedelta(hours=1))
        cut = lake.clock.now() - timedelta(minutes=90)
        assert [each.id for each in catalog.list_purgable_tables(cut)] == [("a", "old")]
        assert [each.id for each in catalog.purge_tables(deleted_before=cut)] == [("a", "old")]
        assert generations(catalog, "a/new") != []

    def test_purge_keeps_files_of_tables_with_similar_names(
        self, lake: Lake, catalog: DirectoryNamespace
    ) -> None:
        make(catalog, "a/t", 1)
        make(catalog, "a/t2", 2)
        make(catalog, "t", 3)
        lance.write_dataset(numbers(4), str(lake.folder / "x"))
        lance.write_dataset(numbers(5), str(lake.folder / "xy"))
        register(catalog, "a/x", "x")
        register(catalog, "a/xy", "xy")
        for path in ("a/t", "a/x"):
            drop(catalog, path)
            catalog.purge_table(ident(path), force=True)
        for path, value in (("a/t2", 2), ("t", 3), ("a/xy", 5)):
            assert_whole(lake.open(), path, value)

    def test_purge_of_a_directory_shared_by_two_rows_takes_the_row_alone(self, v2: Lake) -> None:
        catalog = v2.open()
        make(catalog, "one", 1)
        make(catalog, "two", 2)
        drop(catalog, "one")
        # Our register refuses this; other clients do not.
        manifest = lance.dataset(str(v2.folder / "__manifest"))
        manifest.update({"location": f"'{_location_of_dropped(v2)}'"}, where="object_id = 'two'")
        before = v2.table_files()
        result = catalog.purge_table(["one"], force=True)
        assert (result.purged, result.files) == (True, 0)
        assert generations(catalog, "one") == []
        assert v2.table_files() == before
        assert rows(v2.open(), "two") == [1]

    def test_purge_succeeds_when_the_files_are_already_gone(
        self, lake: Lake, catalog: DirectoryNamespace
    ) -> None:
        make(catalog, "a/t", 1)
        place = directory(lake, "a/t")
        drop(catalog, "a/t")
        shutil.rmtree(lake.folder / place)
        with refused(INVALID_TABLE_STATE) as caught:
            catalog.undrop_table(["a", "t"])
        assert place in str(caught.value)
        result = catalog.purge_table(["a", "t"], force=True)
        assert (result.files, result.purged) == (0, True)
        assert catalog.list_dropped_tables() == []

    def test_purge_reports_progress(self, catalog: DirectoryNamespace) -> None:
        make(catalog, "a/t", 1)
        drop(catalog, "a/t")
        seen: list[Any] = []
        result = catalog.purge_table(["a", "t"], force=True, progress=seen.append)
        assert seen[-1].id == ("a", "t")
        assert seen[-1].files == result.files > 0


def _location_of_dropped(lake: Lake) -> str:
    (found,) = (
        row["location"]
        for object_id, row in lake.manifest_rows().items()
        if object_id.startswith("__dropped$") and row["location"]
    )
    return str(found)


class TestStatus:
    @BOTH
    def test_table_status_reports_every_state(
        self, path: str, lake: Lake, catalog: DirectoryNamespace
    ) -> None:
        parts = tuple(ident(path))
        assert catalog.table_status(parts) == NotFound(parts)
        declare(catalog, path)
        assert catalog.table_status(parts) == Exists(parts)
        drop(catalog, path)
        status = catalog.table_status(parts)
        assert isinstance(status, SoftDeleted)
        assert (status.id, status.state, status.cascade_id) == (parts, "deleted", None)
        assert status.purge_after == status.deleted_at + WEEK
        catalog.undrop_table(parts)
        assert catalog.table_status(parts) == Exists(parts)
        assert catalog.table_status(("a", "nothing")) == NotFound(("a", "nothing"))
        assert catalog.table_status(("x", "nothing")) == NotFound(("x", "nothing"))

    def test_dropped_tables_are_listed_per_namespace_oldest_first(
        self, lake: Lake, catalog: DirectoryNamespace
    ) -> None:
        spaces(catalog, "a/b")
        for path in ("a/t", "t", "a/b/t", "a/s"):
            make(catalog, path, 1)
            lake.clock.advance(timedelta(minutes=1))
            drop(catalog, path)
        make(catalog, "live", 1)

        def listed(namespace: list[str] | None) -> list[str]:
            return ["/".join(each.id) for each in lake.open().list_dropped_tables(namespace)]

        assert listed(None) == ["a/t", "t", "a/b/t", "a/s"]
        assert listed([]) == ["t"]
        assert listed(["a"]) == ["a/t", "a/s"]
        assert listed(["a", "b"]) == ["a/b/t"]
        assert listed(["nothing"]) == []

    def test_renamed_table_is_dropped_under_its_new_name(self, lake: Lake, catalog: Any) -> None:
        make(catalog, "t", 1)
        rename(catalog, "t", "a/u")
        drop(catalog, "a/u")
        assert len(generations(lake.open(), "a/u")) == 1
        # A table in its home directory is copied: its old name becomes an ordinary drop.
        old = SoftDeleted if not lake.is_v2 else NotFound
        assert isinstance(catalog.table_status(["t"]), old)


class TestProtection:
    @BOTH
    def test_drop_of_a_protected_table_is_refused_until_it_is_unprotected(
        self, path: str, lake: Lake, catalog: DirectoryNamespace
    ) -> None:
        make(catalog, path, 1, properties={"n": "1"})
        catalog.protect(ident(path))
        catalog.protect(ident(path))
        before = lake.table_files()
        other = lake.open()
        for wishes in ({}, {"purge": "true"}, {"ttl_ms": "0"}):
            with refused(INVALID_TABLE_STATE) as caught:
                drop(other, path, **wishes)
            assert "unprotect" in str(caught.value)
        assert lake.table_files() == before
        assert describe(other, path).properties == {"n": "1"}, "the mark is not one of the user's properties"
        make(other, path, 2, mode="overwrite", properties={"n": "2"})
        with refused(INVALID_TABLE_STATE):
            drop(other, path)
        if path == "t" and not lake.is_v2:
            with refused(INVALID_TABLE_STATE):
                rename(other, path, "a/new")  # it would drop the old name
            catalog.unprotect(ident(path))
            rename(other, path, "a/new")
        else:
            rename(other, path, "a/new")
            with refused(INVALID_TABLE_STATE):
                drop(other, "a/new")
            catalog.unprotect(["a", "new"])
        drop(other, "a/new")
        assert_gone(other, "a/new")

    def test_drop_of_a_protected_namespace_or_its_ancestors_is_refused(
        self, lake: Lake, catalog: Any
    ) -> None:
        spaces(catalog, "a/b")
        make(catalog, "a/b/t", 1)
        catalog.protect(["a", "b"])
        drop(catalog, "a/b/t")
        for path, behavior in (("a/b", "restrict"), ("a/b", "cascade"), ("a", "cascade")):
            with refused(INVALID_TABLE_STATE):
                catalog.drop_namespace({"id": ident(path), "behavior": behavior})
        catalog.create_namespace({"id": ["a", "b"], "mode": "overwrite", "properties": {"n": "1"}})
        with refused(INVALID_TABLE_STATE):
            catalog.drop_namespace({"id": ["a", "b"]})
        catalog.unprotect(["a", "b"])
        catalog.drop_namespace({"id": ["a"], "behavior": "cascade"})
        assert tables(catalog) == []

    def test_cascade_over_a_protected_table_is_refused(self, catalog: Any) -> None:
        spaces(catalog, "a/b")
        make(catalog, "a/b/t", 1)
        make(catalog, "a/u", 1)
        catalog.protect(["a", "b", "t"])
        with refused(INVALID_TABLE_STATE) as caught:
            catalog.drop_namespace({"id": ["a"], "behavior": "cascade"})
        assert "a.b.t" in str(caught.value)
        assert_whole(catalog, "a/u", 1)

    def test_protect_of_a_missing_or_dropped_table_is_refused(self, catalog: DirectoryNamespace) -> None:
        make(catalog, "a/gone", 1)
        drop(catalog, "a/gone")
        for parts in (["nothing"], ["a", "nothing"], ["a", "gone"], ["x", "y"]):
            with refused(INVALID_TABLE_STATE):
                catalog.protect(parts)
        with refused(INVALID_INPUT):
            catalog.protect([])


def test_lifecycle_works_on_an_object_store(any_lake: Lake) -> None:
    catalog = any_lake.open()
    spaces(catalog, "a")
    for path in ("t", "a/t"):
        write(catalog, path, 1)
        first = drop(catalog, path)["deletion_id"]
        any_lake.clock.advance(timedelta(minutes=1))
        write(catalog, path, 2)
        drop(catalog, path)
        assert make(catalog, path, 3).version == 2
        assert_whole(any_lake.open(), path, 3)
        catalog.undrop_table(ident(path), deletion_id=first, new_id=["a", "old"])
        assert_whole(any_lake.open(), "a/old", 1)
        drop(catalog, "a/old", purge="true")
        drop(catalog, path)
        assert catalog.purge_table(ident(path), force=True).purged
        assert generations(catalog, path) == []
        assert_gone(any_lake.open(), path)
