"""The methods of the namespace that read and write the rows of a table; each delegates to its module."""

from __future__ import annotations

from lance_namespace import (
    AnalyzeTableQueryPlanRequest,
    CountTableRowsRequest,
    CountTableRowsResponse,
    DeleteFromTableRequest,
    DeleteFromTableResponse,
    ExplainTableQueryPlanRequest,
    InsertIntoTableRequest,
    InsertIntoTableResponse,
    LanceNamespace,
    MergeInsertIntoTableRequest,
    MergeInsertIntoTableResponse,
    QueryTableRequest,
    UpdateTableRequest,
    UpdateTableResponse,
)

from relance.catalog.context import Context
from relance.operations.data import count, delete, insert, merge, query, update
from relance.operations.data.results import QueryResult
from relance.operations.requests import Fields, as_request


class DataMethods(LanceNamespace):
    """The row methods of a catalog."""

    _context: Context

    def insert_into_table(
        self, request: InsertIntoTableRequest | Fields, request_data: bytes
    ) -> InsertIntoTableResponse:
        checked = as_request(InsertIntoTableRequest, request)
        return insert.insert_into_table(self._context, checked, request_data)

    def merge_insert_into_table(
        self, request: MergeInsertIntoTableRequest | Fields, request_data: bytes
    ) -> MergeInsertIntoTableResponse:
        checked = as_request(MergeInsertIntoTableRequest, request)
        return merge.merge_insert_into_table(self._context, checked, request_data)

    def update_table(self, request: UpdateTableRequest | Fields) -> UpdateTableResponse:
        return update.update_table(self._context, as_request(UpdateTableRequest, request))

    def delete_from_table(self, request: DeleteFromTableRequest | Fields) -> DeleteFromTableResponse:
        return delete.delete_from_table(self._context, as_request(DeleteFromTableRequest, request))

    def count_table_rows(self, request: CountTableRowsRequest | Fields) -> CountTableRowsResponse:
        return count.count_table_rows(self._context, as_request(CountTableRowsRequest, request))

    def query_table(self, request: QueryTableRequest | Fields) -> QueryResult:  # type: ignore[override]  # also bytes
        return query.query_table(self._context, as_request(QueryTableRequest, request))

    def explain_table_query_plan(self, request: ExplainTableQueryPlanRequest | Fields) -> str:
        checked = as_request(ExplainTableQueryPlanRequest, request)
        return query.explain_table_query_plan(self._context, checked)

    def analyze_table_query_plan(self, request: AnalyzeTableQueryPlanRequest | Fields) -> str:
        checked = as_request(AnalyzeTableQueryPlanRequest, request)
        return query.analyze_table_query_plan(self._context, checked)
