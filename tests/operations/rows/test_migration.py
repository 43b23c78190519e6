"""migrate_to_manifest: every directory and marker gets its row, in as many runs as it takes."""

from __future__ import annotations

from datetime import timedelta

import pytest
from lance_namespace.errors import UnsupportedOperationError
from tests.support.calls import (
    assert_gone,
    assert_whole,
    declare,
    deregister,
    describe,
    drop,
    exists,
    generations,
    make,
    register,
    rename,
    rows,
    spaces,
    tables,
    write,
)
from tests.support.codes import TABLE_NOT_FOUND
from tests.support.lakes import Lake
from tests.support.modes import V1, V2
from tests.support.patches import substitute
from tests.support.roots import refused

from relance.catalog.repair import MigrationProgress


@pytest.fixture
def lake(compatible: Lake) -> Lake:
    """A root that V1 clients have worked on."""
    v1 = compatible.open(V1)
    make(v1, "t", 1)
    write(v1, "é b", 2)
    declare(v1, "declared")
    for name in ("dropped", "purged", "hidden", "undropped"):
        make(v1, name, 3)
    drop(v1, "dropped", ttl_ms="30d")
    drop(v1, "purged", purge="true")
    drop(v1, "undropped")
    v1.undrop_table(["undropped"])
    deregister(v1, "hidden")
    return compatible


VISIBLE = ["declared", "t", "undropped", "é b"]


def test_migrated_tables_are_found_without_listing_directories(lake: Lake) -> None:
    before = {key: body for key, body in lake.table_files().items() if ".lance/" in key}
    deletion_id = lake.open().list_dropped_tables()[0].deletion_id
    assert tables(lake.open(V2)) == []
    found = lake.open().migrate_to_manifest()
    assert found.registered == tuple(VISIBLE)
    assert found.dropped == ("dropped",)
    assert (found.mended, found.shadowed, found.dry_run) == ((), (), False)
    assert {key: body for key, body in lake.table_files().items() if ".lance/" in key} == before
    v2 = lake.open(V2)
    assert tables(v2) == VISIBLE
    assert tables(v2, include_declared=False) == VISIBLE[1:]
    assert_whole(v2, "t", 1)
    assert_whole(v2, "é b", 2)
    assert describe(v2, "declared", check_declared=True).is_only_declared is True
    for name in ("dropped", "purged", "hidden"):
        assert_gone(v2, name)
    assert generations(v2, "dropped") == [deletion_id]
    (dropped,) = v2.list_dropped_tables()
    assert dropped.purge_after == dropped.deleted_at + timedelta(days=30)


def test_lifecycle_continues_after_migration_without_listing_directories(lake: Lake) -> None:
    lake.open().migrate_to_manifest()
    v2 = lake.open(V2)
    v2.undrop_table(["dropped"])
    assert_whole(v2, "dropped", 3)
    drop(v2, "dropped")
    assert make(v2, "dropped", 4).version == 2
    assert rows(v2, "dropped", version=1) == [3]
    drop(v2, "dropped", purge="true")
    assert not (lake.folder / "dropped.lance").exists()
    spaces(v2, "a")
    rename(v2, "t", "a/t")
    assert_whole(lake.open(), "a/t", 1)
    write(v2, "t", 5)
    assert_whole(lake.open(), "t", 5)
    write(v2, "declared", 6, mode="append")
    assert_whole(v2, "declared", 6)
    register(v2, "back", "hidden.lance")
    assert_whole(lake.open(), "back", 3)
    assert_gone(lake.open(), "hidden")
    write(v2, "hidden", 7)
    assert_whole(lake.open(), "hidden", 7)


def test_migration_dry_run_reports_the_same_and_writes_nothing(lake: Lake) -> None:
    before = lake.files()
    seen: list[MigrationProgress] = []
    planned = lake.open().migrate_to_manifest(dry_run=True, progress=seen.append)
    assert lake.files() == before
    assert planned.dry_run
    done = lake.open().migrate_to_manifest()
    assert (planned.registered, planned.dropped) == (done.registered, done.dropped)
    assert seen[-1].done == seen[-1].total


