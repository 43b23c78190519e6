"""Branches of a table, in each mode."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import lance
import pytest
from tests.support.codes import (
    BRANCH_EXISTS,
    BRANCH_NOT_FOUND,
    INVALID_INPUT,
    INVALID_TABLE_STATE,
    TABLE_NOT_FOUND,
    VERSION_NOT_FOUND,
)
from tests.support.roots import LocalPlace, describe, refused, refused_unchanged, versions
from tests.support.tables import ROWS, call, opened

from relance import DirectoryNamespace


@pytest.fixture
def branched(catalog: DirectoryNamespace) -> DirectoryNamespace:
    """A catalog whose table has two versions, and the branch `work` with a third of its own."""
    opened(catalog).insert(ROWS.slice(0, 10), mode="append")
    call(catalog, "create_table_branch", name="work")
    call(catalog, "alter_table_drop_columns", columns=["name"], branch="work")
    return catalog


def test_branch_has_its_own_versions(branched: DirectoryNamespace) -> None:
    assert opened(branched).version == 2
    assert versions(branched, "t", branch="work")[-1] == 3
    assert "name" in opened(branched).schema.names
    assert "name" not in opened(branched, "work").schema.names
    assert describe(branched, "t", branch="work").version == 3


def test_branches_list_their_parent_branch_and_version(branched: DirectoryNamespace) -> None:
    call(branched, "create_table_branch", name="old", from_version=1)
    call(branched, "create_table_branch", name="team/next", from_branch="work")
    call(branched, "create_table_branch", name="again", from_branch="main", from_version=2)
    told = call(branched, "list_table_branches").branches
    assert {name: (each.parent_branch, each.parent_version) for name, each in told.items()} == {
        "again": (None, 2),
        "old": (None, 1),
        "team/next": ("work", 3),
        "work": (None, 2),
    }
    assert opened(branched, "old").count_rows() == ROWS.num_rows
    assert "name" not in opened(branched, "team/next").schema.names


def test_branches_are_listed_by_name_in_pages(branched: DirectoryNamespace) -> None:
    for name in ("c", "a", "b"):
        call(branched, "create_table_branch", name=name)
    assert list(call(branched, "list_table_branches").branches) == ["a", "b", "c", "work"]
    page = call(branched, "list_table_branches", limit=2)
    assert list(page.branches) == ["a", "b"]
    rest = call(branched, "list_table_branches", limit=2, page_token=page.page_token)
    assert (list(rest.branches), rest.page_token) == (["c", "work"], None)


def test_deleted_branch_can_be_created_again(branched: DirectoryNamespace) -> None:
    call(branched, "delete_table_branch", name="work")
    assert call(branched, "list_table_branches").branches == {}
    call(branched, "create_table_branch", name="work")
    assert "name" in opened(branched, "work").schema.names


def test_delete_of_a_branch_with_child_branches_is_refused(
    place: LocalPlace, branched: DirectoryNamespace
) -> None:
    call(branched, "create_table_branch", name="next", from_branch="work")
    with refused_unchanged(place, INVALID_TABLE_STATE):
        call(branched, "delete_table_branch", name="work")


def test_delete_of_a_tagged_branch_is_refused(place: LocalPlace, branched: DirectoryNamespace) -> None:
    call(branched, "create_table_tag", tag="there", version=3, branch="work")
    with refused_unchanged(place, INVALID_TABLE_STATE):
        call(branched, "delete_table_branch", name="work")


BAD_NAMES = ["", "main", "a b", "..", "a..b", "/a", "a/", "a//b", "a/.b", "x.lock", "é", "a\\b", "a" * 201]
BAD_REQUESTS: dict[str, tuple[int, str, dict[str, Any]]] = {
    "duplicate": (BRANCH_EXISTS, "create_table_branch", {"name": "work"}),
    "from unknown branch": (BRANCH_NOT_FOUND, "create_table_branch", {"name": "b", "from_branch": "nope"}),
    "from unknown version": (VERSION_NOT_FOUND, "create_table_branch", {"name": "b", "from_version": 99}),
    "from unknown version of a branch": (
        VERSION_NOT_FOUND,
        "create_table_branch",
        {"name": "b", "from_branch": "work", "from_version": 99},
    ),
    "of unknown table": (TABLE_NOT_FOUND, "create_table_branch", {"id": ["x"], "name": "b"}),
    "delete unknown": (BRANCH_NOT_FOUND, "delete_table_branch", {"name": "nope"}),
    "delete main": (INVALID_INPUT, "delete_table_branch", {"name": "main"}),
    "list of unknown table": (TABLE_NOT_FOUND, "list_table_branches", {"id": ["x"]}),
}
for _name in BAD_NAMES:
    BAD_REQUESTS[f"name {_name[:9]!r}"] = (INVALID_INPUT, "create_table_branch", {"name": _name})


@pytest.mark.parametrize("case", BAD_REQUESTS)
def test_invalid_branch_request_is_refused_and_changes_nothing(
    place: LocalPlace, branched: DirectoryNamespace, case: str
) -> None:
    code, operation, fields = BAD_REQUESTS[case]
    with refused_unchanged(place, code):
        call(branched, operation, **fields)


def test_branch_that_a_shallow_clone_reads_is_not_deleted(
    catalog: DirectoryNamespace, tmp_path: Path
) -> None:
    call(catalog, "create_table_branch", name="work")
    call(catalog, "create_table_branch", name="work/next")
    call(catalog, "create_table_branch", name="other")
    for name in ("work", "work/next", "other"):
        lance.write_dataset(ROWS, opened(catalog, name), mode="append")
    folder = Path(opened(catalog).uri).parent / "copy.lance"
    opened(catalog, "work").shallow_clone(str(folder), ("work", None))
    rows = lance.dataset(str(folder)).count_rows()
    call(catalog, "delete_table_branch", name="work/next")
    call(catalog, "delete_table_branch", name="other")
    with refused(INVALID_TABLE_STATE) as caught:
        call(catalog, "delete_table_branch", name="work")
    assert "shallow clone at 'copy.lance' reads files of branch 'work'" in str(caught.value)
    assert lance.dataset(str(folder)).to_table().num_rows == rows
    shutil.rmtree(folder)
    call(catalog, "delete_table_branch", name="work")
