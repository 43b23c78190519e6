"""What only a disk can get wrong: processes, crashes, links, permissions."""

from __future__ import annotations

import errno
import multiprocessing
import os
from pathlib import Path

import pytest

from relance.errors import (
    InternalError,
    KeyChangedError,
    KeyExistsError,
    KeyNotFoundError,
    PermissionDeniedError,
)
from relance.storage.local_disk import LocalDiskStorage


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


def test_no_increment_is_lost_between_processes(tmp_path: Path) -> None:
    LocalDiskStorage(str(tmp_path)).create("counter", b"0")
    spawn = multiprocessing.get_context("spawn")
    workers = [spawn.Process(target=_count_up, args=(str(tmp_path), 25)) for _ in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(60)
    assert [worker.exitcode for worker in workers] == [0] * 4
    assert LocalDiskStorage(str(tmp_path)).read("counter").body == b"100"


def test_each_key_is_created_by_exactly_one_process(tmp_path: Path) -> None:
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


def test_nothing_but_the_object_is_left_behind_by_writes(tmp_path: Path) -> None:
    storage = LocalDiskStorage(str(tmp_path))
    version = storage.create("a", b"1")
    storage.replace("a", b"2", expected=version)
    with pytest.raises(KeyExistsError):
        storage.create("a", b"3")
    assert list((tmp_path / ".relance-local" / "tmp").iterdir()) == []
    assert storage.list_level("").directories == ()


def test_loose_and_empty_folders_are_not_listed(tmp_path: Path) -> None:
    (tmp_path / "empty.lance").mkdir()
    (tmp_path / "full.lance").mkdir()
    (tmp_path / "full.lance" / "f").touch()
    (tmp_path / "file.lance").touch()
    storage = LocalDiskStorage(str(tmp_path))
    assert storage.list_level("").directories == ("full.lance",)
    assert storage.list_level("file.lance").files == ()


def test_a_symbolic_link_never_leads_out_of_the_root(tmp_path: Path) -> None:
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
    with pytest.raises(InternalError):
        storage.create("t.lance/new", b"x")
    assert {each.name for each in outside.iterdir()} == {"precious", "also"}


def test_refused_permissions_and_a_full_disk_are_typed_with_the_cause(
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
