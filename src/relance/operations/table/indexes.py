"""Indexes of a table: create, list, describe, drop. Which kinds there are is in index_types."""

from __future__ import annotations

import json

import lance
from lance_namespace import (
    CreateTableIndexRequest,
    CreateTableIndexResponse,
    CreateTableScalarIndexResponse,
    DescribeTableIndexStatsRequest,
    DescribeTableIndexStatsResponse,
    DropTableIndexRequest,
    DropTableIndexResponse,
    ListTableIndicesRequest,
    ListTableIndicesResponse,
)
from lance_namespace_urllib3_client.models.index_content import IndexContent

from relance.catalog.context import Context
from relance.errors import (
    ConcurrentModificationError,
    InvalidInputError,
    TableIndexAlreadyExistsError,
    TableIndexNotFoundError,
)
from relance.operations.paging import page_of
from relance.operations.table.index_types import IndexType, check_fit, parameters, parse_index_type
from relance.operations.table.opening import changing, reading, refusing, require_column, transaction_id


def create_table_index(context: Context, request: CreateTableIndexRequest) -> CreateTableIndexResponse:
    """Build an index of any kind over a column, named after the column unless a name is given.

    Raises:
        TableIndexAlreadyExistsError: there is an index of this name.
        TableColumnNotFoundError: there is no such column.
        InvalidInputError: the kind is unknown, does not fit the column, or a field is not for it.
    """
    return CreateTableIndexResponse(transaction_id=_create(context, request))


def create_table_scalar_index(
    context: Context, request: CreateTableIndexRequest
) -> CreateTableScalarIndexResponse:
    """Build an index of any kind but those over vectors.

    Raises:
        As create_table_index.
        InvalidInputError: also for a vector index.
    """
    if parse_index_type(request.index_type).is_vector:
        raise InvalidInputError(f"{request.index_type} is not a scalar index; use create_table_index")
    return CreateTableScalarIndexResponse(transaction_id=_create(context, request))


def _create(context: Context, request: CreateTableIndexRequest) -> str | None:
    index_type = parse_index_type(request.index_type)
    name = f"{request.column}_idx" if request.name is None else _named(request.name)
    with changing(context, request.id, branch=request.branch) as dataset:
        require_column(dataset, request.column)
        data_type = dataset.lance_schema.field(request.column).to_arrow().type
        check_fit(index_type, request.column, data_type)
        arguments = parameters(index_type, request, data_type)
        if name in _names(dataset):
            raise _taken(name)
        _build(dataset, index_type, request.column, name, arguments)
        return transaction_id(dataset)


def _build(
    dataset: lance.LanceDataset, index_type: IndexType, column: str, name: str, arguments: dict[str, object]
) -> None:
    try:
        with refusing(f"index '{name}'"):
            if index_type.is_vector:
                dataset.create_index(column, index_type.name, name=name, replace=False, **arguments)
            else:
                dataset.create_scalar_index(column, index_type.name, name=name, replace=False, **arguments)
    except RuntimeError as cause:
        if f"Index name '{name}' already exists" in str(cause):
            raise _taken(name) from cause
        raise


def _taken(name: str) -> TableIndexAlreadyExistsError:
    return TableIndexAlreadyExistsError(f"'{name}': drop it first or choose another name")


def _names(dataset: lance.LanceDataset) -> set[str]:
    return {each.name for each in dataset.describe_indices()}


def _named(name: str | None) -> str:
    if not name:
        raise InvalidInputError("index name is required")
    return name


def list_table_indices(context: Context, request: ListTableIndicesRequest) -> ListTableIndicesResponse:
    """Return the indexes, sorted by name, a page at a time.

    Raises:
        TableNotFoundError, TableVersionNotFoundError, TableBranchNotFoundError
    """
    with reading(context, request.id, version=request.version, branch=request.branch) as dataset:
        found = {each.name: each for each in dataset.describe_indices()}
        names = sorted(found, key=str.encode)
        page, token = page_of(names, token=request.page_token, limit=request.limit)
        rows = {each.fragment_id: each.metadata.num_rows for each in dataset.get_fragments()} if page else {}
        return ListTableIndicesResponse(indexes=[_tell(found[name], rows) for name in page], page_token=token)


def _tell(index: lance.indices.IndexDescription, rows: dict[int, int]) -> IndexContent:
    """Return an index as clients are told of it, given the live rows of each fragment."""
    covered = {fragment for segment in index.segments for fragment in segment.fragment_ids}
    indexed = sum(count for fragment, count in rows.items() if fragment in covered)
    newest = max(index.segments, key=lambda each: each.dataset_version_at_last_update)
    return IndexContent(
        index_name=index.name,
        index_uuid=str(newest.uuid),
        columns=list(index.field_names),
        status="SUCCEEDED",
        index_type=index.index_type,
        type_url=index.type_url,
        num_indexed_rows=indexed,
        num_unindexed_rows=sum(rows.values()) - indexed,
        size_bytes=index.total_size_bytes,
        num_segments=len(index.segments),
        created_at=newest.created_at,
        index_version=newest.index_version,
        index_details=json.dumps(index.details, separators=(",", ":")),
    )


def describe_table_index_stats(
    context: Context, request: DescribeTableIndexStatsRequest
) -> DescribeTableIndexStatsResponse:
    """Return what an index is of and how many rows it covers.

    Raises:
        TableIndexNotFoundError: there is no such index.
        InvalidInputError: none is named.
    """
    name = _named(request.index_name)
    with reading(context, request.id, version=request.version, branch=request.branch) as dataset:
        _require_index(dataset, name)
        stats = dataset.stats.index_stats(name)
    parts = stats.get("indices") or [{}]
    return DescribeTableIndexStatsResponse(
        index_type=stats["index_type"],
        distance_type=parts[0].get("metric_type"),
        num_indexed_rows=stats["num_indexed_rows"],
        num_unindexed_rows=stats["num_unindexed_rows"],
        num_indices=stats["num_indices"],
    )


def drop_table_index(context: Context, request: DropTableIndexRequest) -> DropTableIndexResponse:
    """Take an index from the table; the versions before keep it.

    Raises:
        TableIndexNotFoundError: there is no such index.
        InvalidInputError: none is named.
    """
    name = _named(request.index_name)
    with changing(context, request.id, branch=request.branch) as dataset:
        _require_index(dataset, name)
        try:
            dataset.drop_index(name)
        except RuntimeError as cause:
            if "index not found" in str(cause):
                raise ConcurrentModificationError(f"index '{name}' was dropped by another client") from cause
            raise
        return DropTableIndexResponse(transaction_id=transaction_id(dataset))


def _require_index(dataset: lance.LanceDataset, name: str) -> None:
    names = _names(dataset)
    if name not in names:
        known = f"existing indexes: {', '.join(sorted(names))}" if names else "the table has no indexes"
        raise TableIndexNotFoundError(f"'{name}'; {known}")
