"""Merge Arrow rows into a table, without Spark."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc

from relance.errors import InvalidInputError, TableSchemaValidationError
from relance.jobs.base import CatalogRef
from relance.jobs.merging.merge_here import HereEngine
from relance.jobs.merging.merge_plan import Clauses, MergeRequest, parse_clauses
from relance.jobs.merging.merges import MergeResult, run_merge
from relance.jobs.runner import open_catalog
from relance.namespace import DirectoryNamespace

_ALIKE = (
    pa.types.is_integer,
    pa.types.is_floating,
    pa.types.is_decimal,
    pa.types.is_timestamp,
    lambda kind: pa.types.is_string(kind) or pa.types.is_large_string(kind),
    lambda kind: pa.types.is_binary(kind) or pa.types.is_large_binary(kind),
)
"""Types of one kind, whose values are cast if none is lost."""

_LISTS = (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list)


def merge(
    catalog: DirectoryNamespace | CatalogRef,
    table: Sequence[str],
    rows: pa.Table,
    on: str | Sequence[str],
    *,
    when_matched: str | None = "update_all",
    when_not_matched: str | None = "insert_all",
    when_not_matched_by_source: str | None = None,
    delete_if: str | None = None,
    dry_run: bool = False,
) -> MergeResult:
    """Update the rows of a table that have the key of a new row, insert the other new rows: one version.

    The same as `relance.spark.merge`, on threads of this process; a null in the key is equal to nothing.

    Raises:
        InvalidInputError: two new rows have the same key, or a clause cannot be used.
        TableNotFoundError: there is no such table.
        TableColumnNotFoundError: the table has no such key.
        TableSchemaValidationError: a column or a value does not fit.
        UnsupportedOperationError: a key, or a column of the table, is of a type that is left to Spark.
        ConcurrentModificationError: others kept changing the same fragments, or dropped the table.
        OutcomeUnknownError: the store gave no answer; it may have happened.
    """
    keys = parse_keys(on, rows.schema.names)
    clauses = parse_clauses(when_matched, when_not_matched, when_not_matched_by_source, delete_if=delete_if)
    reference = catalog if isinstance(catalog, CatalogRef) else CatalogRef(catalog.properties)
    request = MergeRequest(
        tuple(table), keys, clauses, lambda schema: check_rows(rows.schema, schema, clauses)
    )
    result = run_merge(open_catalog(reference), request, HereEngine(rows, fitted), dry_run=dry_run)
    return replace(result, engine="local: the rows are in this process")


def parse_keys(on: str | Sequence[str], columns: Sequence[str]) -> tuple[str, ...]:
    """Return the columns that make the key.

    Raises:
        InvalidInputError: there is none, one is named twice, or the new rows lack one.
    """
    keys = (on,) if isinstance(on, str) else tuple(on)
    if not keys or len(set(keys)) != len(keys):
        raise InvalidInputError("'on' must name each key column exactly once")
    for name in keys:
        if name not in columns:
            raise InvalidInputError(
                f"key column '{name}' is not in the new rows; their columns are: {', '.join(columns)}"
            )
    return keys


def check_rows(given: pa.Schema, existing: pa.Schema, clauses: Clauses) -> None:
    """Check that new rows fit the columns of a table.

    Raises:
        TableSchemaValidationError: a column is unknown, there twice, of another kind, or missing.
    """
    for field in given:
        if field.name not in existing.names:
            raise TableSchemaValidationError(
                f"column '{field.name}' is not in the table; its columns are: {', '.join(existing.names)}"
            )
        if given.names.count(field.name) > 1:
            raise TableSchemaValidationError(f"column '{field.name}' occurs twice in the new rows")
        wanted = existing.field(field.name).type
        if not _fits(field.type, wanted):
            raise TableSchemaValidationError(
                f"column '{field.name}' has type {field.type}, but {wanted} in the table; cast it"
            )
    for field in existing:
        if clauses.insert and not field.nullable and field.name not in given.names:
            raise TableSchemaValidationError(
                f"column '{field.name}' is missing and not nullable in the table; add it to the rows"
            )


def fitted(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return the rows with the types that the columns have in a table.

    Raises:
        TableSchemaValidationError: a value would be lost, or is null where the table takes none.
    """
    fields = [field for field in schema if field.name in rows.schema.names]
    columns = []
    for field in fields:
        column = rows[field.name]
        if column.null_count and not field.nullable:
            raise TableSchemaValidationError(
                f"column '{field.name}' has {column.null_count} nulls but is not nullable in the table"
            )
        try:
            columns.append(column if column.type == field.type else pc.cast(column, field.type))
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as cause:
            raise TableSchemaValidationError(f"column '{field.name}': {cause}") from cause
        # What is too large becomes infinite in Arrow's hands.
        if column.type != field.type and _infinite(columns[-1]) > _infinite(column):
            raise TableSchemaValidationError(f"column '{field.name}': a number is too large for {field.type}")
    return pa.table(columns, schema=pa.schema(fields))


def _infinite(column: pa.ChunkedArray) -> int:
    """Return how many numbers of a column, also in lists, are infinite."""
    values = column
    while any(is_list(values.type) for is_list in _LISTS):
        values = pc.list_flatten(values)
    if not pa.types.is_floating(values.type):
        return 0
    return int(pc.sum(pc.is_inf(values.cast(pa.float64()))).as_py() or 0)


def _fits(given: pa.DataType, wanted: pa.DataType) -> bool:
    if given == wanted or pa.types.is_null(given):
        return True
    if any(is_list(given) for is_list in _LISTS) and any(is_list(wanted) for is_list in _LISTS):
        return _fits(given.value_type, wanted.value_type)
    return any(alike(given) and alike(wanted) for alike in _ALIKE)
