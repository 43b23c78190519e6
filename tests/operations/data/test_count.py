"""Count rows: by predicate, version and branch."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.codes import BRANCH_NOT_FOUND, INVALID_INPUT, TABLE_NOT_FOUND, VERSION_NOT_FOUND
from tests.support.roots import LocalPlace, refused_unchanged
from tests.support.rows import add, count, make, opened, people

from relance import DirectoryNamespace


def test_rows_are_counted_by_predicate_version_and_branch(catalog: DirectoryNamespace) -> None:
    make(catalog, range(5))
    opened(catalog).create_branch("dev")
    add(catalog, people([5, 6, 7]))
    add(catalog, people([8]), branch="dev")
    assert count(catalog) == 8
    assert count(catalog, predicate="id > 3") == 4
    assert count(catalog, version=1, predicate="id > 3") == 1
    assert count(catalog, branch="main") == 8
    assert count(catalog, branch="dev") == 6
    assert count(catalog, branch="dev", version=1) == 5


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"id": ["missing"]}, TABLE_NOT_FOUND),
        ({"id": ["declared"]}, TABLE_NOT_FOUND),
        ({"version": 99}, VERSION_NOT_FOUND),
        ({"version": 0}, VERSION_NOT_FOUND),
        ({"version": 2**70}, VERSION_NOT_FOUND),
        ({"branch": "missing"}, BRANCH_NOT_FOUND),
        ({"predicate": ""}, INVALID_INPUT),
        ({"predicate": "id ==="}, INVALID_INPUT),
        ({"predicate": "missing = 1"}, INVALID_INPUT),
        ({"predicate": "cast(name as bigint) = 1"}, INVALID_INPUT),
        ({"predicate": 7}, INVALID_INPUT),
        ({"id": None}, INVALID_INPUT),
    ],
)
def test_count_of_a_missing_target_or_with_an_invalid_predicate_is_refused(
    place: LocalPlace, catalog: DirectoryNamespace, fields: dict[str, Any], code: int
) -> None:
    make(catalog)
    catalog.declare_table({"id": ["declared"]})
    with refused_unchanged(place, code):
        catalog.count_table_rows({"id": ["t"], **fields})
