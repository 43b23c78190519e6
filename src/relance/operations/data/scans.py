"""What a query asks for, as arguments of a Lance scan: every field is used or refused."""

from __future__ import annotations

from typing import Any

import lance
import pyarrow as pa
from lance_namespace import QueryTableRequest
from lance_namespace_urllib3_client.models.query_table_request_columns import QueryTableRequestColumns

from relance.errors import InvalidInputError
from relance.operations.data.expressions import check_expressions
from relance.operations.data.full_text import text_query

_DEFAULT_NEIGHBOURS = 10

_LARGEST = 2**63 - 1

_METRICS = ("l2", "cosine", "dot", "hamming")

_ONLY_WITH_VECTOR = (
    "vector_column",
    "distance_type",
    "nprobes",
    "minimum_nprobes",
    "maximum_nprobes",
    "refine_factor",
    "ef",
    "lower_bound",
    "upper_bound",
)


def scan_arguments(dataset: lance.LanceDataset, request: QueryTableRequest) -> dict[str, Any]:
    """Return the arguments of the scan that answers the request.

    With a vector or a text, `k` rows are returned after `offset` have been skipped, and the filter is
    applied first unless `prefilter` is false.

    Raises:
        InvalidInputError: a field cannot be used, or not together with the others.
    """
    limit, offset = request.k, request.offset or 0
    if limit < 0 or limit + offset > _LARGEST:
        raise InvalidInputError(f"k {limit} and offset {offset} are out of range")
    aliases = request.columns.column_aliases if request.columns is not None else None
    check_expressions([request.filter, *(aliases or {}).values()])
    vector = _vector(request)
    searching = vector is not None or request.full_text_query is not None
    if vector is not None and request.full_text_query is not None:
        raise InvalidInputError(
            "a query takes either a vector or a full-text query: run two queries and merge the results"
        )
    if request.fast_search and not searching:
        raise InvalidInputError("fast_search requires an index search: pass a vector or a full-text query")
    arguments: dict[str, Any] = {
        "columns": _columns(request.columns),
        "filter": request.filter,
        "with_row_id": bool(request.with_row_id),
        "limit": limit or None,
        "offset": offset or None,
    }
    if searching:
        arguments["prefilter"] = request.prefilter is not False
        arguments["fast_search"] = bool(request.fast_search)
    if request.full_text_query is not None:
        arguments["full_text_query"] = text_query(dataset, request.full_text_query)
    if vector is None:
        _refuse_vector_fields(request)
    else:
        if offset and isinstance(vector[0], list):
            raise InvalidInputError(
                "offset cannot be combined with several vectors: each returns its own k rows"
            )
        # No limit: of one vector k alone does it, and several have k rows each.
        arguments["limit"] = None
        arguments["nearest"] = _nearest(dataset, request, vector, (limit or _DEFAULT_NEIGHBOURS) + offset)
    return arguments


def _vector(request: QueryTableRequest) -> list[Any] | None:
    """Return the vector or vectors, if there are any."""
    single, several = request.vector.single_vector, request.vector.multi_vector
    if single and several:
        raise InvalidInputError("pass either a single vector or several, not both")
    return single or several or None


def _refuse_vector_fields(request: QueryTableRequest) -> None:
    # bypass_vector_index is left out: lancedb says so of every query that has no vector, and rightly.
    given = [name for name in _ONLY_WITH_VECTOR if getattr(request, name) is not None]
    if given:
        raise InvalidInputError(f"{', '.join(given)} can only be used with a vector")


def _columns(columns: QueryTableRequestColumns | None) -> list[str] | dict[str, str] | None:
    if columns is None:
        return None
    if columns.column_names and columns.column_aliases:
        raise InvalidInputError("pass either column names or column aliases, not both")
    return columns.column_names or columns.column_aliases or None


def _nearest(dataset: lance.LanceDataset, request: QueryTableRequest, vector: list[Any], k: int) -> Any:
    nearest: dict[str, Any] = {
        "column": request.vector_column or _only_vector_column(dataset.schema),
        "q": vector,
        "use_index": not request.bypass_vector_index,
    }
    if request.distance_type is not None:
        metric = request.distance_type.lower()
        if metric not in _METRICS:
            raise InvalidInputError(
                f"unknown distance type {request.distance_type!r}: use one of {', '.join(_METRICS)}"
            )
        nearest["metric"] = metric
    if request.minimum_nprobes is not None or request.maximum_nprobes is not None:
        nearest["minimum_nprobes"] = request.minimum_nprobes
        nearest["maximum_nprobes"] = request.maximum_nprobes
    else:
        nearest["nprobes"] = request.nprobes
    # Lance makes room for all of these, whatever the table has: a huge number would end the process.
    rows = max(dataset.count_rows(), 1)
    nearest["k"] = min(k, rows)
    if request.refine_factor is not None:
        nearest["refine_factor"] = min(request.refine_factor, -(-rows // nearest["k"]))
    if request.ef is not None:
        nearest["ef"] = min(request.ef, 2 * rows)  # not less than k times the factor
    if request.lower_bound is not None or request.upper_bound is not None:
        nearest["distance_range"] = (request.lower_bound, request.upper_bound)
    return {name: value for name, value in nearest.items() if value is not None}


def _only_vector_column(schema: pa.Schema) -> str:
    """Return the column to search when none is named: `vector`, or the only one that holds vectors."""
    names = [str(field.name) for field in schema if _holds_vectors(field.type)]
    if "vector" in names:
        return "vector"
    if len(names) != 1:
        raise InvalidInputError(
            f"the table has {len(names)} vector columns and none is named 'vector': set vector_column"
        )
    return names[0]


def _holds_vectors(kind: pa.DataType) -> bool:
    if pa.types.is_list(kind):
        kind = kind.value_type
    return bool(pa.types.is_fixed_size_list(kind))
