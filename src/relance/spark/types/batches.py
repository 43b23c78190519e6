"""Cast whole batches: from a table to Spark, and from Spark to a table. One array is in arrays."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.types import StructType

from relance.errors import TableColumnNotFoundError, TableSchemaValidationError
from relance.spark.types.arrays import Cast, check_nulls, find_child, is_blob_type, plan_cast
from relance.spark.types.paths import below
from relance.spark.types.reading import BLOB_KEY, is_blob
from relance.spark.types.writing import lance_schema


@dataclass(frozen=True, slots=True)
class _Column:
    """How one column of the result comes about."""

    field: pa.Field
    path: str
    index: int
    cast: Cast | None

    def of(self, batch: pa.RecordBatch) -> pa.Array:
        array = batch.column(self.index)
        check_nulls(array, self.field, self.path)
        return array if self.cast is None else self.cast(array)


class _Batches:
    """Batches of one schema in, batches of another one out; pickled as the two schemas."""

    def __init__(self, given: pa.Schema, target: pa.Schema, columns: list[_Column]) -> None:
        self._given = given
        self._target = target
        self._columns = columns
        self.schema = pa.schema([column.field for column in columns])

    def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the batch with exactly the names, types and nullability of `schema`.

        Raises:
            TableSchemaValidationError: a value of a column, which is named, would be lost.
        """
        if not self._columns:
            return batch.select([])  # keeps the number of rows
        return pa.RecordBatch.from_arrays([each.of(batch) for each in self._columns], schema=self.schema)

    def __reduce__(self) -> tuple[type[_Batches], tuple[pa.Schema, pa.Schema]]:
        return (type(self), (self._given, self._target))


class ToSpark(_Batches):
    """Casts what a scanner gives, blobs as binary, to what Spark demands; other columns are left out."""

    def __init__(self, given: pa.Schema, target: pa.Schema) -> None:
        """Plan the casts.

        Raises:
            TableColumnNotFoundError: Spark asks for a column that is not there.
            TableSchemaValidationError: it asks for a type that does not hold all values of the column.
            UnsupportedOperationError: Spark cannot read the type of the column.
        """
        there = {name: index for index, name in enumerate(given.names)}
        columns = []
        for field in target:
            path = below("", field.name)
            if not find_child(there, field.name, path):
                raise TableColumnNotFoundError(
                    f"column '{path}' is not in the table; its columns are: {', '.join(given.names)}"
                )
            index = there[field.name]
            cast = plan_cast(given.field(index).type, field.type, path, writing=False)
            columns.append(_Column(field, path, index, cast))
        super().__init__(given, target, columns)


class ToLance(_Batches):
    """Casts what Spark sends to the schema of a table; columns that are not sent are left out.

    Write fragments with `schema`, which says of blob columns what Lance wants to be told.
    """

    def __init__(self, given: pa.Schema, target: pa.Schema) -> None:
        """Plan the casts.

        Raises:
            TableSchemaValidationError: a column is unknown, is missing and takes no nulls, or has a type
                that does not fit without loss.
            UnsupportedOperationError: a column has a type that does not come from Spark.
        """
        known = {field.name: field for field in target}
        there = {name: index for index, name in enumerate(given.names)}
        for name in there:
            if not find_child(known, name, below("", name)):
                raise TableSchemaValidationError(
                    f"column '{below('', name)}' is not in the table; its columns are: {', '.join(known)}. "
                    "Leave it out or add it first"
                )
        columns = []
        for field in target:
            path, index = below("", field.name), there.get(field.name)
            if index is not None:
                wanted = _written(field)
                cast = plan_cast(given.field(index).type, wanted.type, path, writing=True)
                columns.append(_Column(wanted, path, index, cast))
            elif not field.nullable:
                raise TableSchemaValidationError(
                    f"column '{path}' is missing and not nullable in the table; add it to the rows"
                )
        super().__init__(given, target, columns)


def check_append(incoming: StructType, existing: pa.Schema) -> None:
    """Check before any work that rows of `incoming` can go into a table of schema `existing`.

    Nulls in columns that take none, sizes of vectors and values out of range show only in the rows.

    Raises:
        TableSchemaValidationError: a column is unknown, is missing and takes no nulls, has its name in
            another case, or has a type that does not fit without loss.
        UnsupportedOperationError: a column has a type that a table cannot keep.
    """
    ToLance(lance_schema(incoming, vectors={}), existing)


def _written(field: pa.Field) -> pa.Field:
    """Return the field as a writer has to give it: blobs as marked binary, the rest as it is."""
    if is_blob(field):
        return pa.field(field.name, pa.large_binary(), field.nullable, metadata={BLOB_KEY: "true"})
    return field.with_type(_written_type(field.type))


def _written_type(arrow: pa.DataType) -> pa.DataType:
    if pa.types.is_struct(arrow) and any(_holds_blob(field) for field in arrow):
        return pa.struct([_written(field) for field in arrow])
    return arrow


def _holds_blob(field: pa.Field) -> bool:
    if pa.types.is_struct(field.type):
        return any(_holds_blob(each) for each in field.type)
    return is_blob_type(field.type)
