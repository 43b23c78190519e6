"""The trash of a local disk: a directory is renamed into it before it is deleted.

A rename can be undone, and a directory in the trash has no name that a later table could get: however long
its removal takes, it cannot meet one. Every removal has a folder of its own, locked while it is in progress:

    <id>.lock            locked; a folder without a locked file belongs to a process that died
    <id>/records         prefix, record and age limit of each directory, on disk before the first rename
    <id>/taken/<n>       renamed away, but perhaps not ours to delete: may have to be restored
    <id>/doomed-<s>/<n>  checked after it was renamed; to be deleted, and possibly half deleted

Whatever happens between two system calls, a directory is at its place, in `taken`, or checked.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import shutil
import stat
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass, field
from datetime import datetime
from functools import cache, partial
from typing import Self

from pyarrow.fs import LocalFileSystem

from relance.errors import InternalError, InvalidInputError, InvalidTableStateError, RelanceError
from relance.foreign_json import parse_json
from relance.locations import OWN_DIRECTORY
from relance.storage.ballast import Ballast
from relance.storage.disk_files import (
    FOLDER,
    WORTH_THREADS,
    close_lock,
    make_file,
    make_folder,
    modified_time,
    open_below,
    open_lock,
    read_file,
)
from relance.storage.protocol import InTrash, TrashClaim, TrashReport, check_key

_REMOVING = 16
"""Threads that remove: they mostly wait for the disk, and need no lock of Python meanwhile."""

_TOGETHER = 128
"""Directories yielded together, while the next ones are removed."""

_RECORDS_MAX_BYTES = 64 * 1024 * 1024

_ID = re.compile(r"[0-9a-f]{32}")
_DOOMED = re.compile(r"doomed-[0-9a-z-]+")
_RECORDS, _TAKEN, _RECOVERED = "records", "taken", "doomed-recovered"

_DESCRIPTORS = "/proc/self/fd"


@dataclass(frozen=True, slots=True)
class _Entry:
    """A directory in the trash, or on its way to it."""

    number: int
    prefix: str
    """As the caller wrote it."""
    claim: TrashClaim

    @property
    def taken(self) -> str:
        return f"{_TAKEN}/{self.number}"


@dataclass(frozen=True, slots=True)
class Trash:
    """Removes directories below `root` by way of the trash there."""

    root: str
    ballast: Ballast

    def remove(
        self, claims: Mapping[str, TrashClaim], still_owned: Callable[[str], bool]
    ) -> Iterator[list[str]]:
        """Do what `ObjectStorage.remove_directories` promises."""
        entries = [_Entry(number, *item) for number, item in enumerate(claims.items())]
        if not entries:
            return
        with ExitStack() as stack:
            try:
                # Whoever removes makes space, so this may use what is kept back.
                folder = self.ballast.retried(lambda: self._prepared(stack, entries), always=True)
            except FileNotFoundError:
                return  # there is no root
            removal = _Removal(folder, self.ballast, still_owned)
            parts = [
                _Part(removal, start, entries[start : start + _TOGETHER])
                for start in range(0, len(entries), _TOGETHER)
            ]
            pool = stack.enter_context(ThreadPoolExecutor(_REMOVING, "relance removing"))
            removals = []
            for part in parts:
                part.take_away()
                removals.append([pool.submit(folder.remove, each) for each in part.shelves])
            for part, running in zip(parts, removals, strict=True):
                yield part.end(running)
            if removal.failure is not None:
                raise removal.failure

    def _prepared(self, stack: ExitStack, entries: Sequence[_Entry]) -> _Folder:
        """Return a new folder with the records on disk, or leave none."""
        with ExitStack() as own:
            folder = own.enter_context(_new_folder(self.root))
            folder.write_records(entries)
            stack.push(own.pop_all())
        return folder

    def recover(self, may_delete: Callable[[str, str], bool]) -> TrashReport:
        """Do what `ObjectStorage.recover_trash` promises."""
        report = _Report()
        with suppress(FileNotFoundError), _opened(self.root, make=False) as (root, trash):
            for name in sorted({each.removesuffix(".lock") for each in os.listdir(trash)}):
                if _ID.fullmatch(name) and (lock := _lock(trash, name)) is not None:
                    try:
                        self._recover_folder(root, trash, name, may_delete, report)
                    except OSError:
                        report.kept.append(InTrash("", _path(self.root, name)))
                    finally:
                        close_lock(lock)
        return TrashReport(tuple(report.removed), tuple(report.restored), tuple(report.kept))

    def _recover_folder(
        self, root: int, trash: int, name: str, may_delete: Callable[[str, str], bool], report: _Report
    ) -> None:
        """Take the folder of a dead process to its end. It is locked."""
        try:
            own = os.open(name, FOLDER, dir_fd=trash)
        except FileNotFoundError:
            os.unlink(f"{name}.lock", dir_fd=trash)  # it died before it had made the folder, or after all
            return
        except OSError:
            return  # not made by us
        with _Folder(_path(self.root, name), root, trash, name, own) as folder:
            entries = folder.read_records()
            for number in sorted(_numbers(own, _TAKEN)):
                entry = entries.get(number)
                if entry is None:
                    report.kept.append(InTrash("", f"{folder.path}/{_TAKEN}/{number}"))
                elif may_delete(entry.prefix, entry.claim.record) and folder.is_older(entry):
                    with suppress(FileExistsError):
                        self.ballast.retried(partial(make_folder, _RECOVERED, folder=own), always=True)
                    folder.doom(entry, _RECOVERED)
                elif folder.restore(entry, entry.taken):
                    report.restored.append(entry.prefix)
                else:
                    report.kept.append(InTrash(entry.prefix, f"{folder.path}/{entry.taken}"))
            _remove_doomed(folder, entries, report)
            folder.end()


@dataclass(slots=True)
class _Report:
    removed: list[str] = field(default_factory=list)
    restored: list[str] = field(default_factory=list)
    kept: list[InTrash] = field(default_factory=list)


@dataclass(slots=True)
class _Folder:
    """The folder of one removal, and the root it takes directories from. Both are open."""

    path: str
    root: int
    trash: int
    name: str
    own: int
    _parent: tuple[str, int] | None = None
    """The parent of the last directory, open: most directories have the same."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._close_parent()
        os.close(self.own)

    def write_records(self, entries: Sequence[_Entry]) -> None:
        """Write what is to be taken away, and make the folders for it; returns when the disk has it."""
        make_folder(_TAKEN, folder=self.own)
        records = [
            asdict(each.claim) | {"prefix": each.prefix, "upto": _iso(each.claim.upto)} for each in entries
        ]
        descriptor = make_file(_RECORDS, folder=self.own)
        with os.fdopen(descriptor, "wb") as file:
            file.write(json.dumps(records).encode())
            file.flush()
            os.fsync(descriptor)
        os.fsync(self.own)
        os.fsync(self.trash)

    def read_records(self) -> dict[int, _Entry]:
        """Return the records by number; none if the process died before it had written them.

        A damaged one is left out: its directory is kept, and no other one is affected.
        """
        entries: dict[int, _Entry] = {}
        try:
            body, _ = read_file(_RECORDS, at_most=_RECORDS_MAX_BYTES, folder=self.own)
            records = list(parse_json(body))
        except (OSError, ValueError, TypeError, InvalidTableStateError):
            return {}
        for number, record in enumerate(records):
            with suppress(KeyError, TypeError, ValueError, InvalidInputError):
                entries[number] = _entry(number, record)
        return entries

    def take(self, entry: _Entry) -> bool:
        """Rename a directory into the trash. False if it is not there, or cannot be renamed."""
        try:
            parent, name = self._place(entry.prefix, make=False)
            if not stat.S_ISDIR(os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode):
                return False  # a link leads out of the root
            os.rename(name, entry.taken, src_dir_fd=parent, dst_dir_fd=self.own)
        except OSError:
            return False  # whoever removes its files gets the reason
        return True

    def is_older(self, entry: _Entry) -> bool:
        """Return whether a taken directory is one, and holds no file younger than it may be."""
        try:
            return not _has_younger(self.own, entry.taken, entry.claim.upto)
        except OSError:
            return False  # cannot be read completely

    def doom(self, entry: _Entry, shelf: str) -> None:
        """Decide that a taken directory is deleted. From now on nobody asks again."""
        os.rename(entry.taken, f"{shelf}/{entry.number}", src_dir_fd=self.own, dst_dir_fd=self.own)

    def restore(self, entry: _Entry, place: str) -> bool:
        """Rename a directory back. False if its place is taken."""
        try:
            parent, name = self._place(entry.prefix, make=True)
            os.rename(place, name, src_dir_fd=self.own, dst_dir_fd=parent)
        except OSError:
            return False
        os.fsync(parent)  # before its record goes
        return True

    def remove(self, shelf: str) -> None:
        """Remove a folder of doomed directories."""
        remove_tree(self.own, shelf)

    def end(self) -> None:
        """Remove the folder if nothing is left in it; otherwise a later recovery goes on with it."""
        with suppress(OSError):
            names = set(os.listdir(self.own)) - {_RECORDS}
            if not all(name == _TAKEN or _DOOMED.fullmatch(name) for name in names):
                return  # not only ours
            for name in names:
                os.rmdir(name, dir_fd=self.own)
            os.fsync(self.own)  # a record must outlive its directory
            with suppress(FileNotFoundError):
                os.unlink(_RECORDS, dir_fd=self.own)
            os.rmdir(self.name, dir_fd=self.trash)
            os.unlink(f"{self.name}.lock", dir_fd=self.trash)

    def _place(self, prefix: str, *, make: bool) -> tuple[int, str]:
        """Return the open parent of a directory, and its name there. Links are not followed."""
        above, _, name = check_key(prefix.rstrip("/")).rpartition("/")
        if self._parent is None or self._parent[0] != above:
            self._close_parent()
            self._parent = above, open_below(self.root, above.split("/") if above else (), make=make)
        return self._parent[1], name

    def _close_parent(self) -> None:
        if self._parent is not None:
            os.close(self._parent[1])
            self._parent = None


