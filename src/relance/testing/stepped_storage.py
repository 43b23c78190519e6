"""A memory store whose requests wait until somebody says that they are carried out."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from enum import StrEnum
from functools import partial
from itertools import count
from typing import Protocol, TypeVar

from relance.errors import InternalError, RelanceError
from relance.locations import OWN_DIRECTORY
from relance.storage.at_once import replace_each
from relance.storage.bulk_delete import delete_by_listing
from relance.storage.memory import MemoryStorage
from relance.storage.protocol import (
    BODY_MAX_BYTES,
    CLOCK_KEY,
    Deleted,
    InTrash,
    Level,
    ObjectInfo,
    Page,
    Replacement,
    Stored,
    TrashClaim,
    TrashReport,
    Version,
)

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

    def caller(self) -> int:
        """Return who is making requests, as a process that owns what it puts into the trash."""

    def is_dead(self, caller: int) -> bool:
        """Return whether a caller will never make another request."""


class NoWaiting:
    """Carries out every request at once, and treats all other callers as dead: for a store at rest."""

    def request(self, pending: Pending, act: Callable[[], _T]) -> _T:
        return act()

    def caller(self) -> int:
        return -1

    def is_dead(self, caller: int) -> bool:
        return True


_TRASH = f"{OWN_DIRECTORY}/trash"


class _End(StrEnum):
    """What became of a directory in the trash."""

    REMOVED = "removed"
    RESTORED = "restored"
    KEPT = "kept"
    GONE = "gone"
    """Another client has recovered it meanwhile."""


@dataclass(frozen=True, slots=True)
class _Entry:
    """A directory in the trash of a memory store."""

    place: str
    prefix: str
    record: str
    upto: str | None
    owner: int | None
    """None when its removal has ended and kept it."""

    @property
    def taken(self) -> str:
        return f"{self.place}/taken"

    def to_body(self) -> bytes:
        return json.dumps(asdict(self)).encode()


class _Trash:
    """What the trash of a disk does, one rename at a time. Its content is part of the store."""

    def __init__(self, inner: MemoryStorage) -> None:
        self._inner = inner

    def take(self, prefix: str, claim: TrashClaim, owner: int) -> _Entry | None:
        """Move a directory into the trash, together with its record."""
        used = {info.key for info in self._inner.list_recursive(_TRASH)}
        free = next(number for number in count() if f"{_TRASH}/{number}/record" not in used)
        upto = None if claim.upto is None else claim.upto.isoformat()
        entry = _Entry(f"{_TRASH}/{free}", prefix, claim.record, upto, owner)
        if not self._inner.move(prefix, entry.taken):
            return None
        self._inner.create(f"{entry.place}/record", entry.to_body())
        return entry

    def remove(self, entry: _Entry, still_owned: Callable[[str], bool]) -> bool:
        """Remove a directory if it is still owned, or restore it.

        Raises:
            InternalError: its place is taken. It is kept.
        """
        try:
            allowed = still_owned(entry.prefix)
        except RelanceError:
            self._end(entry, allowed=False)
            raise
        end = self._end(entry, allowed=allowed)
        if end is _End.KEPT:
            raise InternalError(f"{entry.prefix} could not be restored from {entry.place}")
        return end is _End.REMOVED

    def abandoned(self, is_dead: Callable[[int], bool]) -> tuple[_Entry, ...]:
        """Return what dead callers have left."""
        records = [info.key for info in self._inner.list_recursive(_TRASH) if info.key.count("/") == 3]
        entries = [_Entry(**json.loads(self._inner.read(key).body)) for key in records]
        return tuple(entry for entry in entries if entry.owner is None or is_dead(entry.owner))

    def recover(self, entry: _Entry, *, allowed: bool) -> _End:
        """Remove or restore a directory, unless another client did."""
        return self._end(entry, allowed=allowed) if entry in self.abandoned(lambda _: True) else _End.GONE

    def _end(self, entry: _Entry, *, allowed: bool) -> _End:
        if allowed and not self._holds_younger(entry):
            self._inner.delete_many([info.key for info in self._inner.list_recursive(entry.place)])
            return _End.REMOVED
        self._inner.delete(f"{entry.place}/record")
        if self._inner.move(entry.taken, entry.prefix):
            return _End.RESTORED
        self._inner.create(f"{entry.place}/record", replace(entry, owner=None).to_body())
        return _End.KEPT

    def _holds_younger(self, entry: _Entry) -> bool:
        if entry.upto is None:
            return False
        limit = datetime.fromisoformat(entry.upto)
        return any(
            info.modified is None or info.modified > limit for info in self._inner.list_recursive(entry.taken)
        )


class SteppedStorage:
    """A memory store whose requests wait for the explorer."""

    def __init__(self, inner: MemoryStorage, waiting: Waiting, *, takes_away: bool) -> None:
        self._inner = inner
        self._waiting = waiting
        self._takes_away = takes_away
        self._trash = _Trash(inner)

    @property
    def name(self) -> str:
        return self._inner.name

    @property
    def cheap_lookups(self) -> bool:
        return self._inner.cheap_lookups

    @property
    def requests_at_once(self) -> int:
        return self._inner.requests_at_once

    @property
    def lists_in_order(self) -> bool:
        return self._inner.lists_in_order

    def now(self) -> datetime:
        return self._waiting.request(Pending("now", CLOCK_KEY, writes=False), self._inner.now)

    def read(self, key: str, *, at_most: int | None = BODY_MAX_BYTES) -> Stored:
        return self._waiting.request(
            Pending("read", key, writes=False), lambda: self._inner.read(key, at_most=at_most)
        )

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

    def copy(self, source: str, target: str, *, share: bool) -> None:
        self._waiting.request(
            Pending("copy", target, writes=True), lambda: self._inner.copy(source, target, share=share)
        )

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

    def remove_directories(
        self, claims: Mapping[str, TrashClaim], *, still_owned: Callable[[str], bool]
    ) -> Iterator[Sequence[str]]:
        if not self._takes_away:
            return
        failure: RelanceError | None = None
        for prefix, claim in claims.items():
            # A disk does it however late it comes, and there is no answer that could be lost.
            entry = self._waiting.request(
                Pending("take_away", prefix, writes=False),
                partial(self._trash.take, prefix, claim, self._waiting.caller()),
            )
            if entry is None:
                continue
            try:
                removed = self._waiting.request(
                    Pending("remove_taken", prefix, writes=False),
                    partial(self._trash.remove, entry, still_owned),
                )
            except RelanceError as error:
                failure = error
                break
            if removed:
                yield [prefix]
        if failure is not None:
            raise failure

    def recover_trash(self, may_delete: Callable[[str, str], bool]) -> TrashReport:
        if not self._takes_away:
            return TrashReport()
        ends: dict[_End, list[_Entry]] = {end: [] for end in _End}
        listing = Pending("list_trash", _TRASH, writes=False)
        for entry in self._waiting.request(listing, partial(self._trash.abandoned, self._waiting.is_dead)):
            act = partial(self._trash.recover, entry, allowed=may_delete(entry.prefix, entry.record))
            end = self._waiting.request(Pending("recover_trash", entry.prefix, writes=False), act)
            ends[end].append(entry)
        return TrashReport(
            tuple(entry.prefix for entry in ends[_End.REMOVED]),
            tuple(entry.prefix for entry in ends[_End.RESTORED]),
            tuple(InTrash(entry.prefix, f"{self.name}/{entry.taken}") for entry in ends[_End.KEPT]),
        )

    def keep_ballast(self) -> None:
        self._inner.keep_ballast()

    def free_ballast(self, count: int) -> bool:
        return self._inner.free_ballast(count)

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

    def list_after(self, key: str) -> Page:
        return self._waiting.request(
            Pending("list_after", key, writes=False), lambda: self._inner.list_after(key)
        )

    def which_exist(self, paths: Sequence[str]) -> frozenset[str]:
        return self._waiting.request(
            Pending("exist", ",".join(paths), writes=False), lambda: self._inner.which_exist(paths)
        )
