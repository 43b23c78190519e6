"""Local disk only: concurrent processes, crashes, links, permissions."""

from __future__ import annotations

import errno
import multiprocessing
import os
import shutil
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.support.patches import original, substitute

from relance.errors import (
    InternalError,
    InvalidTableStateError,
    KeyChangedError,
    KeyExistsError,
    KeyNotFoundError,
    PermissionDeniedError,
    StorageError,
    StorageFullError,
)
from relance.storage.disk_files import modified_time
from relance.storage.local_disk import LocalDiskStorage
from relance.storage.protocol import Replacement


def _count_up(directory: str, rounds: int) -> None:
    storage = LocalDiskStorage(directory)
    for _ in range(rounds):
        while True:
            found = storage.read("counter")
            try:
                storage.replace("counter", str(int(found.body) + 1).encode(), expected=found.version)
                break
            except KeyChangedError:
                continue


def _create_names(directory: str, wins: multiprocessing.Queue[int], names: int) -> None:
    storage = LocalDiskStorage(directory)
    won = 0
    for index in range(names):
        try:
            storage.create(f"d{index % 3}/n{index}", str(os.getpid()).encode())
            won += 1
        except KeyExistsError:
            pass
        storage.delete(f"d{index % 3}/other-{os.getpid()}")
    wins.put(won)


