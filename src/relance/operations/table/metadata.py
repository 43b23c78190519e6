"""Metadata of a table's schema and of its fields."""

from __future__ import annotations

import lance
from lance_namespace import (
    UpdateFieldMetadataRequest,
    UpdateFieldMetadataResponse,
    UpdateTableSchemaMetadataRequest,
    UpdateTableSchemaMetadataResponse,
)
from lance_namespace_urllib3_client.models.update_field_metadata_entry import UpdateFieldMetadataEntry

from relance.catalog.context import Context
from relance.errors import InvalidInputError
from relance.operations.table.opening import changing, reading, refusing, require_column, transaction_id


def update_table_schema_metadata(
    context: Context, request: UpdateTableSchemaMetadataRequest
) -> UpdateTableSchemaMetadataResponse:
    """Set keys of the schema's metadata; the others stay. Returns all of them.

    Without a key nothing is set, and no version made.

    Raises:
        TableNotFoundError, TableBranchNotFoundError
    """
    if not request.metadata:
        with reading(context, request.id, branch=request.branch) as dataset:
            return UpdateTableSchemaMetadataResponse(metadata=dict(dataset.schema_metadata))
    with changing(context, request.id, branch=request.branch) as dataset:
        with refusing("schema metadata"):
            after = dataset.update_schema_metadata(dict(request.metadata))
        return UpdateTableSchemaMetadataResponse(metadata=after, transaction_id=transaction_id(dataset))


def update_field_metadata(
    context: Context, request: UpdateFieldMetadataRequest
) -> UpdateFieldMetadataResponse:
    """Set, remove (null) or replace keys of fields' metadata, in one version. Returns them by path.

    Raises:
        TableColumnNotFoundError: there is no such field.
        InvalidInputError: no field is named, or one twice.
    """
    paths = [each.path for each in request.updates]
    if not paths or len(set(paths)) < len(paths):
        raise InvalidInputError("updates must contain at least one field and no field twice")
    with changing(context, request.id, branch=request.branch) as dataset:
        for path in paths:
            require_column(dataset, path)
        changes = {each.path: _change(dataset, each) for each in request.updates}
        with refusing("field metadata"):
            dataset.update_field_metadata(changes)
        return UpdateFieldMetadataResponse(
            version=dataset.version, fields={path: _metadata(dataset, path) for path in paths}
        )


def _change(dataset: lance.LanceDataset, entry: UpdateFieldMetadataEntry) -> dict[str, str | None]:
    """Return the keys to set and, with None, to remove: Lance replaces all fields or none at a time."""
    before = _metadata(dataset, entry.path) if entry.replace else {}
    return {**dict.fromkeys(before), **entry.metadata}


def _metadata(dataset: lance.LanceDataset, path: str) -> dict[str, str]:
    return {_text(key): _text(value) for key, value in dataset.lance_schema.field(path).metadata.items()}


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value
