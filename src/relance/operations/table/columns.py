"""Columns of a table: add, alter, drop. Backfill has nothing to fill, and says so."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from lance_namespace import (
    AlterTableAddColumnsRequest,
    AlterTableAddColumnsResponse,
    AlterTableAlterColumnsRequest,
    AlterTableAlterColumnsResponse,
    AlterTableBackfillColumnsRequest,
    AlterTableBackfillColumnsResponse,
    AlterTableDropColumnsRequest,
    AlterTableDropColumnsResponse,
)
from lance_namespace_urllib3_client.models.add_columns_entry import AddColumnsEntry
from lance_namespace_urllib3_client.models.alter_columns_entry import AlterColumnsEntry

from relance.catalog.context import Context
from relance.errors import InvalidInputError, UnsupportedOperationError
from relance.operations.table.data_types import parse_data_type
from relance.operations.table.opening import changing, reading, refusing, require_column, transaction_id

_NO_JOBS = "a directory catalog cannot run functions"


def alter_table_add_columns(
    context: Context, request: AlterTableAddColumnsRequest
) -> AlterTableAddColumnsResponse:
    """Add columns, each computed once from an SQL expression over the rows that are there.

    Raises:
        InvalidInputError: a name is taken, or an expression is missing or cannot be computed.
        UnsupportedOperationError: a column is to be computed or virtual, not written.
    """
    _require_some(request.new_columns, "new_columns")
    _require_distinct((each.name for each in request.new_columns), "new_columns")
    expressions = {each.name: _expression(each) for each in request.new_columns}
    with changing(context, request.id, branch=request.branch) as dataset:
        for name in expressions:
            if name in dataset.schema.names:
                raise InvalidInputError(f"column '{name}' already exists: alter it or drop it first")
        with refusing(f"columns {', '.join(expressions)}"):
            dataset.add_columns(expressions)
        return AlterTableAddColumnsResponse(version=dataset.version)


def _expression(entry: AddColumnsEntry) -> str:
    _check_name(entry.name)
    if entry.computed is not None:
        raise UnsupportedOperationError(
            f"computed column '{entry.name}': {_NO_JOBS}; use an expression instead"
        )
    if entry.virtual_column is not None:
        raise UnsupportedOperationError(f"virtual column '{entry.name}': {_NO_JOBS}")
    if not entry.expression:
        raise InvalidInputError(f"column '{entry.name}' has no expression")
    return entry.expression


def _check_name(name: str) -> None:
    if not name or "." in name:
        raise InvalidInputError(f"invalid column name {name!r}: it must not be empty or contain a dot")


def alter_table_alter_columns(
    context: Context, request: AlterTableAlterColumnsRequest
) -> AlterTableAlterColumnsResponse:
    """Rename columns, let them be null or not, or give them another type, in one version.

    Raises:
        TableColumnNotFoundError: there is no such column.
        InvalidInputError: nothing is asked for, a name is taken, or values do not fit the new type.
        UnsupportedOperationError: a virtual column is asked for.
    """
    _require_some(request.alterations, "alterations")
    _require_distinct((each.path for each in request.alterations), "alterations")
    alterations = [_alteration(each) for each in request.alterations]
    with changing(context, request.id, branch=request.branch) as dataset:
        for each in request.alterations:
            require_column(dataset, each.path)
        with refusing(f"columns {', '.join(each.path for each in request.alterations)}"):
            dataset.alter_columns(*alterations)
        return AlterTableAlterColumnsResponse(version=dataset.version)


def _alteration(entry: AlterColumnsEntry) -> dict[str, Any]:
    if entry.virtual_column is not None:
        raise UnsupportedOperationError(f"virtual column '{entry.path}': {_NO_JOBS}")
    found: dict[str, Any] = {"path": entry.path}
    if entry.rename is not None:
        _check_name(entry.rename)
        found["name"] = entry.rename
    if entry.nullable is not None:
        found["nullable"] = entry.nullable
    if entry.data_type is not None:
        found["data_type"] = parse_data_type(entry.data_type)
    if len(found) == 1:
        raise InvalidInputError(f"column '{entry.path}': set rename, nullable or data_type")
    return found


def alter_table_drop_columns(
    context: Context, request: AlterTableDropColumnsRequest
) -> AlterTableDropColumnsResponse:
    """Take columns, or fields inside them, from the table; the versions before keep them.

    Raises:
        TableColumnNotFoundError: there is no such column.
        InvalidInputError: no column is named, one is named twice, or none would be left.
    """
    _require_some(request.columns, "columns")
    _require_distinct(request.columns, "columns")
    with changing(context, request.id, branch=request.branch) as dataset:
        for each in request.columns:
            require_column(dataset, each)
        if set(dataset.schema.names) <= set(request.columns):
            raise InvalidInputError("a table must keep at least one column; use drop_table to drop the table")
        with refusing(f"columns {', '.join(request.columns)}"):
            dataset.drop_columns(request.columns)
        return AlterTableDropColumnsResponse(version=dataset.version, transaction_id=transaction_id(dataset))


def alter_table_backfill_columns(
    context: Context, request: AlterTableBackfillColumnsRequest
) -> AlterTableBackfillColumnsResponse:
    """Refuse: there are no computed or virtual columns whose rows could be missing.

    Raises:
        UnsupportedOperationError: always, for a column that is there.
        TableNotFoundError, TableBranchNotFoundError, TableColumnNotFoundError: it is not.
    """
    with reading(context, request.id, version=request.read_version, branch=request.branch) as dataset:
        require_column(dataset, request.column)
    raise UnsupportedOperationError(
        f"cannot backfill column '{request.column}': it is neither computed nor virtual, and "
        f"{_NO_JOBS}; use update_table to set values"
    )


def _require_some(given: Iterable[object], what: str) -> None:
    if not list(given):
        raise InvalidInputError(f"{what} must not be empty")


def _require_distinct(names: Iterable[str], what: str) -> None:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise InvalidInputError(f"'{name}' appears twice in {what}")
        seen.add(name)