@pytest.mark.deep
def test_concurrent_increments_by_processes_are_not_lost(tmp_path: Path) -> None:
    LocalDiskStorage(str(tmp_path)).create("counter", b"0")
    spawn = multiprocessing.get_context("spawn")
    workers = [spawn.Process(target=_count_up, args=(str(tmp_path), 25)) for _ in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(60)
    assert [worker.exitcode for worker in workers] == [0] * 4
    assert LocalDiskStorage(str(tmp_path)).read("counter").body == b"100"


@pytest.mark.deep
def test_keys_are_created_by_exactly_one_process(tmp_path: Path) -> None:
    spawn = multiprocessing.get_context("spawn")
    wins: multiprocessing.Queue[int] = spawn.Queue()
    workers = [spawn.Process(target=_create_names, args=(str(tmp_path), wins, 60)) for _ in range(4)]
    for worker in workers:
        worker.start()
    total = sum(wins.get(timeout=60) for _ in workers)
    for worker in workers:
        worker.join(60)
    assert total == 60
    assert len(list(LocalDiskStorage(str(tmp_path)).list_recursive(""))) == 60


def test_writes_leave_no_temporary_files(tmp_path: Path) -> None:
    storage = LocalDiskStorage(str(tmp_path))
    version = storage.create("a", b"1")
    storage.replace("a", b"2", expected=version)
    with pytest.raises(KeyExistsError):
        storage.create("a", b"3")
    assert list((tmp_path / ".relance-local" / "tmp").iterdir()) == []
    assert storage.list_level("").directories == ()


def test_loose_files_and_empty_folders_are_not_listed_as_directories(tmp_path: Path) -> None:
    (tmp_path / "empty.lance").mkdir()
    (tmp_path / "full.lance").mkdir()
    (tmp_path / "full.lance" / "f").touch()
    (tmp_path / "file.lance").touch()
    storage = LocalDiskStorage(str(tmp_path))
    assert storage.list_level("").directories == ("full.lance",)
    assert storage.list_level("file.lance").files == ()


def test_symbolic_link_never_leads_out_of_the_root(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "precious").write_bytes(b"keep")
    root = tmp_path / "root"
    root.mkdir()
    (root / "t.lance").symlink_to(outside)
    storage = LocalDiskStorage(str(root))
    assert storage.list_level("").directories == ()
    assert storage.list_level("t.lance").files == ()
    assert list(storage.list_recursive("")) == []
    (outside / "also").write_bytes(b"keep")
    (root / "u").touch()
    asked = ["t.lance/", "t.lance/precious", "u", "t.lance/also"]
    assert storage.which_exist(asked) == {"u"}
    with pytest.raises(KeyNotFoundError):
        storage.read("t.lance/precious")
    storage.delete("t.lance/precious")
    storage.delete_many(["t.lance/precious", "t.lance/also"])
    with pytest.raises(InvalidTableStateError, match=r"'t.lance' in .* is a link or a file where a folder"):
        storage.create("t.lance/new", b"x")
    assert {each.name for each in outside.iterdir()} == {"precious", "also"}


def test_denied_permission_and_a_full_disk_raise_typed_errors_with_a_cause(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage = LocalDiskStorage(str(tmp_path))

    def fail_with(code: int) -> None:
        def fsync(_: int) -> None:
            raise OSError(code, os.strerror(code))

        monkeypatch.setattr(os, "fsync", fsync)

    fail_with(errno.EACCES)
    with pytest.raises(PermissionDeniedError) as denied:
        storage.create("a", b"x")
    assert isinstance(denied.value.__cause__, PermissionError)
    fail_with(errno.ENOSPC)
    with pytest.raises(InternalError, match="No space left") as full:
        storage.create("a", b"x")
    assert isinstance(full.value.__cause__, OSError)
    assert storage.list_level("").files == ()


def test_errors_name_the_files_they_are_about(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    storage = LocalDiskStorage(str(tmp_path))
    first, second = _changes(storage, 2)

    def fail(*_: object, **__: object) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(PermissionDeniedError, match=r"'k0' in .* read-only"):
        storage.replace("k0", b"new", expected=first.expected)
    outcomes = storage.replace_many([first, second])
    assert all("'k0'" in str(outcome) for outcome in outcomes), outcomes
    monkeypatch.setattr(os, "unlink", fail)
    with pytest.raises(PermissionDeniedError, match="'k0' in "):
        storage.delete("k0")
    with pytest.raises(PermissionDeniedError, match="'k1' in "):
        storage.delete_many(["k1"])


def _changes(storage: LocalDiskStorage, count: int) -> list[Replacement]:
    keys = [f"k{number}" for number in range(count)]
    return [Replacement(key, b"new", storage.create(key, b"old")) for key in keys]


@pytest.mark.parametrize("has_call_for_all", [True, False])
def test_bodies_are_synced_before_the_rename_and_folders_before_returning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_call_for_all: bool
) -> None:
    storage, events = LocalDiskStorage(str(tmp_path)), list[str]()
    changes = _changes(storage, 20)
    storage.delete("none")  # makes the folder of locks

    def sync_all(descriptor: int) -> None:
        events.append("all")

    def sync(descriptor: int) -> None:
        events.append("folder" if os.path.isdir(f"/proc/self/fd/{descriptor}") else "file")

    def move(source: str, target: str, real: Callable[..., None] = os.replace, **folders: int) -> None:
        events.append("move")
        real(source, target, **folders)

    substitute(monkeypatch, "disk.sync_file_system", lambda: sync_all if has_call_for_all else None)
    monkeypatch.setattr(os, "fsync", sync)
    monkeypatch.setattr(os, "replace", move)
    storage.replace_many(changes)
    assert events == [*(["all"] if has_call_for_all else ["file"] * 20), *["move"] * 20, "folder"]


def test_sync_of_the_file_system_reports_failures(tmp_path: Path) -> None:
    sync = original("disk.sync_file_system")()
    if sync is None:
        pytest.skip("this system has no such call, or one that hides failures")
    with pytest.raises(OSError, match="Bad file descriptor"):
        sync(-1)
    with open(tmp_path / "f", "wb") as file:
        sync(file.fileno())


def _break(*_: object) -> None:
    raise OSError(errno.EIO, "the disk is broken")


def test_bodies_that_cannot_be_synced_are_never_visible(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage = LocalDiskStorage(str(tmp_path))
    changes = _changes(storage, 3)

    substitute(monkeypatch, "disk.sync_temporary_files", _break)
    outcomes = storage.replace_many(changes)
    assert [type(each) for each in outcomes] == [StorageError] * 3
    assert {storage.read(each.key).body for each in changes} == {b"old"}
    assert os.listdir(tmp_path / ".relance-local/tmp") == []


def test_renames_that_cannot_be_synced_are_not_reported_as_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage = LocalDiskStorage(str(tmp_path))
    first, second = _changes(storage, 2)
    storage.delete(first.key)

    substitute(monkeypatch, "disk.sync_directory", _break)
    assert [type(each) for each in storage.replace_many([first, second])] == [KeyChangedError, StorageError]


MANY = 300
"""So many that threads remove them."""


def _fill(root: Path, *, folders: int) -> None:
    for number in range(folders):
        (root / f"t{number}" / "data").mkdir(parents=True)
        (root / f"t{number}" / "data" / "f").write_bytes(b"12")


def test_delete_many_removes_exactly_the_given_files(tmp_path: Path) -> None:
    storage = LocalDiskStorage(str(tmp_path))
    _fill(tmp_path, folders=MANY)
    kept = {f"t{number}/data/f" for number in range(0, MANY, 7)}
    storage.delete_many({f"t{number}/data/f" for number in range(MANY)} - kept)
    storage.prune(*(f"t{number}" for number in range(MANY)))
    assert {info.key for info in storage.list_recursive("")} == kept
    assert {each.name for each in tmp_path.iterdir()} == {key.partition("/")[0] for key in kept}


def test_refused_removal_is_reported_and_the_others_are_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage = LocalDiskStorage(str(tmp_path))
    _fill(tmp_path, folders=MANY)

    real = original("disk.unlink_all")

    def unlink_all(folder: int, files: list[str]) -> None:
        if os.path.samestat(os.fstat(folder), (tmp_path / "t5/data").stat()):
            raise PermissionError(errno.EACCES, "not this one")
        real(folder, files)

    substitute(monkeypatch, "disk.unlink_all", unlink_all)
    with pytest.raises(PermissionDeniedError, match="t5"):
        storage.delete_many([f"t{number}/data/f" for number in range(MANY)])
    left = {info.key for info in storage.list_recursive("")}
    assert "t5/data/f" in left
    assert len(left) < MANY / 4  # only those that the same thread would have done after it


def test_all_files_of_a_large_folder_are_counted(tmp_path: Path) -> None:
    (tmp_path / "t").mkdir()
    for number in range(MANY):
        (tmp_path / "t" / f"f{number}").write_bytes(b"123")
    batches = list(
        LocalDiskStorage(str(tmp_path)).delete_below("t", before_batch=lambda: None, largest_batch=200)
    )
    assert [(each.files, each.bytes) for each in batches] == [(200, 600), (100, 300)]
    assert not (tmp_path / "t").exists()


def test_replacements_of_a_batch_have_their_own_outcomes(tmp_path: Path) -> None:
    storage = LocalDiskStorage(str(tmp_path))
    changes = _changes(storage, MANY)
    for change in changes[::3]:
        storage.replace(change.key, b"somebody else's", expected=change.expected)
    outcomes = storage.replace_many(changes)
    assert {type(each) for each in outcomes[::3]} == {KeyChangedError}
    for number, (change, outcome) in enumerate(zip(changes, outcomes, strict=True)):
        if number % 3:
            assert (storage.read(change.key).body, storage.read(change.key).version) == (b"new", outcome)


def test_reserved_files_are_used_by_their_thread_and_the_rest_removed(tmp_path: Path) -> None:
    storage, folder = LocalDiskStorage(str(tmp_path)), tmp_path / ".relance-local/tmp"
    changes = _changes(storage, 20)
    with storage.reserve(25):
        made = {each.stat().st_ino for each in folder.iterdir()}
        with ThreadPoolExecutor(1) as other:
            other.submit(storage.create, "of another thread", b"x").result()
        assert len(os.listdir(folder)) == 25
        storage.replace_many(changes)
        assert {(tmp_path / each.key).stat().st_ino for each in changes} < made
        assert len(os.listdir(folder)) == 5
        for number in range(7):
            storage.create(f"more{number}", str(number).encode())
    assert os.listdir(folder) == []
    assert {storage.read(each.key).body for each in changes} == {b"new"}
    assert [storage.read(f"more{number}").body for number in range(7)] == [b"%d" % n for n in range(7)]
    storage.create("after", b"x")


def test_full_disk_during_reserve_is_reported_by_the_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage = LocalDiskStorage(str(tmp_path))
    changes = _changes(storage, 2)

    def fail(file: str, body: bytes, *, folder: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    substitute(monkeypatch, "disk.write_temporary_file", fail)
    with storage.reserve(4):
        assert [type(each) for each in storage.replace_many(changes)] == [StorageFullError] * 2
    assert {storage.read(each.key).body for each in changes} == {b"old"}


def test_temporary_files_of_dead_processes_are_removed_after_a_day(tmp_path: Path) -> None:
    storage, folder = LocalDiskStorage(str(tmp_path)), tmp_path / ".relance-local/tmp"
    storage.create("a", b"x")
    dead, alive, foreign = f"{'d' * 32}-0", f"{'a' * 32}-0", "notes.txt"
    for name, age in ((dead, 25 * 3600), (alive, 23 * 3600), (foreign, 25 * 3600)):
        (folder / name).touch()
        os.utime(folder / name, (time.time() - age,) * 2)
    with storage.reserve(1):
        pass
    assert sorted(os.listdir(folder)) == [alive, foreign], "only names that it gives itself are removed"


@pytest.mark.parametrize("seconds", [-1, 10**12, 10**15, 2**62])
def test_times_of_files_that_cannot_be_true_are_unknown(seconds: int) -> None:
    found = os.stat_result((0o100644, 1, 1, 1, 0, 0, 0, seconds, seconds, seconds))
    assert modified_time(found) is None


def test_links_pipes_and_folders_are_refused_as_files(tmp_path: Path) -> None:
    root = tmp_path / "root"
    storage = LocalDiskStorage(str(root))
    version = storage.create("file", b"x")
    (root / "link").symlink_to(root / "file")
    (root / "zeros").symlink_to("/dev/zero")
    (root / "dangling").symlink_to(tmp_path / "outside")
    os.mkfifo(root / "pipe")
    (root / "folder").mkdir()
    for name in ("link", "zeros", "dangling", "pipe", "folder"):
        calls: list[Callable[[], object]] = [
            partial(storage.read, name),
            partial(storage.create, name, b""),
            partial(storage.create, name, b"x"),
            partial(storage.replace, name, b"x", expected=version),
            partial(storage.copy, "file", name, share=True),
            partial(storage.copy, "file", name, share=False),
        ]
        for call in calls:
            with pytest.raises(
                InvalidTableStateError, match=f"'{root}/{name}' is a .*, not a file.* remove it"
            ):
                call()
        with pytest.raises(KeyNotFoundError):
            storage.head(name)
        with pytest.raises(KeyNotFoundError):
            storage.copy(name, "target", share=True)
        assert storage.which_exist([name]) == frozenset()
    level = storage.list_level("")
    assert ([info.key for info in level.files], level.directories) == (["file"], ())
    assert level.odd == ("dangling", "folder", "link", "pipe", "zeros")
    assert not (tmp_path / "outside").exists()
    storage.delete_many(["link", "zeros", "dangling", "pipe", "folder"])
    assert storage.list_level("").odd == ("folder",)
    assert storage.read("file").body == b"x"


@pytest.mark.parametrize("folder", [".relance-local", ".relance-local/tmp", ".relance-local/locks"])
def test_folders_of_its_own_are_never_reached_through_a_link(tmp_path: Path, folder: str) -> None:
    root, outside = tmp_path / "root", tmp_path / "outside"
    storage = LocalDiskStorage(str(root))
    version = storage.create("a", b"1")
    storage.delete("none")  # makes the folder of locks
    for name in (f"{'d' * 32}-0", "tmp/mine", "locks/00"):
        (outside / name).parent.mkdir(parents=True, exist_ok=True)
        (outside / name).touch()
        os.utime(outside / name, (1, 1))
    before = sorted(outside.rglob("*"))
    shutil.rmtree(root / folder)
    (root / folder).symlink_to(outside)

    def change() -> None:
        if folder.endswith("locks"):
            storage.replace("a", b"2", expected=version)
        else:
            storage.create("b", b"2")

    with storage.reserve(2), pytest.raises(InvalidTableStateError, match=f"'{folder}' in .* remove it"):
        change()
    assert sorted(outside.rglob("*")) == before
    (root / folder).unlink()
    change()


def test_lock_that_is_a_link_is_not_followed(tmp_path: Path) -> None:
    storage, locks = LocalDiskStorage(str(tmp_path / "root")), tmp_path / "root/.relance-local/locks"
    version = storage.create("a", b"1")
    storage.replace("a", b"1", expected=version)
    (lock,) = locks.iterdir()
    lock.unlink()
    lock.symlink_to(tmp_path / "outside")
    with pytest.raises(InvalidTableStateError, match=f"'{lock}' is a symbolic link, not a file"):
        storage.replace("a", b"2", expected=version)
    assert not (tmp_path / "outside").exists()


def test_folder_that_becomes_a_link_while_files_are_deleted_is_not_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root, outside = tmp_path / "root", tmp_path / "outside"
    storage = LocalDiskStorage(str(root))
    storage.create("t/data/f", b"1")
    (outside / "data").mkdir(parents=True)
    (outside / "data/f").write_bytes(b"precious")
    real = os.open

    def swap(path: Any, *arguments: Any, **options: Any) -> int:
        if path == "t" and not (root / "t").is_symlink():
            (root / "t").rename(tmp_path / "moved")
            (root / "t").symlink_to(outside)
        return real(path, *arguments, **options)

    monkeypatch.setattr(os, "open", swap)
    storage.delete_many(["t/data/f"])
    storage.prune("t")
    storage.delete("t/data/f")
    list(storage.delete_below("t", before_batch=lambda: None, largest_batch=10))
    assert (root / "t").is_symlink()
    assert (outside / "data/f").read_bytes() == b"precious"
