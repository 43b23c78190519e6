"""Directories go to the trash before they are deleted: links, failures, and a crash at every system call."""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from tests.support.patches import original, substitute, substituted
from tests.support.profiles import deep

from relance.errors import InternalError, InvalidInputError, InvalidTableStateError, ServiceUnavailableError
from relance.storage import trash
from relance.storage.local_disk import LocalDiskStorage
from relance.storage.protocol import InTrash, TrashClaim, TrashReport

MANY = 300


def _fill(root: Path, names: Iterable[str], content: str | None = None) -> None:
    for name in names:
        (root / name / "data").mkdir(parents=True)
        (root / name / "data/f").write_text(content or name)
        (root / name / "g").write_text(content or name)


def _keys(root: Path) -> set[str]:
    return {info.key for info in LocalDiskStorage(str(root)).list_recursive("")}


def _trash(root: Path) -> list[str]:
    return sorted(path.name for path in root.glob(".relance-local/trash/*"))


def _claims(names: Iterable[str], upto: datetime | None = None) -> dict[str, TrashClaim]:
    return {name: TrashClaim(f"claim on {name}", upto) for name in names}


def _remove(root: Path, names: Iterable[str], *, lost: Iterable[str] = ()) -> list[str]:
    refused = set(lost)
    groups = LocalDiskStorage(str(root)).remove_directories(
        _claims(names), still_owned=lambda name: name not in refused
    )
    return [name for group in groups for name in group]


def _recover(root: Path, may_delete: Callable[[str, str], bool]) -> TrashReport:
    return LocalDiskStorage(str(root)).recover_trash(may_delete)


@pytest.mark.parametrize("count", [1, 5, MANY])
def test_directories_are_removed_completely_without_leftovers(tmp_path: Path, count: int) -> None:
    names = [f"t{number}" for number in range(count)]
    _fill(tmp_path, [*names, "other", "a/b/nested"])
    assert sorted(_remove(tmp_path, [*names, "nothing", "a/b/nested"])) == sorted([*names, "a/b/nested"])
    assert _keys(tmp_path) == {"other/data/f", "other/g"}
    assert not any((tmp_path / name).exists() for name in names)
    assert _trash(tmp_path) == []


def test_removed_directories_are_yielded_in_groups(tmp_path: Path) -> None:
    names = [f"t{number}" for number in range(MANY)]
    _fill(tmp_path, names)
    groups = LocalDiskStorage(str(tmp_path)).remove_directories(_claims(names), still_owned=lambda _: True)
    assert len(next(iter(groups))) < MANY
    assert sum(len(group) for group in groups) + trash._TOGETHER == MANY


def test_removal_without_fd_paths_is_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    substitute(monkeypatch, "trash.descriptors", str(tmp_path / "no such folder"))
    _fill(tmp_path, ["t", "u"])
    assert _remove(tmp_path, ["t"]) == ["t"]
    assert _keys(tmp_path) == {"u/data/f", "u/g"}
    assert _trash(tmp_path) == []


def test_nothing_to_remove_makes_no_folder(tmp_path: Path) -> None:
    storage = LocalDiskStorage(str(tmp_path / "root"))
    assert list(storage.remove_directories({}, still_owned=lambda _: True)) == []
    assert list(storage.remove_directories(_claims(["t"]), still_owned=lambda _: True)) == []
    assert storage.recover_trash(lambda prefix, record: True) == TrashReport()
    assert not (tmp_path / "root").exists()


@pytest.mark.parametrize("prefix", ["", "/", "../t", "a/../t"])
def test_prefixes_outside_the_root_are_refused(tmp_path: Path, prefix: str) -> None:
    with pytest.raises(InvalidInputError):
        _remove(tmp_path, [prefix])


