"""What Relance asks of Lance: opening tables, staging data, exact commits; Lance's failures as our errors.

The lifecycle sees Lance as the protocol LanceTables, because it is explored over a model of it
(testing.model_tables), which is itself checked against pylance.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, timedelta
from enum import StrEnum
from typing import Any, Protocol

import lance
import pyarrow as pa
from lance.fragment import FragmentMetadata, write_fragments

from relance.config import StorageOptions
from relance.errors import (
    ConcurrentModificationError,
    InternalError,
    OutcomeUnknownError,
    RelanceError,
    ServiceUnavailableError,
    TableNotFoundError,
    TableVersionNotFoundError,
)
from relance.forks import LANCE, note_use
from relance.identifiers import TableId
from relance.locations import VERSIONS_DIRECTORY
from relance.storage.disk_files import share_table
from relance.storage.failures import error_for_text, first_line, is_damage
from relance.storage.protocol import ObjectStorage

CREATE_PROPERTY = "relance.create"
"""The transaction property by which versions that Relance committed for its lifecycle are known."""

_CONFLICT = re.compile(r"commit conflict|concurrent transaction", re.IGNORECASE)
_TAKEN = re.compile(
    r"already exists|commit conflict|concurrent transaction|DatasetAlreadyExists", re.IGNORECASE
)

_REMOVED = re.compile(r"no such file or directory|failed to (persist|shutdown)", re.IGNORECASE)
"""What a write into a local directory ends with that is being emptied."""

_FEW = 20
"""Up to so many files are looked for one by one; more are compared with a listing."""


@contextmanager
def lance_errors(what: str, options: Mapping[str, str]) -> Iterator[None]:
    """Turn what pylance raises, which is any of three builtin classes, into our errors."""
    note_use(LANCE)
    try:
        yield
    except RelanceError as error:
        StorageOptions(options).hide_in(error)  # it may quote what Lance said
        raise
    except (OSError, ValueError, RuntimeError) as cause:
        StorageOptions(options).hide_in(cause)
        text = str(cause)
        if _CONFLICT.search(text):
            raise ConcurrentModificationError(f"{what}: {first_line(text)}") from cause
        known = error_for_text(text, where=what)
        raise known or InternalError(f"{what}: {first_line(text)}") from cause
    except BaseException as cause:
        if type(cause).__name__ != "PanicException":
            raise
        # Of a damaged file or an odd request, which must not end a server, or the work on other tables.
        StorageOptions(options).hide_in(cause)
        raise InternalError(f"{what}: Lance gave up: {first_line(str(cause))}") from cause


def open_at(
    location: str, options: Mapping[str, str], name: str, *, session: lance.Session | None = None
) -> lance.LanceDataset:
    """Return the dataset at a location; a session keeps what was read of it for the next time.

    Raises:
        TableNotFoundError: there is no version at all.
    """
    where = f"table id '{name}'"
    with lance_errors(where, options):
        try:
            return lance.dataset(location, storage_options=dict(options) or None, session=session)
        except ValueError as cause:
            if "was not found" in str(cause):
                raise TableNotFoundError(f"{where} has no versions yet") from cause
            raise


def named_files(location: str, options: Mapping[str, str], name: str) -> tuple[int, frozenset[str]]:
    """Return the latest version of a table and the data and deletion files that it names, relative to it.

    Raises:
        TableNotFoundError: there is no version at all.
    """
    dataset = open_at(location, options, name)
    names: set[str] = set()
    with lance_errors(f"table at '{name}'", options):
        for fragment in dataset.get_fragments():
            metadata = fragment.metadata
            names |= {f"data/{file.path}" for file in metadata.files}
            if metadata.deletion_file is not None:
                names.add(str(metadata.deletion_file.path(fragment.fragment_id)))
    return int(dataset.version), frozenset(names)


def transaction_at(dataset: lance.LanceDataset, version: int) -> lance.Transaction | None:
    """Return what made a version; None when Lance does not tell.

    pylance stumbles over the compaction of an indexed table; that comes without an id and without details.
    """
    try:
        return dataset.read_transaction(version)
    except TypeError as cause:
        if "RewrittenIndex" not in str(cause):
            raise
        return lance.Transaction(version - 1, lance.LanceOperation.Rewrite([], []), uuid="")


# What a create writes.


class CreateMode(StrEnum):
    """What to do when the table exists."""

    CREATE = "create"
    EXIST_OK = "exist_ok"
    OVERWRITE = "overwrite"


@dataclass(frozen=True, slots=True)
class WrittenData:
    """Data files that tasks have written into the table's directory, and no version mentions yet.

    Whoever had them written removes them when no version comes of it; a create does not.
    """

    directory: str
    schema: pa.Schema
    fragments: tuple[str, ...]
    """As JSON of Lance's fragment metadata."""
    files: frozenset[str]
    """Their names below the directory's data folder."""
    is_private: bool = False
    """The directory was made up for these files: nobody else knows it."""
    marker: str | None = None
    """The nonce of the arbiter that hid the table when the job began; only over that one is it revived."""
    marks: Mapping[str, str] = field(default_factory=dict)
    """Properties of the transaction, by which its version is found again."""
    stable_row_ids: bool | None = None


