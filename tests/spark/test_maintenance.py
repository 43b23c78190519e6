"""Maintenance jobs on Spark's executors give what they give on threads."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import lance
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from tests.support.jobs.running import results_of

import relance
import relance.spark
from relance.errors import InvalidInputError, TableNotFoundError
from relance.jobs import (
    CleanUp,
    Compact,
    DeleteRows,
    MaintainManifest,
    PurgeDropped,
    RefreshIndexes,
    RemoveOrphans,
    UpdateRows,
)
from relance.jobs.base import CatalogRef, Job, Report
from relance.spark.runner import SparkRunner

pytestmark = pytest.mark.deep

TABLES = [["prod", f"t{number}"] for number in range(3)]


@pytest.fixture
def catalog(tmp_path: Path) -> relance.DirectoryNamespace:
    """Make a lake of three tables with ten fragments each."""
    catalog = relance.DirectoryNamespace(root=tmp_path / "lake")
    catalog.create_namespace({"id": ["prod"]})
    for table in TABLES:
        for number in range(10):
            rows = pa.table({"id": range(number * 100, number * 100 + 100), "value": [number] * 100})
            mode = "append" if number else "create"
            lance.write_dataset(rows, namespace_client=catalog, table_id=table, mode=mode)
    return catalog


def _dataset(catalog: relance.DirectoryNamespace, table: list[str]) -> lance.LanceDataset:
    return lance.dataset(namespace_client=catalog, table_id=table)


def _done(
    spark: SparkSession,
    catalog: relance.DirectoryNamespace,
    job: Job,
    tables: list[list[str]] | None = None,
) -> Report:
    report = relance.spark.maintain(spark, job, tables, root=catalog.root_uri, engine="spark")
    assert report.engine.startswith("spark")
    assert not report.failed, report.failed
    return report


def test_every_job_runs_on_executors_and_reports_every_table(
    spark: SparkSession, catalog: relance.DirectoryNamespace
) -> None:
    planned = relance.spark.maintain(
        spark, DeleteRows(where="id % 2 = 0"), TABLES, root=catalog.root_uri, engine="spark", dry_run=True
    )
    assert [each.planned.rows for each in planned.results if each.planned is not None] == [500] * 3
    deleted = _done(spark, catalog, DeleteRows(where="id % 2 = 0"), TABLES)
    assert [each.effect.rows for each in deleted.changed if each.effect is not None] == [500] * 3
    updated = _done(spark, catalog, UpdateRows(set={"value": "value + 100"}, where="id < 100"), TABLES[:1])
    assert updated.changed[0].table == ("prod", "t0")
    _dataset(catalog, TABLES[0]).create_scalar_index("id", "BTREE")
    extra = pa.table({"id": range(1000, 1100), "value": [0] * 100})
    lance.write_dataset(extra, namespace_client=catalog, table_id=TABLES[0], mode="append")
    assert len(_done(spark, catalog, RefreshIndexes()).changed) == 1
    compacted = _done(spark, catalog, Compact())
    assert len(compacted.changed) == 3
    cleaned = _done(spark, catalog, CleanUp(retain_versions=1, allow_young=True))
    assert all(each.effect is not None and each.effect.files > 0 for each in cleaned.results)
    for table in TABLES:
        dataset = _dataset(catalog, table)
        assert dataset.count_rows() == (600 if table == TABLES[0] else 500)
        assert len(dataset.get_fragments()) <= 2
        assert len(dataset.versions()) == 1
    assert _dataset(catalog, TABLES[0]).count_rows("value >= 100") == 50
    _done(spark, catalog, MaintainManifest())
    _done(spark, catalog, RemoveOrphans(older_than=timedelta(0), allow_young=True))
    catalog.drop_table({"id": TABLES[2]})
    purged = _done(spark, catalog, PurgeDropped(force=True), TABLES[2:])
    assert purged.changed[0].effect is not None
    with pytest.raises(TableNotFoundError):
        catalog.undrop_table(TABLES[2])


def test_giant_table_is_split_over_executors_and_a_missing_one_stops_nothing(
    spark: SparkSession, catalog: relance.DirectoryNamespace
) -> None:
    with pytest.raises(InvalidInputError, match="auto, local, spark"):
        relance.spark.maintain(
            spark, DeleteRows(where="id < 250"), TABLES, root=catalog.root_uri, engine="ray"
        )
    runner = SparkRunner(spark)
    job, ref = DeleteRows(where="id < 250"), CatalogRef(catalog.properties)
    ids = [("prod", "t0"), ("prod", "missing"), ("prod", "t1")]
    found = results_of(job, ref, ids, runner, oversized_seconds=0.0)
    results = {each.table: each for each in found}
    assert isinstance(results["prod", "missing"].error, TableNotFoundError)
    for name in ("t0", "t1"):
        effect = results["prod", name].effect
        assert effect is not None
        assert effect.rows == 250
        assert _dataset(catalog, ["prod", name]).count_rows() == 750
