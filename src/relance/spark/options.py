"""The options of the data source: what there is, and checked values for reads, writes and streams. Pure."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Literal

from relance import config
from relance.errors import InvalidInputError
from relance.spark import option_values as values
from relance.spark.address import Address, parse_address

VECTOR_SIZE_PREFIX = "vector_size."

READ_OPTIONS: dict[str, str] = {
    "version": "The version to read (default: the latest).",
    "tag": "The tag to read.",
    "timestamp": "Read the version that was current at this time (ISO 8601; UTC unless it has a zone).",
    "branch": "The branch to read (default: main).",
    "columns": "The columns to read: comma-separated names or a JSON list.",
    "filter": "Read only rows that match this Lance SQL expression; indexes are used.",
    "limit": "Read at most this many rows.",
    "with_row_id": "Add the column `_rowid` (default false).",
    "with_row_address": "Add the column `_rowaddr` (default false).",
    "batch_size": "Rows per batch read from Lance (default: depends on the width of a row).",
    "split_rows": "Target number of rows per task.",
    "split_bytes": "Target number of bytes per task, such as 128MB.",
    "parallelism": "Number of concurrent tasks; sets the task size if no other option does.",
}
"""What a batch read takes, with its meaning."""

STREAM_OPTIONS: dict[str, str] = {
    "starting_version": "Start after this version, or `latest` (default: start with the whole table).",
    "starting_timestamp": "Start after this time (ISO 8601; UTC unless it has a zone).",
    "max_versions_per_batch": "Maximum number of versions per micro-batch.",
    "max_rows_per_batch": "Approximate number of rows per micro-batch.",
    "changes": "What to stream: `appends` (new rows) or `rows` (inserted and updated rows).",
    "skip_changes": "Continue past versions that changed or removed rows (default false: fail).",
}
"""What a streaming read takes besides, with its meaning."""

WRITE_OPTIONS: dict[str, str] = {
    "if_exists": "`error`: fail if the table exists.",
    "create_namespaces": "Create missing namespaces of the id (default false).",
    "vector_size.<column>": "Store this array column as vectors of this size.",
    "vectors": "The same for several columns: a JSON object that maps columns to sizes.",
    "max_rows_per_file": "Start a new data file after this many rows.",
    "max_bytes_per_file": "Start a new data file after about this many bytes, such as 1GB.",
    "data_storage_version": "Lance file format version of a new table.",
    "stable_row_ids": "Give the rows of a new table ids that survive compaction (default false).",
    "properties": "Properties of a new table: a JSON object with string values.",
    "job": "Name of this write, stored as `relance.job` in its transaction properties.",
}
"""What a write takes, with its meaning."""

ADDRESS_OPTIONS: dict[str, str] = {
    "path": "The table: its id or the path of a Lance dataset.",
    **config.SETTINGS,
}
"""What says where the table is, with its meaning; `storage.*` comes on top."""

OPTIONS: dict[str, str] = {**ADDRESS_OPTIONS, **READ_OPTIONS, **STREAM_OPTIONS, **WRITE_OPTIONS}
"""Every option that is read, with its meaning."""

_FROM_SPARK = frozenset({"checkpointlocation", "queryname"})
"""Spark hands its own options of a streaming query over too."""

_EXCLUSIVE = ("version", "tag", "timestamp")
_NOT_IN_STREAMS = (*_EXCLUSIVE, "limit")


class Use(StrEnum):
    """What a table is loaded for; `SCHEMA` is asked for by batch reads and streams alike."""

    SCHEMA = "schema"
    READ = "a batch read"
    WRITE = "a write"
    STREAM_READ = "a streaming read"
    STREAM_WRITE = "a streaming write"


_TAKEN: dict[Use, frozenset[str]] = {
    Use.SCHEMA: frozenset({*READ_OPTIONS, *STREAM_OPTIONS}) | _FROM_SPARK,
    Use.READ: frozenset(READ_OPTIONS),
    Use.WRITE: frozenset(WRITE_OPTIONS),
    Use.STREAM_READ: frozenset({*READ_OPTIONS, *STREAM_OPTIONS} - {*_NOT_IN_STREAMS}) | _FROM_SPARK,
    Use.STREAM_WRITE: frozenset({*WRITE_OPTIONS} - {"if_exists", "job"}) | _FROM_SPARK,
}


class Changes(StrEnum):
    """What a stream gives."""

    APPENDS = "appends"
    ROWS = "rows"


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """What to read of a table, and how."""

    address: Address
    version: int | None = None
    tag: str | None = None
    timestamp: datetime | None = None
    branch: str | None = None
    columns: tuple[str, ...] | None = None
    filter: str | None = None
    limit: int | None = None
    with_row_id: bool = False
    with_row_address: bool = False
    batch_size: int | None = None
    split_rows: int | None = None
    split_bytes: int | None = None
    parallelism: int | None = None


@dataclass(frozen=True, slots=True)
class StreamOptions:
    """What to stream of a table, and how much at once."""

    read: ReadOptions
    starting_version: int | Literal["latest"] | None = None
    starting_timestamp: datetime | None = None
    max_versions_per_batch: int | None = None
    max_rows_per_batch: int | None = None
    changes: Changes = Changes.APPENDS
    skip_changes: bool = False


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """How to write a table, and what a new one is like."""

    address: Address
    fail_if_exists: bool = False
    create_namespaces: bool = False
    vectors: Mapping[str, int] = field(default_factory=dict)
    """Sizes by column, from the option `vectors`."""
    vectors_by_lower_name: Mapping[str, int] = field(default_factory=dict)
    """Sizes by column from `vector_size.<column>`, whose case Spark does not keep."""
    max_rows_per_file: int | None = None
    max_bytes_per_file: int | None = None
    data_storage_version: str | None = None
    stable_row_ids: bool | None = None
    properties: Mapping[str, str] = field(default_factory=dict)
    job: str | None = None

    def vector_size(self, column: str) -> int | None:
        """Return the size that was declared for a column."""
        return self.vectors.get(column, self.vectors_by_lower_name.get(column.lower()))


def parse_read_options(options: Mapping[str, str], *, use: Use = Use.READ) -> ReadOptions:
    """Return what the options of a read ask for.

    Raises:
        InvalidInputError: an option is unknown, unusable, or goes with no other.
    """
    _refuse_others(options, use)
    given = [name for name in _EXCLUSIVE if name in options]
    if len(given) > 1:
        raise InvalidInputError(f"options {given[0]!r} and {given[1]!r} both select a version; use only one")
    if "tag" in options and "branch" in options:
        raise InvalidInputError("a tag already selects its branch; leave out option 'branch'")
    for name in ("tag", "branch", "filter"):
        if name in options and not options[name].strip():
            raise InvalidInputError(f"option {name!r} is empty; set a value or leave it out")
    return ReadOptions(
        address=_address(options),
        version=values.whole_number(options, "version", least=1),
        tag=options.get("tag"),
        timestamp=values.timestamp(options, "timestamp"),
        branch=options.get("branch"),
        columns=values.names(options, "columns"),
        filter=options.get("filter"),
        limit=values.whole_number(options, "limit", least=0),
        with_row_id=values.flag(options, "with_row_id"),
        with_row_address=values.flag(options, "with_row_address"),
        batch_size=values.whole_number(options, "batch_size", least=1),
        split_rows=values.whole_number(options, "split_rows", least=1),
        split_bytes=values.byte_count(options, "split_bytes"),
        parallelism=values.whole_number(options, "parallelism", least=1),
    )


def parse_stream_options(options: Mapping[str, str]) -> StreamOptions:
    """Return what the options of a streaming read ask for.

    Raises:
        InvalidInputError: an option is unknown, unusable, or goes with no other.
    """
    if "starting_version" in options and "starting_timestamp" in options:
        raise InvalidInputError(
            "options 'starting_version' and 'starting_timestamp' both set the start; use only one"
        )
    read = parse_read_options(options, use=Use.STREAM_READ)
    return StreamOptions(
        read=read,
        starting_version=_starting_version(options),
        starting_timestamp=values.timestamp(options, "starting_timestamp"),
        max_versions_per_batch=values.whole_number(options, "max_versions_per_batch", least=1),
        max_rows_per_batch=values.whole_number(options, "max_rows_per_batch", least=1),
        changes=Changes.ROWS if streams_changes(options) else Changes.APPENDS,
        skip_changes=values.flag(options, "skip_changes"),
    )


def streams_changes(options: Mapping[str, str]) -> bool:
    """Tell whether a stream is to give changed rows, and so has columns that tell of the change.

    Raises:
        InvalidInputError: the option is unusable.
    """
    return values.one_of(options, "changes", *Changes) == Changes.ROWS


def _starting_version(options: Mapping[str, str]) -> int | Literal["latest"] | None:
    if options.get("starting_version", "").strip().lower() == "latest":
        return "latest"
    return values.whole_number(options, "starting_version", least=0)


def parse_write_options(options: Mapping[str, str], *, use: Use = Use.WRITE) -> WriteOptions:
    """Return what the options of a write ask for.

    Raises:
        InvalidInputError: an option is unknown or unusable.
    """
    _refuse_others(options, use)
    properties = values.json_map(options, "properties")
    if not all(isinstance(value, str) for value in properties.values()):
        raise InvalidInputError("option 'properties' must be a JSON object with string values")
    return WriteOptions(
        address=_address(options),
        fail_if_exists=values.one_of(options, "if_exists", "error") is not None,
        create_namespaces=values.flag(options, "create_namespaces"),
        vectors=_vectors(options),
        vectors_by_lower_name=_vectors_by_lower_name(options),
        max_rows_per_file=values.whole_number(options, "max_rows_per_file", least=1),
        max_bytes_per_file=values.byte_count(options, "max_bytes_per_file"),
        data_storage_version=options.get("data_storage_version"),
        stable_row_ids=values.optional_flag(options, "stable_row_ids"),
        properties=properties,
        job=options.get("job"),
    )


def _vectors(options: Mapping[str, str]) -> dict[str, int]:
    sizes = values.json_map(options, "vectors")
    for column, size in sizes.items():
        if isinstance(size, bool) or not isinstance(size, int) or size < 1:
            raise InvalidInputError(
                f"option 'vectors': the size of {column!r} must be at least 1, got {size!r}"
            )
    return sizes


def _vectors_by_lower_name(options: Mapping[str, str]) -> dict[str, int]:
    sizes: dict[str, int] = {}
    for name in options:
        if name.lower().startswith(VECTOR_SIZE_PREFIX):
            size = values.whole_number(options, name, least=1)
            assert size is not None
            sizes[name[len(VECTOR_SIZE_PREFIX) :].lower()] = size
    return sizes


def _address(options: Mapping[str, str]) -> Address:
    properties = {name: value for name, value in options.items() if name != "path" and _is_address(name)}
    return parse_address(options.get("path"), properties)


def _is_address(name: str) -> bool:
    return name in ADDRESS_OPTIONS or name.startswith(config.STORAGE_PREFIX)


def _refuse_others(options: Mapping[str, str], use: Use) -> None:
    for name in options:
        if name in _TAKEN[use] or _is_address(name):
            continue
        if name.startswith(VECTOR_SIZE_PREFIX) and f"{VECTOR_SIZE_PREFIX}<column>" in _TAKEN[use]:
            continue
        if name == "paths":
            raise InvalidInputError("several paths given; load one table at a time and union them")
        if name in OPTIONS or name in _FROM_SPARK or name.startswith(VECTOR_SIZE_PREFIX):
            raise InvalidInputError(f"option {name!r} does not apply to {use}; leave it out")
        known = _TAKEN[use] | set(ADDRESS_OPTIONS)
        near = difflib.get_close_matches(name, sorted(known), n=1)
        names = f"known options: {', '.join(sorted(known))} and storage.*"
        hint = f"did you mean {near[0]!r}?" if near else names
        raise InvalidInputError(f"unknown option {name!r}: {hint}")
