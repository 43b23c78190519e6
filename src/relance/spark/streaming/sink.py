"""The streaming sink: each micro-batch becomes one version, once. What decides about it is in progress."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from relance.catalog.context import shared_context
from relance.errors import InternalError
from relance.operations.staging.plan import WriteMode, WritePlan, plan_write
from relance.operations.staging.tasks import write_batches
from relance.spark.options import WriteOptions
from relance.spark.streaming.progress import abort_once, commit_once
from relance.spark.writer import catalog_address, converted, write_request

_QUERY_ID = "sql.streaming.queryId"


@dataclass(frozen=True)
class Staged(WriterCommitMessage):
    """What one task wrote, and all that the commit needs: the writer that commits is another object."""

    plan: WritePlan
    query: str
    fragments: tuple[str, ...]


class LanceStreamWriter(DataSourceStreamArrowWriter):
    """A streaming write. Spark makes one for the tasks of each micro-batch, and another one to commit it."""

    def __init__(self, options: WriteOptions, schema: StructType, *, overwrite: bool) -> None:
        """Plan the write of a micro-batch: whatever can be refused is refused here, before any work.

        Raises:
            TableNotFoundError: rows are to be appended to a dropped table.
            TableSchemaValidationError: the rows do not fit the table.
            UnsupportedOperationError: a column cannot be written without loss.
        """
        mode = WriteMode.OVERWRITE if overwrite else WriteMode.APPEND
        self._address = catalog_address(options)
        self._plan = plan_write(
            shared_context(self._address.properties), write_request(options, schema, mode)
        )

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Staged:
        """Write the rows of one task."""
        fragments = write_batches(self._plan, converted(iterator, self._plan))
        return Staged(self._plan, _query_id(), fragments)

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803  Spark gives the name
        """Make one version of what all tasks wrote, unless an earlier run of the query did."""
        batch = _Batch.of(messages)
        if batch is not None:  # without a task there was no row
            context = shared_context(self._address.properties)
            commit_once(context, batch.plan, batch.fragments, query=batch.query, batch=batchId)

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Remove the files of a micro-batch of which a task or the commit failed, if that is safe."""
        batch = _Batch.of(messages)
        if batch is not None:
            context = shared_context(self._address.properties)
            abort_once(context, batch.plan, batch.fragments, query=batch.query, batch=batchId)


@dataclass(frozen=True, slots=True)
class _Batch:
    """What the tasks of a micro-batch wrote together."""

    plan: WritePlan
    query: str
    fragments: list[str]

    @classmethod
    def of(cls, messages: Sequence[WriterCommitMessage | None]) -> _Batch | None:
        staged = [each for each in messages if isinstance(each, Staged)]
        if not staged:
            return None
        if any(each.plan.job != staged[0].plan.job for each in staged):
            raise InternalError("the tasks of one micro-batch have different plans")
        fragments = [fragment for each in staged for fragment in each.fragments]
        return cls(staged[0].plan, staged[0].query, fragments)


def _query_id() -> str:
    task = TaskContext.get()
    found = None if task is None else task.getLocalProperty(_QUERY_ID)
    if not found:
        raise InternalError("Spark did not report a task's query id, so repeated batches go undetected")
    return str(found)
