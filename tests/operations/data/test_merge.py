"""Merge rows by key: each clause, and what is refused."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from tests.support.codes import BRANCH_NOT_FOUND, INVALID_INPUT, SCHEMA_VALIDATION, TABLE_NOT_FOUND
from tests.support.roots import LocalPlace, ipc, refused_unchanged
from tests.support.rows import make, opened, people, query

from relance import DirectoryNamespace


def renamed(ids: list[int], name: str = "new") -> pa.Table:
    """Return rows whose name is the same for all."""
    rows = people(ids)
    return rows.set_column(1, rows.schema.field(1), pa.array([name] * len(ids), pa.string()))


def merge(catalog: Any, rows: pa.Table, **fields: Any) -> Any:
    """Merge rows by id, unless another key is given."""
    return catalog.merge_insert_into_table({"id": ["t"], "on": ["id"], **fields}, ipc(rows))


def names(catalog: Any, **fields: Any) -> dict[int, str]:
    """Return the names by id."""
    return {row["id"]: row["name"] for row in query(catalog, **fields).to_pylist()}


OLD = {1: "word1 common", 2: "word2 common", 3: "word3 common"}


@pytest.mark.parametrize(
    ("clauses", "counts", "expected"),
    [
        ({"when_matched_update_all": True}, (1, 0, 0), OLD | {3: "new"}),
        ({"when_not_matched_insert_all": True}, (0, 1, 0), OLD | {4: "new"}),
        (
            {"when_matched_update_all": True, "when_not_matched_insert_all": True},
            (1, 1, 0),
            OLD | {3: "new", 4: "new"},
        ),
        (
            {"when_matched_update_all": True, "when_matched_update_all_filt": "target.id < 3"},
            (0, 0, 0),
            OLD,
        ),
        (
            {"when_matched_update_all": True, "when_matched_update_all_filt": "source.id = 3"},
            (1, 0, 0),
            OLD | {3: "new"},
        ),
        ({"when_matched_update_all_filt": "target.id = 3"}, (1, 0, 0), OLD | {3: "new"}),
        ({"when_not_matched_by_source_delete_filt": "id = 2"}, (0, 0, 1), {1: OLD[1], 3: OLD[3]}),
        ({"when_not_matched_by_source_delete": True}, (0, 0, 2), {3: OLD[3]}),
        (
            {
                "when_not_matched_insert_all": True,
                "when_not_matched_by_source_delete": True,
                "when_not_matched_by_source_delete_filt": "id = 1",
            },
            (0, 1, 1),
            {2: OLD[2], 3: OLD[3], 4: "new"},
        ),
        (
            {
                "when_matched_update_all": True,
                "when_not_matched_insert_all": True,
                "when_not_matched_by_source_delete": True,
                "use_index": False,
                "timeout": "30s",
            },
            (1, 1, 2),
            {3: "new", 4: "new"},
        ),
    ],
)
def test_merge_clauses_update_insert_and_delete_the_right_rows(
    catalog: DirectoryNamespace,
    clauses: dict[str, Any],
    counts: tuple[int, int, int],
    expected: dict[int, str],
) -> None:
    make(catalog, [1, 2, 3])
    answer = merge(catalog, renamed([3, 4]), **clauses)
    assert (answer.num_updated_rows, answer.num_inserted_rows, answer.num_deleted_rows) == counts
    assert names(catalog) == expected
    assert answer.version == opened(catalog).version
    assert names(catalog, version=1) == OLD


def test_merge_key_may_have_several_columns(catalog: DirectoryNamespace) -> None:
    make(catalog, [1, 2])
    answer = merge(
        catalog,
        renamed([1]),
        on=["id", "name"],
        when_matched_update_all=True,
        when_not_matched_insert_all=True,
    )
    assert (answer.num_updated_rows, answer.num_inserted_rows) == (0, 1)


def test_columns_missing_from_a_merge_keep_their_values(catalog: DirectoryNamespace) -> None:
    make(catalog, [1, 2])
    merge(catalog, renamed([1]).select(["id", "name"]), when_matched_update_all=True)
    assert query(catalog, filter="id = 1").to_pylist() == [{"id": 1, "name": "new", "vector": [1.0, 0.0]}]


@pytest.mark.parametrize(
    "fields",
    [
        pytest.param({}, id="no clause"),
        pytest.param({"when_matched_update_all": False}, id="clause off"),
        pytest.param({"on": None, "when_matched_update_all": True}, id="no key"),
        pytest.param({"on": [], "when_matched_update_all": True}, id="empty key"),
        pytest.param({"on": ["missing"], "when_matched_update_all": True}, id="unknown key"),
        pytest.param(
            {"when_matched_update_all": True, "when_matched_update_all_filt": "target.missing = 1"},
            id="column in filter",
        ),
        pytest.param(
            {"when_matched_update_all": True, "when_matched_update_all_filt": "target.id ==="}, id="filter"
        ),
        pytest.param(
            {
                "when_not_matched_by_source_delete": True,
                "when_not_matched_by_source_delete_filt": "missing = 1",
            },
            id="delete filter",
        ),
        pytest.param({"when_matched_update_all": True, "timeout": "soon"}, id="timeout"),
        pytest.param({"when_matched_update_all": True, "timeout": "9" * 400 + "h"}, id="long timeout"),
    ],
)
def test_invalid_merge_request_is_refused_and_changes_nothing(
    place: LocalPlace, catalog: DirectoryNamespace, fields: dict[str, Any]
) -> None:
    make(catalog)
    with refused_unchanged(place, INVALID_INPUT):
        merge(catalog, renamed([1, 9]), **fields)


@pytest.mark.parametrize("body", [b"", b"garbage", ipc(people(range(100)))[:-900]])
def test_invalid_merge_body_is_refused_and_changes_nothing(
    place: LocalPlace, catalog: DirectoryNamespace, body: bytes
) -> None:
    make(catalog)
    with refused_unchanged(place, INVALID_INPUT):
        catalog.merge_insert_into_table(
            {"id": ["t"], "on": ["id"], "when_not_matched_insert_all": True}, body
        )


def test_merge_with_duplicate_source_keys_is_refused_and_changes_nothing(
    place: LocalPlace, catalog: DirectoryNamespace
) -> None:
    make(catalog)
    with refused_unchanged(place, INVALID_INPUT):
        merge(catalog, renamed([1, 1]), when_matched_update_all=True)


@pytest.mark.parametrize(
    "rows",
    [
        pytest.param(pa.table({"id": ["text"]}), id="type"),
        pytest.param(pa.table({"id": pa.array([1], pa.int64()), "more": [1]}), id="unknown column"),
    ],
)
def test_merge_with_a_mismatched_schema_is_refused_and_changes_nothing(
    place: LocalPlace, catalog: DirectoryNamespace, rows: pa.Table
) -> None:
    make(catalog)
    with refused_unchanged(place, SCHEMA_VALIDATION):
        merge(catalog, rows, when_not_matched_insert_all=True, when_matched_update_all=True)


def test_merge_into_a_missing_table_or_branch_is_not_found(
    place: LocalPlace, catalog: DirectoryNamespace
) -> None:
    make(catalog)
    catalog.declare_table({"id": ["declared"]})
    for name in ("missing", "declared"):
        with refused_unchanged(place, TABLE_NOT_FOUND):
            merge(catalog, people([1]), id=[name], when_not_matched_insert_all=True)
    with refused_unchanged(place, BRANCH_NOT_FOUND):
        merge(catalog, people([1]), branch="missing", when_not_matched_insert_all=True)


def test_merge_into_a_branch_leaves_main_unchanged(catalog: DirectoryNamespace) -> None:
    make(catalog, [1, 2, 3])
    opened(catalog).create_branch("dev")
    merge(
        catalog, renamed([3, 4]), branch="dev", when_matched_update_all=True, when_not_matched_insert_all=True
    )
    assert names(catalog) == OLD
    assert names(catalog, branch="dev") == OLD | {3: "new", 4: "new"}
