"""Write a DataFrame with one call that knows every mode and answers with the version it made."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from pyspark.sql import DataFrame

from relance.catalog.context import Context, shared_context, table_id_of
from relance.catalog.resolve import Exists, find_table, table_status
from relance.catalog.states import new_nonce
from relance.errors import TableAlreadyExistsError, TableNotFoundError, TableVersionNotFoundError
from relance.operations.requests import parse_mode
from relance.operations.staging.commit import find_marked
from relance.operations.staging.plan import JOB_MARK
from relance.spark.address import CatalogAddress
from relance.spark.errors import typed_errors
from relance.spark.option_values import byte_text
from relance.spark.options import parse_write_options
from relance.spark.registration import DEFAULT_NAME, ensure_registered
from relance.spark.table import address_options
from relance.spark.writer import catalog_address


class SaveMode(StrEnum):
    """What to do when the table exists."""

    ERROR = "error"
    APPEND = "append"
    OVERWRITE = "overwrite"
    IGNORE = "ignore"


@dataclass(frozen=True, slots=True)
class Saved:
    """What a save did."""

    id: tuple[str, ...]
    version: int | None
    """The version that was made, or, if nothing was written, the one that is there.

    None when another client dropped the table, or cleaned the version up, right after it was made.
    """
    written: bool = True
    """False when the table existed and the mode was ignore."""


def save(
    df: DataFrame,
    id: str | Sequence[str],
    *,
    mode: str | SaveMode = SaveMode.ERROR,
    root: str | os.PathLike[str] | None = None,
    properties: Mapping[str, str] | None = None,
    create_namespaces: bool = False,
    vectors: Mapping[str, int] | None = None,
    table_properties: Mapping[str, str] | None = None,
    max_rows_per_file: int | None = None,
    max_bytes_per_file: int | str | None = None,
    data_storage_version: str | None = None,
    stable_row_ids: bool | None = None,
    source: str = DEFAULT_NAME,
) -> Saved:
    """Write the rows as one version of a table: all of them, once, or none.

    `root` and `properties` of the catalog are those of the session unless they are given. `vectors` maps
    array columns to the size of their vectors. Overwriting a dropped table brings it back, its old
    versions under the new one.

    Raises:
        TableAlreadyExistsError: it exists and the mode is error.
        TableNotFoundError: it is dropped and the mode is append.
        NamespaceNotFoundError: its namespace does not exist.
        TableSchemaValidationError, UnsupportedOperationError: a column does not fit.
        ConcurrentModificationError: another client changed the table in a way that does not go with it.
    """
    chosen = _mode(mode)
    ensure_registered(df.sparkSession, source)
    options = address_options(df.sparkSession, id, root=root, properties=properties)
    given = {
        "create_namespaces": create_namespaces or None,
        "vectors": json.dumps(dict(vectors)) if vectors else None,
        "properties": json.dumps(dict(table_properties)) if table_properties else None,
        "max_rows_per_file": max_rows_per_file,
        "max_bytes_per_file": byte_text(max_bytes_per_file),
        "data_storage_version": data_storage_version,
        "stable_row_ids": stable_row_ids,
        "if_exists": "error" if chosen in {SaveMode.ERROR, SaveMode.IGNORE} else None,
        "job": new_nonce(),
    }
    options |= {name: _text(value) for name, value in given.items() if value is not None}
    address = catalog_address(parse_write_options(options))
    context = shared_context(address.properties)
    if chosen is SaveMode.IGNORE and (there := _version_there(context, address)) is not None:
        return Saved(address.parts, there, written=False)
    try:
        _write(df, source, chosen, options)
    except TableAlreadyExistsError:
        there = _version_there(context, address)
        if chosen is not SaveMode.IGNORE or there is None:
            raise
        return Saved(address.parts, there, written=False)
    return Saved(address.parts, _made(context, address, options["job"]))


def _write(df: DataFrame, source: str, mode: SaveMode, options: Mapping[str, str]) -> None:
    plain = "overwrite" if mode is SaveMode.OVERWRITE else "append"
    with typed_errors():
        df.write.format(source).mode(plain).options(**options).save()


def _mode(text: str | SaveMode) -> SaveMode:
    spark_name = "error" if text in {"errorifexists", "default"} else text
    return parse_mode(spark_name, SaveMode, default=SaveMode.ERROR)


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _version_there(context: Context, address: CatalogAddress) -> int | None:
    table_id = table_id_of(context, address.parts)
    if not isinstance(table_status(context, table_id), Exists):
        return None
    head = context.tables.head(find_table(context, table_id).directory)
    return None if head is None else head.version


def _made(context: Context, address: CatalogAddress, job: str) -> int | None:
    table_id = table_id_of(context, address.parts)
    try:
        return find_marked(context, find_table(context, table_id).directory, {JOB_MARK: job}, after=0)
    except (TableNotFoundError, TableVersionNotFoundError):
        return None
