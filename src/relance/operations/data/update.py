"""Update rows in place: one SQL expression per column."""

from __future__ import annotations

from lance_namespace import UpdateTableRequest, UpdateTableResponse

from relance.catalog.context import Context
from relance.errors import InvalidInputError, UnsupportedOperationError
from relance.operations.data.expressions import check_expressions
from relance.operations.targets import after_write, open_for_writing


def update_table(context: Context, request: UpdateTableRequest) -> UpdateTableResponse:
    """Set columns to expressions, in all rows or in those that the predicate selects.

    Raises:
        TableNotFoundError, TableBranchNotFoundError: there is no such table or branch.
        InvalidInputError: no update, a column twice, or an expression or predicate that cannot be used.
        UnsupportedOperationError: properties are given.
        ConcurrentModificationError: others kept changing the same rows.
        OutcomeUnknownError: the store gave no answer; it may have happened.
    """
    if request.properties:
        raise UnsupportedOperationError("update_table only changes rows; it cannot set table properties")
    updates = _by_column(request.updates)
    check_expressions([request.predicate, *updates.values()])
    target = open_for_writing(context, request.id, branch=request.branch)
    with target.commit_errors():
        counts = target.dataset.update(updates, where=request.predicate)
    after_write(context, target.found, target.branch)
    return UpdateTableResponse(
        updated_rows=counts["num_rows_updated"],
        version=int(target.dataset.version),
        properties=target.found.properties or None,
    )


def _by_column(pairs: list[list[str]]) -> dict[str, str]:
    if not pairs:
        raise InvalidInputError("update_table has nothing to do: pass at least one [column, expression]")
    updates: dict[str, str] = {}
    for column, expression in pairs:
        if column in updates:
            raise InvalidInputError(f"column '{column}' is updated twice")
        updates[column] = expression
    return updates
