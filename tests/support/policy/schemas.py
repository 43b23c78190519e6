"""As much of JSON schema as the schema of policies uses."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

_TYPES = {
    "object": dict,
    "array": list,
    "string": str,
    "boolean": bool,
    "integer": int,
    "number": (int, float),
}
_KNOWN = {
    *("$schema", "$defs", "$ref", "title", "description", "default", "type", "properties", "required"),
    *("additionalProperties", "items", "minItems", "oneOf", "anyOf", "const", "enum", "pattern"),
    *("minimum", "maximum", "minLength", "maxLength"),
}


def complaints(schema: dict[str, Any], value: Any, root: dict[str, Any], at: str = "") -> Iterator[str]:
    """Yield what a schema has against a value."""
    assert schema.keys() <= _KNOWN, schema.keys() - _KNOWN
    if "$ref" in schema:
        yield from complaints(root["$defs"][schema["$ref"].rpartition("/")[2]], value, root, at)
    if "type" in schema and not _has_type(schema["type"], value):
        yield f"{at}: type"
        return
    if "const" in schema and (value != schema["const"] or not isinstance(value, type(schema["const"]))):
        yield f"{at}: const"
    if "enum" in schema and value not in schema["enum"]:
        yield f"{at}: enum"
    for combination in ("oneOf", "anyOf"):
        if combination in schema:
            passed = sum(not list(complaints(each, value, root, at)) for each in schema[combination])
            if passed == 0 or (combination == "oneOf" and passed > 1):
                yield f"{at}: {combination} ({passed})"
    yield from _of_type(schema, value, root, at)


def _has_type(types: str | list[str], value: Any) -> bool:
    names = [types] if isinstance(types, str) else types
    return any(
        isinstance(value, _TYPES[name]) and (name == "boolean" or not isinstance(value, bool))  # type: ignore[arg-type]  # a type or a tuple of them
        for name in names
    )


def _of_type(schema: dict[str, Any], value: Any, root: dict[str, Any], at: str) -> Iterator[str]:
    if isinstance(value, str):
        if "pattern" in schema and not re.search(schema["pattern"], value):
            yield f"{at}: pattern"
        if not schema.get("minLength", 0) <= len(value) <= schema.get("maxLength", len(value)):
            yield f"{at}: length"
    elif isinstance(value, int | float) and not isinstance(value, bool):
        if not schema.get("minimum", value) <= value <= schema.get("maximum", value):
            yield f"{at}: range"
    elif isinstance(value, list):
        if len(value) < schema.get("minItems", 0):
            yield f"{at}: minItems"
        for number, each in enumerate(value):
            yield from complaints(schema.get("items", {}), each, root, f"{at}[{number}]")
    elif isinstance(value, dict):
        yield from (f"{at}: {name} is missing" for name in schema.get("required", ()) if name not in value)
        known = schema.get("properties", {})
        for name, each in value.items():
            within = known.get(name, schema.get("additionalProperties", {}))
            if within is False:
                yield f"{at}.{name}: unknown"
            else:
                yield from complaints(within, each, root, f"{at}.{name}")