def test_directory_no_longer_owned_is_restored(tmp_path: Path) -> None:
    names = [f"t{number}" for number in range(MANY)]
    _fill(tmp_path, names)
    assert sorted(_remove(tmp_path, names, lost=names[::3])) == sorted(set(names) - set(names[::3]))
    assert _keys(tmp_path) == {f"{name}/{file}" for name in names[::3] for file in ("data/f", "g")}
    assert _trash(tmp_path) == []


def test_directory_with_a_younger_file_is_restored(tmp_path: Path) -> None:
    _fill(tmp_path, ["old", "young"])
    storage = LocalDiskStorage(str(tmp_path))
    newest = storage.head("old/g").modified
    assert newest is not None
    os.utime(tmp_path / "old/data/f", (0, 0))
    os.utime(tmp_path / "young/data/f", ((newest + timedelta(seconds=1)).timestamp(),) * 2)
    groups = storage.remove_directories(_claims(["old", "young"], newest), still_owned=lambda _: True)
    assert [name for group in groups for name in group] == ["old"]
    assert _keys(tmp_path) == {"young/data/f", "young/g"}


def test_nothing_behind_a_symbolic_link_is_removed(tmp_path: Path) -> None:
    root, outside = tmp_path / "root", tmp_path / "outside"
    _fill(outside, ["kept"])
    _fill(root, ["t"])
    (root / "linked").symlink_to(outside / "kept")
    (root / "above").symlink_to(outside)
    (root / "t/inside").symlink_to(outside / "kept")
    assert _remove(root, ["t", "linked", "above/kept"]) == ["t"]
    assert _keys(outside) == {"kept/data/f", "kept/g"}
    assert (root / "linked").is_symlink()
    assert not (root / "t").exists()


@pytest.mark.parametrize("link", [".relance-local", ".relance-local/trash"])
def test_trash_behind_a_symbolic_link_is_not_used(tmp_path: Path, link: str) -> None:
    root, outside = tmp_path / "root", tmp_path / "outside"
    _fill(root, ["t"])
    dead = "0123456789abcdef" * 2
    _fill(outside, [f"{dead}/doomed-0-0/5", f"trash/{dead}/doomed-0-0/5"])
    (root / link).parent.mkdir(exist_ok=True)
    (root / link).symlink_to(outside)
    before = _keys(outside)
    with pytest.raises(InvalidTableStateError, match=f"'{link}' in .* is a link or a file .* remove it"):
        _remove(root, ["t"])
    with pytest.raises(InvalidTableStateError):
        _recover(root, lambda prefix, record: True)
    assert _keys(root) == {"t/data/f", "t/g"}
    assert _keys(outside) == before


def test_recovery_leaves_names_alone_that_are_not_its_own(tmp_path: Path) -> None:
    folder, dead = tmp_path / ".relance-local/trash", "0123456789abcdef" * 2
    outside = tmp_path / "outside"
    _fill(tmp_path, ["outside"])
    _fill(folder, [f"{dead}/doomed-0-0/5", f"{dead}/doomed-0-0/mine", f"{dead}/mine", "mine"])
    (folder / ("f" * 32)).symlink_to(outside)
    (folder / f"{'e' * 32}.lock").symlink_to(outside / "g")
    (folder / dead / "doomed-1-0").symlink_to(outside)
    (folder / dead / "taken").symlink_to(outside)
    _recover(tmp_path, lambda prefix, record: True)
    assert (outside / "data/f").read_text() == "outside"
    assert (outside / "g").read_text() == "outside"
    for name in (f"{dead}/mine", "mine"):
        assert (folder / name / "data/f").exists()


def test_file_that_is_no_directory_is_kept(tmp_path: Path) -> None:
    (tmp_path / "t").write_text("a file")
    assert _remove(tmp_path, ["t"]) == []
    assert (tmp_path / "t").read_text() == "a file"


