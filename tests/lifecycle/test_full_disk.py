"""A full disk can be emptied: drop, undrop and purge go through, and creates do not use what that needs."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest
from tests.support.lakes import QUIET, Lake
from tests.support.modes import MODES
from tests.support.mounts import fill, mounted, small_disk
from tests.support.policy.policies import policy
from tests.support.roots import ROWS, LocalPlace, create, deregister, drop, local_place, names

from relance import DirectoryNamespace, Exists, SoftDeleted
from relance.errors import PermissionDeniedError, StorageFullError
from relance.jobs import PurgeDropped, RemoveOrphans, maintain
from relance.policy import plan, run_policy, runs
from relance.policy.records import Outcome

BALLAST = ".relance-local/ballast"
WHOLE = [32 * 1024] * 32
TABLES = ("a", "b", "c", "d")


def ballast(place: LocalPlace) -> list[int]:
    """Return the allocated bytes of each file of the ballast."""
    folder = place.folder / BALLAST
    return [file.stat().st_blocks * 512 for file in sorted(folder.iterdir())] if folder.is_dir() else []


def empty_by_verbs(catalog: DirectoryNamespace) -> None:
    """Drop, undrop, deregister and purge on a full disk."""
    with pytest.raises(StorageFullError, match="the disk is full: drop and purge tables"):
        create(catalog, "new")
    drop(catalog, "b")
    assert isinstance(catalog.undrop_table(["b"]), Exists)
    drop(catalog, "b")
    assert isinstance(catalog.undrop_table(["a"]), Exists)
    deregister(catalog, "c")
    assert catalog.purge_table(["b"], force=True).error is None
    catalog.drop_table({"id": ["d"], "context": {"purge": "true"}})
    assert isinstance(catalog.table_status(["a"]), Exists)
    assert names(catalog) == ["a"]
    assert catalog.list_dropped_tables() == []


def four_tables(catalog: DirectoryNamespace) -> None:
    """Make four tables, the first one dropped, each larger than what the verbs write."""
    rows = pa.table({"text": [os.urandom(1000) for _ in range(300)]})
    for name in TABLES:
        lance.write_dataset(rows, namespace_client=catalog, table_id=[name], mode="create")
    drop(catalog, "a")


@pytest.fixture(params=MODES)
def full(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[LocalPlace]:
    """A root with four tables on a disk without a free byte."""
    with small_disk(tmp_path / "disk", "16m") as disk:
        place = local_place(disk / "lake", MODES[request.param])
        four_tables(place.open())
        fill(disk)
        yield place


def test_full_disk_is_emptied(full: LocalPlace) -> None:
    kept = len(ballast(full))
    empty_by_verbs(full.open())
    create(full.open(), "new")
    assert len(ballast(full)) >= kept - 12, "little of it was needed"


def test_many_drops_on_a_full_disk_go_through_and_can_be_undone(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", "16m") as disk:
        catalog = local_place(disk / "lake", MODES["V2"]).open()
        tables = [f"t{number}" for number in range(10)]
        for name in tables:
            create(catalog, name)
        fill(disk)
        for name in tables:
            drop(catalog, name)
        for name in tables:
            assert isinstance(catalog.undrop_table([name]), Exists)


def test_create_leaves_the_ballast_alone(full: LocalPlace) -> None:
    catalog, before = full.open(), ballast(full)
    for number in range(3):
        with pytest.raises(StorageFullError):
            create(catalog, f"new{number}")
    assert ballast(full) == before == WHOLE


def test_ballast_comes_back_when_there_is_space(full: LocalPlace) -> None:
    catalog = full.open()
    drop(catalog, "b")
    assert len(ballast(full)) < len(WHOLE)
    (full.folder.parent / "filler").unlink()
    assert catalog.purge_table(["b"], force=True).error is None
    assert ballast(full) == WHOLE


def test_disk_without_inodes_is_emptied(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", "64m,nr_inodes=400") as disk:
        place = local_place(disk / "lake", MODES["compatibility"])
        four_tables(place.open())
        taken = disk / "taken"
        taken.mkdir()
        with pytest.raises(OSError, match="No space left"):  # noqa: PT012  # one of them fails
            for number in range(1000):
                (taken / str(number)).touch()
        catalog = place.open()
        for name in ("b", "c", "d"):
            drop(catalog, name)
            assert catalog.purge_table([name], force=True).error is None
        shutil.rmtree(taken)
        create(catalog, "new")
        assert names(catalog) == ["new"]


def test_small_disk_is_not_filled_by_the_ballast(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", "2m") as disk:
        place = local_place(disk / "lake", MODES["V1"])
        create(place.open(), "t")
        left = os.statvfs(disk)
        assert left.f_bavail * left.f_frsize >= 1 << 20
        assert 0 < len(ballast(place)) < len(WHOLE)


def test_ballast_is_real_space_and_shown_to_nobody(tmp_path: Path) -> None:
    place = local_place(tmp_path / "lake", MODES["compatibility"])
    catalog = place.open()
    create(catalog, "t")
    assert ballast(place) == WHOLE
    assert names(catalog) == ["t"]
    assert catalog.scrub() == []


PURGE = policy("[defaults]\npurge = true\n")


@contextmanager
def due_table(folder: Path, mode: str) -> Iterator[tuple[Lake, Path]]:
    """Yield a lake with a table that may be purged, on a disk of its own, and the disk."""
    with small_disk(folder, "16m") as disk:
        lake = Lake(str(disk / "lake"), MODES[mode], settings=QUIET)
        four_tables(lake.open())
        lake.drop_long_ago("b")
        yield lake, disk


def look(catalog: DirectoryNamespace) -> None:
    """Look what may be purged, and have dry runs tell."""
    assert [each.id for each in catalog.list_purgable_tables()] == [("b",)]
    assert [(each.id, each.error) for each in catalog.purge_tables(dry_run=True)] == [(("b",), None)]
    for job in (PurgeDropped(), RemoveOrphans()):
        assert not [
            each.error for each in maintain(catalog, job, engine="local", dry_run=True).results if each.error
        ]
    assert [each.action.table for each in plan(catalog, PURGE, engine="local").record.actions] == [("b",)]
    assert all(each.error is None for each in catalog.scrub())


@pytest.mark.parametrize("mode", MODES)
def test_full_disk_is_emptied_by_jobs(tmp_path: Path, mode: str) -> None:
    with due_table(tmp_path / "disk", mode) as (lake, disk):
        fill(disk)
        for job in (RemoveOrphans(), PurgeDropped()):
            report = maintain(lake.open(), job, engine="local")
            assert [each.error for each in report.results] == [None]
        assert [each.id for each in lake.open().list_dropped_tables()] == [("a",)]


@pytest.mark.parametrize("mode", MODES)
def test_full_disk_is_emptied_by_policies(tmp_path: Path, mode: str) -> None:
    with due_table(tmp_path / "disk", mode) as (lake, disk):
        fill(disk)
        catalog = lake.open()
        record = run_policy(catalog, PURGE, engine="local")
        assert [(each.action.table, each.outcome) for each in record.actions] == [(("b",), Outcome.DONE)]
        fill(disk)
        assert run_policy(catalog, PURGE, engine="local").actions == ()
        assert len(runs(catalog)) == 2


def test_policy_that_frees_nothing_leaves_the_ballast_alone(tmp_path: Path) -> None:
    with due_table(tmp_path / "disk", "V1") as (lake, disk):
        lake.write(pa.table({"text": [b"more"]}), "c", mode="append")
        fill(disk)
        with pytest.raises(StorageFullError):
            run_policy(lake.open(), policy("[defaults]\ncompact = {}\n"), engine="local")
        left = list((lake.folder / BALLAST).iterdir())
        assert len(left) >= len(WHOLE) - 2, "only a probe and the lease were written"


@pytest.mark.parametrize("mode", MODES)
def test_full_disk_does_not_keep_from_looking(tmp_path: Path, mode: str) -> None:
    with due_table(tmp_path / "disk", mode) as (lake, disk):
        fill(disk)
        look(lake.open())
        assert len(list((lake.folder / BALLAST).iterdir())) == len(WHOLE)


@pytest.mark.parametrize("mode", MODES)
def test_read_only_disk_does_not_keep_from_looking(tmp_path: Path, mode: str) -> None:
    with due_table(tmp_path / "disk", mode) as (lake, disk), mounted(disk, "--bind", str(disk)):
        subprocess.run(["mount", "-o", "remount,bind,ro", str(disk)], check=True, timeout=30)
        look(lake.open())
        with pytest.raises(PermissionDeniedError, match="mounted read-only"):
            lake.open().purge_tables()


@pytest.mark.parametrize("mode", ["V1", "compatibility"])
def test_full_disk_where_nothing_was_kept_back_says_what_to_do(tmp_path: Path, mode: str) -> None:
    with small_disk(tmp_path / "disk", "16m") as disk:
        lance.write_dataset(ROWS, disk / "lake" / "t.lance")
        fill(disk)
        catalog = local_place(disk / "lake", MODES[mode]).open()
        for _ in range(2):
            with pytest.raises(StorageFullError, match="free space on the disk by other means"):
                drop(catalog, "t")
        assert names(catalog) == ["t"]


@pytest.mark.parametrize("mode", MODES)
def test_full_disk_whose_ballast_is_used_up_says_what_to_do(tmp_path: Path, mode: str) -> None:
    with small_disk(tmp_path / "disk", "16m") as disk:
        place = local_place(disk / "lake", MODES[mode])
        four_tables(place.open())
        shutil.rmtree(place.folder / BALLAST)
        fill(disk)
        with pytest.raises(StorageFullError, match="free space on the disk by other means"):
            drop(place.open(), "b")


ODD: dict[str, Callable[[Path], object]] = {
    "pipe": os.mkfifo,
    "link": lambda place: place.symlink_to("/etc/hostname"),
    "dangling link": lambda place: place.symlink_to("/nowhere/at/all"),
    "folder": Path.mkdir,
}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("odd", ODD)
def test_odd_entry_among_the_ballast_is_in_nobodys_way(tmp_path: Path, odd: str, mode: str) -> None:
    with small_disk(tmp_path / "disk", "16m") as disk:
        place = local_place(disk / "lake", MODES[mode])
        four_tables(place.open())
        for name in ("05", "31"):
            (place.folder / BALLAST / name).unlink()
            ODD[odd](place.folder / BALLAST / name)
        before = [(place.folder / BALLAST / name).lstat().st_ino for name in ("05", "31")]
        for name in ("00", "30"):
            (place.folder / BALLAST / name).unlink()
        catalog = place.open()
        drop(catalog, "b")
        assert isinstance(catalog.undrop_table(["b"]), Exists)
        assert {file.name for file in (place.folder / BALLAST).iterdir()} >= {"00", "30"}, (
            "the rest comes back"
        )
        filler = fill(disk)
        empty_by_verbs(place.open())
        filler.unlink()
        create(place.open(), "new")
        assert [(place.folder / BALLAST / name).lstat().st_ino for name in ("05", "31")] == before


def fill_up(monkeypatch: pytest.MonkeyPatch, folder: Path) -> Callable[[], bool]:
    """Let every file of ours need space that only a file of the ballast gives; return whether one is left."""
    free = [0]
    write, unlink = os.write, os.unlink

    def written(descriptor: int, body: Any) -> int:
        if free[0] < 1:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        free[0] -= 1
        return write(descriptor, body)

    def removed(path: Any, *, dir_fd: int | None = None) -> None:
        unlink(path, dir_fd=dir_fd)
        if dir_fd is not None and os.readlink(f"/proc/self/fd/{dir_fd}").endswith(BALLAST):
            free[0] += 2

    monkeypatch.setattr(os, "write", written)
    monkeypatch.setattr(os, "unlink", removed)
    return lambda: any((folder / BALLAST).iterdir())


def test_injected_full_disk_lets_only_verbs_that_empty_it_through(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = local_place(tmp_path / "lake", MODES["V1"])
    catalog = place.open()
    four_tables(catalog)
    with monkeypatch.context() as patches:
        fill_up(patches, place.folder)
        patches.setattr(os, "posix_fallocate", _full)
        with pytest.raises(StorageFullError):
            create(catalog, "b", mode="overwrite")
        assert ballast(place) == WHOLE
        drop(catalog, "b")
        assert isinstance(catalog.table_status(["b"]), SoftDeleted)
        assert isinstance(catalog.undrop_table(["b"]), Exists)
        drop(catalog, "b")
        assert catalog.purge_table(["b"], force=True).error is None
        assert 0 < len(ballast(place)) < len(WHOLE)
    create(catalog, "new")
    assert ballast(place) == WHOLE


def test_injected_full_disk_without_ballast_raises_an_error_that_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = local_place(tmp_path / "lake", MODES["V1"])
    catalog = place.open()
    create(catalog, "t")
    for file in (place.folder / BALLAST).iterdir():
        file.unlink()
    fill_up(monkeypatch, place.folder)
    monkeypatch.setattr(os, "posix_fallocate", _full)
    with pytest.raises(StorageFullError, match="free space on the disk by other means"):
        drop(catalog, "t")
    assert isinstance(catalog.table_status(["t"]), Exists)


def _full(*_: object) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
