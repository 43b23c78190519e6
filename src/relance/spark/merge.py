"""Merge a DataFrame into a table: Spark joins, tasks write and delete, one commit; or all of it here."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from functools import reduce

import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f
from pyspark.sql.types import StructType
from pyspark.storagelevel import StorageLevel

from relance.catalog.context import Context, shared_context
from relance.errors import InternalError, InvalidInputError
from relance.identifiers import format_id
from relance.jobs.merging.merge_commit import Work
from relance.jobs.merging.merge_here import HereEngine
from relance.jobs.merging.merge_plan import Clauses, MergePlan, MergeRequest, parse_clauses, plan_merge
from relance.jobs.merging.merge_rows import parse_keys
from relance.jobs.merging.merges import Counts, MergeEngine, MergeResult, run_merge
from relance.jobs.runner import Engine, parse_engine
from relance.spark.errors import typed_errors
from relance.spark.merge_few import FewKeys
from relance.spark.merge_keys import Keys, few_keys, matching_rows, quoted
from relance.spark.merge_place import as_in_table, from_cache, place_of, size_if_cached
from relance.spark.merge_tasks import FRAGMENTS_FOR_A_TASK, RECORD, DeleteRows, WriteRows, gather, work_of
from relance.spark.options import parse_write_options
from relance.spark.registration import DEFAULT_NAME
from relance.spark.scan import ROW_ADDRESS, ROW_ID
from relance.spark.table import address_options, table
from relance.spark.types import check_append
from relance.spark.writer import catalog_address

_LEAST_DELETE_TASKS = 2


def merge(
    df: DataFrame,
    id: str | Sequence[str],
    on: str | Sequence[str],
    *,
    root: str | os.PathLike[str] | None = None,
    properties: Mapping[str, str] | None = None,
    when_matched: str | None = "update_all",
    when_not_matched: str | None = "insert_all",
    when_not_matched_by_source: str | None = None,
    update_if: str | None = None,
    delete_if: str | None = None,
    engine: Engine | str = Engine.AUTO,
    dry_run: bool = False,
    source: str = DEFAULT_NAME,
) -> MergeResult:
    """Update the rows of a table that have the key of a new row, insert the other new rows: one version.

    `on` are the columns that make the key; a null is equal to nothing. Columns that the DataFrame lacks
    keep their values, and are null in inserted rows. `update_if` is a condition of Spark on `source` and
    `target`; `delete_if` is a predicate of Lance on the rows of the table that no new row matches.
    With the engine `auto` few new rows are collected and merged in this process, many by Spark's tasks.

    Raises:
        InvalidInputError: two new rows have the same key, or a clause or condition cannot be used.
        TableNotFoundError: there is no such table.
        TableColumnNotFoundError: the table has no such key.
        TableSchemaValidationError, UnsupportedOperationError: a column does not fit.
        ConcurrentModificationError: others kept changing the same fragments, or dropped the table.
        OutcomeUnknownError: the store gave no answer; it may have happened.
    """
    keys = parse_keys(on, df.columns)
    clauses = parse_clauses(
        when_matched, when_not_matched, when_not_matched_by_source, update_if=update_if, delete_if=delete_if
    )
    asked = parse_engine(engine)
    address = catalog_address(
        parse_write_options(address_options(df.sparkSession, id, root=root, properties=properties))
    )
    request = MergeRequest(address.parts, keys, clauses, lambda schema: _check(df.schema, schema, clauses))
    context = shared_context(address.properties)
    plan = plan_merge(context, request)  # what can be refused is refused before the rows are computed
    with typed_errors(), ExitStack() as held:
        once = df if asked is Engine.LOCAL else from_cache(df)
        given = held.enter_context(_kept(df)) if once is None else once
        place = place_of(asked, plan, given)
        runner: MergeEngine
        if place.is_here:
            runner = HereEngine(given.toArrow(), as_in_table)
        else:
            rows = given if once is None else held.enter_context(_kept(once))
            few = held.enter_context(few_keys(rows, keys, None if once is None else size_if_cached(once)))
            runner = _Engine(context, rows, address.parts, dict(address.properties), source, few)
        result = run_merge(context, request, runner, dry_run=dry_run)
    return replace(result, engine=place.why)


def _check(struct: StructType, existing: pa.Schema, clauses: Clauses) -> None:
    """Refuse new rows that do not fit; what is only updated keeps the values of columns that are missing."""
    given = set(struct.fieldNames())
    needed = [field for field in existing if clauses.insert or field.name in given]
    check_append(struct, pa.schema(needed))


@contextmanager
def _kept(df: DataFrame) -> Iterator[DataFrame]:
    """Have the rows computed once: a second time they could be others, and the merge half of each.

    A part that is lost with its executor fails the merge instead of being computed again.
    """
    several = not str(df.sparkSession.conf.get("spark.master", "")).startswith("local")
    level = StorageLevel.MEMORY_AND_DISK_2 if several else StorageLevel.MEMORY_AND_DISK
    rows = df.localCheckpoint(eager=False, storageLevel=level)  # the keys are needed first, and fill it
    try:
        yield rows
    finally:
        # There is no public call for it; else Spark frees it when it gets around to it.
        with suppress(Py4JError, PySparkException, AttributeError):
            rows._jdf.logicalPlan().rdd().unpersist(False)


@dataclass(frozen=True)
class _Engine:
    """Joins and works with Spark."""

    context: Context
    rows: DataFrame
    parts: tuple[str, ...]
    properties: dict[str, str]
    source: str
    keys: Keys | None

    def count(self, plan: MergePlan) -> Counts:
        with typed_errors():
            few = self._few(plan)
            seen = None if few is None else few.count(plan)
            if seen is not None:
                return seen
            matched = f.count(ROW_ADDRESS)
            found = self._new_rows(plan).agg(matched, f.count("*") - matched).first()
            assert found is not None, "an aggregate without groups has one row"
            deleted = self._unmatched(plan).count() if plan.clauses.delete else 0
        return Counts(int(found[0]), int(found[1]), deleted)

    def work(self, plan: MergePlan) -> Work:
        with typed_errors():
            few = self._few(plan)
            work = None if few is None else few.work(plan)
            if work is None:
                work = self._join_and_work(plan)
        if work.deleted < 0 or (work.deleted and not plan.clauses.delete):
            raise InternalError(
                f"{work.updated} rows were updated, but {work.updated + work.deleted} replaced: "
                "a condition or the source is not deterministic"
            )
        return work

    def _few(self, plan: MergePlan) -> FewKeys | None:
        """Return the way without a join, if it can be gone."""
        few = None if self.keys is None else FewKeys(self.context, self.rows, self.keys.table)
        return few if few is not None and few.can(plan) else None

    def _join_and_work(self, plan: MergePlan) -> Work:
        rows = self._new_rows(plan)
        if plan.stable_row_ids:
            rows = rows.sortWithinPartitions(f.col(ROW_ID).asc_nulls_last())
        records = rows.mapInArrow(WriteRows(plan), RECORD)
        if plan.clauses.delete:
            records = records.union(self._unmatched(plan).mapInArrow(gather, RECORD))
        # One task has all rows of a fragment that are to be deleted.
        tasks = max(_LEAST_DELETE_TASKS, plan.fragments // FRAGMENTS_FOR_A_TASK)
        records = records.repartition(tasks, "fragment").mapInArrow(DeleteRows(plan), RECORD)
        return work_of(tuple(each) for each in records.collect())

    def count_same_keys(self, plan: MergePlan, version: int) -> int:
        where = f"{ROW_ADDRESS} >= {(plan.last_fragment + 1) << 32}"
        added = self._table(plan, columns=plan.on, version=version, where=where)
        with typed_errors():
            return self._matching(added, plan, "left_semi").count()

    def _new_rows(self, plan: MergePlan) -> DataFrame:
        """Return whole rows to be written, with the address (and id) of the row that each replaces."""
        names, given = plan.write.schema.names, set(self.rows.columns)
        clauses = plan.clauses
        old = [name for name in names if name not in given or _is_mentioned(name, clauses.update_if)]
        columns = [*plan.on, *(name for name in old if name not in plan.on)]
        if self.keys is None:
            target = self._table(plan, columns=columns)
        else:
            target = matching_rows(self.rows.sparkSession, plan, columns, self.keys)
        joined = self.rows.alias("source").join(target.alias("target"), self._same_key(plan), "left")
        matched = f.col(quoted(ROW_ADDRESS, "target")).isNotNull()
        wanted = f.lit(False)
        if clauses.update:
            wanted = matched & f.expr(clauses.update_if or "true")
        if clauses.insert:
            wanted = wanted | ~matched
        numbers = [ROW_ADDRESS, ROW_ID] if plan.stable_row_ids else [ROW_ADDRESS]
        sides = {name: "source" if name in given else "target" for name in names}
        return _where(joined, wanted, clauses).select(
            *(f.col(quoted(name, side)).alias(name) for name, side in sides.items()),
            *(f.col(quoted(name, "target")).alias(name) for name in numbers),
        )

    def _unmatched(self, plan: MergePlan) -> DataFrame:
        """Return the addresses of rows of the table that no new row matches."""
        target = self._table(plan, columns=plan.on, where=plan.clauses.delete_if)
        return self._matching(target, plan, "left_anti").select(f.col(quoted(ROW_ADDRESS, "target")))

    def _matching(self, target: DataFrame, plan: MergePlan, how: str) -> DataFrame:
        keys = self.rows.select(*(f.col(quoted(name)) for name in plan.on)).alias("source")
        return target.alias("target").join(keys, self._same_key(plan), how)

    def _same_key(self, plan: MergePlan) -> Column:
        pairs = ((f.col(quoted(each, "source")), f.col(quoted(each, "target"))) for each in plan.on)
        return reduce(Column.__and__, (new == old for new, old in pairs))

    def _table(
        self, plan: MergePlan, *, columns: Sequence[str], version: int | None = None, where: str | None = None
    ) -> DataFrame:
        return table(
            self.rows.sparkSession,
            format_id(self.parts),
            properties=self.properties,
            columns=list(columns),
            where=where,
            version=plan.table.version if version is None else version,
            with_row_address=True,
            with_row_id=plan.stable_row_ids,
            source=self.source,
        )


def _where(joined: DataFrame, wanted: Column, clauses: Clauses) -> DataFrame:
    try:
        return joined.where(wanted)
    except AnalysisException as refused:
        if clauses.update_if is None:
            raise
        raise InvalidInputError(
            f"invalid update_if {clauses.update_if!r}: {str(refused).splitlines()[0]}"
        ) from refused


def _is_mentioned(name: str, condition: str | None) -> bool:
    """Tell whether a condition may be about a column; a column too many costs reading it, and no more."""
    return condition is not None and re.search(re.escape(name), condition, re.IGNORECASE) is not None
