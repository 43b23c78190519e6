"""What one task of a distributed write does: it writes data files that no version mentions."""

from __future__ import annotations

import json
from collections.abc import Iterable
from itertools import chain, islice
from typing import Any

import lance
import pyarrow as pa
from lance.fragment import write_fragments

from relance.errors import TableNotFoundError
from relance.lance_io import checkout, open_at
from relance.operations.data_errors import data_errors
from relance.operations.fields import fields_of_table
from relance.operations.staging.plan import WritePlan
from relance.operations.watched import Watched


def write_batches(plan: WritePlan, batches: Iterable[pa.RecordBatch]) -> tuple[str, ...]:
    """Write the batches, and return the fragments as JSON; nothing comes of no rows.

    Raises:
        TableSchemaValidationError: a value does not fit its column.
        TableVersionNotFoundError: its columns were changed and the planned version was cleaned up.
    """
    drawn = iter(batches)
    first = list(islice(drawn, 1))
    watched = Watched(chain(first, drawn))
    with watched.own_errors():
        return _write(plan, watched.reader(_as_given(plan.schema, first)))


def _as_given(schema: pa.Schema, first: list[pa.RecordBatch]) -> pa.Schema:
    """Return the schema with the types that the batches have: blobs may come as marked binary."""
    if not first or first[0].schema.names != schema.names:
        return schema
    pairs = zip(schema, first[0].schema, strict=True)
    fields = [field if field.type == given.type else given for field, given in pairs]
    return pa.schema(fields, schema.metadata)


def _write(plan: WritePlan, reader: pa.RecordBatchReader) -> tuple[str, ...]:
    with data_errors(f"table id '{plan.table_id}'", plan.options):
        if plan.fields is None:
            target, mode = plan.uri, "overwrite" if _has_version(plan) else "create"
        else:
            target, mode = _appended_to(plan), "append"
        fragments = write_fragments(reader, target, mode=mode, **_options(plan))
    return tuple(json.dumps(each.to_json()) for each in fragments)


def _options(plan: WritePlan) -> dict[str, Any]:
    files = plan.files
    given = {
        "max_rows_per_file": files.max_rows_per_file,
        "max_bytes_per_file": files.max_bytes_per_file,
        "data_storage_version": files.data_storage_version,
        "storage_options": dict(plan.options) or None,
    }
    if plan.fields is None:
        given["schema"] = plan.schema
        given["enable_stable_row_ids"] = files.stable_row_ids
    return {name: value for name, value in given.items() if value is not None}


def _has_version(plan: WritePlan) -> bool:
    """Tell whether there is a version by now, of which nothing is kept: Lance wants to know."""
    if plan.is_private or plan.seen_version:
        return not plan.is_private
    try:
        open_at(plan.uri, plan.options, f"{plan.table_id}")
    except TableNotFoundError:
        return False
    return True


def _appended_to(plan: WritePlan) -> lance.LanceDataset:
    """Return the table as it is, or, if others changed its columns, as it was planned."""
    latest = open_at(plan.uri, plan.options, f"{plan.table_id}")
    if has_planned_fields(plan, latest):
        return latest
    return checkout(latest, plan.seen_version, f"version {plan.seen_version} of table id '{plan.table_id}'")


def has_planned_fields(plan: WritePlan, dataset: lance.LanceDataset) -> bool:
    """Tell whether files written for the plan fit this version: Lance knows columns by number."""
    return fields_of_table(dataset) == plan.fields
