"""The columns of a stream, fixed when it began, in each version that is read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import lance
from pyspark.sql.types import LongType, StringType, StructField, StructType

from relance.errors import TableColumnNotFoundError

CHANGE_TYPE = "_change_type"
COMMIT_VERSION = "_commit_version"
CHANGE_COLUMNS = (CHANGE_TYPE, COMMIT_VERSION)
"""What a stream of changes has besides the columns of the table."""

ROW_NUMBERS = frozenset({"_rowid", "_rowaddr"})
"""Columns that every version has, if they are asked for."""

ROW_CREATED = "_row_created_at_version"
ROW_UPDATED = "_row_last_updated_at_version"


def with_change_columns(schema: StructType) -> StructType:
    """Return the schema of a stream of changes of a table with this schema."""
    return StructType(
        [
            *(field for field in schema if field.name not in CHANGE_COLUMNS),
            StructField(CHANGE_TYPE, StringType(), nullable=False),
            StructField(COMMIT_VERSION, LongType(), nullable=False),
        ]
    )


@dataclass(frozen=True, slots=True)
class Column:
    """A column of the stream, and what it is called in one version; None: it is not there yet."""

    name: str
    source: str | None


def columns_at(
    dataset: lance.LanceDataset, head: lance.LanceDataset, names: Sequence[str], table: str
) -> tuple[Column, ...]:
    """Return where the columns of a stream are found in a version.

    Columns added since are null in it, and renamed ones are found under their old name.

    Raises:
        TableColumnNotFoundError: a column was dropped or renamed since the stream began.
    """
    here = ROW_NUMBERS | set(dataset.schema.names)
    return tuple(
        Column(name, name if name in here else _earlier_name(dataset, head, name, table)) for name in names
    )


def _earlier_name(dataset: lance.LanceDataset, head: lance.LanceDataset, name: str, table: str) -> str | None:
    if name not in head.schema.names:
        raise TableColumnNotFoundError(
            f"column '{name}' of {table} was dropped or renamed in version {dataset.version} or earlier; "
            "restart the query with the table's current columns"
        )
    number = head.lance_schema.field(name).id()
    for each in dataset.lance_schema.fields():
        if each.id() == number:
            return str(each.name())
    return None
