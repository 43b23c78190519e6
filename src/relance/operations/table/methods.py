"""The methods of the namespace that inspect or change a single table; each delegates to its module."""

from __future__ import annotations

import warnings

from lance_namespace import (
    AlterTableAddColumnsRequest,
    AlterTableAddColumnsResponse,
    AlterTableAlterColumnsRequest,
    AlterTableAlterColumnsResponse,
    AlterTableBackfillColumnsRequest,
    AlterTableBackfillColumnsResponse,
    AlterTableDropColumnsRequest,
    AlterTableDropColumnsResponse,
    AlterTransactionRequest,
    AlterTransactionResponse,
    CreateMaterializedViewRequest,
    CreateMaterializedViewResponse,
    CreateTableBranchRequest,
    CreateTableBranchResponse,
    CreateTableIndexRequest,
    CreateTableIndexResponse,
    CreateTableRequest,
    CreateTableResponse,
    CreateTableScalarIndexResponse,
    CreateTableTagRequest,
    CreateTableTagResponse,
    DeleteTableBranchRequest,
    DeleteTableBranchResponse,
    DeleteTableTagRequest,
    DeleteTableTagResponse,
    DescribeTableIndexStatsRequest,
    DescribeTableIndexStatsResponse,
    DescribeTransactionRequest,
    DescribeTransactionResponse,
    DropTableIndexRequest,
    DropTableIndexResponse,
    GetTableStatsRequest,
    GetTableStatsResponse,
    GetTableTagVersionRequest,
    GetTableTagVersionResponse,
    LanceNamespace,
    ListTableBranchesRequest,
    ListTableBranchesResponse,
    ListTableIndicesRequest,
    ListTableIndicesResponse,
    ListTableTagsRequest,
    ListTableTagsResponse,
    RefreshMaterializedViewRequest,
    RefreshMaterializedViewResponse,
    RestoreTableRequest,
    RestoreTableResponse,
    UpdateFieldMetadataRequest,
    UpdateFieldMetadataResponse,
    UpdateTableSchemaMetadataRequest,
    UpdateTableSchemaMetadataResponse,
    UpdateTableTagRequest,
    UpdateTableTagResponse,
)

from relance.catalog.context import Context
from relance.operations.requests import Fields, as_request
from relance.operations.table import branches, columns, empty, history, indexes, metadata, stats, tags, views


