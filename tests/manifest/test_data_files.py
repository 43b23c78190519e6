"""The cache of the manifest's data files matches the table, no matter which client wrote it."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path

import lance
import pyarrow as pa
import pytest
from lance.namespace import CreateNamespaceRequest
from lance.namespace import DirectoryNamespace as NativeNamespace
from tests.support.manifests import open_manifest
from tests.support.patches import original, substitute

from relance.manifest import data_files
from relance.manifest.entry import Entry, ObjectType, decode_row
from relance.manifest.lance_manifest import LanceManifest
from relance.manifest.schema import SCHEMA
from relance.manifest.store import Change, transact
from relance.manifest.upkeep import keep_up

METADATA: tuple[dict[str, str], ...] = (
    {},
    {"k": "v"},
    {"relance.moved_to": "elsewhere"},
    {"k": "relance.moved_to"},
    {"relance.by_row": "true"},
)
"""The fourth only says the word."""


@pytest.fixture
def manifest(tmp_path: Path) -> LanceManifest:
    return open_manifest(tmp_path)


@pytest.fixture
def tiny_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make nearly every file count as large."""
    substitute(monkeypatch, "manifest.small_rows", 4)
    substitute(monkeypatch, "manifest.head_rows", 3)


def table(object_id: str, metadata: dict[str, str] | None = None, location: str | None = None) -> Entry:
    return Entry(object_id, ObjectType.TABLE, location or f"{object_id}.lance", metadata or {})


def write(manifest: LanceManifest, *, added: Sequence[Entry] = (), removed: Sequence[str] = ()) -> None:
    transact(manifest, lambda _: (Change(tuple(removed), tuple(added)), None))


def rows_on_disk(manifest: LanceManifest) -> dict[str, Entry]:
    """Read the table as it is, past all that is kept of it and past its indexes."""
    dataset = lance.dataset(manifest.table.uri)
    found = [decode_row(row) for row in dataset.to_table().to_pylist()]
    assert len({each.object_id for each in found}) == len(found)
    return {each.object_id: each for each in found if not each.is_dropped}


def check(manifest: LanceManifest, asked: Sequence[str]) -> None:
    truth, snapshot = rows_on_disk(manifest), manifest.latest()
    assert snapshot.get(asked) == {each: truth[each] for each in asked if each in truth}
    visible = {
        each for each in truth if truth[each].is_visible and truth[each].object_type == ObjectType.TABLE
    }
    at_root = sorted(each for each in visible if "$" not in each)
    assert list(snapshot.names((), ObjectType.TABLE, after=None)) == at_root
    assert list(snapshot.names(("n",), ObjectType.TABLE, after="t3")) == sorted(
        each[2:] for each in visible if each.startswith("n$") and each > "n$t3"
    )
    assert list(snapshot.table_ids(after=None)) == sorted(visible)
    assert snapshot.own_directories() == {each for each in visible if truth[each].has_own_directory}
    assert snapshot.moved() == {each for each in truth if truth[each].moved_to is not None}


@pytest.mark.parametrize("small_rows", [4, data_files.SMALL_ROWS_AFAR])
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
    write(clients[0], added=[table(each) for each in names[::2]])
    spaces = 0
    for _ in range(25):
        client = chance.choice(clients)
        there = rows_on_disk(client)
        chosen = set(chance.sample(names, chance.randint(1, 4)))
        new = [
            table(each, chance.choice(METADATA), chance.choice([None, "dir"]))
            for each in chosen
            if each not in there or chance.random() < 0.5
        ]
        write(client, added=new, removed=[each for each in chosen if each in there])
        match chance.randrange(10):
            case 0:
                keep_up(client)
            case 1:
                native.create_namespace(CreateNamespaceRequest(id=[f"space{spaces}"]))
                spaces += 1
        for each in clients:
            check(each, chance.sample(names, 5))
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
    assert len(manifest.latest().own_directories()) == 1997
    assert len(read) == 1


def test_row_removed_from_a_small_file_is_unlisted_without_rereading_the_file(
    manifest: LanceManifest, monkeypatch: pytest.MonkeyPatch
) -> None:
    substitute(monkeypatch, "manifest.head_rows", 3)
    names = [f"t{number}" for number in range(8)]
    write(manifest, added=[table(each) for each in names])
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
    write(manifest, added=[table(each) for each in names])
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
        [{"object_id": each, "object_type": "table", "location": f"{each}.lance"} for each in names], SCHEMA
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
    write(manifest, added=[table(each) for each in names])
    snapshot = manifest.latest()
    for each in names * 2:
        assert set(snapshot.get([each, "t0", "missing"])) == {each, "t0"}
    assert set(snapshot.get(names)) == set(names)
