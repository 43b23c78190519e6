"""Merging few keys with Spark's tasks: what matches goes through the driver, and Spark joins nothing.

Three rounds: tasks look the keys up in fragments of the table; what they find is sent to all; then tasks
write the new rows, and others, at the same time, delete those that they replace. Spark's own join of the
same rows would turn all of them into rows of the JVM and back, and wait for two more stages.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from pyspark import Broadcast, SparkContext
from pyspark.sql import DataFrame

from relance.maintenance.merging.key_lookup import KeyIndex, gathered
from relance.maintenance.merging.merge_commit import Work
from relance.maintenance.merging.merge_here import (
    ROW_ADDRESS,
    columns_to_read,
    keys_of,
    match,
    new_rows,
    no_rows,
    scan,
    why_not_here,
)
from relance.maintenance.merging.merge_plan import MergePlan
from relance.maintenance.merging.merge_tasks import NewRows, delete_offsets, offsets_of, write_rows
from relance.maintenance.merging.merges import Counts
from relance.spark.classic import parallelism, spark_context
from relance.spark.merge_place import as_in_table
from relance.spark.merge_tasks import (
    FRAGMENTS_FOR_A_TASK,
    RECORD,
    packed,
    touched_record,
    work_of,
    written_records,
)
from relance.spark.scan import open_once
from relance.spark.types import ToLance
from relance.spark.widths import row_width

_MOST_BYTES = 64 << 20
"""What may match is sent to all executors up to this size."""

_ROWS_FOR_A_TASK = 20_000_000
"""A task looks up some ten million keys in a second."""

_FOUND = "rows binary"
"""What a task that looks up hands on: rows as a stream of Arrow; nothing when they are too many."""


@dataclass(frozen=True)
class FewKeys:
    """Merges a DataFrame whose keys are here."""

    rows: DataFrame
    keys: pa.Table

    def can(self, plan: MergePlan) -> bool:
        """Tell whether a plan can be carried out like this; what cannot is left to Spark's join."""
        # Replaced rows that keep their ids come first in a file, so these rows have to be sorted.
        if plan.clauses.delete or plan.stable_row_ids or why_not_here(plan) is not None:
            return False
        names = columns_to_read(plan, self.rows.columns)
        read = pa.schema([plan.write.schema.field(name) for name in names])
        return bool(self.keys.num_rows * (row_width(read) + 8) <= _MOST_BYTES)

    def count(self, plan: MergePlan) -> Counts | None:
        """Return how many rows the merge would touch; None when too many match to be sent."""
        found = self._found(plan)
        if found is None:
            return None
        numbers = KeyIndex(as_in_table(self.keys, plan.write.schema)).find(keys_of(plan, found))[1]
        inserted = self.rows.count() - len(np.unique(numbers)) if plan.clauses.insert else 0
        return Counts(found.num_rows if plan.clauses.update else 0, inserted, 0)

    def work(self, plan: MergePlan) -> Work | None:
        """Write and delete; None when too many match to be sent, and nothing was written."""
        found = self._found(plan)
        if found is None:
            return None
        context = self._context
        with _sent(context, found) as sent:
            records = self.rows.mapInArrow(_Write(plan, sent), RECORD)
            if plan.clauses.update and found.num_rows:
                fragments = np.unique(found[ROW_ADDRESS].to_numpy().astype(np.int64) >> 32)
                tasks = max(1, min(len(fragments), context.defaultParallelism))
                tasks = max(tasks, len(fragments) // FRAGMENTS_FOR_A_TASK)
                parts = tuple(map(tuple, np.array_split(fragments, tasks)))
                numbers = self.rows.sparkSession.range(0, tasks, 1, tasks)
                records = numbers.mapInArrow(_Delete(plan, sent, parts), RECORD).union(records)
            return work_of(tuple(each) for each in records.collect())

    def _found(self, plan: MergePlan) -> pa.Table | None:
        """Return keys, addresses and kept columns of the rows of the table that match."""
        names = columns_to_read(plan, self.rows.columns)
        fragments = [each.fragment_id for each in open_once(plan.table).get_fragments()]
        slots = parallelism(self.rows.sparkSession) or 1
        tasks = max(1, min(len(fragments), max(slots, plan.rows // _ROWS_FOR_A_TASK)))
        parts = tuple(map(tuple, np.array_split(np.array(fragments, np.int64), tasks)))
        with _sent(self._context, as_in_table(self.keys, plan.write.schema)) as sent:
            numbers = self.rows.sparkSession.range(0, tasks, 1, tasks)
            found = numbers.mapInArrow(_Find(plan, sent, parts, tuple(names)), _FOUND).collect()
        if any(row[0] is None for row in found):
            return None
        return pa.concat_tables([no_rows(plan, [*names, ROW_ADDRESS]), *(_read(row[0]) for row in found)])

    @property
    def _context(self) -> SparkContext:
        context = spark_context(self.rows.sparkSession)
        assert context is not None, "keys are collected only from a session that can send them back"
        return context


@contextmanager
def _sent(context: SparkContext, rows: pa.Table) -> Iterator[Broadcast[bytes]]:
    """Send rows to all executors for the block."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write_table(rows)
    sent = context.broadcast(sink.getvalue().to_pybytes())
    try:
        yield sent
    finally:
        sent.destroy()


def _read(stream: bytes) -> pa.Table:
    return pa.ipc.open_stream(pa.py_buffer(stream)).read_all()


@dataclass(frozen=True)
class _Find:
    """Looks the keys up in fragments of the table."""

    plan: MergePlan
    keys: Broadcast[bytes]
    parts: Sequence[tuple[int, ...]]
    columns: tuple[str, ...]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        keys = _read(self.keys.value)
        index = KeyIndex(keys)
        dataset = open_once(self.plan.table)
        for number in _numbers(batches):
            fragments = [dataset.get_fragment(int(each)) for each in self.parts[number]]
            if fragments:
                heaps = scan(self.plan, dataset, self.columns, index, fragments=fragments)
                yield _answer(self._matching(heaps, index, most=2 * keys.num_rows))

    def _matching(self, heaps: Iterator[pa.Table], index: KeyIndex, *, most: int) -> pa.Table | None:
        found, rows = [no_rows(self.plan, [*self.columns, ROW_ADDRESS])], 0
        for heap in heaps:
            hits, _ = index.find(keys_of(self.plan, heap))
            found.append(heap.take(pa.array(hits)))
            rows += found[-1].num_rows
            if rows > most:  # many rows of the table have one key
                return None
        return pa.concat_tables(found)


def _answer(rows: pa.Table | None) -> pa.RecordBatch:
    if rows is None:
        return pa.record_batch({"rows": pa.nulls(1, pa.binary())})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write_table(rows)
    return pa.record_batch({"rows": pa.array([sink.getvalue().to_pybytes()], pa.binary())})


@dataclass(frozen=True)
class _Write:
    """Writes new rows, and counts those that take the place of others."""

    plan: MergePlan
    found: Broadcast[bytes]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        written = write_rows(self.plan, self._rows(batches))
        if written.updated or written.inserted:
            yield packed(written_records(written))

    def _rows(self, batches: Iterator[pa.RecordBatch]) -> Iterator[NewRows]:
        plan, found = self.plan, _read(self.found.value)
        for heap in gathered(_as_in_table(plan, batches)):
            index = KeyIndex(heap.select(list(plan.on)))
            yield from new_rows(plan, heap, match(plan, heap, index, [found]))


def _as_in_table(plan: MergePlan, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    convert: ToLance | None = None
    for batch in batches:
        if batch.num_rows:
            names = batch.schema.names
            schema = pa.schema([each for each in plan.write.schema if each.name in names])
            convert = convert or ToLance(batch.schema, schema)
            yield convert(batch)


@dataclass(frozen=True)
class _Delete:
    """Deletes what matched in some fragments."""

    plan: MergePlan
    found: Broadcast[bytes]
    parts: Sequence[tuple[int, ...]]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        addresses = _read(self.found.value)[ROW_ADDRESS].to_numpy().astype(np.int64)
        dataset = open_once(self.plan.table)
        for number in _numbers(batches):
            own = addresses[np.isin(addresses >> 32, self.parts[number])]
            for fragment, offsets in offsets_of(own).items():
                yield packed([touched_record(delete_offsets(self.plan, dataset, fragment, offsets))])


def _numbers(batches: Iterator[pa.RecordBatch]) -> Iterator[int]:
    for batch in batches:
        yield from batch.column(0).to_pylist()
