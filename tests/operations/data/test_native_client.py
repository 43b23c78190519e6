"""The same requests to the native namespace and to ours, on the same kind of table."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from lance.namespace import DirectoryNamespace as NativeNamespace
from lance_namespace import (
    AnalyzeTableQueryPlanRequest,
    CountTableRowsRequest,
    CreateTableRequest,
    DeleteFromTableRequest,
    ExplainTableQueryPlanRequest,
    InsertIntoTableRequest,
    MergeInsertIntoTableRequest,
    QueryTableRequest,
    UpdateTableRequest,
)
from tests.support.roots import LocalPlace, ipc
from tests.support.rows import opened, people

from relance import DirectoryNamespace

EVERYTHING = {"vector": {}, "k": 0}
NEAR = {"vector": {"single_vector": [3.2, 0.0]}, "k": 3}


@pytest.fixture
def pair(place: LocalPlace, catalog: DirectoryNamespace, tmp_path: Path) -> list[Any]:
    """The native namespace and ours, in the same mode, each with the same table."""
    flags = {"manifest_enabled": "true", "dir_listing_enabled": "true", **place.mode}
    both = [NativeNamespace(root=str(tmp_path / "native"), **flags), catalog]
    for each in both:
        each.create_table(CreateTableRequest(id=["t"]), ipc(people(range(6))))
        opened(each).create_scalar_index("name", "INVERTED")
    return both


def rows(namespace: Any, **fields: Any) -> list[dict[str, Any]]:
    request = QueryTableRequest.model_validate({"id": ["t"], **EVERYTHING, **fields})
    found = pa.ipc.open_file(namespace.query_table(request).data).read_all()
    listed: list[dict[str, Any]] = found.to_pylist()
    return listed


def answer(namespace: Any, operation: str, request: Any, *body: bytes) -> Any:
    """Return the answer as a dictionary, without what only we tell, or the code of the error."""
    told = getattr(namespace, operation)(request, *body)
    if isinstance(told, (str, int)):
        return told
    return told.model_dump(exclude_none=True, exclude={"context", "transaction_id"})


WRITES: list[tuple[str, Any, tuple[bytes, ...]]] = [
    ("insert_into_table", InsertIntoTableRequest(id=["t"]), (ipc(people([7, 8])),)),
    ("insert_into_table", InsertIntoTableRequest(id=["t"], mode="Append"), (ipc(people([])),)),
    ("insert_into_table", InsertIntoTableRequest(id=["t"], mode="overwrite"), (ipc(people([7])),)),
    (
        "insert_into_table",
        InsertIntoTableRequest(id=["t"]),
        (ipc(people([7]).select(["id"])),),
    ),
    (
        "merge_insert_into_table",
        MergeInsertIntoTableRequest(
            id=["t"], on=["id"], when_matched_update_all=True, when_not_matched_insert_all=True
        ),
        (ipc(people([5, 9])),),
    ),
    (
        "merge_insert_into_table",
        MergeInsertIntoTableRequest(
            id=["t"],
            on=["id"],
            when_not_matched_insert_all=True,
            when_not_matched_by_source_delete=True,
            when_not_matched_by_source_delete_filt="id > 2",
        ),
        (ipc(people([5, 9])),),
    ),
    (
        "merge_insert_into_table",
        MergeInsertIntoTableRequest(id=["t"], on=["id"], when_not_matched_by_source_delete_filt="id > 2"),
        (ipc(people([5, 9])),),
    ),
    ("update_table", UpdateTableRequest(id=["t"], updates=[["name", "'x'"]], predicate="id > 3"), ()),
    ("update_table", UpdateTableRequest(id=["t"], updates=[["name", "'x'"]], predicate="id > 99"), ()),
    ("delete_from_table", DeleteFromTableRequest(id=["t"], predicate="id < 2"), ()),
    ("delete_from_table", DeleteFromTableRequest(id=["t"], predicate="true"), ()),
    ("delete_from_table", DeleteFromTableRequest(id=["t"], predicate="id > 99"), ()),
]


@pytest.mark.parametrize(("operation", "request_", "body"), WRITES)
def test_write_has_the_same_response_and_effect_as_the_native_client(
    pair: list[Any], operation: str, request_: Any, body: tuple[bytes, ...]
) -> None:
    theirs, ours = (answer(each, operation, request_, *body) for each in pair)
    assert ours == theirs
    assert sorted(rows(pair[1]), key=str) == sorted(rows(pair[0]), key=str)


QUERIES: list[dict[str, Any]] = [
    {"k": 4},
    {"k": 4, "offset": 1},
    {"filter": "id % 2 = 0"},
    {"columns": {"column_names": ["name", "id"]}},
    {"columns": {"column_aliases": {"double": "id * 2"}}},
    {"with_row_id": True},
    {"version": 1},
    NEAR,
    {**NEAR, "k": 0},
    {**NEAR, "distance_type": "Dot"},
    {**NEAR, "filter": "id > 3", "prefilter": True},
    {**NEAR, "filter": "id > 3", "prefilter": False},
    {**NEAR, "lower_bound": 0.1, "upper_bound": 3.0},
    {**NEAR, "columns": {"column_names": ["id"]}},
    {"full_text_query": {"string_query": {"query": "word3"}}},
    {
        "full_text_query": {
            "structured_query": {"query": {"match": {"terms": "word3 word4", "column": "name"}}}
        }
    },
]


@pytest.mark.parametrize("fields", QUERIES)
def test_query_returns_the_same_rows_as_the_native_client(pair: list[Any], fields: dict[str, Any]) -> None:
    assert rows(pair[1], **fields) == rows(pair[0], **fields)


def test_row_counts_match_the_native_client(pair: list[Any]) -> None:
    for fields in ({}, {"predicate": "id > 2"}, {"version": 1}):
        request = CountTableRowsRequest(id=["t"], **fields)
        theirs, ours = (each.count_table_rows(request) for each in pair)
        assert ours == theirs


def test_query_plans_match_the_native_client_except_for_the_uri(pair: list[Any]) -> None:
    query = QueryTableRequest.model_validate(NEAR)
    request = ExplainTableQueryPlanRequest(id=["t"], query=query)
    theirs, ours = (each.explain_table_query_plan(request) for each in pair)
    assert [line.split("uri=")[0] for line in ours.splitlines()] == [
        line.split("uri=")[0] for line in theirs.splitlines()
    ]
    analysis = AnalyzeTableQueryPlanRequest.model_validate({"id": ["t"], **NEAR})
    assert all("output_rows" in each.analyze_table_query_plan(analysis) for each in pair)
