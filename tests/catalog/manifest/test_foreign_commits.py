"""Another client commits to the same table between our look and our commit: every kind, with real Lance."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from unittest import mock

import lance
import pyarrow as pa
import pytest
from tests.support.catalog_manifests import drop_indexes, foreign_insert, open_manifest
from tests.support.patches import original, substitute, substituted

from relance.catalog.manifest.row import ObjectType, Row
from relance.catalog.manifest.schema import SCHEMA, WRITER_FLAGS_KEY
from relance.catalog.manifest.store import Change, ManifestConflictError, Snapshot, transact
from relance.catalog.manifest.table import LanceManifest
from relance.catalog.manifest.upkeep import keep_up
from relance.catalog.version_rows.management import switch_on
from relance.errors import (
    NamespaceNotFoundError,
    OutcomeUnknownError,
    ServiceUnavailableError,
    UnsupportedOperationError,
)

Foreign = Callable[[LanceManifest], object]


def table(object_id: str, location: str = "ours") -> Row:
    return Row(object_id, ObjectType.TABLE, location)


def dataset(manifest: LanceManifest) -> lance.LanceDataset:
    return lance.dataset(manifest.table.uri)


def append(manifest: LanceManifest, object_id: str) -> None:
    row = {"object_id": object_id, "object_type": "table", "location": "theirs"}
    lance.write_dataset(pa.Table.from_pylist([row], SCHEMA), manifest.table.uri, mode="append")


def upsert(manifest: LanceManifest, object_id: str) -> None:
    row = {"object_id": object_id, "object_type": "table", "location": "theirs"}
    merge = dataset(manifest).merge_insert("object_id")
    merge.when_matched_update_all().when_not_matched_insert_all().use_index(False).execute(
        pa.Table.from_pylist([row], SCHEMA)
    )


@pytest.fixture(params=[False, True], ids=["without index", "indexed"])
def manifest(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> LanceManifest:
    """A manifest with a file of its own for `far0` to `far4`, for `lone`, and for the head with `near`."""
    substitute(monkeypatch, "manifest.head_rows", 3)
    manifest = open_manifest(tmp_path)
    far, near = [table(f"far{number}") for number in range(5)], table("near")
    transact(manifest, lambda _: (Change(added=tuple(far)), None))
    transact(manifest, lambda _: (Change(added=(near,)), None))
    append(manifest, "lone")
    drop_indexes(tmp_path)
    if request.param:
        dataset(manifest).create_scalar_index("object_id", "BTREE", name="object_id_btree")
    return manifest


def locations(manifest: LanceManifest) -> list[tuple[str, str]]:
    rows = dataset(manifest).to_table(filter="NOT starts_with(object_id, '__dropped$')").to_pylist()
    return sorted((row["object_id"], row["location"]) for row in rows)


CHANGE = Change(removed=("far1",), added=(table("new"),))

DOUBLING: dict[str, Foreign] = {
    "append": lambda manifest: append(manifest, "new"),
    "merge_insert": lambda manifest: foreign_insert(manifest, table("new", "theirs")),
    "merge_insert by index": lambda manifest: foreign_insert(
        manifest, table("new", "theirs"), use_index=True
    ),
    "upsert": lambda manifest: upsert(manifest, "new"),
}
HARMLESS: dict[str, Foreign] = {
    "append": lambda manifest: append(manifest, "other"),
    "merge_insert": lambda manifest: foreign_insert(manifest, table("other")),
    "upsert of a row elsewhere": lambda manifest: upsert(manifest, "lone"),
    "update_config": lambda manifest: dataset(manifest).update_config({"k": "v"}),
    "index": lambda manifest: dataset(manifest).create_scalar_index("object_type", "BITMAP"),
    "delete of a row elsewhere": lambda manifest: dataset(manifest).delete("object_id = 'lone'"),
}
REFUSED: dict[str, Foreign] = {
    "upsert in the head": lambda manifest: upsert(manifest, "near"),
    "upsert of our row": lambda manifest: upsert(manifest, "far1"),
    "upsert in the file of our row": lambda manifest: upsert(manifest, "far3"),
    "delete in the head": lambda manifest: dataset(manifest).delete("object_id = 'near'"),
    "delete of our row": lambda manifest: dataset(manifest).delete("object_id = 'far1'"),
    "delete in the file of our row": lambda manifest: dataset(manifest).delete("object_id = 'far3'"),
    "overwrite": lambda manifest: lance.write_dataset(
        dataset(manifest).to_table(), manifest.table.uri, mode="overwrite"
    ),
    "restore": lambda manifest: dataset(manifest).restore(),
}


@pytest.mark.parametrize("kind", DOUBLING)
def test_id_that_another_client_added_is_left_to_it(manifest: LanceManifest, kind: str) -> None:
    before, read = locations(manifest), manifest.latest()
    DOUBLING[kind](manifest)
    with pytest.raises(ManifestConflictError, match="'new'"):
        manifest.commit(read, CHANGE)
    assert locations(manifest) == sorted([*before, ("new", "theirs")])
    assert dataset(manifest).version == read.version + 3, "theirs, ours, and its withdrawal"
    assert manifest.latest().get(["new"])["new"].location == "theirs"


def test_dropped_row_with_a_type_of_its_own_is_withdrawn_too(manifest: LanceManifest) -> None:
    switch_on(manifest)
    before, read = dataset(manifest).to_table().to_pylist(), manifest.latest()
    append(manifest, "new")
    dropped = read.get(["far1"])["far1"].dropped("1", None)
    with pytest.raises(ManifestConflictError, match="'new'"):
        manifest.commit(read, Change(removed=("far1",), added=(table("new"), dropped)))
    left = {row["object_id"]: row["object_type"] for row in dataset(manifest).to_table().to_pylist()}
    assert left.keys() == {*(row["object_id"] for row in before), "new"}
    assert (left["far1"], left["__dropped$head"]) == ("table", "relance_namespace")


@pytest.mark.parametrize("kind", HARMLESS)
def test_commit_that_does_not_matter_is_let_through(manifest: LanceManifest, kind: str) -> None:
    read = manifest.latest()
    HARMLESS[kind](manifest)
    manifest.commit(read, CHANGE)
    assert dataset(manifest).version == read.version + 2
    rows = dict(locations(manifest))
    assert rows["new"] == "ours"
    assert "far1" not in rows
    assert len(rows) == len(locations(manifest))
    assert {"near", "far0", "far4"} <= rows.keys()


@pytest.mark.parametrize("kind", REFUSED)
def test_commit_to_the_same_files_refuses_ours(manifest: LanceManifest, kind: str) -> None:
    read = manifest.latest()
    REFUSED[kind](manifest)
    after = locations(manifest)
    with pytest.raises(ManifestConflictError):
        manifest.commit(read, CHANGE)
    assert locations(manifest) == after
    assert dataset(manifest).version == read.version + 1


def test_parent_that_another_client_deleted_elsewhere_is_noticed(manifest: LanceManifest) -> None:
    """Lance lets a deletion in a file that we do not touch pass."""

    def plan(snapshot: Snapshot) -> tuple[Change, None]:
        require_parent(snapshot)
        dataset(manifest).delete("object_id = 'lone'")
        return Change(added=(table("lone$new"),), checks=require_parent), None

    def require_parent(snapshot: Snapshot) -> None:
        if "lone" not in snapshot.get(["lone"]):
            raise NamespaceNotFoundError("lone")

    with pytest.raises(NamespaceNotFoundError):
        transact(manifest, plan)
    assert manifest.latest().below("lone") == []


@pytest.mark.parametrize("key", [WRITER_FLAGS_KEY, "vendor"])
def test_settings_that_changed_meanwhile_are_read_before_the_change_is_made(
    manifest: LanceManifest, key: str
) -> None:
    read = manifest.latest()
    dataset(manifest).update_metadata({key: "4"})
    with pytest.raises(ManifestConflictError):
        manifest.commit(read, CHANGE)
    assert ("new", "ours") not in locations(manifest)
    if key == WRITER_FLAGS_KEY:
        with pytest.raises(UnsupportedOperationError):
            transact(manifest, lambda _: (CHANGE, None))


def test_lost_answer_of_a_commit_that_came_second_is_checked_too(manifest: LanceManifest) -> None:
    before, read = locations(manifest), manifest.latest()
    foreign_insert(manifest, table("new", "theirs"))
    commit, answers = lance.LanceDataset.commit, []

    def lost(*arguments: object, **options: object) -> lance.LanceDataset:
        answers.append(commit(*arguments, **options))
        if len(answers) == 1:
            append(manifest, "later")
            raise OSError("error sending request")
        return answers[-1]

    with mock.patch.object(lance.LanceDataset, "commit", lost), pytest.raises(ManifestConflictError):
        manifest.commit(read, CHANGE)
    assert locations(manifest) == sorted([*before, ("new", "theirs"), ("later", "theirs")])


def test_withdrawal_is_repeated_while_others_commit(manifest: LanceManifest) -> None:
    before, read = locations(manifest), manifest.latest()
    foreign_insert(manifest, table("new", "theirs"))
    other, rewrite = open_manifest(Path(manifest.table.uri).parent), original("manifest.rewrite")
    calls: list[int] = []

    def slow(*arguments: object) -> object:
        calls.append(1)
        if len(calls) in {2, 4}:  # 3 is the other's own
            transact(other, lambda _: (Change(added=(table(f"other{len(calls)}"),)), None))
        return rewrite(*arguments)

    with substituted("manifest.rewrite", slow), pytest.raises(ManifestConflictError):
        manifest.commit(read, CHANGE)
    assert len(calls) == 6
    others = [("other2", "ours"), ("other4", "ours")]
    assert locations(manifest) == sorted([*before, ("new", "theirs"), *others])


def test_withdrawal_that_fails_is_reported_as_unknown(manifest: LanceManifest) -> None:
    read = manifest.latest()
    foreign_insert(manifest, table("new", "theirs"))

    def fail(*_: object) -> bool:
        raise ServiceUnavailableError("store")

    with substituted("manifest.withdraw", fail), pytest.raises(OutcomeUnknownError):
        manifest.commit(read, CHANGE)
    assert manifest.latest().get(["new"]).keys() == {"new"}
    assert list(manifest.latest().duplicates()) == ["new"]


def test_upkeep_between_look_and_commit_does_not_disturb(manifest: LanceManifest) -> None:
    read = manifest.latest()
    dataset(manifest).optimize.optimize_indices()
    keep_up(manifest, clean=False)
    try:
        manifest.commit(read, CHANGE)
    except ManifestConflictError:  # it merged the file of our row
        transact(manifest, lambda _: (CHANGE, None))
    rows = dict(locations(manifest))
    assert len(rows) == len(locations(manifest)) == 7
    assert rows["new"] == "ours"


def test_stale_insert_after_our_commit(manifest: LanceManifest) -> None:
    """Not ours to prevent: Lance's own check misses it through an index, and readers cope."""
    stale = dataset(manifest)
    transact(manifest, lambda _: (CHANGE, None))
    rows = pa.Table.from_pylist([{"object_id": "new", "object_type": "table", "location": "theirs"}], SCHEMA)
    stale.merge_insert("object_id").when_not_matched_insert_all().execute(rows)
    indexed = bool(dataset(manifest).describe_indices())
    count = dataset(manifest).count_rows("object_id = 'new'")
    assert count == (2 if indexed else 1)
    assert list(manifest.latest().duplicates()) == (["new"] if indexed else [])
    assert manifest.latest().get(["new"]).keys() == {"new"}
    transact(manifest, lambda _: (Change(removed=("new",)), None))
    assert dataset(manifest).count_rows("object_id = 'new'") == count - 1
