"""DirectoryNamespace: the catalog as a Lance namespace. Each method hands over to operations."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from lance_namespace import (
    BatchCreateTableVersionsRequest,
    BatchCreateTableVersionsResponse,
    BatchDeleteTableVersionsRequest,
    BatchDeleteTableVersionsResponse,
    CreateNamespaceRequest,
    CreateNamespaceResponse,
    CreateTableRequest,
    CreateTableResponse,
    CreateTableVersionRequest,
    CreateTableVersionResponse,
    DeclareTableRequest,
    DeclareTableResponse,
    DeregisterTableRequest,
    DeregisterTableResponse,
    DescribeNamespaceRequest,
    DescribeNamespaceResponse,
    DescribeTableRequest,
    DescribeTableResponse,
    DescribeTableVersionRequest,
    DescribeTableVersionResponse,
    DropNamespaceRequest,
    DropNamespaceResponse,
    DropTableRequest,
    DropTableResponse,
    LanceNamespace,
    ListNamespacesRequest,
    ListNamespacesResponse,
    ListTablesRequest,
    ListTablesResponse,
    ListTableVersionsRequest,
    ListTableVersionsResponse,
    NamespaceExistsRequest,
    NamespaceExistsResponse,
    RegisterTableRequest,
    RegisterTableResponse,
    TableExistsRequest,
    TableExistsResponse,
)

from relance.clock import Clock, SystemClock
from relance.config import parse_properties
from relance.locations import parse_root
from relance.operations import create, declare, drop, namespaces, registration, tables, versions
from relance.operations.context import Context
from relance.operations.requests import as_request
from relance.storage.connect import connect


class DirectoryNamespace(LanceNamespace):
    """A directory of Lance tables, on local disk or an object store.

    A drop-in replacement for `lance.namespace.DirectoryNamespace`. Requests may be models or
    dictionaries. Instances are safe between threads, and picklable: they carry their properties.
    """

    def __init__(self, *, clock: Clock | None = None, **properties: str | bool | os.PathLike[str]) -> None:
        """Open the catalog; nothing is requested from the store yet. See docs/reference/settings.md.

        Raises:
            InvalidInputError: a property is missing, unknown or has an unusable value.
            UnsupportedOperationError: a property asks for something this catalog does not have.
        """
        self._properties = {name: _as_text(value) for name, value in properties.items()}
        self._clock = clock
        settings = parse_properties(self._properties)
        root = parse_root(settings.root)
        # Absolute, so that a pickled catalog names the same root in a process that runs elsewhere.
        self._properties["root"] = root.uri
        self._context = Context(
            settings, root, connect(root, settings.storage_options), clock or SystemClock()
        )

    def __getstate__(self) -> Mapping[str, Any]:
        return {"clock": self._clock, "properties": self._properties}

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        self.__init__(clock=state["clock"], **state["properties"])  # type: ignore[misc]  # a fresh instance

    def __repr__(self) -> str:
        return f"relance.{self.namespace_id()}"

    def namespace_id(self) -> str:
        """Return what identifies this catalog: its root."""
        return f'DirectoryNamespace {{ root: "{self._context.root.uri}" }}'

    def list_namespaces(self, request: ListNamespacesRequest) -> ListNamespacesResponse:
        return namespaces.list_namespaces(self._context, as_request(ListNamespacesRequest, request))

    def describe_namespace(self, request: DescribeNamespaceRequest) -> DescribeNamespaceResponse:
        return namespaces.describe_namespace(self._context, as_request(DescribeNamespaceRequest, request))

    def create_namespace(self, request: CreateNamespaceRequest) -> CreateNamespaceResponse:
        return namespaces.create_namespace(self._context, as_request(CreateNamespaceRequest, request))

    def drop_namespace(self, request: DropNamespaceRequest) -> DropNamespaceResponse:
        return namespaces.drop_namespace(self._context, as_request(DropNamespaceRequest, request))

    def namespace_exists(self, request: NamespaceExistsRequest) -> NamespaceExistsResponse:
        return namespaces.namespace_exists(self._context, as_request(NamespaceExistsRequest, request))

    def list_tables(self, request: ListTablesRequest) -> ListTablesResponse:
        return tables.list_tables(self._context, as_request(ListTablesRequest, request))

    def list_all_tables(self, request: ListTablesRequest) -> ListTablesResponse:
        return tables.list_all_tables(self._context, as_request(ListTablesRequest, request))

    def table_exists(self, request: TableExistsRequest) -> TableExistsResponse:
        return tables.table_exists(self._context, as_request(TableExistsRequest, request))

    def describe_table(self, request: DescribeTableRequest) -> DescribeTableResponse:
        return tables.describe_table(self._context, as_request(DescribeTableRequest, request))

    def declare_table(self, request: DeclareTableRequest) -> DeclareTableResponse:
        return declare.declare_table(self._context, as_request(DeclareTableRequest, request))

    def create_table(self, request: CreateTableRequest, request_data: bytes) -> CreateTableResponse:
        return create.create_table(self._context, as_request(CreateTableRequest, request), request_data)

    def drop_table(self, request: DropTableRequest) -> DropTableResponse:
        return drop.drop_table(self._context, as_request(DropTableRequest, request))

    def register_table(self, request: RegisterTableRequest) -> RegisterTableResponse:
        return registration.register_table(self._context, as_request(RegisterTableRequest, request))

    def deregister_table(self, request: DeregisterTableRequest) -> DeregisterTableResponse:
        return registration.deregister_table(self._context, as_request(DeregisterTableRequest, request))

    def list_table_versions(self, request: ListTableVersionsRequest) -> ListTableVersionsResponse:
        return versions.list_table_versions(self._context, as_request(ListTableVersionsRequest, request))

    def describe_table_version(self, request: DescribeTableVersionRequest) -> DescribeTableVersionResponse:
        checked = as_request(DescribeTableVersionRequest, request)
        return versions.describe_table_version(self._context, checked)

    def create_table_version(self, request: CreateTableVersionRequest) -> CreateTableVersionResponse:
        return versions.create_table_version(self._context, as_request(CreateTableVersionRequest, request))

    def batch_create_table_versions(
        self, request: BatchCreateTableVersionsRequest
    ) -> BatchCreateTableVersionsResponse:
        checked = as_request(BatchCreateTableVersionsRequest, request)
        return versions.batch_create_table_versions(self._context, checked)

    def batch_delete_table_versions(
        self, request: BatchDeleteTableVersionsRequest
    ) -> BatchDeleteTableVersionsResponse:
        checked = as_request(BatchDeleteTableVersionsRequest, request)
        return versions.batch_delete_table_versions(self._context, checked)


def _as_text(value: str | bool | os.PathLike[str]) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return os.fspath(value)