def _entry(number: int, record: dict[str, object]) -> _Entry:
    """Return what a record says.

    Raises:
        KeyError, TypeError, ValueError, InvalidInputError: it is damaged.
    """
    prefix, text, upto = record["prefix"], record["record"], record["upto"]
    if not isinstance(prefix, str) or not isinstance(text, str):
        raise TypeError("not a string")
    moment = None if upto is None else datetime.fromisoformat(str(upto))
    if moment is not None and moment.utcoffset() is None:
        raise ValueError("without a time zone")
    check_key(prefix.rstrip("/"))
    return _Entry(number, prefix, TrashClaim(text, moment))


@dataclass(slots=True)
class _Removal:
    """What the parts of one removal have in common."""

    folder: _Folder
    ballast: Ballast
    still_owned: Callable[[str], bool]
    failure: RelanceError | None = None
    """The first one. It is raised when everything else is done."""


class _Part:
    """Directories that are removed, and yielded, together."""

    def __init__(self, removal: _Removal, start: int, entries: Sequence[_Entry]) -> None:
        count = _REMOVING if len(entries) >= WORTH_THREADS else 1
        self.shelves = [f"doomed-{start}-{number}" for number in range(count)]
        """Folders of doomed directories, each removed by a thread."""
        self._removal = removal
        self._folder = removal.folder
        self._entries = entries
        self._doomed: list[tuple[_Entry, str]] = []

    def take_away(self) -> None:
        """Rename the directories into the trash, and back if they are not ours to delete."""
        for shelf in self.shelves:
            make = partial(make_folder, shelf, folder=self._folder.own)
            self._removal.ballast.retried(make, always=True)
        for number, entry in enumerate(self._entries):
            if self._removal.failure is not None:
                return
            if self._folder.take(entry):
                self._decide(entry, self.shelves[number % len(self.shelves)])

    def _decide(self, entry: _Entry, shelf: str) -> None:
        is_doomed = False
        try:
            # Asked only now: before, somebody could still have put another table in its place.
            if self._removal.still_owned(entry.prefix) and self._folder.is_older(entry):
                self._folder.doom(entry, shelf)
                is_doomed = True
                self._doomed.append((entry, f"{shelf}/{entry.number}"))
        except RelanceError as error:
            self._removal.failure = self._removal.failure or error
        finally:
            if not is_doomed and not self._folder.restore(entry, entry.taken):
                self._removal.failure = self._removal.failure or InternalError(
                    f"{entry.prefix} was moved to the trash and could not be restored because its place is "
                    f"taken; it is now at {self._folder.path}/{entry.taken}"
                )

    def end(self, running: Sequence[Future[None]]) -> list[str]:
        """Wait for the removals, restore what could not be removed and return what is gone."""
        failures = [each.exception() for each in running]  # of all: none is restored while it is removed
        if not any(failures):
            return [entry.prefix for entry, _ in self._doomed]
        gone = []
        for entry, place in self._doomed:
            if not _exists(self._folder.own, place):
                gone.append(entry.prefix)
            elif self._removal.still_owned(entry.prefix):
                self._folder.restore(entry, place)  # or else it stays doomed
        return gone


