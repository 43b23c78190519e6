"""The cache of the manifest's data files matches the table, no matter which client wrote it."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest
from lance.namespace import CreateNamespaceRequest
from lance.namespace import DirectoryNamespace as NativeNamespace
from tests.support.catalog_manifests import open_manifest
from tests.support.patches import original, substitute

from relance.catalog.manifest import cache
from relance.catalog.manifest.row import ObjectType, Row, decode_row
from relance.catalog.manifest.schema import SCHEMA
from relance.catalog.manifest.store import Change, transact
from relance.catalog.manifest.table import LanceManifest
from relance.catalog.manifest.upkeep import keep_up

METADATA: tuple[dict[str, Any], ...] = (
    {},
    {"k": "v", "n": 1.5},
    {"relance.control": "deleted"},
    {"relance.control": '{"format": 2, "state": "reviving"}'},
    {"relance.id": "a"},
    {"relance.id": 1},
    {"k": "relance.control"},
    {"k": {"relance.control": None}},
)
"""The last two only say the word."""


@pytest.fixture
def manifest(tmp_path: Path) -> LanceManifest:
    return open_manifest(tmp_path)


@pytest.fixture
def tiny_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make nearly every file count as large."""
    substitute(monkeypatch, "manifest.small_rows", 4)
    substitute(monkeypatch, "manifest.head_rows", 3)


def table(object_id: str, metadata: dict[str, Any] | None = None, location: str | None = None) -> Row:
    return Row(object_id, ObjectType.TABLE, location or f"{object_id}.lance", metadata or {})


def write(manifest: LanceManifest, *, added: Sequence[Row] = (), removed: Sequence[str] = ()) -> None:
    transact(manifest, lambda _: (Change(tuple(removed), tuple(added)), None))


def rows_on_disk(manifest: LanceManifest) -> dict[str, Row]:
    """Read the table as it is, past all that is kept of it and past its indexes."""
    dataset = lance.dataset(manifest.table.uri)
    all_rows = [decode_row(columns) for columns in dataset.to_table().to_pylist()]
    by_id = {row.object_id: row for row in all_rows}
    assert len(by_id) == len(all_rows)
    return {object_id: row for object_id, row in by_id.items() if not row.is_dropped}


def check(manifest: LanceManifest, asked: Sequence[str]) -> None:
    truth, snapshot = rows_on_disk(manifest), manifest.latest()
    assert snapshot.get(asked) == {name: truth[name] for name in asked if name in truth}
    visible = {
        name for name in truth if truth[name].is_visible and truth[name].object_type == ObjectType.TABLE
    }
    at_root = sorted(name for name in visible if "$" not in name)
    assert list(snapshot.names((), ObjectType.TABLE, after=None)) == at_root
    assert list(snapshot.names(("n",), ObjectType.TABLE, after="t3")) == sorted(
        name[2:] for name in visible if name.startswith("n$") and name > "n$t3"
    )
    assert list(snapshot.table_ids(after=None)) == sorted(visible)
    assert snapshot.home_names() == {object_id for object_id in visible if truth[object_id].is_home}
    reviving = {row.object_id for row in snapshot.reviving()}
    assert reviving == {object_id for object_id in truth if truth[object_id].is_reviving}
    near_dir = {row.object_id for row in snapshot.sharing(["dir"])}
    assert near_dir == {object_id for object_id in truth if truth[object_id].normalized_location == "dir"}
    assert list(snapshot.duplicates()) == []


