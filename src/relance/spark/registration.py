"""Telling a session about the data source."""

from __future__ import annotations

import re
from weakref import WeakKeyDictionary

from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

from relance.errors import InvalidInputError
from relance.spark.datasource import LanceSource

DEFAULT_NAME = "lance"

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]*")

_REGISTERED: WeakKeyDictionary[SparkSession, set[str]] = WeakKeyDictionary()
"""Which names this process has registered in which session."""


def register(spark: SparkSession, name: str = DEFAULT_NAME) -> None:
    """Make the data source known to the session, as `lance` or by another name.

    Raises:
        InvalidInputError: the name is no identifier, or Spark has another source of this name.
    """
    if not _NAME.fullmatch(name):
        raise InvalidInputError(f"invalid data source name {name!r}: use letters, digits and '_'")
    source = _source_named(name)
    if not _try_register(spark, source) and not _register_as_active(spark, source):
        raise InvalidInputError(
            f"data source name {name!r} is taken by another source in this session: "
            "choose another name, as in register(spark, 'relance')"
        )
    _REGISTERED.setdefault(spark, set()).add(name)


def _try_register(spark: SparkSession, source: type[LanceSource]) -> bool:
    try:
        spark.dataSource.register(source)
    except AnalysisException as refused:
        if refused.getCondition() != "DATA_SOURCE_ALREADY_EXISTS":
            raise
        return False
    return True


def _register_as_active(spark: SparkSession, source: type[LanceSource]) -> bool:
    """Register in a session made by newSession(): Spark looks for the name in the active one, its parent."""
    active = SparkSession.getActiveSession()
    if active is None or active is spark:
        return False
    _activate(spark)
    try:
        return _try_register(spark, source)
    finally:
        _activate(active)


def _activate(spark: SparkSession) -> None:
    # The one call of PySpark's own that makes a session the active one.
    spark.createDataFrame([], "nothing int")


def ensure_registered(spark: SparkSession, name: str = DEFAULT_NAME) -> None:
    """Register the data source unless this process has done so before.

    Raises:
        InvalidInputError: as `register`.
    """
    if name not in _REGISTERED.get(spark, ()):
        register(spark, name)


def _source_named(name: str) -> type[LanceSource]:
    if name == DEFAULT_NAME:
        return LanceSource

    class NamedSource(LanceSource):
        # A class inside a function travels to executors as a whole, its parent by name.
        @classmethod
        def name(cls) -> str:
            return name

    return NamedSource
