"""A directory on disk as an object store with create-only and compare-and-swap.

Bodies are written to a temporary file, synced, and then linked (create) or renamed (replace) into
place, so that a reader sees the old bytes or the new ones. Locks are flocks on files of our own.
"""

from __future__ import annotations

import errno
import hashlib
import os
import stat
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from datetime import datetime

from relance.errors import (
    InternalError,
    KeyChangedError,
    KeyExistsError,
    KeyNotFoundError,
    PermissionDeniedError,
    RelanceError,
    ServiceUnavailableError,
    UnsupportedOperationError,
)
from relance.storage.disk_files import (
    GONE,
    HeldOpen,
    freeing,
    locked,
    modified_time,
    prune,
    read_file,
    sync_directory,
    unlink_all,
    with_parent,
)
from relance.storage.protocol import (
    OWN_DIRECTORY,
    Deleted,
    Level,
    ObjectInfo,
    Page,
    Replacement,
    Stored,
    TrashClaim,
    TrashReport,
    Version,
    check_key,
    check_prefix,
)
from relance.storage.temporary_files import TemporaryFiles
from relance.storage.trash import Trash

_LOCKS = 64

_LINKS_REFUSED = frozenset({errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK, errno.EXDEV})


class LocalDiskStorage:
    """Objects are files below a directory; symbolic links are not followed."""

    def __init__(self, directory: str) -> None:
        self._directory = directory
        self._trash = Trash(directory)
        self._temporary = TemporaryFiles(f"{directory}/{OWN_DIRECTORY}/tmp")

    @property
    def name(self) -> str:
        return self._directory

    @property
    def cheap_lookups(self) -> bool:
        return True

    @property
    def requests_at_once(self) -> int:
        return 1

    @property
    def lists_in_order(self) -> bool:
        return False

    def now(self) -> datetime:
        # The file system sets this time: on a network share it is the server's.
        with self._translated("now"), self._temporary.written([b"-"]) as (temporary,):
            return modified_time(os.stat(temporary))

    def read(self, key: str) -> Stored:
        with self._translated(key):
            try:
                body, found = read_file(self._path(key))
            except (*GONE, IsADirectoryError):
                raise KeyNotFoundError(f"{key!r} not found in {self.name}") from None
        info = _info(key, found)
        return Stored(body, _version(body), info.modified, info.e_tag)

    def create(self, key: str, body: bytes) -> Version:
        if not body:
            # It has no content that could be lost, and what decides nothing need not survive a power failure.
            with self._translated(key):
                path = self._path(key)
                with_parent(path, lambda: self._touch(path))
            return _version(body)
        with self._translated(key), self._temporary.written([body]) as (temporary,):
            path = self._path(key)
            with_parent(path, lambda: self._link(temporary, path))
        return _version(body)

    def replace(self, key: str, body: bytes, *, expected: Version) -> Version:
        (outcome,) = self.replace_many([Replacement(key, body, expected)])
        if isinstance(outcome, RelanceError):
            raise outcome
        return outcome

    def replace_many(self, changes: Sequence[Replacement]) -> list[Version | RelanceError]:
        outcomes: dict[int, Version | RelanceError] = {}
        bodies = [each.body for each in changes]
        by_lock: dict[str, list[int]] = {}
        for number, change in enumerate(changes):
            by_lock.setdefault(self._lock_of(change.key), []).append(number)
        try:
            # The content lasts before a name leads to it: a marker must never come back empty.
            with self._translated("replace_many"), self._temporary.written(bodies) as written:
                with HeldOpen() as replaced:
                    for lock, numbers in by_lock.items():
                        with locked(lock):
                            for number in numbers:
                                outcomes[number] = self._swap(written[number], changes[number], replaced)
                                if not isinstance(outcomes[number], RelanceError):
                                    written[number] = ""  # it has the key's name now
                swapped = {n for n, outcome in outcomes.items() if not isinstance(outcome, RelanceError)}
                for folder in {os.path.dirname(changes[number].key) for number in swapped}:
                    sync_directory(self._folder(folder))
        except RelanceError as failure:
            # None that was swapped, or was still to be, is known to last.
            refused = {n: outcome for n, outcome in outcomes.items() if isinstance(outcome, RelanceError)}
            outcomes = {n: refused.get(n, failure) for n in range(len(changes))}
        return [outcomes[number] for number in range(len(changes))]

    def _swap(self, written: str, change: Replacement, replaced: HeldOpen) -> Version | RelanceError:
        """Move a written body into place if the expected version is there. The key's lock is held."""
        key = change.key
        try:
            path = self._path(key)
            if _version(replaced.read(path)) != change.expected:
                return KeyChangedError(f"{key!r} in {self.name} has changed")
            os.replace(written, path)
        except GONE:
            return KeyChangedError(f"{key!r} no longer exists in {self.name}")
        except OSError as cause:
            return self._error_for(key, cause)
        except RelanceError as error:
            return error
        return _version(change.body)

    def copy(self, source: str, target: str, *, share: bool) -> None:
        with self._translated(source):
            path = self._path(target)
            try:
                origin = self._path(source)
                if not stat.S_ISREG(os.lstat(origin).st_mode):
                    raise IsADirectoryError(errno.EISDIR, "not a file", origin)
                if not (share and self._shared(origin, path)):
                    with self._temporary.copied(origin) as temporary:
                        with_parent(path, lambda: self._link(temporary, path))
            except (*GONE, IsADirectoryError):
                if self.which_exist([source]):
                    raise  # it is the target that cannot be written
                raise KeyNotFoundError(f"{source!r} not found in {self.name}") from None

    def _shared(self, origin: str, path: str) -> bool:
        """Give the file a second name, if this file system can."""
        try:
            with_parent(path, lambda: os.link(origin, path, follow_symlinks=False))
        except FileExistsError:
            raise KeyExistsError(f"{os.path.basename(path)!r} already exists in {self.name}") from None
        except OSError as refused:
            if refused.errno in _LINKS_REFUSED:
                return False
            raise
        sync_directory(os.path.dirname(path))
        return True

    def reserve(self, count: int) -> AbstractContextManager[None]:
        return self._temporary.reserve(count)

    def delete(self, key: str) -> None:
        # Under the lock, so that a replace cannot bring back what was deleted after its check.
        with self._translated(key), locked(self._lock_of(key)):
            folder, _, file = check_key(key).rpartition("/")
            with suppress(*GONE):
                unlink_all(self._folder(folder), [file])

    def delete_many(self, keys: Iterable[str]) -> None:
        by_folder: dict[str, list[str]] = {}
        for key in keys:
            folder, slash, file = key.rpartition("/")
            if slash and not folder:
                check_key(key)
            by_folder.setdefault(folder, []).append(file)
        count = sum(len(files) for files in by_folder.values())
        freeing(self._unlink_by_folder, list(by_folder.items()), count=count)

    def _unlink_by_folder(self, folders: Sequence[tuple[str, Sequence[str]]]) -> None:
        parents: dict[str, str] = {}
        for folder, files in folders:
            check_prefix(folder)
            parent, _, name = folder.rpartition("/")
            try:
                if parent not in parents:
                    parents[parent] = self._folder(parent)
                path = f"{parents[parent]}/{name}" if name else self._directory
                unlink_all(path, files, os.O_NOFOLLOW if name else 0)
            except GONE:
                continue
            except OSError as cause:
                raise self._error_for(folder, cause) from cause

    def delete_below(
        self, prefix: str, *, before_batch: Callable[[], None], largest_batch: int
    ) -> Iterator[Deleted]:
        base = check_prefix(prefix)
        with self._translated(prefix), suppress(*GONE):
            for folder, _, files, descriptor in os.fwalk(self._folder(base), topdown=False):
                for start in range(0, len(files), largest_batch):
                    before_batch()
                    yield _unlink_in(descriptor, files[start : start + largest_batch])
                self._remove_if_empty(os.path.relpath(folder, self._directory))

    def remove_directories(
        self, claims: Mapping[str, TrashClaim], *, still_owned: Callable[[str], bool]
    ) -> Iterator[Sequence[str]]:
        for prefix in claims:
            check_key(check_prefix(prefix))
        with self._translated("trash"):
            yield from self._trash.remove(claims, still_owned)

    def recover_trash(self, may_delete: Callable[[str, str], bool]) -> TrashReport:
        with self._translated("trash"):
            return self._trash.recover(may_delete)

    def is_occupied(self, prefix: str) -> bool:
        place = f"{self._directory}/{check_prefix(prefix)}"
        return os.path.lexists(place) and (os.path.islink(place) or not os.path.isdir(place))

    def prune(self, *prefixes: str) -> None:
        def act(chosen: Sequence[str]) -> None:
            parents: dict[str, str] = {}
            for prefix in chosen:
                parent, _, name = check_prefix(prefix).rpartition("/")
                with self._translated(prefix), suppress(*GONE):
                    if parent not in parents:
                        parents[parent] = self._folder(parent)
                    prune(f"{parents[parent]}/{name}")

        there = [each for each in prefixes if os.path.lexists(f"{self._directory}/{check_prefix(each)}")]
        freeing(act, there, count=len(there))

    def head(self, key: str) -> ObjectInfo:
        with self._translated(key):
            try:
                found = os.lstat(self._path(key))
            except GONE:
                raise KeyNotFoundError(f"{key!r} not found in {self.name}") from None
        return _info(key, found)

    def list_level(self, prefix: str) -> Level:
        base = check_prefix(prefix)
        directories: list[str] = []
        files: list[ObjectInfo] = []
        with self._translated(prefix), suppress(*GONE), os.scandir(self._folder(base)) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    if entry.name != OWN_DIRECTORY and _holds_something(entry):
                        directories.append(entry.name)
                elif entry.is_file(follow_symlinks=False):
                    try:
                        found = entry.stat(follow_symlinks=False)
                    except FileNotFoundError:
                        continue
                    files.append(_info(f"{base}/{entry.name}" if base else entry.name, found))
        return Level(tuple(sorted(directories)), tuple(sorted(files, key=lambda info: info.key)))

    def list_recursive(self, prefix: str) -> Iterator[ObjectInfo]:
        base = check_prefix(prefix)
        pending: list[tuple[str, str]] = []
        with self._translated(prefix), suppress(*GONE):
            pending.append((base, self._folder(base)))
        while pending:
            folder, path = pending.pop()
            try:
                with os.scandir(path) as entries:
                    for entry in entries:
                        key = f"{folder}/{entry.name}" if folder else entry.name
                        if entry.is_dir(follow_symlinks=False):
                            if entry.name != OWN_DIRECTORY:
                                pending.append((key, entry.path))
                        elif entry.is_file(follow_symlinks=False):
                            try:
                                found = entry.stat(follow_symlinks=False)
                            except FileNotFoundError:
                                continue
                            yield _info(key, found)
            except GONE:
                continue
            except OSError as cause:
                raise self._error_for(folder, cause) from cause

    def list_after(self, key: str) -> Page:
        raise UnsupportedOperationError(f"{self.name} does not list its files in order")

    def which_exist(self, paths: Sequence[str]) -> frozenset[str]:
        reached: set[str] = set()
        return frozenset(path for path in paths if self._exists(path, reached))

    def _exists(self, path: str, reached: set[str]) -> bool:
        """Tell whether a path is there; `reached` keeps the folders to which no link leads."""
        try:
            # "Not there" is the common answer, and needs no look for links on the way.
            found = os.lstat(f"{self._directory}/{path.rstrip('/')}")
            if path.endswith("/"):
                return stat.S_ISDIR(found.st_mode) and self._holds_file(path)
            folder = check_key(path).rpartition("/")[0]
            if folder not in reached:
                self._folder(folder)
                reached.add(folder)
            return stat.S_ISREG(found.st_mode)
        except GONE:
            return False
        except OSError as cause:
            raise self._error_for(path, cause) from cause

    def _holds_file(self, folder: str) -> bool:
        """Tell whether there is a file anywhere below; a folder of empty folders holds nothing."""
        with os.scandir(self._folder(folder)) as entries:
            if any(not entry.is_dir(follow_symlinks=False) for entry in entries):
                return True
        return any(True for _ in self.list_recursive(folder))

    def _path(self, key: str) -> str:
        folder, _, file = check_key(key).rpartition("/")
        return f"{self._folder(folder)}/{file}"

    def _folder(self, prefix: str) -> str:
        """Return the folder's path; one behind a symbolic link lies outside the root and is not there."""
        folder = self._directory
        for part in prefix.rstrip("/").split("/") if prefix else ():
            folder = f"{folder}/{part}"
            if os.path.islink(folder):
                raise FileNotFoundError(errno.ENOENT, "symbolic links are not followed", folder)
        return folder

    def _remove_if_empty(self, folder: str) -> bool:
        try:
            os.rmdir(f"{self._directory}/{folder}")
        except OSError:
            return False
        return True

    def _touch(self, path: str) -> None:
        try:
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644))
        except FileExistsError:
            raise KeyExistsError(f"{os.path.basename(path)!r} already exists in {self.name}") from None

    def _link(self, temporary: str, path: str) -> None:
        try:
            os.link(temporary, path)
        except FileExistsError:
            raise KeyExistsError(f"{os.path.basename(path)!r} already exists in {self.name}") from None
        except OSError as refused:
            if refused.errno not in _LINKS_REFUSED:
                raise
            self._rename_if_free(temporary, path)
        sync_directory(os.path.dirname(path))

    def _rename_if_free(self, temporary: str, path: str) -> None:
        """Create where hard links are refused: look and rename while holding the key's lock."""
        with locked(self._lock_of(os.path.relpath(path, self._directory))):
            if os.path.lexists(path):
                raise KeyExistsError(f"{os.path.basename(path)!r} already exists in {self.name}")
            os.rename(temporary, path)

    def _lock_of(self, key: str) -> str:
        return f"{self._directory}/{OWN_DIRECTORY}/locks/{zlib.crc32(key.encode()) % _LOCKS:02d}"

    @contextmanager
    def _translated(self, key: str) -> Iterator[None]:
        try:
            yield
        except RelanceError:
            raise
        except OSError as cause:
            raise self._error_for(key, cause) from cause

    def _error_for(self, key: str, cause: OSError) -> RelanceError:
        error: RelanceError = InternalError(f"{key!r} in {self.name}: {cause.strerror or cause}")
        if isinstance(cause, PermissionError):
            error = PermissionDeniedError(f"{key!r} in {self.name}: {cause.strerror}")
        elif cause.errno in {errno.ESTALE, errno.ETIMEDOUT, errno.ENOTCONN, errno.EHOSTDOWN}:
            error = ServiceUnavailableError(f"cannot access {self.name}: {cause.strerror}")
        error.__cause__ = cause
        return error


