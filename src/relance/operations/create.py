"""Create a table with data: exactly one of several racing creators succeeds."""

from __future__ import annotations

from contextlib import suppress
from enum import StrEnum

import lance
import pyarrow as pa
from lance.fragment import write_fragments
from lance_namespace import CreateTableRequest, CreateTableResponse

from relance.config import StorageOptions
from relance.errors import (
    ConcurrentModificationError,
    InvalidInputError,
    KeyExistsError,
    OutcomeUnknownError,
    RelanceError,
    ServiceUnavailableError,
    TableVersionNotFoundError,
)
from relance.identifiers import TableId
from relance.listing.layout import flag_new_root
from relance.listing.lookup import look_up
from relance.locations import CREATING_SUFFIX, DECLARED_SUFFIX, table_file
from relance.operations.context import Context
from relance.operations.datasets import lance_errors, open_dataset
from relance.operations.declare import already_exists, refuse_occupied
from relance.operations.requests import parse_mode, refuse_properties, with_options
from relance.resolution import root_table_id

_ATTEMPTS = 5
"""How often an overwrite or exist_ok looks again when the table comes or goes under its hands."""


class CreateMode(StrEnum):
    """What to do when the table exists."""

    CREATE = "create"
    EXIST_OK = "exist_ok"
    OVERWRITE = "overwrite"


def create_table(context: Context, request: CreateTableRequest, data: bytes) -> CreateTableResponse:
    """Create the table from an Arrow stream; a stream of a schema alone gives an empty table.

    Raises:
        TableAlreadyExistsError: it exists and the mode is create.
        ConcurrentModificationError: another creator came first.
        InvalidInputError: the body is not a whole Arrow stream, or the mode is unknown.
    """
    table_id = root_table_id(request.id)
    mode = parse_mode(request.mode, CreateMode, default=CreateMode.CREATE)
    refuse_properties(request.properties, what="create_table")
    options = context.lance_options(request.storage_options)
    table = read_stream(data)
    version = _create_in_mode(context, table_id, table, mode, options)
    response = CreateTableResponse(location=context.location(table_id.name), version=version)
    return with_options(response, context.vended_options())


def read_stream(data: bytes) -> pa.Table:
    """Return the whole Arrow stream, so that a damaged one is refused before anything is written.

    Raises:
        InvalidInputError: it is empty, damaged, cut short or in the file format.
    """
    if not isinstance(data, (bytes, bytearray, memoryview)):
        raise InvalidInputError(f"the body must be bytes of an Arrow stream, got {type(data).__name__}")
    if not data:
        raise InvalidInputError("the body is empty: an Arrow stream is required, at least with a schema")
    try:
        # Lance panics on buffers that are not aligned to their type, which a foreign writer may send.
        aligned = pa.ipc.IpcReadOptions(ensure_alignment=pa.ipc.Alignment.At64Byte)
        table = pa.ipc.open_stream(pa.py_buffer(data), options=aligned).read_all()
        # Lance trusts what it is given: wild offsets or indices would end the process or write a table
        # that nobody can read, and a name that is no text is a panic.
        table.validate(full=True)
        _read_names(table.schema)
    except (pa.ArrowException, OSError, UnicodeDecodeError) as cause:
        raise InvalidInputError(f"the body is not a whole Arrow stream: {cause}") from cause
    return table


def _read_names(fields: pa.Schema | pa.DataType) -> None:
    """Decode every field name, at any depth: it raises where one is no text."""
    for field in fields if isinstance(fields, pa.Schema) else map(fields.field, range(fields.num_fields)):
        str(field.name)
        _read_names(field.type)


def _create_in_mode(
    context: Context, table_id: TableId, table: pa.Table, mode: CreateMode, options: StorageOptions
) -> int:
    for _ in range(_ATTEMPTS):
        facts = look_up(context.storage, table_id.name)
        if facts.hidden and facts.holds_table:
            raise already_exists(table_id, facts)
        if facts.has_versions and mode is CreateMode.CREATE:
            raise already_exists(table_id, facts)
        if facts.has_versions and mode is CreateMode.EXIST_OK:
            return int(open_dataset(context, table_id.name).version)
        if facts.has_versions:
            return _overwrite(context, table_id, table, options)
        try:
            return _create_fresh(context, table_id, table, options)
        except ConcurrentModificationError:
            if mode is CreateMode.CREATE:
                raise
    raise ConcurrentModificationError(f"table id '{table_id}' keeps changing: try again")