@dataclass(frozen=True, slots=True)
class NewTable:
    """What a create wants to write."""

    table_id: TableId
    data: pa.Table | WrittenData
    options: StorageOptions
    properties: dict[str, str] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return self.table_id.name


def fragments_of(data: WrittenData) -> list[FragmentMetadata]:
    """Return Lance's fragments of the data."""
    return [FragmentMetadata.from_json(text) for text in data.fragments]


def files_of(fragments: Iterable[str]) -> frozenset[str]:
    """Return the names of the files of fragments that are given as JSON."""
    return frozenset(file["path"] for fragment in fragments for file in json.loads(fragment)["files"])


def require_written(storage: ObjectStorage, directory: str, data: WrittenData) -> None:
    """Check that the files are where the table is: a purge may have taken them along.

    Asked after the table's state was read, and before a commit that depends on that state, this is as
    good as writing the files at this moment.

    Raises:
        ConcurrentModificationError: the table is in another directory, or files are missing.
    """
    if directory != data.directory:
        raise ConcurrentModificationError(
            f"the table moved from '{data.directory}' to '{directory}' while it was being "
            "written; write the data again"
        )
    missing = data.files - _present(storage, directory, data.files)
    if missing:
        raise ConcurrentModificationError(
            f"{len(missing)} of {len(data.files)} data files below '{directory}' are missing, "
            "possibly because of a purge; write the data again"
        )


def _present(storage: ObjectStorage, directory: str, files: frozenset[str]) -> frozenset[str]:
    folder = f"{directory}/data/"
    if len(files) <= _FEW:
        paths = storage.which_exist([folder + file for file in sorted(files)])
        return frozenset(path.removeprefix(folder) for path in paths)
    return frozenset(info.key.removeprefix(folder) for info in storage.list_recursive(folder.rstrip("/")))


# Lance as the lifecycle sees it.


class VersionTakenError(ConcurrentModificationError):
    """Another writer committed this version; nothing was written."""


@dataclass(frozen=True, slots=True)
class TableHead:
    """The latest version of a table."""

    version: int
    config: Mapping[str, str]
    properties: Mapping[str, str] = field(default_factory=dict)
    """The metadata of the Lance table, which holds the properties of a table of a catalog."""


@dataclass(frozen=True, slots=True)
class StagedData:
    """Data files that no version mentions yet, and the commit that would."""

    token: str
    files: tuple[str, ...]
    """Keys of the data files, with names of their own."""
    commit: Any


@dataclass(frozen=True, slots=True)
class Commit:
    """What Lance is to commit."""

    operation: Any
    properties: Mapping[str, str]
    stable_row_ids: bool | None = None
    """Only the first version of a table decides about it."""
    base: lance.LanceDataset | None = None
    """The version that was read for staging: the commit after it need not look for it again."""


