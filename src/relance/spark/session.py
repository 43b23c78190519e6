"""Spark sessions with settings that suit Lance. What they need of the machine is in requirements."""

from __future__ import annotations

import os
import re
import sys
import warnings
from collections.abc import Mapping

from pyspark import SparkContext
from pyspark.sql import SparkSession

from relance.errors import InvalidInputError
from relance.spark.requirements import check_requirements
from relance.spark.session_properties import CONF_PREFIX, keep_in_session
from relance.spark.spark_home import without_archives

LOOPBACK = "127.0.0.1"
REDACTED = "(?i)secret|password|token|credential|(access|account|private|sas)[._]?key|service[._]?account"
"""Settings whose values Spark hides in its pages and logs: what it hides by itself, and keys of stores."""

_JAVA_OPTIONS = "-XX:+UseParallelGC -Darrow.enable_null_check_for_get=false"
"""Spark asks whether a value is null before it gets it: Arrow need not look once more at each value."""
_LOCAL_MASTER = re.compile(r"local(\[.*\])?")
_ANYWHERE = {
    # Spark looks at the size of a batch after every row unless the limit is exactly this one.
    "spark.sql.execution.arrow.maxBytesPerBatch": "2147483647",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "16384",
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.python.worker.reuse": "true",
    "spark.executor.extraJavaOptions": _JAVA_OPTIONS,
    # Filters that Spark pushes into Python sources give wrong rows when one relation is used twice.
    "spark.sql.python.filterPushdown.enabled": "false",
    "spark.redaction.regex": REDACTED,
}
_LOCAL = {
    "spark.driver.host": LOOPBACK,
    "spark.driver.bindAddress": LOOPBACK,
    "spark.driver.memory": "2g",
    "spark.driver.extraJavaOptions": _JAVA_OPTIONS,
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
    # 200 tasks for every shuffle, the default, are mostly overhead on one machine.
    "spark.sql.shuffle.partitions": "16",
}
_FREE_TO_DIFFER = frozenset({"spark.app.name", "spark.log.level"})


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
    if is_local(master):
        # Otherwise Spark looks up the name of this host, which may be slow, and warns about what it finds.
        os.environ.setdefault("SPARK_LOCAL_IP", LOOPBACK)
    builder = SparkSession.builder
    for name, value in wanted.items():
        builder = builder.config(name, value)
    with without_archives(enabled=is_local(master)), warnings.catch_warnings():
        # Spark is a program of its own: what is not safe in a forked Python does not matter to it.
        warnings.filterwarnings("ignore", message=".*fork", category=Warning)
        started = builder.getOrCreate()
    if root is not None:
        # A session that was running may have another catalog, whose keys this one must not get.
        keep_in_session(started, _catalog(root, properties or {}))
    return started


def is_local(master: str) -> bool:
    """Return whether driver and executors of a master are one process on this machine."""
    return _LOCAL_MASTER.fullmatch(master) is not None


def _wanted(
    app_name: str, master: str, root: str | None, properties: Mapping[str, str], conf: Mapping[str, str]
) -> dict[str, str]:
    if wrong := [name for name, value in properties.items() if not isinstance(value, str)]:
        raise InvalidInputError(f"catalog properties must be strings, but these are not: {', '.join(wrong)}")
    return {
        **settings(local=is_local(master)),
        "spark.app.name": app_name,
        "spark.master": master,
        **{f"{CONF_PREFIX}{name}": value for name, value in _catalog(root, properties).items()},
        **conf,
    }


def _catalog(root: str | None, properties: Mapping[str, str]) -> dict[str, str]:
    return {**properties, **({} if root is None else {"root": root})}


def _refuse_other_settings(wanted: Mapping[str, str]) -> None:
    # Not the active session: that is one of this thread, and another thread may have started Spark.
    if SparkContext._active_spark_context is None:
        return
    running = SparkSession.builder.getOrCreate()
    has = dict(running.sparkContext.getConf().getAll())
    differing = [
        f"{name} is {_shown(name, has.get(name))}, not {_shown(name, value)}"
        for name, value in wanted.items()
        if not _is_free(name)
        and not _agree(name, has.get(name), value)
        and not running.conf.isModifiable(name)
    ]
    if differing:
        raise InvalidInputError(
            f"a Spark session with other settings is already running: {'; '.join(differing)}. "
            "Stop it first with SparkSession.getActiveSession().stop(), or pass its settings as conf="
        )


def _is_free(name: str) -> bool:
    """Return whether a setting may differ from the running one: it can change, or changes nothing."""
    return name in _FREE_TO_DIFFER or name.startswith(CONF_PREFIX)


def _agree(name: str, has: str | None, value: str) -> bool:
    if has is not None and name.endswith(".extraJavaOptions"):
        # Spark puts its own options before those that were asked for.
        return set(value.split()) <= set(has.split())
    return has == value


def _shown(name: str, value: str | None) -> str:
    if value is None:
        return "not set"
    return "(hidden)" if re.search(REDACTED, name) else repr(value)