class TableMethods(LanceNamespace):
    """The methods of a catalog for a single table: columns, indexes, tags, branches, history."""

    _context: Context

    def create_table_index(self, request: CreateTableIndexRequest | Fields) -> CreateTableIndexResponse:
        return indexes.create_table_index(self._context, as_request(CreateTableIndexRequest, request))

    def create_table_scalar_index(
        self, request: CreateTableIndexRequest | Fields
    ) -> CreateTableScalarIndexResponse:
        return indexes.create_table_scalar_index(self._context, as_request(CreateTableIndexRequest, request))

    def list_table_indices(self, request: ListTableIndicesRequest | Fields) -> ListTableIndicesResponse:
        return indexes.list_table_indices(self._context, as_request(ListTableIndicesRequest, request))

    def describe_table_index_stats(
        self, request: DescribeTableIndexStatsRequest | Fields
    ) -> DescribeTableIndexStatsResponse:
        return indexes.describe_table_index_stats(
            self._context, as_request(DescribeTableIndexStatsRequest, request)
        )

    def drop_table_index(self, request: DropTableIndexRequest | Fields) -> DropTableIndexResponse:
        return indexes.drop_table_index(self._context, as_request(DropTableIndexRequest, request))

    def list_table_tags(self, request: ListTableTagsRequest | Fields) -> ListTableTagsResponse:
        return tags.list_table_tags(self._context, as_request(ListTableTagsRequest, request))

    def get_table_tag_version(
        self, request: GetTableTagVersionRequest | Fields
    ) -> GetTableTagVersionResponse:
        return tags.get_table_tag_version(self._context, as_request(GetTableTagVersionRequest, request))

    def create_table_tag(self, request: CreateTableTagRequest | Fields) -> CreateTableTagResponse:
        return tags.create_table_tag(self._context, as_request(CreateTableTagRequest, request))

    def update_table_tag(self, request: UpdateTableTagRequest | Fields) -> UpdateTableTagResponse:
        return tags.update_table_tag(self._context, as_request(UpdateTableTagRequest, request))

    def delete_table_tag(self, request: DeleteTableTagRequest | Fields) -> DeleteTableTagResponse:
        return tags.delete_table_tag(self._context, as_request(DeleteTableTagRequest, request))

    def list_table_branches(self, request: ListTableBranchesRequest | Fields) -> ListTableBranchesResponse:
        return branches.list_table_branches(self._context, as_request(ListTableBranchesRequest, request))

    def create_table_branch(self, request: CreateTableBranchRequest | Fields) -> CreateTableBranchResponse:
        return branches.create_table_branch(self._context, as_request(CreateTableBranchRequest, request))

    def delete_table_branch(self, request: DeleteTableBranchRequest | Fields) -> DeleteTableBranchResponse:
        return branches.delete_table_branch(self._context, as_request(DeleteTableBranchRequest, request))

    def alter_table_add_columns(
        self, request: AlterTableAddColumnsRequest | Fields
    ) -> AlterTableAddColumnsResponse:
        return columns.alter_table_add_columns(
            self._context, as_request(AlterTableAddColumnsRequest, request)
        )

    def alter_table_alter_columns(
        self, request: AlterTableAlterColumnsRequest | Fields
    ) -> AlterTableAlterColumnsResponse:
        return columns.alter_table_alter_columns(
            self._context, as_request(AlterTableAlterColumnsRequest, request)
        )

    def alter_table_drop_columns(
        self, request: AlterTableDropColumnsRequest | Fields
    ) -> AlterTableDropColumnsResponse:
        return columns.alter_table_drop_columns(
            self._context, as_request(AlterTableDropColumnsRequest, request)
        )

    def alter_table_backfill_columns(
        self, request: AlterTableBackfillColumnsRequest | Fields
    ) -> AlterTableBackfillColumnsResponse:
        return columns.alter_table_backfill_columns(
            self._context, as_request(AlterTableBackfillColumnsRequest, request)
        )

    def update_table_schema_metadata(
        self, request: UpdateTableSchemaMetadataRequest | Fields
    ) -> UpdateTableSchemaMetadataResponse:
        return metadata.update_table_schema_metadata(
            self._context, as_request(UpdateTableSchemaMetadataRequest, request)
        )

    def update_field_metadata(
        self, request: UpdateFieldMetadataRequest | Fields
    ) -> UpdateFieldMetadataResponse:
        return metadata.update_field_metadata(self._context, as_request(UpdateFieldMetadataRequest, request))

    def get_table_stats(self, request: GetTableStatsRequest | Fields) -> GetTableStatsResponse:
        return stats.get_table_stats(self._context, as_request(GetTableStatsRequest, request))

    def restore_table(self, request: RestoreTableRequest | Fields) -> RestoreTableResponse:
        return history.restore_table(self._context, as_request(RestoreTableRequest, request))

    def describe_transaction(
        self, request: DescribeTransactionRequest | Fields
    ) -> DescribeTransactionResponse:
        return history.describe_transaction(self._context, as_request(DescribeTransactionRequest, request))

    def alter_transaction(self, request: AlterTransactionRequest | Fields) -> AlterTransactionResponse:
        return history.alter_transaction(self._context, as_request(AlterTransactionRequest, request))

    def create_materialized_view(
        self, request: CreateMaterializedViewRequest | Fields
    ) -> CreateMaterializedViewResponse:
        return views.create_materialized_view(
            self._context, as_request(CreateMaterializedViewRequest, request)
        )

    def refresh_materialized_view(
        self, request: RefreshMaterializedViewRequest | Fields
    ) -> RefreshMaterializedViewResponse:
        return views.refresh_materialized_view(
            self._context, as_request(RefreshMaterializedViewRequest, request)
        )

    def create_empty_table(self, request: CreateTableRequest | Fields) -> CreateTableResponse:
        warnings.warn(
            "create_empty_table is deprecated, use declare_table instead", DeprecationWarning, stacklevel=2
        )
        return empty.create_empty_table(self._context, as_request(CreateTableRequest, request))
