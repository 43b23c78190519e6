"""Queries: what each field of the request does, and what is refused."""

from __future__ import annotations

import pickle
from typing import Any

import pyarrow as pa
import pytest
from lance_namespace import QueryTableRequest
from tests.support.codes import (
    BRANCH_NOT_FOUND,
    INVALID_INPUT,
    TABLE_NOT_FOUND,
    UNSUPPORTED,
    VERSION_NOT_FOUND,
)
from tests.support.roots import LocalPlace, ipc, refused_unchanged
from tests.support.rows import add, ids, make, opened, people, query

from relance import DirectoryNamespace
from relance.operations.data.scans import scan_arguments

NEAR_3: dict[str, Any] = {"vector": {"single_vector": [3.0, 0.0]}}


def text(terms: str, **fields: Any) -> dict[str, Any]:
    """Return a plain text search."""
    return {"full_text_query": {"string_query": {"query": terms, **fields}}}


def structured(**query: Any) -> dict[str, Any]:
    """Return a structured text search."""
    return {"full_text_query": {"structured_query": {"query": query}}}


def match(terms: str, **fields: Any) -> dict[str, Any]:
    """Return a match query."""
    return {"match": {"terms": terms, **fields}}


@pytest.fixture
def table(catalog: DirectoryNamespace) -> DirectoryNamespace:
    """A catalog with a table of ten rows in two fragments, indexed for text."""
    make(catalog, range(5))
    add(catalog, people(range(5, 10)))
    opened(catalog).create_scalar_index("name", "INVERTED", with_position=True)
    return catalog


def test_query_returns_an_arrow_file_as_bytes(table: DirectoryNamespace) -> None:
    answer = table.query_table({"id": ["t"], "vector": {}, "k": 3})
    assert isinstance(answer, bytes)
    assert pa.ipc.open_file(answer.data).read_all() == people(range(3))
    assert pickle.loads(pickle.dumps(answer)) == answer


def test_query_without_a_search_returns_k_rows_after_the_offset(table: DirectoryNamespace) -> None:
    assert ids(table) == list(range(10))
    assert ids(table, k=3) == [0, 1, 2]
    assert ids(table, k=3, offset=4) == [4, 5, 6]
    assert ids(table, offset=8) == [8, 9]
    assert ids(table, k=3, filter="id > 5") == [6, 7, 8]
    assert ids(table, k=2**31 - 1) == list(range(10))
    assert query(table, filter="id > 99") == people([])


def test_query_selects_columns_by_name_alias_and_expression(table: DirectoryNamespace) -> None:
    assert query(table, k=1, columns={"column_names": ["name", "id"]}).to_pylist() == [
        {"name": "word0 common", "id": 0}
    ]
    assert query(table, k=2, columns={"column_aliases": {"next": "id + 1"}}).to_pylist() == [
        {"next": 1},
        {"next": 2},
    ]
    assert query(table, k=1, columns={"column_names": ["id"]}, with_row_id=True).schema.names == [
        "id",
        "_rowid",
    ]
    nested = pa.table({"a": [{"b": 1, "c": 2}]})
    table.create_table({"id": ["nested"]}, ipc(nested))
    assert query(table, "nested", columns={"column_names": ["a.b"]})["a.b"].to_pylist() == [1]


def test_vector_search_returns_the_nearest_rows_first_with_distances(table: DirectoryNamespace) -> None:
    found = query(table, k=3, columns={"column_names": ["id"]}, **NEAR_3)
    assert found.to_pylist()[0] == {"id": 3, "_distance": 0.0}
    assert sorted(found["id"].to_pylist()) == [2, 3, 4]
    assert len(ids(table, **NEAR_3)) == 10
    assert ids(table, k=3, offset=1, **NEAR_3) == ids(table, k=4, **NEAR_3)[1:]


def test_vector_search_filters_first_unless_prefilter_is_off(table: DirectoryNamespace) -> None:
    assert ids(table, k=2, filter="id > 6", **NEAR_3) == [7, 8]
    assert ids(table, k=2, filter="id > 6", prefilter=True, **NEAR_3) == [7, 8]
    assert ids(table, k=2, filter="id > 6", prefilter=False, **NEAR_3) == []


