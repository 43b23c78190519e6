"""What a distributed write is going to do, fixed before any task runs. Committing it is in commit."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

import pyarrow as pa
from lance_namespace import CreateNamespaceRequest

from relance.catalog.context import Context, table_id_of
from relance.catalog.create import begin_at_home, place_to_write
from relance.catalog.manifest.row import check_properties
from relance.catalog.resolve import Exists, SoftDeleted, find_table, new_directory, table_status
from relance.catalog.states import new_nonce
from relance.config import StorageOptions
from relance.errors import TableAlreadyExistsError, TableNotFoundError
from relance.identifiers import TableId
from relance.lance_io import lance_errors
from relance.locations import table_directory
from relance.operations.fields import fields_of_table
from relance.operations.lifecycle import create_namespace
from relance.operations.targets import open_for_writing

JOB_MARK = "relance.job"
"""The transaction property by which the version of a job is found again."""


class WriteMode(StrEnum):
    """What becomes of a table that is there."""

    APPEND = "append"
    OVERWRITE = "overwrite"
    CREATE = "create"
    """It must not be there."""


@dataclass(frozen=True, slots=True)
class FileOptions:
    """How tasks write their files; None leaves it to Lance."""

    max_rows_per_file: int | None = None
    max_bytes_per_file: int | None = None
    data_storage_version: str | None = None
    stable_row_ids: bool | None = None
    """Only the first version of a table decides about it."""


@dataclass(frozen=True, slots=True)
class WriteRequest:
    """What a job asks for."""

    parts: Sequence[str]
    mode: WriteMode
    schema_for: Callable[[pa.Schema | None], pa.Schema]
    """Gives the schema of the files, from that of the table that is appended to, or None. May refuse."""
    files: FileOptions = FileOptions()
    properties: Mapping[str, str] = field(default_factory=dict)
    create_namespaces: bool = False
    job: str | None = None
    """Names the job; made up when it is None."""


@dataclass(frozen=True, slots=True)
class WritePlan:
    """What tasks and the commit need to know. It can be pickled."""

    table_id: TableId
    mode: WriteMode
    directory: str
    is_private: bool
    """The directory was made up for this job: nobody else knows it."""
    uri: str
    options: StorageOptions
    schema: pa.Schema
    job: str
    seen_version: int
    """The table's latest version, 0 when it has none."""
    marker: str | None
    """The nonce of the marker that hides the table, None when nothing does."""
    fields: str | None
    """Lance's fields of the table that is appended to, with their ids; None: its schema is replaced."""
    files: FileOptions
    properties: dict[str, str]


def plan_write(context: Context, request: WriteRequest) -> WritePlan:
    """Return the plan of a write, after everything that can be checked without the rows was checked.

    Nothing is written but, for a new table in the directory of its name, the sign that a create began,
    and namespaces that the request wants created.

    Raises:
        TableAlreadyExistsError: it exists and the mode is create.
        TableNotFoundError: it is dropped and the mode is append: undrop it or overwrite it.
        NamespaceNotFoundError: its namespace does not exist.
        TableSchemaValidationError: the rows do not fit.
    """
    table_id = table_id_of(context, request.parts)
    status = table_status(context, table_id)
    if isinstance(status, Exists):
        if not find_table(context, table_id).is_only_declared(context.storage):
            return _plan_over(context, table_id, request)
    elif isinstance(status, SoftDeleted) and request.mode is WriteMode.APPEND:
        find_table(context, table_id)  # says until when it can be undropped
        raise TableNotFoundError(f"table id '{table_id}' was dropped")
    return _plan_new(context, table_id, request)


def _plan_over(context: Context, table_id: TableId, request: WriteRequest) -> WritePlan:
    """Plan for a table that is there."""
    target = open_for_writing(context, table_id.parts)
    if request.mode is WriteMode.CREATE:
        raise TableAlreadyExistsError(f"table id '{table_id}' exists at '{target.found.directory}'")
    appending = request.mode is WriteMode.APPEND
    with lance_errors(f"table id '{table_id}'", target.options):
        existing = target.dataset.schema if appending else None
        fields = fields_of_table(target.dataset) if appending else None
    return _plan(
        context,
        table_id,
        request,
        directory=target.found.directory,
        schema=request.schema_for(existing),
        seen_version=int(target.dataset.version),
        fields=fields,
    )


def _plan_new(context: Context, table_id: TableId, request: WriteRequest) -> WritePlan:
    """Plan for a table that is not there, or declared, or dropped."""
    schema = request.schema_for(None)
    if request.create_namespaces:
        _create_namespaces(context, table_id.namespace)
    directory, marker = place_to_write(context, table_id)
    if directory == table_directory(table_id.name) and not table_id.namespace:
        begin_at_home(context, table_id)
    head = None if directory is None else context.tables.head(directory)
    return _plan(
        context,
        table_id,
        request,
        directory=directory,
        schema=schema,
        seen_version=0 if head is None else head.version,
        marker=marker,
    )


def _create_namespaces(context: Context, namespace: tuple[str, ...]) -> None:
    for depth in range(1, len(namespace) + 1):
        create_namespace(context, CreateNamespaceRequest(id=list(namespace[:depth]), mode="exist_ok"))


def _plan(
    context: Context,
    table_id: TableId,
    request: WriteRequest,
    *,
    directory: str | None,
    schema: pa.Schema,
    seen_version: int,
    marker: str | None = None,
    fields: str | None = None,
) -> WritePlan:
    place = directory or new_directory(table_id)
    return WritePlan(
        table_id=table_id,
        mode=request.mode,
        directory=place,
        is_private=directory is None,
        uri=context.location_of(place),
        options=context.lance_options(),
        schema=schema,
        job=request.job or new_nonce(),
        seen_version=seen_version,
        marker=marker,
        fields=fields,
        files=request.files,
        properties=check_properties(dict(request.properties)),
    )
