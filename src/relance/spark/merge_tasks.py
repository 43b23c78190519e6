"""The tasks of a merge as Spark runs them: over batches of Arrow, from one stage to the next."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from pyspark import TaskContext

from relance.jobs.merging.merge_commit import Work
from relance.jobs.merging.merge_plan import MergePlan
from relance.jobs.merging.merge_tasks import (
    NewRows,
    Offsets,
    Touched,
    Written,
    delete_offsets,
    offsets_of,
    write_rows,
)
from relance.spark.scan import ROW_ADDRESS, ROW_ID, open_once
from relance.spark.types import ToLance

RECORD = "kind string, fragment bigint, rows bigint, inserted bigint, payload binary"
"""What tasks hand on.

`written`: a fragment of new rows, its metadata as payload. `counts`: how many rows a task wrote.
`delete`: rows to be deleted, their offsets as payload. `touched`: a fragment of which rows were deleted,
its metadata as payload, empty when no row is left.
"""

FRAGMENTS_FOR_A_TASK = 16
"""To delete rows of a fragment takes some 10 ms, to start a task some 50."""

_SCHEMA = pa.schema(
    [
        ("kind", pa.string()),
        ("fragment", pa.int64()),
        ("rows", pa.int64()),
        ("inserted", pa.int64()),
        ("payload", pa.binary()),
    ]
)

Record = tuple[str, int, int, int, bytes]


@dataclass(frozen=True)
class WriteRows:
    """Writes new rows, and hands on which rows they take the place of."""

    plan: MergePlan

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        written = write_rows(self.plan, self._rows(batches))
        if written.updated or written.inserted:
            yield packed([*written_records(written), *_deletions(written.replaced)])

    def _rows(self, batches: Iterator[pa.RecordBatch]) -> Iterator[NewRows]:
        convert: ToLance | None = None
        for batch in batches:
            if not batch.num_rows:
                continue
            own = batch.drop_columns([name for name in (ROW_ADDRESS, ROW_ID) if name in batch.schema.names])
            convert = convert or ToLance(own.schema, self.plan.write.schema)
            row_ids = batch[ROW_ID] if self.plan.stable_row_ids else None
            yield NewRows(convert(own), batch[ROW_ADDRESS], row_ids)


def gather(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Pack the addresses of rows that no new row matches, by fragment."""
    found = [batch[ROW_ADDRESS].to_numpy() for batch in batches if batch.num_rows]
    if found:
        yield packed(_deletions(offsets_of(np.concatenate(found))))


@dataclass(frozen=True)
class DeleteRows:
    """Deletes the rows of the fragments that come to this task, and hands all other records on."""

    plan: MergePlan

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        offsets: dict[int, list[Offsets]] = defaultdict(list)
        others: list[Record] = []
        for record in records_in(batches):
            if record[0] == "delete":
                offsets[record[1]].append(np.frombuffer(record[4], np.uint32))
            else:
                others.append(record)
        if others:
            yield packed(others)
        for fragment, parts in offsets.items():
            touched = delete_offsets(self.plan, open_once(self.plan.table), fragment, np.concatenate(parts))
            yield packed([touched_record(touched)])


def work_of(records: Iterable[Record]) -> Work:
    """Return what all tasks did, of what the last stage gave."""
    fragments: list[str] = []
    touched: list[Touched] = []
    updated = inserted = 0
    for kind, fragment, rows, new, payload in records:
        if kind == "written":
            fragments.append(bytes(payload).decode())
        elif kind == "touched":
            touched.append(Touched(fragment, rows, bytes(payload).decode() or None))
        else:
            updated, inserted = updated + rows, inserted + new
    gone = sum(each.rows for each in touched)
    return Work(tuple(fragments), tuple(touched), updated, inserted, deleted=gone - updated)


def records_in(batches: Iterable[pa.RecordBatch]) -> Iterator[Record]:
    """Yield the records of batches."""
    for batch in batches:
        yield from zip(*(column.to_pylist() for column in batch.columns), strict=True)


def written_records(written: Written) -> Iterator[Record]:
    """Yield what a task has to say about the rows that it wrote."""
    task = TaskContext.get()
    spread = -1 - (task.partitionId() if task is not None else 0)  # so that not all go to one task
    yield ("counts", spread, written.updated, written.inserted, b"")
    for fragment in written.fragments:
        yield ("written", spread, 0, 0, fragment.encode())


def touched_record(touched: Touched) -> Record:
    """Return what a task has to say about a fragment of which it deleted rows."""
    return ("touched", touched.fragment, touched.rows, 0, (touched.metadata or "").encode())


def _deletions(offsets: Mapping[int, Offsets]) -> Iterator[Record]:
    for fragment, rows in offsets.items():
        yield ("delete", fragment, len(rows), 0, rows.tobytes())


def packed(records: Iterable[Record]) -> pa.RecordBatch:
    """Return records as tasks hand them on."""
    columns = zip(*records, strict=True)
    arrays = [pa.array(values, field.type) for values, field in zip(columns, _SCHEMA, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=_SCHEMA)
