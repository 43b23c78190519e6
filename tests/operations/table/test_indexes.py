"""Indexes of a table, in each mode."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.support.codes import (
    BRANCH_NOT_FOUND,
    COLUMN_NOT_FOUND,
    INDEX_EXISTS,
    INDEX_NOT_FOUND,
    INVALID_INPUT,
    TABLE_NOT_FOUND,
    VERSION_NOT_FOUND,
)
from tests.support.roots import LocalPlace, create, refused, refused_unchanged
from tests.support.tables import COUNT, ROWS, call, heads, opened

from relance import DirectoryNamespace

VECTOR_TYPES = ["IVF_FLAT", "IVF_PQ", "IVF_SQ", "IVF_RQ", "IVF_HNSW_FLAT", "IVF_HNSW_PQ", "IVF_HNSW_SQ"]
SCALAR_TYPES = {
    "BTREE": ("id", "BTree"),
    "BITMAP": ("name", "Bitmap"),
    "ZONEMAP": ("id", "ZoneMap"),
    "BLOOMFILTER": ("id", "BloomFilter"),
    "LABEL_LIST": ("labels", "LabelList"),
    "NGRAM": ("name", "NGram"),
    "INVERTED": ("name", "Inverted"),
    "FTS": ("name", "Inverted"),
}


def indexes(catalog: DirectoryNamespace, **fields: Any) -> list[str]:
    """Return the names of the listed indexes."""
    return [each.index_name for each in call(catalog, "list_table_indices", **fields).indexes]


def details(catalog: DirectoryNamespace, name: str) -> Any:
    """Return what Lance says about an index."""
    return next(each for each in opened(catalog).describe_indices() if each.name == name).details


@pytest.mark.parametrize("index_type", VECTOR_TYPES)
def test_vector_index_of_every_type_is_built_and_listed(catalog: DirectoryNamespace, index_type: str) -> None:
    made = call(
        catalog, "create_table_index", column="vector", index_type=index_type, num_partitions=1, name="near"
    )
    assert made.transaction_id == opened(catalog).read_transaction(2).uuid
    (index,) = call(catalog, "list_table_indices").indexes
    assert (index.index_name, index.columns, index.index_type) == ("near", ["vector"], index_type)
    assert (index.num_indexed_rows, index.num_unindexed_rows, index.status) == (COUNT, 0, "SUCCEEDED")
    stats = call(catalog, "describe_table_index_stats", index_name="near")
    assert (stats.index_type, stats.distance_type, stats.num_indices) == (index_type, "l2", 1)
    nearest = {"column": "vector", "q": [0.0] * 8, "k": 3}
    assert opened(catalog).to_table(nearest=nearest).num_rows == 3


@pytest.mark.parametrize("operation", ["create_table_index", "create_table_scalar_index"])
@pytest.mark.parametrize("index_type", SCALAR_TYPES)
def test_scalar_index_of_every_type_is_built_by_either_operation(
    catalog: DirectoryNamespace, operation: str, index_type: str
) -> None:
    column, told = SCALAR_TYPES[index_type]
    call(catalog, operation, column=column, index_type=index_type)
    (index,) = call(catalog, "list_table_indices").indexes
    assert (index.index_name, index.columns, index.index_type) == (f"{column}_idx", [column], told)
    assert index.size_bytes > 0
    assert index.num_segments == 1


@pytest.mark.parametrize("text", ["btree", "BTree", "B_TREE"])
def test_index_type_may_be_written_in_any_case(catalog: DirectoryNamespace, text: str) -> None:
    call(catalog, "create_table_index", column="id", index_type=text)
    assert indexes(catalog) == ["id_idx"]


def test_nested_field_can_be_indexed(catalog: DirectoryNamespace) -> None:
    call(catalog, "create_table_index", column="place.city", index_type="BTREE", name="city")
    (index,) = call(catalog, "list_table_indices").indexes
    assert index.columns == ["place.city"]


def test_vector_index_parameters_are_passed_to_lance(catalog: DirectoryNamespace) -> None:
    call(
        catalog,
        "create_table_index",
        column="vector",
        index_type="IVF_HNSW_PQ",
        name="near",
        distance_type="Cosine",
        num_partitions=1,
        num_sub_vectors=4,
        num_bits=4,
        sample_rate=77,
        max_iterations=33,
        m=7,
        ef_construction=55,
    )
    told = details(catalog, "near")
    assert told["metric_type"] == "COSINE"
    assert told["compression"] == {"type": "pq", "num_bits": 4, "num_sub_vectors": 4}
    assert (told["hnsw"]["max_connections"], told["hnsw"]["construction_ef"]) == (7, 55)
    hints = told["runtime_hints"]
    assert (hints["lance.ivf.sample_rate"], hints["lance.ivf.max_iters"]) == ("77", "33")
    assert call(catalog, "describe_table_index_stats", index_name="near").distance_type == "cosine"


def test_target_partition_size_is_passed_to_lance(catalog: DirectoryNamespace) -> None:
    call(catalog, "create_table_index", column="vector", index_type="IVF_FLAT", target_partition_size=100)
    assert details(catalog, "vector_idx")["target_partition_size"] == 100


def test_text_index_parameters_are_passed_to_lance(catalog: DirectoryNamespace) -> None:
    wanted = {
        "with_position": True,
        "base_tokenizer": "whitespace",
        "language": "German",
        "max_token_length": 9,
        "lower_case": False,
        "stem": False,
        "remove_stop_words": False,
        "ascii_folding": False,
    }
    call(catalog, "create_table_scalar_index", column="name", index_type="FTS", **wanted)
    (index,) = call(catalog, "list_table_indices").indexes
    told = json.loads(index.index_details)
    assert {key: told[key] for key in wanted} == wanted


BAD_REQUESTS: dict[str, tuple[int, dict[str, Any]]] = {
    "unknown column": (COLUMN_NOT_FOUND, {"column": "nope", "index_type": "BTREE"}),
    "empty column": (INVALID_INPUT, {"column": "", "index_type": "BTREE"}),
    "unknown type": (INVALID_INPUT, {"column": "id", "index_type": "MAGIC"}),
    "empty name": (INVALID_INPUT, {"column": "id", "index_type": "BTREE", "name": ""}),
    "labels of text": (INVALID_INPUT, {"column": "name", "index_type": "LABEL_LIST"}),
    "text of numbers": (INVALID_INPUT, {"column": "id", "index_type": "FTS"}),
    "ngrams of numbers": (INVALID_INPUT, {"column": "id", "index_type": "NGRAM"}),
    "tree of vectors": (INVALID_INPUT, {"column": "vector", "index_type": "BTREE"}),
    "zones of structs": (INVALID_INPUT, {"column": "place", "index_type": "ZONEMAP"}),
    "geometry of numbers": (INVALID_INPUT, {"column": "id", "index_type": "RTREE"}),
    "odd bits": (
        INVALID_INPUT,
        {"column": "vector", "index_type": "IVF_PQ", "num_partitions": 1, "num_bits": 5},
    ),
    "huge number": (INVALID_INPUT, {"column": "vector", "index_type": "IVF_FLAT", "num_partitions": 2**70}),
    "small graph": (
        INVALID_INPUT,
        {"column": "vector", "index_type": "IVF_HNSW_SQ", "num_partitions": 1, "m": 1},
    ),
    "geometry of text": (INVALID_INPUT, {"column": "name", "index_type": "RTREE"}),
    "vectors of numbers": (INVALID_INPUT, {"column": "id", "index_type": "IVF_FLAT"}),
    "unknown distance": (
        INVALID_INPUT,
        {"column": "vector", "index_type": "IVF_FLAT", "distance_type": "far"},
    ),
    "hamming of floats": (
        INVALID_INPUT,
        {"column": "vector", "index_type": "IVF_FLAT", "distance_type": "hamming", "num_partitions": 1},
    ),
    "uneven parts": (INVALID_INPUT, {"column": "vector", "index_type": "IVF_PQ", "num_sub_vectors": 3}),
    "unknown tokenizer": (INVALID_INPUT, {"column": "name", "index_type": "FTS", "base_tokenizer": "magic"}),
    "unknown language": (INVALID_INPUT, {"column": "name", "index_type": "FTS", "language": "Klingon"}),
    "field of another type": (INVALID_INPUT, {"column": "id", "index_type": "BTREE", "num_partitions": 2}),
    "graph field of a flat index": (INVALID_INPUT, {"column": "vector", "index_type": "IVF_FLAT", "m": 8}),
    "unknown branch": (BRANCH_NOT_FOUND, {"column": "id", "index_type": "BTREE", "branch": "nope"}),
    "unknown table": (TABLE_NOT_FOUND, {"id": ["nope"], "column": "id", "index_type": "BTREE"}),
}


@pytest.mark.parametrize("case", BAD_REQUESTS)
def test_invalid_index_request_is_refused_and_changes_nothing(
    place: LocalPlace, catalog: DirectoryNamespace, case: str
) -> None:
    code, fields = BAD_REQUESTS[case]
    with refused_unchanged(place, code):
        call(catalog, "create_table_index", **fields)


def test_index_with_a_taken_name_is_refused(place: LocalPlace, catalog: DirectoryNamespace) -> None:
    call(catalog, "create_table_index", column="id", index_type="BTREE")
    with refused_unchanged(place, INDEX_EXISTS):
        call(catalog, "create_table_index", column="id", index_type="BITMAP")
    with refused_unchanged(place, INDEX_EXISTS):
        call(catalog, "create_table_index", column="vector", index_type="IVF_FLAT", name="id_idx")


def test_scalar_index_operation_refuses_vector_indexes(
    place: LocalPlace, catalog: DirectoryNamespace
) -> None:
    with refused_unchanged(place, INVALID_INPUT):
        call(catalog, "create_table_scalar_index", column="vector", index_type="IVF_FLAT")


def test_indexes_are_listed_by_name_in_pages(catalog: DirectoryNamespace) -> None:
    for name in ("c", "a", "d", "b"):
        call(catalog, "create_table_index", column="id", index_type="BTREE", name=name)
    assert indexes(catalog) == ["a", "b", "c", "d"]
    first = call(catalog, "list_table_indices", limit=3)
    assert [each.index_name for each in first.indexes] == ["a", "b", "c"]
    second = call(catalog, "list_table_indices", limit=3, page_token=first.page_token)
    assert [each.index_name for each in second.indexes] == ["d"]
    assert second.page_token is None


def test_indexes_are_listed_for_the_requested_version(catalog: DirectoryNamespace) -> None:
    call(catalog, "create_table_index", column="id", index_type="BTREE")
    assert indexes(catalog, version=1) == []
    with refused(VERSION_NOT_FOUND):
        indexes(catalog, version=99)
    with refused(INDEX_NOT_FOUND):
        call(catalog, "describe_table_index_stats", index_name="id_idx", version=1)


def test_rows_added_after_the_index_count_as_unindexed(catalog: DirectoryNamespace) -> None:
    call(catalog, "create_table_index", column="id", index_type="BTREE")
    opened(catalog).insert(ROWS.slice(0, 40), mode="append")
    (index,) = call(catalog, "list_table_indices").indexes
    assert (index.num_indexed_rows, index.num_unindexed_rows) == (COUNT, 40)
    stats = call(catalog, "describe_table_index_stats", index_name="id_idx")
    assert (stats.num_indexed_rows, stats.num_unindexed_rows) == (COUNT, 40)


def test_index_can_be_dropped_once(place: LocalPlace, catalog: DirectoryNamespace) -> None:
    call(catalog, "create_table_index", column="id", index_type="BTREE")
    assert call(catalog, "drop_table_index", index_name="id_idx").transaction_id
    assert indexes(catalog) == []
    with refused_unchanged(place, INDEX_NOT_FOUND):
        call(catalog, "drop_table_index", index_name="id_idx")


@pytest.mark.parametrize("operation", ["describe_table_index_stats", "drop_table_index"])
def test_index_operations_require_the_name_of_an_existing_index(
    place: LocalPlace, catalog: DirectoryNamespace, operation: str
) -> None:
    with refused_unchanged(place, INVALID_INPUT):
        call(catalog, operation)
    with refused_unchanged(place, INDEX_NOT_FOUND):
        call(catalog, operation, index_name="nope")


def test_index_on_a_branch_exists_only_there(catalog: DirectoryNamespace) -> None:
    call(catalog, "create_table_branch", name="work")
    call(catalog, "create_table_index", column="id", index_type="BTREE", branch="work")
    call(catalog, "create_table_index", column="vector", index_type="IVF_FLAT", branch="work")
    assert heads(catalog) == (1, 3)
    assert indexes(catalog) == []
    assert indexes(catalog, branch="work") == ["id_idx", "vector_idx"]
    stats = call(catalog, "describe_table_index_stats", index_name="id_idx", branch="work")
    assert stats.num_indexed_rows == COUNT
    call(catalog, "drop_table_index", index_name="id_idx", branch="work")
    assert indexes(catalog, branch="work") == ["vector_idx"]
    assert heads(catalog) == (1, 4)


def test_empty_table_can_be_indexed(place: LocalPlace) -> None:
    catalog = place.open()
    create(catalog, "t", ROWS.slice(0, 0))
    call(catalog, "create_table_index", column="id", index_type="BTREE")
    (index,) = call(catalog, "list_table_indices").indexes
    assert (index.num_indexed_rows, index.num_unindexed_rows) == (0, 0)
