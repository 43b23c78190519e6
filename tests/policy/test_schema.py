"""The shipped schema and the parser know the same keys and the same values."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from tests.support.paths import REPOSITORY
from tests.support.policy.policies import DOCUMENTS, Document, to_toml
from tests.support.policy.schemas import complaints

from relance.errors import InvalidInputError
from relance.policy.parse import parse_policy
from relance.policy.problems import PolicyError
from relance.policy.schema import policy_schema, schema_text

SCHEMA = json.loads(schema_text())
EXAMPLE = REPOSITORY / "examples" / "policy.toml"


def _tables(schema: dict[str, Any], path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], set[str]]]:
    """Yield each table that a policy can have, with its keys."""
    if "$ref" in schema:
        schema = SCHEMA["$defs"][schema["$ref"].rpartition("/")[2]]
    for each in (schema, *schema.get("oneOf", ())):
        if each.get("additionalProperties") is False:
            yield path, set(each["properties"])
            for name, within in each["properties"].items():
                yield from _tables(within, (*path, name))
        if isinstance(each.get("items"), dict):
            yield from _tables(each["items"], path)


TABLES = dict(_tables(SCHEMA))


def _document(path: tuple[str, ...], key: str) -> str:
    """Return a file with one key in one of its tables, and a value that is never right."""
    header = f"[[{path[0]}]]" if path[:1] == ("rules",) else f"[{path[0]}]" if path else ""
    return f"{header}\n{'.'.join((*path[1:], key))} = 2026-01-01\n"


def _said(text: str) -> list[tuple[str, str]]:
    with pytest.raises(PolicyError) as raised:
        parse_policy(text, file="policy.toml")
    return [(each.key.replace("[0]", ""), each.message) for each in raised.value.problems]


def test_shipped_schema_matches_the_generated_one() -> None:
    assert policy_schema() == SCHEMA


def test_schema_covers_the_file_its_sections_and_every_action() -> None:
    some = {(), ("limits",), ("defaults",), ("rules",), ("rules", "compact"), ("defaults", "purge")}
    assert some <= set(TABLES)


@pytest.mark.parametrize("path", sorted(TABLES), ids=".".join)
def test_parser_accepts_every_key_of_the_schema(path: tuple[str, ...]) -> None:
    for key in TABLES[path]:
        assert [each for each in _said(_document(path, key)) if each[1].startswith("unknown key")] == []


@pytest.mark.parametrize("path", sorted(TABLES), ids=".".join)
def test_schema_has_every_key_that_the_parser_accepts(path: tuple[str, ...]) -> None:
    said = dict(_said(_document(path, "zzzzzzzz")))
    known = said[".".join((*path, "zzzzzzzz"))].removeprefix("unknown key; known keys: ")
    assert set(known.split(", ")) - {"none"} == TABLES[path]


def test_example_policy_matches_the_schema() -> None:
    assert list(complaints(SCHEMA, tomllib.loads(EXAMPLE.read_text()), SCHEMA)) == []


@settings(max_examples=60)
@given(DOCUMENTS)
def test_documents_accepted_by_the_parser_match_the_schema(document: Document) -> None:
    text = to_toml(document)
    parse_policy(text, file="policy.toml")
    assert list(complaints(SCHEMA, tomllib.loads(text), SCHEMA)) == []


WRONG: dict[str, list[Any]] = {
    "compact": [{"target_rows": 0}, {"target_rows": "x"}, {"target_bytes": "1X"}, 1],
    "clean_up": [True, {}, {"older_than": 7}, {"older_than": "7"}, {"retain_versions": 0}],
    "delete_rows": [True, {}, {"delete_where": ""}, {"time_column": "ts"}],
    "drop_ttl": [True, 7, "7", "soon", {}],
    "protect": ["yes", {"on": "yes"}],
    "refresh_indexes": [{"max_lag_ratio": 1.5}, {"max_lag_rows": -1}],
    "rate_limit": [True, 0, "fast"],
    "window": [True, "22-6", 22],
    "days": [[], ["monday"], "mon"],
    "properties": ["a", {"a": 1}],
    "tables": [1, [], [1], ""],
    "name": [1, ""],
}


@pytest.mark.parametrize(("key", "value"), [(key, each) for key, values in WRONG.items() for each in values])
def test_values_refused_by_the_schema_are_refused_by_the_parser(key: str, value: object) -> None:
    rule = {"name": "a", "tables": "**", key: value}
    assert list(complaints(SCHEMA, {"rules": [rule]}, SCHEMA)) != []
    with pytest.raises(InvalidInputError, match=rf"policy.toml:\d+: rules\[0\]\.{key}"):
        parse_policy(to_toml({"rules": [rule]}), file="policy.toml")
