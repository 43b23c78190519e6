"""Single files of a disk: written, read, locked, and made to last. What they mean is in local_disk."""

from __future__ import annotations

import ctypes
import fcntl
import os
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import TypeVar

_WORTH_ALL = 8
"""From so many files on, one call for the whole file system costs less than one for each of them."""


_T = TypeVar("_T")


def read_file(path: str) -> bytes:
    """Return the content of a file."""
    with open(path, "rb", buffering=0) as file:
        return file.read()


def write_new(path: str, body: bytes) -> None:
    """Write a file that was not there, making its folder when that is missing too."""
    flags = os.O_CREAT | os.O_EXCL | os.O_WRONLY
    descriptor = with_parent(path, lambda: os.open(path, flags, 0o644))
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