@pytest.mark.parametrize("small_rows", [4, cache.SMALL_ROWS_AFAR])
@pytest.mark.parametrize("seed", range(2))
@pytest.mark.usefixtures("tiny_files")
def test_cached_lookups_and_listings_match_the_table_after_any_changes(
    tmp_path: Path, seed: int, small_rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    substitute(monkeypatch, "manifest.small_rows", small_rows)
    chance = random.Random(seed)
    clients = [open_manifest(tmp_path), open_manifest(tmp_path)]
    native = NativeNamespace(root=str(tmp_path), manifest_enabled="true", dir_listing_enabled="false")
    names = [f"{prefix}t{number}" for prefix in ("", "n$") for number in range(10)]
    write(clients[0], added=[table(name) for name in names[::2]])
    spaces = 0
    for _ in range(25):
        client = chance.choice(clients)
        there = rows_on_disk(client)
        picked = set(chance.sample(names, chance.randint(1, 4)))
        new = [
            table(name, chance.choice(METADATA), chance.choice([None, f"./{name}.lance/", "dir", ".//dir/"]))
            for name in picked
            if name not in there or chance.random() < 0.5
        ]
        write(client, added=new, removed=[name for name in picked if name in there])
        match chance.randrange(10):
            case 0:
                keep_up(client)
            case 1:
                native.create_namespace(CreateNamespaceRequest(id=[f"space{spaces}"]))
                spaces += 1
        for client in clients:
            check(client, chance.sample(names, 5))
        check(open_manifest(tmp_path), names)


def test_row_removed_from_a_large_file_is_unlisted_without_rereading_the_file(
    manifest: LanceManifest, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(manifest, added=[table(f"t{number:04d}") for number in range(2000)])
    read: list[int] = []
    unpatched = original("manifest.read_file_ids")

    def read_ids(fragment: lance.LanceFragment) -> object:
        read.append(fragment.fragment_id)
        return unpatched(fragment)

    substitute(monkeypatch, "manifest.read_file_ids", read_ids)
    for number in (1999, 0, 77):
        write(manifest, removed=[f"t{number:04d}"])
        assert f"t{number:04d}" not in set(manifest.latest().names((), ObjectType.TABLE, after=None))
    assert len(list(manifest.latest().table_ids(after=None))) == 1997
    assert len(manifest.latest().home_names()) == 1997
    assert len(read) == 1


def test_row_removed_from_a_small_file_is_unlisted_without_rereading_the_file(
    manifest: LanceManifest, monkeypatch: pytest.MonkeyPatch
) -> None:
    substitute(monkeypatch, "manifest.head_rows", 3)
    names = [f"t{number}" for number in range(8)]
    write(manifest, added=[table(name) for name in names])
    write(manifest, added=[table("other")])
    check(manifest, names)

    def read_small(*_: object) -> object:
        raise AssertionError("read again")

    substitute(monkeypatch, "manifest.read_small_file", read_small)
    for name in ("t5", "t0", "other"):
        write(manifest, removed=[name])
        check(manifest, names)


@pytest.mark.usefixtures("tiny_files")
def test_restored_version_is_not_confused_with_one_of_equal_deletion_count(manifest: LanceManifest) -> None:
    names = [f"t{number}" for number in range(8)]
    write(manifest, added=[table(name) for name in names])
    write(manifest, added=[table("other")])
    before = manifest.latest().version
    write(manifest, removed=["t1"])
    check(manifest, names)
    lance.dataset(manifest.table.uri, version=before).restore()
    check(manifest, names)
    write(manifest, removed=["t2"])
    check(manifest, names)


@pytest.mark.usefixtures("tiny_files")
def test_manifest_with_stable_row_ids_is_read_and_changed(manifest: LanceManifest) -> None:
    names = [f"t{number}" for number in range(8)]
    rows = pa.Table.from_pylist(
        [{"object_id": name, "object_type": "table", "location": f"{name}.lance"} for name in names], SCHEMA
    )
    lance.write_dataset(rows, manifest.table.uri, enable_stable_row_ids=True)
    for name in ("t3", "t5"):
        write(manifest, removed=[name])
        check(manifest, names)


def test_older_snapshot_still_reads_its_own_version(manifest: LanceManifest) -> None:
    write(manifest, added=[table(f"t{number:04d}") for number in range(1000)])
    old = manifest.latest()
    write(manifest, removed=["t0000"])
    assert manifest.latest().get(["t0000"]) == {}
    assert next(manifest.latest().table_ids(after=None)) == "t0001"
    assert next(old.table_ids(after=None)) == "t0000"
    assert old.get(["t0000"]) != {}


@pytest.mark.usefixtures("tiny_files")
def test_lookups_beyond_the_cache_size_find_every_id(
    manifest: LanceManifest, monkeypatch: pytest.MonkeyPatch
) -> None:
    substitute(monkeypatch, "manifest.most_known_ids", 3)
    names = [f"t{number}" for number in range(8)]
    write(manifest, added=[table(name) for name in names])
    snapshot = manifest.latest()
    for name in names * 2:
        assert set(snapshot.get([name, "t0", "missing"])) == {name, "t0"}
    assert set(snapshot.get(names)) == set(names)
