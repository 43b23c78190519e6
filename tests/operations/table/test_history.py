"""Restoring versions, transactions, statistics, and what is not supported, in each mode."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.codes import (
    BRANCH_NOT_FOUND,
    INVALID_INPUT,
    TABLE_NOT_FOUND,
    TRANSACTION_NOT_FOUND,
    UNSUPPORTED,
    VERSION_NOT_FOUND,
)
from tests.support.modes import V1
from tests.support.roots import LocalPlace, create, declare, ipc, names, refused, refused_unchanged
from tests.support.tables import COUNT, ROWS, call, heads, opened

from relance import DirectoryNamespace
from relance.operations.table.stats import summarise


def test_restore_adds_a_version_with_the_old_content(catalog: DirectoryNamespace) -> None:
    call(catalog, "alter_table_drop_columns", columns=["name"])
    restored = call(catalog, "restore_table", version=1)
    assert opened(catalog).version == 3
    assert opened(catalog).to_table() == ROWS
    assert restored.transaction_id == opened(catalog).read_transaction(3).uuid


def test_restore_on_a_branch_leaves_main_unchanged(catalog: DirectoryNamespace) -> None:
    call(catalog, "create_table_branch", name="work")
    call(catalog, "alter_table_drop_columns", columns=["name"], branch="work")
    call(catalog, "alter_table_drop_columns", columns=["labels"], branch="work")
    call(catalog, "restore_table", version=2, branch="work")
    assert heads(catalog) == (1, 4)
    assert opened(catalog, "work").schema.names == ["id", "labels", "place", "vector"]


def test_transaction_is_found_by_version_and_by_id(catalog: DirectoryNamespace) -> None:
    made = call(catalog, "create_table_index", column="id", index_type="BTREE")
    told = call(catalog, "describe_transaction", id=["t", "2"])
    assert told.status == "SUCCEEDED"
    assert told.properties == {
        "uuid": made.transaction_id,
        "version": "2",
        "read_version": "1",
        "operation": "CreateIndex",
    }
    assert call(catalog, "describe_transaction", id=["t", made.transaction_id]) == told
    accepted = call(
        catalog,
        "alter_transaction",
        id=["t", "2"],
        actions=[{"set_status_action": {"status": "Succeeded"}}],
    )
    assert (accepted.status, accepted.properties) == (told.status, told.properties)


def test_transaction_of_a_branch_is_found_by_its_id(catalog: DirectoryNamespace) -> None:
    call(catalog, "create_table_branch", name="work")
    made = call(catalog, "create_table_index", column="id", index_type="BTREE", branch="work")
    told = call(catalog, "describe_transaction", id=["t", made.transaction_id])
    assert (told.properties["branch"], told.properties["version"]) == ("work", "2")
    with refused(TRANSACTION_NOT_FOUND):
        call(catalog, "describe_transaction", id=["t", "2"])


def test_statistics_count_live_rows(catalog: DirectoryNamespace) -> None:
    call(catalog, "create_table_index", column="id", index_type="BTREE")
    opened(catalog).insert(ROWS.slice(0, 40), mode="append")
    opened(catalog).delete("id < 10")
    stats = call(catalog, "get_table_stats")
    assert (stats.num_rows, stats.num_indices) == (COUNT + 40 - 20, 1)
    assert stats.total_bytes > 0
    fragments = stats.fragment_stats
    assert (fragments.num_fragments, fragments.num_small_fragments) == (2, 2)
    assert (fragments.lengths.min, fragments.lengths.max, fragments.lengths.mean) == (30, 290, 160)


def test_statistics_of_a_branch_count_only_the_branch(catalog: DirectoryNamespace) -> None:
    call(catalog, "create_table_branch", name="work")
    call(catalog, "create_table_index", column="id", index_type="BTREE", branch="work")
    assert call(catalog, "get_table_stats", branch="work").num_indices == 1
    assert call(catalog, "get_table_stats").num_indices == 0


def test_statistics_of_an_empty_table_are_zero(place: LocalPlace) -> None:
    catalog = place.open()
    create(catalog, "t", ROWS.slice(0, 0))
    stats = call(catalog, "get_table_stats")
    assert (stats.num_rows, stats.fragment_stats.num_fragments, stats.fragment_stats.lengths.max) == (0, 0, 0)


def test_percentiles_are_values_that_occur() -> None:
    told = summarise(range(1, 101))
    assert (told.min, told.p25, told.p50, told.p75, told.p99, told.max) == (1, 25, 50, 75, 99, 100)


BAD_REQUESTS: dict[str, tuple[int, str, dict[str, Any]]] = {
    "restore unknown version": (VERSION_NOT_FOUND, "restore_table", {"version": 99}),
    "restore version 0": (VERSION_NOT_FOUND, "restore_table", {"version": 0}),
    "restore on unknown branch": (BRANCH_NOT_FOUND, "restore_table", {"version": 1, "branch": "nope"}),
    "restore unknown table": (TABLE_NOT_FOUND, "restore_table", {"id": ["x"], "version": 1}),
    "unknown transaction": (TRANSACTION_NOT_FOUND, "describe_transaction", {"id": ["t", "nope"]}),
    "transaction of unknown version": (TRANSACTION_NOT_FOUND, "describe_transaction", {"id": ["t", "99"]}),
    "transaction of unknown table": (TABLE_NOT_FOUND, "describe_transaction", {"id": ["x", "1"]}),
    "short id": (INVALID_INPUT, "describe_transaction", {"id": ["t"]}),
    "alter with short id": (
        INVALID_INPUT,
        "alter_transaction",
        {"id": ["t"], "actions": [{"set_status_action": {"status": "SUCCEEDED"}}]},
    ),
    "cancel what is done": (
        UNSUPPORTED,
        "alter_transaction",
        {"id": ["t", "1"], "actions": [{"set_status_action": {"status": "CANCELED"}}]},
    ),
    "unknown status": (
        INVALID_INPUT,
        "alter_transaction",
        {"id": ["t", "1"], "actions": [{"set_status_action": {"status": "MAGIC"}}]},
    ),
    "set a property": (
        UNSUPPORTED,
        "alter_transaction",
        {"id": ["t", "1"], "actions": [{"set_property_action": {"key": "a", "value": "b"}}]},
    ),
    "unset a property": (
        UNSUPPORTED,
        "alter_transaction",
        {"id": ["t", "1"], "actions": [{"unset_property_action": {"key": "a"}}]},
    ),
    "an empty action": (INVALID_INPUT, "alter_transaction", {"id": ["t", "1"], "actions": [{}]}),
    "stats of unknown branch": (BRANCH_NOT_FOUND, "get_table_stats", {"branch": "nope"}),
    "stats of unknown table": (TABLE_NOT_FOUND, "get_table_stats", {"id": ["x"]}),
    "create a view": (
        UNSUPPORTED,
        "create_materialized_view",
        {"id": ["v"], "kind": "query", "source_query": "select 1", "output_schema": "e30="},
    ),
    "refresh a view": (UNSUPPORTED, "refresh_materialized_view", {"id": ["v"]}),
}


@pytest.mark.parametrize("case", BAD_REQUESTS)
def test_invalid_history_request_is_refused_and_changes_nothing(
    place: LocalPlace, catalog: DirectoryNamespace, case: str
) -> None:
    code, operation, fields = BAD_REQUESTS[case]
    with refused_unchanged(place, code):
        call(catalog, operation, **fields)


READS = [
    "list_table_indices",
    "list_table_tags",
    "list_table_branches",
    "get_table_stats",
]


@pytest.mark.parametrize("operation", READS)
def test_read_of_a_table_without_a_version_is_not_found(place: LocalPlace, operation: str) -> None:
    catalog = place.open()
    declare(catalog, "t")
    with refused_unchanged(place, TABLE_NOT_FOUND):
        call(catalog, operation)


@pytest.mark.parametrize("operation", READS)
def test_read_of_a_dropped_table_is_not_found(
    place: LocalPlace, catalog: DirectoryNamespace, operation: str
) -> None:
    catalog.drop_table({"id": ["t"]})
    with refused_unchanged(place, TABLE_NOT_FOUND):
        call(catalog, operation)


def test_create_empty_table_declares_and_warns_of_deprecation(place: LocalPlace) -> None:
    catalog = place.open()
    with pytest.warns(DeprecationWarning, match="use declare_table"):
        made = catalog.create_empty_table({"id": ["e"]})
    assert made.location is not None
    assert names(catalog) == ["e"]
    assert names(catalog, include_declared=False) == []
    with (
        pytest.warns(DeprecationWarning, match="use declare_table"),
        refused_unchanged(place, UNSUPPORTED),
    ):
        catalog.create_empty_table({"id": ["f"], "mode": "overwrite"})


def test_table_in_a_namespace_supports_the_same_operations(place: LocalPlace) -> None:
    catalog = place.open()
    if place.mode == V1:
        with refused(UNSUPPORTED):
            call(catalog, "get_table_stats", id=["sales", "t"])
        return
    catalog.create_namespace({"id": ["sales"]})
    table = ["sales", "t"]
    catalog.create_table({"id": table}, ipc(ROWS))
    call(catalog, "create_table_tag", id=table, tag="first", version=1)
    call(catalog, "create_table_index", id=table, column="id", index_type="BTREE")
    call(catalog, "create_table_branch", id=table, name="work")
    call(catalog, "alter_table_drop_columns", id=table, columns=["name"], branch="work")
    call(catalog, "restore_table", id=table, version=1)
    assert call(catalog, "get_table_stats", id=table).num_indices == 0
    assert call(catalog, "describe_transaction", id=[*table, "3"]).properties["operation"] == "Restore"
