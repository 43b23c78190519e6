"""A storage that fails on purpose: requests that never arrive, answers that get lost, ignored conditions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import TypeVar

from relance.errors import (
    KeyChangedError,
    KeyExistsError,
    OutcomeUnknownError,
    RelanceError,
    ServiceUnavailableError,
)
from relance.storage.at_once import replace_each
from relance.storage.bulk_delete import delete_by_listing
from relance.storage.protocol import (
    BODY_MAX_BYTES,
    CLOCK_KEY,
    Deleted,
    Level,
    ObjectInfo,
    ObjectStorage,
    Page,
    Replacement,
    Stored,
    TrashClaim,
    TrashReport,
    Version,
)

_T = TypeVar("_T")


class Fault(StrEnum):
    """What happens to a request."""

    REFUSED = "refused"
    """It never reaches the store."""
    LOST_ANSWER = "lost answer"
    """The store does it, the caller is told that nobody knows."""
    RETRIED = "retried"
    """The store does it twice, as a client library does after a lost answer."""


@dataclass(frozen=True, slots=True)
class Request:
    """One request as the fault plan sees it."""

    index: int
    verb: str
    key: str


@dataclass(slots=True)
class FaultyStorage:
    """Wraps a storage; `plan` says for each request which fault strikes it, if any."""

    inner: ObjectStorage
    plan: Callable[[Request], Fault | None] = lambda request: None
    requests: list[Request] = field(default_factory=list)

    @property
    def name(self) -> str:
        return self.inner.name

    @property
    def cheap_lookups(self) -> bool:
        return self.inner.cheap_lookups

    @property
    def requests_at_once(self) -> int:
        return self.inner.requests_at_once

    @property
    def lists_in_order(self) -> bool:
        return self.inner.lists_in_order

    def now(self) -> datetime:
        self._reading("now", CLOCK_KEY)
        return self.inner.now()

    def read(self, key: str, *, at_most: int | None = BODY_MAX_BYTES) -> Stored:
        self._reading("read", key)
        return self.inner.read(key, at_most=at_most)

    def create(self, key: str, body: bytes) -> Version:
        return self._write("create", key, lambda: self.inner.create(key, body))

    def replace(self, key: str, body: bytes, *, expected: Version) -> Version:
        return self._write("replace", key, lambda: self.inner.replace(key, body, expected=expected))

    def replace_many(self, changes: Sequence[Replacement]) -> list[Version | RelanceError]:
        return replace_each(self, changes)

    def copy(self, source: str, target: str, *, share: bool) -> None:
        self._write("copy", target, lambda: self.inner.copy(source, target, share=share))

    def reserve(self, count: int) -> AbstractContextManager[None]:
        return self.inner.reserve(count)

    def delete(self, key: str) -> None:
        self._write("delete", key, lambda: self.inner.delete(key))

    def delete_many(self, keys: Iterable[str]) -> None:
        chosen = list(keys)
        self._write("delete_many", ",".join(chosen), lambda: self.inner.delete_many(chosen))

    def delete_below(
        self, prefix: str, *, before_batch: Callable[[], None], largest_batch: int
    ) -> Iterator[Deleted]:
        return delete_by_listing(self, prefix, before_batch, largest_batch)

    def remove_directories(
        self, claims: Mapping[str, TrashClaim], *, still_owned: Callable[[str], bool]
    ) -> Iterator[Sequence[str]]:
        return iter(())  # each file is to be deleted by a request that a fault can strike

    def recover_trash(self, may_delete: Callable[[str, str], bool]) -> TrashReport:
        return self.inner.recover_trash(may_delete)

    def keep_ballast(self) -> None:
        self.inner.keep_ballast()

    def free_ballast(self, count: int) -> bool:
        return self.inner.free_ballast(count)

    def is_occupied(self, prefix: str) -> bool:
        return self.inner.is_occupied(prefix)

    def prune(self, *prefixes: str) -> None:
        self.inner.prune(*prefixes)

    def head(self, key: str) -> ObjectInfo:
        self._reading("head", key)
        return self.inner.head(key)

    def list_level(self, prefix: str) -> Level:
        self._reading("list_level", prefix)
        return self.inner.list_level(prefix)

    def list_recursive(self, prefix: str) -> Iterator[ObjectInfo]:
        self._reading("list_recursive", prefix)
        return self.inner.list_recursive(prefix)

    def list_after(self, key: str) -> Page:
        self._reading("list_after", key)
        return self.inner.list_after(key)

    def which_exist(self, paths: Sequence[str]) -> frozenset[str]:
        self._reading("which_exist", ",".join(paths))
        return self.inner.which_exist(paths)

    def _next(self, verb: str, key: str) -> Fault | None:
        request = Request(len(self.requests), verb, key)
        self.requests.append(request)
        return self.plan(request)

    def _reading(self, verb: str, key: str) -> None:
        if self._next(verb, key) is not None:
            raise ServiceUnavailableError(f"{verb} {key!r} was struck by a fault on purpose")

    def _write(self, verb: str, key: str, act: Callable[[], _T]) -> _T:
        fault = self._next(verb, key)
        if fault is Fault.REFUSED:
            raise OutcomeUnknownError(f"{verb} {key!r} was struck by a fault on purpose")
        if fault is Fault.RETRIED:
            act()
        elif fault is Fault.LOST_ANSWER:
            with suppress(KeyExistsError, KeyChangedError):
                act()
            raise OutcomeUnknownError(f"the answer to {verb} {key!r} was lost on purpose")
        return act()


@dataclass(slots=True)
class CarelessStorage(FaultyStorage):
    """A store that takes conditional writes and ignores the condition, as some do."""

    ignores_create_only: bool = False
    ignores_replace: bool = True

    def create(self, key: str, body: bytes) -> Version:
        if self.ignores_create_only:
            self.inner.delete(key)
        return FaultyStorage.create(self, key, body)

    def replace(self, key: str, body: bytes, *, expected: Version) -> Version:
        if not self.ignores_replace:
            return FaultyStorage.replace(self, key, body, expected=expected)
        self.inner.delete(key)
        return FaultyStorage.create(self, key, body)
