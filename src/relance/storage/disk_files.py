"""Files and folders of a disk: written, read, removed, locked, made to last. local_disk says what for."""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from functools import cache
from typing import Self, TypeVar

from relance.storage.protocol import check_key

_WORTH_ALL = 8
"""From so many files on, one call for the whole file system costs less than one for each of them."""

GONE = (FileNotFoundError, NotADirectoryError)
"""What the file system says when a key is not there."""

_NOT_EMPTY = frozenset({errno.ENOTEMPTY, errno.EEXIST})

_SMALL = 1 << 12
"""Read first: most files are smaller, and more memory would be taken from the system at every read."""

_CHUNK = 1 << 20

_FREEING = 6
"""Threads that remove files: a disk takes its time to free what they held, without any lock."""

WORTH_THREADS = 64
"""From so many files or folders on it is worth starting them."""

_HELD = 256
"""Files that are held open at most: a process may open few more than a thousand."""

_A = TypeVar("_A")
_T = TypeVar("_T")


def read_file(path: str) -> tuple[bytes, os.stat_result]:
    """Return the content of a file, and its state before it was read."""
    descriptor = os.open(path, os.O_RDONLY)  # a third of what a file object costs
    try:
        found = os.fstat(descriptor)
        return _read(descriptor), found
    finally:
        os.close(descriptor)


def _read(descriptor: int) -> bytes:
    body = chunk = os.read(descriptor, _SMALL)
    if len(body) < _SMALL:
        return body
    while chunk:
        chunk = os.read(descriptor, _CHUNK)
        body += chunk
    return body


class HeldOpen:
    """Files that are read and then replaced, and closed together after that.

    The disk frees a file when nobody has it open any more: so it does that outside the locks of folders,
    and for several files at once.
    """

    def __init__(self) -> None:
        self._descriptors: list[int] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._close()

    def read(self, path: str) -> bytes:
        """Return the content of a file, which is held open from now on."""
        if len(self._descriptors) == _HELD:
            self._close()
        self._descriptors.append(os.open(path, os.O_RDONLY))
        return _read(self._descriptors[-1])

    def _close(self) -> None:
        held, self._descriptors = self._descriptors, []
        freeing(_close_all, held, count=len(held))


def _close_all(descriptors: Sequence[int]) -> None:
    for each in descriptors:
        os.close(each)


def modified_time(found: os.stat_result) -> datetime:
    """Return when a file was written, as a listing shows it."""
    return datetime.fromtimestamp(found.st_mtime, UTC)


def write_new(path: str, body: bytes) -> None:
    """Write a file that was not there, making its folder when that is missing too."""
    flags = os.O_CREAT | os.O_EXCL | os.O_WRONLY
    _write(with_parent(path, lambda: os.open(path, flags, 0o644)), body)


def write_over(path: str, body: bytes) -> None:
    """Write to a file that is there and empty."""
    _write(os.open(path, os.O_WRONLY), body)


def _write(descriptor: int, body: bytes) -> None:
    try:
        written = os.write(descriptor, body)
        while written < len(body):
            written += os.write(descriptor, body[written:])
    finally:
        os.close(descriptor)


def with_parent(path: str, act: Callable[[], _T]) -> _T:
    """Do `act`, making the parent folder when it is missing: another process may take it away again."""
    for _ in range(100):
        try:
            return act()
        except FileNotFoundError:
            os.makedirs(os.path.dirname(path), exist_ok=True)
    return act()


@contextmanager
def locked(lock: str) -> Iterator[None]:
    """Hold the lock that a file stands for, against other threads and processes."""
    # A descriptor of its own per call: flock then also holds between threads of one process.
    descriptor = with_parent(lock, lambda: os.open(lock, os.O_CREAT | os.O_RDWR, 0o644))
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def prune(folder: str) -> None:
    """Remove folders that hold no file, the deepest first."""
    try:
        # Held open until it is removed: the disk then frees it outside the lock of the folder above.
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError:
        return  # it is gone, or not ours to remove
    try:
        with os.scandir(descriptor) as entries:
            below = [entry.name for entry in entries if entry.is_dir(follow_symlinks=False)]
        for each in below:
            try:
                os.rmdir(each, dir_fd=descriptor)
            except OSError as refused:
                if refused.errno in _NOT_EMPTY:
                    prune(f"{folder}/{each}")
        with suppress(OSError):
            os.rmdir(folder)
    finally:
        os.close(descriptor)


def unlink_all(folder: str, files: Sequence[str], flags: int = 0) -> None:
    """Unlink files; the folder stays even when it is empty, since a writer may be about to use it.

    `flags` are for opening the folder.
    """
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | flags)
    try:
        for file in files:
            try:
                os.unlink(check_key(file), dir_fd=descriptor)
            except (*GONE, IsADirectoryError):
                continue
    finally:
        os.close(descriptor)


def freeing(act: Callable[[Sequence[_A]], _T], items: Sequence[_A], *, count: int) -> list[_T]:
    """Have `act` remove `count` files or folders, which the items stand for, or close what was replaced.

    Of many, each call gets a part, and they run at once. When one fails, the others come to their end
    before that is raised. Returns what the calls gave.
    """
    if count < WORTH_THREADS or len(items) < 2:
        return [act(items)]
    with ThreadPoolExecutor(_FREEING, thread_name_prefix="relance freeing") as pool:
        return list(pool.map(act, [items[start::_FREEING] for start in range(min(_FREEING, len(items)))]))


def sync_directory(folder: str) -> None:
    """Make the names in a folder last."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_files(files: Sequence[str]) -> None:
    """Make the content of files of one file system last: when this returns, all of it does.

    Raises:
        OSError: it could not be written.
    """
    sync_all = _file_system_sync() if len(files) >= _WORTH_ALL else None
    for file in files if sync_all is None else files[:1]:
        descriptor = os.open(file, os.O_RDONLY)
        try:
            os.fsync(descriptor) if sync_all is None else sync_all(descriptor)
        finally:
            os.close(descriptor)


@cache
def _file_system_sync() -> Callable[[int], None] | None:
    """Return the call that writes out all of a file system, given any open file of it, where there is one.

    Linux has one; before 5.8 it did not tell of writes that failed, and is not used.
    """
    release = re.match(r"(\d+)\.(\d+)", os.uname().release)
    if sys.platform != "linux" or release is None or (int(release[1]), int(release[2])) < (5, 8):
        return None
    library = ctypes.CDLL(None, use_errno=True)
    if not hasattr(library, "syncfs"):
        return None

    def sync(descriptor: int) -> None:
        if library.syncfs(descriptor) != 0:
            code = ctypes.get_errno()
            raise OSError(code, os.strerror(code))

    return sync
