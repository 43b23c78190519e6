"""The table an operation reads or writes: opened at a version or a branch, and looked at again after."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

import lance

from relance.catalog.context import Context, table_id_of
from relance.catalog.resolve import Found, find_table
from relance.config import StorageOptions
from relance.errors import (
    ConcurrentModificationError,
    InternalError,
    PermissionDeniedError,
    RelanceError,
    StorageError,
    StorageFullError,
    TableBranchNotFoundError,
    TableNotFoundError,
    TableVersionNotFoundError,
)
from relance.identifiers import TableId
from relance.operations.data_errors import data_errors, write_errors
from relance.operations.datasets import open_dataset
from relance.operations.managed_versions import settle, synchronise, version_keeper
from relance.operations.version_requests import is_main

_RETRIES = 20
"""How often a commit is tried again after others that do not conflict with it."""

_MISSING = re.compile(r"not found|no such file or directory|failed to (persist|shutdown)", re.IGNORECASE)
"""What Lance says of a file, or of a folder it writes to, that somebody has removed."""


@dataclass(frozen=True, slots=True)
class Target:
    """An opened table: the head of a branch, or a version of it."""

    found: Found
    branch: str | None
    dataset: lance.LanceDataset
    options: StorageOptions
    context: Context = field(compare=False, repr=False)

    @property
    def data_directory(self) -> str:
        """Where new data files of this branch are written."""
        directory = self.found.directory
        return f"{directory}/data" if is_main(self.branch) else f"{directory}/tree/{self.branch}/data"

    @contextmanager
    def errors(self) -> Iterator[None]:
        """Turn what pylance raises in the block into our errors."""
        with self.noticing_removal(), data_errors(f"table id '{self.found.table_id}'", self.options):
            yield

    @contextmanager
    def commit_errors(self) -> Iterator[None]:
        """Do the same around a commit."""
        with self.noticing_removal(), write_errors(f"table id '{self.found.table_id}'", self.options):
            yield

    @contextmanager
    def noticing_removal(self) -> Iterator[None]:
        """Tell a file that another client removed meanwhile from one that the table misses.

        Raises:
            ConcurrentModificationError: the table was purged, replaced or cleaned up since it was opened.
        """
        try:
            yield
        except InternalError as error:
            # Another subclass means something more exact.
            if (
                type(error) in {InternalError, StorageError}
                and _MISSING.search(error.detail)
                and self._was_removed()
            ):
                raise ConcurrentModificationError(
                    f"table id '{self.found.table_id}' was purged, replaced or cleaned up by another client "
                    "while it was in use; retry"
                ) from error
            raise

    def _was_removed(self) -> bool:
        """Tell whether the name leads elsewhere now, or the version that was opened is gone."""
        try:
            found = find_table(self.context, self.found.table_id)
            version = int(self.dataset.version)
            now = open_dataset(self.context, found, version=version, branch=self.branch)
        except (TableNotFoundError, TableVersionNotFoundError, TableBranchNotFoundError):
            return True
        except RelanceError:
            return False  # nobody can tell: the caller is told what failed first
        return found.directory != self.found.directory or _data_files(now) != _data_files(self.dataset)


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
    return Target(found, branch, dataset, context.lance_options(), context)


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
        ConcurrentModificationError: the table was dropped, renamed or purged while it was written.
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
    if _arbiter(now) != _arbiter(found) and _misses_files(context, now):
        raise ConcurrentModificationError(
            f"table id '{found.table_id}' was purged while it was being written; its latest version needs "
            "files that are gone: drop it, purge it and write it again, or restore an older version"
        )


def _arbiter(found: Found) -> tuple[str | None, int] | None:
    """Identify what decides about a home directory: each drop, purge and create over one changes it."""
    control = None if found.home is None else found.home.control
    return None if control is None else (control.e_tag, control.size)


def _misses_files(context: Context, found: Found) -> bool:
    """Tell whether the latest version needs data files that are not there."""
    try:
        keys = {f"{found.directory}/data/{path}" for path in _data_files(open_dataset(context, found))}
        return len(context.storage.which_exist(sorted(keys))) < len(keys)
    except RelanceError:
        return False


def _data_files(dataset: lance.LanceDataset) -> set[str]:
    """Return the data files of a version, but those that a clone has in another table."""
    fragments = dataset.get_fragments()
    files = (file for fragment in fragments for file in fragment.metadata.files)
    return {file.path for file in files if file.base_id is None}


def _changed(found: Found) -> ConcurrentModificationError:
    return ConcurrentModificationError(
        f"table id '{found.table_id}' was dropped or renamed while it was being written; the data "
        "went to the table that previously had this name"
    )
