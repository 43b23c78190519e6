"""The JSON schema of policy files, from the classes of jobs, so that editors can complete. Pure.

The file schema.json in this package is what `policy_schema` returns; a test holds them together.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from importlib.resources import files
from typing import Any

from pydantic.fields import FieldInfo

from relance.jobs.base import Job, Scope, policy_kinds, says_enough, settings_for
from relance.jobs.settings import COUNT, in_hours, value_of
from relance.policy.model import Limits
from relance.policy.parse import COMMON_KEYS, FILE_KEYS, RULE_KEYS
from relance.policy.windows import DAYS

Schema = dict[str, Any]


def schema_text() -> str:
    """Return the schema as this package ships it."""
    return files("relance.policy").joinpath("schema.json").read_text()


def policy_schema() -> Schema:
    """Return the JSON schema of a policy file."""
    shared = {**_jobs(), **_common()}
    same = {name: {"$ref": f"#/$defs/{name}"} for name in shared}
    file: dict[str, Schema] = {
        "limits": _table(FILE_KEYS["limits"], _values(Limits.model_fields)),
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
        "rate_limit": _or_off(dict(COUNT.schema)),
    }
    return {name: {"description": COMMON_KEYS[name], **shape} for name, shape in shapes.items()}


def _jobs() -> dict[str, Schema]:
    jobs: dict[str, Schema] = {}
    for kind in policy_kinds():
        meaning = " ".join((kind.__doc__ or "").split())
        if kind.scope is Scope.ROOT:
            meaning = f'{meaning} Allowed only in [defaults] or in a rule with tables = "**".'
        jobs[kind.kind] = {"description": meaning, **_job(kind)}
    return jobs


def _job(kind: type[Job]) -> Schema:
    """Return what the key of a kind may hold."""
    settings = settings_for(kind, "policy")
    if kind.key is not None:
        value = value_of(settings[kind.key])
        return _or_off(dict(value.schema) if value is not None else {})
    table = _table("", _values(settings))
    table |= {"anyOf": [{"required": list(each)} for each in kind.one_of]} if kind.one_of else {}
    return {"oneOf": [table, {"type": "boolean"}]} if says_enough(kind) else _or_off(table)


def _or_off(shape: Schema) -> Schema:
    return {"oneOf": [shape, {"const": False}]}


def _table(meaning: str, properties: Mapping[str, Schema], *, required: Sequence[str] = ()) -> Schema:
    table: Schema = {"description": meaning} if meaning else {}
    table |= {"type": "object", "properties": dict(properties), "additionalProperties": False}
    return table | ({"required": list(required)} if required else {})


def _values(fields: Mapping[str, FieldInfo]) -> dict[str, Schema]:
    return {name: _value(field) for name, field in fields.items()}


def _value(field: FieldInfo) -> Schema:
    value = value_of(field)
    shape: Schema = {"description": field.description, **(value.schema if value is not None else {})}
    default = field.default
    if default is None or field.is_required():
        return shape
    return {**shape, "default": in_hours(default) if isinstance(default, timedelta) else default}
