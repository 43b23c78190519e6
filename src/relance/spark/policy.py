"""Policies with a Spark session: tables are looked at and worked on by its executors."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import timedelta

from pyspark.sql import SparkSession

from relance.jobs.engine import Progress
from relance.jobs.runner import Engine, parse_engine
from relance.namespace import DirectoryNamespace
from relance.policy import planning, running
from relance.policy.model import Policy
from relance.policy.planning import RunPlan
from relance.policy.records import RunRecord
from relance.spark.classic import spark_context
from relance.spark.runner import SparkRunner
from relance.spark.session_properties import catalog_properties

Report = Callable[[Progress], None]


def runner_for(spark: SparkSession, engine: Engine | str) -> SparkRunner | None:
    """Return what gives tasks to a session; None where an engine needs none, or the session has none."""
    chosen = parse_engine(engine)
    no_tasks = chosen is Engine.AUTO and spark_context(spark) is None
    return None if chosen is Engine.LOCAL or no_tasks else SparkRunner(spark)


def plan_policy(
    spark: SparkSession,
    policy: Policy,
    *,
    root: str | os.PathLike[str] | None = None,
    properties: Mapping[str, str] | None = None,
    only: Sequence[Sequence[str]] | None = None,
    kinds: Iterable[str] | None = None,
    engine: Engine | str = Engine.AUTO,
    actor: str | None = None,
    progress: Report | None = None,
) -> RunPlan:
    """Return what a run of the policy over the session's catalog would do now; nothing is changed.

    Raises:
        InvalidInputError: an id, a property or the engine cannot be used.
        UnsupportedOperationError: Spark is asked for and the session is one of Spark Connect.
    """
    return planning.plan(
        DirectoryNamespace(clock=None, **catalog_properties(spark, root, properties)),
        policy,
        only=only,
        kinds=kinds,
        engine=engine,
        spark=runner_for(spark, engine),
        actor=actor,
        progress=progress,
    )


def run_policy(
    spark: SparkSession,
    policy: Policy,
    *,
    root: str | os.PathLike[str] | None = None,
    properties: Mapping[str, str] | None = None,
    only: Sequence[Sequence[str]] | None = None,
    kinds: Iterable[str] | None = None,
    engine: Engine | str = Engine.AUTO,
    actor: str | None = None,
    wait: timedelta | None = None,
    progress: Report | None = None,
) -> RunRecord:
    """Do what a policy asks for in the session's catalog; see relance.policy.run_policy.

    With the engine `auto`, Spark is used where it has more to give than the threads of this process; the
    record says where it ran and why.

    Raises:
        LeaseHeldError: another run is under way; the text says whose.
        InvalidInputError: an id, a property or the engine cannot be used.
        UnsupportedOperationError: Spark is asked for and the session is one of Spark Connect, or the store
            does not honour conditional writes.
    """
    return running.run_policy(
        DirectoryNamespace(clock=None, **catalog_properties(spark, root, properties)),
        policy,
        only=only,
        kinds=kinds,
        engine=engine,
        spark=runner_for(spark, engine),
        actor=actor,
        wait=wait,
        progress=progress,
    )
