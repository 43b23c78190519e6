"""Maintenance jobs with a Spark session."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence

from pyspark.sql import SparkSession

from relance.jobs import maintain as maintain_tables
from relance.jobs.base import Job, Report
from relance.jobs.engine import Progress
from relance.jobs.runner import Engine, parse_engine
from relance.namespace import DirectoryNamespace
from relance.spark.classic import spark_context
from relance.spark.runner import SparkRunner
from relance.spark.session_properties import catalog_properties


def maintain(
    spark: SparkSession,
    job: Job,
    tables: Sequence[Sequence[str]] | None = None,
    *,
    root: str | os.PathLike[str] | None = None,
    properties: Mapping[str, str] | None = None,
    engine: Engine | str = Engine.AUTO,
    dry_run: bool = False,
    progress: Callable[[Progress], None] | None = None,
) -> Report:
    """Do a job over the named tables of the session's catalog, or over all that it is for.

    With the engine `auto`, Spark is used where it has more to give than the threads of this process; the
    report says where it ran and why. A table that fails does not stop the others.

    Raises:
        InvalidInputError: an id, a property or the engine cannot be used.
        UnsupportedOperationError: Spark is asked for and the session is one of Spark Connect.
    """
    catalog = DirectoryNamespace(clock=None, **catalog_properties(spark, root, properties))
    chosen = parse_engine(engine)
    no_tasks = chosen is Engine.AUTO and spark_context(spark) is None
    runner = None if chosen is Engine.LOCAL or no_tasks else SparkRunner(spark)
    return maintain_tables(
        catalog, job, tables, engine=chosen, spark=runner, dry_run=dry_run, progress=progress
    )