def test_multi_vector_search_returns_k_rows_per_vector(table: DirectoryNamespace) -> None:
    found = query(table, k=2, vector={"multi_vector": [[0.0, 0.0], [9.0, 0.0]]})
    assert [(row["query_index"], row["id"]) for row in found.to_pylist()] == [(0, 0), (0, 1), (1, 9), (1, 8)]


def test_vector_search_respects_distance_type_and_bounds(table: DirectoryNamespace) -> None:
    assert sorted(ids(table, lower_bound=1.0, upper_bound=4.0, **NEAR_3)) == [2, 4]
    assert sorted(ids(table, upper_bound=1, **NEAR_3)) == [3]
    for name in ("l2", "L2", "Cosine", "dot"):
        assert len(ids(table, k=2, distance_type=name, **NEAR_3)) == 2
    farthest = ids(table, k=1, distance_type="dot", **NEAR_3)
    assert farthest == [9]


def test_only_vector_column_need_not_be_named(table: DirectoryNamespace) -> None:
    rows = people(range(3)).rename_columns(["id", "name", "place"])
    table.create_table({"id": ["other"]}, ipc(rows))
    assert ids(table, "other", k=1, **NEAR_3) == [2]
    assert ids(table, "other", k=1, vector_column="place", **NEAR_3) == [2]


def test_vector_index_is_used_unless_bypassed(catalog: DirectoryNamespace) -> None:
    make(catalog, range(300))
    opened(catalog).create_index("vector", "IVF_PQ", num_partitions=2, num_sub_vectors=1)
    add(catalog, people([1000]))

    def plan(**fields: Any) -> str:
        request = {"vector": {"single_vector": [1000.0, 0.0]}, "k": 1, **fields}
        return catalog.explain_table_query_plan({"id": ["t"], "query": request})

    assert "ANN" in plan()
    assert "ANN" not in plan(bypass_vector_index=True)
    search: dict[str, Any] = {"vector": {"single_vector": [1000.0, 0.0]}, "k": 1}
    assert ids(catalog, **search) == [1000]
    assert ids(catalog, fast_search=True, nprobes=2, **search) != [1000]
    assert ids(catalog, refine_factor=5, minimum_nprobes=1, maximum_nprobes=2, **search) == [1000]


def test_search_parameters_are_passed_to_lance(table: DirectoryNamespace) -> None:
    fields = {
        "nprobes": 3,
        "refine_factor": 2,
        "ef": 8,
        "distance_type": "Dot",
        "lower_bound": 0.5,
        **NEAR_3,
    }
    request = QueryTableRequest.model_validate({"k": 5, "offset": 2, "vector_column": "vector", **fields})
    assert scan_arguments(opened(table), request) == {
        "columns": None,
        "filter": None,
        "with_row_id": False,
        "limit": None,
        "offset": 2,
        "prefilter": True,
        "fast_search": False,
        "nearest": {
            "column": "vector",
            "q": [3.0, 0.0],
            "k": 7,
            "use_index": True,
            "metric": "dot",
            "nprobes": 3,
            "refine_factor": 2,
            "ef": 8,
            "distance_range": (0.5, None),
        },
    }


def test_search_limits_are_capped_at_the_size_of_the_table(table: DirectoryNamespace) -> None:
    # With an index, Lance makes room for k rows before it looks: for this many the process would end.
    huge = 2**31 - 1
    search = {"k": huge, "offset": 1, "ef": huge, "refine_factor": huge, **NEAR_3}
    nearest = scan_arguments(opened(table), QueryTableRequest.model_validate(search))["nearest"]
    assert (nearest["k"], nearest["ef"], nearest["refine_factor"]) == (10, 20, 1)
    opened(table).create_index("vector", "IVF_FLAT", num_partitions=1)
    assert len(ids(table, **search)) == 9
    assert sorted(ids(table, k=huge, **NEAR_3)) == list(range(10))


def test_text_search_covers_the_indexed_or_the_named_columns(table: DirectoryNamespace) -> None:
    assert ids(table, **text("word3")) == [3]
    assert sorted(ids(table, **text("word3 word8", columns=["name"]))) == [3, 8]
    assert len(ids(table, k=4, **text("common"))) == 4
    assert ids(table, k=1, filter="id = 7", **text("common")) == [7]
    assert "_score" in query(table, **text("word3")).schema.names


