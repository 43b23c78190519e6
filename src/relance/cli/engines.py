"""Where maintenance runs: threads of this process, or a Spark session; and how far it has come."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from relance.cli.exits import CliError, Exit
from relance.cli.progress import job_bar
from relance.cli.state import State

if TYPE_CHECKING:
    from relance.maintenance import Report
    from relance.maintenance.work import Job


def wants_spark(engine: str | None, master: str | None) -> bool:
    """Tell whether Spark is to work.

    Raises:
        CliError: a master is named, and Spark is not to be used.
    """
    if engine == "local" and master is not None:
        raise CliError("--master is for Spark", "pass --engine spark, or leave --master out", Exit.USAGE)
    return engine == "spark" or master is not None


def spark_session(state: State, master: str | None) -> Any:
    """Return a Spark session for the catalog.

    Raises:
        UnsupportedOperationError: PySpark or Java is missing.
    """
    from relance import spark

    state.new_catalog  # noqa: B018  # what is wrong with its properties is told before Spark starts
    lake = state.lake
    properties = {name: value for name, value in lake.properties.items() if name != "root"}
    return spark.session(
        "relance",
        master=master or lake.master or "local[*]",
        root=state.new_catalog.root_uri,
        properties=properties,
        conf=lake.conf,
    )


def run_job(
    state: State,
    job: Job,
    tables: Sequence[tuple[str, ...]] | None,
    *,
    dry_run: bool,
    engine: str | None,
    master: str | None,
) -> Report:
    """Do a job over the named tables, or over all that it is for."""
    from relance.maintenance import maintain

    catalog = state.catalog
    if not wants_spark(engine, master):
        return maintain(catalog, job, tables, engine="local", dry_run=dry_run, progress=job_bar())
    session = spark_session(state, master)
    from relance import spark

    return spark.maintain(session, job, tables, engine="spark", dry_run=dry_run, progress=job_bar())
