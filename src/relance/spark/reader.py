"""The batch reader that Spark calls: plans once on the driver, then reads a split in each task."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from relance.catalog.context import shared_context
from relance.errors import TableColumnNotFoundError, UnsupportedOperationError
from relance.lance_io import TableRef
from relance.operations.data.expressions import check_expressions
from relance.operations.data_errors import data_errors
from relance.operations.pinned import Moment, pin_path, pin_table
from relance.spark.address import PathAddress
from relance.spark.options import ReadOptions
from relance.spark.planning import bytes_per_row, plan_read
from relance.spark.scan import ROW_ADDRESS, ROW_ID, Scan, open_once
from relance.spark.splits import Split
from relance.spark.types import ToSpark, reader_schema, spark_schema
from relance.spark.widths import batch_rows


@dataclass(frozen=True)
class SplitPartition(InputPartition):
    """A split on its way to a task."""

    split: Split


def pin(options: ReadOptions) -> TableRef:
    """Return the one version of the table that all tasks read.

    Raises:
        TableNotFoundError: there is no such table; if it was dropped, the message says how to undrop it.
        TableVersionNotFoundError, TableTagNotFoundError, TableBranchNotFoundError: not that one.
    """
    moment = Moment(options.version, options.tag, options.timestamp, options.branch)
    if isinstance(options.address, PathAddress):
        return pin_path(options.address.uri, options.address.storage_options, moment)
    return pin_table(shared_context(options.address.properties), options.address.parts, moment)


def schema_of(table: TableRef, options: ReadOptions) -> StructType:
    """Return the Spark schema of what the options ask for.

    Raises:
        TableColumnNotFoundError: a column is not there.
        UnsupportedOperationError: Spark cannot read the type of a column.
        InvalidInputError: the filter cannot be used.
    """
    dataset = open_once(table)
    columns = list(dataset.schema.names if options.columns is None else options.columns)
    for name, wanted in ((ROW_ID, options.with_row_id), (ROW_ADDRESS, options.with_row_address)):
        if wanted and name not in columns:
            columns.append(name)
    return spark_schema(_scan(table, tuple(columns), options).schema(dataset))


class LanceReader(DataSourceReader):
    """Reads one version of a table.

    It has no pushFilters on purpose: Spark keeps what it pushed for one use of a relation and applies
    it to the next one too. A filter is an option, so that each load has its own.
    """

    def __init__(self, table: TableRef, options: ReadOptions, schema: StructType) -> None:
        """Check that the table has what Spark asks for.

        Raises:
            TableColumnNotFoundError: a column is not there.
            TableSchemaValidationError: a column would not keep its values in the type that is asked for.
            InvalidInputError: the filter cannot be used.
        """
        dataset = open_once(table)
        self._options = options
        self._scan = _scan(table, tuple(schema.fieldNames()), options)
        self._cast = ToSpark(self._scan.schema(dataset), reader_schema(schema))

    def partitions(self) -> Sequence[InputPartition]:
        """Return what each task reads."""
        table = self._scan.table
        with _errors(table):
            splits = plan_read(open_once(table), self._scan, self._options)
        return [SplitPartition(each) for each in splits]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a split."""
        if isinstance(partition, SplitPartition):  # Spark makes one of its own when there is none
            yield from map(self._cast, self._scan.batches(partition.split))


def _errors(table: TableRef) -> AbstractContextManager[None]:
    return data_errors(f"table id '{table.id}'", dict(table.storage_options))


def _scan(table: TableRef, columns: tuple[str, ...], options: ReadOptions) -> Scan:
    dataset = open_once(table)
    known = [*dataset.schema.names, ROW_ID, ROW_ADDRESS]
    for name in columns:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
            columns_are = f"its columns are {', '.join(dataset.schema.names)}"
            hint = f"did you mean '{near[0]}'?" if near else columns_are
            raise TableColumnNotFoundError(f"column '{name}' of table id '{table.id}': {hint}")
        if "`" in name:
            raise UnsupportedOperationError(
                f"column '{name}' of table id '{table.id}': Lance cannot find names with a backtick; "
                "rename it or list the other columns in option 'columns'"
            )
    if options.filter is not None:
        check_expressions([options.filter])
        with _errors(table):
            dataset.scanner(filter=options.filter).explain_plan()  # fails here rather than in a task
    scan = Scan(table, columns, options.filter, batch_size=1)
    return replace(scan, batch_size=options.batch_size or batch_rows(bytes_per_row(dataset, scan)))