def _overwrite(context: Context, table_id: TableId, table: pa.Table, options: StorageOptions) -> int:
    with lance_errors(f"table id '{table_id}'", options):
        dataset = lance.write_dataset(
            table, context.location(table_id.name), mode="overwrite", storage_options=dict(options) or None
        )
    return int(dataset.version)


def _create_fresh(context: Context, table_id: TableId, table: pa.Table, options: StorageOptions) -> int:
    """Write the data, then commit version 1, which only one creator can."""
    storage, name = context.storage, table_id.name
    refuse_occupied(context, table_id)
    flag_new_root(storage)
    # Listings see this sign and look twice, so that data without a version is never taken for a table.
    with suppress(KeyExistsError):
        storage.create(name + CREATING_SUFFIX, b"")
    location = context.location(name)
    try:
        with lance_errors(f"table id '{table_id}'", options):
            transaction = write_fragments(
                table, location, mode="create", return_transaction=True, storage_options=dict(options) or None
            )
    except RelanceError:
        _after_failed_write(context, name)
        raise
    version = _commit_first_version(context, name, transaction, options)
    storage.delete_many([name + CREATING_SUFFIX, name + DECLARED_SUFFIX])
    return version


def _after_failed_write(context: Context, name: str) -> None:
    """Tidy up after a write that failed: was it beaten, and did it leave something to cover?

    Raises:
        ConcurrentModificationError: another creator's table is there.
    """
    # Without a version the sign stays: another creator may have data there that it still has to cover.
    if look_up(context.storage, name).has_versions:
        context.storage.delete(name + CREATING_SUFFIX)
        raise _beaten(name)


def _beaten(name: str) -> ConcurrentModificationError:
    return ConcurrentModificationError(f"table id '{name}' was created by another client meanwhile")


def _commit_first_version(
    context: Context, name: str, transaction: lance.Transaction, options: StorageOptions
) -> int:
    """Commit as version 1 or not at all; a failure is settled by looking whose version 1 is there.

    Raises:
        ConcurrentModificationError: another creator's table is there; our data files are removed.
        OutcomeUnknownError: nobody can tell; nothing is removed.
    """
    try:
        with lance_errors(f"table id '{name}'", options):
            # No retries: a retry would turn our first version into an overwrite of somebody's table.
            lance.LanceDataset.commit(
                context.location(name), transaction, max_retries=0, storage_options=dict(options) or None
            )
    except RelanceError as failure:
        if not look_up(context.storage, name).has_versions:
            if isinstance(failure, ServiceUnavailableError):
                raise OutcomeUnknownError(failure.detail) from failure
            raise
        if _first_version_owner(context, name) != transaction.uuid:
            _remove_data_files(context, name, transaction)
            context.storage.delete(name + CREATING_SUFFIX)
            raise _beaten(name) from failure
    return 1


def _first_version_owner(context: Context, name: str) -> str:
    """Return the transaction that made version 1; "" when the version does not say.

    Raises:
        OutcomeUnknownError: version 1 was cleaned up before we could look.
    """
    try:
        dataset = open_dataset(context, name, version=1)
    except TableVersionNotFoundError as cause:
        raise OutcomeUnknownError(f"table id '{name}': its first version is gone already") from cause
    with lance_errors(f"table id '{name}'", context.lance_options()):
        transaction = dataset.read_transaction(1)
    return str(transaction.uuid) if transaction is not None else ""


def _remove_data_files(context: Context, name: str, transaction: lance.Transaction) -> None:
    """Remove what our lost attempt wrote: files with names of their own that no version mentions."""
    fragments = transaction.operation.fragments
    context.storage.delete_many(
        table_file(name, f"data/{file.path}") for fragment in fragments for file in fragment.files
    )
