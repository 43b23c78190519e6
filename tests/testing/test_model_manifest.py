"""One contract for the manifest: Lance keeps it, and so does the model that the explorer runs on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lance
import pytest
from lance.namespace import CreateNamespaceRequest, DirectoryNamespace
from tests.support.manifests import open_manifest
from tests.support.patches import original, substitute

from relance.errors import ConcurrentModificationError, InternalError
from relance.manifest import lance_manifest
from relance.manifest.entry import HEAD_ID, Entry, ObjectType
from relance.manifest.store import Change, Manifest, ManifestConflictError, Snapshot, transact
from relance.storage.local_disk import LocalDiskStorage
from relance.testing.model_manifest import ModelManifest


@pytest.fixture(params=["model", "lance"])
def manifest(request: pytest.FixtureRequest, tmp_path: Path) -> Manifest:
    if request.param == "model":
        return ModelManifest(LocalDiskStorage(str(tmp_path)))
    return open_manifest(tmp_path)


def table(object_id: str, location: str = "somewhere", **metadata: str) -> Entry:
    return Entry(object_id, ObjectType.TABLE, location, metadata)


def add(manifest: Manifest, *entries: Entry) -> None:
    transact(manifest, lambda _: (Change(added=entries), None))


def ids(snapshot: Snapshot) -> list[str]:
    """Return all ids; every one of them is above the space."""
    return sorted(each.object_id for prefix in "_ab" for each in snapshot.below(prefix))


def test_missing_manifest_is_empty(manifest: Manifest) -> None:
    snapshot = manifest.latest()
    assert snapshot.version == 0
    assert snapshot.get(["a"]) == {}
    assert list(snapshot.names((), ObjectType.TABLE, after=None)) == []


def test_rows_are_added_and_removed_in_one_commit(manifest: Manifest) -> None:
    add(manifest, table("a"), table("b"))
    before = manifest.latest()
    transact(manifest, lambda _: (Change(removed=("a",), added=(table("a$x", "else", k="v"),)), None))
    after = manifest.latest()
    assert ids(before) == ["a", "b"]
    assert ids(after) == ["a$x", "b"]
    assert after.version == before.version + 1
    found = after.get(["a$x"])["a$x"]
    assert (found.location, found.metadata) == ("else", {"k": "v"})


def test_commit_on_an_outdated_snapshot_is_refused(manifest: Manifest) -> None:
    add(manifest, table("a"))
    read = manifest.latest()
    add(manifest, table("b"))  # about another row, and yet
    with pytest.raises(ManifestConflictError):
        manifest.commit(read, Change(added=(table("a$x"),)))
    assert ids(manifest.latest()) == ["a", "b"]


def test_second_of_two_first_commits_is_refused(manifest: Manifest) -> None:
    one, other = manifest.latest(), manifest.latest()
    manifest.commit(one, Change(added=(table("a"),)))
    with pytest.raises(ConcurrentModificationError):
        manifest.commit(other, Change(added=(table("a"),)))
    assert ids(manifest.latest()) == ["a"]


def test_conflicting_change_is_planned_again(manifest: Manifest) -> None:
    add(manifest, table("a"))
    seen: list[int] = []

    def plan(snapshot: Snapshot) -> tuple[Change, str]:
        seen.append(snapshot.version)
        if len(seen) == 1:
            add(manifest, table("a$other"))
        return Change(added=(table("b"),)), f"on {len(snapshot.below('a'))}"

    assert transact(manifest, plan) == "on 2"
    assert len(seen) == 2
    assert ids(manifest.latest()) == ["a", "a$other", "b"]


def test_duplicate_id_is_refused(manifest: Manifest) -> None:
    add(manifest, table("a"))
    with pytest.raises(InternalError, match="already contains"):
        add(manifest, table("a", "elsewhere"))
    assert manifest.latest().get(["a"])["a"].location == "somewhere"


def test_rows_are_found_by_prefix_drop_and_location(manifest: Manifest) -> None:
    gone = Entry("__dropped$1", ObjectType.TABLE, "b/c", {"relance.id": "it's"})
    add(manifest, table("a"), table("a$b", "b"), table("a$bb", "bb"), table("b", "x"), gone)
    snapshot = manifest.latest()
    assert sorted(each.object_id for each in snapshot.below("a$")) == ["a$b", "a$bb"]
    assert [each.object_id for each in snapshot.dropped("it's")] == ["__dropped$1"]
    assert snapshot.dropped("its") == []
    assert sorted(each.object_id for each in snapshot.at_location(["b", "y"])) == ["__dropped$1", "a$b"]


def test_names_are_direct_children_in_order_without_hidden_ones(manifest: Manifest) -> None:
    hidden = Entry("a$h", ObjectType.TABLE, "h", {"relance.marker": "{}"})
    spaces = [Entry(each, ObjectType.NAMESPACE) for each in ("a", "a$sub", "é")]
    add(manifest, *spaces, table("a$z"), table("a$b"), table("a$sub$deep"), table("a$é"), table("b"), hidden)
    snapshot = manifest.latest()
    assert list(snapshot.names(("a",), ObjectType.TABLE, after=None)) == ["b", "z", "é"]
    assert list(snapshot.names(("a",), ObjectType.TABLE, after="b")) == ["z", "é"]
    assert list(snapshot.names((), ObjectType.NAMESPACE, after=None)) == ["a", "é"]
    assert list(snapshot.table_ids(after="a$c")) == ["a$sub$deep", "a$z", "a$é", "b"]


def test_manifest_metadata_is_shared_by_all_clients(manifest: Manifest) -> None:
    manifest.set_metadata({"k": "v"})
    add(manifest, table("a"))
    assert manifest.latest().metadata["k"] == "v"


class TestHead:
    """The head is Lance's part of the contract."""

    def test_commits_fill_one_file_until_it_is_sealed(self, tmp_path: Path) -> None:
        manifest = open_manifest(tmp_path)
        for number in range(lance_manifest.HEAD_ROWS + 40):
            add(manifest, table(f"a{number:04}"))
        dataset = lance.dataset(f"{tmp_path}/__manifest")
        assert len(dataset.get_fragments()) == 2
        assert dataset.count_rows() == lance_manifest.HEAD_ROWS + 41
        assert dataset.count_rows(f"object_id = '{HEAD_ID}'") == 1
        assert (
            len(list(manifest.latest().names((), ObjectType.TABLE, after=None))) == dataset.count_rows() - 1
        )

    def test_manifest_of_another_client_gets_a_head_row_on_the_first_commit(self, tmp_path: Path) -> None:
        native = DirectoryNamespace(root=str(tmp_path), manifest_enabled="true", dir_listing_enabled="false")
        native.create_namespace(CreateNamespaceRequest(id=["a"]))
        manifest = open_manifest(tmp_path)
        add(manifest, table("a$t"))
        dataset = lance.dataset(f"{tmp_path}/__manifest")
        assert dataset.count_rows(f"object_id = '{HEAD_ID}'") == 1
        assert ids(manifest.latest()) == ["a", "a$t"]

    def test_without_moving_the_head_two_commits_both_succeed(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The guard, switched off: appending alone is no compare-and-swap."""
        manifest = open_manifest(tmp_path)
        add(manifest, table("a"))
        build = original("manifest.build_operation")

        def append_only(*arguments: Any) -> Any:
            operation = build(*arguments)
            operation.removed_fragment_ids = []
            operation.updated_fragments = []
            return operation

        substitute(monkeypatch, "manifest.build_operation", append_only)
        one, other = manifest.latest(), manifest.latest()
        manifest.commit(one, Change(added=(table("b"),)))
        manifest.commit(other, Change(added=(table("b"),)))
        assert lance.dataset(f"{tmp_path}/__manifest").count_rows("object_id = 'b'") == 2
