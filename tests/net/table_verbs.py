"""The verbs that look inside one table or change its rows, as steps of the story that verbs.py tells."""

from __future__ import annotations

import warnings
from collections import deque
from datetime import timedelta
from tempfile import TemporaryDirectory
from typing import Any, Protocol

import pyarrow as pa
from tests.support.roots import ipc

from relance import AutoCleanup, CleanupPolicy, DirectoryNamespace

_ROWS = ipc(pa.table({"id": pa.array([1, 2, 3], pa.int64()), "name": ["a", "b", "c"]}))
_MERGE = {"on": ["id"], "when_matched_update_all": True, "when_not_matched_insert_all": True}


class Steps(Protocol):
    """What a story offers its chapters."""

    catalog: DirectoryNamespace

    def step(self, verb: str, *args: Any, when: str = "", **options: Any) -> Any:
        """Call a verb, record what it cost, and return its response, or None if it was refused."""


def tell_inside(story: Steps, namespace: list[str]) -> None:
    """Go through the verbs of one table."""
    table = [*namespace, "inside"]
    story.catalog.create_table({"id": table}, _ROWS)
    story.catalog.describe_table({"id": table})
    _rows(story, table)
    _indexes(story, table)
    _refs(story, table)
    _columns(story, table)
    _versions(story, table)
    _files(story, table)
    with warnings.catch_warnings(category=DeprecationWarning, action="ignore"):
        story.step("create_empty_table", {"id": [*namespace, "empty"]})
    view = {"kind": "query", "source_query": "select 1", "output_schema": "e30="}
    story.step("create_materialized_view", {"id": [*namespace, "view"], **view})
    story.step("refresh_materialized_view", {"id": [*namespace, "view"]})


def _rows(story: Steps, table: list[str]) -> None:
    request, step = {"id": table}, story.step
    step("insert_into_table", request, _ROWS)
    step("insert_into_table", {"id": [*table[:-1], "missing"]}, _ROWS, when="no such table")
    step("merge_insert_into_table", {**request, **_MERGE}, _ROWS)
    step("update_table", {**request, "predicate": "id = 1", "updates": [["name", "'x'"]]})
    step("delete_from_table", {**request, "predicate": "id = 3"})
    step("count_table_rows", request)
    query = {**request, "vector": {}, "k": 3}
    step("query_table", query)
    step("explain_table_query_plan", {**request, "query": query})
    step("analyze_table_query_plan", query)


def _indexes(story: Steps, table: list[str]) -> None:
    request, step = {"id": table}, story.step
    step("create_table_index", {**request, "column": "id", "index_type": "BTREE", "name": "by_id"})
    step("create_table_scalar_index", {**request, "column": "name", "index_type": "BITMAP"})
    step("list_table_indices", request)
    step("describe_table_index_stats", {**request, "index_name": "by_id"})
    step("drop_table_index", {**request, "index_name": "by_id"})


def _refs(story: Steps, table: list[str]) -> None:
    request, step = {"id": table}, story.step
    step("create_table_tag", {**request, "tag": "first", "version": 1})
    step("update_table_tag", {**request, "tag": "first", "version": 2})
    step("get_table_tag_version", {**request, "tag": "first"})
    step("list_table_tags", request)
    step("delete_table_tag", {**request, "tag": "first"})
    step("create_table_branch", {**request, "name": "work"})
    step("list_table_branches", request)
    step("delete_table_branch", {**request, "name": "work"})


def _columns(story: Steps, table: list[str]) -> None:
    request, step = {"id": table}, story.step
    step("alter_table_add_columns", {**request, "new_columns": [{"name": "next", "expression": "id + 1"}]})
    step("alter_table_alter_columns", {**request, "alterations": [{"path": "next", "rename": "after"}]})
    step("alter_table_backfill_columns", {**request, "column": "after"})
    step("alter_table_drop_columns", {**request, "columns": ["after"]})
    step("update_table_schema_metadata", {**request, "metadata": {"owner": "me"}})
    updates = [{"path": "name", "metadata": {"unit": "none"}}]
    step("update_field_metadata", {**request, "updates": updates})


def _versions(story: Steps, table: list[str]) -> None:
    request, step = {"id": table}, story.step
    step("get_table_stats", request)
    step("restore_table", {**request, "version": 2})
    step("describe_transaction", {"id": [*table, "2"]})
    actions = [{"set_status_action": {"status": "Succeeded"}}]
    step("alter_transaction", {"id": [*table, "2"], "actions": actions})
    step("set_auto_cleanup", table, AutoCleanup(100, timedelta(days=30)))
    step("get_auto_cleanup", table)
    step("validate_table", table)
    step("validate_table", table, every_version=True, when="every version")
    latest_two = CleanupPolicy(retain_versions=2)
    step("cleanup_with_policy", table, latest_two, dry_run=True, when="dry run")
    step("cleanup_with_policy", table, latest_two)
    step("cleanup_old_versions", table)


def _files(story: Steps, table: list[str]) -> None:
    with TemporaryDirectory() as folder:
        file = f"{folder}/rows.parquet"
        story.step("export_table", table, file)
        story.step("import_files", [*table[:-1], "imported"], [file])
        story.step("import_files", [*table[:-1], "imported"], [file], mode="append", when="append")
    batches = story.step("scan_table", table)
    deque(batches, maxlen=0)
