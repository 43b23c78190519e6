"""Materialized views, which a directory catalog does not have."""

from __future__ import annotations

from lance_namespace import (
    CreateMaterializedViewRequest,
    CreateMaterializedViewResponse,
    RefreshMaterializedViewRequest,
    RefreshMaterializedViewResponse,
)

from relance.catalog.context import Context, table_id_of
from relance.errors import UnsupportedOperationError

_REASON = (
    "materialized views require a service that runs their query; use create_table to store a query's result"
)


def create_materialized_view(
    context: Context, request: CreateMaterializedViewRequest
) -> CreateMaterializedViewResponse:
    """Refuse.

    Raises:
        UnsupportedOperationError: always.
        InvalidInputError: not a usable id.
    """
    raise UnsupportedOperationError(f"'{table_id_of(context, request.id)}': {_REASON}")


def refresh_materialized_view(
    context: Context, request: RefreshMaterializedViewRequest
) -> RefreshMaterializedViewResponse:
    """Refuse.

    Raises:
        UnsupportedOperationError: always.
        InvalidInputError: not a usable id.
    """
    raise UnsupportedOperationError(f"'{table_id_of(context, request.id)}': {_REASON}")
