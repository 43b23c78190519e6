"""Space kept back on a local disk, so that a full one can be emptied.

A drop, an undrop and a purge write small files, and a commit of the manifest, before anything can be
deleted. So a root keeps files that hold nothing but space. When a verb that helps to empty the disk meets
a full one, it removes one of these files and tries again; other verbs leave them alone. They are written
again once there is space. Several files serve a disk that has run out of inodes, too, and a writer beside
us takes at most one of them.
"""

from __future__ import annotations

import errno
import os
import stat
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

from relance.errors import InvalidTableStateError, RelanceError, StorageFullError
from relance.locations import OWN_DIRECTORY
from relance.storage.disk_files import open_file, opened_folder, require_file

FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
"""What the system says when there is no space, or no more for this user."""

FOLDER = f"{OWN_DIRECTORY}/ballast"
FILES = tuple(f"{number:02d}" for number in range(32))

FILE_BYTES = 32 * 1024
"""Enough for four changes of a root table's files, or for most commits of a manifest: they take 12 KiB, and
up to 100 KiB if many rows have changed."""

_LEFT_BYTES = len(FILES) * FILE_BYTES
"""So much stays free when ballast is written: it must not be what fills the disk."""

NONE_KEPT = "no space is left that was kept back for drops and purges: free space on the disk by other means"
"""What to do where advice to drop and purge would lead in a circle."""

_NOT_ALLOCATED = frozenset({errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL})

_T = TypeVar("_T")

_may_use: ContextVar[bool] = ContextVar("may_use_ballast", default=False)


@contextmanager
def emptying(*, really: bool = True) -> Iterator[None]:
    """Let what this thread does use the ballast of a full disk: it helps to empty it. Also a decorator.

    Not `really` does the opposite. Threads that are started in the block know nothing of it.
    """
    token = _may_use.set(really)
    try:
        yield
    finally:
        _may_use.reset(token)


@dataclass(slots=True)
class Ballast:
    """The ballast of one root; none is written unless `kept`, and what is there is used in any case."""

    root: str
    kept: bool
    _complete: bool = False
    """Whether all of it was seen: another process may have used some since, and will write it again."""
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def keep(self) -> None:
        """Write what is missing, if there is space; called after a write, when the root is there.

        It never fails: a link, pipe or folder that has the name of one of the files is left alone.
        """
        if not self.kept or self._complete or not self._lock.acquire(blocking=False):
            return
        try:
            # Who cannot write it works without, and what was to be done is done.
            with suppress(OSError, RelanceError), opened_folder(self.root, FOLDER, make=True) as folder:
                self._complete = all(_is_full(folder, file) or _fill(folder, file) for file in FILES)
        finally:
            self._lock.release()

    def free(self, count: int = 1) -> bool:
        """Remove files of the ballast if the verb may do so, and return whether there was one."""
        if not _may_use.get():
            return False
        removed = [self._remove_one() for _ in range(count)]
        return any(removed)

    def is_there(self) -> bool:
        """Tell whether some of it is left."""
        with suppress(OSError), opened_folder(self.root, FOLDER) as folder:
            return any(file in FILES for file in os.listdir(folder))
        return False

    def retried(self, act: Callable[[], _T], *, always: bool = False) -> _T:
        """Do `act`, and again with freed space when the disk is full; `always`, whatever the verb.

        What fails for lack of space must have no effect, or one that doing it again includes.
        """
        while True:
            try:
                return act()
            except OSError as failure:
                if failure.errno not in FULL or not (self._remove_one() if always else self.free()):
                    raise

    def _remove_one(self) -> bool:
        self._complete = False
        with suppress(OSError), opened_folder(self.root, FOLDER) as folder:
            for file in reversed(FILES):
                with suppress(FileNotFoundError, InvalidTableStateError):
                    require_file(file, folder=folder)
                    os.unlink(file, dir_fd=folder)
                    os.fsync(folder)  # some file systems give the space back only with the name
                    return True
        return False


class Freeing(Protocol):
    """What can free the ballast of a root: its storage, or what stands before it."""

    def free_ballast(self, count: int) -> bool:
        """Do what `ObjectStorage.free_ballast` promises."""


def written_by_lance(storage: Freeing, write: Callable[[], _T]) -> _T:
    """Do a write of Lance's, and again with freed space when the disk is full: then it had no effect.

    Raises:
        StorageFullError: the disk is full, and this verb may not free the ballast, or none is left.
    """
    count = 1
    while True:
        try:
            return write()
        except StorageFullError as failure:
            if not storage.free_ballast(count):
                if _may_use.get():
                    raise StorageFullError(f"{failure.detail}; {NONE_KEPT}") from failure
                raise
            count *= 2  # one write of Lance's is several files


def _is_full(folder: int, file: str) -> bool:
    """Tell whether a file is whole; so is one whose name something else has, which is not ours to fill."""
    with suppress(FileNotFoundError):
        found = os.stat(file, dir_fd=folder, follow_symlinks=False)
        return found.st_size >= FILE_BYTES or not stat.S_ISREG(found.st_mode)
    return False


def _fill(folder: int, file: str) -> bool:
    """Make a file hold real space, if enough of it is left; tell whether it was."""
    disk = os.fstatvfs(folder)
    short_of_inodes = 0 < disk.f_favail <= len(FILES)  # some file systems do not count them, and say 0
    if short_of_inodes or disk.f_bavail * disk.f_frsize < FILE_BYTES + _LEFT_BYTES:
        return False
    descriptor = open_file(file, os.O_CREAT | os.O_RDWR, folder=folder)
    try:
        _allocate(descriptor)
    except OSError:
        os.unlink(file, dir_fd=folder)
        raise
    finally:
        os.close(descriptor)
    return True


def _allocate(descriptor: int) -> None:
    try:
        os.posix_fallocate(descriptor, 0, FILE_BYTES)
    except (AttributeError, OSError) as refused:
        if isinstance(refused, OSError) and refused.errno not in _NOT_ALLOCATED:
            raise
        # Bytes that no file system can compress.
        os.pwrite(descriptor, os.urandom(FILE_BYTES), 0)
