"""The natural call: a table of a catalog as a DataFrame."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from datetime import datetime

from pyspark.sql import DataFrame, SparkSession

from relance.errors import InvalidInputError
from relance.identifiers import format_id
from relance.spark.classic import parallelism
from relance.spark.errors import typed_errors
from relance.spark.option_values import byte_text
from relance.spark.registration import DEFAULT_NAME, ensure_registered
from relance.spark.session_properties import catalog_properties


def table(
    spark: SparkSession,
    id: str | Sequence[str],
    *,
    root: str | os.PathLike[str] | None = None,
    properties: Mapping[str, str] | None = None,
    columns: Sequence[str] | None = None,
    where: str | None = None,
    limit: int | None = None,
    version: int | None = None,
    tag: str | None = None,
    timestamp: datetime | str | None = None,
    branch: str | None = None,
    with_row_id: bool = False,
    with_row_address: bool = False,
    batch_size: int | None = None,
    split_rows: int | None = None,
    split_bytes: int | str | None = None,
    source: str = DEFAULT_NAME,
) -> DataFrame:
    """Return a table as a DataFrame that keeps to the version that is there now.

    `id` is a text such as "prod.users", a list of names, or a path. Only `columns`, `where` and `limit`
    given here reach Lance; what is done to the DataFrame afterwards, Spark does by itself.

    Raises:
        TableNotFoundError: there is no such table; if it was dropped, the message says how to undrop it.
        TableVersionNotFoundError, TableTagNotFoundError, TableBranchNotFoundError: not that one.
        TableColumnNotFoundError: a column is not there.
        InvalidInputError: an option cannot be used.
        UnsupportedOperationError: Spark cannot read the type of a column.
    """
    address = address_options(spark, id, root=root, properties=properties)
    ensure_registered(spark, source)
    options: dict[str, object | None] = {
        "columns": None if columns is None else json.dumps(_names(columns)),
        "filter": where,
        "limit": limit,
        "version": version,
        "tag": tag,
        "timestamp": timestamp.isoformat() if isinstance(timestamp, datetime) else timestamp,
        "branch": branch,
        "with_row_id": with_row_id or None,
        "with_row_address": with_row_address or None,
        "batch_size": batch_size,
        "split_rows": split_rows,
        "split_bytes": byte_text(split_bytes),
        "parallelism": parallelism(spark),
    }
    reader = spark.read.format(source).options(**address)
    for name, value in options.items():
        if value is not None:
            reader = reader.option(name, str(value))
    with typed_errors():
        frame = reader.load()
        _ = frame.schema  # a Connect session looks for the table only when it is asked
    return frame


def address_options(
    spark: SparkSession,
    id: str | Sequence[str],
    *,
    root: str | os.PathLike[str] | None,
    properties: Mapping[str, str] | None,
) -> dict[str, str]:
    """Return the options that say which table is meant, and where the catalog is that knows it.

    Raises:
        InvalidInputError: both a root and a path are given.
    """
    text = id if isinstance(id, str) else format_id(id)
    if "/" not in text:
        return {"path": text, **catalog_properties(spark, root, properties)}
    if root is not None:
        raise InvalidInputError(f"{text!r} is a path: leave out root or pass a table id")
    return {"path": text, **(properties or {})}


def _names(columns: Sequence[str]) -> list[str]:
    if isinstance(columns, str):
        raise InvalidInputError(f"columns must be a list of names, got the string {columns!r}")
    return list(columns)