class LanceTables(Protocol):
    """Lance, as far as the lifecycle needs it."""

    def head(self, directory: str) -> TableHead | None:
        """Return the latest version, or None when the table has none.

        Raises:
            ConcurrentModificationError: the version was removed while it was read.
        """

    def stage(
        self,
        directory: str,
        data: pa.Table | WrittenData,
        *,
        token: str,
        version: int,
        options: StorageOptions,
    ) -> StagedData:
        """Write data files that are to become a version after `version`, or the first one if that is 0.

        Of data that is written already it makes sure that it is there.

        Raises:
            VersionTakenError: another writer committed the first version.
        """

    def commit(
        self, directory: str, staged: StagedData, *, version: int, timeout: timedelta, options: StorageOptions
    ) -> None:
        """Commit staged data as exactly this version.

        Raises:
            VersionTakenError: another writer has it.
            OutcomeUnknownError: no response; it may have been committed.
            RelanceError: it was not committed.
        """

    def set_properties(
        self,
        directory: str,
        properties: Mapping[str, str],
        *,
        token: str,
        timeout: timedelta,
        options: StorageOptions,
    ) -> None:
        """Make these the metadata of the Lance table, instead of what it has, in a version of their own.

        Raises:
            OutcomeUnknownError: no response; it may have been committed.
            RelanceError: it was not committed.
        """

    def restore(self, directory: str, version: int, *, token: str, timeout: timedelta) -> None:
        """Commit the content of `version`, which must be the latest, again as the version after it.

        Raises:
            As commit.
        """

    def committed_version(self, directory: str, tokens: Sequence[str], *, after: int) -> int | None:
        """Return the version after `after` that was committed under one of the tokens, if there is one."""

    def has_foreign_version(self, directory: str) -> bool:
        """Tell whether a version is there that Relance's lifecycle did not write."""

    def discard(self, staged: StagedData) -> None:
        """Remove staged data files that no version mentions."""