def test_directory_that_cannot_be_removed_is_restored_and_not_yielded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [f"t{number}" for number in range(MANY)]
    _fill(tmp_path, names)
    remove = original("trash.remove_tree")

    def remove_some(folder: int, name: str) -> None:
        if name.endswith("-2"):  # one of the shelves, of which a part is gone when it fails
            remove(folder, f"{name}/{min(trash._numbers(folder, name))}")
            raise PermissionError(errno.EACCES, "no more", name)
        remove(folder, name)

    substitute(monkeypatch, "trash.remove_tree", remove_some)
    gone = _remove(tmp_path, names)
    left = {key.partition("/")[0] for key in _keys(tmp_path)}
    assert left == set(names) - set(gone)
    assert 0 < len(left) < MANY / 4
    assert {f"{name}/{file}" for name in left for file in ("data/f", "g")} == _keys(tmp_path)
    monkeypatch.undo()
    assert sorted(_remove(tmp_path, left)) == sorted(left)
    assert _trash(tmp_path) == []


def test_directory_lost_to_another_client_stays_doomed_after_a_failure(tmp_path: Path) -> None:
    _fill(tmp_path, ["t"])
    still_owned = mock.Mock(side_effect=[True, False])
    failing = mock.Mock(side_effect=PermissionError(errno.EACCES, "no"))
    with substituted("trash.remove_tree", failing):
        storage = LocalDiskStorage(str(tmp_path))
        assert list(storage.remove_directories(_claims(["t"]), still_owned=still_owned)) == [[]]
        (kept,) = _recover(tmp_path, lambda prefix, record: False).kept
    assert kept.prefix == "t"
    assert (Path(kept.path) / "data/f").read_text() == "t"
    assert not (tmp_path / "t").exists()
    may_delete = mock.Mock(return_value=False)
    assert _recover(tmp_path, may_delete) == TrashReport(removed=("t",))
    may_delete.assert_not_called()
    assert _trash(tmp_path) == []


def test_directory_that_cannot_be_restored_is_kept_until_its_place_is_free(tmp_path: Path) -> None:
    _fill(tmp_path, ["t", "u", "v"])

    def still_owned(name: str) -> bool:
        if name == "u":
            _fill(tmp_path, [name], "new")
        return name != "u"

    groups = LocalDiskStorage(str(tmp_path)).remove_directories(
        _claims(["t", "u", "v"]), still_owned=still_owned
    )
    assert next(iter(groups)) == ["t"], "what was taken before it is removed, the others stay"
    with pytest.raises(InternalError, match="could not be restored") as raised:
        next(iter(groups))
    assert (tmp_path / "v/g").exists()
    assert (tmp_path / "u/g").read_text() == "new"
    (kept,) = _recover(tmp_path, lambda prefix, record: False).kept
    assert kept.prefix == "u"
    assert kept.path in str(raised.value)
    assert (Path(kept.path) / "data/f").read_text() == "u"
    (tmp_path / "u").rename(tmp_path / "w")
    assert _recover(tmp_path, lambda prefix, record: False) == TrashReport(restored=("u",))
    assert (tmp_path / "u/g").read_text() == "u"
    assert (tmp_path / "w/g").read_text() == "new"
    assert _trash(tmp_path) == []


def test_error_of_the_caller_restores_the_directory_and_is_raised_last(tmp_path: Path) -> None:
    _fill(tmp_path, ["t", "u", "v"])
    still_owned = mock.Mock(side_effect=[True, ServiceUnavailableError("no answer")])
    groups = LocalDiskStorage(str(tmp_path)).remove_directories(
        _claims(["t", "u", "v"]), still_owned=still_owned
    )
    assert next(iter(groups)) == ["t"]
    with pytest.raises(ServiceUnavailableError):
        next(iter(groups))
    assert _keys(tmp_path) == {f"{name}/{file}" for name in ("u", "v") for file in ("data/f", "g")}
    assert _trash(tmp_path) == []