@pytest.mark.parametrize(
    ("search", "expected"),
    [
        (structured(**match("word3")), [3]),
        (structured(**match("word3 word8", column="name", operator="Or")), [3, 8]),
        (structured(**match("word3 word8", column="name", operator="AND")), []),
        (structured(**match("wrd3", column="name", fuzziness=1, max_expansions=10, prefix_length=1)), [3]),
        (structured(phrase={"terms": "word3 common", "slop": 0}), [3]),
        (structured(phrase={"terms": "common word3", "column": "name"}), []),
        (
            structured(
                boolean={"must": [match("common")], "must_not": [match("word3")], "should": [match("word8")]}
            ),
            [0, 1, 2, 4, 5, 6, 7, 8, 9],
        ),
        (
            structured(
                boost={"positive": match("word3 word4"), "negative": match("word4"), "negative_boost": 0.1}
            ),
            [3, 4],
        ),
        (structured(multi_match={"match_queries": [{"terms": "word3", "column": "name", "boost": 2}]}), [3]),
        (
            structured(
                multi_match={
                    "match_queries": [
                        {"terms": "word3", "column": "name", "boost": 2},
                        {"terms": "word3", "column": "name"},
                    ]
                }
            ),
            [3],
        ),
    ],
)
def test_structured_text_query_returns_the_matching_rows(
    table: DirectoryNamespace, search: dict[str, Any], expected: list[int]
) -> None:
    assert sorted(ids(table, **search)) == expected


def test_query_reads_the_requested_version_and_branch(table: DirectoryNamespace) -> None:
    opened(table).create_branch("dev")
    table.delete_from_table({"id": ["t"], "predicate": "id > 2", "branch": "dev"})
    assert ids(table, version=1) == [0, 1, 2, 3, 4]
    assert ids(table, branch="dev") == [0, 1, 2]
    assert ids(table, branch="main") == list(range(10))


