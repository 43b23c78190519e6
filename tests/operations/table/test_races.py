"""Clients that make the same request at the same time: one succeeds, the others are refused."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from lance_namespace.errors import LanceNamespaceError
from tests.support.codes import (
    BRANCH_EXISTS,
    BRANCH_NOT_FOUND,
    COLUMN_NOT_FOUND,
    CONCURRENT_MODIFICATION,
    INDEX_EXISTS,
    INVALID_INPUT,
    INVALID_TABLE_STATE,
    TAG_EXISTS,
    TAG_NOT_FOUND,
)
from tests.support.roots import LocalPlace, refused_unchanged
from tests.support.tables import call, opened

from relance import DirectoryNamespace

CLIENTS = 4

ONE_WINNER: dict[str, tuple[set[int], dict[str, Any]]] = {
    "create_table_tag": ({TAG_EXISTS}, {"tag": "a", "version": 1}),
    "create_table_branch": ({BRANCH_EXISTS}, {"name": "a"}),
    "create_table_index": ({INDEX_EXISTS}, {"column": "id", "index_type": "BTREE"}),
    "alter_table_add_columns": ({INVALID_INPUT}, {"new_columns": [{"name": "n", "expression": "id"}]}),
    "alter_table_alter_columns": ({COLUMN_NOT_FOUND}, {"alterations": [{"path": "id", "rename": "n"}]}),
    "alter_table_drop_columns": ({COLUMN_NOT_FOUND}, {"columns": ["name"]}),
}
SOME_WINNER: dict[str, tuple[set[int], dict[str, Any]]] = {
    "delete_table_tag": ({TAG_NOT_FOUND}, {"tag": "old"}),
    "delete_table_branch": ({BRANCH_NOT_FOUND}, {"name": "old"}),
    "update_table_schema_metadata": (set(), {"metadata": {"a": "b"}}),
    "restore_table": (set(), {"version": 1}),
}


def _race(place: LocalPlace, operation: str, fields: dict[str, Any]) -> list[int | str]:
    def attempt(catalog: DirectoryNamespace) -> int | str:
        try:
            call(catalog, operation, **fields)
        except LanceNamespaceError as error:
            return int(error.code)
        return "ok"

    with ThreadPoolExecutor(CLIENTS) as pool:
        return list(pool.map(attempt, [place.open() for _ in range(CLIENTS)]))


@pytest.mark.parametrize("operation", ONE_WINNER)
def test_one_of_several_identical_concurrent_changes_succeeds(
    place: LocalPlace, catalog: DirectoryNamespace, operation: str
) -> None:
    codes, fields = ONE_WINNER[operation]
    outcomes = _race(place, operation, fields)
    assert outcomes.count("ok") == 1
    assert {each for each in outcomes if each != "ok"} <= codes | {CONCURRENT_MODIFICATION}
    assert opened(catalog).version <= 2


@pytest.mark.parametrize("operation", SOME_WINNER)
def test_losers_of_a_race_get_a_documented_error_code(
    place: LocalPlace, catalog: DirectoryNamespace, operation: str
) -> None:
    codes, fields = SOME_WINNER[operation]
    call(catalog, "create_table_tag", tag="old", version=1)
    call(catalog, "create_table_branch", name="old")
    outcomes = _race(place, operation, fields)
    assert "ok" in outcomes
    assert {each for each in outcomes if each != "ok"} <= codes | {CONCURRENT_MODIFICATION}


def test_tag_that_lance_cannot_read_is_an_invalid_table_state(
    place: LocalPlace, catalog: DirectoryNamespace
) -> None:
    opened(catalog).tags.create("é", 1)  # Lance writes it under a name under which it does not look for it
    with refused_unchanged(place, INVALID_TABLE_STATE):
        call(catalog, "list_table_tags")
