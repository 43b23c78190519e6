"""The latest version of the manifest is found, from whatever version was known, without a listing."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

import lance
import pyarrow as pa
import pytest
from tests.support.catalog_manifests import open_manifest
from tests.support.patches import substitute

from relance.catalog.manifest.row import ObjectType, Row
from relance.catalog.manifest.schema import SCHEMA
from relance.catalog.manifest.store import Change, transact
from relance.catalog.manifest.table import LanceManifest
from relance.catalog.manifest.upkeep import keep_up
from relance.clock import since_boot
from relance.errors import InternalError
from relance.storage.local_disk import LocalDiskStorage


class _DiskAfar(LocalDiskStorage):
    """A disk that is asked as an object store is, and counts what it is asked."""

    def __init__(self, root: str) -> None:
        super().__init__(root)
        self.looked_for: list[str] = []

    @property
    def cheap_lookups(self) -> bool:
        return False

    def head(self, key: str) -> object:  # type: ignore[override]  # what it returns is only passed on
        self.looked_for.append(key)
        return super().head(key)

    def which_exist(self, paths: Sequence[str]) -> frozenset[str]:
        raise AssertionError("on an object store this is a listing")


def add(manifest: LanceManifest, name: str) -> None:
    transact(manifest, lambda _: (Change(added=(Row(name, ObjectType.NAMESPACE),)), None))


@pytest.fixture
def writer(tmp_path: Path) -> LanceManifest:
    manifest = open_manifest(tmp_path, LocalDiskStorage(str(tmp_path)))
    add(manifest, "first")
    return manifest


@pytest.fixture
def storage(tmp_path: Path) -> _DiskAfar:
    return _DiskAfar(str(tmp_path))


@pytest.fixture
def reader(tmp_path: Path, writer: LanceManifest, storage: _DiskAfar) -> LanceManifest:
    manifest = open_manifest(tmp_path, storage)
    assert manifest.latest().version == writer.latest().version
    return manifest


def test_reading_an_unchanged_manifest_costs_one_request(reader: LanceManifest, storage: _DiskAfar) -> None:
    first = reader.latest()
    storage.looked_for.clear()
    assert reader.latest() is first
    assert len(storage.looked_for) == 1


@pytest.mark.parametrize("commits", [1, 2, 3, 7, 20])
def test_commits_of_other_clients_are_seen_immediately(
    writer: LanceManifest, reader: LanceManifest, storage: _DiskAfar, commits: int
) -> None:
    for number in range(commits):
        add(writer, f"n{number}")
    storage.looked_for.clear()
    snapshot = reader.latest()
    assert snapshot.version == writer.latest().version
    assert set(snapshot.get([f"n{commits - 1}"])) == {f"n{commits - 1}"}
    assert len(storage.looked_for) <= 2 + 2 * commits.bit_length()


def test_reader_skips_the_versions_committed_by_upkeep(writer: LanceManifest, reader: LanceManifest) -> None:
    add(writer, "second")
    keep_up(writer)
    add(writer, "third")
    assert set(reader.latest().get(["second", "third"])) == {"second", "third"}


def test_other_clients_commits_are_seen_immediately_if_versions_have_their_old_names(tmp_path: Path) -> None:
    rows = pa.Table.from_pylist([{"object_id": "first", "object_type": "namespace"}], SCHEMA)
    uri = str(tmp_path / "__manifest")
    lance.write_dataset(rows, uri, enable_v2_manifest_paths=False)
    reader = open_manifest(tmp_path, _DiskAfar(str(tmp_path)))
    assert set(reader.latest().get(["first", "second"])) == {"first"}
    lance.write_dataset(rows.set_column(0, "object_id", [["second"]]), uri, mode="append")
    assert set(reader.latest().get(["first", "second"])) == {"first", "second"}
    with pytest.raises(InternalError, match="already contains 'second'"):
        add(reader, "second")
    add(reader, "third")
    lance.dataset(uri).migrate_manifest_paths_v2()
    add(open_manifest(tmp_path, _DiskAfar(str(tmp_path))), "fourth")
    assert set(reader.latest().get(["second", "third", "fourth"])) == {"second", "third", "fourth"}


class TestReplacedManifest:
    @pytest.fixture(autouse=True)
    def _replace(self, tmp_path: Path, reader: LanceManifest, writer: LanceManifest) -> None:
        add(writer, "second")
        assert "second" in reader.latest().get(["second"])
        shutil.rmtree(tmp_path / "__manifest")
        add(open_manifest(tmp_path, LocalDiskStorage(str(tmp_path))), "other")

    def test_replaced_manifest_is_noticed_immediately_on_disk(self, writer: LanceManifest) -> None:
        assert set(writer.latest().get(["second", "other"])) == {"other"}

    def test_replaced_manifest_is_noticed_soon_on_an_object_store(
        self, reader: LanceManifest, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        now = since_boot()
        reader.latest()
        substitute(monkeypatch, "manifest.since_boot", lambda: now + 9)
        reader.latest()  # known for longer now, and yet
        substitute(monkeypatch, "manifest.since_boot", lambda: now + 11)
        assert set(reader.latest().get(["second", "other"])) == {"other"}
