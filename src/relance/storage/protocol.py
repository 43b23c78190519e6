"""What a store can do. The backends are in object_store, local_disk and memory; connect picks one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime
from typing import NewType, Protocol

from relance.errors import InvalidInputError, InvalidTableStateError, RelanceError

Version = NewType("Version", str)
"""Identifies the exact bytes under a key; equal bytes may have equal versions, so bodies carry a nonce."""


CLOCK_KEY = ".relance-clock"
"""Under the root of an object store: written by `now`, which reads the store's clock from it."""

BODY_MAX_BYTES = 64 * 1024
"""No body of the catalog's own is longer; a longer one is not read."""

_UNSAFE_PARTS = frozenset({"", ".", ".."})


@dataclass(frozen=True, slots=True)
class Stored:
    """An object as it was read.

    `modified` and `e_tag` are what a listing shows for the same object, so that a read can be compared
    with an earlier listing.
    """

    body: bytes
    version: Version
    modified: datetime | None
    e_tag: str | None


@dataclass(frozen=True, slots=True)
class ObjectInfo:
    """What a listing or a head request tells of an object."""

    key: str
    size: int
    modified: datetime | None
    """None when the store does not say; an unknown age is never old enough for anything."""
    e_tag: str | None


@dataclass(frozen=True, slots=True)
class Deleted:
    """What one batch of a bulk delete removed."""

    files: int
    bytes: int


@dataclass(frozen=True, slots=True)
class TrashClaim:
    """Why a directory may be removed, for whoever finds it in the trash after a crash."""

    record: str
    """The caller's own text, which names the table and the claim on it."""
    upto: datetime | None
    """A directory with a file modified after this is restored: another client wrote it. None: no limit."""


@dataclass(frozen=True, slots=True)
class InTrash:
    """A directory that stays in the trash."""

    prefix: str
    """Where it was; empty if that is unknown."""
    path: str
    """Where it is, for the user."""


@dataclass(frozen=True, slots=True)
class TrashReport:
    """What became of the directories that dead processes left in the trash."""

    removed: tuple[str, ...] = ()
    restored: tuple[str, ...] = ()
    kept: tuple[InTrash, ...] = ()
    """Could be neither deleted nor restored; examined again by every recovery."""


@dataclass(frozen=True, slots=True)
class Replacement:
    """One of several conditional writes: `body` is written if the version there is the expected one."""

    key: str
    body: bytes
    expected: Version


@dataclass(frozen=True, slots=True)
class Level:
    """One level of a listing: directories that hold something, and the files beside them."""

    directories: tuple[str, ...]
    """Names, without the prefix and without a slash."""
    files: tuple[ObjectInfo, ...]
    """Keys are whole, as for every other call."""
    odd: tuple[str, ...] = ()
    """Names of what is neither, as only on a disk it can be: links, pipes, folders that hold nothing."""


@dataclass(frozen=True, slots=True)
class Page:
    """The objects that one listing request returned, in the byte order of their keys."""

    objects: tuple[ObjectInfo, ...]
    is_last: bool
    """Whether no object comes after these."""


