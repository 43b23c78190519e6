"""Looking at tables: list, exists, describe."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
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
from relance.catalog.layout import end_reservation, end_reservation_at_home, list_names
from relance.catalog.manifest.row import ObjectType, user_properties
from relance.catalog.manifest.store import Snapshot, rereading
from relance.catalog.namespaces import page_of
from relance.catalog.resolve import (
    Found,
    find_table,
    lance_properties,
    parent_first,
    require_namespace,
    require_root_namespace,
)
from relance.identifiers import DELIMITER, parse_namespace_id
from relance.lance_io import lance_errors
from relance.locations import VERSIONS_DIRECTORY
from relance.operations.arrow_json import schema_to_json
from relance.operations.datasets import open_dataset
from relance.operations.requests import with_options
from relance.operations.versions import is_managed

_BATCH = 100
"""Tables that are looked into at a time."""


@rereading
def list_tables(context: Context, request: ListTablesRequest) -> ListTablesResponse:
    """Return the names of a namespace's visible tables, a page at a time.

    Raises:
        NamespaceNotFoundError: there is no such namespace.
    """
    declared = request.include_declared is not False
    if context.manifest is None:
        require_root_namespace(request.id)
        names = _after(list_names(context, include_declared=declared), request.page_token)
        return _page(names, request.limit)
    namespace = parse_namespace_id(request.id, existing=True)
    snapshot = context.manifest.latest()
    require_namespace(snapshot, namespace)
    found = _table_names(context, snapshot, namespace, after=request.page_token or None, declared=declared)
    return _page(found, request.limit)


@rereading
def list_all_tables(context: Context, request: ListTablesRequest) -> ListTablesResponse:
    """Return the ids of all visible tables of the catalog, a page at a time."""
    if context.manifest is None:
        return list_tables(context, request.model_copy(update={"id": []}))
    snapshot, after = context.manifest.latest(), request.page_token or None
    declared = request.include_declared is not False
    at_root = _table_names(context, snapshot, (), after=after, declared=declared)
    nested: Iterator[str] = (each for each in snapshot.table_ids(after=after) if DELIMITER in each)
    if not declared:
        nested = _with_versions(context, snapshot, nested, lambda each: each)
    return _page(heapq.merge(at_root, nested), request.limit)


def _page(names: Iterator[str], limit: int | None) -> ListTablesResponse:
    page, token = page_of(names, limit)
    return ListTablesResponse(tables=page, page_token=token)


def _after(names: Sequence[str], token: str | None) -> Iterator[str]:
    return (name for name in names if not token or name.encode() > token.encode())


def _table_names(
    context: Context, snapshot: Snapshot, namespace: Sequence[str], *, after: str | None, declared: bool
) -> Iterator[str]:
    """Yield the names of the namespace's tables; at the root those of directories too."""
    prefix = "".join(part + DELIMITER for part in namespace)
    rows = snapshot.names(namespace, ObjectType.TABLE, after=after)
    if namespace:
        return rows if declared else _with_versions(context, snapshot, rows, lambda name: prefix + name)
    at_home = snapshot.home_names()
    elsewhere = [name for name in rows if name not in at_home]
    if context.settings.dir_listing:
        # The manifest wins where both know a name; of a table at home the directory tells whether it shows.
        known = {*elsewhere, *snapshot.names((), ObjectType.NAMESPACE, after=after)}
        listed = [name for name in list_names(context, include_declared=declared) if name not in known]
    else:
        listed = _at_home(context, snapshot, at_home, declared=declared)
    shown = (
        iter(elsewhere) if declared else _with_versions(context, snapshot, iter(elsewhere), lambda name: name)
    )
    return heapq.merge(shown, _after(listed, after), key=str.encode)


def _at_home(context: Context, snapshot: Snapshot, visible: frozenset[str], *, declared: bool) -> list[str]:
    """Return the names of tables in home directories that rows know, as arbiter and marker decide."""
    dropped = {row.original_id for row in snapshot.dropped() if row.is_home}
    names = visible | dropped
    if not names:
        return []
    return [name for name in list_names(context, include_declared=declared) if name in names]


def _with_versions(
    context: Context, snapshot: Snapshot, names: Iterator[str], id_of: Callable[[str], str]
) -> Iterator[str]:
    """Yield the names of those tables that have a version, looked up many at a time."""
    while batch := list(islice(names, _BATCH)):
        rows = snapshot.get(id_of(name) for name in batch)
        inside = {
            name: f"{row.normalized_location}/{VERSIONS_DIRECTORY}/"
            for name in batch
            if (row := rows.get(id_of(name))) is not None and row.normalized_location is not None
        }
        there = context.storage.which_exist(list(inside.values()))
        yield from (name for name in batch if inside.get(name) in there)


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
    table_id = table_id_of(context, request.id, existing=True)
    with parent_first(context, table_id):
        found = find_table(context, table_id)
    if found.home is not None:
        end_reservation_at_home(context, found.home)
    location = context.location_of(found.directory)
    detailed = bool(request.load_detailed_metadata)
    inside = found.inside(context.storage) if request.check_declared or detailed else None
    declared = None if inside is None else not inside.has_versions
    fields: dict[str, Any] = {}
    pinned = request.version is not None or request.tag is not None or request.branch is not None
    if pinned or (detailed and not declared):
        fields = _details(context, request, found, detailed=detailed)
        if inside is not None and inside.reserved and found.home is None:
            end_reservation(context, found.directory)
    if declared is not None:
        fields["is_only_declared"] = declared
    if is_managed(context):
        fields["managed_versioning"] = True
    properties = {**found.properties, **fields.pop("table_metadata", {})}
    if not found.has_row and found.home is not None and not detailed:
        properties = lance_properties(context, found.home)
    if properties:
        fields["properties"] = properties
    response = DescribeTableResponse(
        table=found.table_id.name,
        namespace=list(found.table_id.namespace),
        location=location,
        table_uri=location,
        **fields,
    )
    return with_options(response, context.vended_options(asked=request.vend_credentials))


def _details(
    context: Context, request: DescribeTableRequest, found: Found, *, detailed: bool
) -> dict[str, Any]:
    dataset = open_dataset(context, found, version=request.version, tag=request.tag, branch=request.branch)
    if not detailed:
        return {"version": dataset.version}
    with lance_errors(f"table id '{found.table_id}'", context.lance_options()):
        summary = dataset.get_version()["metadata"]
    return {
        "version": dataset.version,
        "schema": schema_to_json(dataset.schema),
        "stats": TableBasicStats(
            num_deleted_rows=int(summary["total_deletion_file_rows"]),
            num_fragments=int(summary["total_fragments"]),
        ),
        "metadata": summary,
        "table_metadata": user_properties(dataset.metadata),
    }
