"""Upkeep of the manifest: what it merges, indexes and removes, and clients that read what it removed."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any
from unittest import mock

import lance
import pytest
from lance.namespace import CreateNamespaceRequest
from lance.namespace import DirectoryNamespace as NativeNamespace
from tests.support.catalog_manifests import drop_indexes, index_names, open_manifest
from tests.support.patches import original

from relance.catalog.manifest.row import ObjectType, Row
from relance.catalog.manifest.store import Change, ManifestConflictError, Snapshot, rereading, transact
from relance.catalog.manifest.table import LanceManifest
from relance.catalog.manifest.upkeep import keep_up, look_ahead
from relance.errors import InternalError, OutcomeUnknownError

ALL_INDEXES = ["base_objects_label_list", "object_id_btree", "object_type_bitmap"]


@pytest.fixture
def manifest(tmp_path: Path) -> LanceManifest:
    manifest = open_manifest(tmp_path)
    add(manifest, "a")
    return manifest


def add(manifest: LanceManifest, *names: str) -> None:
    for name in names:
        change = Change(added=(Row(name, ObjectType.NAMESPACE),))
        manifest.commit(manifest.latest(), change)


def spaces(manifest: LanceManifest) -> list[str]:
    return list(manifest.latest().names((), ObjectType.NAMESPACE, after=None))


def remove_versions(root: Path) -> None:
    lance.dataset(str(root / "__manifest")).cleanup_old_versions(older_than=timedelta(0))


class TestRemovedVersions:
    @pytest.mark.parametrize(
        "read",
        [
            lambda snapshot: snapshot.get(["a"]),
            lambda snapshot: snapshot.below("a"),
            lambda snapshot: snapshot.dropped(),
            lambda snapshot: snapshot.reviving(),
            lambda snapshot: snapshot.sharing(["x"]),
            lambda snapshot: list(snapshot.names((), ObjectType.NAMESPACE, after=None)),
            lambda snapshot: snapshot.home_names(),
            lambda snapshot: list(snapshot.duplicates()),
            lambda snapshot: list(snapshot.all_rows()),
        ],
    )
    def test_read_of_a_removed_version_is_retried(
        self, tmp_path: Path, manifest: LanceManifest, read: Callable[[Snapshot], Any]
    ) -> None:
        stale = open_manifest(tmp_path).latest()
        add(manifest, "b", "c")
        remove_versions(tmp_path)
        with pytest.raises(ManifestConflictError):
            read(stale)
        snapshots = iter([stale, manifest.latest()])
        assert rereading(lambda: read(next(snapshots)))() == read(manifest.latest())

    def test_change_based_on_an_outdated_snapshot_is_refused(
        self, tmp_path: Path, manifest: LanceManifest
    ) -> None:
        stale = manifest.latest()
        add(open_manifest(tmp_path), "b", "c", "d")
        remove_versions(tmp_path)
        stale.seen_at -= original("manifest.read_for_seconds") + 1
        with pytest.raises(ManifestConflictError):
            manifest.commit(stale, Change(added=(Row("late", ObjectType.NAMESPACE),)))
        add(manifest, "e")
        assert spaces(manifest) == ["a", "b", "c", "d", "e"]

    def test_commit_whose_version_was_removed_is_reported_as_unknown(
        self, tmp_path: Path, manifest: LanceManifest
    ) -> None:
        other, commit = open_manifest(tmp_path), lance.LanceDataset.commit

        def lost(*arguments: Any, **options: Any) -> Any:
            with mock.patch.object(lance.LanceDataset, "commit", commit):
                commit(*arguments, **options)
                add(other, "b", "c")
                remove_versions(tmp_path)
            raise OSError("error sending request")

        with (
            mock.patch.object(lance.LanceDataset, "commit", lost),
            pytest.raises(OutcomeUnknownError),
        ):
            add(manifest, "mine")
        assert spaces(other) == ["a", "b", "c", "mine"]

    def test_corrupt_latest_version_raises_an_internal_error(
        self, tmp_path: Path, manifest: LanceManifest
    ) -> None:
        for path in (tmp_path / "__manifest" / "data").iterdir():
            path.unlink()
        with pytest.raises(InternalError):
            spaces(open_manifest(tmp_path))
        with pytest.raises(InternalError):
            add(open_manifest(tmp_path), "b")


class TestIndexes:
    def test_manifest_has_its_indexes_from_the_first_commit_on(
        self, tmp_path: Path, manifest: LanceManifest
    ) -> None:
        assert index_names(tmp_path) == ALL_INDEXES
        add(manifest, *(f"n{number}" for number in range(300)))  # more than one head
        assert index_names(tmp_path) == ALL_INDEXES
        assert len(spaces(manifest)) == len(spaces(open_manifest(tmp_path))) == 301

    def test_manifest_is_created_also_when_its_indexes_cannot_be_built(self, tmp_path: Path) -> None:
        failure = OSError("no space left")
        with mock.patch.object(lance.LanceDataset, "create_index_uncommitted", side_effect=failure):
            add(open_manifest(tmp_path), "a")
        assert index_names(tmp_path) == []
        add(open_manifest(tmp_path), "b")
        assert keep_up(open_manifest(tmp_path)).indexes_built
        assert index_names(tmp_path) == ALL_INDEXES
        assert spaces(open_manifest(tmp_path)) == ["a", "b"]

    @pytest.fixture
    def full(self, manifest: LanceManifest) -> LanceManifest:
        """Return a manifest with files of several sizes, and rows of all kinds."""
        rows = [Row(f"a$t{number}", ObjectType.TABLE, f"{number:08x}_a$t") for number in range(600)]
        transact(manifest, lambda _: (Change(added=tuple(rows)), None))
        for number in range(3):
            row = Row(f"a$g{number}", ObjectType.TABLE, f"g{number}/")
            gone = row.dropped(f"{number}", "deleted")
            claimed = row.dropped("7", "deleted").reviving('{"format": 2, "state": "reviving"}')
            manifest.commit(manifest.latest(), Change(added=(gone, claimed)))
        return manifest

    def looks(self, root: Path) -> list[Any]:
        snapshot = open_manifest(root).latest()
        return [
            sorted(snapshot.get(f"a$t{number}" for number in range(0, 700, 7))),
            sorted(row.object_id for row in snapshot.below("a$t1")),
            sorted(row.original_id for row in snapshot.dropped()),
            [row.original_id for row in snapshot.dropped("a$g1")],
            sorted(row.object_id for row in snapshot.reviving()),
            sorted(row.object_id for row in snapshot.sharing(["00000005_a$t", "g2/x"])),
            list(snapshot.table_ids(after=None)),
            list(snapshot.duplicates()),
        ]

    def test_lookups_agree_with_and_without_indexes(self, tmp_path: Path, full: LanceManifest) -> None:
        drop_indexes(tmp_path)
        without = self.looks(tmp_path)
        assert [len(look) for look in without] == [86, 111, 3, 1, 3, 3, 600, 0]
        assert index_names(tmp_path) == []
        ahead, report = look_ahead(full), keep_up(full)
        assert sorted(report.indexes_built) == ["base_objects", "object_id", "object_type"]
        assert (ahead.files_merged, sorted(ahead.indexes_built)) == (
            report.files_merged,
            sorted(report.indexes_built),
        )
        assert index_names(tmp_path) == ALL_INDEXES
        assert self.looks(tmp_path) == without
        keep_up(full)
        assert self.looks(tmp_path) == without

    def test_indexes_are_rebuilt_after_a_native_write_dropped_them(
        self, tmp_path: Path, full: LanceManifest
    ) -> None:
        keep_up(full)
        before = self.looks(tmp_path)
        native = NativeNamespace(root=str(tmp_path), manifest_enabled="true", dir_listing_enabled="false")
        native.create_namespace(CreateNamespaceRequest(id=["n"]))
        assert index_names(tmp_path) == []
        assert self.looks(tmp_path) == before
        add(full, "m")
        keep_up(full)
        assert index_names(tmp_path) == ALL_INDEXES
        assert self.looks(tmp_path) == before
        assert spaces(full) == ["a", "m", "n"]
