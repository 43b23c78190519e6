"""The catalog that a session works with: the settings `spark.relance.*`."""

from __future__ import annotations

import os
from collections.abc import Mapping

from pyspark.sql import SparkSession

from relance.locations import parse_root

CONF_PREFIX = "spark.relance."


def catalog_properties(
    spark: SparkSession, root: str | os.PathLike[str] | None, properties: Mapping[str, str] | None
) -> dict[str, str]:
    """Return what to open the catalog with; the session's own settings count for its own root only.

    Raises:
        InvalidInputError: the root is no path or URI.
    """
    given = dict(properties or {})
    if root is not None:
        given["root"] = os.fspath(root)
    if "root" in given:
        given["root"] = parse_root(given["root"]).uri  # absolute: other processes run elsewhere
    known = session_properties(spark)
    # The keys of one store must not be sent to another one.
    return {**known, **given} if given.get("root") in (None, known.get("root")) else given


def session_properties(spark: SparkSession) -> dict[str, str]:
    """Return the properties that the session has as `spark.relance.*`."""
    settings = spark.conf.getAll
    return {k.removeprefix(CONF_PREFIX): v for k, v in settings.items() if k.startswith(CONF_PREFIX)}


def keep_in_session(spark: SparkSession, properties: Mapping[str, str]) -> None:
    """Make these the session's catalog, instead of any that it has."""
    for name in session_properties(spark):
        spark.conf.unset(CONF_PREFIX + name)
    for name, value in properties.items():
        spark.conf.set(CONF_PREFIX + name, value)
