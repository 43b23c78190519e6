"""Manifest upkeep alongside concurrent readers and writers, and its removal of old versions.

Longer:

    make test-long ARGS=tests/manifest/test_upkeep.py
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any
from unittest import mock

import lance
import pytest
from lance_namespace import CreateNamespaceRequest
from tests.support.calls import (
    all_tables,
    declare,
    drop,
    exists,
    generations,
    make,
    namespaces,
    space_exists,
    spaces,
    tables,
)
from tests.support.codes import CONCURRENT_MODIFICATION
from tests.support.interleaving import open_native
from tests.support.internals import manifest_of
from tests.support.modes import MANIFEST_MODES, V2
from tests.support.patches import original, substitute_for_good, substituted
from tests.support.race_processes import Action, keep_manifest
from tests.support.racing import Team, team
from tests.support.root_checks import check_all_versions, check_rows, open_root

from relance import DirectoryNamespace
from relance.errors import InternalError, RelanceError
from relance.manifest.entry import Entry, ObjectType
from relance.manifest.lance_manifest import LanceManifest
from relance.manifest.store import Change, ManifestConflictError
from relance.manifest.upkeep import keep_up

LONG = os.environ.get("RELANCE_PROFILE") == "long"
SECONDS = 60.0 if LONG else 6.0

KEPT_FOR = timedelta(seconds=4)
"""Far less than in earnest. No commit here takes nearly as long, and what was read long ago is not used."""

WRITERS = 3


@pytest.fixture(scope="module")
def crew() -> Iterator[Team]:
    """Writers, and one that keeps the manifest in shape."""
    with team(WRITERS + 1) as found:
        yield found


@dataclass(frozen=True, slots=True)
class WriteAndKeep(Action):
    """Declare, drop and look; the last process does upkeep. Returns the tables that are left."""

    seconds: float = 5.0

    def __call__(self, catalog: DirectoryNamespace, name: str, process: int) -> Any:
        until = time.monotonic() + self.seconds
        if process == WRITERS:
            return self._keep(catalog, until)
        substitute_for_good("manifest.read_for_seconds", KEPT_FOR.total_seconds() / 2)
        left, number = [], 0
        while time.monotonic() < until:
            number += 1
            mine = f"s/t{process}_{number}"
            declare(catalog, mine)
            assert exists(catalog, mine)
            if number % 3:
                drop(catalog, mine)
                assert not exists(catalog, mine)
            else:
                left.append(mine)
            if number % 10 == 0:
                assert set(left) <= {f"s/{each}" for each in tables(catalog, "s")}
        return left, number

    @staticmethod
    def _keep(catalog: DirectoryNamespace, until: float) -> tuple[int, int]:
        rounds = removed = 0
        while time.monotonic() < until:
            report = keep_up(manifest_of(catalog), keep_versions_for=KEPT_FOR)
            rounds, removed = rounds + 1, removed + report.versions_removed
        return rounds, removed


@pytest.mark.deep
def test_upkeep_that_removes_versions_disturbs_no_readers_or_writers(crew: Team, tmp_path: Path) -> None:
    root = tmp_path / "root"
    catalog = open_root(root, V2)
    spaces(catalog, "s")
    quiet = {"root": str(root), **V2, "manifest_upkeep": "false"}
    (outcomes,) = crew.race(quiet, WriteAndKeep((), SECONDS), rounds=1).values()
    assert all(each.won for each in outcomes), outcomes
    written = [each.value for each in outcomes if each.process != WRITERS]
    ((_, removed),) = [each.value for each in outcomes if each.process == WRITERS]
    assert removed > 0, "no version was removed while others worked"
    left = sorted(path for each, _ in written for path in each)
    assert [f"s/{name}" for name in tables(catalog, "s")] == left
    made = sum(number for _, number in written)
    assert len(catalog.list_dropped_tables()) == made - len(left)
    assert len(check_rows(root).locations) == made
    check_all_versions(root)
    keep_manifest(catalog, timedelta(minutes=1))
    assert indexes(root) == ALL_INDEXES


ALL_INDEXES = ["base_objects_label_list", "object_id_btree", "object_type_bitmap"]


def indexes(root: Path) -> list[str]:
    found = lance.dataset(str(root / "__manifest")).describe_indices()
    return sorted(each.name for each in found)


def removed_under(catalog: DirectoryNamespace, root: Path, other: Callable[[], Any]) -> None:
    """Let a client know the latest version, and remove that after others have gone on."""
    manifest_of(catalog).latest()
    other()
    lance.dataset(str(root / "__manifest")).cleanup_old_versions(older_than=timedelta(0))


class TestRemovedVersions:
    @pytest.fixture(params=list(MANIFEST_MODES))
    def mode(self, request: pytest.FixtureRequest) -> dict[str, str]:
        return MANIFEST_MODES[request.param]

    @pytest.mark.parametrize(
        "read",
        [
            lambda catalog: tables(catalog, "s"),
            lambda catalog: all_tables(catalog),
            lambda catalog: namespaces(catalog),
            lambda catalog: space_exists(catalog, "s"),
            lambda catalog: exists(catalog, "s/t"),
            lambda catalog: generations(catalog, "s/g"),
            lambda catalog: catalog.describe_namespace({"id": ["s"]}),
            lambda catalog: catalog.table_status(["s", "g"]).id,
        ],
    )
    def test_read_of_a_removed_version_is_retried(
        self, read: Callable[[DirectoryNamespace], Any], mode: dict[str, str], tmp_path: Path
    ) -> None:
        root = tmp_path / "root"
        reader, writer = open_root(root, mode), open_root(root, mode)
        spaces(writer, "s")
        make(writer, "s/t", 1)
        make(writer, "s/g", 1)
        drop(writer, "s/g")
        stale = manifest_of(reader).latest()
        removed_under(reader, root, lambda: spaces(writer, "a", "b"))
        expected, latest = read(open_root(root, mode)), original("manifest.latest")
        answers = [stale]

        def once_stale(manifest: LanceManifest) -> Any:
            return answers.pop() if answers else latest(manifest)

        with pytest.raises(ManifestConflictError):
            stale.get(["s"])
        with substituted("manifest.latest", once_stale):
            assert read(reader) == expected
        assert not answers

    def test_change_planned_on_a_removed_version_is_planned_again(self, tmp_path: Path) -> None:
        root = tmp_path / "root"
        one, other = open_root(root, V2), open_root(root, V2)
        spaces(one, "a")
        removed_under(one, root, lambda: spaces(other, "b", "c", "d"))
        spaces(one, "e")
        assert namespaces(other) == ["a", "b", "c", "d", "e"]

    def test_change_based_on_an_outdated_snapshot_is_refused(self, tmp_path: Path) -> None:
        root = tmp_path / "root"
        one, other = open_root(root, V2), open_root(root, V2)
        spaces(one, "a")
        manifest, stale = manifest_of(one), manifest_of(one).latest()
        removed_under(one, root, lambda: spaces(other, "b", "c", "d"))
        stale.seen_at -= original("manifest.read_for_seconds") + 1
        with pytest.raises(ManifestConflictError):
            manifest.commit(stale, Change(added=(Entry("late", ObjectType.NAMESPACE),)))
        assert sorted(check_rows(root).live) == ["a", "b", "c", "d"]

    def test_manifest_whose_latest_version_vanishes_is_read_again(self, tmp_path: Path) -> None:
        root = tmp_path / "root"
        catalog = open_root(root, V2)
        spaces(catalog, "a")
        calls: list[str] = []
        opened = lance.dataset

        def vanished(*arguments: Any, **options: Any) -> Any:
            calls.append("open")
            if len(calls) == 1:
                raise ValueError("Dataset at path 1.manifest was not found: Not found: 1.manifest")
            return opened(*arguments, **options)

        with mock.patch.object(lance, "dataset", vanished):
            assert namespaces(open_root(root, V2)) == ["a"]
        assert len(calls) == 2

    def test_corrupt_latest_version_raises_an_internal_error(self, tmp_path: Path) -> None:
        root = tmp_path / "root"
        spaces(open_root(root, V2), "a")
        for each in (root / "__manifest" / "data").iterdir():
            each.unlink()
        with pytest.raises(InternalError):
            namespaces(open_root(root, V2))
        with pytest.raises(InternalError):
            spaces(open_root(root, V2), "b")

    def test_commit_whose_version_was_removed_is_reported_as_unknown(self, tmp_path: Path) -> None:
        root = tmp_path / "root"
        one, other = open_root(root, V2), open_root(root, V2)
        spaces(one, "a")
        commit = lance.LanceDataset.commit

        def lost(*arguments: Any, **options: Any) -> Any:
            with mock.patch.object(lance.LanceDataset, "commit", commit):
                commit(*arguments, **options)
                spaces(other, "b", "c")
                lance.dataset(str(root / "__manifest")).cleanup_old_versions(older_than=timedelta(0))
            raise OSError("error sending request")

        with mock.patch.object(lance.LanceDataset, "commit", lost), pytest.raises(RelanceError) as caught:
            spaces(one, "mine")
        assert caught.value.code != CONCURRENT_MODIFICATION
        assert type(caught.value).__name__ == "OutcomeUnknownError"
        assert "mine" in namespaces(other)


class TestIndexes:
    @pytest.fixture
    def root(self, tmp_path: Path) -> Path:
        """Return a root whose manifest has files of several sizes, and rows of all kinds."""
        root = tmp_path / "root"
        catalog = open_root(root, {**V2, "manifest_upkeep": "false"})
        spaces(catalog, "s")
        entries = [Entry(f"s$t{number}", ObjectType.TABLE, f"{number:08x}_s$t") for number in range(600)]
        manifest = manifest_of(catalog)
        manifest.commit(manifest.latest(), Change(added=tuple(entries)))
        for number in range(3):
            make(catalog, f"s/g{number}", 1)
            drop(catalog, f"s/g{number}")
        return root

    def looks(self, root: Path) -> list[Any]:
        catalog = open_root(root, {**V2, "manifest_upkeep": "false"})
        snapshot = manifest_of(catalog).latest()
        wanted = [f"s$t{number}" for number in range(0, 700, 7)]
        return [
            sorted(snapshot.get(wanted)),
            sorted(each.object_id for each in snapshot.below("s$t1")),
            sorted(each.original_id for each in snapshot.dropped()),
            [each.original_id for each in snapshot.dropped("s$g1")],
            [each.object_id for each in snapshot.at_location(["00000005_s$t"])],
            tables(catalog, "s"),
            namespaces(catalog),
        ]

    def test_lookups_agree_with_and_without_indexes(self, root: Path) -> None:
        catalog = open_root(root, {**V2, "manifest_upkeep": "false"})
        without = self.looks(root)
        assert len(without[0]) == 86
        assert len(without[2]) == 3
        assert indexes(root) == []
        report = catalog.maintain_manifest()
        assert sorted(report.indexes_built) == ["base_objects", "object_id", "object_type"]
        assert indexes(root) == ALL_INDEXES
        assert self.looks(root) == without
        catalog.maintain_manifest()
        assert self.looks(root) == without

    def test_indexes_are_rebuilt_after_a_native_write_dropped_them(self, root: Path) -> None:
        catalog = open_root(root, {**V2, "manifest_upkeep": "false"})
        catalog.maintain_manifest()
        before = self.looks(root)
        native = open_native(root, V2)
        native.create_namespace(CreateNamespaceRequest(id=["n"]))
        assert indexes(root) == []
        before[-1] = ["n", "s"]
        assert self.looks(root) == before
        spaces(catalog, "m")
        catalog.maintain_manifest()
        assert indexes(root) == ALL_INDEXES
        before[-1] = ["m", "n", "s"]
        assert self.looks(root) == before
        native.create_namespace(CreateNamespaceRequest(id=["o"]))
        assert namespaces(catalog) == ["m", "n", "o", "s"]

    def test_indexes_are_rebuilt_by_background_upkeep(self, root: Path) -> None:
        open_native(root, V2).create_namespace(CreateNamespaceRequest(id=["n"]))
        catalog = open_root(root, V2)
        with substituted("manifest.many_versions", 5):
            spaces(catalog, *(f"m{number}" for number in range(8)))
        manifest = manifest_of(catalog)
        assert manifest.on_commit is not None
        manifest.on_commit.wait()  # type: ignore[attr-defined]  # BackgroundUpkeep
        assert indexes(root) == ALL_INDEXES
        assert len(namespaces(catalog)) == 10
