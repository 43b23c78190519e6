"""Delete the files of one table in batches and report progress. Permission to do so is in purge."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice

from relance.errors import KeyNotFoundError, RelanceError
from relance.storage.protocol import Deleted, ObjectInfo, ObjectStorage

UNIQUE_NAMES = frozenset({"data", "_deletions", "_indices", "_transactions"})
"""Directories of a table whose files are never named twice; a manifest's name comes again."""

LARGEST_BATCH = 4000
"""Files per look at the lease."""

REMEMBERED = 500
"""A table of so many files is listed once and purged together with others; one of more by itself."""

_REPORTED = 100
"""How many of the files that are left are named."""

_ROUNDS = 5
"""How often the directory is listed again before what is left is reported."""


@dataclass(frozen=True, slots=True)
class PurgeProgress:
    """Progress of a purge, passed to the progress callback after each batch."""

    id: tuple[str, ...]
    files: int
    bytes: int


@dataclass(frozen=True, slots=True)
class PurgeOptions:
    """Options of a purge."""

    force: bool = False
    """Purge even if the retention period has not ended."""
    rate_limit: float | None = None
    """Maximum number of files per second."""
    progress: Callable[[PurgeProgress], None] | None = None
    sleep: Callable[[float], None] = time.sleep


@dataclass(frozen=True, slots=True)
class PurgeResult:
    """The result of purging one table."""

    id: tuple[str, ...]
    files: int = 0
    bytes: int = 0
    left: tuple[str, ...] = ()
    """Keys that remain after the purge."""
    error: RelanceError | None = None
    dry_run: bool = False

    @property
    def purged(self) -> bool:
        return self.error is None and not self.dry_run


@dataclass(frozen=True, slots=True)
class Inside:
    """What a look into the directory of a table showed."""

    files: tuple[ObjectInfo, ...] | None
    """All of them; None when they are too many to be remembered."""
    count: int
    """How many there are, or that many were seen before the look was given up."""

    @property
    def bytes(self) -> int:
        return sum(info.size for info in self.files or ())


def look_inside(storage: ObjectStorage, directory: str, *, count_to: int = REMEMBERED) -> Inside:
    """List the files of a table, until there are more than `count_to` and more than can be remembered."""
    files: list[ObjectInfo] = []
    count = 0
    for info in storage.list_recursive(directory):
        count += 1
        if count <= REMEMBERED:
            files.append(info)
        elif count > count_to:
            break
    return Inside(tuple(files) if count <= REMEMBERED else None, count)


def is_never_named_twice(directory: str, key: str) -> bool:
    """Tell whether a file of a table has a name that no later table can have."""
    return key[len(directory) + 1 :].partition("/")[0] in UNIQUE_NAMES


def delete_directory(
    storage: ObjectStorage, directory: str, *, before_batch: Callable[[], None], done: Progress
) -> tuple[str, ...]:
    """Delete every file of a table, and list again until nothing is there. Returns what is left.

    `before_batch` is called before each batch and stops the rest by raising.
    """
    for _ in range(_ROUNDS):
        # Manifests first, while the lease is fresh: their names come again in a later table.
        children = storage.list_level(directory).directories
        shared = [f"{directory}/{child}" for child in children if child not in UNIQUE_NAMES]
        for prefix in (*shared, directory):
            for deleted in storage.delete_below(
                prefix, before_batch=before_batch, largest_batch=done.largest_batch
            ):
                done.add(deleted)
        if not storage.which_exist([f"{directory}/"]):
            storage.prune(directory)
            return ()
    left = (info.key for info in storage.list_recursive(directory))
    return tuple(islice((key for key in left if _is_there(storage, key)), _REPORTED))


def _is_there(storage: ObjectStorage, key: str) -> bool:
    """Tell an object from a folder object of S3, which is listed without its slash and cannot be named."""
    try:
        storage.head(key)
    except KeyNotFoundError:
        return False
    return True


@dataclass(slots=True)
class Progress:
    """Counts, reports and slows down."""

    id: tuple[str, ...]
    options: PurgeOptions
    files: int = 0
    bytes: int = 0

    @property
    def largest_batch(self) -> int:
        """Files until the next look at the lease; at most a second's worth when there is a rate."""
        rate = self.options.rate_limit
        return LARGEST_BATCH if rate is None else max(1, min(LARGEST_BATCH, int(rate)))

    def add(self, deleted: Deleted) -> None:
        self.files += deleted.files
        self.bytes += deleted.bytes
        if self.options.progress is not None:
            self.options.progress(PurgeProgress(self.id, self.files, self.bytes))
        if self.options.rate_limit:
            self.options.sleep(deleted.files / self.options.rate_limit)

    def result(self, *, left: tuple[str, ...] = (), error: RelanceError | None = None) -> PurgeResult:
        return PurgeResult(self.id, self.files, self.bytes, left, error)
