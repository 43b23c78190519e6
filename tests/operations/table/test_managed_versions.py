"""With managed versions, versions made by table operations get their manifest rows at once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.support.managed_versions import version_rows
from tests.support.roots import create, local_place
from tests.support.tables import QUIET_MODES, ROWS, call

from relance import DirectoryNamespace

WRITES: dict[str, dict[str, Any]] = {
    "create_table_index": {"column": "id", "index_type": "BTREE"},
    "alter_table_add_columns": {"new_columns": [{"name": "x", "expression": "id"}]},
    "alter_table_alter_columns": {"alterations": [{"path": "id", "rename": "x"}]},
    "alter_table_drop_columns": {"columns": ["name"]},
    "update_table_schema_metadata": {"metadata": {"a": "b"}},
    "update_field_metadata": {"updates": [{"path": "id", "metadata": {"a": "b"}}]},
    "restore_table": {"version": 1},
}


@pytest.fixture(params=["V2", "compatibility"])
def managed(request: pytest.FixtureRequest, tmp_path: Path) -> DirectoryNamespace:
    mode = QUIET_MODES[request.param]
    catalog = local_place(tmp_path, mode).open(table_version_management="true")
    create(catalog, "t", ROWS)
    return catalog


@pytest.mark.parametrize("operation", WRITES)
def test_table_operation_records_its_version_in_the_manifest(
    managed: DirectoryNamespace, tmp_path: Path, operation: str
) -> None:
    call(managed, operation, **WRITES[operation])
    assert version_rows(tmp_path, "t") == [1, 2]


def test_branch_version_is_not_recorded_in_the_manifest(managed: DirectoryNamespace, tmp_path: Path) -> None:
    call(managed, "create_table_branch", name="work")
    call(managed, "alter_table_drop_columns", columns=["name"], branch="work")
    managed.list_table_versions({"id": ["t"]})
    assert version_rows(tmp_path, "t") == [1]


def test_version_rows_and_files_agree_after_table_operations(
    managed: DirectoryNamespace, tmp_path: Path
) -> None:
    call(managed, "update_table_schema_metadata", metadata={"a": "b"})
    call(managed, "alter_table_drop_columns", columns=["name"])
    listed = managed.list_table_versions({"id": ["t"]}).versions
    assert [each.version for each in listed] == [1, 2, 3]
    assert version_rows(tmp_path, "t") == [1, 2, 3]
    assert managed.scrub() == []
