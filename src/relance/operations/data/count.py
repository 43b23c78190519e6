"""Count rows."""

from __future__ import annotations

from lance_namespace import CountTableRowsRequest, CountTableRowsResponse

from relance.catalog.context import Context
from relance.operations.data.expressions import check_expressions
from relance.operations.targets import open_for_reading


def count_table_rows(context: Context, request: CountTableRowsRequest) -> CountTableRowsResponse:
    """Return how many rows there are, or how many the predicate selects.

    Raises:
        TableNotFoundError, TableVersionNotFoundError, TableBranchNotFoundError: it is not there.
        InvalidInputError: the predicate cannot be used.
    """
    check_expressions([request.predicate])
    target = open_for_reading(context, request.id, version=request.version, branch=request.branch)
    with target.errors():
        return CountTableRowsResponse(count=target.dataset.count_rows(request.predicate))
