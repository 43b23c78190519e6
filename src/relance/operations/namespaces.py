"""Namespace operations. A catalog without manifest has the root, and nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from itertools import islice

from lance_namespace import (
    CreateNamespaceRequest,
    CreateNamespaceResponse,
    DescribeNamespaceRequest,
    DescribeNamespaceResponse,
    DropNamespaceRequest,
    DropNamespaceResponse,
    ListNamespacesRequest,
    ListNamespacesResponse,
    NamespaceExistsRequest,
    NamespaceExistsResponse,
)

from relance.errors import InvalidInputError, NamespaceAlreadyExistsError, NamespaceNotFoundError
from relance.identifiers import TableId, parse_namespace_id
from relance.lifecycle.answers import drop_properties
from relance.manifest.entry import ObjectType, check_properties
from relance.manifest.store import rereading
from relance.operations.context import Context
from relance.operations.drop import asked_ttl
from relance.operations.rename import making_way
from relance.operations.requests import parse_mode
from relance.operations.rows import namespaces as rows
from relance.operations.rows.lookups import require_manifest, require_namespace
from relance.resolution import require_root_namespace


class DropMode(StrEnum):
    """What to do when the namespace does not exist."""

    FAIL = "fail"
    SKIP = "skip"


class DropBehavior(StrEnum):
    """What to do when something is in the namespace."""

    RESTRICT = "restrict"
    CASCADE = "cascade"


@rereading
def list_namespaces(context: Context, request: ListNamespacesRequest) -> ListNamespacesResponse:
    """Return the names of the child namespaces, a page at a time.

    Raises:
        NamespaceNotFoundError: there is no such namespace.
    """
    if context.manifest is None:
        require_root_namespace(request.id)
        return ListNamespacesResponse(namespaces=[])
    namespace = parse_namespace_id(request.id)
    snapshot = context.manifest.latest()
    require_namespace(snapshot, namespace)
    names = snapshot.names(namespace, ObjectType.NAMESPACE, after=request.page_token or None)
    if request.limit is None or request.limit < 0:
        return ListNamespacesResponse(namespaces=list(names))
    found = list(islice(names, request.limit + 1))
    page = found[: request.limit]
    token = page[-1] if page and len(found) > len(page) else None
    return ListNamespacesResponse(namespaces=page, page_token=token)


@rereading
def describe_namespace(context: Context, request: DescribeNamespaceRequest) -> DescribeNamespaceResponse:
    """Return the namespace's properties. No id means the root, which has none.

    Raises:
        NamespaceNotFoundError: there is no such namespace.
    """
    if context.manifest is None:
        require_root_namespace(request.id or [])
        return DescribeNamespaceResponse(properties={})
    entry = require_namespace(context.manifest.latest(), parse_namespace_id(request.id or []))
    return DescribeNamespaceResponse(properties=entry.properties if entry is not None else {})


@rereading
def namespace_exists(context: Context, request: NamespaceExistsRequest) -> NamespaceExistsResponse:
    """Return when the namespace is there.

    Raises:
        NamespaceNotFoundError: it is not.
    """
    if context.manifest is None:
        require_root_namespace(request.id)
    else:
        require_namespace(context.manifest.latest(), parse_namespace_id(request.id))
    return NamespaceExistsResponse()


def create_namespace(context: Context, request: CreateNamespaceRequest) -> CreateNamespaceResponse:
    """Create the namespace.

    Raises:
        NamespaceAlreadyExistsError: it exists and the mode is create, or a table has its name.
        NamespaceNotFoundError: its parent does not exist.
        UnsupportedOperationError: the catalog has no manifest.
    """
    if context.manifest is None:
        require_root_namespace(request.id)
    namespace = parse_namespace_id(request.id)
    mode = parse_mode(request.mode, rows.CreateMode, default=rows.CreateMode.CREATE)
    properties = check_properties(request.properties)
    if not namespace:
        if mode is rows.CreateMode.EXIST_OK:
            return CreateNamespaceResponse()
        raise NamespaceAlreadyExistsError("root namespace")
    manifest = require_manifest(context, to_do="creating a namespace")
    same = TableId(namespace[:-1], namespace[-1])
    properties = making_way(
        context, same, lambda: rows.create(context, manifest, namespace, properties, mode)
    )
    return CreateNamespaceResponse(properties=properties or None)


def drop_namespace(context: Context, request: DropNamespaceRequest) -> DropNamespaceResponse:
    """Hide the namespace so that it can be undropped; with behavior cascade, all that is in it too.

    Raises:
        InvalidInputError: it is the root.
        NamespaceNotFoundError: it does not exist and the mode is fail.
        NamespaceNotEmptyError: something is in it and the behavior is restrict.
        InvalidTableStateError: it, or something in it, is protected.
    """
    if context.manifest is None:
        require_root_namespace(request.id)
    namespace = parse_namespace_id(request.id)
    mode = parse_mode(request.mode, DropMode, default=DropMode.FAIL)
    behavior = parse_mode(request.behavior, DropBehavior, default=DropBehavior.RESTRICT)
    ttl = asked_ttl((request.context or {}).get("ttl_ms"))
    if not namespace:
        raise InvalidInputError("root namespace cannot be dropped")
    manifest = require_manifest(context, to_do="dropping a namespace")
    try:
        marker = rows.drop(context, manifest, namespace, ttl, cascade=behavior is DropBehavior.CASCADE)
    except NamespaceNotFoundError:
        if mode is DropMode.SKIP:
            return DropNamespaceResponse()
        raise
    return DropNamespaceResponse(properties={**drop_properties(marker), "cascade_id": marker.deletion_id})


def undrop_namespace(context: Context, parts: Sequence[str], cascade_id: str | None) -> list[tuple[str, ...]]:
    """Bring back exactly what one drop of the namespace took, and return the ids.

    Raises:
        NamespaceNotFoundError: there is no such drop, or the parent does not exist.
        NamespaceAlreadyExistsError, TableAlreadyExistsError: a name is taken.
        InvalidTableStateError: a purge has begun on a part of it.
    """
    manifest = require_manifest(context, to_do="undropping a namespace")
    namespace = parse_namespace_id(parts)
    if not namespace:
        raise InvalidInputError("the root namespace can be neither dropped nor undropped")
    same = TableId(namespace[:-1], namespace[-1])
    found = making_way(context, same, lambda: rows.undrop(context, manifest, namespace, cascade_id))
    return sorted(each.parts for each in found)
