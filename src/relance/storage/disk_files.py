"""Files and folders of a disk: written, read, removed, locked, made to last. local_disk says what for."""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import re
import stat
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from functools import cache
from typing import Self, TypeVar

from relance.clock import LATEST
from relance.errors import InvalidTableStateError, PermissionDeniedError
from relance.locations import VERSIONS_DIRECTORY
from relance.storage.protocol import check_key, check_size

_WORTH_ALL = 8
"""From so many files on, one call for the whole file system costs less than one for each of them."""

GONE = (FileNotFoundError, NotADirectoryError)
"""What the file system says when a key is not there."""

FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
"""How a folder below the root is opened: never through a link."""

_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK
"""How a file is opened: a link is not followed, and nobody waits for the other end of a pipe."""

_DESCRIPTORS = "/proc/self/fd"
"""Where Linux shows what a process has open."""

_NO_FILE = frozenset({errno.ELOOP, errno.ENXIO, errno.EISDIR})
"""What the system says when it does not open a link, a socket or a folder as a file."""

_KINDS = {
    stat.S_IFLNK: "symbolic link",
    stat.S_IFDIR: "folder",
    stat.S_IFIFO: "named pipe",
    stat.S_IFSOCK: "socket",
}

_NOT_EMPTY = frozenset({errno.ENOTEMPTY, errno.EEXIST})

_SMALL = 1 << 12
"""Read first: most files are smaller, and more memory would be taken from the system at every read."""

_CHUNK = 1 << 20

_FREEING = 6
"""Threads that remove files: a disk takes its time to free what they held, without any lock."""

WORTH_THREADS = 64
"""From so many files or folders on it is worth starting them."""

_INDICES = "_indices"
_IN_TABLE = (VERSIONS_DIRECTORY, "data", "_transactions", "_deletions", _INDICES)
"""The folders that Lance makes in that of a table."""

_HELD = 256
"""Files that are held open at most: a process may open few more than a thousand."""

_FRESH_SECONDS = 0.5
"""Another user shares at most so long after making it what both use."""

_AS_EFFECTIVE = os.access in os.supports_effective_ids

_A = TypeVar("_A")
_T = TypeVar("_T")


def read_file(path: str, *, at_most: int | None, folder: int | None = None) -> tuple[bytes, os.stat_result]:
    """Return the content of a file, and its state before it was read.

    Raises:
        InvalidTableStateError: it is no file, or longer than `at_most`.
    """
    descriptor = open_file(path, folder=folder)  # a third of what a file object costs
    try:
        found = os.fstat(descriptor)
        check_size(found.st_size, at_most, where=repr(_whole(path, folder)))
        return _read(descriptor), found
    finally:
        os.close(descriptor)


def open_file(path: str, flags: int = _READ, *, folder: int | None = None) -> int:
    """Return a file, open; with `folder`, of that open folder.

    Raises:
        InvalidTableStateError: it is no file: a link, a pipe, a folder.
    """
    try:
        descriptor = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=folder)
    except OSError as refused:
        if refused.errno in _NO_FILE:
            require_file(path, folder=folder)
        raise
    try:
        mode = os.fstat(descriptor).st_mode
        if not stat.S_ISREG(mode):
            raise _no_file(path, mode, folder)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def require_file(path: str, *, folder: int | None = None) -> None:
    """Check that what has a place, if anything has it, is a file.

    Raises:
        InvalidTableStateError: it is not.
    """
    with suppress(*GONE):
        mode = os.stat(path, dir_fd=folder, follow_symlinks=False).st_mode
        if not stat.S_ISREG(mode):
            raise _no_file(path, mode, folder)


def _no_file(path: str, mode: int, folder: int | None) -> InvalidTableStateError:
    kind = _KINDS.get(stat.S_IFMT(mode), "device")
    return InvalidTableStateError(
        f"{_whole(path, folder)!r} is a {kind}, not a file; it is never followed: remove it"
    )


def _whole(path: str, folder: int | None) -> str:
    """Return a path with that of the open folder it is in, where the system tells it."""
    if folder is not None:
        with suppress(OSError):
            return f"{os.readlink(f'{_DESCRIPTORS}/{folder}')}/{path}"
    return path


@contextmanager
def opened_folder(root: str, prefix: str, *, make: bool = False) -> Iterator[int]:
    """Yield a folder below the root, open, and with `make` made if it is missing. The root is made too.

    Raises:
        NotADirectoryError: a link or a file has the place of the folder, or of one above it.
    """
    try:
        start = os.open(root, os.O_RDONLY | os.O_DIRECTORY)
    except FileNotFoundError:
        if not make:
            raise
        os.makedirs(root, exist_ok=True)
        start = os.open(root, os.O_RDONLY | os.O_DIRECTORY)
    try:
        folder = open_below(start, prefix.split("/") if prefix else (), make=make)
    finally:
        os.close(start)
    try:
        yield folder
    finally:
        os.close(folder)