def test_dictionary_columns_of_several_fragments_are_unified(catalog: DirectoryNamespace) -> None:
    def words(*values: str) -> pa.Table:
        return pa.table({"word": pa.array(values).dictionary_encode()})

    catalog.create_table({"id": ["t"]}, ipc(words("a", "b")))
    add(catalog, words("c", "a"))
    assert query(catalog)["word"].to_pylist() == ["a", "b", "c", "a"]


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"id": ["missing"]}, TABLE_NOT_FOUND),
        ({"id": ["declared"]}, TABLE_NOT_FOUND),
        ({"version": 99}, VERSION_NOT_FOUND),
        ({"branch": "missing"}, BRANCH_NOT_FOUND),
        ({"filter": "missing = 1"}, INVALID_INPUT),
        ({"filter": "id ==="}, INVALID_INPUT),
        ({"filter": ""}, INVALID_INPUT),
        ({"columns": {"column_names": ["missing"]}}, INVALID_INPUT),
        ({"columns": {"column_names": ["id", "id"]}}, INVALID_INPUT),
        ({"columns": {"column_names": ["id"], "column_aliases": {"a": "id"}}}, INVALID_INPUT),
        ({"columns": {"column_aliases": {"a": "missing"}}}, INVALID_INPUT),
        ({"k": -1}, INVALID_INPUT),
        ({"k": 2**63}, INVALID_INPUT),
        ({"k": 1, "offset": 2**63 - 1}, INVALID_INPUT),
        ({"vector": {"single_vector": [1.0, 2.0, 3.0]}}, INVALID_INPUT),
        ({"vector": {"single_vector": [1.0, 0.0], "multi_vector": [[1.0, 0.0]]}}, INVALID_INPUT),
        ({"vector": {"multi_vector": [[1.0, 0.0], [1.0]]}}, INVALID_INPUT),
        ({"vector": {"multi_vector": [[], []]}}, INVALID_INPUT),
        ({"vector_column": "VECTOR", **NEAR_3}, INVALID_INPUT),
        ({"vector": {"multi_vector": [[1.0, 0.0], [2.0, 0.0]]}, "offset": 1}, INVALID_INPUT),
        ({"vector_column": "missing", **NEAR_3}, INVALID_INPUT),
        ({"vector_column": "id", **NEAR_3}, INVALID_INPUT),
        ({"distance_type": "near", **NEAR_3}, INVALID_INPUT),
        ({"distance_type": "hamming", **NEAR_3}, INVALID_INPUT),
        ({"nprobes": 0, **NEAR_3}, INVALID_INPUT),
        ({"minimum_nprobes": 3, "maximum_nprobes": 2, **NEAR_3}, INVALID_INPUT),
        ({"refine_factor": 0, **NEAR_3}, INVALID_INPUT),
        ({"ef": 0, **NEAR_3}, INVALID_INPUT),
        ({"nprobes": 1}, INVALID_INPUT),
        ({"vector_column": "vector"}, INVALID_INPUT),
        ({"distance_type": "l2"}, INVALID_INPUT),
        ({"lower_bound": 1.0}, INVALID_INPUT),
        ({"fast_search": True}, INVALID_INPUT),
        (text("word3") | NEAR_3, INVALID_INPUT),
        (text("word3", columns=["missing"]), INVALID_INPUT),
        (text("word3", columns=["id"]), INVALID_INPUT),
        ({"full_text_query": {}}, INVALID_INPUT),
        (structured(), INVALID_INPUT),
        (structured(**match("a"), phrase={"terms": "a"}), INVALID_INPUT),
        (structured(**match("word3", operator="xor")), INVALID_INPUT),
        (structured(boolean={"must": [], "must_not": [], "should": []}), INVALID_INPUT),
        (structured(multi_match={"match_queries": []}), INVALID_INPUT),
        (
            structured(multi_match={"match_queries": [{"terms": "a"}, {"terms": "a", "column": "name"}]}),
            INVALID_INPUT,
        ),
        (
            structured(
                multi_match={
                    "match_queries": [{"terms": "a", "column": "name"}, {"terms": "b", "column": "name"}]
                }
            ),
            UNSUPPORTED,
        ),
    ],
)
def test_query_of_a_missing_target_or_with_invalid_fields_is_refused(
    place: LocalPlace, table: DirectoryNamespace, fields: dict[str, Any], code: int
) -> None:
    table.declare_table({"id": ["declared"]})
    request: dict[str, Any] = {"id": ["t"], "vector": {}, "k": 5, **fields}
    with refused_unchanged(place, code):
        table.query_table(request)
    with refused_unchanged(place, code):
        table.explain_table_query_plan({"id": request["id"], "query": request})
    with refused_unchanged(place, code):
        table.analyze_table_query_plan(request)


def test_text_search_without_a_column_requires_exactly_one_index(
    place: LocalPlace, catalog: DirectoryNamespace
) -> None:
    make(catalog)
    for search in (text("word3"), structured(**match("word3"))):
        with refused_unchanged(place, INVALID_INPUT):
            query(catalog, **search)


def test_query_plans_are_text_that_names_the_operators(table: DirectoryNamespace) -> None:
    search = {"k": 2, **NEAR_3}
    plan = table.explain_table_query_plan({"id": ["t"], "query": search})
    assert "KNNVectorDistance" in plan
    assert isinstance(table.explain_table_query_plan({"id": ["t"], "query": search, "verbose": True}), str)
    analysis = table.analyze_table_query_plan({"id": ["t"], **search})
    assert "output_rows=2" in analysis


def test_query_plan_uses_the_branch_of_the_request(place: LocalPlace, table: DirectoryNamespace) -> None:
    opened(table).create_branch("dev")
    table.insert_into_table({"id": ["t"], "branch": "dev", "mode": "overwrite"}, ipc(pa.table({"only": [1]})))
    inside = {"k": 0, "vector": {}}
    assert "only" in table.explain_table_query_plan({"id": ["t"], "branch": "dev", "query": inside})
    assert "only" in table.explain_table_query_plan({"id": ["t"], "query": {**inside, "branch": "dev"}})
    assert "only" in table.analyze_table_query_plan({"id": ["t"], "branch": "dev", **inside})
    assert "only" not in table.explain_table_query_plan({"id": ["t"], "query": inside})
    with refused_unchanged(place, INVALID_INPUT):
        table.explain_table_query_plan({"id": ["t"], "branch": "a", "query": {**inside, "branch": "b"}})
    with refused_unchanged(place, INVALID_INPUT):
        table.explain_table_query_plan({"id": ["t"], "query": {**inside, "id": ["other"]}})
