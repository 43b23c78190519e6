"""Telling a session about the data source."""

from __future__ import annotations

import re
from weakref import WeakKeyDictionary

from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import SparkSession

from relance.errors import InvalidInputError
from relance.spark.datasource import LanceSource
from relance.spark.errors import typed_error

DEFAULT_NAME = "lance"

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]*")

_NO_ROOT = "relance_asks"
"""An id, which only our source refuses as one without a root."""

_REGISTERED: WeakKeyDictionary[SparkSession, set[str]] = WeakKeyDictionary()
"""Which names this process has registered in which session."""


def register(spark: SparkSession, name: str = DEFAULT_NAME) -> None:
    """Make the data source known to the session, as `lance` or by another name.

    Raises:
        InvalidInputError: the name is no identifier, or Spark has another source of this name.
    """
    if not _NAME.fullmatch(name):
        raise InvalidInputError(f"data source name {name!r}: use letters, digits and '_'")
    try:
        spark.dataSource.register(_source_named(name))
    except AnalysisException as refused:
        if refused.getCondition() != "DATA_SOURCE_ALREADY_EXISTS":
            raise
        if not _is_ours(spark, name):
            raise InvalidInputError(
                f"data source name {name!r} is taken by another source of this session: "
                "give another one, as in register(spark, 'relance')"
            ) from refused
    _REGISTERED.setdefault(spark, set()).add(name)


def ensure_registered(spark: SparkSession, name: str = DEFAULT_NAME) -> None:
    """Register the data source unless this process has done so before.

    Raises:
        InvalidInputError: as `register`.
    """
    if name not in _REGISTERED.get(spark, ()):
        register(spark, name)


def _is_ours(spark: SparkSession, name: str) -> bool:
    """Tell whether a source is the one of Relance: a session made by newSession() has that of its parent."""
    try:
        _ = spark.read.format(name).load(_NO_ROOT).schema
    except PySparkException as refused:
        return isinstance(typed_error(refused), InvalidInputError)  # an id without a root
    return False


def _source_named(name: str) -> type[LanceSource]:
    if name == DEFAULT_NAME:
        return LanceSource

    class NamedSource(LanceSource):
        # A class inside a function travels to executors as a whole, its parent by name.
        @classmethod
        def name(cls) -> str:
            return name

    return NamedSource
