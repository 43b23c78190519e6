"""The columns of a table as Lance knows them, as text that is the same whenever they are."""

from __future__ import annotations

import json
from typing import Any

import lance
from lance.schema import LanceSchema


def fields_of(schema: LanceSchema) -> str:
    """Return the fields of a schema with their numbers, types and metadata.

    Lance's own text of a schema tells metadata in any order.
    """
    return json.dumps([_field(each) for each in schema.fields()])


def fields_of_table(dataset: lance.LanceDataset) -> str:
    """Return the fields of a table at its version."""
    return fields_of(dataset.lance_schema)


def _field(field: Any) -> list[Any]:
    arrow = field.to_arrow()
    metadata = sorted((str(key), str(value)) for key, value in (field.metadata or {}).items())
    children = [_field(each) for each in field.children()]
    return [field.id(), field.name(), str(arrow.type), arrow.nullable, metadata, children]
