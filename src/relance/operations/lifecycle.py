"""Requests about tables' and namespaces' lives, checked, and responses to them. The verbs are in catalog."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from enum import StrEnum

from lance_namespace import (
    CreateNamespaceRequest,
    CreateNamespaceResponse,
    CreateTableRequest,
    CreateTableResponse,
    DeclareTableRequest,
    DeclareTableResponse,
    DeregisterTableRequest,
    DeregisterTableResponse,
    DescribeNamespaceRequest,
    DescribeNamespaceResponse,
    DropNamespaceRequest,
    DropNamespaceResponse,
    DropTableRequest,
    DropTableResponse,
    ListNamespacesRequest,
    ListNamespacesResponse,
    NamespaceExistsRequest,
    NamespaceExistsResponse,
    RegisterTableRequest,
    RegisterTableResponse,
    RenameTableRequest,
    RenameTableResponse,
)

from relance.catalog import create, drop, namespaces, purge, register
from relance.catalog import rename as renaming
from relance.catalog.arbiter import after_effect
from relance.catalog.context import Context, table_id_of
from relance.catalog.manifest.row import check_properties
from relance.catalog.resolve import Exists, NotFound, parent_first, require_root_namespace
from relance.config import parse_flag
from relance.errors import InvalidInputError, NamespaceAlreadyExistsError, NamespaceNotFoundError
from relance.identifiers import TableId, parse_namespace_id, parse_table_id
from relance.lance_io import CreateMode, NewTable
from relance.locations import directory_of_location
from relance.operations.arrow_stream import read_stream
from relance.operations.managed_versions import record_versions, settle
from relance.operations.requests import parse_mode, refuse_properties, with_options
from relance.operations.versions import is_managed
from relance.storage.probe import require_replace
from relance.units import parse_ttl_ms


class RegisterMode(StrEnum):
    """What to do when the table is registered already."""

    CREATE = "create"
    OVERWRITE = "overwrite"


class DropMode(StrEnum):
    """What to do when the namespace does not exist."""

    FAIL = "fail"
    SKIP = "skip"


class DropBehavior(StrEnum):
    """What to do when something is in the namespace."""

    RESTRICT = "restrict"
    CASCADE = "cascade"


def create_table(context: Context, request: CreateTableRequest, data: bytes) -> CreateTableResponse:
    """Create the table from an Arrow stream; a stream of a schema alone gives an empty table.

    Over a dropped name, the newest generation is revived: a new version on top of its history.

    Raises:
        TableAlreadyExistsError: it exists and the mode is create.
        NamespaceNotFoundError: its namespace does not exist.
        ConcurrentModificationError: another creator was faster.
        InvalidInputError: the body is not a whole Arrow stream, or the mode is unknown.
    """
    table_id = table_id_of(context, request.id)
    mode = parse_mode(request.mode, CreateMode, default=CreateMode.CREATE)
    properties = check_properties(request.properties)
    options = context.lance_options(request.storage_options)
    created = create_settled(context, NewTable(table_id, read_stream(data), options, properties), mode)
    response = CreateTableResponse(
        location=context.location_of(created.directory),
        version=created.version,
        properties=created.properties or None,
    )
    return with_options(response, context.vended_options())


def create_settled(context: Context, new: NewTable, mode: CreateMode) -> create.Created:
    """Create the table after versions of it that wait for their files, and record the new version."""
    snapshot = None
    if mode is not CreateMode.CREATE or context.settings.table_version_management:
        snapshot = settle(context, new.table_id)
    created = create.create(context, new, mode, snapshot)
    record_versions(context, new.table_id)
    return created


def declare_table(context: Context, request: DeclareTableRequest) -> DeclareTableResponse:
    """Reserve the name: of several racing callers exactly one succeeds.

    Over a dropped name the new table gets a directory of its own, where there is a manifest to say so.

    Raises:
        TableAlreadyExistsError: the name is taken, by data or by another declare.
        NamespaceNotFoundError: its namespace does not exist.
        InvalidInputError: `location` is not where a table of this name lies.
    """
    table_id = table_id_of(context, request.id)
    if context.manifest is None:
        refuse_properties(request.properties, what="declare_table")
    properties = check_properties(request.properties)
    directory = create.declare(
        context,
        table_id,
        properties,
        lambda place: _check_location(context, table_id, request.location, place),
    )
    response = DeclareTableResponse(
        location=context.location_of(directory),
        properties=properties or None,
        managed_versioning=True if is_managed(context) else None,
    )
    return with_options(response, context.vended_options(asked=request.vend_credentials))


def _check_location(context: Context, table_id: TableId, location: str | None, directory: str | None) -> None:
    if location is None:
        return
    asked = directory_of_location(location, root_uri=context.connection.lance_root)
    if directory is None:
        raise InvalidInputError(
            f"cannot declare table {table_id} at location {location}: the catalog chooses its "
            "directory. Omit the location, or use register_table for an existing table"
        )
    if asked != directory:
        raise InvalidInputError(
            f"cannot declare table {table_id} at location {location}, "
            f"must be at location {context.location_of(directory)}"
        )


def drop_table(context: Context, request: DropTableRequest) -> DropTableResponse:
    """Hide the table; its files stay until a purge. `context["purge"]="true"` purges at once.

    Raises:
        NamespaceNotFoundError: its namespace does not exist.
        TableNotFoundError: there is no such table, or it is dropped already.
        InvalidTableStateError: it is protected.
        InvalidInputError: a TTL is not a duration.
        OutcomeUnknownError: it was dropped, and its files could not be purged.
    """
    table_id = table_id_of(context, request.id)
    wishes = request.context or {}
    ttl = _asked_ttl(wishes.get("ttl_ms"))
    purged = parse_flag(wishes.get("purge", "false"), what="context['purge']")
    if purged:
        require_replace(context.storage, to_do="purging")
    with parent_first(context, table_id):
        dropped = drop.drop(context, table_id, ttl)
    properties = dropped.response
    if purged:
        options = purge.PurgeOptions(force=True)
        (result,) = purge.purge_table(context, table_id, options, dropped.deletion_id)
        with after_effect(str(table_id), "was dropped"):
            if result.error is not None:
                raise result.error
        properties |= {"purged": "true", "files": str(result.files), "bytes": str(result.bytes)}
    return DropTableResponse(
        id=table_id.parts, location=context.location_of(dropped.directory), properties=properties
    )


def _asked_ttl(text: str | None) -> timedelta | None:
    return None if text is None else parse_ttl_ms(text, what="context['ttl_ms']")


def undrop_table(
    context: Context, parts: Sequence[str], deletion_id: str | None, new_parts: Sequence[str] | None
) -> Exists | NotFound:
    """Show a dropped table again, under its old id or a new one.

    Raises:
        As catalog.drop.undrop.
    """
    table_id = table_id_of(context, parts)
    target = None if new_parts is None else table_id_of(context, new_parts)
    shown = drop.undrop(context, table_id, deletion_id=deletion_id, target=target)
    record_versions(context, target or table_id)
    return shown


def rename_table(context: Context, request: RenameTableRequest) -> RenameTableResponse:
    """Show the table under another id.

    Raises:
        TableNotFoundError: there is no such table.
        TableAlreadyExistsError: the new name is taken.
        NamespaceNotFoundError: the new namespace does not exist.
        UnsupportedOperationError: the catalog has no manifest; there the directory is the name.
    """
    table_id = parse_table_id(request.id)
    namespace = table_id.namespace if request.new_namespace_id is None else request.new_namespace_id
    target = parse_table_id([*namespace, request.new_table_name])
    context.require_manifest(to_do="renaming a table")
    if target == table_id:
        raise InvalidInputError(f"table id '{table_id}' already has this name")
    renaming.rename(context, table_id, target)
    record_versions(context, target)
    return RenameTableResponse()


def register_table(context: Context, request: RegisterTableRequest) -> RegisterTableResponse:
    """Show the table in a directory under a name; without a manifest it must be its home directory.

    Raises:
        As catalog.register.register.
    """
    table_id = table_id_of(context, request.id)
    if context.manifest is None:
        refuse_properties(request.properties, what="register_table")
    properties = check_properties(request.properties)
    overwrite = parse_mode(request.mode, RegisterMode, default=RegisterMode.CREATE) is RegisterMode.OVERWRITE
    directory = directory_of_location(request.location, root_uri=context.connection.lance_root)
    register.register(context, table_id, directory, properties, overwrite=overwrite)
    record_versions(context, table_id)
    return RegisterTableResponse(location=request.location, properties=properties or None)


def deregister_table(context: Context, request: DeregisterTableRequest) -> DeregisterTableResponse:
    """Hide the table until it is registered again.

    Raises:
        NamespaceNotFoundError: its namespace does not exist.
        TableNotFoundError: there is no such table, or it is hidden already.
        InvalidTableStateError: it is protected.
    """
    table_id = table_id_of(context, request.id)
    settle(context, table_id)  # a version that waits for its file would go with its row
    with parent_first(context, table_id):
        directory, properties = register.deregister(context, table_id)
    location = None if directory is None else context.location_of(directory)
    return DeregisterTableResponse(id=table_id.parts, location=location, properties=properties or None)


def list_namespaces(context: Context, request: ListNamespacesRequest) -> ListNamespacesResponse:
    """Return the names of the child namespaces, a page at a time.

    Raises:
        NamespaceNotFoundError: there is no such namespace.
    """
    namespace = _namespace_of(context, request.id, existing=True)
    names, token = namespaces.list_namespaces(
        context, namespace, after=request.page_token or None, limit=request.limit
    )
    return ListNamespacesResponse(namespaces=names, page_token=token)


def describe_namespace(context: Context, request: DescribeNamespaceRequest) -> DescribeNamespaceResponse:
    """Return the namespace's properties. No id means the root, which has none.

    Raises:
        NamespaceNotFoundError: there is no such namespace.
    """
    namespace = _namespace_of(context, request.id or [], existing=True)
    return DescribeNamespaceResponse(properties=namespaces.namespace_properties(context, namespace))


def namespace_exists(context: Context, request: NamespaceExistsRequest) -> NamespaceExistsResponse:
    """Return when the namespace is there.

    Raises:
        NamespaceNotFoundError: it is not.
    """
    namespaces.namespace_properties(context, _namespace_of(context, request.id, existing=True))
    return NamespaceExistsResponse()


def create_namespace(context: Context, request: CreateNamespaceRequest) -> CreateNamespaceResponse:
    """Create the namespace.

    Raises:
        NamespaceAlreadyExistsError: it exists and the mode is create, or a table has its name.
        NamespaceNotFoundError: its parent does not exist.
        UnsupportedOperationError: the catalog has no manifest.
    """
    namespace = _namespace_of(context, request.id)
    mode = parse_mode(request.mode, namespaces.NamespaceMode, default=namespaces.NamespaceMode.CREATE)
    properties = check_properties(request.properties)
    if not namespace:
        if mode is namespaces.NamespaceMode.EXIST_OK:
            return CreateNamespaceResponse()
        raise NamespaceAlreadyExistsError("root namespace")
    properties = namespaces.create_namespace(context, namespace, properties, mode)
    return CreateNamespaceResponse(properties=properties or None)


def drop_namespace(context: Context, request: DropNamespaceRequest) -> DropNamespaceResponse:
    """Hide the namespace so that it can be undropped; with behavior cascade, all that is in it too.

    Raises:
        InvalidInputError: it is the root.
        NamespaceNotFoundError: it does not exist and the mode is fail.
        NamespaceNotEmptyError: something is in it and the behavior is restrict.
        InvalidTableStateError: it, or something in it, is protected.
    """
    namespace = _namespace_of(context, request.id)
    mode = parse_mode(request.mode, DropMode, default=DropMode.FAIL)
    behavior = parse_mode(request.behavior, DropBehavior, default=DropBehavior.RESTRICT)
    ttl = _asked_ttl((request.context or {}).get("ttl_ms"))
    if not namespace:
        raise InvalidInputError("root namespace cannot be dropped")
    try:
        dropped = namespaces.drop_namespace(context, namespace, ttl, cascade=behavior is DropBehavior.CASCADE)
    except NamespaceNotFoundError:
        if mode is DropMode.SKIP:
            return DropNamespaceResponse()
        raise
    return DropNamespaceResponse(properties={**dropped.response, "cascade_id": dropped.deletion_id})


def undrop_namespace(context: Context, parts: Sequence[str], cascade_id: str | None) -> list[tuple[str, ...]]:
    """Bring back exactly what one drop of the namespace took, and return the ids.

    Raises:
        As catalog.namespaces.undrop_namespace.
    """
    context.require_manifest(to_do="undropping a namespace")
    namespace = parse_namespace_id(parts)
    if not namespace:
        raise InvalidInputError("the root namespace can be neither dropped nor undropped")
    return sorted(row.parts for row in namespaces.undrop_namespace(context, namespace, cascade_id))


def _namespace_of(
    context: Context, parts: Sequence[str] | None, *, existing: bool = False
) -> tuple[str, ...]:
    if context.manifest is None:
        require_root_namespace(parts)
    return parse_namespace_id(parts, existing=existing)