def open_below(start: int, parts: Sequence[str], *, make: bool) -> int:
    """Return a folder below an open one, open. Links are not followed.

    Raises:
        NotADirectoryError: a link or a file has its place.
    """
    folder = os.dup(start)
    for number, part in enumerate(parts, start=1):
        try:
            below = _open_child(folder, part, make=make)
        except OSError as refused:
            if refused.errno not in {errno.ENOTDIR, errno.ELOOP}:
                raise
            raise NotADirectoryError(
                errno.ENOTDIR, "not a folder, but a link or a file", "/".join(parts[:number])
            ) from refused
        finally:
            os.close(folder)
        folder = below
    return folder


def _open_child(folder: int, name: str, *, make: bool) -> int:
    try:
        child = os.open(name, FOLDER, dir_fd=folder)
    except FileNotFoundError:
        if not make:
            raise
        with suppress(FileExistsError):
            make_folder(name, folder=folder)
            os.fsync(folder)
        child = os.open(name, FOLDER, dir_fd=folder)
    if make:
        while not os.access(".", os.W_OK | os.X_OK, dir_fd=child, effective_ids=_AS_EFFECTIVE):
            if not _is_being_made(os.fstat(child)):
                break  # whoever writes is told
    return child


def make_folder(name: str, *, folder: int) -> None:
    """Make a folder in an open one, for everybody who may write there.

    Raises:
        FileExistsError: it is there.
    """
    os.mkdir(name, dir_fd=folder)
    with suppress(FileNotFoundError):  # another process may take away again what is empty
        descriptor = os.open(name, FOLDER, dir_fd=folder)
        try:
            _share(descriptor, folder)
        finally:
            os.close(descriptor)


def make_file(name: str, *, folder: int, flags: int = os.O_WRONLY) -> int:
    """Return a new file of an open folder, open, for everybody who may write there.

    Raises:
        FileExistsError: something has its name.
    """
    descriptor = os.open(name, flags | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o666, dir_fd=folder)
    try:
        _share(descriptor, folder)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def open_lock(name: str, *, folder: int) -> int:
    """Return a file that only serves as a lock, open; it is made if it is missing.

    Raises:
        InvalidTableStateError: it is no file.
    """
    while True:
        try:
            return open_file(name, os.O_RDWR, folder=folder)
        except FileNotFoundError:
            with suppress(FileExistsError):
                return make_file(name, folder=folder, flags=os.O_RDWR)
        except PermissionError:
            if not _is_being_made(os.stat(name, dir_fd=folder, follow_symlinks=False)):
                return open_file(name, folder=folder)  # a lock need not be written to


def _is_being_made(found: os.stat_result) -> bool:
    """Tell whether another user may have made a file or folder a moment ago; then wait a little.

    Between making it and sharing it, others have no right to it yet.
    """
    is_fresh = found.st_uid != os.geteuid() and abs(time.time() - found.st_ctime) < _FRESH_SECONDS
    if is_fresh:
        time.sleep(_FRESH_SECONDS / 100)
    return is_fresh


def _share(descriptor: int, folder: int) -> None:
    """Let everybody use a new file or folder who may write in the open folder that it is in.

    The process's umask decides about the rest. It is not touched: threads have it in common.
    """
    own, above = os.fstat(descriptor), os.fstat(folder)
    granted = 0
    if above.st_mode & stat.S_IWGRP and (own.st_gid == above.st_gid or _give(descriptor, above.st_gid)):
        granted |= stat.S_IRGRP | stat.S_IWGRP
    if above.st_mode & stat.S_IWOTH:
        granted |= stat.S_IROTH | stat.S_IWOTH
    if stat.S_ISDIR(own.st_mode):
        # Who may read a folder may enter it; who may not remove others' files above may not do it here.
        granted |= (granted & (stat.S_IRGRP | stat.S_IROTH)) >> 2
        granted |= above.st_mode & stat.S_ISVTX if granted else 0
    if granted & ~own.st_mode:
        with suppress(OSError):  # a file system without permissions of its own refuses it
            os.fchmod(descriptor, stat.S_IMODE(os.fstat(descriptor).st_mode) | granted)


def share_table(path: str) -> None:
    """Let everybody use the folders of a table that Lance has made who may write in the folder it is in.

    Lance makes them by the umask alone. Another user's folders stay as they are. Never fails.
    """
    with suppress(OSError):
        above = os.open(os.path.dirname(path), FOLDER)
        try:
            _share_below(above, os.path.basename(path), _IN_TABLE)
        finally:
            os.close(above)


def _share_below(above: int, name: str, inside: Sequence[str] | None) -> None:
    """Share a folder of an open one, and these folders in it, or all."""
    with suppress(OSError):
        folder = os.open(name, FOLDER, dir_fd=above)
        try:
            _share(folder, above)
            for each in os.listdir(folder) if inside is None else inside:
                # An index has a folder of its own, the others hold files.
                _share_below(folder, each, None if each == _INDICES else ())
        finally:
            os.close(folder)