def _remove_doomed(folder: _Folder, entries: Mapping[int, _Entry], report: _Report) -> None:
    shelves = [each for each in sorted(os.listdir(folder.own)) if _DOOMED.fullmatch(each)]
    inside = {shelf: sorted(_numbers(folder.own, shelf)) for shelf in shelves}
    with ThreadPoolExecutor(_REMOVING, "relance removing") as pool:
        running = {shelf: pool.submit(folder.remove, shelf) for shelf in shelves}
    for shelf, future in running.items():
        failed = future.exception() is not None
        for number in inside[shelf]:
            prefix = entries[number].prefix if number in entries else ""
            if failed and _exists(folder.own, f"{shelf}/{number}"):
                report.kept.append(InTrash(prefix, f"{folder.path}/{shelf}/{number}"))
            else:
                report.removed.append(prefix)


@contextmanager
def _opened(path: str, *, make: bool) -> Iterator[tuple[int, int]]:
    """Yield the root and its trash, both open."""
    root = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        trash = open_below(root, (OWN_DIRECTORY, "trash"), make=make)
        try:
            yield root, trash
        finally:
            os.close(trash)
    finally:
        os.close(root)


@contextmanager
def _new_folder(path: str) -> Iterator[_Folder]:
    """Yield a new folder, which others leave alone until this is over."""
    with _opened(path, make=True) as (root, trash):
        while True:
            name = uuid.uuid4().hex
            lock = _lock(trash, name)
            if lock is not None:
                break
        try:
            try:
                make_folder(name, folder=trash)
            except OSError:
                os.unlink(f"{name}.lock", dir_fd=trash)
                raise
            own = os.open(name, FOLDER, dir_fd=trash)
            with _Folder(_path(path, name), root, trash, name, own) as folder:
                try:
                    yield folder
                finally:
                    folder.end()
        finally:
            close_lock(lock)


