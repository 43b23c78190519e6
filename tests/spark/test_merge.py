"""Merging DataFrames: equal to Lance's own merge, one row per key whoever races, and what is refused."""

from __future__ import annotations

import os
import random
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from tests.support.patches import original, substitute

import relance.spark
from relance.catalog.context import shared_context
from relance.errors import (
    InternalError,
    InvalidInputError,
    TableColumnNotFoundError,
    TableNotFoundError,
    TableSchemaValidationError,
    UnsupportedOperationError,
)
from relance.jobs.merging.merge_commit import Work
from relance.jobs.merging.merge_here import HereEngine
from relance.jobs.merging.merge_plan import MergePlan, MergeRequest, parse_clauses, plan_merge
from relance.spark.merge import merge
from relance.spark.merge_few import FewKeys
from relance.spark.merge_keys import finder
from relance.spark.merge_place import _counted
from relance.spark.types.reading import BLOB_KEY

FIELDS = "k {kind}, second int, v bigint, text string"


@pytest.fixture
def root(tmp_path: Path) -> str:
    return str(tmp_path)


def _rows(keys: list[Any], start: int, kind: pa.DataType) -> pa.Table:
    return pa.table(
        {
            "k": pa.array(keys, kind),
            "second": pa.array([n % 3 for n in range(len(keys))], pa.int32()),
            "v": pa.array(range(start, start + len(keys)), pa.int64()),
            "text": pa.array([f"text {start + n}" for n in range(len(keys))], pa.string()),
        }
    )


def _frame(spark: SparkSession, rows: pa.Table) -> DataFrame:
    kind = "string" if pa.types.is_string(rows.schema.field("k").type) else "bigint"
    return spark.createDataFrame(
        [tuple(row.values()) for row in rows.to_pylist()], FIELDS.format(kind=kind)
    ).repartition(3)


def _create(root: str, name: str, rows: pa.Table, **options: Any) -> str:
    uri = f"{root}/{name}.lance"
    lance.write_dataset(rows, uri, max_rows_per_file=40, **options)
    return uri


def _all(uri: str, **scan: Any) -> list[str]:
    return sorted(str(row) for row in lance.dataset(uri).scanner(**scan).to_table().to_pylist())


def _kept(spark: SparkSession) -> int:
    """Return how many results the executors keep."""
    return int(spark.sparkContext._jsc.sc().getPersistentRDDs().size())


