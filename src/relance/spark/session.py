"""Spark sessions with settings that suit Lance. What they need of the machine is in requirements."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING

from relance.errors import InvalidInputError
from relance.spark.requirements import check_requirements
from relance.spark.spark_home import without_archives

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PREFIX = "spark.relance."
"""What the catalog of a session is kept under: `spark.relance.root` and `spark.relance.<property>`."""

LOOPBACK = "127.0.0.1"
REDACTED = "(?i)secret|password|token|credential|(access|account|private|sas)[._]?key|service[._]?account"
"""Settings whose values Spark hides in its pages and logs: what it hides by itself, and keys of stores."""

_LOCAL_MASTER = re.compile(r"local(\[.*\])?")
_ANYWHERE = {
    # Spark looks at the size of a batch after every row unless the limit is exactly this one.
    "spark.sql.execution.arrow.maxBytesPerBatch": "2147483647",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "32768",
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.python.worker.reuse": "true",
    "spark.executor.extraJavaOptions": "-XX:+UseParallelGC",
    # Filters that Spark pushes into Python sources give wrong rows when one relation is used twice.
    "spark.sql.python.filterPushdown.enabled": "false",
    "spark.redaction.regex": REDACTED,
}
_LOCAL = {
    "spark.driver.host": LOOPBACK,
    "spark.driver.bindAddress": LOOPBACK,
    "spark.driver.memory": "2g",
    "spark.driver.extraJavaOptions": "-XX:+UseParallelGC",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    # 200 tasks for every shuffle, the default, are mostly overhead on one machine.
    "spark.sql.shuffle.partitions": "16",
}
_FREE_TO_DIFFER = frozenset({"spark.app.name", "spark.driver.host"})


def settings(*, local: bool) -> dict[str, str]:
    """Return the settings that make Lance fast in Spark, and with `local` those that suit one machine."""
    return {**_ANYWHERE, **_LOCAL} if local else dict(_ANYWHERE)


def session(
    app_name: str = "relance",
    *,
    master: str = "local[*]",
    root: str | None = None,
    properties: Mapping[str, str] | None = None,
    conf: Mapping[str, str] | None = None,
) -> SparkSession:
    """Return a Spark session with Relance's settings, the running one if it has them already.

    `root` and `properties` name the catalog that reads and writes use when they name none; `conf` wins
    over every setting made here.

    Raises:
        UnsupportedOperationError: PySpark or Java is missing or too old.
        InvalidInputError: a session is running with other settings that cannot change, or a property is
            not text.
    """
    check_requirements()
    wanted = _wanted(app_name, master, root, properties or {}, conf or {})
    _refuse_other_settings(wanted)
    # Workers must be this Python: another one may have neither Relance nor the same minor version.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    from pyspark.sql import SparkSession

    builder = SparkSession.builder
    for name, value in wanted.items():
        builder = builder.config(name, value)
    with without_archives(enabled=is_local(master)):
        started = builder.getOrCreate()
    started.sparkContext.setLogLevel(wanted.get("spark.log.level", "ERROR"))
    return started


def is_local(master: str) -> bool:
    """Return whether driver and executors of a master are one process on this machine."""
    return _LOCAL_MASTER.fullmatch(master) is not None


def _wanted(
    app_name: str, master: str, root: str | None, properties: Mapping[str, str], conf: Mapping[str, str]
) -> dict[str, str]:
    if wrong := [name for name, value in properties.items() if not isinstance(value, str)]:
        raise InvalidInputError(f"properties of a catalog are text, which these are not: {', '.join(wrong)}")
    catalog = {} if root is None else {"root": root}
    return {
        **settings(local=is_local(master)),
        "spark.app.name": app_name,
        "spark.master": master,
        **{f"{PREFIX}{name}": value for name, value in {**properties, **catalog}.items()},
        **conf,
    }


def _refuse_other_settings(wanted: Mapping[str, str]) -> None:
    from pyspark.sql import SparkSession

    running = SparkSession.getActiveSession()
    if running is None:
        return
    context = running.sparkContext
    differing = [
        f"{name} is {_shown(name, has)}, not {_shown(name, value)}"
        for name, value in wanted.items()
        if name not in _FREE_TO_DIFFER
        and not running.conf.isModifiable(name)
        and not name.startswith(PREFIX)
        and (has := context.getConf().get(name)) != value
    ]
    if differing:
        raise InvalidInputError(
            f"a Spark session is running whose settings cannot change: {'; '.join(differing)}. "
            "Stop it first: SparkSession.getActiveSession().stop(), or ask for the settings it has with conf="
        )


def _shown(name: str, value: str | None) -> str:
    if value is None:
        return "not set"
    return "(hidden)" if re.search(REDACTED, name) else repr(value)
