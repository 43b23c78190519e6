"""Looking at tables: list, exists, describe."""

from __future__ import annotations

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

from relance.lance_errors import lance_errors
from relance.listing.tables import list_tables as list_names
from relance.operations.arrow_json import schema_to_json
from relance.operations.context import Context
from relance.operations.datasets import open_dataset
from relance.operations.paging import page_of
from relance.operations.requests import with_options
from relance.resolution import find_table, require_root_namespace, root_table_id


def list_tables(context: Context, request: ListTablesRequest) -> ListTablesResponse:
    """Return the names of the visible tables, a page at a time."""
    require_root_namespace(request.id)
    return _page_of_tables(context, request)


def list_all_tables(context: Context, request: ListTablesRequest) -> ListTablesResponse:
    """Return the names of all visible tables of the catalog; a flat one has them all at the root."""
    return _page_of_tables(context, request)


def _page_of_tables(context: Context, request: ListTablesRequest) -> ListTablesResponse:
    names = list_names(context.storage, include_declared=request.include_declared is not False)
    page, token = page_of(names, token=request.page_token, limit=request.limit)
    return ListTablesResponse(tables=page, page_token=token)


def table_exists(context: Context, request: TableExistsRequest) -> TableExistsResponse:
    """Return when the table is there, in the given version if one is given.

    Raises:
        TableNotFoundError, TableVersionNotFoundError: it is not.
    """
    table_id = root_table_id(request.id)
    find_table(context.storage, table_id)
    if request.version is not None:
        open_dataset(context, table_id.name, version=request.version)
    return TableExistsResponse()


def describe_table(context: Context, request: DescribeTableRequest) -> DescribeTableResponse:
    """Return where the table is and, when asked, what is in it.

    Raises:
        TableNotFoundError, TableVersionNotFoundError, TableTagNotFoundError, TableBranchNotFoundError
    """
    table_id = root_table_id(request.id)
    facts = find_table(context.storage, table_id)
    location = context.location(table_id.name)
    detailed = bool(request.load_detailed_metadata)
    fields: dict[str, Any] = {}
    pinned = request.version is not None or request.tag is not None or request.branch is not None
    if pinned or (detailed and not facts.only_declared):
        fields = _details(context, request, table_id.name, detailed=detailed)
    if request.check_declared or detailed:
        fields["is_only_declared"] = facts.only_declared
    if context.settings.table_version_tracking:
        fields["managed_versioning"] = True
    response = DescribeTableResponse(
        table=table_id.name, namespace=[], location=location, table_uri=location, **fields
    )
    return with_options(response, context.vended_options(asked=request.vend_credentials))


def _details(context: Context, request: DescribeTableRequest, name: str, *, detailed: bool) -> dict[str, Any]:
    dataset = open_dataset(context, name, version=request.version, tag=request.tag, branch=request.branch)
    if not detailed:
        return {"version": dataset.version}
    with lance_errors(f"table id '{name}'", context.lance_options()):
        summary = dataset.get_version()["metadata"]
    return {
        "version": dataset.version,
        "schema": schema_to_json(dataset.schema),
        "stats": TableBasicStats(
            num_deleted_rows=int(summary["total_deletion_file_rows"]),
            num_fragments=int(summary["total_fragments"]),
        ),
        "metadata": summary,
    }
