"""Update rows by expressions."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.codes import BRANCH_NOT_FOUND, INVALID_INPUT, TABLE_NOT_FOUND, UNSUPPORTED
from tests.support.roots import LocalPlace, refused_unchanged
from tests.support.rows import make, opened, query

from relance import DirectoryNamespace


def names(catalog: Any, **fields: Any) -> list[str]:
    """Return the names in the order of the ids."""
    found = query(catalog, columns={"column_names": ["id", "name"]}, **fields).sort_by("id")
    listed: list[str] = found["name"].to_pylist()
    return listed


def test_update_sets_matching_rows_to_the_expression(catalog: DirectoryNamespace) -> None:
    make(catalog, [1, 2, 3])
    answer = catalog.update_table(
        {"id": ["t"], "predicate": "id > 1", "updates": [["name", "concat('n', cast(id as string))"]]}
    )
    assert (answer.updated_rows, answer.version) == (2, 2)
    assert names(catalog) == ["word1 common", "n2", "n3"]
    assert names(catalog, version=1) == ["word1 common", "word2 common", "word3 common"]


def test_update_without_a_predicate_changes_every_row(catalog: DirectoryNamespace) -> None:
    make(catalog, [1, 2, 3])
    answer = catalog.update_table({"id": ["t"], "updates": [["name", "'x'"], ["id", "id + 10"]]})
    assert answer.updated_rows == 3
    assert query(catalog).sort_by("id")["id"].to_pylist() == [11, 12, 13]
    assert names(catalog) == ["x", "x", "x"]


def test_update_that_matches_no_rows_changes_nothing(catalog: DirectoryNamespace) -> None:
    make(catalog, [1])
    answer = catalog.update_table({"id": ["t"], "predicate": "id = 9", "updates": [["name", "'x'"]]})
    assert answer.updated_rows == 0
    assert names(catalog) == ["word1 common"]


@pytest.mark.parametrize(
    "fields",
    [
        pytest.param({"updates": []}, id="nothing"),
        pytest.param({"updates": [["missing", "1"]]}, id="column"),
        pytest.param({"updates": [["id", "missing + 1"]]}, id="column in expression"),
        pytest.param({"updates": [["id", "1 +"]]}, id="expression"),
        pytest.param({"updates": [["id", "'text'"]]}, id="type"),
        pytest.param({"updates": [["id", "cast(name as bigint)"]]}, id="cast"),
        pytest.param({"updates": [["id", "id / 0"]]}, id="division"),
        pytest.param({"updates": [["id", "1"]], "predicate": "missing = 1"}, id="predicate"),
        pytest.param({"updates": [["id", "1"]], "predicate": ""}, id="empty predicate"),
        pytest.param({"updates": [["id", "1"], ["id", "2"]]}, id="twice"),
        pytest.param({"updates": [["id"]]}, id="no pair"),
        pytest.param({"updates": [["id", "NULL"]]}, id="null in a required column"),
    ],
)
def test_invalid_update_is_refused_and_changes_nothing(
    place: LocalPlace, catalog: DirectoryNamespace, fields: dict[str, Any]
) -> None:
    make(catalog)
    with refused_unchanged(place, INVALID_INPUT):
        catalog.update_table({"id": ["t"], **fields})


def test_update_with_properties_is_unsupported(place: LocalPlace, catalog: DirectoryNamespace) -> None:
    make(catalog)
    with refused_unchanged(place, UNSUPPORTED):
        catalog.update_table({"id": ["t"], "updates": [["id", "1"]], "properties": {"a": "b"}})


def test_update_of_a_missing_table_or_branch_is_not_found(
    place: LocalPlace, catalog: DirectoryNamespace
) -> None:
    make(catalog)
    catalog.declare_table({"id": ["declared"]})
    for name in ("missing", "declared"):
        with refused_unchanged(place, TABLE_NOT_FOUND):
            catalog.update_table({"id": [name], "updates": [["id", "1"]]})
    with refused_unchanged(place, BRANCH_NOT_FOUND):
        catalog.update_table({"id": ["t"], "updates": [["id", "1"]], "branch": "missing"})


def test_update_on_a_branch_leaves_main_unchanged(catalog: DirectoryNamespace) -> None:
    make(catalog, [1, 2])
    opened(catalog).create_branch("dev")
    catalog.update_table({"id": ["t"], "updates": [["name", "'x'"]], "branch": "dev"})
    assert names(catalog) == ["word1 common", "word2 common"]
    assert names(catalog, branch="dev") == ["x", "x"]