def test_second_migration_finds_nothing_to_do(lake: Lake) -> None:
    lake.open().migrate_to_manifest()
    rows_before = lake.manifest_rows()
    again = lake.open().migrate_to_manifest()
    assert (again.registered, again.dropped, again.mended, again.shadowed) == ((), (), (), ())
    assert lake.manifest_rows() == rows_before


def test_interrupted_migration_is_continued_by_the_next_run(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    substitute(monkeypatch, "migration.batch", 3)
    seen: list[MigrationProgress] = []

    def stop(progress: MigrationProgress) -> None:
        seen.append(progress)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        lake.open().migrate_to_manifest(progress=stop)
    assert [each.done for each in seen] == [3]
    half = tables(lake.open(V2))
    assert 0 < len(half) < len(VISIBLE)
    assert tables(lake.open()) == VISIBLE, "half-way, everything is still seen"
    rest = lake.open().migrate_to_manifest(progress=seen.append)
    assert not set(rest.registered) & set(half)
    assert tables(lake.open(V2)) == VISIBLE
    assert seen[-1].done == seen[-1].total > 3
    assert [each.done for each in seen[1:]] == sorted(each.done for each in seen[1:])


def test_later_changes_by_v1_clients_are_synced_by_the_next_migration(lake: Lake) -> None:
    lake.open().migrate_to_manifest()
    v1 = lake.open(V1)
    drop(v1, "t")
    v1.undrop_table(["dropped"])
    make(v1, "new", 8)
    deregister(v1, "undropped")
    again = lake.open().migrate_to_manifest()
    assert again.registered == ("new",)
    assert again.mended == ("dropped", "t", "undropped")
    v2 = lake.open(V2)
    assert tables(v2) == ["declared", "dropped", "new", "é b"]
    assert generations(v2, "t") != []
    register(v1, "undropped", "undropped.lance")
    v1.purge_table(["t"], force=True)
    lake.open().migrate_to_manifest()
    assert_whole(v2, "undropped", 3)
    assert v2.list_dropped_tables() == []


def test_name_owned_by_another_manifest_object_is_reported_as_shadowed(lake: Lake) -> None:
    v2 = lake.open(V2)
    make(v2, "t", 9)
    spaces(v2, "é b")
    found = lake.open().migrate_to_manifest()
    assert found.shadowed == ("t", "é b")
    assert_whole(lake.open(), "t", 9)
    assert exists(lake.open(V1), "t")
    again = lake.open().migrate_to_manifest()
    assert again.shadowed == ("t", "é b")
    assert again.registered == ()


@pytest.mark.parametrize("taken_by", ["a namespace", "a table elsewhere"])
def test_drop_is_migrated_even_if_another_object_has_its_name(lake: Lake, taken_by: str) -> None:
    v2 = lake.open(V2)
    if taken_by == "a namespace":
        spaces(v2, "dropped")
    else:
        make(v2, "dropped", 9)
    seen = lake.open().list_dropped_tables()
    found = lake.open().migrate_to_manifest()
    assert (found.dropped, found.shadowed) == (("dropped",), ())
    assert v2.list_dropped_tables() == lake.open().list_dropped_tables() == seen
    again = lake.open().migrate_to_manifest(dry_run=True)
    assert (again.dropped, again.mended) == ((), ())
    v2.undrop_table(["dropped"], new_id=["back"])
    assert_whole(lake.open(), "back", 3)


def test_empty_root_has_nothing_to_migrate(v2: Lake) -> None:
    found = v2.open().migrate_to_manifest()
    assert (found.registered, found.dropped) == ((), ())
    assert not v2.folder.exists()


def test_migration_without_a_manifest_is_unsupported(lake: Lake) -> None:
    with pytest.raises(UnsupportedOperationError):
        lake.open(V1).migrate_to_manifest()
    with refused(TABLE_NOT_FOUND):
        describe(lake.open(V2), "t")


def test_migration_works_on_an_object_store(any_lake: Lake) -> None:
    v1 = any_lake.open(V1)
    make(v1, "t", 1)
    make(v1, "gone", 2)
    drop(v1, "gone")
    found = any_lake.open().migrate_to_manifest()
    assert (found.registered, found.dropped) == (("t",), ("gone",))
    v2 = any_lake.open(V2)
    assert_whole(v2, "t", 1)
    v2.undrop_table(["gone"])
    assert_whole(v2, "gone", 2)
