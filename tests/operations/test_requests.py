"""The clients people use, unchanged: lance_namespace, pylance, lancedb; requests in every form they send."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import pickle
from collections.abc import Awaitable, Callable
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import lance
import lance_namespace
import lancedb
import pyarrow as pa
import pytest
from lance_namespace import (
    CreateNamespaceRequest,
    DescribeNamespaceRequest,
    DropNamespaceRequest,
    ListNamespacesRequest,
    ListTablesRequest,
    NamespaceExistsRequest,
)
from lance_namespace.errors import (
    ConcurrentModificationError,
    TableAlreadyExistsError,
    TableNotFoundError,
)
from tests.support.codes import INVALID_INPUT, NAMESPACE_EXISTS, TABLE_NOT_FOUND
from tests.support.profiles import MOTO
from tests.support.roots import (
    MORE_ROWS,
    ROWS,
    LocalPlace,
    Place,
    S3Place,
    assert_gone,
    assert_whole,
    create,
    declare,
    describe,
    drop,
    ipc,
    names,
    refused,
    rows,
)

from relance import DirectoryNamespace
from relance.testing.clock import ManualClock

IMPLEMENTATION = "relance.DirectoryNamespace"
VECTORS = [{"id": number, "vector": [float(number), 0.0]} for number in range(5)]


class TestLanceNamespace:
    def test_connect_returns_a_directory_namespace(self, place: Place) -> None:
        catalog = lance_namespace.connect(IMPLEMENTATION, place.properties)
        assert isinstance(catalog, DirectoryNamespace)
        create(catalog, "t")
        assert catalog.list_tables(ListTablesRequest(id=[])).tables == ["t"]

    def test_connect_with_an_unknown_property_names_it(self, local: LocalPlace) -> None:
        with pytest.raises(Exception, match="colour"):
            lance_namespace.connect(IMPLEMENTATION, {**local.properties, "colour": "red"})

    def test_catalog_has_only_the_root_namespace(self, place: Place) -> None:
        catalog = place.open()
        assert catalog.list_namespaces(ListNamespacesRequest(id=[])).namespaces == []
        assert catalog.describe_namespace(DescribeNamespaceRequest(id=[])).properties == {}
        assert catalog.describe_namespace(DescribeNamespaceRequest()).properties == {}
        catalog.namespace_exists(NamespaceExistsRequest(id=[]))
        with refused(NAMESPACE_EXISTS):
            catalog.create_namespace(CreateNamespaceRequest(id=[]))
        with refused(INVALID_INPUT):
            catalog.drop_namespace(DropNamespaceRequest(id=[]))
        assert place.files() == {}


class TestPylance:
    def test_pylance_writes_and_opens_tables_through_the_catalog(self, catalog: DirectoryNamespace) -> None:
        lance.write_dataset(ROWS, namespace_client=catalog, table_id=["t"], mode="create")
        assert_whole(catalog, "t")
        lance.write_dataset(MORE_ROWS, namespace_client=catalog, table_id=["t"], mode="append")
        opened = lance.dataset(namespace_client=catalog, table_id=["t"])
        assert (opened.version, opened.count_rows()) == (2, 5)
        lance.write_dataset(MORE_ROWS, namespace_client=catalog, table_id=["t"], mode="overwrite")
        assert rows(catalog, "t") == MORE_ROWS.to_pylist()
        assert lance.dataset(namespace_client=catalog, table_id=["t"], version=1).to_table() == ROWS

    def test_pylance_create_of_an_existing_table_is_refused(self, catalog: DirectoryNamespace) -> None:
        lance.write_dataset(ROWS, namespace_client=catalog, table_id=["t"], mode="create")
        with pytest.raises(TableAlreadyExistsError):
            lance.write_dataset(MORE_ROWS, namespace_client=catalog, table_id=["t"], mode="create")
        create(catalog, "u")
        with pytest.raises(TableAlreadyExistsError):
            lance.write_dataset(MORE_ROWS, namespace_client=catalog, table_id=["u"], mode="create")
        assert_whole(catalog, "t")
        assert_whole(catalog, "u")

    def test_pylance_append_fills_a_declared_table(self, catalog: DirectoryNamespace) -> None:
        declare(catalog, "t")
        lance.write_dataset(ROWS, namespace_client=catalog, table_id=["t"], mode="append")
        assert_whole(catalog, "t")

    def test_pylance_open_and_append_of_a_missing_table_are_not_found(
        self, catalog: DirectoryNamespace
    ) -> None:
        with pytest.raises(TableNotFoundError):
            lance.dataset(namespace_client=catalog, table_id=["t"])
        with pytest.raises(TableNotFoundError):
            lance.write_dataset(ROWS, namespace_client=catalog, table_id=["t"], mode="append")
        assert names(catalog) == []

    def test_pylance_can_change_an_open_dataset_in_place(self, catalog: DirectoryNamespace) -> None:
        create(catalog, "t")
        opened = lance.dataset(namespace_client=catalog, table_id=["t"])
        opened.delete("id = 1")
        opened.update({"name": "'z'"}, where="id = 2")
        opened.merge_insert("id").when_matched_update_all().when_not_matched_insert_all().execute(
            pa.table({"id": [3, 9], "name": ["y", "n"]})
        )
        found = {row["id"]: row["name"] for row in rows(catalog, "t")}
        assert found == {2: "z", 3: "y", 9: "n"}

    def test_pylance_does_not_find_a_dropped_table(self, catalog: DirectoryNamespace) -> None:
        create(catalog, "t")
        drop(catalog, "t")
        with pytest.raises(TableNotFoundError):
            lance.dataset(namespace_client=catalog, table_id=["t"])


@pytest.mark.parametrize("place", ["disk", MOTO, "compatibility"], indirect=True)
@pytest.mark.parametrize("tracking", ["false", "true"])
class TestLancedb:
    @pytest.fixture
    def properties(self, place: Place, tracking: str) -> dict[str, Any]:
        return {**place.properties, "table_version_tracking_enabled": tracking}

    @pytest.fixture
    def database(self, properties: dict[str, Any]) -> Any:
        return lancedb.connect_namespace(IMPLEMENTATION, properties)

    def test_lancedb_can_create_change_search_and_drop_a_table(self, database: Any, place: Place) -> None:
        table = database.create_table("t", VECTORS)
        assert table.count_rows() == 5
        table.add([{"id": 9, "vector": [9.0, 0.0]}])
        table.delete("id = 0")
        table.update(where="id = 1", values={"id": 100})
        found = database.open_table("t").search([8.5, 0.0]).limit(2).to_list()
        assert [row["id"] for row in found] == [9, 4]
        filtered = database.open_table("t").search().where("id = 100").to_list()
        assert [row["vector"] for row in filtered] == [[1.0, 0.0]]
        assert database.open_table("t").count_rows() == 5
        database.drop_table("t")
        assert_gone(place.open(), "t")

    def test_lancedb_lists_tables_in_pages(self, database: Any, place: Place) -> None:
        catalog = place.open()
        for name in ("b", "a", "c"):
            create(catalog, name)
        assert database.list_tables().tables == ["a", "b", "c"]
        page = database.list_tables(limit=2)
        assert page.tables == ["a", "b"]
        assert database.list_tables(page_token=page.page_token, limit=2).tables == ["c"]
        database.drop_table("b")
        assert names(catalog) == ["a", "c"]

    def test_lancedb_and_the_catalog_see_each_others_tables(self, database: Any, place: Place) -> None:
        create(place.open(), "ours")
        assert database.open_table("ours").to_arrow() == ROWS
        database.create_table("theirs", ROWS)
        assert_whole(place.open(), "theirs")

    def test_lancedb_create_modes_are_honoured(self, database: Any) -> None:
        database.create_table("t", VECTORS)
        with pytest.raises(Exception, match="already exists"):
            database.create_table("t", VECTORS)
        assert database.create_table("t", VECTORS[:1], exist_ok=True).count_rows() == 5
        assert database.create_table("t", VECTORS[:2], mode="overwrite").count_rows() == 2
        assert database.open_table("t").count_rows() == 2

    def test_lancedb_creates_an_empty_table_from_a_schema(self, database: Any) -> None:
        table = database.create_table("t", schema=pa.schema([("id", pa.int64())]))
        table.add([{"id": 1}])
        assert database.open_table("t").to_arrow().to_pylist() == [{"id": 1}]

    def test_lancedb_open_and_drop_of_a_missing_table_are_not_found(self, database: Any) -> None:
        with pytest.raises(Exception, match="not found"):
            database.open_table("t")
        with pytest.raises(Exception, match="not found"):
            database.drop_table("t")
        assert database.table_exists(["t"]) is False

    def test_lancedb_versions_tags_and_optimize_work(self, database: Any) -> None:
        table = database.create_table("t", VECTORS)
        table.add(VECTORS)
        assert [each["version"] for each in table.list_versions()] == [1, 2]
        table.tags.create("first", 1)
        table.checkout("first")
        assert table.count_rows() == 5
        table.checkout_latest()
        assert table.count_rows() == 10
        table.optimize()
        table.restore(1)
        assert database.open_table("t").count_rows() == 5

    def test_lancedb_async_client_works(self, properties: dict[str, Any], place: Place) -> None:
        async def use() -> list[int]:
            database: Any = lancedb.connect_namespace_async(IMPLEMENTATION, properties)
            if isinstance(database, Awaitable):
                database = await database
            table = await database.create_table("t", VECTORS)
            await table.add([{"id": 9, "vector": [9.0, 0.0]}])
            await table.delete("id = 0")
            assert (await database.list_tables()).tables == ["t"]
            opened = await database.open_table("t")
            assert await opened.count_rows() == 5
            found = await (await opened.search([8.5, 0.0])).limit(2).to_list()
            create(place.open(), "u")
            assert (await database.list_tables()).tables == ["t", "u"]
            await database.drop_table("t")
            assert (await database.list_tables()).tables == ["u"]
            return [row["id"] for row in found]

        assert asyncio.run(use()) == [9, 4]
        assert_gone(place.open(), "t")


class DictWithModelDump(dict[str, Any]):
    """What Lance's Rust side sends: a dictionary that can do nothing of a model but dump itself."""

    def model_dump(self) -> dict[str, Any]:
        """Return the plain dictionary."""
        return dict(self)


