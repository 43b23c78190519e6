"""Reading only those rows of a table that can match: few keys are sent to the tasks that read.

Spark turns every row that a task reads into one of its own before it joins, which takes most of the time
of a merge. So the tasks leave out what has none of the keys; the join afterwards is as exact as ever.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark import Broadcast, SparkContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.datasource import InputPartition

from relance.jobs.merging.key_lookup import KeyIndex, Lookup, ambiguous, gathered, is_simple, lookup
from relance.jobs.merging.merge_plan import MergePlan
from relance.spark.address import PathAddress
from relance.spark.classic import parallelism, spark_context
from relance.spark.options import ReadOptions
from relance.spark.reader import LanceReader, schema_of
from relance.spark.widths import row_width

MOST_KEYS = 2_000_000
"""So many are sent to every executor; with more the join is left to Spark alone."""

_COUNT = "count of equal keys"

_MOST_BYTES = 32 << 20
"""Rows of the table that match, up to this size, are sent to the new rows instead of sorting both."""


class Keys:
    """The keys of few new rows: here, and, when it is needed there, the first column with all executors."""

    def __init__(self, context: SparkContext, table: pa.Table) -> None:
        self.table = table
        self._context = context
        self._sent: Broadcast[pa.Array] | None = None

    @property
    def sent(self) -> Broadcast[pa.Array]:
        if self._sent is None:
            self._sent = self._context.broadcast(pc.unique(self.table.column(0)).drop_null())
        return self._sent

    def close(self) -> None:
        """Have the executors forget them."""
        if self._sent is not None:
            self._sent.destroy()


@contextmanager
def few_keys(
    rows: DataFrame, keys: Sequence[str], size: tuple[int, int] | None = None
) -> Iterator[Keys | None]:
    """Collect the keys for the block; None where that cannot be done or does not help.

    `size` is the number of rows, and their bytes, if it is known.

    Raises:
        InvalidInputError: two rows have the same key.
    """
    context = spark_context(rows.sparkSession)
    table = None if context is None else _collect(rows, keys, size)
    if table is None or not all(is_simple(each.type) for each in table.columns):
        refuse_duplicates(rows, keys)
    else:
        KeyIndex(table)
    if table is None or context is None or not is_simple(table.column(0).type):
        yield None
        return
    found = Keys(context, table)
    try:
        yield found
    finally:
        found.close()


def _collect(rows: DataFrame, keys: Sequence[str], size: tuple[int, int] | None) -> pa.Table | None:
    """Return the keys unless they are many; never more than that are collected."""
    values = rows.select(*(quoted(name) for name in keys))
    if size is not None:
        return values.toArrow() if size[0] <= MOST_KEYS else None
    # One job: to count first would take another.
    few = values.limit(MOST_KEYS + 1).toArrow()
    return few if few.num_rows <= MOST_KEYS else None


def refuse_duplicates(rows: DataFrame, keys: Sequence[str]) -> None:
    """Have Spark look whether two rows have the same key; a null in it makes it like no other.

    Raises:
        InvalidInputError: they have.
    """
    whole = rows
    for name in keys:
        whole = whole.where(f.col(quoted(name)).isNotNull())
    counted = whole.groupBy(*(f.col(quoted(name)) for name in keys)).agg(f.count("*").alias(_COUNT))
    found = counted.where(f.col(_COUNT) > 1).first()
    if found is not None:
        raise ambiguous(dict(zip(keys, found, strict=False)), found[_COUNT])


def quoted(name: str, side: str | None = None) -> str:
    """Return a column's name as Spark reads it in an expression."""
    text = f"`{name.replace('`', '``')}`"
    return text if side is None else f"{side}.{text}"


def matching_rows(spark: SparkSession, plan: MergePlan, columns: Sequence[str], keys: Keys) -> DataFrame:
    """Return the rows of the planned version whose key may be among those, each with its address (and id)."""
    options = ReadOptions(
        PathAddress(plan.table.uri, plan.table.storage_options),
        columns=tuple(columns),
        with_row_address=True,
        with_row_id=plan.stable_row_ids,
        parallelism=parallelism(spark),
    )
    schema = schema_of(plan.table, options)
    reader = LanceReader(plan.table, options, schema)
    tasks = reader.partitions()
    numbers = spark.range(0, len(tasks), 1, max(1, len(tasks)))
    found = numbers.mapInArrow(_ReadMatching(reader, tuple(tasks), plan.on[0], keys.sent), schema)
    # Spark takes what comes of few numbers for little, and would send it to all executors at any size.
    known = [field for field in plan.write.schema if field.name in columns]
    size = keys.table.num_rows * row_width(pa.schema(known))
    return found if size <= _MOST_BYTES else found.hint("shuffle_merge")


@dataclass(frozen=True)
class _ReadMatching:
    reader: LanceReader
    tasks: Sequence[InputPartition]
    column: str
    keys: Broadcast[pa.Array]

    def __call__(self, numbers: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        find: Lookup | None = None
        for batch in numbers:
            for number in batch.column(0).to_pylist():
                for rows in gathered(self.reader.read(self.tasks[number])):
                    values = rows[self.column]
                    find = find or finder(self.keys.value, values.type)
                    yield from rows.filter(pa.array(find(values) >= 0)).to_batches()


def finder(keys: pa.Array, kind: pa.DataType) -> Lookup:
    """Return what finds the values of a column of this type that may be among the keys."""
    try:
        return lookup(keys.cast(kind))
    except pa.ArrowInvalid:  # a key is too big for the column; which ones match, the join finds
        return lambda values: np.zeros(len(values), np.int32)
