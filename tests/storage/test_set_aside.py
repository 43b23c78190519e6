"""Directories on disk go to the trash before they are deleted: links, failures, crashed processes."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from unittest import mock

import pytest
from tests.support.patches import original, substitute

from relance.errors import InternalError
from relance.storage import set_aside
from relance.storage.local_disk import LocalDiskStorage
from relance.storage.set_aside import SetAside

MANY = 300


def _fill(root: Path, names: Iterable[str]) -> None:
    for name in names:
        (root / name / "data").mkdir(parents=True)
        (root / name / "data/f").write_text(name)
        (root / name / "g").write_text(name)


def _keys(root: Path) -> set[str]:
    return {info.key for info in LocalDiskStorage(str(root)).list_recursive("")}


def _aside(root: Path) -> list[str]:
    return sorted(os.listdir(root / ".relance-local/aside"))


def _discard(root: Path, names: Iterable[str], *, unsure: Iterable[str] = ()) -> list[str]:
    refused = set(unsure)
    storage = LocalDiskStorage(str(root))
    told = storage.discard(list(names), sure=lambda name: name not in refused)
    return [name for some in told for name in some]


@pytest.mark.parametrize("count", [1, 5, MANY])
def test_directories_are_removed_completely_without_leftovers(tmp_path: Path, count: int) -> None:
    names = [f"t{number}" for number in range(count)]
    _fill(tmp_path, [*names, "other"])
    assert sorted(_discard(tmp_path, [*names, "nothing"])) == sorted(names)
    assert _keys(tmp_path) == {"other/data/f", "other/g"}
    assert not any((tmp_path / name).exists() for name in names)
    assert _aside(tmp_path) == []


def test_removed_directories_are_yielded_in_groups(tmp_path: Path) -> None:
    names = [f"t{number}" for number in range(MANY)]
    _fill(tmp_path, names)
    told = LocalDiskStorage(str(tmp_path)).discard(names, sure=lambda name: True)
    assert len(next(iter(told))) < MANY
    assert sum(len(each) for each in told) + set_aside._TOGETHER == MANY


def test_directory_no_longer_owned_is_restored(tmp_path: Path) -> None:
    names = [f"t{number}" for number in range(MANY)]
    _fill(tmp_path, names)
    assert sorted(_discard(tmp_path, names, unsure=names[::3])) == sorted(set(names) - set(names[::3]))
    assert _keys(tmp_path) == {f"{name}/{file}" for name in names[::3] for file in ("data/f", "g")}
    assert _aside(tmp_path) == []


def test_nothing_behind_a_symbolic_link_is_removed(tmp_path: Path) -> None:
    root, outside = tmp_path / "root", tmp_path / "outside"
    _fill(outside, ["kept"])
    _fill(root, ["t"])
    (root / "linked").symlink_to(outside / "kept")
    (root / "above").symlink_to(outside)
    (root / "t/inside").symlink_to(outside / "kept")
    assert _discard(root, ["t", "linked", "above/kept"]) == ["t"]
    assert _keys(outside) == {"kept/data/f", "kept/g"}
    assert (root / "linked").is_symlink()
    assert not (root / "t").exists()


def test_file_that_is_no_directory_is_kept(tmp_path: Path) -> None:
    (tmp_path / "t").write_text("a file")
    assert _discard(tmp_path, ["t"]) == []
    assert (tmp_path / "t").read_text() == "a file"


def test_directory_that_cannot_be_removed_is_restored_and_not_yielded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [f"t{number}" for number in range(MANY)]
    _fill(tmp_path, names)
    remove = original("trash.remove")

    def remove_some(self: SetAside, path: str) -> None:
        if path.endswith("-2"):  # one of the shelves, of which a part is gone when it fails
            remove(self, f"{path}/{min(os.listdir(path), key=int)}")
            raise PermissionError(errno.EACCES, "no more", path)
        remove(self, path)

    substitute(monkeypatch, "trash.remove", remove_some)
    told = _discard(tmp_path, names)
    left = {key.partition("/")[0] for key in _keys(tmp_path)}
    assert left == set(names) - set(told)
    assert 0 < len(left) < MANY / 4
    assert {f"{name}/{file}" for name in left for file in ("data/f", "g")} == _keys(tmp_path)
    monkeypatch.undo()
    assert sorted(_discard(tmp_path, left)) == sorted(left)
    assert _aside(tmp_path) == []


def test_directory_lost_to_another_client_is_not_restored_after_a_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _fill(tmp_path, ["t", "u"])
    looks: list[str] = []

    def once(name: str) -> bool:
        looks.append(name)
        return len(looks) == 1

    with monkeypatch.context() as patch:
        substitute(patch, "trash.remove", mock.Mock(side_effect=PermissionError(errno.EACCES, "no")))
        assert list(LocalDiskStorage(str(tmp_path)).discard(["t"], sure=once)) == [[]]
    assert looks == ["t", "t"]
    assert not (tmp_path / "t").exists()
    assert _discard(tmp_path, ["u"]) == ["u"]
    assert _aside(tmp_path) == []


def test_directory_that_cannot_be_restored_is_kept_in_the_trash(tmp_path: Path) -> None:
    _fill(tmp_path, ["t", "u"])

    def meanwhile(name: str) -> bool:
        _fill(tmp_path, [name])  # somebody makes it again
        return False

    storage = LocalDiskStorage(str(tmp_path))
    with pytest.raises(InternalError, match="could not be restored") as raised:
        list(storage.discard(["t"], sure=meanwhile))
    assert _discard(tmp_path, ["u"]) == ["u"]
    (kept,) = _aside(tmp_path)
    assert kept in str(raised.value)
    assert (tmp_path / ".relance-local/aside" / kept / "data/f").read_text() == "t"
    assert _keys(tmp_path) == {"t/data/f", "t/g"}


DIES = """
import os, sys
from relance.storage.local_disk import LocalDiskStorage

def stop(name):
    if name == "u":
        print("taken", flush=True)
        sys.stdin.read()
    return True

list(LocalDiskStorage(sys.argv[1]).discard(["t", "u"], sure=stop))
"""


def test_trash_of_a_process_is_removed_only_after_its_death(tmp_path: Path) -> None:
    _fill(tmp_path, ["t", "u", "v", "w"])
    program = [sys.executable, "-c", DIES, str(tmp_path)]
    with subprocess.Popen(program, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"taken\n"
        assert _discard(tmp_path, ["v"]) == ["v"]
        taken = (tmp_path / ".relance-local/aside").rglob("f")
        assert sorted(path.read_text() for path in taken) == ["t", "u"]
        process.send_signal(signal.SIGKILL)
    assert len(_aside(tmp_path)) == 2  # its folder and the lock
    assert _discard(tmp_path, ["w"]) == ["w"]
    assert _aside(tmp_path) == []
    assert _keys(tmp_path) == set()


def test_abandoned_iteration_leaves_nothing_in_the_trash(tmp_path: Path) -> None:
    names = [f"t{number}" for number in range(MANY)]
    _fill(tmp_path, names)
    told = LocalDiskStorage(str(tmp_path)).discard(names, sure=lambda name: True)
    next(iter(told))
    told.close()  # type: ignore[attr-defined]  # it is a generator
    assert _keys(tmp_path) == set()
    _discard(tmp_path, [])
    assert _aside(tmp_path) == []
