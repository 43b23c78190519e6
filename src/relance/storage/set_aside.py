"""Directories of a disk that are removed whole: taken away by one rename, then removed where nobody looks.

A rename can be undone, and what it took away has no name that a later table could get: however long the
removal takes, it cannot meet one.
"""

from __future__ import annotations

import fcntl
import os
import stat
import uuid
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

from pyarrow.fs import LocalFileSystem

from relance.errors import InternalError
from relance.storage.disk_files import WORTH_THREADS, with_parent

_REMOVING = 16
"""Threads that remove: they mostly wait for the disk, and need no lock of Python meanwhile."""

_TOGETHER = 128
"""Directories whose end is told together, while the next ones are removed."""


@dataclass(frozen=True, slots=True)
class SetAside:
    """Takes directories away into a folder of its own, on the same disk."""

    folder: str
    _files: LocalFileSystem = field(default_factory=LocalFileSystem, init=False, repr=False)
    """Removes a directory in one call, so that other threads of Python are not kept waiting."""

    def discard(self, paths: Sequence[str], sure: Callable[[str], bool]) -> Iterator[list[str]]:
        """Remove directories and yield those that are gone, some at a time; others are where they were.

        `sure` is asked when a directory was taken away: if it says no, it is put back.
        """
        self._remove_abandoned()
        with self._own_folder() as own, ThreadPoolExecutor(_REMOVING, "relance removing") as pool:
            parts = [
                _Part(own, start, paths[start : start + _TOGETHER], sure)
                for start in range(0, len(paths), _TOGETHER)
            ]
            for part in parts:
                part.take_away()
            removals = [[pool.submit(self._remove, each) for each in part.shelves] for part in parts]
            for part, removing in zip(parts, removals, strict=True):
                yield part.end(removing)

    def _remove(self, path: str) -> None:
        self._files.delete_dir(path)

    @contextmanager
    def _own_folder(self) -> Iterator[str]:
        """Yield a folder that others leave alone for as long as this process is there."""
        own = f"{self.folder}/{uuid.uuid4().hex}"
        lock = with_parent(own, lambda: os.open(f"{own}.lock", os.O_CREAT | os.O_RDWR, 0o644))
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            os.mkdir(own)
            yield own
            with suppress(OSError):  # not empty: it is tried again
                os.rmdir(own)
                os.unlink(f"{own}.lock")
        finally:
            os.close(lock)

    def _remove_abandoned(self) -> None:
        """Remove what processes have taken away that died before they had removed it."""
        with suppress(FileNotFoundError):
            for name in os.listdir(self.folder):
                if name.endswith(".lock"):
                    with suppress(OSError):  # in use, gone meanwhile, or tried again
                        self._remove_own(f"{self.folder}/{name}")

    def _remove_own(self, lock: str) -> None:
        descriptor = os.open(lock, os.O_RDWR)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            with suppress(FileNotFoundError):
                self._remove(lock.removesuffix(".lock"))
            os.unlink(lock)
        finally:
            os.close(descriptor)


class _Part:
    """Directories that are taken away and removed together."""

    def __init__(self, own: str, start: int, paths: Sequence[str], sure: Callable[[str], bool]) -> None:
        count = _REMOVING if len(paths) >= WORTH_THREADS else 1
        self.shelves = [f"{own}/{start}-{number}" for number in range(count)]
        """Folders for them, each removed by a thread."""
        self._kept = f"{own}.kept-{start}"
        """Nobody removes what begins like this."""
        self._paths = paths
        self._sure = sure
        self._places: dict[str, str] = {}

    def take_away(self) -> None:
        for shelf in self.shelves:
            os.mkdir(shelf)
        for number, path in enumerate(self._paths):
            place = f"{self.shelves[number % len(self.shelves)]}/{number}"
            try:
                if not stat.S_ISDIR(os.lstat(path).st_mode):
                    continue  # a link leads out of the root
                os.rename(path, place)
            except OSError:
                continue  # it is not there, or whoever removes its files is told why that cannot be done
            if self._sure(path):
                self._places[path] = place
            else:
                self._put_back(place, path)

    def end(self, removing: Sequence[Future[None]]) -> list[str]:
        """Wait for the removals, put back what could not be removed and return what is gone.

        What is no longer ours to put back is left to the next one who removes what was abandoned.
        """
        failures = [each.exception() for each in removing]  # of all: none is put back while it is removed
        if not any(failures):
            return list(self._places)
        gone = []
        for path, place in self._places.items():
            if not os.path.lexists(place):
                gone.append(path)
            elif self._sure(path):
                self._put_back(place, path)
        return gone

    def _put_back(self, place: str, path: str) -> None:
        try:
            os.rename(place, path)
        except OSError as cause:
            kept = f"{self._kept}-{os.path.basename(place)}"
            os.rename(place, kept)
            raise InternalError(
                f"{path} was moved to the trash and could not be restored; it is now at {kept}"
            ) from cause
