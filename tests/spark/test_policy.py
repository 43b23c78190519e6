"""Policies with a Spark session: the same as on threads, by Spark's tasks."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from tests.support.policy.lakes import PolicyLake, outcomes, the_policy
from tests.support.policy.policies import KINDS

import relance.spark
from relance.policy import history, run_policy
from relance.policy.records import Outcome, RunState

pytestmark = pytest.mark.deep


def test_policy_planned_and_run_by_spark_matches_a_local_run(spark: SparkSession, tmp_path: Path) -> None:
    here, there = PolicyLake(str(tmp_path / "here")), PolicyLake(str(tmp_path / "there"))
    here.fill()
    shutil.copytree(here.uri, there.uri)
    properties = {key: value for key, value in there.properties.items() if key != "root"}
    made = relance.spark.plan_policy(
        spark, the_policy(), root=there.uri, properties=properties, engine="spark"
    )
    assert made.state is RunState.PLANNED
    record = relance.spark.run_policy(
        spark, the_policy(), root=there.uri, properties=properties, engine="spark", actor="spark@test"
    )
    assert record.engine == "spark: requested"
    assert record.state is RunState.DONE, [each.error for each in record.actions if each.error]
    assert {key[0] for key, each in outcomes(record).items() if each is Outcome.DONE} == set(KINDS)
    run_policy(here.catalog, the_policy(), engine="local")
    assert there.state() == here.state()
    assert {each.head.actor for each in history(there.catalog)} == {"spark@test"}


@pytest.mark.parametrize("engine", ["auto", "local"])
def test_policy_runs_locally_with_the_auto_and_local_engines(
    spark: SparkSession, tmp_path: Path, engine: str
) -> None:
    lake = PolicyLake(str(tmp_path / "lake"))
    lake.make("readings", fragments=2)
    record = relance.spark.run_policy(spark, the_policy(), root=lake.uri, engine=engine, kinds=["compact"])
    assert record.engine.startswith("local")
    assert record.state is RunState.DONE