class TestRequestForms:
    @pytest.fixture(params=["dictionary", "dictionary with model_dump"])
    def form(self, request: pytest.FixtureRequest) -> Callable[..., Any]:
        return dict if request.param == "dictionary" else DictWithModelDump

    def test_every_operation_accepts_dictionaries(self, form: Callable[..., Any], local: LocalPlace) -> None:
        catalog: Any = local.open()
        catalog.declare_table(form(id=["t"]))
        catalog.create_table(form(id=["t"], mode="Create"), ipc(ROWS))
        assert catalog.list_tables(form(id=[], limit=5)).tables == ["t"]
        assert catalog.list_all_tables(form()).tables == ["t"]
        assert catalog.describe_table(form(id=["t"], load_detailed_metadata=True)).version == 1
        catalog.table_exists(form(id=["t"]))
        assert [v.version for v in catalog.list_table_versions(form(id=["t"], descending=True)).versions] == [
            1
        ]
        assert catalog.describe_table_version(form(id=["t"], version=1)).version.version == 1
        local.put("t.lance/_versions/staged", b"2")
        staged = f"{local.root}/t.lance/_versions/staged"
        made = catalog.create_table_version(form(id=["t"], version=2, manifest_path=staged))
        assert made.version.version == 2
        assert catalog.batch_create_table_versions(form(entries=[])).versions == []
        ranges = [form(start_version=2, end_version=3)]
        assert catalog.batch_delete_table_versions(form(id=["t"], ranges=ranges)).deleted_count == 1
        catalog.deregister_table(form(id=["t"]))
        catalog.register_table(form(id=["t"], location="t.lance"))
        assert catalog.list_namespaces(form(id=[])).namespaces == []
        catalog.describe_namespace(form(id=[]))
        catalog.namespace_exists(form(id=[]))
        assert catalog.drop_table(form(id=["t"])).id == ["t"]

    def test_unknown_request_keys_are_ignored(self, form: Callable[..., Any], local: LocalPlace) -> None:
        catalog: Any = local.open()
        assert catalog.list_tables(form(id=[], not_in_the_spec=1)).tables == []

    def test_request_value_of_the_wrong_type_is_refused_and_named(
        self, form: Callable[..., Any], local: LocalPlace
    ) -> None:
        catalog: Any = local.open()
        with refused(INVALID_INPUT) as caught:
            catalog.list_tables(form(id=[], limit="many"))
        assert "limit" in str(caught.value)

    @pytest.mark.parametrize(
        "request_", [None, "t", 7, ["t"], object()], ids=lambda each: type(each).__name__
    )
    def test_object_that_is_no_request_is_refused(self, request_: Any, local: LocalPlace) -> None:
        catalog: Any = local.open()
        for call in (catalog.list_tables, catalog.describe_table, catalog.drop_table):
            with refused(INVALID_INPUT):
                call(request_)

    def test_request_model_of_a_related_operation_is_accepted(self, local: LocalPlace) -> None:
        catalog: Any = local.open()
        create(catalog, "t")
        catalog.table_exists(lance_namespace.DescribeTableRequest(id=["t"]))


