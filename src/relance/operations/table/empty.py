"""The deprecated way to declare a table, with the request of create_table."""

from __future__ import annotations

from lance_namespace import CreateTableRequest, CreateTableResponse, DeclareTableRequest

from relance.catalog.context import Context
from relance.errors import UnsupportedOperationError
from relance.lance_io import CreateMode
from relance.operations.lifecycle import declare_table
from relance.operations.requests import parse_mode, with_options


def create_empty_table(context: Context, request: CreateTableRequest) -> CreateTableResponse:
    """Declare the table: it has a place and no version yet.

    Raises:
        TableAlreadyExistsError: it exists.
        NamespaceNotFoundError: its namespace does not exist.
        UnsupportedOperationError: a mode or storage options are given, which declare_table does not have.
    """
    if parse_mode(request.mode, CreateMode, default=CreateMode.CREATE) is not CreateMode.CREATE:
        raise UnsupportedOperationError(
            "create_empty_table supports only the mode 'create'; use create_table for other modes"
        )
    if request.storage_options:
        raise UnsupportedOperationError(
            "create_empty_table writes no data, so it does not take storage_options"
        )
    declared = declare_table(context, DeclareTableRequest(id=request.id, properties=request.properties))
    response = CreateTableResponse(location=declared.location, properties=declared.properties)
    return with_options(response, context.vended_options())
