"""What the lifecycle needs of Lance: a table's head, staged data, and commits that can be recognised.

A protocol, because the lifecycle is proved against a model of it (testing.model_tables), which is
itself checked against pylance.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, Protocol

import lance
import pyarrow as pa
from lance.fragment import write_fragments

from relance.config import StorageOptions
from relance.errors import (
    ConcurrentModificationError,
    InternalError,
    OutcomeUnknownError,
    RelanceError,
    ServiceUnavailableError,
    TableNotFoundError,
)
from relance.lance_errors import lance_errors, open_at, transaction_at
from relance.operations.new_table import WrittenData
from relance.operations.written import fragments_of, require_written
from relance.storage.protocol import ObjectStorage


@dataclass(frozen=True, slots=True)
class TableHead:
    """The latest version of a table."""

    version: int
    config: Mapping[str, str]


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

    transaction: lance.Transaction
    stable_row_ids: bool | None = None
    """Only the first version of a table decides about it."""


class LanceTables(Protocol):
    """Lance, as far as create, drop and undrop need it."""

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
        overwrite: bool,
        options: StorageOptions,
    ) -> StagedData:
        """Write data files, to be committed as version 1 or, with `overwrite`, over an existing table.

        Of data that is written already it makes sure that it is there.
        """

    def commit(
        self, directory: str, staged: StagedData, *, first: bool, timeout: timedelta, options: StorageOptions
    ) -> int:
        """Commit staged data and return its version; as the `first`, only if there is no version 1.

        Raises:
            OutcomeUnknownError: no answer; it may have been committed.
            RelanceError: it was not committed.
        """

    def committed_version(self, directory: str, token: str, *, after: int) -> int | None:
        """Return the version later than `after` that was committed under `token`, if there is one."""

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
        if self._storage.is_occupied(directory):
            return None  # a file or a link: Lance would stumble over the one and follow the other
        try:
            dataset = open_at(self._location(directory), self._options, directory)
        except TableNotFoundError:
            return None
        except InternalError as failure:
            if "not found" in failure.detail.lower():
                # Listed, and gone before it was read: a purge is at work.
                raise ConcurrentModificationError(
                    f"table at '{directory}' changed while it was being opened"
                ) from failure
            raise
        return TableHead(int(dataset.version), dict(dataset.config()))

    def stage(
        self,
        directory: str,
        data: pa.Table | WrittenData,
        *,
        token: str,
        overwrite: bool,
        options: StorageOptions,
    ) -> StagedData:
        if isinstance(data, WrittenData):
            return self._adopt(directory, data, token=token, overwrite=overwrite)
        with lance_errors(f"table at '{directory}'", options):
            transaction = write_fragments(
                data,
                self._location(directory),
                mode="overwrite" if overwrite else "create",
                return_transaction=True,
                storage_options=dict(options) or None,
            )
        files = (file.path for fragment in transaction.operation.fragments for file in fragment.files)
        return StagedData(
            token=token,
            files=tuple(f"{directory}/data/{path}" for path in files),
            commit=Commit(replace(transaction, uuid=token)),
        )

    def _adopt(self, directory: str, data: WrittenData, *, token: str, overwrite: bool) -> StagedData:
        """Stage what is written; its files stay its writer's, so `discard` will not take them.

        Raises:
            ConcurrentModificationError: the table is in another directory, or the files are gone.
        """
        require_written(self._storage, directory, data)
        head = self.head(directory) if overwrite else None
        transaction = lance.Transaction(
            read_version=head.version if head is not None else 0,
            operation=lance.LanceOperation.Overwrite(data.schema, fragments_of(data)),
            uuid=token,
            transaction_properties=dict(data.marks),
        )
        return StagedData(token=token, files=(), commit=Commit(transaction, data.stable_row_ids))

    def commit(
        self, directory: str, staged: StagedData, *, first: bool, timeout: timedelta, options: StorageOptions
    ) -> int:
        try:
            with lance_errors(f"table at '{directory}'", options):
                dataset = lance.LanceDataset.commit(
                    self._location(directory),
                    staged.commit.transaction,
                    enable_stable_row_ids=staged.commit.stable_row_ids if first else None,
                    # As the first: no retries, which would make it an overwrite of somebody's table.
                    max_retries=0 if first else 20,
                    commit_timeout=timeout,
                    storage_options=dict(options) or None,
                )
        except ServiceUnavailableError as cause:
            raise OutcomeUnknownError(cause.detail) from cause
        return int(dataset.version)

    def committed_version(self, directory: str, token: str, *, after: int) -> int | None:
        head = self.head(directory)
        if head is None:
            return None
        with lance_errors(f"table at '{directory}'", self._options):
            dataset = open_at(self._location(directory), self._options, directory)
            for version in range(head.version, after, -1):
                if _token_of(dataset, version) == token:
                    return version
        return None

    def discard(self, staged: StagedData) -> None:
        self._storage.delete_many(staged.files)


def _token_of(dataset: lance.LanceDataset, version: int) -> str | None:
    try:
        transaction = transaction_at(dataset, version)
    except (OSError, ValueError) as cause:
        if "not found" in str(cause).lower():
            return None  # cleaned up
        raise
    return None if transaction is None else str(transaction.uuid)


def is_settled(failure: RelanceError) -> bool:
    """Tell whether a failed commit certainly did not happen."""
    return not isinstance(failure, ServiceUnavailableError)
