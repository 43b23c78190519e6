"""What a task of a stream does: it reads rows of versions and gives them the columns of the stream."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

import lance
import pyarrow as pa
import pyarrow.compute as pc

from relance.config import StorageOptions
from relance.errors import TableVersionNotFoundError
from relance.lance_io import checkout, open_at
from relance.operations.data_errors import data_errors
from relance.spark.streaming.columns import (
    CHANGE_TYPE,
    COMMIT_VERSION,
    ROW_CREATED,
    ROW_NUMBERS,
    ROW_UPDATED,
)
from relance.spark.streaming.history import gone
from relance.spark.streaming.planning import Reading
from relance.spark.types import ToSpark

INSERT = "insert"
UPDATE = "update"


@dataclass(frozen=True, slots=True)
class RowSource:
    """A table as tasks find it, and what they read of it."""

    table: str
    """How messages call it."""
    uri: str
    options: StorageOptions
    target: pa.Schema
    """The columns of the stream, as Spark wants them."""
    filter: str | None
    batch_size: int | None


def check_columns(source: RowSource, reading: Reading) -> None:
    """Check that the columns of a version can be given to the stream.

    Raises:
        TableSchemaValidationError: a column changed to a type that does not fit.
    """
    scanner = _scanner(source, reading)
    ToSpark(_given(source, reading, scanner.projected_schema), source.target)


def read_rows(source: RowSource, reading: Reading) -> Iterator[pa.RecordBatch]:
    """Yield the rows as Spark wants them.

    Raises:
        TableVersionNotFoundError: the version was cleaned up.
    """
    with data_errors(source.table, source.options):
        scanner = _scanner(source, reading)
        given = _given(source, reading, scanner.projected_schema)
        to_spark = ToSpark(given, source.target)
        for batch in scanner.to_batches():
            if batch.num_rows:
                columns = [_column(batch, field, reading) for field in given]
                yield to_spark(pa.RecordBatch.from_arrays(columns, schema=given))


def _scanner(source: RowSource, reading: Reading) -> lance.LanceScanner:
    dataset = _open(source.uri, tuple(source.options.items()), source.table, reading.version)
    columns = [each.source for each in reading.columns if each.source is not None]
    # The line break ends a comment that the filter may end with.
    conditions = [f"({source.filter}\n)"] if source.filter else []
    if reading.updated_after is not None:
        columns.append(ROW_CREATED)
        conditions.append(f"{ROW_UPDATED} > {reading.updated_after}")
    return dataset.scanner(
        columns=columns,
        with_row_id=not columns,  # a scan needs a column, also when all of them are younger
        filter=" AND ".join(conditions) or None,
        fragments=[dataset.get_fragment(each.fragment) for each in reading.pieces],
        batch_size=source.batch_size,
        blob_handling="all_binary",
    )


@lru_cache(maxsize=16)
def _open(uri: str, options: tuple[tuple[str, str], ...], table: str, version: int) -> lance.LanceDataset:
    dataset = open_at(uri, dict(options), table)
    try:
        return checkout(dataset, version, f"version {version} of {table}")
    except TableVersionNotFoundError as cause:
        raise gone(dataset, version, table) from cause


def _given(source: RowSource, reading: Reading, scanned: pa.Schema) -> pa.Schema:
    """Return the schema of the batches before they are cast, under the stream's names."""
    sources = {each.name: each.source for each in reading.columns}
    fields = []
    for field in source.target:
        origin = sources.get(field.name)
        is_own = origin is None or origin in ROW_NUMBERS
        fields.append(field if is_own else scanned.field(origin).with_name(field.name))
    return pa.schema(fields)


def _column(batch: pa.RecordBatch, field: pa.Field, reading: Reading) -> pa.Array:
    if field.name == COMMIT_VERSION:
        return pa.array([reading.version], field.type).take(_zeros(batch))
    if field.name == CHANGE_TYPE:
        return _change_types(batch, reading)
    origin = next(each.source for each in reading.columns if each.name == field.name)
    if origin is None:
        return pa.nulls(batch.num_rows, field.type)
    # Lance counts rows without a sign, which Spark has not.
    return batch.column(origin).cast(pa.int64()) if origin in ROW_NUMBERS else batch.column(origin)


def _change_types(batch: pa.RecordBatch, reading: Reading) -> pa.Array:
    if reading.updated_after is None:
        return pa.array([INSERT]).take(_zeros(batch))
    is_new = pc.greater(batch.column(ROW_CREATED), reading.updated_after)
    return pc.if_else(is_new, INSERT, UPDATE)


def _zeros(batch: pa.RecordBatch) -> pa.Array:
    return pa.repeat(pa.scalar(0, pa.int32()), batch.num_rows)