def _unlink_in(folder: int, files: Sequence[str]) -> Deleted:
    """Unlink files of an open folder and return how many were there, and their size."""

    def act(chosen: Sequence[str]) -> list[int]:
        sizes = []
        for file in chosen:
            try:
                length = os.stat(check_key(file), dir_fd=folder, follow_symlinks=False).st_size
                os.unlink(file, dir_fd=folder)
            except (*GONE, IsADirectoryError):
                continue
            sizes.append(length)
        return sizes

    sizes = [size for part in freeing(act, files, count=len(files)) for size in part]
    return Deleted(len(sizes), sum(sizes))


def _holds_something(entry: os.DirEntry[str]) -> bool:
    """Tell a folder with content from an empty one, mostly from its link count (one per subfolder)."""
    try:
        if entry.stat(follow_symlinks=False).st_nlink > 2:
            return True
        with os.scandir(entry.path) as inside:
            return any(True for _ in inside)
    except GONE:
        return False
    except PermissionError:
        return True  # cannot look inside: it is there, and using it will say what is wrong


def _version(body: bytes) -> Version:
    # Of the content: inode and time stamps repeat when a file is replaced twice within a clock tick.
    return Version(hashlib.blake2b(body, digest_size=16).hexdigest())


def _info(key: str, found: os.stat_result) -> ObjectInfo:
    e_tag = f"{found.st_ino:x}-{found.st_mtime_ns:x}-{found.st_size:x}"
    return ObjectInfo(key, found.st_size, modified_time(found), e_tag)
