"""Queries: run them, or tell how they would be run. What a request means to Lance is in scans."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import lance
from lance_namespace import (
    AnalyzeTableQueryPlanRequest,
    ExplainTableQueryPlanRequest,
    QueryTableRequest,
)

from relance.catalog.context import Context
from relance.errors import InvalidInputError
from relance.operations.data.results import QueryResult, write_file
from relance.operations.data.scans import scan_arguments
from relance.operations.requests import as_request
from relance.operations.targets import open_for_reading

_T = TypeVar("_T")

_SCANNERS = ThreadPoolExecutor(8, thread_name_prefix="relance-query")
"""Queries run here: in a callback from Lance's own threads a scan aborts the interpreter."""


def query_table(context: Context, request: QueryTableRequest) -> QueryResult:
    """Return the rows that a filter, the nearest vectors or a text search select.

    Raises:
        TableNotFoundError, TableVersionNotFoundError, TableBranchNotFoundError: it is not there.
        InvalidInputError: a filter, column, vector or option cannot be used, or goes with no other.
    """
    return _scan(context, request, lambda scanner: write_file(scanner.to_reader()))


def explain_table_query_plan(context: Context, request: ExplainTableQueryPlanRequest) -> str:
    """Return how the query would be run.

    Raises:
        As query_table; InvalidInputError too if the query inside names another table or branch.
    """
    query = request.query
    for field, inner, outer in (("id", query.id, request.id), ("branch", query.branch, request.branch)):
        if inner is not None and outer is not None and inner != outer:
            raise InvalidInputError(
                f"the query and the request have different values for {field}: {inner} and {outer}"
            )
    query = query.model_copy(update={"id": request.id or query.id, "branch": request.branch or query.branch})
    return _scan(context, query, lambda scanner: str(scanner.explain_plan(verbose=bool(request.verbose))))


def analyze_table_query_plan(context: Context, request: AnalyzeTableQueryPlanRequest) -> str:
    """Run the query and return its plan with what each step took.

    Raises:
        As query_table.
    """
    query = as_request(QueryTableRequest, request.model_dump(by_alias=True, exclude_none=True))
    return _scan(context, query, lambda scanner: str(scanner.analyze_plan()))


def _scan(context: Context, request: QueryTableRequest, use: Callable[[lance.LanceScanner], _T]) -> _T:
    target = open_for_reading(context, request.id, version=request.version, branch=request.branch)

    def work() -> _T:
        with target.errors():
            return use(target.dataset.scanner(**scan_arguments(target.dataset, request)))

    return _SCANNERS.submit(work).result()
