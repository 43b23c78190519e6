"""A memory store whose requests wait until somebody says that they are carried out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from typing import Protocol, TypeVar

from relance.errors import RelanceError
from relance.storage.at_once import replace_each
from relance.storage.bulk_delete import delete_by_listing
from relance.storage.memory import MemoryStorage
from relance.storage.protocol import Deleted, Level, ObjectInfo, Replacement, Stored, Version

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Pending:
    """A request that waits."""

    verb: str
    key: str
    writes: bool


class Waiting(Protocol):
    """Who lets requests wait."""

    def request(self, pending: Pending, act: Callable[[], _T]) -> _T:
        """Wait, then carry the request out, or whatever else becomes of it."""


class SteppedStorage:
    """A memory store whose requests wait for the explorer."""

    def __init__(self, inner: MemoryStorage, waiting: Waiting, *, takes_away: bool) -> None:
        self._inner = inner
        self._waiting = waiting
        self._takes_away = takes_away

    @property
    def name(self) -> str:
        return self._inner.name

    @property
    def cheap_lookups(self) -> bool:
        return self._inner.cheap_lookups

    @property
    def requests_at_once(self) -> int:
        return self._inner.requests_at_once

    def read(self, key: str) -> Stored:
        return self._waiting.request(Pending("read", key, writes=False), lambda: self._inner.read(key))

    def create(self, key: str, body: bytes) -> Version:
        return self._waiting.request(
            Pending("create", key, writes=True), lambda: self._inner.create(key, body)
        )

    def replace(self, key: str, body: bytes, *, expected: Version) -> Version:
        return self._waiting.request(
            Pending("replace", key, writes=True),
            lambda: self._inner.replace(key, body, expected=expected),
        )

    def replace_many(self, changes: Sequence[Replacement]) -> list[Version | RelanceError]:
        return replace_each(self, changes)

    def reserve(self, count: int) -> AbstractContextManager[None]:
        return self._inner.reserve(count)

    def delete(self, key: str) -> None:
        self._waiting.request(Pending("delete", key, writes=True), lambda: self._inner.delete(key))

    def delete_many(self, keys: Iterable[str]) -> None:
        for key in keys:  # a bulk delete is not atomic
            self.delete(key)

    def delete_below(
        self, prefix: str, *, before_batch: Callable[[], None], largest_batch: int
    ) -> Iterator[Deleted]:
        return delete_by_listing(self, prefix, before_batch, largest_batch)

    def discard(self, prefixes: Sequence[str], *, sure: Callable[[str], bool]) -> Iterator[Sequence[str]]:
        if not self._takes_away:
            return

        def act(prefix: str) -> bool:
            # To be put back is as if it had stayed.
            keys = [info.key for info in self._inner.list_recursive(prefix)]
            if keys and sure(prefix):
                self._inner.delete_many(keys)
                return True
            return False

        for prefix in prefixes:
            # A disk does it however late it comes, and there is no answer that could be lost.
            if self._waiting.request(Pending("discard", prefix, writes=False), partial(act, prefix)):
                yield [prefix]

    def is_occupied(self, prefix: str) -> bool:
        return self._inner.is_occupied(prefix)

    def prune(self, *prefixes: str) -> None:
        self._inner.prune(*prefixes)

    def head(self, key: str) -> ObjectInfo:
        return self._waiting.request(Pending("head", key, writes=False), lambda: self._inner.head(key))

    def list_level(self, prefix: str) -> Level:
        return self._waiting.request(
            Pending("list_level", prefix, writes=False), lambda: self._inner.list_level(prefix)
        )

    def list_recursive(self, prefix: str) -> Iterator[ObjectInfo]:
        return iter(
            self._waiting.request(
                Pending("list", prefix, writes=False), lambda: list(self._inner.list_recursive(prefix))
            )
        )

    def which_exist(self, paths: Sequence[str]) -> frozenset[str]:
        return self._waiting.request(
            Pending("exist", ",".join(paths), writes=False), lambda: self._inner.which_exist(paths)
        )
