"""The reference backend: a dictionary. What it does is what the others must do."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from itertools import islice

from relance.clock import Clock, SystemClock
from relance.errors import KeyChangedError, KeyExistsError, KeyNotFoundError, RelanceError
from relance.locations import OWN_DIRECTORY
from relance.storage.at_once import replace_each
from relance.storage.bulk_delete import delete_by_listing
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
    check_size,
)

_PAGE = 1000
"""Objects that `list_after` returns, as on S3."""


_HIDDEN = f"{OWN_DIRECTORY}/"
"""Not listed, as on a disk: the explorer keeps a trash there."""


@dataclass(frozen=True, slots=True)
class _Object:
    body: bytes
    modified: datetime
    version: Version


@lru_cache(maxsize=4096)
def _version_of(body: bytes) -> Version:
    # As on S3: equal bodies have equal versions.
    return Version(hashlib.md5(body, usedforsecurity=False).hexdigest())


class MemoryStorage:
    """Objects in a dictionary, gone with the process."""

    def __init__(self, name: str = "memory", clock: Clock | None = None) -> None:
        self._name = name
        self._clock = clock or SystemClock()
        self._objects: dict[str, _Object] = {}
        self._lock = threading.Lock()

    @property
    def name(self) -> str:
        return self._name

    @property
    def cheap_lookups(self) -> bool:
        return False  # it stands in for object stores, where each look is a request

    @property
    def requests_at_once(self) -> int:
        return 1

    @property
    def lists_in_order(self) -> bool:
        return True

    def now(self) -> datetime:
        return self._clock.now()

    def read(self, key: str, *, at_most: int | None = BODY_MAX_BYTES) -> Stored:
        found = self._get(key)
        check_size(len(found.body), at_most, where=f"{key!r} in {self._name}")
        return Stored(found.body, found.version, found.modified, found.version)

    def create(self, key: str, body: bytes) -> Version:
        with self._lock:
            if check_key(key) in self._objects:
                raise KeyExistsError(f"{key!r} already exists in {self._name}")
            return self._put(key, body)

    def replace(self, key: str, body: bytes, *, expected: Version) -> Version:
        with self._lock:
            current = self._objects.get(check_key(key))
            if current is None or current.version != expected:
                raise KeyChangedError(f"{key!r} in {self._name} has changed")
            return self._put(key, body)

    def replace_many(self, changes: Sequence[Replacement]) -> list[Version | RelanceError]:
        return replace_each(self, changes)

    def copy(self, source: str, target: str, *, share: bool) -> None:
        self.create(target, self._get(source).body)

    def reserve(self, count: int) -> AbstractContextManager[None]:
        return nullcontext()

    def delete(self, key: str) -> None:
        with self._lock:
            self._objects.pop(check_key(key), None)

    def delete_many(self, keys: Iterable[str]) -> None:
        for key in keys:
            self.delete(key)

    def delete_below(
        self, prefix: str, *, before_batch: Callable[[], None], largest_batch: int
    ) -> Iterator[Deleted]:
        return delete_by_listing(self, prefix, before_batch, largest_batch)

    def remove_directories(
        self, claims: Mapping[str, TrashClaim], *, still_owned: Callable[[str], bool]
    ) -> Iterator[Sequence[str]]:
        return iter(())  # as on object stores, which know no directories

    def recover_trash(self, may_delete: Callable[[str, str], bool]) -> TrashReport:
        return TrashReport()

    def keep_ballast(self) -> None:
        """Only a disk has some."""

    def free_ballast(self, count: int) -> bool:
        return False

    def is_occupied(self, prefix: str) -> bool:
        return False  # a key and a directory of the same name do not exclude each other

    def prune(self, *prefixes: str) -> None:
        for prefix in prefixes:
            check_prefix(prefix)  # there are no folders without objects here

    def head(self, key: str) -> ObjectInfo:
        return self._info(key, self._get(key))

    def list_level(self, prefix: str) -> Level:
        base = _base(prefix)
        directories: set[str] = set()
        files = []
        for info in self.list_recursive(prefix):
            directory, slash, _ = info.key[len(base) :].partition("/")
            if slash:
                directories.add(directory)
            else:
                files.append(info)
        return Level(tuple(sorted(directories)), tuple(files))

    def list_recursive(self, prefix: str) -> Iterator[ObjectInfo]:
        base = _base(prefix)
        hidden = () if base.startswith(_HIDDEN) else (_HIDDEN,)
        with self._lock:
            found = [
                self._info(key, each)
                for key, each in self._objects.items()
                if key.startswith(base) and not key.startswith(hidden)
            ]
        yield from sorted(found, key=lambda info: info.key)

    def list_after(self, key: str) -> Page:
        check_prefix(key)
        after = (info for info in self.list_recursive("") if info.key > key)
        objects = tuple(islice(after, _PAGE))
        return Page(objects, is_last=len(objects) < _PAGE)

    def which_exist(self, paths: Sequence[str]) -> frozenset[str]:
        with self._lock:
            keys = list(self._objects)
        return frozenset(
            path
            for path in paths
            if (path in keys if not path.endswith("/") else any(key.startswith(path) for key in keys))
        )

    def move(self, source: str, target: str) -> bool:
        """Rename a directory in one step, as a disk does; False if it is empty or its new place is taken."""
        with self._lock:
            inside = [key for key in self._objects if key.startswith(f"{check_key(source)}/")]
            if not inside or any(key.startswith(f"{check_key(target)}/") for key in self._objects):
                return False
            for key in inside:
                self._objects[f"{target}{key.removeprefix(source)}"] = self._objects.pop(key)
            return True

    def snapshot(self) -> dict[str, bytes]:
        """Return all bodies by key."""
        with self._lock:
            return {key: each.body for key, each in self._objects.items()}

    def clone(self, clock: Clock) -> MemoryStorage:
        """Return a store of its own with the same objects."""
        twin = MemoryStorage(self._name, clock)
        with self._lock:
            twin._objects = dict(self._objects)
        return twin

    def _get(self, key: str) -> _Object:
        with self._lock:
            found = self._objects.get(check_key(key))
        if found is None:
            raise KeyNotFoundError(f"{key!r} not found in {self._name}")
        return found

    def _put(self, key: str, body: bytes) -> Version:
        self._objects[key] = _Object(bytes(body), self._clock.now(), _version_of(bytes(body)))
        return self._objects[key].version

    @staticmethod
    def _info(key: str, found: _Object) -> ObjectInfo:
        return ObjectInfo(key, len(found.body), found.modified, found.version)


def _base(prefix: str) -> str:
    trimmed = check_prefix(prefix)
    return f"{trimmed}/" if trimmed else ""
