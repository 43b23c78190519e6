"""S3, Google Cloud Storage and Azure Blob through obstore, which only this package imports."""

from __future__ import annotations

import json
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from datetime import datetime
from itertools import islice
from typing import TYPE_CHECKING

from obstore.exceptions import (
    AlreadyExistsError,
    BaseError,
    NotSupportedError,
    PermissionDeniedError,
    PreconditionError,
    UnauthenticatedError,
)

from relance import errors
from relance.config import StorageOptions
from relance.forks import OBJECT_STORE, note_use
from relance.storage.at_once import replace_each
from relance.storage.bulk_delete import growing_batches, read_ahead
from relance.storage.failures import error_for_text, first_line
from relance.storage.protocol import (
    BODY_MAX_BYTES,
    CLOCK_KEY,
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

if TYPE_CHECKING:
    from obstore import ObjectMeta, UpdateVersion
    from obstore.store import ObjectStore

_PAGE = 1000
"""Keys per listing request."""

_DELETE_BATCH = 1000
"""Keys per delete request."""

_PARALLEL = 8
"""Look-ups under way at once."""

_PARALLEL_REQUESTS = 16
"""What callers with several things to ask may have under way."""

_PARALLEL_DELETES = 4
"""Delete requests under way at once."""


class ObjectStoreStorage:
    """Objects in a bucket or container, below the store's prefix."""

    def __init__(self, store: ObjectStore, name: str, options: StorageOptions, *, sorted_pages: bool) -> None:
        """Wrap `store`; `sorted_pages` says that a listing can start in the middle and is in key order."""
        self._store = store
        self._name = name
        self._options = options
        self._sorted_pages = sorted_pages

    @property
    def name(self) -> str:
        return self._name

    @property
    def cheap_lookups(self) -> bool:
        return False

    @property
    def requests_at_once(self) -> int:
        return _PARALLEL_REQUESTS

    @property
    def lists_in_order(self) -> bool:
        return self._sorted_pages

    def now(self) -> datetime:
        with self._translated(CLOCK_KEY):
            self._store.put(CLOCK_KEY, b"", use_multipart=False)
            return self._store.head(CLOCK_KEY)["last_modified"]

    def read(self, key: str, *, at_most: int | None = BODY_MAX_BYTES) -> Stored:
        with self._translated(key):
            found = self._store.get(check_key(key))
            check_size(found.meta["size"], at_most, where=f"{key!r} in {self._name}")
            body = bytes(found.bytes())
            info = _info(found.meta)
            version = _version(found.meta["e_tag"], found.meta["version"])
            return Stored(body, version, info.modified, info.e_tag)

    def create(self, key: str, body: bytes) -> Version:
        with self._translated(key, writing=True):
            result = self._store.put(check_key(key), body, mode="create", use_multipart=False)
            return _version(result["e_tag"], result["version"])

    def replace(self, key: str, body: bytes, *, expected: Version) -> Version:
        with self._translated(key, writing=True):
            try:
                result = self._store.put(check_key(key), body, mode=_condition(expected), use_multipart=False)
            except FileNotFoundError as cause:
                raise errors.KeyChangedError(f"{key!r} no longer exists in {self._name}") from cause
            return _version(result["e_tag"], result["version"])

    def replace_many(self, changes: Sequence[Replacement]) -> list[Version | errors.RelanceError]:
        return replace_each(self, changes)

    def copy(self, source: str, target: str, *, share: bool) -> None:
        pair = check_key(source), check_key(target)
        with self._translated(source, writing=True):
            try:
                self._store.copy(*pair, overwrite=False)
            except NotSupportedError:
                self._store.copy(*pair)  # S3 refuses the condition before it sends anything

    def reserve(self, count: int) -> AbstractContextManager[None]:
        return nullcontext()

    def delete(self, key: str) -> None:
        with self._translated(key), suppress(FileNotFoundError):
            self._store.delete(check_key(key))

    def delete_many(self, keys: Iterable[str]) -> None:
        remaining = iter(keys)
        batches = iter(lambda: [check_key(key) for key in islice(remaining, _DELETE_BATCH)], [])
        first = next(batches, None)
        second = next(batches, None)
        if first is None:
            return
        if second is None:
            self._delete_batch(first)
            return
        with ThreadPoolExecutor(_PARALLEL_DELETES) as pool:
            pending = {pool.submit(self._delete_batch, batch) for batch in (first, second)}
            for batch in batches:
                if len(pending) >= _PARALLEL_DELETES:
                    finished, pending = wait(pending, return_when=FIRST_COMPLETED)
                    for each in finished:
                        each.result()
                pending.add(pool.submit(self._delete_batch, batch))
            for each in pending:
                each.result()

    def _delete_batch(self, batch: list[str]) -> None:
        try:
            with self._translated(batch[0]):
                self._store.delete(batch)
        except errors.KeyNotFoundError:
            # A store that reports missing keys may have stopped at the first: go one by one.
            for key in batch:
                self.delete(key)

    def delete_below(
        self, prefix: str, *, before_batch: Callable[[], None], largest_batch: int
    ) -> Iterator[Deleted]:
        for batch in read_ahead(growing_batches(self.list_recursive(prefix), largest_batch)):
            before_batch()
            self.delete_many(info.key for info in batch)
            yield Deleted(len(batch), sum(info.size for info in batch))

    def remove_directories(
        self, claims: Mapping[str, TrashClaim], *, still_owned: Callable[[str], bool]
    ) -> Iterator[Sequence[str]]:
        return iter(())  # there are no directories: each object would have to be renamed

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
        with self._translated(key):
            return _info(self._store.head(check_key(key)))

    def list_level(self, prefix: str) -> Level:
        base = check_prefix(prefix)
        with self._translated(prefix):
            found = self._store.list_with_delimiter(base or None)
        skip = len(base) + 1 if base else 0
        directories = tuple(each.rstrip("/")[skip:] for each in found["common_prefixes"])
        return Level(directories, tuple(_info(each) for each in found["objects"]))

    def list_recursive(self, prefix: str) -> Iterator[ObjectInfo]:
        with self._translated(prefix):
            for chunk in self._store.list(check_prefix(prefix) or None, chunk_size=_PAGE):
                for each in chunk:
                    yield _info(each)

    def list_after(self, key: str) -> Page:
        if not self._sorted_pages:
            raise errors.UnsupportedOperationError(f"{self._name} does not list its objects in order")
        start = _key_order(check_key(key)) if key else b""
        page = self._page_after(key)
        # Without its slash a folder object may come before `key`.
        return Page(tuple(info for info in page if _key_order(info.key) > start), is_last=len(page) < _PAGE)

    def which_exist(self, paths: Sequence[str]) -> frozenset[str]:
        ordered = sorted(set(paths), key=_key_order)
        if not ordered:
            return frozenset()
        look = self._found_by_pages if self._sorted_pages else self._found_one_by_one
        size = -(-len(ordered) // _PARALLEL)
        slices = [ordered[start : start + size] for start in range(0, len(ordered), size)]
        if self._sorted_pages and len(ordered) <= _PAGE:
            return look(ordered)  # one page mostly answers all of them
        with ThreadPoolExecutor(_PARALLEL) as pool:
            return frozenset().union(*pool.map(look, slices))

    def _found_by_pages(self, ordered: Sequence[str]) -> frozenset[str]:
        """Walk the sorted keys from path to path: one page of keys answers for all paths it spans."""
        found: set[str] = set()
        page: list[str] = []
        complete_to: str | None = ""
        for path in ordered:
            if complete_to is not None and _key_order(path) >= _key_order(complete_to):
                # The offset is exclusive: the path without its last character comes just before it.
                page = [info.key for info in self._page_after(path[:-1])]
                complete_to = page[-1] if len(page) == _PAGE else None
            index = bisect_left(page, _key_order(path), key=_key_order)
            if index < len(page) and _matches(page[index], path):
                found.add(path)
        return frozenset(found)

    def _page_after(self, key: str) -> list[ObjectInfo]:
        """Return one request's worth of objects after `key`."""
        with self._translated(key):
            for chunk in self._store.list(None, offset=key or None, chunk_size=_PAGE):
                # Folder objects lose their slash, and with it their place in the order.
                return sorted((_info(meta) for meta in chunk), key=lambda info: _key_order(info.key))
        return []

    def _found_one_by_one(self, paths: Sequence[str]) -> frozenset[str]:
        return frozenset(path for path in paths if self._exists(path))

    def _exists(self, path: str) -> bool:
        if path.endswith("/"):
            return any(True for _ in self.list_recursive(path))
        try:
            self.head(path)
        except errors.KeyNotFoundError:
            return False
        return True

    @contextmanager
    def _translated(self, key: str, *, writing: bool = False) -> Iterator[None]:
        note_use(OBJECT_STORE)
        try:
            yield
        except errors.RelanceError:
            raise
        except (BaseError, OSError) as cause:
            self._options.hide_in(cause)
            raise _error_for(cause, f"{key!r} in {self._name}", writing=writing) from cause
        except BaseException as cause:
            if type(cause).__name__ != "PanicException":
                raise
            self._options.hide_in(cause)
            raise _error_for(OSError(str(cause)), f"{key!r} in {self._name}", writing=writing) from cause


def _error_for(cause: BaseError | OSError, where: str, *, writing: bool) -> errors.RelanceError:
    known = _by_class(cause, where) or error_for_text(str(cause), where=where)
    if isinstance(known, errors.ServiceUnavailableError) and writing:
        return errors.OutcomeUnknownError(known.detail)
    return known or errors.InternalError(f"{where}: {first_line(str(cause))}")


def _by_class(cause: BaseError | OSError, where: str) -> errors.RelanceError | None:
    classes: dict[type[Exception], type[errors.RelanceError]] = {
        AlreadyExistsError: errors.KeyExistsError,
        PreconditionError: errors.KeyChangedError,
        PermissionDeniedError: errors.PermissionDeniedError,
        UnauthenticatedError: errors.UnauthenticatedError,
        NotSupportedError: errors.UnsupportedOperationError,
    }
    if isinstance(cause, FileNotFoundError):
        # A missing bucket answers like a missing key; only its text tells.
        return error_for_text(str(cause), where=where) or errors.KeyNotFoundError(f"{where} not found")
    for known, error in classes.items():
        if isinstance(cause, known):
            return error(f"{where}: {first_line(str(cause))}")
    return None


def _version(e_tag: str | None, generation: str | None) -> Version:
    return Version(json.dumps([e_tag, generation]))


def _condition(expected: Version) -> UpdateVersion:
    e_tag, generation = json.loads(expected)
    condition: UpdateVersion = {}
    if e_tag is not None:
        condition["e_tag"] = e_tag
    if generation is not None:
        condition["version"] = generation
    return condition


def _info(meta: ObjectMeta) -> ObjectInfo:
    # Reads show whole seconds and quoted etags. Listings of some stores show milliseconds (GCS, MinIO) or
    # unquoted etags (Azure), and have to be comparable.
    e_tag = meta["e_tag"]
    if e_tag and not e_tag.endswith('"'):
        e_tag = f'"{e_tag}"'
    return ObjectInfo(meta["path"], meta["size"], meta["last_modified"].replace(microsecond=0), e_tag)


def _key_order(path: str) -> bytes:
    return path.encode()


def _matches(key: str, path: str) -> bool:
    return key.startswith(path) if path.endswith("/") else key == path
