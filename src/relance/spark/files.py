"""Rows between files and tables through Spark: many files at once, wherever Spark can read and write."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from relance.errors import InvalidInputError
from relance.spark.errors import typed_errors
from relance.spark.save import Saved, save
from relance.spark.table import table

FORMATS = ("parquet", "csv")
"""What Spark reads and writes by itself; Arrow files it does not."""

_ABOUT_PATHS = {
    "PATH_NOT_FOUND": "does not exist",
    "PATH_ALREADY_EXISTS": "already exists: choose another name or overwrite it",
    "UNABLE_TO_INFER_SCHEMA": "has no rows and no columns",
}

_HINTS = {"PATH_ALREADY_EXISTS": "choose another name, or pass --overwrite"}

_CSV = {"header": "true", "inferSchema": "true"}


def import_files(
    spark: SparkSession,
    paths: Sequence[str],
    id: str | Sequence[str],
    *,
    file_format: str,
    mode: str = "error",
    create_namespaces: bool = False,
) -> Saved:
    """Write the rows of files as one version of a table of the session's catalog: all of them, or none.

    Paths are Spark's: files, folders, patterns, URIs. CSV has a first line with the names of the columns.

    Raises:
        InvalidInputError: Spark has no such format, or cannot read the files.
        TableAlreadyExistsError: it exists and the mode is error.
        TableSchemaValidationError: the rows do not fit the table.
    """
    _require_known(file_format)
    with _path_errors():
        reader = spark.read.format(file_format)
        frame = (reader.options(**_CSV) if file_format == "csv" else reader).load(list(paths))
    return save(frame, id, mode=mode, create_namespaces=create_namespaces)


def export_files(
    spark: SparkSession,
    id: str | Sequence[str],
    folder: str,
    *,
    file_format: str,
    columns: Sequence[str] | None = None,
    where: str | None = None,
    limit: int | None = None,
    version: int | None = None,
    tag: str | None = None,
    branch: str | None = None,
    overwrite: bool = False,
) -> None:
    """Write rows of a table into a folder of files, one for each task.

    Raises:
        TableNotFoundError, TableVersionNotFoundError, TableTagNotFoundError, TableBranchNotFoundError
        InvalidInputError: Spark has no such format, or the folder exists and is not to be overwritten.
    """
    _require_known(file_format)
    frame = table(
        spark, id, columns=columns, where=where, limit=limit, version=version, tag=tag, branch=branch
    )
    writer = frame.write.format(file_format).mode("overwrite" if overwrite else "error")
    with _path_errors():
        (writer.option("header", "true") if file_format == "csv" else writer).save(folder)


def _require_known(file_format: str) -> None:
    if file_format not in FORMATS:
        raise InvalidInputError(
            f"format {file_format!r} is not supported on Spark: use {', '.join(FORMATS)} or the local engine"
        )


@contextmanager
def _path_errors() -> Iterator[None]:
    """Say in our words what is wrong with a path."""
    try:
        with typed_errors():
            yield
    except PySparkException as raised:
        wrong = _ABOUT_PATHS.get(raised.getCondition() or "")
        if wrong is None:
            raise
        told = raised.getMessageParameters() or {}
        path = told.get("path") or told.get("outputPath")
        hint = _HINTS.get(raised.getCondition() or "")
        raise InvalidInputError(f"{path or 'the path'} {wrong}", hint=hint) from raised
