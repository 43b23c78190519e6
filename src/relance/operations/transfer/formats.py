"""Files of rows: which format a name means, how one is read, how one is written."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from enum import StrEnum
from pathlib import Path
from typing import BinaryIO, Protocol

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from relance.errors import InvalidInputError, TableSchemaValidationError
from relance.operations.transfer.json_rows import plain, rows_of


class Format(StrEnum):
    """What a file holds."""

    PARQUET = "parquet"
    CSV = "csv"
    ARROW = "arrow"
    """The IPC file format; a stream is read too."""
    JSON = "json"
    """One object per line; only written."""


_ENDINGS = {
    ".parquet": Format.PARQUET,
    ".pq": Format.PARQUET,
    ".csv": Format.CSV,
    ".arrow": Format.ARROW,
    ".arrows": Format.ARROW,
    ".ipc": Format.ARROW,
    ".feather": Format.ARROW,
    ".json": Format.JSON,
    ".jsonl": Format.JSON,
    ".ndjson": Format.JSON,
}
READABLE = (Format.PARQUET, Format.CSV, Format.ARROW)


class BatchWriter(Protocol):
    """Takes batches, one after another."""

    def write_batch(self, batch: pa.RecordBatch) -> None:
        """Write a batch."""


def format_of(path: str, asked: str | None = None) -> Format:
    """Return the format that was asked for, or else the one that the name of the file means.

    Raises:
        InvalidInputError: neither tells.
    """
    known = ", ".join(Format)
    if asked is not None:
        try:
            return Format(asked)
        except ValueError:
            raise InvalidInputError(f"unknown format {asked!r}: use one of {known}") from None
    found = _ENDINGS.get(Path(path).suffix.lower())
    if found is None:
        raise InvalidInputError(
            f"cannot infer the file format from {path!r}: pass a format, one of {known}",
            hint=f"pass --format, one of {known}",
        )
    return found


_CSV_COLUMN = re.compile(r"In CSV column #(\d+): ")
_SAME_COLUMNS = "give all files the same columns, or import them into separate tables"


class RowFiles:
    """Files of rows with the same columns: those of the first, whose schema counts."""

    def __init__(self, paths: Sequence[str], kind: Format) -> None:
        """Read the columns of all files, but no rows.

        Raises:
            InvalidInputError: there is no such file, or it is not of this format.
            TableSchemaValidationError: a file has other columns than the first.
        """
        self._files = _files(paths, kind)
        self._kind = kind
        if kind is Format.JSON:
            raise InvalidInputError(f"cannot read rows from json: use one of {', '.join(READABLE)}")
        first, *others = self._files
        self.schema = _columns(first, kind)
        for path in others:
            _require_same(path, _columns(path, kind), first, self.schema)

    def batches(self, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        """Yield the rows in this schema, which names columns of the files.

        Raises:
            InvalidInputError: a file cannot be read to its end.
            TableSchemaValidationError: a value does not fit its column.
        """
        for path in self._files:
            with _read_errors(path):
                for batch in _batches_of(path, self._kind, self.schema):
                    yield _cast(batch, schema, path)


def _columns(path: str, kind: Format) -> pa.Schema:
    with _read_errors(path):
        schema = _schema(path, kind)
        names = schema.names  # decoded only now
    if len(set(names)) < len(names):
        repeated = next(name for name in names if names.count(name) > 1)
        raise InvalidInputError(f"{path} has two columns with the same name: {repeated!r}")
    return schema


def _require_same(path: str, schema: pa.Schema, first: str, wanted: pa.Schema) -> None:
    """Check that a file has the columns of the first one."""
    for one, columns, other, others in ((path, schema, first, wanted), (first, wanted, path, schema)):
        if extra := [name for name in columns.names if name not in others.names]:
            raise TableSchemaValidationError(
                f"{one} has the column {extra[0]!r}, which {other} does not have", hint=_SAME_COLUMNS
            )
    for field in wanted:
        found = schema.field(field.name).type
        if not _may_fit(found, field.type):
            what = f"column {field.name!r} is {found} in {path}, but {field.type} in {first}"
            raise TableSchemaValidationError(what, hint=_SAME_COLUMNS)


def _may_fit(found: pa.DataType, wanted: pa.DataType) -> bool:
    """Tell whether values of a type may fit a column of another; only the values can tell for sure."""
    if found == wanted or pa.types.is_null(found):
        return True
    if pa.types.is_nested(found) or pa.types.is_nested(wanted):
        return bool(pa.types.is_nested(found) and pa.types.is_nested(wanted))
    kinds = (_is_number, pa.types.is_temporal, _is_text, _is_bytes)
    return any(kind(_plain_type(found)) and kind(_plain_type(wanted)) for kind in kinds)


def _plain_type(kind: pa.DataType) -> pa.DataType:
    return kind.value_type if isinstance(kind, pa.DictionaryType) else kind


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind))


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def _is_bytes(kind: pa.DataType) -> bool:
    tests = (
        pa.types.is_binary,
        pa.types.is_large_binary,
        pa.types.is_fixed_size_binary,
        pa.types.is_binary_view,
    )
    return any(bool(test(kind)) for test in tests)


def _cast(batch: pa.RecordBatch, schema: pa.Schema, path: str) -> pa.RecordBatch:
    columns = [_cast_column(batch.column(field.name), field, path) for field in schema]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _cast_column(column: pa.Array, field: pa.Field, path: str) -> pa.Array:
    if not field.nullable and column.null_count:
        raise TableSchemaValidationError(f"{path}: column {field.name!r} is required but has a null")
    try:
        return column if column.type == field.type else column.cast(field.type)
    except (pa.ArrowException, ValueError) as cause:
        text = " ".join(str(cause).split())
        raise TableSchemaValidationError(
            f"{path}: a value of column {field.name!r} is not a valid {field.type}: {text}"
        ) from cause


def _files(paths: Sequence[str], kind: Format) -> list[str]:
    """Return the files, those of a folder in the order of their names."""
    found: list[str] = []
    for path in map(Path, paths):
        if path.is_dir():
            inside = [each for each in sorted(path.rglob("*")) if _ENDINGS.get(each.suffix.lower()) is kind]
            if not inside:
                raise InvalidInputError(f"folder {str(path)!r} contains no {kind} file")
            found += map(str, inside)
        elif path.exists():
            found.append(str(path))
        else:
            raise InvalidInputError(f"there is no file {str(path)!r}")
    if not found:
        raise InvalidInputError("no files were given")
    return found


def _schema(path: str, kind: Format) -> pa.Schema:
    if kind is Format.PARQUET:
        return pa.parquet.read_schema(path)
    if kind is Format.CSV:
        with pa.csv.open_csv(path) as reader:
            return reader.schema
    with _open_arrow(path) as opened:
        return opened.schema


def _batches_of(path: str, kind: Format, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a file as they are in it; those of CSV with the types of this schema."""
    if kind is Format.PARQUET:
        with pa.parquet.ParquetFile(path) as file:
            yield from file.iter_batches()
    elif kind is Format.CSV:
        # Types as the start of the first file has them: a later value that does not fit is an error.
        types = pa.csv.ConvertOptions(column_types=schema)
        with pa.csv.open_csv(path, convert_options=types) as reader:
            try:
                yield from reader
            except pa.ArrowInvalid as cause:
                # It counts columns where the user knows names.
                found = _CSV_COLUMN.search(str(cause))
                if found is None or int(found[1]) >= len(reader.schema.names):
                    raise
                name = reader.schema.names[int(found[1])]
                raise InvalidInputError(
                    f"{path}: column {name!r}: {str(cause)[found.end() :].strip()}",
                    hint="correct the value: column types are inferred from the start of the first file",
                ) from cause
    else:
        with _open_arrow(path) as opened:
            if isinstance(opened, pa.RecordBatchFileReader):
                yield from (opened.get_batch(number) for number in range(opened.num_record_batches))
            else:
                yield from opened


