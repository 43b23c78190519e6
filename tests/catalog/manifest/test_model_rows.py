"""One contract for the manifest: Lance keeps it, and so does the model that the explorer runs on."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import lance
import pytest
from lance.namespace import CreateNamespaceRequest, DirectoryNamespace
from tests.support.catalog_manifests import foreign_insert, open_manifest
from tests.support.patches import original, substitute

from relance.catalog.manifest import table as lance_table
from relance.catalog.manifest.row import HEAD_ID, ObjectType, Row
from relance.catalog.manifest.store import Change, Manifest, ManifestConflictError, Snapshot, transact
from relance.catalog.manifest.table import LanceManifest
from relance.errors import ConcurrentModificationError, InternalError, NamespaceNotFoundError
from relance.storage.local_disk import LocalDiskStorage
from relance.testing.model_rows import ModelManifest


@pytest.fixture(params=["model", "lance"])
def manifest(request: pytest.FixtureRequest, tmp_path: Path) -> Manifest:
    if request.param == "model":
        return ModelManifest(LocalDiskStorage(str(tmp_path)))
    return open_manifest(tmp_path)


def table(object_id: str, location: str = "somewhere", **metadata: Any) -> Row:
    return Row(object_id, ObjectType.TABLE, location, metadata)


def add(manifest: Manifest, *rows: Row) -> None:
    transact(manifest, lambda _: (Change(added=rows), None))


def ids(snapshot: Snapshot) -> list[str]:
    """Return all ids; every one of them is above the space."""
    return sorted(row.object_id for prefix in "_ab" for row in snapshot.below(prefix))


REVIVING = '{"format": 2, "state": "reviving"}'


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
    row = after.get(["a$x"])["a$x"]
    assert (row.location, row.metadata) == ("else", {"k": "v"})


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
        if seen == [snapshot.version]:
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


def test_rows_are_selected_by_prefix_and_drop(manifest: Manifest) -> None:
    gone = Row("__dropped$1", ObjectType.TABLE, "b/c", {"relance.id": "it's"})
    escaped = Row("__dropped$2", ObjectType.TABLE, "d", columns={"metadata": r'{"relance.id": "\u00e9"}'})
    add(manifest, table("a"), table("a$b", "b"), table("a$bb", "bb"), gone)
    add(manifest, replace(escaped, metadata={"relance.id": "é"}))
    snapshot = manifest.latest()
    assert sorted(row.object_id for row in snapshot.below("a$")) == ["a$b", "a$bb"]
    assert [row.object_id for row in snapshot.dropped("it's")] == ["__dropped$1"]
    assert [row.object_id for row in snapshot.dropped("é")] == ["__dropped$2"]
    assert snapshot.dropped("its") == []
    assert len(snapshot.dropped()) == 2


@pytest.mark.parametrize(
    "location",
    [
        "n.lance",
        "./n.lance",
        "n.lance/",
        ".//n.lance//",
        "n.lance/.",
        "n.lance/./x",
        "n.lance//x",
        "n.lance/d/e",
    ],
)
def test_tables_that_share_a_directory_are_found_however_it_is_spelled(
    manifest: Manifest, location: str
) -> None:
    add(
        manifest,
        table("a", location),
        Row("__dropped$1", ObjectType.TABLE, location, {"relance.id": "b"}),
        Row("b", ObjectType.NAMESPACE, location),
        *(table(f"a{text}", text) for text in ("n.lancet", "n", "x/n.lance", "/n.lance", "../n.lance", ".")),
    )
    shared = sorted(row.object_id for row in manifest.latest().sharing(["other", "n.lance"]))
    assert shared == ["__dropped$1", "a"]


def test_tables_above_a_directory_share_it(manifest: Manifest) -> None:
    add(manifest, table("a", "d"), table("b", "d/e/"), table("a$b", "d/x"), table("b$a", "d/e/f/g"))
    assert sorted(row.object_id for row in manifest.latest().sharing(["d/e/f"])) == ["a", "b", "b$a"]
    assert manifest.latest().sharing(["e"]) == []


def test_claimed_rows_and_homes_are_known(manifest: Manifest) -> None:
    add(
        manifest,
        table("a", "./a.lance/"),
        table("b", "b.lance"),
        table("c", "elsewhere"),
        table("d", "d.lance", **{"relance.control": REVIVING}),
        table("e", "e.lance", note={"relance.control": REVIVING}),
        table("a$f", "f.lance"),
        table("b%20", "b%20.lance"),
        Row("g", ObjectType.NAMESPACE, "g.lance"),
        Row("__dropped$1", ObjectType.TABLE, "h.lance", {"relance.id": "h"}),
    )
    snapshot = manifest.latest()
    assert snapshot.home_names() == {"a", "b", "e"}
    assert [row.object_id for row in snapshot.reviving()] == ["d"]
    assert list(snapshot.names((), ObjectType.TABLE, after=None)) == ["a", "b", "b%20", "c", "e"]


def test_empty_change_is_committed_only_on_request(manifest: Manifest) -> None:
    add(manifest, table("a"))
    read = manifest.latest()
    transact(manifest, lambda _: (Change(), None))
    assert manifest.latest().version == read.version
    transact(manifest, lambda _: (Change(always=True), None))
    assert manifest.latest().version == read.version + 1
    with pytest.raises(ManifestConflictError):
        manifest.commit(read, Change(always=True))
    with pytest.raises(ManifestConflictError):
        manifest.commit(read, Change(added=(table("b"),)))
    assert ids(manifest.latest()) == ["a"]


class TestForeignInsert:
    """Another client inserts between our look and our commit, which Lance does not refuse."""

    def insert(self, manifest: Manifest, row: Row) -> None:
        if isinstance(manifest, ModelManifest):
            assert manifest.foreign_insert(row)
        else:
            assert isinstance(manifest, LanceManifest)
            foreign_insert(manifest, row)

    def test_another_row_does_not_disturb(self, manifest: Manifest) -> None:
        add(manifest, table("a"))
        read = manifest.latest()
        self.insert(manifest, table("b"))
        manifest.commit(read, Change(removed=("a",), added=(table("a$x"),)))
        assert ids(manifest.latest()) == ["a$x", "b"]
        assert manifest.latest().version == read.version + 2

    def test_row_with_the_same_id_makes_ours_withdraw(self, manifest: Manifest) -> None:
        add(manifest, table("a", "old"))
        read = manifest.latest()
        self.insert(manifest, table("b", "theirs"))
        with pytest.raises(ManifestConflictError, match="'b'"):
            manifest.commit(read, Change(removed=("a",), added=(table("b", "ours"),)))
        snapshot = manifest.latest()
        rows = snapshot.get(["a", "b"])
        assert {row.object_id: row.location for row in rows.values()} == {"a": "old", "b": "theirs"}
        assert list(snapshot.duplicates()) == []
        assert snapshot.version == read.version + 3

    def test_equal_row_is_withdrawn_once(self, manifest: Manifest) -> None:
        add(manifest, table("a"))
        read = manifest.latest()
        self.insert(manifest, Row("b", ObjectType.NAMESPACE))
        with pytest.raises(ManifestConflictError):
            manifest.commit(read, Change(added=(Row("b", ObjectType.NAMESPACE), table("b$t"))))
        assert ids(manifest.latest()) == ["a", "b"]

    def test_conflict_is_planned_again(self, manifest: Manifest) -> None:
        add(manifest, table("a"))
        names = iter(["b", "b2"])

        def plan(snapshot: Snapshot) -> tuple[Change, None]:
            if not snapshot.get(["b"]):
                self.insert(manifest, table("b", "theirs"))
            return Change(added=(table(next(names)),)), None

        transact(manifest, plan)
        assert ids(manifest.latest()) == ["a", "b", "b2"]

    def test_precondition_sees_the_manifest_without_our_change(self, manifest: Manifest) -> None:
        gone = Row("__dropped$1", ObjectType.TABLE, "gone", {"relance.id": "a"})
        held = table("a$h", "held", **{"relance.control": REVIVING})
        add(manifest, table("a", "a.lance"), gone, held)
        read = manifest.latest()
        seen: list[Snapshot] = []
        self.insert(manifest, table("b", "b.lance", k=1))
        change = Change(removed=("a",), added=(table("a$x", "a.lance"),), checks=seen.append)
        manifest.commit(read, change)
        (view,) = seen
        assert ids(view) == ["__dropped$1", "a", "a$h", "b"]
        assert set(view.get(["a", "a$x", "b"])) == {"a", "b"}
        assert view.home_names() == {"a", "b"}
        assert list(view.names((), ObjectType.TABLE, after="a")) == ["b"]
        assert list(view.table_ids(after=None)) == ["a", "b"]
        assert sorted(row.object_id for row in view.sharing(["a.lance"])) == ["a"]
        assert [row.object_id for row in view.dropped("a")] == ["__dropped$1"]
        assert [row.object_id for row in view.reviving()] == ["a$h"]
        assert list(view.duplicates()) == []
        assert HEAD_ID not in {*view.get([HEAD_ID])}
        assert ids(manifest.latest()) == ["__dropped$1", "a$h", "a$x", "b"]

    def test_change_whose_precondition_fails_is_withdrawn(self, manifest: Manifest) -> None:
        add(manifest, Row("a", ObjectType.NAMESPACE))
        read = manifest.latest()
        self.insert(manifest, table("a$theirs"))

        def is_empty(snapshot: Snapshot) -> None:
            if snapshot.below("a$"):
                raise NamespaceNotFoundError("a is not empty any more")

        with pytest.raises(ManifestConflictError, match="not empty"):
            manifest.commit(read, Change(removed=("a",), checks=is_empty))
        assert ids(manifest.latest()) == ["a", "a$theirs"]

    def test_precondition_is_not_checked_when_nothing_came_between(self, manifest: Manifest) -> None:
        add(manifest, table("a"))
        seen: list[Snapshot] = []
        transact(manifest, lambda _: (Change(added=(table("b"),), checks=seen.append), None))
        assert seen == []

    @pytest.mark.parametrize(
        ("ours", "theirs", "seen"),
        [
            ({"relance.protected": "true"}, {"k": "v"}, "theirs"),
            ({}, {"relance.unknown": "x"}, "ours"),
            ({"relance.control": REVIVING}, {}, "theirs"),
        ],
    )
    def test_readers_cope_when_the_withdrawal_never_came(
        self,
        manifest: Manifest,
        ours: dict[str, Any],
        theirs: dict[str, Any],
        seen: str,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        for key in ("manifest.withdraw", "model_rows.withdraw"):
            substitute(monkeypatch, key, lambda *_: False)
        add(manifest, table("a"))
        read = manifest.latest()
        self.insert(manifest, table("b", "theirs", **theirs))
        manifest.commit(read, Change(added=(table("b", "ours", **ours),)))
        snapshot = manifest.latest()
        assert snapshot.get(["b"])["b"].location == seen
        assert [row.location for row in snapshot.below("b")] == [seen]
        assert snapshot.reviving() == []
        assert list(snapshot.names((), ObjectType.TABLE, after=None)) == ["a", "b"]
        assert list(snapshot.table_ids(after=None)) == ["a", "b"]
        assert list(snapshot.duplicates()) == ["b"]
        assert len(snapshot.sharing(["ours", "theirs"])) == 2
        # Whoever touches the id touches the row that readers see, and no other.
        kept = snapshot.get(["b"])["b"].protected(on=True)
        manifest.commit(snapshot, Change(removed=("b",), added=(kept,)))
        locations = sorted(row["location"] for row in manifest.latest().all_rows() if row["object_id"] == "b")
        assert locations == ["ours", "theirs"]
        visible = manifest.latest().get(["b"])["b"].location
        manifest.commit(manifest.latest(), Change(removed=("b",)))
        (left,) = manifest.latest().below("b")
        assert {left.location, visible} == {"ours", "theirs"}
        assert list(manifest.latest().duplicates()) == []

    def test_older_duplicate_does_not_make_a_later_change_withdraw(
        self, manifest: Manifest, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        add(manifest, table("a"))
        read = manifest.latest()
        self.insert(manifest, table("b", "theirs"))
        with monkeypatch.context() as patched:
            for key in ("manifest.withdraw", "model_rows.withdraw"):
                substitute(patched, key, lambda *_: False)
            manifest.commit(read, Change(added=(table("b", "ours"),)))
        read = manifest.latest()
        self.insert(manifest, table("a$x"))
        replaced = read.get(["b"])["b"].protected(on=True)
        manifest.commit(read, Change(removed=("b",), added=(replaced,)))
        assert manifest.latest().version == read.version + 2
        assert list(manifest.latest().duplicates()) == ["b"]

    def test_withdrawal_gives_way_to_who_built_on_the_change(
        self, manifest: Manifest, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        add(manifest, table("a"))
        read = manifest.latest()
        self.insert(manifest, table("b"))

        def other_first(_: Snapshot) -> None:
            row = manifest.latest().get(["a$x"])["a$x"]
            manifest.commit(manifest.latest(), Change(removed=("a$x",), added=(row.protected(on=True),)))
            raise NamespaceNotFoundError("too late")

        manifest.commit(read, Change(removed=("a",), added=(table("a$x"),), checks=other_first))
        assert ids(manifest.latest()) == ["a$x", "b"]


def test_names_are_direct_children_in_order_without_hidden_ones(manifest: Manifest) -> None:
    hidden = Row("a$h", ObjectType.TABLE, "h", {"relance.control": REVIVING})
    spaces = [Row(name, ObjectType.NAMESPACE) for name in ("a", "a$sub", "é")]
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
        for number in range(lance_table.HEAD_ROWS + 40):
            add(manifest, table(f"a{number:04}"))
        dataset = lance.dataset(f"{tmp_path}/__manifest")
        assert len(dataset.get_fragments()) == 2
        assert dataset.count_rows() == lance_table.HEAD_ROWS + 41
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
            return lance.LanceOperation.Update(new_fragments=build(*arguments).new_fragments)

        substitute(monkeypatch, "manifest.build_operation", append_only)
        one, other = manifest.latest(), manifest.latest()
        manifest.commit(one, Change(added=(table("b"),)))
        manifest.commit(other, Change(added=(table("b$x"),)))
        assert ids(manifest.latest()) == ["a", "b", "b$x"]