def _lock(trash: int, name: str) -> int | None:
    """Return the open and locked file of a folder; None while another process or thread has it."""
    file = f"{name}.lock"
    try:
        lock = open_lock(file, folder=trash)
    except InvalidTableStateError:
        return None  # a link, a folder or a socket: not made by us
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # Whoever had it locked until now may have removed it: then it protects nothing.
        there = os.stat(file, dir_fd=trash, follow_symlinks=False)
        if os.path.samestat(there, os.fstat(lock)):
            return lock
    except (BlockingIOError, FileNotFoundError):
        pass
    except BaseException:
        os.close(lock)
        raise
    os.close(lock)
    return None


def _has_younger(folder: int, name: str, limit: datetime | None) -> bool:
    """Return whether a file below a directory was written after `limit`.

    Raises:
        OSError: it is not a directory, or cannot be read completely.
    """
    descriptor = os.open(name, FOLDER, dir_fd=folder)
    try:
        if limit is None:
            return False
        seconds = limit.timestamp()
        with os.scandir(descriptor) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    if _has_younger(descriptor, entry.name, limit):
                        return True
                    continue
                found = entry.stat(follow_symlinks=False)
                # What a listing shows is rounded, so a float that is larger may be the same time.
                modified = modified_time(found)
                if found.st_mtime > seconds and (modified is None or modified > limit):
                    return True
        return False
    finally:
        os.close(descriptor)


def remove_tree(folder: int, name: str) -> None:
    """Remove a directory of an open folder with everything in it."""
    if os.path.isdir(_DESCRIPTORS):
        # One call, so that other threads of Python are not kept waiting.
        _files().delete_dir(f"{_DESCRIPTORS}/{folder}/{name}")
    else:
        shutil.rmtree(name, dir_fd=folder)


@cache
def _files() -> LocalFileSystem:
    return LocalFileSystem()


def _numbers(folder: int, name: str) -> list[int]:
    """Return the numbers of the directories in a folder of ours; other names are not ours."""
    try:
        descriptor = os.open(name, FOLDER, dir_fd=folder)
    except OSError:
        return []
    try:
        return [int(each) for each in os.listdir(descriptor) if each.isdecimal()]
    finally:
        os.close(descriptor)


def _exists(folder: int, name: str) -> bool:
    try:
        os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True


def _path(root: str, name: str) -> str:
    return f"{root}/{OWN_DIRECTORY}/trash/{name}"


def _iso(moment: datetime | None) -> str | None:
    return None if moment is None else moment.isoformat()