@contextmanager
def _open_arrow(path: str) -> Iterator[pa.RecordBatchFileReader | pa.RecordBatchStreamReader]:
    with ExitStack() as stack:
        source = stack.enter_context(pa.OSFile(path, "rb"))
        aligned = pa.ipc.IpcReadOptions(ensure_alignment=pa.ipc.Alignment.At64Byte)
        start = source.read(6)
        source.seek(0)
        opener = pa.ipc.open_file if start == b"ARROW1" else pa.ipc.open_stream
        yield stack.enter_context(opener(source, options=aligned))


@contextmanager
def _read_errors(path: str) -> Iterator[None]:
    try:
        yield
    except (pa.ArrowException, OSError, UnicodeDecodeError) as cause:
        raise InvalidInputError(f"{path} cannot be read: {' '.join(str(cause).split())}") from cause


class _CsvWriter:
    """Writes CSV; nested values as JSON and bytes in base64, for which CSV has no way of its own."""

    def __init__(self, sink: BinaryIO, schema: pa.Schema) -> None:
        self._as_text = [index for index, each in enumerate(schema) if _has_no_text(each.type)]
        for index in self._as_text:
            schema = schema.set(index, pa.field(schema.field(index).name, pa.string()))
        self._schema = schema
        self._writer = pa.csv.CSVWriter(sink, schema)

    def write_batch(self, batch: pa.RecordBatch) -> None:
        columns = list(batch.columns)
        for index in self._as_text:
            values = columns[index].to_pylist()
            texts = [None if each is None else _text(plain(each)) for each in values]
            columns[index] = pa.array(texts, pa.string())
        self._writer.write_batch(pa.record_batch(columns, schema=self._schema))

    def close(self) -> None:
        self._writer.close()


