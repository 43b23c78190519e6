"""A client that dies: after a given number of writes nothing it does has any effect.

A write is a request that changes the store, a commit of the manifest, or one of Lance to a table.
To die after a write and to die before the next one is the same for everybody else. Answers that a
living client does not get are here too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, TypeVar
from unittest import mock

import lance
import pyarrow as pa
from tests.support.internals import context_of, replace_context

from relance import DirectoryNamespace
from relance.catalog.manifest.store import Change, Manifest, Snapshot
from relance.config import StorageOptions
from relance.errors import RelanceError
from relance.lance_io import LanceTables, PylanceTables, StagedData, TableHead, WrittenData
from relance.storage.at_once import replace_each
from relance.storage.bulk_delete import delete_by_listing
from relance.storage.probe import capabilities
from relance.storage.protocol import (
    BODY_MAX_BYTES,
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


class Death(BaseException):
    """The process is gone; no handler of errors gets to see this."""


@dataclass(slots=True)
class Life:
    """How many writes are left to a client."""

    left: int
    done: list[str] = field(default_factory=list)
    over: bool = False

    def write(self, what: str, act: Callable[[], _T]) -> _T:
        """Do a write, or die."""
        self.over = self.over or self.left <= 0
        self.go_on()
        result = act()
        self.left -= 1
        self.done.append(what)
        return result

    def go_on(self) -> None:
        """Notice that one is dead: `finally` does not run in a process that is gone."""
        if self.over:
            raise Death


@dataclass(slots=True)
class Interrupted(Life):
    """A client that stands still before one of its writes, while somebody else acts."""

    meanwhile: Callable[[], None] = lambda: None
    happened: bool = False

    def write(self, what: str, act: Callable[[], _T]) -> _T:
        if self.left == len(self.done) and not self.happened:
            self.happened = True
            self.meanwhile()
        result = act()
        self.done.append(what)
        return result

    def go_on(self) -> None:
        """Nobody dies here."""


@dataclass(slots=True)
class Failing(Life):
    """A client one of whose writes fails, before the store has carried it out or after, or all from it on."""

    failure: type[BaseException] = KeyboardInterrupt
    after: bool = False
    once: bool = True
    failed: bool = False

    def write(self, what: str, act: Callable[[], _T]) -> _T:
        strikes = self.left == len(self.done) and not (self.failed and self.once)
        self.failed = self.failed or strikes
        if strikes and not self.after:
            raise self.failure(f"at {what}")
        result = act()
        self.done.append(what)
        if strikes:
            raise self.failure(f"after {what}")
        return result

    def go_on(self) -> None:
        """Nobody dies here."""


@dataclass(slots=True)
class MortalStorage:
    """A storage whose client may die before any write."""

    inner: ObjectStorage
    life: Life

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
        self.life.go_on()
        return self.inner.now()

    def read(self, key: str, *, at_most: int | None = BODY_MAX_BYTES) -> Stored:
        self.life.go_on()
        return self.inner.read(key, at_most=at_most)

    def create(self, key: str, body: bytes) -> Version:
        return self.life.write(f"create {key}", lambda: self.inner.create(key, body))

    def replace(self, key: str, body: bytes, *, expected: Version) -> Version:
        return self.life.write(f"replace {key}", lambda: self.inner.replace(key, body, expected=expected))

    def replace_many(self, changes: Sequence[Replacement]) -> list[Version | RelanceError]:
        return replace_each(self, changes)

    def copy(self, source: str, target: str, *, share: bool) -> None:
        self.life.write(f"copy {target}", lambda: self.inner.copy(source, target, share=share))

    def reserve(self, count: int) -> AbstractContextManager[None]:
        return self.inner.reserve(count)

    def delete(self, key: str) -> None:
        self.life.write(f"delete {key}", lambda: self.inner.delete(key))

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
        self.life.go_on()
        return self.inner.remove_directories(claims, still_owned=still_owned)

    def recover_trash(self, may_delete: Callable[[str, str], bool]) -> TrashReport:
        self.life.go_on()
        return self.inner.recover_trash(may_delete)

    def keep_ballast(self) -> None:
        self.inner.keep_ballast()

    def free_ballast(self, count: int) -> bool:
        return self.inner.free_ballast(count)

    def is_occupied(self, prefix: str) -> bool:
        return self.inner.is_occupied(prefix)

    def prune(self, *prefixes: str) -> None:
        self.life.go_on()
        self.inner.prune(*prefixes)

    def head(self, key: str) -> ObjectInfo:
        self.life.go_on()
        return self.inner.head(key)

    def list_level(self, prefix: str) -> Level:
        self.life.go_on()
        return self.inner.list_level(prefix)

    def list_recursive(self, prefix: str) -> Iterator[ObjectInfo]:
        self.life.go_on()
        return self.inner.list_recursive(prefix)

    def list_after(self, key: str) -> Page:
        self.life.go_on()
        return self.inner.list_after(key)

    def which_exist(self, paths: Sequence[str]) -> frozenset[str]:
        self.life.go_on()
        return self.inner.which_exist(paths)


@dataclass(slots=True)
class MortalManifest:
    """A manifest whose client may die before any commit."""

    inner: Manifest
    life: Life

    def latest(self) -> Snapshot:
        self.life.go_on()
        return self.inner.latest()

    def recent(self) -> Snapshot:
        self.life.go_on()
        return self.inner.recent()

    def remove_duplicates(self, object_id: str) -> None:
        self.life.write("remove duplicates", lambda: self.inner.remove_duplicates(object_id))

    def commit(self, read: Snapshot, change: Change) -> None:
        self.life.write("commit __manifest", lambda: self.inner.commit(read, change))

    def back_off(self, attempt: int) -> None:
        self.inner.back_off(attempt)

    def set_metadata(self, values: Mapping[str, str]) -> None:
        self.life.write("set metadata", lambda: self.inner.set_metadata(values))


@dataclass(slots=True)
class MortalTables:
    """Lance, used by a client that may die before it writes data or commits it."""

    inner: LanceTables
    life: Life

    def head(self, directory: str) -> TableHead | None:
        self.life.go_on()
        return self.inner.head(directory)

    def stage(
        self,
        directory: str,
        data: pa.Table | WrittenData,
        *,
        token: str,
        version: int,
        options: StorageOptions,
    ) -> StagedData:
        return self.life.write(
            f"stage {directory}",
            lambda: self.inner.stage(directory, data, token=token, version=version, options=options),
        )

    def commit(
        self, directory: str, staged: StagedData, *, version: int, timeout: timedelta, options: StorageOptions
    ) -> None:
        self.life.write(
            f"commit {directory}",
            lambda: self.inner.commit(directory, staged, version=version, timeout=timeout, options=options),
        )

    def set_properties(
        self,
        directory: str,
        properties: Mapping[str, str],
        *,
        token: str,
        timeout: timedelta,
        options: StorageOptions,
    ) -> None:
        self.life.write(
            f"set properties of {directory}",
            lambda: self.inner.set_properties(
                directory, properties, token=token, timeout=timeout, options=options
            ),
        )

    def restore(self, directory: str, version: int, *, token: str, timeout: timedelta) -> None:
        self.life.write(
            f"restore {directory}",
            lambda: self.inner.restore(directory, version, token=token, timeout=timeout),
        )

    def committed_version(self, directory: str, tokens: Sequence[str], *, after: int) -> int | None:
        self.life.go_on()
        return self.inner.committed_version(directory, tokens, after=after)

    def has_foreign_version(self, directory: str) -> bool:
        self.life.go_on()
        return self.inner.has_foreign_version(directory)

    def discard(self, staged: StagedData) -> None:
        self.inner.discard(staged)


class Answer(StrEnum):
    """What becomes of the answer to a commit."""

    LOST = "lost"
    """It is done, and the connection breaks."""
    ODD = "odd"
    """It is done, and the client library raises something that nobody has seen before."""
    CONFLICT = "conflict with itself"
    """It is done, and the client library tries again and finds the version taken."""
    REFUSED = "refused"
    """It is not done, and the connection breaks."""


_MESSAGES = {
    Answer.LOST: "LanceError(IO): Generic S3 error: error sending request for url (http://store/x)",
    Answer.ODD: "LanceError(IO): the moon is full",
    Answer.CONFLICT: "Commit conflict for version 9: There was a concurrent commit",
    Answer.REFUSED: "LanceError(IO): Generic S3 error: error sending request for url (http://store/x)",
}


@contextmanager
def commit_answered(number: int, answer: Answer) -> Iterator[list[str]]:
    """Give this answer to the commit of this number that Lance makes; yields where commits were made."""
    commit, made = lance.LanceDataset.commit, list[str]()

    def answered(target: Any, *arguments: Any, **options: Any) -> Any:
        made.append(target if isinstance(target, str) else str(target.uri))
        if len(made) != number:
            return commit(target, *arguments, **options)
        if answer is not Answer.REFUSED:
            commit(target, *arguments, **options)
        raise OSError(_MESSAGES[answer])

    with mock.patch.object(lance.LanceDataset, "commit", staticmethod(answered)):
        yield made


def make_mortal(catalog: DirectoryNamespace, writes: int) -> Life:
    """Let a catalog do this many writes and then die."""
    life = Life(writes)
    _watch(catalog, life)
    return life


def interrupt(catalog: DirectoryNamespace, writes: int, meanwhile: Callable[[], None]) -> Interrupted:
    """Let somebody else act after this many writes of a catalog."""
    life = Interrupted(writes, meanwhile=meanwhile)
    _watch(catalog, life)
    return life


def make_failing(
    catalog: DirectoryNamespace,
    writes: int,
    failure: type[BaseException],
    *,
    after: bool = False,
    once: bool = True,
) -> Failing:
    """Let the write that follows so many writes of a catalog fail, or that one and all after it."""
    life = Failing(writes, failure=failure, after=after, once=once)
    _watch(catalog, life)
    return life


def _watch(catalog: DirectoryNamespace, life: Life) -> None:
    context = context_of(catalog)
    capabilities(context.storage)  # found out by writing, once for each process
    storage = MortalStorage(context.storage, life)
    tables = PylanceTables(storage, context.connection.lance_uri, context.connection.lance_options)
    changed = replace(
        context,
        connection=replace(context.connection, storage=storage),
        manifest=None if context.manifest is None else MortalManifest(context.manifest, life),
        tables=MortalTables(tables, life),
    )
    replace_context(catalog, changed)
