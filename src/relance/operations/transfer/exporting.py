"""Read rows of a table as a stream, and export them atomically to a file."""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import pyarrow as pa

from relance.catalog.context import Context, table_id_of
from relance.catalog.resolve import find_table
from relance.errors import InvalidInputError
from relance.operations.data.expressions import check_expressions
from relance.operations.datasets import open_dataset
from relance.operations.targets import Target
from relance.operations.transfer.formats import Format, format_of, open_writer


@dataclass(frozen=True, slots=True)
class Selection:
    """The rows, columns and version to read."""

    columns: Sequence[str] | None = None
    where: str | None = None
    limit: int | None = None
    offset: int | None = None
    version: int | None = None
    tag: str | None = None
    branch: str | None = None


@dataclass(frozen=True, slots=True)
class Exported:
    """The result of an export."""

    path: str
    format: Format
    rows: int


def scan(context: Context, parts: Sequence[str], chosen: Selection) -> pa.RecordBatchReader:
    """Return the rows as a stream.

    Raises:
        TableNotFoundError, TableVersionNotFoundError, TableTagNotFoundError, TableBranchNotFoundError
        InvalidInputError: a column or the filter cannot be used.
    """
    if chosen.limit is not None and chosen.limit < 0:
        raise InvalidInputError(f"limit must not be negative, got {chosen.limit}")
    check_expressions([chosen.where])
    found = find_table(context, table_id_of(context, parts))
    dataset = open_dataset(context, found, version=chosen.version, tag=chosen.tag, branch=chosen.branch)
    target = Target(found, chosen.branch, dataset, context.lance_options(), context)
    with target.errors():
        reader = dataset.scanner(
            columns=None if chosen.columns is None else list(chosen.columns),
            filter=chosen.where,
            limit=chosen.limit,
            offset=chosen.offset,
        ).to_reader()
        schema = reader.schema

    def batches() -> object:
        with target.errors():
            yield from reader

    return pa.RecordBatchReader.from_batches(schema, batches())


def export_table(
    context: Context,
    parts: Sequence[str],
    path: str,
    chosen: Selection,
    *,
    file_format: str | None = None,
    overwrite: bool = False,
    progress: Callable[[int], None] | None = None,
) -> Exported:
    """Write the rows to one file, which appears only once it is complete.

    Raises:
        TableNotFoundError, TableVersionNotFoundError, TableTagNotFoundError, TableBranchNotFoundError
        InvalidInputError: the file exists and is not to be overwritten, or its folder is missing, or the
            format cannot hold the columns.
    """
    kind = format_of(path, file_format)
    place = Path(path)
    if place.is_dir() or (place.exists() and not overwrite):
        raise InvalidInputError(
            f"{path!r} already exists: choose another name, or overwrite it",
            hint="choose another name, or pass --overwrite",
        )
    if place.exists() and not place.is_file():
        # A file that takes its place would take it from everybody: think of /dev/null.
        raise InvalidInputError(f"{path!r} is a device or a pipe: choose the path of a regular file")
    if not place.parent.is_dir():
        raise InvalidInputError(f"there is no folder {str(place.parent)!r}", hint="create the folder first")
    place = place.resolve()  # what a link leads to is written anew, not the link
    reader = scan(context, parts, chosen)
    partial = place.with_name(f".{place.name}.{uuid.uuid4().hex}")
    try:
        with open(partial, "xb") as sink:
            rows = write_rows(reader, sink, kind, progress=progress)
        os.replace(partial, place)
    except BaseException:
        with suppress(OSError):
            os.unlink(partial)
        raise
    return Exported(path, kind, rows)


def write_rows(
    reader: pa.RecordBatchReader,
    sink: BinaryIO,
    kind: Format,
    *,
    progress: Callable[[int], None] | None = None,
) -> int:
    """Write the reader's rows to a stream, and return their number.

    Raises:
        InvalidInputError: the format cannot hold the columns.
    """
    rows = 0
    with open_writer(sink, kind, reader.schema) as writer:
        for batch in reader:
            writer.write_batch(batch)
            rows += batch.num_rows
            if progress is not None:
                progress(rows)
    return rows
