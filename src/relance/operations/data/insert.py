"""Insert rows: append them, or put them in the place of all that was there."""

from __future__ import annotations

from contextlib import suppress
from enum import StrEnum

import lance
import pyarrow as pa
from lance.fragment import write_fragments
from lance_namespace import InsertIntoTableRequest, InsertIntoTableResponse

from relance.catalog.context import Context, table_id_of
from relance.catalog.create import create
from relance.catalog.resolve import find_table
from relance.errors import (
    ConcurrentModificationError,
    OutcomeUnknownError,
    RelanceError,
    TableAlreadyExistsError,
    TableBranchNotFoundError,
    TableSchemaValidationError,
)
from relance.identifiers import TableId
from relance.lance_io import CreateMode, NewTable, transaction_at
from relance.operations.arrow_stream import read_stream
from relance.operations.requests import parse_mode
from relance.operations.targets import Target, after_write, commit_transaction, open_for_writing
from relance.operations.version_requests import is_main


class InsertMode(StrEnum):
    """What becomes of the rows that are there."""

    APPEND = "append"
    OVERWRITE = "overwrite"


def insert_into_table(
    context: Context, request: InsertIntoTableRequest, data: bytes
) -> InsertIntoTableResponse:
    """Insert the rows of an Arrow stream, which may lack columns; a declared table is created.

    Nothing is written, and no file stays, when this fails.

    Raises:
        TableNotFoundError, TableBranchNotFoundError: there is no such table or branch.
        InvalidInputError: the body is not a whole Arrow stream, or the mode is unknown.
        TableSchemaValidationError: the rows do not fit the table.
        ConcurrentModificationError: another client changed the table in a way that does not go with it.
        OutcomeUnknownError: the store gave no answer; the rows may be there.
    """
    table_id = table_id_of(context, request.id)
    mode = parse_mode(request.mode, InsertMode, default=InsertMode.APPEND)
    rows = read_stream(data)
    if find_table(context, table_id).is_only_declared(context.storage):
        created = _create(context, table_id, rows, request.branch)
        if created is not None:
            return InsertIntoTableResponse(num_inserted_rows=rows.num_rows, version=created)
    target = open_for_writing(context, request.id, branch=request.branch)
    if mode is InsertMode.APPEND:
        _check_nulls(target, rows)
    with target.errors():
        staged = write_fragments(rows, target.dataset, mode=mode.value, return_transaction=True)
    version = _commit(context, target, staged)
    after_write(context, target.found, target.branch)
    return InsertIntoTableResponse(
        transaction_id=staged.uuid, num_inserted_rows=rows.num_rows, version=version
    )


def _create(context: Context, table_id: TableId, rows: pa.Table, branch: str | None) -> int | None:
    """Create a declared table with the rows; None means that somebody else just did."""
    if not is_main(branch):
        raise TableBranchNotFoundError(f"branch '{branch}' of table id '{table_id}', which is only declared")
    try:
        created = create(context, NewTable(table_id, rows, context.lance_options()), CreateMode.CREATE)
    except (TableAlreadyExistsError, ConcurrentModificationError):
        if find_table(context, table_id).is_only_declared(context.storage):
            raise
        return None
    after_write(context, find_table(context, table_id), branch)
    return created.version


def _check_nulls(target: Target, rows: pa.Table) -> None:
    """Refuse nulls where the table allows none, before any file is written.

    Raises:
        TableSchemaValidationError: there are some.
    """
    schema = target.dataset.schema
    for name in rows.schema.names:
        index = schema.get_field_index(name)
        if index >= 0 and not schema.field(index).nullable and rows.column(name).null_count:
            raise TableSchemaValidationError(
                f"table id '{target.found.table_id}': column '{name}' is not nullable but the "
                "data contains nulls"
            )


def _commit(context: Context, target: Target, staged: lance.Transaction) -> int:
    """Commit the staged files, and remove them if that certainly failed.

    Raises:
        OutcomeUnknownError: nobody can tell; nothing is removed.
    """
    try:
        committed = commit_transaction(context, target, staged)
        return int(committed.version)
    except RelanceError as failure:
        with target.commit_errors():
            landed = _version_of(target, staged.uuid)
        if landed is not None:
            return landed
        if not isinstance(failure, OutcomeUnknownError):
            files = (file.path for fragment in staged.operation.fragments for file in fragment.files)
            with suppress(RelanceError):  # what failed first is what the caller is told
                context.storage.delete_many([f"{target.data_directory}/{path}" for path in files])
        raise


def _version_of(target: Target, uuid: str) -> int | None:
    """Return the version that was committed under this id since the table was opened."""
    latest = target.dataset.checkout_version((target.branch or "main", None))
    for version in range(int(latest.version), int(target.dataset.version), -1):
        transaction = transaction_at(latest, version)
        if transaction is not None and transaction.uuid == uuid:
            return version
    return None
