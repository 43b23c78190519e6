"""Writing DataFrames: modes, schemas, options, and what is left after failures."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import lance
import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f

import relance
import relance.spark
from relance.errors import (
    InvalidInputError,
    NamespaceNotFoundError,
    TableAlreadyExistsError,
    TableNotFoundError,
    TableSchemaValidationError,
    UnsupportedOperationError,
)
from relance.spark.errors import typed_errors

ID = ["prod", "events"]
PATIENCE = 60  # seconds until a row breaks even though other tasks have not ended


@pytest.fixture
def root(tmp_path: Path) -> str:
    return str(tmp_path / "lake")


@pytest.fixture
def catalog(root: str) -> relance.DirectoryNamespace:
    return relance.DirectoryNamespace(root=root)


def rows(spark: SparkSession, count: int, *, tasks: int = 2) -> DataFrame:
    return spark.range(0, count, 1, tasks).select(f.col("id"), (f.col("id") * 0.5).alias("half"))


def counted(catalog: relance.DirectoryNamespace, table: list[str]) -> int:
    return catalog.count_table_rows({"id": table}).count or 0


def data_files(root: str) -> set[Path]:
    return {each for each in Path(root).rglob("data/*.lance") if "__manifest" not in each.parts}


def broken(row: int, gate: Path) -> Callable[[str], Column]:
    """Return a function of a column that fails at one row, as soon as a file is there."""

    def check(value: int) -> int:
        if value != row:
            return value
        end = time.monotonic() + PATIENCE
        while not gate.exists() and time.monotonic() < end:
            time.sleep(0.01)
        raise ValueError("broken row")

    return f.udf(check, "long", useArrow=False)


@contextmanager
def opened_after(spark: SparkSession, tasks: int, gate: Path) -> Iterator[None]:
    """Make a file once so many tasks of a stage have ended: Spark kills those that run when one fails."""
    tracker = spark.sparkContext.statusTracker()
    over = threading.Event()

    def watch() -> None:
        while not over.wait(0.01):
            for stage in tracker.getActiveStageIds():
                found = tracker.getStageInfo(stage)
                if found is not None and found.numCompletedTasks == tasks:
                    gate.touch()
                    return

    watching = threading.Thread(target=watch)
    watching.start()
    try:
        yield
    finally:
        over.set()
        watching.join()


class TestModes:
    def test_save_modes_create_append_overwrite_and_ignore(
        self, spark: SparkSession, root: str, catalog: relance.DirectoryNamespace
    ) -> None:
        save = relance.spark.save
        first = save(rows(spark, 10), ID, root=root, create_namespaces=True)
        assert (first.id, first.version, first.written) == (("prod", "events"), 1, True)
        with pytest.raises(TableAlreadyExistsError):
            save(rows(spark, 10), "prod.events", root=root)
        ignored = save(rows(spark, 10), "prod.events", root=root, mode="ignore")
        assert (ignored.version, ignored.written) == (1, False)
        assert save(rows(spark, 5), "prod.events", root=root, mode="append").version == 2
        assert counted(catalog, ID) == 15
        assert save(rows(spark, 3), "prod.events", root=root, mode="overwrite").version == 3
        assert counted(catalog, ID) == 3
        with pytest.raises(InvalidInputError, match="unknown mode"):
            save(rows(spark, 3), "prod.events", root=root, mode="upsert")

    @pytest.mark.deep
    def test_dataframe_writer_appends_and_overwrites_but_refuses_the_default_mode(
        self, spark: SparkSession, root: str, catalog: relance.DirectoryNamespace
    ) -> None:
        relance.spark.register(spark)
        writer = rows(spark, 4).write.format("lance").option("root", root)
        writer.mode("append").save("t")
        writer.mode("append").save("t")
        assert counted(catalog, ["t"]) == 8
        writer.mode("overwrite").save("t")
        assert counted(catalog, ["t"]) == 4
        with pytest.raises(PySparkException, match="ErrorIfExists") as refused:
            rows(spark, 4).write.format("lance").option("root", root).save("t")
        assert counted(catalog, ["t"]) == 4
        with pytest.raises(UnsupportedOperationError, match=r"relance\.spark\.save"), typed_errors():
            raise refused.value
        with pytest.raises(TableAlreadyExistsError), typed_errors():
            rows(spark, 4).write.format("lance").mode("append").options(root=root, if_exists="error").save(
                "t"
            )

    @pytest.mark.deep
    def test_overwrite_of_a_dropped_table_revives_it_and_append_suggests_undrop(
        self, spark: SparkSession, root: str, catalog: relance.DirectoryNamespace
    ) -> None:
        relance.spark.save(rows(spark, 4), "t", root=root)
        catalog.drop_table({"id": ["t"]})
        with pytest.raises(TableNotFoundError, match="undrop"):
            relance.spark.save(rows(spark, 4), "t", root=root, mode="append")
        assert relance.spark.save(rows(spark, 2), "t", root=root, mode="overwrite").version == 2
        assert counted(catalog, ["t"]) == 2
        old = catalog.describe_table({"id": ["t"]}).location
        assert lance.dataset(old, version=1).count_rows() == 4

    @pytest.mark.deep
    def test_path_ending_in_lance_is_a_table_of_its_folder(self, spark: SparkSession, root: str) -> None:
        relance.spark.register(spark)
        path = f"{root}/plain.lance"
        rows(spark, 4).write.format("lance").mode("append").save(path)
        assert spark.read.format("lance").load(path).count() == 4
        with pytest.raises(UnsupportedOperationError), typed_errors():
            rows(spark, 4).write.format("lance").mode("append").save(f"{root}/elsewhere")


class TestSchemas:
    @pytest.mark.deep
    def test_incompatible_columns_are_refused_by_name_before_any_task_runs(
        self, spark: SparkSession, root: str
    ) -> None:
        save = relance.spark.save
        save(rows(spark, 4), "t", root=root)
        before = data_files(root)
        ran = spark.sparkContext.accumulator(0)

        def touched(batches):  # type: ignore[no-untyped-def]  # runs in a task
            for batch in batches:
                ran.add(1)
                yield batch

        source = rows(spark, 4).mapInArrow(touched, "id long, half double")
        for wrong, column in (
            (source.withColumnRenamed("half", "Half"), "Half"),
            (source.withColumn("more", f.lit(1)), "more"),
            (source.withColumn("half", f.lit("text")), "half"),
        ):
            with pytest.raises(TableSchemaValidationError, match=column):
                save(wrong, "t", root=root, mode="append")
        with pytest.raises(UnsupportedOperationError, match="span"):
            save(source.withColumn("span", f.expr("interval '1' month")), "new", root=root)
        with pytest.raises(NamespaceNotFoundError):
            save(source, "missing.t", root=root)
        assert (ran.value, data_files(root)) == (0, before)

    @pytest.mark.deep
    def test_missing_columns_become_null_and_order_does_not_matter(
        self, spark: SparkSession, root: str, catalog: relance.DirectoryNamespace
    ) -> None:
        relance.spark.save(spark.sql("select 1L as a, 'x' as b, 2.5D as c"), "t", root=root)
        nullable = spark.createDataFrame([(7.5, 3)], "c double, a long")
        table = catalog.describe_table({"id": ["t"]}).location
        if not lance.dataset(table).schema.field("b").nullable:
            with pytest.raises(TableSchemaValidationError, match="b"):
                relance.spark.save(nullable, "t", root=root, mode="append")
            relance.spark.save(
                spark.createDataFrame([(1, "x", 2.5)], "a long, b string, c double"),
                "t",
                root=root,
                mode="overwrite",
            )
        relance.spark.save(nullable, "t", root=root, mode="append")
        found = lance.dataset(table).to_table().sort_by("a").to_pylist()
        assert found == [{"a": 1, "b": "x", "c": 2.5}, {"a": 3, "b": None, "c": 7.5}]

    @pytest.mark.deep
    def test_vectors_are_declared_by_size_and_ragged_ones_are_refused(
        self, spark: SparkSession, root: str, catalog: relance.DirectoryNamespace
    ) -> None:
        vectors = spark.createDataFrame([(1, [1.0, 2.0]), (2, None)], "id long, vector array<float>")
        relance.spark.save(vectors, "v", root=root, vectors={"vector": 2})
        table = lance.dataset(catalog.describe_table({"id": ["v"]}).location)
        assert table.schema.field("vector").type == pa.list_(pa.float32(), 2)
        relance.spark.save(vectors, "v", root=root, mode="append")
        ragged = spark.createDataFrame([(3, [1.0])], "id long, vector array<float>")
        with pytest.raises(TableSchemaValidationError, match="vector"):
            relance.spark.save(ragged, "v", root=root, mode="append")
        with pytest.raises(InvalidInputError, match="id"):
            relance.spark.save(vectors, "w", root=root, vectors={"id": 2})
        assert counted(catalog, ["v"]) == 4

    @pytest.mark.deep
    def test_thousand_columns_unicode_names_and_empty_frames_are_written(
        self, spark: SparkSession, root: str, catalog: relance.DirectoryNamespace
    ) -> None:
        wide = spark.range(3).select(*(f.col("id").alias(f"größe_{i}") for i in range(1000)))
        relance.spark.save(wide, "wide", root=root)
        assert counted(catalog, ["wide"]) == 3
        narrow = relance.spark.table(spark, "wide", root=root, columns=["größe_999"])
        assert sorted(row[0] for row in narrow.collect()) == [0, 1, 2]
        relance.spark.save(rows(spark, 0), "empty", root=root)
        assert relance.spark.table(spark, "empty", root=root).count() == 0
        relance.spark.save(rows(spark, 0), "empty", root=root, mode="append")
        assert relance.spark.table(spark, "empty", root=root).columns == ["id", "half"]


class TestOptions:
    @pytest.mark.deep
    def test_file_property_and_row_id_options_are_applied(
        self, spark: SparkSession, root: str, catalog: relance.DirectoryNamespace
    ) -> None:
        relance.spark.save(
            rows(spark, 10, tasks=1),
            ID,
            root=root,
            create_namespaces=True,
            max_rows_per_file=4,
            stable_row_ids=True,
            data_storage_version="2.1",
            table_properties={"owner": "tests"},
        )
        found = catalog.describe_table({"id": ID})
        table = lance.dataset(found.location)
        assert [each.physical_rows for each in table.get_fragments()] == [4, 4, 2]
        assert (table.has_stable_row_ids, table.data_storage_version) == (True, "2.1")
        assert found.properties == {"owner": "tests"}

    @pytest.mark.deep
    def test_unknown_option_is_refused_and_a_similar_one_suggested(
        self, spark: SparkSession, root: str
    ) -> None:
        relance.spark.register(spark)
        writer = rows(spark, 1).write.format("lance").mode("append").option("root", root)
        with pytest.raises(InvalidInputError, match="max_rows_per_file"), typed_errors():
            writer.option("max_row_per_file", 3).save("t")
        assert not Path(root).exists()


class TestFailures:
    @pytest.mark.deep
    def test_failed_job_leaves_no_rows_and_no_files(
        self, spark: SparkSession, root: str, catalog: relance.DirectoryNamespace, tmp_path: Path
    ) -> None:
        relance.spark.save(rows(spark, 4), "t", root=root)
        before = data_files(root)
        gate = tmp_path / "the other tasks ended"
        bad = rows(spark, 4, tasks=4).select(broken(3, gate)("id").alias("id"), "half")
        with opened_after(spark, 3, gate), pytest.raises(PySparkException, match="broken row"):
            relance.spark.save(bad, "t", root=root, mode="append")
        assert gate.exists(), "the row broke before the other tasks ended"
        assert (counted(catalog, ["t"]), data_files(root)) == (4, before)
        with pytest.raises(PySparkException, match="broken row"):
            relance.spark.save(bad, "fresh", root=root)
        assert catalog.list_tables({"id": []}).tables == ["t"]
        relance.spark.save(rows(spark, 2), "fresh", root=root)
        assert counted(catalog, ["fresh"]) == 2

    @pytest.mark.deep
    def test_null_in_a_non_nullable_column_is_refused_and_changes_nothing(
        self, spark: SparkSession, root: str, catalog: relance.DirectoryNamespace
    ) -> None:
        relance.spark.save(rows(spark, 2), "t", root=root)
        nulls = spark.createDataFrame([(None, 1.0)], "id long, half double")
        with pytest.raises(TableSchemaValidationError, match="id"):
            relance.spark.save(nulls, "t", root=root, mode="append")
        assert counted(catalog, ["t"]) == 2
