"""Looking at tables: list, exists, describe."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from lance_namespace import (
    DescribeTableRequest,
    DescribeTableResponse,
    ListTablesRequest,
    ListTablesResponse,
    TableExistsRequest,
    TableExistsResponse,
)
from lance_namespace_urllib3_client.models.table_basic_stats import TableBasicStats

from relance.catalog.context import Context, table_id_of
from relance.catalog.listing import ids_of_all, names_in
from relance.catalog.manifest.store import rereading
from relance.catalog.namespaces import page_of
from relance.catalog.resolve import find_table, parent_first
from relance.identifiers import parse_namespace_id
from relance.operations.arrow_json import schema_to_json
from relance.operations.datasets import open_dataset
from relance.operations.inspection import Pin, inspect_table
from relance.operations.requests import with_options
from relance.operations.versions import is_managed


@rereading
def list_tables(context: Context, request: ListTablesRequest) -> ListTablesResponse:
    """Return the names of a namespace's visible tables, a page at a time.

    Raises:
        NamespaceNotFoundError: there is no such namespace.
    """
    declared = request.include_declared is not False
    namespace = parse_namespace_id(request.id, existing=True)
    return _page(names_in(context, namespace, after=request.page_token or None, declared=declared), request)


@rereading
def list_all_tables(context: Context, request: ListTablesRequest) -> ListTablesResponse:
    """Return the ids of all visible tables of the catalog, a page at a time."""
    declared = request.include_declared is not False
    return _page(ids_of_all(context, after=request.page_token or None, declared=declared), request)


def _page(names: Iterator[str], request: ListTablesRequest) -> ListTablesResponse:
    page, token = page_of(names, request.limit)
    return ListTablesResponse(tables=page, page_token=token)


def table_exists(context: Context, request: TableExistsRequest) -> TableExistsResponse:
    """Return when the table is there, in the given version if one is given.

    Raises:
        NamespaceNotFoundError, TableNotFoundError, TableVersionNotFoundError: it is not.
    """
    table_id = table_id_of(context, request.id, existing=True)
    with parent_first(context, table_id):
        found = find_table(context, table_id, properties=False)
    if request.version is not None:
        open_dataset(context, found, version=request.version)
    return TableExistsResponse()


def describe_table(context: Context, request: DescribeTableRequest) -> DescribeTableResponse:
    """Return where the table is and, when asked, what is in it.

    Raises:
        NamespaceNotFoundError: its namespace does not exist.
        TableNotFoundError, TableVersionNotFoundError, TableTagNotFoundError, TableBranchNotFoundError
    """
    pin = Pin(request.version, request.tag, request.branch)
    inspected = inspect_table(
        context,
        table_id_of(context, request.id, existing=True),
        pin,
        detailed=bool(request.load_detailed_metadata),
        check_declared=bool(request.check_declared),
    )
    fields: dict[str, Any] = {}
    if inspected.dataset is not None:
        fields["version"] = inspected.version
    if inspected.summary is not None:
        fields["schema"] = schema_to_json(inspected.schema)
        fields["stats"] = TableBasicStats(
            num_deleted_rows=int(inspected.summary["total_deletion_file_rows"]),
            num_fragments=int(inspected.summary["total_fragments"]),
        )
        fields["metadata"] = inspected.summary
    if inspected.declared is not None:
        fields["is_only_declared"] = inspected.declared
    if is_managed(context):
        fields["managed_versioning"] = True
    if inspected.properties:
        fields["properties"] = inspected.properties
    table_id = inspected.found.table_id
    response = DescribeTableResponse(
        table=table_id.name,
        namespace=list(table_id.namespace),
        location=inspected.location,
        table_uri=inspected.location,
        **fields,
    )
    return with_options(response, context.vended_options(asked=request.vend_credentials))
