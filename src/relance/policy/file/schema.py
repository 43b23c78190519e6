"""The JSON schema of policy files, from the keys that the parser reads, so that editors can complete. Pure.

The file schema.json in this package is what `policy_schema` returns; a test holds them together.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import MISSING, fields
from datetime import timedelta
from importlib.resources import files
from typing import Any

from relance.policy.actions import Kind
from relance.policy.file.keys import (
    COMMON_KEYS,
    FILE_KEYS,
    LIMIT_KEYS,
    NOT_TRUE,
    PART_KEYS,
    RULE_KEYS,
    Holds,
    Key,
)
from relance.policy.model import PARTS, ROOT_KINDS, Limits
from relance.policy.windows import DAYS

Schema = dict[str, Any]

MEANINGS: Mapping[Kind, str] = {
    Kind.PROTECT: "Refuse drops of the table.",
    Kind.DROP_TTL: "How long the table can be undropped after a drop, such as 30d.",
    Kind.DELETE_ROWS: "Delete the rows that match a predicate.",
    Kind.COMPACT: "Merge small fragments and rewrite those with many deleted rows.",
    Kind.REFRESH_INDEXES: "Extend indexes to rows written since they were built.",
    Kind.CLEAN_UP: "Remove old versions; tagged versions are kept.",
    Kind.PURGE: "Purge dropped tables whose retention period has ended.",
    Kind.REMOVE_ORPHANS: "Remove old directories that nothing in the catalog refers to.",
    Kind.MAINTAIN_MANIFEST: "Keep the catalog's manifest compact, indexed and free of old versions.",
}

_DURATION = {"type": "string", "pattern": r"^\s*([0-9]+\s*(ms|[wdhmsWDHMS])\s*)+$"}
_SIZE = {"type": "string", "pattern": r"^\s*[0-9]+(\.[0-9]+)?\s*[kmgtpKMGTP]?[iI]?[bB]\s*$"}


def schema_text() -> str:
    """Return the schema as this package ships it."""
    return files("relance.policy.file").joinpath("schema.json").read_text()


def policy_schema() -> Schema:
    """Return the JSON schema of a policy file."""
    shared = {**_parts(), **_common()}
    same = {name: {"$ref": f"#/$defs/{name}"} for name in shared}
    file: dict[str, Schema] = {
        "limits": _table(FILE_KEYS["limits"], _values(LIMIT_KEYS, Limits)),
        "defaults": _table(FILE_KEYS["defaults"], same),
        "rules": {
            "description": FILE_KEYS["rules"],
            "type": "array",
            "items": _table(
                "A rule: the tables it matches and what to do with them.",
                {**_identity(), **same},
                required=("name", "tables"),
            ),
        },
    }
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Relance policy",
        **_table("Retention and maintenance of the tables in a lake.", file),
        "$defs": shared,
    }


def _identity() -> dict[str, Schema]:
    text = {"type": "string", "minLength": 1}
    shapes: dict[str, Schema] = {
        "name": {**text, "maxLength": 100},
        "tables": {"oneOf": [text, {"type": "array", "items": text, "minItems": 1}]},
        "properties": {"type": "object", "additionalProperties": {"type": ["string", "boolean"]}},
    }
    return {name: {"description": RULE_KEYS[name], **shape} for name, shape in shapes.items()}


def _common() -> dict[str, Schema]:
    span = {"type": "string", "pattern": r"^\s*[0-9]{2}:[0-9]{2}\s*-\s*[0-9]{2}:[0-9]{2}\s*$"}
    shapes: dict[str, Schema] = {
        "window": _or_off(span),
        "days": {"type": "array", "items": {"enum": list(DAYS)}, "minItems": 1},
        "timezone": {"type": "string", "default": "UTC"},
        "rate_limit": _or_off({"type": "integer", "minimum": 1}),
    }
    return {name: {"description": COMMON_KEYS[name], **shape} for name, shape in shapes.items()}


def _parts() -> dict[str, Schema]:
    parts: dict[str, Schema] = {}
    for kind in Kind:
        meaning = MEANINGS[kind]
        if kind in ROOT_KINDS:
            meaning = f'{meaning} Allowed only in [defaults] or in a rule with tables = "**".'
        if kind is Kind.DROP_TTL:
            shape = _or_off(_DURATION)
        else:
            keys = PART_KEYS[kind]
            required = tuple(key.name for key in keys if key.required)
            table = _table("", _values(keys, PARTS[kind]), required=required)
            if kind is Kind.CLEAN_UP:
                table["anyOf"] = [{"required": ["older_than"]}, {"required": ["retain_versions"]}]
            shape = _or_off(table) if kind in NOT_TRUE else {"oneOf": [table, {"type": "boolean"}]}
        parts[kind.value] = {"description": meaning, **shape}
    return parts


def _or_off(shape: Schema) -> Schema:
    return {"oneOf": [shape, {"const": False}]}


def _table(meaning: str, properties: Mapping[str, Schema], *, required: Sequence[str] = ()) -> Schema:
    table: Schema = {"description": meaning} if meaning else {}
    table |= {"type": "object", "properties": dict(properties), "additionalProperties": False}
    return table | ({"required": list(required)} if required else {})


def _values(keys: Sequence[Key], model: type) -> dict[str, Schema]:
    defaults = {each.name: each.default for each in fields(model) if each.default not in (MISSING, None)}
    return {key.name: _value(key, defaults.get(key.name)) for key in keys}


def _value(key: Key, default: object) -> Schema:
    shapes: Mapping[Holds, Schema] = {
        Holds.FLAG: {"type": "boolean"},
        Holds.COUNT: {"type": "integer", "minimum": key.minimum},
        Holds.SHARE: {"type": "number", "minimum": 0, "maximum": 1},
        Holds.TEXT: {"type": "string", "minLength": 1},
        Holds.DURATION: _DURATION,
        Holds.SIZE: {"oneOf": [{"type": "integer", "minimum": key.minimum}, _SIZE]},
    }
    shape = {"description": key.meaning, **shapes[key.holds]}
    if default is None:
        return shape
    if isinstance(default, timedelta):
        default = f"{default // timedelta(hours=1)}h"
    return {**shape, "default": default}