class PylanceTables:
    """The real thing."""

    def __init__(
        self, storage: ObjectStorage, location: Callable[[str], str], options: StorageOptions
    ) -> None:
        self._storage = storage
        self._location = location
        self._options = options

    def head(self, directory: str) -> TableHead | None:
        dataset = self._open(directory)
        return (
            None
            if dataset is None
            else TableHead(int(dataset.version), dict(dataset.config()), dict(dataset.metadata))
        )

    def _open(
        self,
        directory: str,
        options: StorageOptions | None = None,
        session: lance.Session | None = None,
    ) -> lance.LanceDataset | None:
        if self._storage.is_occupied(directory):
            return None  # a file or a link: Lance would stumble over the one and follow the other
        location, options = self._location(directory), self._options if options is None else options
        try:
            return open_at(location, options, directory, session=session)
        except TableNotFoundError:
            return None
        except InternalError as failure:
            before = self._versions(directory)
            try:
                return open_at(location, options, directory, session=session)
            except TableNotFoundError:
                return None
            except InternalError:
                if self._versions(directory) == before:
                    raise failure from None  # nobody changes the table: it cannot be read
                # Listed, and gone before it was read: a purge is at work.
                raise ConcurrentModificationError(
                    f"table at '{directory}' changed while it was being opened"
                ) from failure

    def _versions(self, directory: str) -> tuple[tuple[str, ...], frozenset[str]]:
        level = self._storage.list_level(f"{directory}/{VERSIONS_DIRECTORY}")
        return tuple(sorted(level.directories)), frozenset(file.key for file in level.files)

    def stage(
        self,
        directory: str,
        data: pa.Table | WrittenData,
        *,
        token: str,
        version: int,
        options: StorageOptions,
    ) -> StagedData:
        properties = {CREATE_PROPERTY: token}
        if isinstance(data, WrittenData):
            require_written(self._storage, directory, data)
            operation = lance.LanceOperation.Overwrite(data.schema, fragments_of(data))
            # Its files stay their writer's, so `discard` will not take them.
            return StagedData(token, (), Commit(operation, {**data.marks, **properties}, data.stable_row_ids))
        location = self._location(directory)
        base = self._open(directory, options, lance.Session()) if version else None
        if version and base is None:
            raise ConcurrentModificationError(f"another client removed table '{directory}'; retry")
        try:
            with _writing(directory, options):
                transaction = write_fragments(
                    data,
                    location if base is None else base,
                    mode="overwrite" if version else "create",
                    return_transaction=True,
                    storage_options=dict(options) or None,
                )
        except RelanceError as cause:
            if not version and _TAKEN.search(cause.detail):
                raise VersionTakenError(cause.detail) from cause
            raise
        _share(location)
        names = (file.path for fragment in transaction.operation.fragments for file in fragment.files)
        files = tuple(f"{directory}/data/{name}" for name in names)
        return StagedData(token, files, Commit(transaction.operation, properties, base=base))

    def commit(
        self, directory: str, staged: StagedData, *, version: int, timeout: timedelta, options: StorageOptions
    ) -> None:
        commit = staged.commit
        transaction = lance.Transaction(
            version - 1, commit.operation, uuid=staged.token, transaction_properties=dict(commit.properties)
        )
        self._commit(
            directory,
            transaction,
            timeout,
            options,
            stable_row_ids=commit.stable_row_ids if version == 1 else None,
            base=commit.base,
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
        updates = lance.LanceOperation.UpdateMap(dict(properties), replace=True)
        operation = lance.LanceOperation.UpdateConfig(table_metadata_updates=updates)
        try:
            with _writing(directory, options):
                dataset = open_at(self._location(directory), options, directory)
                # Other writers' versions in between do no harm: Lance puts this one after them.
                lance.LanceDataset.commit(
                    dataset,
                    lance.Transaction(
                        int(dataset.version),
                        operation,
                        uuid=token,
                        transaction_properties={CREATE_PROPERTY: token},
                    ),
                    commit_timeout=timeout,
                    storage_options=dict(options) or None,
                )
        except ServiceUnavailableError as cause:
            raise OutcomeUnknownError(cause.detail) from cause

    def restore(self, directory: str, version: int, *, token: str, timeout: timedelta) -> None:
        # Of no data. Lance refuses it after an Overwrite, which it must not revert; a Restore goes through.
        operation = lance.LanceOperation.Append([])
        transaction = lance.Transaction(
            version, operation, uuid=token, transaction_properties={CREATE_PROPERTY: token}
        )
        self._commit(directory, transaction, timeout, self._options, stable_row_ids=None)

    def _commit(
        self,
        directory: str,
        transaction: lance.Transaction,
        timeout: timedelta,
        options: StorageOptions,
        *,
        stable_row_ids: bool | None,
        base: lance.LanceDataset | None = None,
    ) -> None:
        if base is not None and int(base.version) != transaction.read_version:
            base = None
        try:
            with _writing(directory, options):
                dataset = lance.LanceDataset.commit(
                    self._location(directory) if base is None else base,
                    transaction,
                    enable_stable_row_ids=stable_row_ids,
                    # Without retries a commit is refused when any version came after the one it read.
                    max_retries=0,
                    commit_timeout=timeout,
                    storage_options=dict(options) or None,
                )
        except ServiceUnavailableError as cause:
            raise OutcomeUnknownError(cause.detail) from cause
        except RelanceError as cause:
            if is_damage(cause) and "://" in self._location(directory):
                raise OutcomeUnknownError(cause.detail) from cause
            if _TAKEN.search(cause.detail) or self._is_beaten(directory, transaction, cause):
                raise VersionTakenError(cause.detail) from cause
            raise
        _share(str(dataset.uri))
        if int(dataset.version) != transaction.read_version + 1:
            raise OutcomeUnknownError(f"table at '{directory}': committed as version {dataset.version}")

    def _is_beaten(self, directory: str, transaction: lance.Transaction, failure: RelanceError) -> bool:
        """Tell whether a commit failed because other versions replaced the one that it read.

        Lance looks for that one: before the first there is none, and a cleanup may have removed any other.
        """
        if "not found" not in failure.detail:
            return False
        head = self.head(directory)
        return head is not None and head.version > transaction.read_version

    def committed_version(self, directory: str, tokens: Sequence[str], *, after: int) -> int | None:
        for version, transaction in self._transactions(directory, after=after):
            if transaction is not None and str(transaction.uuid) in tokens:
                return version
        return None

    def has_foreign_version(self, directory: str) -> bool:
        return any(
            transaction is None or CREATE_PROPERTY not in (transaction.transaction_properties or {})
            for _, transaction in self._transactions(directory, after=0)
        )

    def _transactions(self, directory: str, *, after: int) -> Iterator[tuple[int, lance.Transaction | None]]:
        """Yield the versions and what made them, newest first; None for one that was cleaned up."""
        dataset = self._open(directory)
        if dataset is None:
            return
        with lance_errors(f"table at '{directory}'", self._options):
            for version in range(int(dataset.version), after, -1):
                try:
                    yield version, transaction_at(dataset, version)
                except (OSError, ValueError) as cause:
                    if "not found" not in str(cause).lower():
                        raise

    def discard(self, staged: StagedData) -> None:
        with suppress(RelanceError):  # what failed first is what the caller is told
            self._storage.delete_many(staged.files)


@contextmanager
def _writing(directory: str, options: Mapping[str, str]) -> Iterator[None]:
    """Turn what pylance raises while it writes to a table into our errors.

    Raises:
        ConcurrentModificationError: the directory is being emptied.
    """
    try:
        with lance_errors(f"table at '{directory}'", options):
            yield
    except RelanceError as cause:
        if not _REMOVED.search(cause.detail):
            raise
        raise ConcurrentModificationError(
            f"another client removed files of '{directory}' while data was being written; retry"
        ) from cause


def _share(location: str) -> None:
    """Share the folders of a table on a local disk."""
    if "://" not in location or location.startswith("file://"):
        share_table(location.removeprefix("file://"))


@dataclass(frozen=True, slots=True)
class TableRef:
    """One version of a table and how to reach it: all that a distributed read needs; usable as a key.

    Whoever opens it asks neither the catalog nor for the newest version, so that all tasks of a read see
    the same rows, and a read that has begun goes on when the table is dropped.
    """

    id: str
    """For messages."""
    uri: str
    version: int
    branch: str | None = None
    storage_options: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    made: str | None = None
    """When the version was made, if it is known: a table that was purged and created again counts from 1."""
    directory: str = ""
    """Below the root, of a table of a catalog."""

    def at(self, version: int) -> TableRef:
        """Return another version of the same table and branch."""
        return replace(self, version=version, made=None)

    def open(self, session: lance.Session | None = None) -> lance.LanceDataset:
        """Return the dataset at this version.

        Raises:
            TableVersionNotFoundError: the version was cleaned up.
            ConcurrentModificationError: the table was removed, and another one is in its place.
        """
        options = dict(self.storage_options)
        with lance_errors(f"table id '{self.id}'", options):
            dataset = open_at(self.uri, options, self.id, session=session)
            if dataset.version != self.version or self.branch is not None:
                target = self.version if self.branch is None else (self.branch, self.version)
                dataset = checkout(dataset, target, f"version {self.version} of table id '{self.id}'")
            if self.made not in (None, made_at(dataset)):
                raise ConcurrentModificationError(
                    f"table id '{self.id}' was removed and re-created after it was loaded; reload it"
                )
            return dataset


def made_at(dataset: lance.LanceDataset) -> str:
    """Return when the dataset's version was made."""
    return str(dataset.get_version()["timestamp"].astimezone(UTC).isoformat())


def checkout(
    dataset: lance.LanceDataset, target: int | tuple[str, int | None], what: str
) -> lance.LanceDataset:
    """Return the dataset at another version or branch; `what` names it.

    Raises:
        TableVersionNotFoundError: it is not there.
    """
    try:
        return dataset.checkout_version(target)
    except OverflowError as cause:
        raise TableVersionNotFoundError(what) from cause
    except (OSError, ValueError) as cause:
        if "was not found" in str(cause):
            raise TableVersionNotFoundError(what) from cause
        raise
