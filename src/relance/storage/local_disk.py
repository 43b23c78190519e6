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
from functools import partial
from typing import TypeVar

from relance.errors import (
    InternalError,
    InvalidTableStateError,
    KeyChangedError,
    KeyExistsError,
    KeyNotFoundError,
    RelanceError,
    StorageFullError,
    UnsupportedOperationError,
)
from relance.locations import OWN_DIRECTORY
from relance.storage.ballast import FULL, NONE_KEPT, Ballast
from relance.storage.disk_files import (
    GONE,
    HeldOpen,
    freeing,
    in_folder,
    lock_file,
    locked,
    make_file,
    modified_time,
    opened_folder,
    prune,
    read_file,
    require_file,
    sync_directory,
    unlink_all,
)
from relance.storage.failures import error_for_number
from relance.storage.protocol import (
    BODY_MAX_BYTES,
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
from relance.storage.temporary_files import TemporaryFiles, Written
from relance.storage.trash import Trash

_T = TypeVar("_T")

_LOCKS = 64

_LINKS_REFUSED = frozenset({errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK, errno.EXDEV})


class LocalDiskStorage:
    """Objects are files below a directory; symbolic links are not followed."""

    def __init__(self, directory: str, *, keeps_ballast: bool = False) -> None:
        """Use a directory, which need not exist; `keeps_ballast` reserves space for a full disk."""
        self._directory = directory
        self._ballast = Ballast(directory, keeps_ballast)
        self._trash = Trash(directory, self._ballast)
        self._temporary = TemporaryFiles(directory, self._ballast)

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
        with self._translated(f"{OWN_DIRECTORY}/tmp"), self._temporary.written([b"-"]) as written:
            found = os.stat(written.files[0], dir_fd=written.folder, follow_symlinks=False)
            now = modified_time(found)
            if now is None:
                raise InternalError(f"the clock of {self.name} is wrong: it counts {found.st_mtime} seconds")
            return now

    def read(self, key: str, *, at_most: int | None = BODY_MAX_BYTES) -> Stored:
        with self._translated(key):
            try:
                body, found = read_file(self._path(key), at_most=at_most)
            except GONE:
                raise KeyNotFoundError(f"{key!r} not found in {self.name}") from None
        info = _info(key, found)
        return Stored(body, _version(body), info.modified, info.e_tag)

    def create(self, key: str, body: bytes) -> Version:
        if not body:
            # It has no content that could be lost, and what decides nothing need not survive a power failure.
            with self._translated(key):
                self._ballast.retried(lambda: self._in_parent(key, self._touch))
            self._ballast.keep()
            return _version(body)
        with self._translated(key), self._temporary.written([body]) as written:
            self._in_parent(key, lambda folder, file: self._link(written, key, folder, file))
        self._ballast.keep()
        return _version(body)

    def replace(self, key: str, body: bytes, *, expected: Version) -> Version:
        (outcome,) = self.replace_many([Replacement(key, body, expected)])
        if isinstance(outcome, RelanceError):
            raise outcome
        return outcome

    def replace_many(self, changes: Sequence[Replacement]) -> list[Version | RelanceError]:
        outcomes: dict[int, Version | RelanceError] = {}
        bodies = [each.body for each in changes]
        first = changes[0].key if changes else ""
        by_lock: dict[str, list[int]] = {}
        for number, change in enumerate(changes):
            by_lock.setdefault(self._lock_of(change.key), []).append(number)
        try:
            # The content lasts before a name leads to it: a marker must never come back empty.
            with self._translated(first), self._temporary.written(bodies) as written:
                with HeldOpen() as replaced:
                    for lock, numbers in by_lock.items():
                        with self._locked(lock):
                            for number in numbers:
                                outcomes[number] = self._swap(written, number, changes[number], replaced)
                                if not isinstance(outcomes[number], RelanceError):
                                    written.files[number] = ""  # it has the key's name now
                swapped = {n for n, outcome in outcomes.items() if not isinstance(outcome, RelanceError)}
                for prefix in {os.path.dirname(changes[number].key) for number in swapped}:
                    with opened_folder(self._directory, prefix) as folder:
                        sync_directory(folder)
        except RelanceError as failure:
            # None that was swapped, or was still to be, is known to last.
            refused = {n: outcome for n, outcome in outcomes.items() if isinstance(outcome, RelanceError)}
            outcomes = {n: refused.get(n, failure) for n in range(len(changes))}
        else:
            self._ballast.keep()
        return [outcomes[number] for number in range(len(changes))]

    def _swap(
        self, written: Written, number: int, change: Replacement, replaced: HeldOpen
    ) -> Version | RelanceError:
        """Move a written body into place if the expected version is there. The key's lock is held."""
        key = change.key
        try:
            prefix, _, file = check_key(key).rpartition("/")
            with opened_folder(self._directory, prefix) as folder:
                if _version(replaced.read(file, folder=folder)) != change.expected:
                    return KeyChangedError(f"{key!r} in {self.name} has changed")
                rename = partial(os.replace, src_dir_fd=written.folder, dst_dir_fd=folder)
                self._ballast.retried(lambda: rename(written.files[number], file))
        except GONE:
            return KeyChangedError(f"{key!r} no longer exists in {self.name}")
        except OSError as cause:
            return self._error_for(key, cause)
        except RelanceError as error:
            return error
        return _version(change.body)

    def copy(self, source: str, target: str, *, share: bool) -> None:
        prefix, _, origin = check_key(source).rpartition("/")
        with self._translated(source):
            if not self.which_exist([source]):
                raise KeyNotFoundError(f"{source!r} not found in {self.name}")
            try:
                with opened_folder(self._directory, prefix) as folder:
                    if share and self._in_parent(target, partial(self._share, origin, folder)):
                        return
                    with self._temporary.copied(origin, folder=folder) as written:
                        self._in_parent(target, partial(self._link, written, target))
            except GONE:
                if self.which_exist([source]):
                    raise  # it is the target that cannot be written
                raise KeyNotFoundError(f"{source!r} not found in {self.name}") from None

    def _share(self, origin: str, source: int, folder: int, file: str) -> bool:
        """Give a file of an open folder a second name, in another one, if this file system can."""
        try:
            os.link(origin, file, src_dir_fd=source, dst_dir_fd=folder, follow_symlinks=False)
        except FileExistsError:
            raise self._taken(folder, file) from None
        except OSError as refused:
            if refused.errno in _LINKS_REFUSED:
                return False
            raise
        sync_directory(folder)
        return True

    def reserve(self, count: int) -> AbstractContextManager[None]:
        return self._temporary.reserve(count)

    def delete(self, key: str) -> None:
        # Under the lock, so that a replace cannot bring back what was deleted after its check.
        prefix, _, file = check_key(key).rpartition("/")
        with (
            self._translated(key),
            self._locked(self._lock_of(key)),
            suppress(*GONE),
            opened_folder(self._directory, prefix) as folder,
        ):
            unlink_all(folder, [file])

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
        for prefix, files in folders:
            try:
                with opened_folder(self._directory, check_prefix(prefix)) as folder:
                    unlink_all(folder, files)
            except GONE:
                continue
            except OSError as cause:
                raise self._error_for(prefix or files[0], cause) from cause

    def delete_below(
        self, prefix: str, *, before_batch: Callable[[], None], largest_batch: int
    ) -> Iterator[Deleted]:
        base = check_prefix(prefix)
        above, _, name = base.rpartition("/")
        with self._translated(prefix), suppress(*GONE), opened_folder(self._directory, above) as parent:
            for _, folders, files, descriptor in os.fwalk(name or ".", topdown=False, dir_fd=parent):
                for start in range(0, len(files), largest_batch):
                    before_batch()
                    yield _unlink_in(descriptor, files[start : start + largest_batch])
                for folder in folders:
                    _remove_if_empty(folder, descriptor)
            if name:
                _remove_if_empty(name, parent)

    def remove_directories(
        self, claims: Mapping[str, TrashClaim], *, still_owned: Callable[[str], bool]
    ) -> Iterator[Sequence[str]]:
        for prefix in claims:
            check_key(check_prefix(prefix))
        with self._translated(f"{OWN_DIRECTORY}/trash"):
            yield from self._trash.remove(claims, still_owned)
        self._ballast.keep()

    def recover_trash(self, may_delete: Callable[[str, str], bool]) -> TrashReport:
        with self._translated(f"{OWN_DIRECTORY}/trash"):
            return self._trash.recover(may_delete)

    def keep_ballast(self) -> None:
        self._ballast.keep()

    def free_ballast(self, count: int) -> bool:
        return self._ballast.free(count)

    def is_occupied(self, prefix: str) -> bool:
        place = self._directory
        try:
            for part in check_prefix(prefix).split("/"):
                place = f"{place}/{part}"
                if not stat.S_ISDIR(os.lstat(place).st_mode):
                    return True
        except FileNotFoundError:
            return False
        except OSError as cause:
            raise self._error_for(prefix, cause) from cause
        return False

    def prune(self, *prefixes: str) -> None:
        def act(chosen: Sequence[str]) -> None:
            for prefix in chosen:
                above, _, name = check_prefix(prefix).rpartition("/")
                with (
                    self._translated(prefix),
                    suppress(*GONE),
                    opened_folder(self._directory, above) as parent,
                ):
                    prune(parent, name)

        there = [each for each in prefixes if os.path.lexists(f"{self._directory}/{check_prefix(each)}")]
        freeing(act, there, count=len(there))

    def head(self, key: str) -> ObjectInfo:
        with self._translated(key):
            try:
                found = os.lstat(self._path(key))
            except GONE:
                raise KeyNotFoundError(f"{key!r} not found in {self.name}") from None
        if not stat.S_ISREG(found.st_mode):
            raise KeyNotFoundError(f"{key!r} in {self.name} is not a file")  # as no listing shows it
        return _info(key, found)

    def list_level(self, prefix: str) -> Level:
        base = check_prefix(prefix)
        directories: list[str] = []
        files: list[ObjectInfo] = []
        odd: list[str] = []
        with self._translated(prefix), suppress(*GONE), os.scandir(self._folder(base)) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    if entry.name != OWN_DIRECTORY:
                        (directories if _holds_something(entry) else odd).append(entry.name)
                elif entry.is_file(follow_symlinks=False):
                    try:
                        found = entry.stat(follow_symlinks=False)
                    except FileNotFoundError:
                        continue
                    files.append(_info(f"{base}/{entry.name}" if base else entry.name, found))
                else:
                    odd.append(entry.name)
        files.sort(key=lambda info: info.key)
        return Level(tuple(sorted(directories)), tuple(files), tuple(sorted(odd)))

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

    def _in_parent(self, key: str, act: Callable[[int, str], _T]) -> _T:
        """Do `act` with the open folder of a key, which is made if it is missing, and the name in it."""
        prefix, _, file = check_key(key).rpartition("/")
        return in_folder(self._directory, prefix, lambda folder: act(folder, file))

    def _touch(self, folder: int, file: str) -> None:
        try:
            os.close(make_file(file, folder=folder))
        except FileExistsError:
            raise self._taken(folder, file) from None

    def _link(self, written: Written, key: str, folder: int, file: str) -> None:
        (temporary,) = written.files
        try:
            link = partial(os.link, src_dir_fd=written.folder, dst_dir_fd=folder, follow_symlinks=False)
            self._ballast.retried(lambda: link(temporary, file))
        except FileExistsError:
            raise self._taken(folder, file) from None
        except OSError as refused:
            if refused.errno not in _LINKS_REFUSED:
                raise
            self._rename_if_free(temporary, written.folder, key, folder, file)
        sync_directory(folder)

    def _rename_if_free(self, temporary: str, own: int, key: str, folder: int, file: str) -> None:
        """Create where hard links are refused: look and rename while holding the key's lock."""
        with self._locked(self._lock_of(key)):
            try:
                os.stat(file, dir_fd=folder, follow_symlinks=False)
            except FileNotFoundError:
                os.rename(temporary, file, src_dir_fd=own, dst_dir_fd=folder)
            else:
                raise self._taken(folder, file)

    def _taken(self, folder: int, file: str) -> RelanceError:
        """Return the error for a key that exists, or whose place something has that is no file."""
        try:
            require_file(file, folder=folder)
        except InvalidTableStateError as odd:
            return odd
        return KeyExistsError(f"{file!r} already exists in {self.name}")

    def _lock_of(self, key: str) -> str:
        return f"{zlib.crc32(key.encode()) % _LOCKS:02d}"

    def _locked(self, lock: str) -> AbstractContextManager[None]:
        folder = f"{OWN_DIRECTORY}/locks"
        return locked(self._ballast.retried(lambda: lock_file(self._directory, folder, lock)))

    @contextmanager
    def _translated(self, key: str) -> Iterator[None]:
        try:
            yield
        except RelanceError:
            raise
        except OSError as cause:
            raise self._error_for(key, cause) from cause

    def _error_for(self, key: str, cause: OSError) -> RelanceError:
        where = f"{key!r} in {self.name}" if key else self.name
        error: RelanceError = error_for_number(cause, where=where) or InternalError(
            f"{where}: {cause.strerror or cause}"
        )
        if cause.errno in FULL and not self._ballast.is_there():
            error = StorageFullError(f"{where}: {cause.strerror}; {NONE_KEPT}")
        if isinstance(cause, NotADirectoryError):
            place = cause.filename if isinstance(cause.filename, str) else key
            error = InvalidTableStateError(
                f"{place!r} in {self.name} is a link or a file where a folder belongs; it is never followed: "
                "remove it"
            )
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


def _remove_if_empty(name: str, folder: int) -> None:
    with suppress(OSError):
        os.rmdir(name, dir_fd=folder)


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