def _has_no_text(kind: pa.DataType) -> bool:
    is_binary = (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_fixed_size_binary)
    return bool(pa.types.is_nested(kind) or any(each(kind) for each in is_binary))


def _text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value)


class _ArrowWriter:
    """Writes an Arrow file, without dictionaries: it has one per column, and each fragment its own."""

    def __init__(self, sink: BinaryIO, schema: pa.Schema) -> None:
        for index, field in enumerate(schema):
            if pa.types.is_dictionary(field.type):
                schema = schema.set(index, field.with_type(field.type.value_type))
        self._schema = schema
        self._writer = pa.ipc.new_file(sink, schema)

    def write_batch(self, batch: pa.RecordBatch) -> None:
        self._writer.write_batch(batch if batch.schema == self._schema else batch.cast(self._schema))

    def close(self) -> None:
        self._writer.close()


class _JsonWriter:
    def __init__(self, sink: BinaryIO, schema: pa.Schema) -> None:
        self._sink = sink

    def write_batch(self, batch: pa.RecordBatch) -> None:
        for row in rows_of(batch):
            self._sink.write(json.dumps(row, ensure_ascii=False).encode() + b"\n")

    def close(self) -> None:
        self._sink.flush()


@contextmanager
def open_writer(sink: BinaryIO, kind: Format, schema: pa.Schema) -> Iterator[BatchWriter]:
    """Write batches of a schema to a stream; the end is written when the block ends.

    Raises:
        InvalidInputError: the format has no way to write a column.
    """
    try:
        if kind is Format.PARQUET:
            writer = pa.parquet.ParquetWriter(sink, schema)
        elif kind is Format.ARROW:
            writer = _ArrowWriter(sink, schema)
        else:
            writer = (_CsvWriter if kind is Format.CSV else _JsonWriter)(sink, schema)
    except pa.ArrowException as cause:
        raise InvalidInputError(f"{kind} cannot store these columns: {cause}") from cause
    try:
        yield writer
    finally:
        writer.close()