def check_table_writable(path: str) -> None:
    """Check that this user may write to the folders of a table, as far as they are there.

    Raises:
        PermissionDeniedError: another user made them, and did not share them.
    """
    for each in ("", *_IN_TABLE):
        folder = os.path.join(path, each) if each else path
        # First whether it is there: another thread may make it in between.
        if os.path.isdir(folder) and not os.access(folder, os.W_OK | os.X_OK, effective_ids=_AS_EFFECTIVE):
            if os.statvfs(folder).f_flag & os.ST_RDONLY:
                return  # whatever writes says so
            raise PermissionDeniedError(
                f"'{folder}': this user may not write to it. Nothing was changed; have its owner grant "
                "access to its group: chmod -R g+rwX"
            )


def _give(descriptor: int, group: int) -> bool:
    """Give a file to the group of its folder; False if this user is not in it."""
    try:
        os.fchown(descriptor, -1, group)
    except OSError:
        return False
    return True


def in_folder(root: str, prefix: str, act: Callable[[int], _T]) -> _T:
    """Do `act` in a folder, which is made when it is missing: another process may take it away again."""
    for _ in range(100):
        with suppress(FileNotFoundError), opened_folder(root, prefix, make=True) as folder:
            return act(folder)
    with opened_folder(root, prefix, make=True) as folder:
        return act(folder)


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

    def read(self, path: str, *, folder: int) -> bytes:
        """Return the content of a file, which is held open from now on.

        Raises:
            InvalidTableStateError: it is no file.
        """
        if len(self._descriptors) == _HELD:
            self._close()
        self._descriptors.append(open_file(path, folder=folder))
        return _read(self._descriptors[-1])

    def _close(self) -> None:
        held, self._descriptors = self._descriptors, []
        freeing(_close_all, held, count=len(held))


def _close_all(descriptors: Sequence[int]) -> None:
    for each in descriptors:
        os.close(each)


def modified_time(found: os.stat_result) -> datetime | None:
    """Return when a file was written, as a listing shows it; None for a time that cannot be true."""
    return datetime.fromtimestamp(found.st_mtime, UTC) if 0 <= found.st_mtime < LATEST.timestamp() else None


def write_new(file: str, body: bytes, *, folder: int) -> None:
    """Write a file of an open folder that was not there."""
    _write(make_file(file, folder=folder), body)


def write_over(file: str, body: bytes, *, folder: int) -> None:
    """Write to a file of an open folder that is there and empty."""
    _write(open_file(file, os.O_WRONLY, folder=folder), body)


def _write(descriptor: int, body: bytes) -> None:
    try:
        written = os.write(descriptor, body)
        while written < len(body):
            written += os.write(descriptor, body[written:])
    finally:
        os.close(descriptor)


def lock_file(root: str, prefix: str, lock: str) -> int:
    """Return the file in a folder that stands for a lock, open."""
    # A descriptor of its own per call: flock then also holds between threads of one process.
    return in_folder(root, prefix, lambda folder: open_lock(lock, folder=folder))


@contextmanager
def locked(descriptor: int) -> Iterator[None]:
    """Hold the lock that an open file stands for, against other threads and processes, and close it."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        close_lock(descriptor)


def close_lock(descriptor: int) -> None:
    """Release a lock, also if another thread forked a process meanwhile, which has the file open too."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_UN)
    finally:
        os.close(descriptor)


def prune(parent: int, name: str) -> None:
    """Remove a folder of an open one, and those below it, that hold no file, the deepest first."""
    try:
        # Held open until it is removed: the disk then frees it outside the lock of the folder above.
        descriptor = os.open(name, FOLDER, dir_fd=parent)
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
                    prune(descriptor, each)
        with suppress(OSError):
            os.rmdir(name, dir_fd=parent)
    finally:
        os.close(descriptor)


def unlink_all(folder: int, files: Sequence[str]) -> None:
    """Unlink files; their open folder stays even if it is empty, since a writer may be about to use it."""
    for file in files:
        try:
            os.unlink(check_key(file), dir_fd=folder)
        except (*GONE, IsADirectoryError):
            continue


def freeing(act: Callable[[Sequence[_A]], _T], items: Sequence[_A], *, count: int) -> list[_T]:
    """Have `act` remove `count` files or folders, which the items stand for, or close what was replaced.

    Of many, each call gets a part, and they run at once. When one fails, the others come to their end
    before that is raised. Returns what the calls gave.
    """
    if count < WORTH_THREADS or len(items) < 2:
        return [act(items)]
    with ThreadPoolExecutor(_FREEING, thread_name_prefix="relance freeing") as pool:
        return list(pool.map(act, [items[start::_FREEING] for start in range(min(_FREEING, len(items)))]))


def sync_directory(folder: int) -> None:
    """Make the names in an open folder last."""
    os.fsync(folder)


def sync_files(files: Sequence[str], folder: int) -> None:
    """Make the content of files of an open folder last: when this returns, all of it does.

    Raises:
        OSError: it could not be written.
    """
    sync_all = _file_system_sync() if len(files) >= _WORTH_ALL else None
    for file in files if sync_all is None else files[:1]:
        descriptor = open_file(file, folder=folder)
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
