"""The catalog's tables as temporary views: names, refresh, what is skipped and why."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession
from tests.support.roots import create, declare, drop, ipc

from relance import DirectoryNamespace
from relance.errors import InvalidInputError
from relance.spark.session_properties import keep_in_session
from relance.spark.table import table
from relance.spark.views import attach

pytestmark = pytest.mark.deep

ROWS = pa.table({"id": [1, 2, 3]})


@pytest.fixture
def session(spark: SparkSession) -> SparkSession:
    """A session with views and settings of its own."""
    return spark.newSession()


def test_tables_are_attached_as_views_named_by_their_ids(session: SparkSession, tmp_path: Path) -> None:
    catalog = DirectoryNamespace(root=tmp_path)
    catalog.create_namespace({"id": ["prod"]})
    catalog.create_table({"id": ["prod", "users"]}, ipc(ROWS))
    create(catalog, "events", ROWS)
    create(catalog, "times", pa.table({"t": pa.array([1], pa.time64("us"))}))
    declare(catalog, "declared")
    attached = attach(session, tmp_path)
    assert attached.views == {"prod.users": ("prod", "users"), "events": ("events",)}
    assert sorted(attached.skipped) == ["declared", "times"]
    assert "time64" in attached.skipped["times"]
    joined = session.sql("SELECT count(*) AS n FROM `prod.users` JOIN events USING (id)")
    assert joined.collect() == [(3,)]
    assert session.conf.get("spark.relance.root") == str(tmp_path)
    assert table(session, "prod.users").count() == 3

    catalog.insert_into_table({"id": ["events"]}, ipc(ROWS))
    create(catalog, "later", ROWS)
    assert session.table("events").count() == 3
    attached.refresh()
    assert session.table("events").count() == 6
    assert session.table("later").count() == 3
    drop(catalog, "events")
    attached.refresh()
    assert sorted(attached.views) == ["later", "prod.users"]
    with pytest.raises(AnalysisException, match="TABLE_OR_VIEW_NOT_FOUND"):
        session.table("events")
    attached.detach()
    assert attached.views == {}
    assert [each.name for each in session.catalog.listTables()] == []


def test_ids_that_are_ambiguous_in_spark_are_skipped_and_named(session: SparkSession, tmp_path: Path) -> None:
    catalog = DirectoryNamespace(root=tmp_path)
    catalog.create_namespace({"id": ["a"]})
    for parts in (["users"], ["Users"], ["a", "b"], ["a.b"], ["fine"]):
        catalog.create_table({"id": parts}, ipc(ROWS))
    attached = attach(session, tmp_path)
    assert list(attached.views) == ["fine"]
    assert sorted(attached.skipped) == ["Users", "`a.b`", "a.b", "users"]
    assert "Users" in attached.skipped["users"]


def test_existing_view_of_the_same_name_is_left_alone(session: SparkSession, tmp_path: Path) -> None:
    catalog = DirectoryNamespace(root=tmp_path)
    catalog.create_namespace({"id": ["prod"]})
    catalog.create_table({"id": ["prod", "users"]}, ipc(ROWS))
    create(catalog, "mine", ROWS)
    session.range(7).createOrReplaceTempView("mine")
    attached = attach(session, tmp_path)
    assert "another temporary view" in attached.skipped["mine"]
    assert session.table("mine").count() == 7
    assert list(attach(session, tmp_path, namespace="prod").views) == ["prod.users"]
    session.catalog.dropTempView("mine")


def test_attach_without_a_catalog_requires_a_root(session: SparkSession) -> None:
    with pytest.raises(InvalidInputError, match="root"):
        attach(session)


def test_storage_options_of_one_catalog_are_not_used_for_another(
    session: SparkSession, tmp_path: Path
) -> None:
    create(DirectoryNamespace(root=tmp_path), "t", ROWS)
    keep_in_session(session, {"root": "s3://elsewhere", "storage.region": "nowhere"})
    assert table(session, "t", root=tmp_path).count() == 3
    keep_in_session(session, {})
    with pytest.raises(InvalidInputError, match="'root'"):
        table(session, "t")