CASES: dict[str, tuple[list[str], Callable[[int], Any], pa.DataType, bool, bool]] = {
    # key columns, key, type of the key, stable row ids, rows of the source that are not in it deleted
    "ints": (["k"], lambda n: n, pa.int64(), False, False),
    "strings with stable ids": (["k"], lambda n: f"key {n}", pa.string(), True, True),
    "two columns": (["k", "second"], lambda n: n // 2, pa.int64(), False, False),
    "two columns with stable ids": (["k", "second"], lambda n: n // 2, pa.int64(), True, False),
}
EVERYWHERE = [
    ("ints", "auto"),
    ("strings with stable ids", "spark"),
    ("strings with stable ids", "local"),
    ("two columns", "spark"),
    ("two columns with stable ids", "spark"),
]


@pytest.mark.deep
@pytest.mark.parametrize(("case", "engine"), EVERYWHERE)
def test_merge_matches_lance_merge_insert(spark: SparkSession, root: str, case: str, engine: str) -> None:
    on, make, kind, stable, delete = CASES[case]
    chance = random.Random(case)
    keys = [make(n % 130) if chance.random() > 0.1 else None for n in range(150)]  # some of them twice
    old = _rows(keys, 0, kind)
    new = _rows([make(n) for n in chance.sample(range(200), 60)] + [None, None], 1000, kind)
    if len(on) == 2:
        new = new.group_by(on, use_threads=False).aggregate([("v", "min"), ("text", "min")])
        new = new.rename_columns(["k", "second", "v", "text"])
    for name in ("ours", "theirs"):
        uri = _create(root, name, old, enable_stable_row_ids=stable)
        lance.dataset(uri).create_scalar_index("v" if delete else "k", "BTREE")
        lance.dataset(uri).delete("v % 7 = 3 or v < 40")
    ours, theirs = f"{root}/ours.lance", f"{root}/theirs.lance"
    how: dict[str, Any] = {"root": root, "engine": engine}
    if delete:
        how |= {"when_not_matched_by_source": "delete", "delete_if": "v < 130"}

    seen = merge(_frame(spark, new), "ours", on, dry_run=True, **how)
    assert lance.dataset(ours).version == 3
    made = merge(_frame(spark, new), "ours", on, **how)
    builder = lance.dataset(theirs).merge_insert(on).when_matched_update_all().when_not_matched_insert_all()
    if delete:
        builder = builder.when_not_matched_by_source_delete("v < 130")
    counts = builder.use_index(False).execute(new)

    assert (made.updated, made.inserted, made.deleted) == tuple(
        counts[f"num_{what}_rows"] for what in ("updated", "inserted", "deleted")
    )
    assert (seen.updated, seen.inserted, seen.deleted) == (made.updated, made.inserted, made.deleted)
    assert (made.version, made.attempts, made.duplicates) == (4, 1, 0)
    assert made.engine.split(":")[0] == ("local" if engine == "auto" else engine)
    assert _all(ours) == _all(theirs)
    for where in ("v between 60 and 1030", "v < 1000", "v = 1010"):
        assert _all(ours, filter=where) == _all(ours, filter=where, use_scalar_index=False)
    if stable:
        was = {"columns": on, "with_row_id": True, "filter": f"_rowid < {old.num_rows}"}
        assert _all(ours, **was) == _all(theirs, **was)
    lance.dataset(ours).validate()


def test_columns_missing_from_the_source_keep_their_values(
    spark: SparkSession, root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    uri = _create(root, "t", _rows([1, 2, 3, 4], 0, pa.int64()))
    part = spark.createDataFrame([(2, 20), (3, 0), (9, 90)], "k int, v bigint")

    made = merge(part, "t", "k", root=root, update_if="source.v > target.v")

    assert made.engine == "spark: update_if is a Spark expression"
    assert (made.updated, made.inserted) == (1, 1)
    rows = {row["k"]: (row["v"], row["text"]) for row in lance.dataset(uri).to_table().to_pylist()}
    assert rows == {1: (0, "text 0"), 2: (20, "text 1"), 3: (2, "text 2"), 4: (3, "text 3"), 9: (90, None)}

    again = merge(part.withColumn("v", f.col("v") + 1), "t", ["k"], root=root, engine="spark")
    assert (again.updated, again.inserted) == (3, 0)
    rows = {row["k"]: (row["v"], row["text"]) for row in lance.dataset(uri).to_table().to_pylist()}
    assert rows == {1: (0, "text 0"), 2: (21, "text 1"), 3: (1, "text 2"), 4: (3, "text 3"), 9: (91, None)}

    substitute(monkeypatch, "spark_merge.most_keys", 0)  # Spark has to look at every row
    updated = merge(part, "t", ["k"], root=root, when_not_matched=None, engine="spark")
    assert (updated.updated, updated.inserted) == (3, 0)
    nothing = merge(part.where("k > 100"), "t", ["k"], root=root, engine="spark")
    assert (nothing.version, lance.dataset(uri).version) == (updated.version, updated.version)


MARKED = pa.field("b", pa.large_binary(), metadata={BLOB_KEY: "true"})
BLOBS = [b"short", None, b"", b"x" * 300_000]


@pytest.mark.deep
@pytest.mark.parametrize("version", ["2.0", "2.2"])
def test_blobs_of_updated_rows_are_kept_and_new_ones_appended(
    spark: SparkSession, root: str, version: str
) -> None:
    is_new = version == "2.2"
    blobs = lance.blob_array(BLOBS) if is_new else pa.array(BLOBS, MARKED.type)
    field = lance.blob_field("b") if is_new else MARKED
    schema = pa.schema([("k", pa.int64()), ("v", pa.int64()), field])
    rows = pa.table([pa.array(range(4)), pa.array([0] * 4), blobs], schema=schema)
    uri = _create(root, "t", rows, data_storage_version=version)

    part = spark.createDataFrame([(0, 7), (1, 7), (3, 7), (9, 7)], "k bigint, v bigint")
    assert merge(part, "t", "k", root=root).updated == 3
    new = spark.createDataFrame([(10, bytearray(b"new")), (11, None)], "k bigint, b binary")
    relance.spark.save(new, "t", root=root, mode="append")

    found = lance.dataset(uri).scanner(blob_handling="all_binary").to_table().to_pylist()
    assert {each["k"]: (each["v"], each["b"]) for each in found} == {
        **{key: (0 if key == 2 else 7, blob) for key, blob in enumerate(BLOBS)},
        9: (7, None),
        10: (None, b"new"),
        11: (None, None),
    }


@pytest.mark.deep
@pytest.mark.parametrize("rows", [100, 800])
def test_rows_written_during_the_key_lookup_replace_their_matches(
    spark: SparkSession, root: str, rows: int
) -> None:
    # A table of few fragments, and one of more than the driver deletes rows of by itself.
    for name in ("ours", "theirs"):
        _create(root, name, _rows(list(range(rows)), 0, pa.int64()))
    new = _rows([*range(0, 2 * rows, 3), None], 5000, pa.int64())
    turned = _frame(spark, new).select(*new.column_names[::-1])
    made = merge(turned, "ours", "k", root=root, engine="spark")
    builder = lance.dataset(f"{root}/theirs.lance").merge_insert("k").when_matched_update_all()
    counts = builder.when_not_matched_insert_all().execute(new)
    assert (made.updated, made.inserted) == (counts["num_updated_rows"], counts["num_inserted_rows"])
    assert (made.version, made.attempts, made.deleted) == (2, 1, 0)
    assert _all(f"{root}/ours.lance") == _all(f"{root}/theirs.lance")
    lance.dataset(f"{root}/ours.lance").validate()


@pytest.mark.deep
@pytest.mark.parametrize("many", [2, 50])
def test_many_rows_with_one_key_are_merged_by_a_join(spark: SparkSession, root: str, many: int) -> None:
    uri = _create(root, "t", _rows([1] * many + [2], 0, pa.int64()))
    made = merge(_frame(spark, _rows([1], 1000, pa.int64())), "t", "k", root=root, engine="spark")
    assert (made.updated, made.inserted) == (many, 0)
    assert sorted(lance.dataset(uri).to_table()["v"].to_pylist()) == [many, *[1000] * many]
    named = {row["path"] for batch in lance.dataset(uri).tracked_files() for row in batch.to_pylist()}
    data = {f"data/{each}" for each in os.listdir(f"{uri}/data")}
    assert data <= named  # what was written before it was known how many there are is gone


@pytest.mark.deep
def test_source_with_more_rows_than_keys_is_refused_and_its_files_removed(
    spark: SparkSession, root: str
) -> None:
    uri = _create(root, "t", _rows([1, 2], 0, pa.int64()))
    before, new = os.listdir(f"{uri}/data"), _rows([2, 3], 1000, pa.int64())
    context = shared_context((("root", root),))
    clauses = parse_clauses("update_all", "insert_all", None, update_if=None, delete_if=None)
    plan = plan_merge(context, MergeRequest(("t",), ("k",), clauses, lambda schema: None))
    with pytest.raises(InternalError, match="the source is not deterministic"):
        FewKeys(context, _frame(spark, new), new.select(["k"]).slice(1)).work(plan)
    assert os.listdir(f"{uri}/data") == before


@pytest.mark.deep
def test_small_merge_runs_locally_and_the_result_says_why(
    spark: SparkSession, root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    _create(root, "t", _rows([1, 2], 0, pa.int64()))
    floats = pa.table({"k": pa.array([0.5, 1.5])})
    lance.write_dataset(floats, f"{root}/floats.lance")
    rows = _frame(spark, _rows([2, 3], 1000, pa.int64()))
    there: dict[str, Any] = {"root": root, "dry_run": True}

    def why(rows: DataFrame, name: str = "t", **how: Any) -> str:
        return merge(rows, name, "k", **there, **how).engine

    assert why(rows) == "local: 2 new rows of about 0 MB"
    assert why(spark.createDataFrame([(1.5,)], "k double"), "floats").startswith("spark: key column 'k'")
    with pytest.raises(UnsupportedOperationError, match="'k' has type double"):
        why(spark.createDataFrame([(1.5,)], "k double"), "floats", engine="local")
    with pytest.raises(UnsupportedOperationError, match="update_if"):
        why(rows, engine="local", update_if="true")
    with pytest.raises(InvalidInputError, match="unknown engine"):
        why(rows, engine="both")
    cached = rows.persist()
    cached.count()
    substitute(monkeypatch, "spark_merge.counted", None)  # what is cached was counted already
    assert why(cached) == "local: 2 new rows of about 0 MB"
    substitute(monkeypatch, "spark_merge.most_rows", 1)
    assert why(cached) == "spark: 2 new rows of about 0 MB are too much to collect"
    cached.unpersist()
    substitute(monkeypatch, "spark_merge.giant_rows", 2)
    substitute(monkeypatch, "spark_merge.parallelism", lambda session: 1000)
    assert why(rows) == "spark: the table has 2 rows"


@pytest.mark.deep
def test_size_of_the_source_is_measured_before_collecting(spark: SparkSession) -> None:
    wide = spark.range(3).selectExpr("id", "repeat('x', 1000) as s", "array_repeat(1.5d, 100) as a")
    rows, size = _counted(
        wide.union(spark.createDataFrame([(1, None, None)], "id bigint, s string, a array<double>"))
    )
    assert rows == 4
    assert 3 * (1000 + 800) <= size <= 3 * (1000 + 800) + 200
    assert _counted(wide.where("id > 5")) == (0, 0)


@pytest.mark.deep
@pytest.mark.parametrize("engines", [("spark", "spark"), ("local", "spark")])
def test_racing_merges_leave_one_row_per_key(
    spark: SparkSession, root: str, engines: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    uri = _create(root, "t", _rows([], 0, pa.int64()))
    made: list[relance.spark.MergeResult] = []

    frames = [_frame(spark, _rows([1, 2, 3], start, pa.int64())) for start in (10, 20)]
    together = threading.Barrier(2)
    work = original("merge.work")

    def late(engine: HereEngine, plan: MergePlan) -> Work:
        done: Work = work(engine, plan)
        if plan.last_fragment < 0:  # it read the empty table: let the other one come first
            together.wait(60)
        return done

    def run(rows: DataFrame, engine: str) -> None:
        made.append(merge(rows, "t", ["k"], root=root, engine=engine))
        if "local" in engines and engine == "spark":
            together.wait(60)

    substitute(monkeypatch, "merge.work", late)
    threads = [threading.Thread(target=run, args=each) for each in zip(frames, engines, strict=True)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert sorted(each.inserted for each in made) == [0, 3]
    assert sorted(each.updated for each in made) == [0, 3]
    last = max(made, key=lambda each: each.version)
    assert last.updated == 3
    values = lance.dataset(uri).to_table().sort_by("k")["v"].to_pylist()
    assert values in ([10, 11, 12], [20, 21, 22])


@pytest.mark.deep
def test_invalid_merge_is_refused_before_anything_is_written(spark: SparkSession, root: str) -> None:
    uri, kept = _create(root, "t", _rows([1, 2], 0, pa.int64())), _kept(spark)
    rows = _frame(spark, _rows([7, 7], 0, pa.int64()))
    for engine in ("auto", "spark"):
        with pytest.raises(InvalidInputError, match=r"2 new rows have the same key \(k = 7\)"):
            merge(rows, "t", "k", root=root, engine=engine)
    one = rows.limit(1)
    with pytest.raises(TableSchemaValidationError, match="'other'"):
        merge(one.withColumn("other", f.lit(1)), "t", "k", root=root)
    with pytest.raises(TableNotFoundError):
        merge(one, "nowhere", "k", root=root)
    with pytest.raises(TableColumnNotFoundError, match="'id'"):
        merge(one.withColumnRenamed("k", "id"), "t", "id", root=root)
    for wrong in (["missing"], [], ["k", "k"]):
        with pytest.raises(InvalidInputError):
            merge(one, "t", wrong, root=root)
    with pytest.raises(InvalidInputError):
        merge(one, "t", "k", root=root, when_not_matched_by_source="delete", delete_if="nonsense >")
    with pytest.raises(InvalidInputError, match="update_if"):
        merge(one, "t", "k", root=root, update_if="source.nothing > 1")
    assert lance.dataset(uri).version == 1
    assert not list(Path(root).rglob("_deletions/*"))
    assert _kept(spark) <= kept


def test_key_finder_misses_no_matching_row() -> None:
    values = pa.chunked_array(
        [pa.array([5, None, 900, -3], pa.int32()), pa.array([7, 2_000_000], pa.int32())]
    )
    for keys, expected in (
        (pa.array([5, 7, 900], pa.int64()), {0, 2, 4}),
        (pa.array([-3, 2_000_000], pa.int64()), {3, 5}),
        (pa.array([5, 1 << 60], pa.int64()), {0, 1, 2, 3, 4, 5}),  # too big: the join decides
        (pa.array([], pa.int64()), set()),
    ):
        found = {n for n, each in enumerate(finder(keys, values.type)(values)) if each >= 0}
        assert expected <= found <= expected | {1}  # a null may be found: the join leaves it out
