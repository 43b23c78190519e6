"""The streaming source: new versions of a table, as micro-batches.

What to read is planned in planning, and read in rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxFiles,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from relance.errors import UnsupportedOperationError
from relance.spark.options import StreamOptions
from relance.spark.streaming.columns import CHANGE_COLUMNS
from relance.spark.streaming.offsets import START, from_offset, to_offset
from relance.spark.streaming.planning import ROWS_PER_TASK, Reading, StreamPlanner, tasks_of
from relance.spark.streaming.rows import RowSource, check_columns, read_rows
from relance.spark.types import reader_schema


class Task(InputPartition):
    """What one task reads."""

    def __init__(self, source: RowSource, readings: tuple[Reading, ...]) -> None:
        super().__init__(None)
        self.source = source
        self.readings = readings


class LanceStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads the table as it is first, then what each new version adds."""

    def __init__(self, options: StreamOptions, schema: StructType) -> None:
        """Prepare to read; nothing is opened yet.

        Raises:
            UnsupportedOperationError: another branch than the main one is asked for.
        """
        if options.read.branch not in (None, "main"):
            raise UnsupportedOperationError(
                f"cannot stream branch '{options.read.branch}': streams read only the main branch; "
                "leave out option 'branch'"
            )
        self._options = options
        self._schema = schema
        names = [field.name for field in schema if field.name not in CHANGE_COLUMNS]
        self._planner = StreamPlanner(options, names)

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802  Spark gives the name
        return dict(START)

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802  Spark gives the name
        # Spark hands one limit back. Only whether there is one matters: both options count.
        if self._options.max_rows_per_batch is not None:
            return ReadMaxRows(self._options.max_rows_per_batch)
        if self._options.max_versions_per_batch is not None:
            return ReadMaxFiles(self._options.max_versions_per_batch)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802  Spark gives the name
        self._planner.stop_at_latest()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802  Spark gives the name
        limited = not isinstance(limit, ReadAllAvailable)
        return to_offset(self._planner.advance(from_offset(start), limited=limited))

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        readings = self._planner.readings(from_offset(start), from_offset(end))
        if not readings:
            return []
        source = self._source()
        for reading in {each.shape: each for each in readings}.values():
            check_columns(source, reading)  # one of each kind tells for all
        rows = self._options.read.split_rows or ROWS_PER_TASK
        return [Task(source, each) for each in tasks_of(readings, rows_per_task=rows)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Task)
        for reading in partition.readings:
            yield from read_rows(partition.source, reading)

    def _source(self) -> RowSource:
        table = self._planner.table()
        read = self._options.read
        return RowSource(
            table=table.name,
            uri=table.uri,
            options=table.options,
            target=reader_schema(self._schema),
            filter=read.filter,
            batch_size=read.batch_size,
        )
