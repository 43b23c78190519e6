"""lancedb on our catalog: its own writes, and queries that it hands over to us."""

from __future__ import annotations

import asyncio

import lancedb
import pytest
from tests.support.lancedb_clients import SPY, Recording, connect, ids_in
from tests.support.roots import LocalPlace
from tests.support.rows import count, people

pytestmark = pytest.mark.usefixtures("no_queries_yet")


def test_lancedb_writes_are_visible_and_its_searches_are_pushed_down(place: LocalPlace) -> None:
    table = connect(place).create_table("t", people(range(10)))
    table.add(people([100]))
    table.update(where="id = 100", values={"name": "other"})
    table.delete("id < 2")
    catalog = place.open()
    assert count(catalog) == 9
    assert count(catalog, predicate="name = 'other'") == 1

    assert ids_in(table.search([3.0, 0.0]).limit(1).to_arrow()) == [3]
    assert ids_in(table.search([3.0, 0.0]).where("id > 6").limit(2).to_arrow()) == [7, 8]
    assert ids_in(table.search([3.0, 0.0]).where("id > 6", prefilter=False).limit(2).to_arrow()) == []
    assert ids_in(table.search([9.0, 0.0]).limit(2).offset(1).to_arrow()) == [8, 7]
    assert ids_in(table.search().where("id > 7").to_arrow()) == [8, 9, 100]
    assert table.search([3.0, 0.0]).select(["id"]).limit(1).to_list() == [{"id": 3, "_distance": 0.0}]
    assert len(Recording.queries) == 6


def test_catalog_writes_are_visible_to_lancedb(place: LocalPlace) -> None:
    database = connect(place)
    database.create_table("t", people(range(3)))
    place.open().delete_from_table({"id": ["t"], "predicate": "id = 1"})
    assert ids_in(database.open_table("t").search().to_arrow()) == [0, 2]


def test_query_pushed_down_from_a_rust_thread_is_answered(place: LocalPlace) -> None:
    connect(place).create_table("t", people(range(10)))

    async def ask() -> list[int]:
        database = lancedb.connect_namespace_async(
            SPY, place.properties, namespace_client_pushdown_operations=["QueryTable"]
        )
        table = await database.open_table("t")
        return ids_in(await table.query().where("id > 6").to_arrow())

    assert asyncio.run(ask()) == [7, 8, 9]
    assert len(Recording.queries) == 1
    assert isinstance(Recording.queries[0], dict)


@pytest.mark.parametrize("search", ["vector", "filter"])
def test_pushed_down_query_returns_the_same_rows_as_a_local_one(place: LocalPlace, search: str) -> None:
    connect(place).create_table("t", people(range(20)))
    answers = []
    for handed_over in (["QueryTable"], []):
        database = lancedb.connect_namespace(
            SPY, place.properties, namespace_client_pushdown_operations=handed_over
        )
        table = database.open_table("t")
        query = table.search([5.2, 0.0]) if search == "vector" else table.search()
        answers.append(query.where("id % 3 = 0").limit(4).offset(1).to_arrow())
    assert answers[0] == answers[1]
    assert len(Recording.queries) == 1