class ObjectStorage(Protocol):
    """Bytes under slash-separated keys, relative to a root.

    Every method raises PermissionDeniedError, UnauthenticatedError, ServiceUnavailableError or
    InternalError when the store fails, with the cause chained. All are safe between threads and,
    for stores that outlive a process, between processes.
    """

    @property
    def name(self) -> str:
        """The root as users write it, for messages and as the identity of the store."""

    @property
    def cheap_lookups(self) -> bool:
        """Whether `which_exist` costs next to nothing, so that a listing may look inside every table."""

    @property
    def requests_at_once(self) -> int:
        """How many requests a caller should have under way at a time; 1 when waiting is no part of them."""

    @property
    def lists_in_order(self) -> bool:
        """Whether a listing can start after any key and returns keys in byte order, as `list_after` needs."""

    def now(self) -> datetime:
        """Return the time by the store's own clock, which is also the clock of `modified`.

        Costs a write and a look at what was written; some stores show whole seconds only.
        """

    def read(self, key: str, *, at_most: int | None = BODY_MAX_BYTES) -> Stored:
        """Return the object, unless it has more bytes than `at_most`: then nothing of it is read.

        Raises:
            KeyNotFoundError: there is none.
            InvalidTableStateError: it is too long, or on a disk no file but a link, a pipe or a folder.
        """

    def create(self, key: str, body: bytes) -> Version:
        """Write the object, only if the key is free: of several racing writers one wins.

        Raises:
            KeyExistsError: the key is taken.
            InvalidTableStateError: on a disk, by something that is no file.
            OutcomeUnknownError: no answer came; the object may have been written.
        """

    def replace(self, key: str, body: bytes, *, expected: Version) -> Version:
        """Write the object, only if the version there is the expected one.

        Raises:
            KeyChangedError: another version is there, or none.
            OutcomeUnknownError: no answer came; the object may have been written.
        """

    def replace_many(self, changes: Sequence[Replacement]) -> list[Version | RelanceError]:
        """Do several replacements of different keys, and return what came of each, in their order.

        Each is what `replace` is: its own condition, its own outcome, and as durable once this returns. They
        are not one change: others can see some of them done and some not, and so can who comes after a crash.
        """

    def copy(self, source: str, target: str, *, share: bool) -> None:
        """Copy an object to a fresh key, without sending its bytes through this process where possible.

        With `share` a disk makes a hard link: changing either file in place then changes both. Stores that
        have no conditional copy (S3) overwrite an existing target, so only use keys that nobody else uses.

        Raises:
            KeyNotFoundError: there is no source.
            KeyExistsError: the target exists, possibly from the same copy after a retried request.
            OutcomeUnknownError: no answer came; the object may have been copied.
        """

    def reserve(self, count: int) -> AbstractContextManager[None]:
        """Make ready for so many objects that this thread writes in the block, also after deleting many.

        Only a hint: to a disk it makes a difference, and more or fewer may be written.
        """

    def delete(self, key: str) -> None:
        """Remove the object; it is no error when there is none."""

    def delete_many(self, keys: Iterable[str]) -> None:
        """Remove objects that nobody replaces, in as few requests as the store allows."""

    def delete_below(
        self, prefix: str, *, before_batch: Callable[[], None], largest_batch: int
    ) -> Iterator[Deleted]:
        """Remove all objects below the directory `prefix`, yielding after each batch.

        `before_batch` is called before each one and stops the rest by raising.
        """

    def remove_directories(
        self, claims: Mapping[str, TrashClaim], *, still_owned: Callable[[str], bool]
    ) -> Iterator[Sequence[str]]:
        """Remove directories, if the store can rename one, and yield in groups those that are gone.

        A directory is first renamed into the trash. Then `still_owned` is called with its prefix and its
        files are compared with `upto`: it is restored unless both allow its removal. Once `still_owned` has
        returned False for a prefix it must not return True for it again. A crash leaves directories in the
        trash until `recover_trash`.

        Raises:
            InternalError: a directory could not be restored because its place is taken. It stays in the
                trash. Raised after all other directories that were renamed have been removed or restored.
        """

    def recover_trash(self, may_delete: Callable[[str, str], bool]) -> TrashReport:
        """Delete or restore the directories that dead processes left in the trash.

        `may_delete` is called with the prefix and the record of each directory for which the dead process
        had not yet made sure that it could be deleted. Unless it returns True and no file is younger than
        the claim allows, the directory is restored, or kept in the trash if its place is taken.
        """

    def keep_ballast(self) -> None:
        """Reserve space for when the disk is full, if some is missing and there is enough left.

        What writes here does so by itself; it is called after other writes. Only a disk keeps space back.
        """

    def free_ballast(self, count: int) -> bool:
        """Free `count` parts of the space that is kept back, if the verb in progress may use it.

        Returns whether there was one. A write that failed because the disk is full can be done again then.
        """

    def is_occupied(self, prefix: str) -> bool:
        """Tell whether something that is no directory has this place, as only on a disk it can."""

    def prune(self, *prefixes: str) -> None:
        """Remove folders below the directories `prefixes`, and themselves, that hold no object.

        Only a disk has such; they are left behind by writers that died.
        """

    def head(self, key: str) -> ObjectInfo:
        """Return size and age.

        Raises:
            KeyNotFoundError: there is no such object.
        """

    def list_level(self, prefix: str) -> Level:
        """Return what lies directly below the directory `prefix` ("" is the root), in one listing."""

    def list_recursive(self, prefix: str) -> Iterator[ObjectInfo]:
        """Yield every object below the directory `prefix`, as a stream, in no promised order."""

    def list_after(self, key: str) -> Page:
        """Return up to 1000 objects of the whole root whose keys come after `key`, in one listing request.

        "" starts at the beginning.

        Raises:
            UnsupportedOperationError: the store does not list in order (see `lists_in_order`).
        """

    def which_exist(self, paths: Sequence[str]) -> frozenset[str]:
        """Return those of `paths` that exist, in as few requests as the store allows.

        A path that ends in a slash exists when something lies below it.
        """


def check_size(size: int, at_most: int | None, *, where: str) -> None:
    """Check the size of an object before it is read; `where` names it.

    Raises:
        InvalidTableStateError: it is too long.
    """
    if at_most is not None and size > at_most:
        raise InvalidTableStateError(
            f"{where} has {size} bytes, but at most {at_most} are valid. Nothing was read; inspect it and "
            "remove it if it is damaged"
        )


def check_key(key: str) -> str:
    """Return `key` if it stays below the root.

    Raises:
        InvalidInputError: it is absolute, empty, or has an empty, '.' or '..' part.
    """
    if not key or "\0" in key or not _UNSAFE_PARTS.isdisjoint(key.split("/")):
        raise InvalidInputError(f"storage key {key!r} is not an object below the root")
    return key


def check_prefix(prefix: str) -> str:
    """Return the directory `prefix` without a trailing slash, checked as a key; "" is the root."""
    trimmed = prefix.rstrip("/")
    return check_key(trimmed) if trimmed else ""