def names_in_this_process(pickled: bytes) -> tuple[int, list[str]]:
    """Unpickle a catalog and list its tables; return the process as well."""
    catalog = pickle.loads(pickled)
    create(catalog, "made elsewhere")
    return os.getpid(), names(catalog)


class TestPickling:
    @pytest.mark.deep
    @pytest.mark.parametrize("place", ["disk", MOTO, "compatibility"], indirect=True)
    def test_pickled_catalog_works_in_another_process(self, place: Place) -> None:
        catalog = place.open()
        create(catalog, "t")
        context = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(1, mp_context=context) as pool:
            process, seen = pool.submit(names_in_this_process, pickle.dumps(catalog)).result(60)
        assert process != os.getpid()
        assert seen == ["made elsewhere", "t"]
        assert_whole(catalog, "made elsewhere")

    def test_pickled_catalog_keeps_its_properties_and_clock(self, moto: S3Place) -> None:
        catalog = DirectoryNamespace(
            clock=ManualClock(), **moto.properties, table_version_tracking_enabled="true"
        )
        again = pickle.loads(pickle.dumps(catalog))
        create(again, "t")
        assert describe(again, "t").managed_versioning is True
        assert again.namespace_id() == catalog.namespace_id()
        assert_whole(catalog, "t")

    def test_pickled_catalog_keeps_the_absolute_path_of_a_relative_root(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (tmp_path / "elsewhere").mkdir()
        monkeypatch.chdir(tmp_path)
        catalog = DirectoryNamespace(root="lake")
        create(catalog, "t")
        pickled = pickle.dumps(catalog)
        monkeypatch.chdir(tmp_path / "elsewhere")
        assert_whole(catalog, "t")
        assert_whole(pickle.loads(pickled), "t")

    def test_dataset_opened_through_the_catalog_is_picklable(self, local: LocalPlace) -> None:
        catalog = local.open()
        create(catalog, "t")
        opened = lance.dataset(namespace_client=catalog, table_id=["t"])
        assert pickle.loads(pickle.dumps(opened)).to_table() == ROWS

    def test_errors_are_picklable(self, local: LocalPlace) -> None:
        with refused(TABLE_NOT_FOUND) as caught:
            describe(local.open(), "t")
        again = pickle.loads(pickle.dumps(caught.value))
        assert (type(again), str(again), again.code) == (
            type(caught.value),
            str(caught.value),
            caught.value.code,
        )


class TestThreads:
    @pytest.mark.parametrize("place", ["disk", MOTO, "compatibility"], indirect=True)
    def test_threads_can_share_one_catalog(self, place: Place) -> None:
        catalog = place.open()

        def live(number: int) -> None:
            name = f"t{number}"
            own = pa.table({"number": [number]})
            create(catalog, name, own)
            assert rows(catalog, name) == [{"number": number}]
            assert name in names(catalog)
            if number % 3 == 0:
                drop(catalog, name)
                assert name not in names(catalog)

        with ThreadPoolExecutor(8) as pool:
            for _ in pool.map(live, range(24)):
                pass
        assert names(catalog) == sorted(f"t{number}" for number in range(24) if number % 3)

    @pytest.mark.parametrize("place", ["disk", MOTO, "compatibility"], indirect=True)
    def test_one_of_many_threads_creates_a_table(self, place: Place) -> None:
        catalog = place.open()

        def attempt(number: int) -> int | None:
            try:
                create(catalog, "t", pa.table({"number": [number]}))
            except (TableAlreadyExistsError, ConcurrentModificationError):
                return None
            return number

        with ThreadPoolExecutor(8) as pool:
            won = [number for number in pool.map(attempt, range(8)) if number is not None]
        assert len(won) == 1
        assert rows(catalog, "t") == [{"number": won[0]}]

    def test_first_use_of_a_root_is_safe_from_many_threads(self, place: Place) -> None:
        with ThreadPoolExecutor(8) as pool:
            for _ in pool.map(lambda number: declare(place.open(), f"t{number}"), range(16)):
                pass
        assert names(place.open()) == sorted(f"t{number}" for number in range(16))


class TestMemoryRoots:
    def test_memory_roots_of_one_name_share_a_catalog_within_the_process(self, memory: LocalPlace) -> None:
        create(memory.open(), "t")
        assert_whole(memory.open(), "t")

    def test_memory_roots_of_different_names_are_separate(self, memory: LocalPlace) -> None:
        create(memory.open(), "t")
        assert names(DirectoryNamespace(root=f"{memory.root}-other")) == []

    def test_lancedb_and_pylance_can_use_a_memory_root(self, memory: LocalPlace) -> None:
        database = lancedb.connect_namespace(IMPLEMENTATION, memory.properties)
        database.create_table("t", VECTORS)
        assert lance.dataset(namespace_client=memory.open(), table_id=["t"]).count_rows() == 5
