"""Merge rows into a table by key: update what matches, insert what does not, delete what is left over."""

from __future__ import annotations

from typing import Any

from lance_namespace import MergeInsertIntoTableRequest, MergeInsertIntoTableResponse

from relance.catalog.context import Context
from relance.errors import InvalidInputError
from relance.operations.arrow_stream import read_stream
from relance.operations.data.expressions import check_expressions
from relance.operations.targets import after_write, open_for_writing
from relance.units import parse_duration


def merge_insert_into_table(
    context: Context, request: MergeInsertIntoTableRequest, data: bytes
) -> MergeInsertIntoTableResponse:
    """Merge the rows of an Arrow stream into the table, by the clauses that are asked for.

    A filter alone asks for its clause too.

    Raises:
        TableNotFoundError, TableBranchNotFoundError: there is no such table or branch.
        InvalidInputError: no key, no clause, a filter or timeout that cannot be used, a bad body, or
            several rows for one row of the table.
        TableSchemaValidationError: the rows do not fit the table.
        ConcurrentModificationError: others kept changing the same rows.
        OutcomeUnknownError: the store gave no answer; it may have happened.
    """
    if not request.on:
        raise InvalidInputError("merge_insert_into_table requires the columns to match on: set 'on'")
    update_filter = request.when_matched_update_all_filt
    delete_filter = request.when_not_matched_by_source_delete_filt
    # A filter asks for its clause, whether the flag says so too or not.
    update = bool(request.when_matched_update_all) or update_filter is not None
    delete = bool(request.when_not_matched_by_source_delete) or delete_filter is not None
    if not (update or delete or request.when_not_matched_insert_all):
        raise InvalidInputError("merge_insert_into_table has nothing to do: request at least one clause")
    check_expressions([update_filter, delete_filter])
    timeout = None if request.timeout is None else parse_duration(request.timeout, what="timeout")
    rows = read_stream(data)
    target = open_for_writing(context, request.id, branch=request.branch)
    with target.commit_errors():
        builder = target.dataset.merge_insert(list(request.on))
        if update:
            builder = builder.when_matched_update_all(update_filter)
        if request.when_not_matched_insert_all:
            builder = builder.when_not_matched_insert_all()
        if delete:
            builder = builder.when_not_matched_by_source_delete(delete_filter)
        if timeout is not None:
            builder = builder.retry_timeout(timeout)
        if request.use_index is not None:
            builder = builder.use_index(request.use_index)
        counts: dict[str, Any] = builder.execute(rows)
    after_write(context, target.found, target.branch)
    return MergeInsertIntoTableResponse(
        num_updated_rows=counts["num_updated_rows"],
        num_inserted_rows=counts["num_inserted_rows"],
        num_deleted_rows=counts["num_deleted_rows"],
        version=int(target.dataset.version),
    )
