"""Merging few keys with Spark's tasks: what matches goes through the driver, and Spark joins nothing.

Tasks look the keys up in fragments of the table, and others, at the same time, write the new rows; then
the rows that they replace are deleted, by the driver if that is little work. New rows that need something
of what they replace are written after that is found and was sent to all. Spark's own join of the same rows
would turn all of them into rows of the JVM and back, and wait for two more stages.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
from pyspark import Broadcast, SparkContext
from pyspark.sql import DataFrame

from relance.catalog.context import Context
from relance.errors import InternalError
from relance.jobs.merging.key_lookup import KeyIndex, Numbers, gathered
from relance.jobs.merging.merge_commit import Work, discard
from relance.jobs.merging.merge_here import (
    ROW_ADDRESS,
    columns_to_read,
    each_once,
    is_each_written,
    keys_of,
    match,
    new_rows,
    no_rows,
    scan,
    start_deleting,
    threads,
    why_not_here,
)
from relance.jobs.merging.merge_plan import MergePlan
from relance.jobs.merging.merge_tasks import (
    NewRows,
    Touched,
    delete_offsets,
    offsets_of,
    write_rows,
)
from relance.jobs.merging.merges import Counts
from relance.spark.classic import parallelism, spark_context
from relance.spark.merge_place import as_in_table
from relance.spark.merge_tasks import (
    FRAGMENTS_FOR_A_TASK,
    RECORD,
    Record,
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

_NUMBER = "number of the new row"
"""The column that says which of the keys a row of the table has."""

_FOUND = "found"
"""The kind of a record with rows that match, as a stream of Arrow."""
_TOO_MANY = "too many"
"""The kind of one that says that there are too many."""


@dataclass(frozen=True)
class FewKeys:
    """Merges a DataFrame whose keys are here."""

    context: Context
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
        found, _ = self._find(plan, kept=[])
        if found is None:
            return None
        inserted = self.rows.count() - len(np.unique(found[_NUMBER])) if plan.clauses.insert else 0
        return Counts(found.num_rows if plan.clauses.update else 0, inserted, 0)

    def work(self, plan: MergePlan) -> Work | None:
        """Write and delete; None when it is to be left to Spark's join, and nothing was written."""
        given = [name for name in plan.write.schema.names if name in self.rows.columns]
        if not is_each_written(plan, given):
            return self._work_later(plan)
        found, records = self._find(plan, kept=[], write=True)
        done = work_of(records)
        if found is None or _is_repeated(found):
            discard(self.context, plan, done)
            return None
        if done.inserted != self.keys.num_rows:
            discard(self.context, plan, done)
            raise InternalError(
                f"{done.inserted} new rows were written, but {self.keys.num_rows} looked up: "
                "the source is not deterministic"
            )
        updated = found.num_rows
        return self._with_deletions(
            plan, replace(done, updated=updated, inserted=done.inserted - updated), found
        )

    def _work_later(self, plan: MergePlan) -> Work | None:
        """Write the rows after it is known what they replace."""
        found, _ = self._find(plan, kept=columns_to_read(plan, self.rows.columns))
        if found is None:
            return None
        with _sent(self._spark, found) as sent:
            done = work_of(_collect(self.rows.mapInArrow(_Write(plan, sent), RECORD)))
        return self._with_deletions(plan, done, found) if plan.clauses.update else done

    def _with_deletions(self, plan: MergePlan, done: Work, found: pa.Table) -> Work:
        touched = self._delete(plan, found)
        gone = sum(each.rows for each in touched)
        return replace(done, touched=touched, deleted=gone - done.updated)

    def _delete(self, plan: MergePlan, found: pa.Table) -> tuple[Touched, ...]:
        """Delete the rows that matched: here, or by tasks if they are in many fragments."""
        addresses = _addresses(found)
        fragments = np.unique(addresses >> 32)
        if len(fragments) <= FRAGMENTS_FOR_A_TASK:
            with threads() as pool:
                return tuple(each.result() for each in start_deleting(pool, plan, addresses))
        tasks = max(self._spark.defaultParallelism, len(fragments) // FRAGMENTS_FOR_A_TASK)
        parts = tuple(map(tuple, np.array_split(fragments, tasks)))
        with _sent(self._spark, found.select([ROW_ADDRESS])) as sent:
            numbers = self.rows.sparkSession.range(0, tasks, 1, tasks)
            return work_of(_collect(numbers.mapInArrow(_Delete(plan, sent, parts), RECORD))).touched

    def _find(
        self, plan: MergePlan, *, kept: Sequence[str], write: bool = False
    ) -> tuple[pa.Table | None, list[Record]]:
        """Return the rows of the table that match: address, number of the new row, and columns to keep.

        None when they are too many to be sent. With `write` the new rows are written as they are meanwhile,
        and the records of that are returned as well.
        """
        fragments = [each.fragment_id for each in open_once(plan.table).get_fragments()]
        slots = parallelism(self.rows.sparkSession) or 1
        tasks = max(1, min(len(fragments), max(slots, plan.rows // _ROWS_FOR_A_TASK)))
        parts = tuple(map(tuple, np.array_split(np.array(fragments, np.int64), tasks)))
        with _sent(self._spark, as_in_table(self.keys, plan.write.schema)) as sent:
            numbers = self.rows.sparkSession.range(0, tasks, 1, tasks)
            finding = _Find(plan, sent, parts, tuple(kept or plan.on), (*kept, ROW_ADDRESS))
            work = numbers.mapInArrow(finding, RECORD)
            if write:
                work = work.union(self.rows.mapInArrow(_Write(plan, None), RECORD))
            records = _collect(work)
        others = [each for each in records if each[0] not in (_FOUND, _TOO_MANY)]
        if any(each[0] == _TOO_MANY for each in records):
            return None, others
        streams = [_read(each[4]) for each in records if each[0] == _FOUND]
        return pa.concat_tables([_nothing_found(plan, (*kept, ROW_ADDRESS)), *streams]), others

    @property
    def _spark(self) -> SparkContext:
        context = spark_context(self.rows.sparkSession)
        assert context is not None, "keys are collected only from a session that can send them back"
        return context


@contextmanager
def _sent(context: SparkContext, rows: pa.Table) -> Iterator[Broadcast[bytes]]:
    """Send rows to all executors for the block."""
    sent = context.broadcast(_stream(rows))
    try:
        yield sent
    finally:
        sent.destroy()


def _collect(records: DataFrame) -> list[Record]:
    return [(each[0], each[1], each[2], each[3], bytes(each[4])) for each in records.collect()]


def _read(stream: bytes) -> pa.Table:
    return pa.ipc.open_stream(pa.py_buffer(stream)).read_all()


def _stream(rows: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write_table(rows)
    stream: bytes = sink.getvalue().to_pybytes()
    return stream


def _addresses(found: pa.Table) -> Numbers:
    addresses: Numbers = found[ROW_ADDRESS].to_numpy().astype(np.int64)
    return addresses


def _is_repeated(found: pa.Table) -> bool:
    """Tell whether a new row replaces several rows: then it is written as often."""
    return found.num_rows > 0 and int(np.bincount(found[_NUMBER].to_numpy()).max()) > 1


def _nothing_found(plan: MergePlan, names: Sequence[str]) -> pa.Table:
    return no_rows(plan, names).append_column(_NUMBER, pa.array([], pa.int32()))


@dataclass(frozen=True)
class _Find:
    """Looks the keys up in fragments of the table."""

    plan: MergePlan
    keys: Broadcast[bytes]
    parts: Sequence[tuple[int, ...]]
    columns: tuple[str, ...]
    """Of the table, to be read: the key is among them."""
    kept: tuple[str, ...]
    """Of what was read, those that are handed on."""

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        keys = _read(self.keys.value)
        index = KeyIndex(keys)
        dataset = open_once(self.plan.table)
        for number in _numbers(batches):
            fragments = [dataset.get_fragment(int(each)) for each in self.parts[number]]
            if fragments:
                heaps = scan(self.plan, dataset, self.columns, index, fragments=fragments)
                found = self._matching(heaps, index, most=2 * keys.num_rows)
                yield packed([(_TOO_MANY if found is None else _FOUND, number, 0, 0, found or b"")])

    def _matching(self, heaps: Iterator[pa.Table], index: KeyIndex, *, most: int) -> bytes | None:
        found, rows = [_nothing_found(self.plan, self.kept)], 0
        for heap in heaps:
            hits, numbers = index.find(keys_of(self.plan, heap))
            taken = heap.select(list(self.kept)).take(pa.array(hits))
            found.append(taken.append_column(_NUMBER, pa.array(numbers.astype(np.int32))))
            rows += len(hits)
            if rows > most:  # many rows of the table have one key
                return None
        return _stream(pa.concat_tables(found))


@dataclass(frozen=True)
class _Write:
    """Writes new rows, and counts those that take the place of others."""

    plan: MergePlan
    found: Broadcast[bytes] | None
    """What matches; None when the rows are written as they are."""

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        written = write_rows(self.plan, self._rows(batches))
        if written.updated or written.inserted:
            yield packed(written_records(written))

    def _rows(self, batches: Iterator[pa.RecordBatch]) -> Iterator[NewRows]:
        plan, found = self.plan, None if self.found is None else _read(self.found.value)
        for heap in gathered(_as_in_table(plan, batches)):
            if found is None:
                yield from each_once(heap)
            else:
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
        addresses = _addresses(_read(self.found.value))
        dataset = open_once(self.plan.table)
        for number in _numbers(batches):
            own = addresses[np.isin(addresses >> 32, self.parts[number])]
            for fragment, offsets in offsets_of(own).items():
                yield packed([touched_record(delete_offsets(self.plan, dataset, fragment, offsets))])


def _numbers(batches: Iterator[pa.RecordBatch]) -> Iterator[int]:
    for batch in batches:
        yield from batch.column(0).to_pylist()
