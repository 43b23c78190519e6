"""Tags of a table, in each mode."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.codes import (
    BRANCH_NOT_FOUND,
    INVALID_INPUT,
    TABLE_NOT_FOUND,
    TAG_EXISTS,
    TAG_NOT_FOUND,
    VERSION_NOT_FOUND,
)
from tests.support.roots import LocalPlace, describe, refused_unchanged
from tests.support.tables import ROWS, call, opened

from relance import DirectoryNamespace


@pytest.fixture
def tagged(catalog: DirectoryNamespace) -> DirectoryNamespace:
    """A catalog whose table has two versions, and the tag `first` on the first."""
    opened(catalog).insert(ROWS.slice(0, 10), mode="append")
    call(catalog, "create_table_tag", tag="first", version=1)
    return catalog


def version_of(catalog: DirectoryNamespace, tag: str) -> int:
    version: int = call(catalog, "get_table_tag_version", tag=tag).version
    return version


def test_tag_points_to_a_version(tagged: DirectoryNamespace) -> None:
    assert version_of(tagged, "first") == 1
    assert describe(tagged, "t", tag="first").version == 1
    listed = call(tagged, "list_table_tags").tags
    assert (listed["first"].version, listed["first"].branch) == (1, None)
    assert listed["first"].manifest_size > 0


def test_tag_can_be_moved_and_deleted(tagged: DirectoryNamespace) -> None:
    call(tagged, "update_table_tag", tag="first", version=2)
    assert version_of(tagged, "first") == 2
    call(tagged, "delete_table_tag", tag="first")
    assert call(tagged, "list_table_tags").tags == {}


def test_tags_are_listed_by_name_in_pages(tagged: DirectoryNamespace) -> None:
    for tag in ("c", "a", "b"):
        call(tagged, "create_table_tag", tag=tag, version=1)
    assert list(call(tagged, "list_table_tags").tags) == ["a", "b", "c", "first"]
    page = call(tagged, "list_table_tags", limit=3)
    assert list(page.tags) == ["a", "b", "c"]
    rest = call(tagged, "list_table_tags", limit=3, page_token=page.page_token)
    assert (list(rest.tags), rest.page_token) == (["first"], None)


def test_tag_can_point_to_a_version_of_a_branch(tagged: DirectoryNamespace) -> None:
    call(tagged, "create_table_branch", name="work")
    call(tagged, "alter_table_drop_columns", columns=["name"], branch="work")
    call(tagged, "create_table_tag", tag="there", version=3, branch="work")
    found = call(tagged, "get_table_tag_version", tag="there")
    assert (found.version, found.branch) == (3, "work")
    call(tagged, "update_table_tag", tag="there", version=2, branch="main")
    found = call(tagged, "get_table_tag_version", tag="there")
    assert (found.version, found.branch) == (2, None)


BAD_NAMES = ["", "a b", "a/b", "..", ".a", "a.", "a..b", "x.lock", "é", "a" * 201, "a\n"]
BAD_REQUESTS: dict[str, tuple[int, str, dict[str, Any]]] = {
    "duplicate": (TAG_EXISTS, "create_table_tag", {"tag": "first", "version": 2}),
    "unknown version": (VERSION_NOT_FOUND, "create_table_tag", {"tag": "b", "version": 99}),
    "huge version": (VERSION_NOT_FOUND, "create_table_tag", {"tag": "b", "version": 2**63 - 1}),
    "version 0": (INVALID_INPUT, "create_table_tag", {"tag": "b", "version": 0}),
    "unknown branch": (BRANCH_NOT_FOUND, "create_table_tag", {"tag": "b", "version": 1, "branch": "nope"}),
    "unknown table": (TABLE_NOT_FOUND, "create_table_tag", {"id": ["x"], "tag": "b", "version": 1}),
    "get unknown": (TAG_NOT_FOUND, "get_table_tag_version", {"tag": "nope"}),
    "delete unknown": (TAG_NOT_FOUND, "delete_table_tag", {"tag": "nope"}),
    "update unknown": (TAG_NOT_FOUND, "update_table_tag", {"tag": "nope", "version": 1}),
    "update to unknown version": (VERSION_NOT_FOUND, "update_table_tag", {"tag": "first", "version": 99}),
    "update to version 0": (INVALID_INPUT, "update_table_tag", {"tag": "first", "version": 0}),
    "list of unknown table": (TABLE_NOT_FOUND, "list_table_tags", {"id": ["x"]}),
}
for _name in BAD_NAMES:
    BAD_REQUESTS[f"name {_name[:9]!r}"] = (INVALID_INPUT, "create_table_tag", {"tag": _name, "version": 1})


@pytest.mark.parametrize("case", BAD_REQUESTS)
def test_invalid_tag_request_is_refused_and_changes_nothing(
    place: LocalPlace, tagged: DirectoryNamespace, case: str
) -> None:
    code, operation, fields = BAD_REQUESTS[case]
    with refused_unchanged(place, code):
        call(tagged, operation, **fields)
