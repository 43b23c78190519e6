"""Namespace operations on a flat catalog: there is the root, and nothing else."""

from __future__ import annotations

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

from relance.errors import InvalidInputError, NamespaceAlreadyExistsError
from relance.operations.context import Context
from relance.resolution import require_root_namespace


def list_namespaces(context: Context, request: ListNamespacesRequest) -> ListNamespacesResponse:
    """Return the child namespaces of the root: none."""
    require_root_namespace(request.id)
    return ListNamespacesResponse(namespaces=[])


def describe_namespace(context: Context, request: DescribeNamespaceRequest) -> DescribeNamespaceResponse:
    """Return the root's properties: none. No id means the root."""
    require_root_namespace(request.id or [])
    return DescribeNamespaceResponse(properties={})


def namespace_exists(context: Context, request: NamespaceExistsRequest) -> NamespaceExistsResponse:
    """Return when the namespace is the root."""
    require_root_namespace(request.id)
    return NamespaceExistsResponse()


def create_namespace(context: Context, request: CreateNamespaceRequest) -> CreateNamespaceResponse:
    """Refuse: the root exists, and there can be no other.

    Raises:
        NamespaceAlreadyExistsError: for the root.
        UnsupportedOperationError: for any other.
    """
    require_root_namespace(request.id)
    raise NamespaceAlreadyExistsError("root namespace")


def drop_namespace(context: Context, request: DropNamespaceRequest) -> DropNamespaceResponse:
    """Refuse: the root cannot go.

    Raises:
        InvalidInputError: for the root.
        UnsupportedOperationError: for any other.
    """
    require_root_namespace(request.id)
    raise InvalidInputError("root namespace cannot be dropped")
