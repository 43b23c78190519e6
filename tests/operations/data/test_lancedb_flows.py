"""What lancedb does with a table, through our catalog: merge, index, texts, hybrid search, tags, versions."""

from __future__ import annotations

from typing import Any

import lancedb
import pyarrow as pa
import pytest
from lancedb.index import FTS, BTree
from lancedb.rerankers import RRFReranker
from tests.support.lancedb_clients import SPY, Recording, connect, ids_in
from tests.support.roots import LocalPlace

pytestmark = pytest.mark.usefixtures("no_queries_yet")

WORDS = ["red apple", "green apple", "red house", "blue sea", "green tree"]


def notes(first: int = 0) -> pa.Table:
    """Return rows with a text and a vector that points at their number."""
    numbers = range(first, first + len(WORDS))
    vectors = pa.array([[float(each), 0.0] for each in numbers], pa.list_(pa.float32(), 2))
    return pa.table({"id": list(numbers), "text": WORDS, "vector": vectors})


@pytest.fixture
def table(place: LocalPlace) -> Any:
    return connect(place).create_table("t", notes())


def test_lancedb_merge_insert_updates_and_inserts_rows(table: Any, place: LocalPlace) -> None:
    new = notes(3).set_column(1, "text", [["new"] * len(WORDS)])
    table.merge_insert("id").when_matched_update_all().when_not_matched_insert_all().execute(new)
    catalog = place.open()
    assert catalog.count_table_rows({"id": ["t"]}).count == 8
    assert catalog.count_table_rows({"id": ["t"], "predicate": "text = 'new'"}).count == 5


def test_lancedb_indexes_are_listed_by_the_catalog(table: Any, place: LocalPlace) -> None:
    table.create_index("id", config=BTree())
    table.create_index("text", config=FTS())
    catalog = place.open()
    found = catalog.list_table_indices({"id": ["t"]}).indexes
    assert [each.index_name for each in found] == ["id_idx", "text_idx"]
    assert {each.name for each in table.list_indices()} == {"id_idx", "text_idx"}


def test_lancedb_full_text_search_is_pushed_down(table: Any) -> None:
    table.create_index("text", config=FTS())
    assert sorted(ids_in(table.search("apple", query_type="fts").limit(9).to_arrow())) == [0, 1]
    assert len(Recording.queries) == 1
    assert Recording.queries[0].full_text_query is not None


def test_lancedb_hybrid_search_is_pushed_down_as_two_queries(table: Any, place: LocalPlace) -> None:
    table.create_index("text", config=FTS())

    def ask(table: Any) -> list[int]:
        search = table.search(query_type="hybrid").vector([4.0, 0.0]).text("apple")
        return ids_in(search.rerank(RRFReranker()).limit(3).to_arrow())

    answered = ask(table)
    assert len(Recording.queries) == 2
    alone = lancedb.connect_namespace(SPY, place.properties).open_table("t")
    assert answered == ask(alone)
    assert len(Recording.queries) == 2
    assert {4, 0} <= set(answered) or {4, 1} <= set(answered)


def test_lancedb_tags_and_versions_agree_with_the_catalog(table: Any, place: LocalPlace) -> None:
    catalog = place.open()
    table.tags.create("first", 1)
    table.add(notes(10))
    catalog.create_table_tag({"id": ["t"], "tag": "second", "version": 2})
    assert {name: tag["version"] for name, tag in table.tags.list().items()} == {"first": 1, "second": 2}
    assert set(catalog.list_table_tags({"id": ["t"]}).tags) == {"first", "second"}
    assert catalog.get_table_tag_version({"id": ["t"], "tag": "first"}).version == 1
    assert [each["version"] for each in table.list_versions()] == [1, 2]
    assert [each.version for each in catalog.list_table_versions({"id": ["t"]}).versions] == [1, 2]
    table.checkout("first")
    assert table.count_rows() == 5
    table.restore()
    assert catalog.count_table_rows({"id": ["t"]}).count == 5
    assert catalog.describe_table({"id": ["t"], "load_detailed_metadata": True}).version == 3