DIES = """
import sys
from relance.storage.local_disk import LocalDiskStorage
from relance.storage.protocol import TrashClaim

def stop(name):
    if name == "u":
        print("taken", flush=True)
        sys.stdin.read()
    return True

claims = {name: TrashClaim("claim on " + name, None) for name in ("t", "u")}
list(LocalDiskStorage(sys.argv[1]).remove_directories(claims, still_owned=stop))
"""


def test_trash_of_a_process_is_recovered_only_after_its_death(tmp_path: Path) -> None:
    _fill(tmp_path, ["t", "u", "v"])
    asked: list[tuple[str, str]] = []

    def may_delete(prefix: str, record: str) -> bool:
        asked.append((prefix, record))
        return False

    program = [sys.executable, "-c", DIES, str(tmp_path)]
    with subprocess.Popen(program, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"taken\n"
        assert _remove(tmp_path, ["v"]) == ["v"]
        assert _recover(tmp_path, may_delete) == TrashReport()
        taken = (tmp_path / ".relance-local/trash").rglob("f")
        assert sorted(path.read_text() for path in taken) == ["t", "u"]
        process.send_signal(signal.SIGKILL)
    assert asked == []
    assert _remove(tmp_path, ["v"]) == [], "a removal does not touch what others have left"
    assert len(_trash(tmp_path)) == 2  # the folder and its lock
    assert _recover(tmp_path, may_delete) == TrashReport(removed=("t",), restored=("u",))
    assert asked == [("u", "claim on u")]
    assert _keys(tmp_path) == {"u/data/f", "u/g"}
    assert _trash(tmp_path) == []


def test_abandoned_iteration_leaves_nothing_in_the_trash(tmp_path: Path) -> None:
    names = [f"t{number}" for number in range(MANY)]
    _fill(tmp_path, names)
    groups = LocalDiskStorage(str(tmp_path)).remove_directories(_claims(names), still_owned=lambda _: True)
    next(iter(groups))
    groups.close()  # type: ignore[attr-defined]  # it is a generator
    assert _keys(tmp_path) == set()
    assert _trash(tmp_path) == []


def test_removal_never_relies_on_a_lock_that_a_recovery_has_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _fill(tmp_path, ["t"])
    real = fcntl.flock

    def flock(descriptor: int, operation: int) -> None:
        monkeypatch.setattr(fcntl, "flock", real)
        (lock,) = (tmp_path / ".relance-local/trash").iterdir()
        _recover(tmp_path, lambda prefix, record: True)
        assert not lock.exists(), "it belonged to no folder yet"
        lock.touch()  # by another recovery that had seen it
        real(descriptor, operation)

    def still_owned(prefix: str) -> bool:
        assert _recover(tmp_path, lambda prefix, record: True) == TrashReport()
        return False

    monkeypatch.setattr(fcntl, "flock", flock)
    storage = LocalDiskStorage(str(tmp_path))
    assert list(storage.remove_directories(_claims(["t"]), still_owned=still_owned)) == [[]]
    assert _keys(tmp_path) == {"t/data/f", "t/g"}


@pytest.mark.parametrize("damage", ["", "[{", None])
def test_directory_without_a_record_is_kept(tmp_path: Path, damage: str | None) -> None:
    dead = "0123456789abcdef" * 2
    folder = tmp_path / ".relance-local/trash" / dead
    _fill(folder, ["taken/0"])
    if damage is not None:
        (folder / "records").write_text(damage)
    for _ in range(2):
        report = _recover(tmp_path, lambda prefix, record: True)
        assert report == TrashReport(kept=(InTrash("", f"{folder}/taken/0"),))
    assert (folder / "taken/0/data/f").exists()


def test_records_reach_the_disk_before_directories_leave_and_outlive_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _fill(tmp_path, ["t", "u"])
    (tmp_path / ".relance-local/trash").mkdir(parents=True)
    events: list[str] = []

    def sync(descriptor: int) -> None:
        path = os.path.relpath(os.readlink(f"/proc/self/fd/{descriptor}"), tmp_path)
        events.append(f"sync {'root' if path == '.' else path.count('/')}")

    def wrapped(name: str) -> Callable[..., None]:
        real = getattr(os, name)

        def call(path: str, *arguments: Any, **options: Any) -> None:
            events.append(f"{name} {path.rpartition('/')[2]}")
            real(path, *arguments, **options)

        return call

    monkeypatch.setattr(os, "fsync", sync)
    for name in ("rename", "unlink"):
        monkeypatch.setattr(os, name, wrapped(name))
    assert _remove(tmp_path, ["t", "u"], lost=["u"]) == ["t"]
    assert [each for each in events if ".lock" not in each] == [
        *("sync 3", "sync 2", "sync 1"),  # the records, their folder, the trash
        *("rename t", "rename 0"),
        *("rename u", "rename 1", "sync root"),
        *("sync 2", "unlink records"),
    ]


# A crash, and the changes of another client, between every two system calls.

CALLS = ("open", "mkdir", "rename", "unlink", "rmdir", "fsync", "stat", "listdir", "scandir")
OLD = datetime(2026, 1, 1, tzinfo=UTC)


class Death(BaseException):
    """The process is gone."""


class Process:
    """Counts system calls; dies before one of them, and lets another client act before one of them."""

    def __init__(self, *, dies_at: int | None = None, rival_at: int | None = None) -> None:
        self.calls: list[str] = []
        self.dead = False
        self._dies_at = dies_at
        self._rival_at = rival_at
        self._rival: Callable[[], None] = lambda: None
        self._paused = False

    def run(self, act: Callable[[], object], rival: Callable[[], None]) -> None:
        """Call `act` until its end, or the process's."""
        self._rival = rival
        wrapped = {name: self._wrapped(name, getattr(os, name)) for name in CALLS}
        # A directory that cannot be restored is reported, and checked by the test itself.
        with pytest.MonkeyPatch.context() as patch, suppress(Death, InternalError):
            for name, call in wrapped.items():
                patch.setattr(os, name, call)
            patch.setattr(fcntl, "flock", self._wrapped("flock", fcntl.flock))
            act()

    def _wrapped(self, name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            if self._paused:
                return real(*arguments, **options)
            self._before(name)
            return None if name == "fsync" else real(*arguments, **options)

        return call

    def _before(self, name: str) -> None:
        if self.dead:
            raise Death
        number = len(self.calls)
        self.calls.append(name)
        if number == self._rival_at:
            with self._pause():
                self._rival()
        if number == self._dies_at:
            self.dead = True
            raise Death

    @contextmanager
    def _pause(self) -> Iterator[None]:
        self._paused = True
        yield
        self._paused = False


class Rival(StrEnum):
    """The other client."""

    HOLDER = "holder"
    """Takes over the claim, and nothing else."""
    CREATOR = "creator"
    """Takes over the claim, purges the table and creates a new one."""
    NATIVE = "native"
    """Knows of no claims, and replaces the table at any time."""


class Root:
    """A root with one dropped table that is purged while another client may make a new one of its name."""

    def __init__(self, path: Path, rival: Rival) -> None:
        self.path = path
        self.rival = rival
        self.owned = True
        self.live: list[str] = []
        path.mkdir()
        _fill(path, ["t"], "garbage")
        for file in ("t/data/f", "t/g"):
            os.utime(path / file, (OLD.timestamp(),) * 2)
        self.storage = LocalDiskStorage(str(path))

    def act(self) -> None:
        """Let the other client act."""
        self.owned = self.rival is Rival.NATIVE
        if self.rival is Rival.HOLDER:
            return
        if self.place() == "garbage":
            shutil.rmtree(self.path / "t")
        if not (self.path / "t").exists():
            self.live.append(f"live {len(self.live)}")
            _fill(self.path, ["t"], self.live[-1])

    def purge(self) -> None:
        # Only the age of files protects against a client without claims; the others are told by their claims.
        claims = _claims(["t"], OLD if self.rival is Rival.NATIVE else None)
        list(self.storage.remove_directories(claims, still_owned=lambda _: self.owned))

    def recover(self) -> None:
        self.storage.recover_trash(lambda prefix, record: self.owned)

    def place(self) -> str | None:
        """Return whose table is there, if it is complete."""
        try:
            contents = {(self.path / "t" / file).read_text() for file in ("data/f", "g")}
        except FileNotFoundError:
            return None
        return contents.pop() if len(contents) == 1 else None

    def check(self) -> None:
        """Check that no new table was deleted and that one is at its place."""
        kept = [path.read_text() for path in (self.path / ".relance-local").rglob("data/f")]
        assert self.place() in self.live if self.live else self.place() in {"garbage", None}
        for name in self.live:
            assert name == self.place() or name in kept
        if not self.live and self.place() is None:
            assert not (self.path / "t").exists(), "half of it is left"
        if not self.live or self.rival is Rival.NATIVE:
            assert _trash(self.path) == [] or len(self.live) > 1


def _points(count: int, *, every_pair: bool) -> Iterator[tuple[int | None, int | None]]:
    """Yield where a process dies and where the other client acts: not later, unless the process lives."""
    yield None, None
    for rival_at in range(count):
        yield None, rival_at
    for dies_at in range(count):
        yield dies_at, None
        for rival_at in range(dies_at + 1) if every_pair else [dies_at]:
            yield dies_at, rival_at


@pytest.fixture
def slow_removal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Remove file by file, so that the process can die in between."""
    substitute(monkeypatch, "trash.remove_tree", lambda folder, name: shutil.rmtree(name, dir_fd=folder))


EVERY_PAIR = pytest.mark.parametrize("every_pair", [False, pytest.param(True, marks=deep)])


@pytest.mark.usefixtures("slow_removal")
@pytest.mark.parametrize("rival", Rival)
@EVERY_PAIR
def test_new_table_survives_a_crash_of_a_removal_at_any_system_call(
    tmp_path: Path, rival: Rival, every_pair: bool
) -> None:
    whole = Process()
    whole.run(Root(tmp_path / "whole", rival).purge, lambda: None)
    assert len(whole.calls) > 30
    for dies_at, rival_at in _points(len(whole.calls) + 9, every_pair=every_pair):
        root = Root(tmp_path / "root", rival)
        Process(dies_at=dies_at, rival_at=rival_at).run(root.purge, root.act)
        root.recover()
        root.check()
        shutil.rmtree(root.path)


@pytest.mark.usefixtures("slow_removal")
@pytest.mark.parametrize("rival", Rival)
@pytest.mark.parametrize("left", ["taken", "replaced and taken", "half removed"])
@EVERY_PAIR
def test_new_table_survives_a_crash_of_a_recovery_at_any_system_call(
    tmp_path: Path, rival: Rival, left: str, every_pair: bool
) -> None:
    whole = Process()
    whole.run(Root(tmp_path / "whole", rival).purge, lambda: None)
    rename = whole.calls.index("rename")
    dies_at = rename + 1 if "taken" in left else whole.calls.index("unlink", rename) + 1
    first = {"dies_at": dies_at, "rival_at": rename if "replaced" in left else None}
    count = 1
    for dies_at_second, rival_at in [(None, None), *_points(50, every_pair=every_pair)]:
        if max(dies_at_second or 0, rival_at or 0) > count:
            continue  # it is over by then
        root = Root(tmp_path / "root", rival)
        Process(**first).run(root.purge, root.act)
        second = Process(dies_at=dies_at_second, rival_at=rival_at)
        second.run(root.recover, root.act)
        root.recover()
        root.check()
        shutil.rmtree(root.path)
        count = max(count, len(second.calls))
    assert 20 < count < 50
