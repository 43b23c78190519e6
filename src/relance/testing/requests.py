"""Storage requests as values: what a client asks is told to somebody else, who answers.

So a request can wait, be carried out late, twice or never, and what a client does next depends on nothing
but the answers it was given.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from relance.errors import RelanceError
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

WRITES = frozenset({"create", "replace", "copy", "delete_many"})


@dataclass(frozen=True, slots=True)
class Request:
    """One request to a store."""

    verb: str
    key: str
    """What it is about, or the first of several keys."""
    arguments: tuple[Any, ...] = ()

    @property
    def writes(self) -> bool:
        return self.verb in WRITES

    @property
    def keys(self) -> tuple[str, ...]:
        """The keys that it writes or reads."""
        return self.arguments[0] if self.verb in {"delete_many", "which_exist"} else (self.key,)

    def __str__(self) -> str:
        more = " ".join(_short(each) for each in self.arguments)
        return f"{self.verb} {self.key} {more}".rstrip()


def _short(value: object) -> str:
    if isinstance(value, bytes):
        text = value.decode(errors="replace").strip()
        return text if len(text) < 400 else f"({len(text)} bytes)"
    return str(value) if not isinstance(value, tuple) or len(value) > 1 else ""


@dataclass(frozen=True, slots=True)
class Failure:
    """An answer that is an error."""

    kind: type[RelanceError]
    detail: str

    def error(self) -> RelanceError:
        return self.kind(self.detail)


def carry_out(storage: ObjectStorage, request: Request) -> object:
    """Do what a request asks for, and return the answer, which can be hashed."""
    try:
        return _answer(storage, request)
    except RelanceError as error:
        return Failure(type(error), error.detail)


def _answer(storage: ObjectStorage, request: Request) -> object:
    key, arguments = request.key, request.arguments
    match request.verb:
        case "now":
            return storage.now()
        case "read":
            return storage.read(key, at_most=arguments[0])
        case "head":
            return storage.head(key)
        case "create":
            return storage.create(key, arguments[0])
        case "replace":
            return storage.replace(key, arguments[0], expected=arguments[1])
        case "copy":
            storage.copy(arguments[0], key, share=arguments[1])
            return None
        case "delete_many":
            storage.delete_many(arguments[0])
            return None
        case "list_level":
            return storage.list_level(key)
        case "list_recursive":
            return tuple(storage.list_recursive(key))
        case "list_after":
            return storage.list_after(key)
        case "which_exist":
            return storage.which_exist(arguments[0])
    raise AssertionError(request)


class RequestStorage:
    """A store of which each request is put to `ask`, which returns the answer or raises."""

    def __init__(self, ask: Callable[[Request], Any], name: str = "explorer") -> None:
        self._ask = ask
        self._name = name

    @property
    def name(self) -> str:
        return self._name

    @property
    def cheap_lookups(self) -> bool:
        return False

    @property
    def requests_at_once(self) -> int:
        return 1

    @property
    def lists_in_order(self) -> bool:
        return True

    def now(self) -> datetime:
        moment: datetime = self._ask(Request("now", CLOCK_KEY))
        return moment

    def read(self, key: str, *, at_most: int | None = BODY_MAX_BYTES) -> Stored:
        stored: Stored = self._ask(Request("read", key, (at_most,)))
        return stored

    def create(self, key: str, body: bytes) -> Version:
        version: Version = self._ask(Request("create", key, (body,)))
        return version

    def replace(self, key: str, body: bytes, *, expected: Version) -> Version:
        version: Version = self._ask(Request("replace", key, (body, expected)))
        return version

    def replace_many(self, changes: Sequence[Replacement]) -> list[Version | RelanceError]:
        return replace_each(self, changes)

    def copy(self, source: str, target: str, *, share: bool) -> None:
        self._ask(Request("copy", target, (source, share)))

    def reserve(self, count: int) -> AbstractContextManager[None]:
        return nullcontext()

    def delete(self, key: str) -> None:
        self.delete_many([key])

    def delete_many(self, keys: Iterable[str]) -> None:
        wanted = tuple(keys)
        if wanted:
            self._ask(Request("delete_many", wanted[0], (wanted,)))

    def delete_below(
        self, prefix: str, *, before_batch: Callable[[], None], largest_batch: int
    ) -> Iterator[Deleted]:
        return delete_by_listing(self, prefix, before_batch, largest_batch)

    def remove_directories(
        self, claims: Mapping[str, TrashClaim], *, still_owned: Callable[[str], bool]
    ) -> Iterator[Sequence[str]]:
        return iter(())

    def recover_trash(self, may_delete: Callable[[str, str], bool]) -> TrashReport:
        return TrashReport()

    def keep_ballast(self) -> None:
        """Only a disk has some."""

    def free_ballast(self, count: int) -> bool:
        return False

    def is_occupied(self, prefix: str) -> bool:
        return False

    def prune(self, *prefixes: str) -> None:
        """There are no folders."""

    def head(self, key: str) -> ObjectInfo:
        info: ObjectInfo = self._ask(Request("head", key))
        return info

    def list_level(self, prefix: str) -> Level:
        level: Level = self._ask(Request("list_level", prefix))
        return level

    def list_recursive(self, prefix: str) -> Iterator[ObjectInfo]:
        yield from self._ask(Request("list_recursive", prefix))

    def list_after(self, key: str) -> Page:
        page: Page = self._ask(Request("list_after", key))
        return page

    def which_exist(self, paths: Sequence[str]) -> frozenset[str]:
        wanted = tuple(paths)
        if not wanted:
            return frozenset()
        found: frozenset[str] = self._ask(Request("which_exist", wanted[0], (wanted,)))
        return found
