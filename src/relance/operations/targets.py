"""The table an operation reads or writes: opened at a version or a branch, and looked at again after."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass

import lance

from relance.catalog.context import Context, table_id_of
from relance.catalog.resolve import Found, find_table
from relance.config import StorageOptions
from relance.errors import (
    ConcurrentModificationError,
    PermissionDeniedError,
    RelanceError,
    StorageFullError,
    TableNotFoundError,
)
from relance.identifiers import TableId
from relance.operations.data_errors import data_errors, write_errors
from relance.operations.datasets import open_dataset
from relance.operations.managed_versions import settle, synchronise, version_keeper
from relance.operations.version_requests import is_main

_RETRIES = 20
"""How often a commit is tried again after others that do not conflict with it."""


@dataclass(frozen=True, slots=True)
class Target:
    """An opened table: the head of a branch, or a version of it."""

    found: Found
    branch: str | None
    dataset: lance.LanceDataset
    options: StorageOptions

    @property
    def data_directory(self) -> str:
        """Where new data files of this branch are written."""
        directory = self.found.directory
        return f"{directory}/data" if is_main(self.branch) else f"{directory}/tree/{self.branch}/data"

    def errors(self) -> AbstractContextManager[None]:
        """Turn what pylance raises in the block into our errors."""
        return data_errors(f"table id '{self.found.table_id}'", self.options)

    def commit_errors(self) -> AbstractContextManager[None]:
        """Do the same around a commit."""
        return write_errors(f"table id '{self.found.table_id}'", self.options)


def open_for_reading(
    context: Context, parts: Sequence[str] | None, *, version: int | None = None, branch: str | None = None
) -> Target:
    """Return the table at the version and branch that are asked for.

    Raises:
        TableNotFoundError: there is no such table, or it is only declared.
        TableVersionNotFoundError, TableBranchNotFoundError: not that one.
    """
    table_id = table_id_of(context, parts, existing=True)
    if is_main(branch):
        # Who may only read, or finds the disk full, sees what has its file.
        with suppress(PermissionDeniedError, StorageFullError):
            settle(context, table_id)
    return _open(context, table_id, version, branch)


def open_for_writing(
    context: Context,
    parts: Sequence[str] | None,
    *,
    version: int | None = None,
    branch: str | None = None,
    session: lance.Session | None = None,
) -> Target:
    """Return the head of the table or of one of its branches, or a version to begin from.

    A session keeps what was read of tables for the next time.

    Raises:
        TableNotFoundError: there is no such table, or it is only declared.
        TableVersionNotFoundError, TableBranchNotFoundError: not that one.
    """
    table_id = table_id_of(context, parts)
    if is_main(branch):
        settle(context, table_id)  # a version that waits for its file comes before ours
    return _open(context, table_id, version, branch, session)


def _open(
    context: Context,
    table_id: TableId,
    version: int | None,
    branch: str | None,
    session: lance.Session | None = None,
) -> Target:
    found = find_table(context, table_id)
    dataset = open_dataset(context, found, version=version, branch=branch, session=session)
    return Target(found, branch, dataset, context.lance_options())


def commit_transaction(
    context: Context, target: Target, transaction: lance.Transaction
) -> lance.LanceDataset:
    """Commit to the table, after others that do not conflict with it, and return it at the new version.

    Raises:
        ConcurrentModificationError: others do conflict.
        OutcomeUnknownError: no answer; it may have been committed.
    """
    with target.commit_errors():
        return lance.LanceDataset.commit(
            target.dataset,
            transaction,
            max_retries=_RETRIES,
            commit_timeout=context.timing.commit_timeout,
        )


def after_write(context: Context, found: Found, branch: str | None) -> None:
    """Have the manifest know the new version, and check that what was written is still the table.

    Raises:
        ConcurrentModificationError: the table was dropped or renamed while it was written.
    """
    if is_main(branch) and (keeper := version_keeper(context)) is not None:
        with suppress(RelanceError):  # it is written; the next look at the versions adopts it
            synchronise(context, keeper, found.table_id)
    try:
        now = find_table(context, found.table_id)
    except TableNotFoundError as cause:
        raise _changed(found) from cause
    except RelanceError:
        return  # it is written: an error of this look would have the caller write it again
    if now.directory != found.directory:
        raise _changed(found)


def _changed(found: Found) -> ConcurrentModificationError:
    return ConcurrentModificationError(
        f"table id '{found.table_id}' was dropped or renamed while it was being written; the data "
        "went to the table that previously had this name"
    )
