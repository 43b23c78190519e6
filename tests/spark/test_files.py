"""Rows between files and tables through Spark."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from relance import DirectoryNamespace
from relance.errors import InvalidInputError, TableAlreadyExistsError
from relance.spark.files import export_files, import_files
from relance.spark.session_properties import keep_in_session

pytestmark = pytest.mark.deep


@pytest.fixture
def root(spark: SparkSession, tmp_path: Path) -> Iterator[str]:
    """Give the session a fresh root for its catalog, as long as the test lasts."""
    keep_in_session(spark, {"root": str(tmp_path / "lake")})
    yield str(tmp_path / "lake")
    keep_in_session(spark, {})


@pytest.mark.parametrize("kind", ["parquet", "csv"])
def test_spark_import_and_export_preserve_rows(
    spark: SparkSession, root: str, tmp_path: Path, kind: str
) -> None:
    frame = spark.createDataFrame([(1, "a"), (2, "b"), (3, "c")], "id long, name string")
    frame.write.option("header", "true").format(kind).save(str(tmp_path / "given"))
    saved = import_files(
        spark, [str(tmp_path / "given")], ["prod", "t"], file_format=kind, create_namespaces=True
    )
    assert saved.version == 1
    with pytest.raises(TableAlreadyExistsError):
        import_files(spark, [str(tmp_path / "given")], ["prod", "t"], file_format=kind)
    out = str(tmp_path / "out")
    export_files(spark, ["prod", "t"], out, file_format=kind, where="id > 1")
    again = spark.read.option("header", "true").option("inferSchema", "true").format(kind).load(out)
    assert sorted((row["id"], row["name"]) for row in again.collect()) == [(2, "b"), (3, "c")]
    with pytest.raises(InvalidInputError, match="exists"):
        export_files(spark, ["prod", "t"], out, file_format=kind)
    assert DirectoryNamespace(root=root).count_table_rows({"id": ["prod", "t"]}).count == 3


def test_import_of_a_missing_path_or_unsupported_format_is_refused(spark: SparkSession, root: str) -> None:
    with pytest.raises(InvalidInputError, match="does not exist"):
        import_files(spark, ["/nowhere/at/all.parquet"], ["t"], file_format="parquet")
    with pytest.raises(InvalidInputError, match="arrow"):
        import_files(spark, ["x.arrow"], ["t"], file_format="arrow")
