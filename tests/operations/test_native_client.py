"""Native and ours over one root, in both directions: each sees what the other made."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from typing import Any

import lance
import pyarrow as pa
import pytest
from lance_namespace import DropTableRequest, ListTablesRequest, ListTableVersionsRequest
from lance_namespace.errors import LanceNamespaceError
from tests.support.codes import TABLE_EXISTS
from tests.support.profiles import MOTO
from tests.support.roots import (
    MORE_ROWS,
    ROWS,
    Place,
    S3Place,
    assert_gone,
    assert_whole,
    create,
    dataset,
    declare,
    deregister,
    describe,
    drop,
    exists,
    names,
    native,
    refused,
    register,
    rows,
    versions,
)

from relance import DirectoryNamespace


@pytest.fixture(params=["disk", MOTO])
def place(request: pytest.FixtureRequest) -> Place:
    """An empty root on the stores that native has as well."""
    found: Place = request.getfixturevalue(request.param)
    return found


@pytest.fixture(params=["ours first", "native first"])
def both(request: pytest.FixtureRequest, place: Place) -> tuple[DirectoryNamespace, Any]:
    """Our catalog and the native one, over a root in which either made the first table."""
    ours, theirs = place.open(), native(place)
    create(ours if request.param == "ours first" else theirs, "first")
    return ours, theirs


Both = tuple[DirectoryNamespace, Any]


def given_fields(response: Any) -> dict[str, Any]:
    """Return the fields that a response gives."""
    dumped: dict[str, Any] = response.model_dump(exclude_none=True)
    return dumped


class TestBothDirections:
    def test_both_clients_list_read_and_append_to_each_others_tables(self, both: Both) -> None:
        ours, theirs = both
        create(ours, "by-ours")
        create(theirs, "by-native")
        assert names(ours) == names(theirs) == ["by-native", "by-ours", "first"]
        for catalog in both:
            for name in ("by-native", "by-ours"):
                assert exists(catalog, name)
                lance.write_dataset(MORE_ROWS, namespace_client=catalog, table_id=[name], mode="append")
        for name in ("by-native", "by-ours"):
            assert len(rows(ours, name)) == ROWS.num_rows + 2 * MORE_ROWS.num_rows
            assert versions(ours, name) == versions(theirs, name) == [1, 2, 3]

    def test_create_of_the_other_clients_table_is_refused(self, both: Both) -> None:
        ours, theirs = both
        create(ours, "a")
        create(theirs, "b")
        for catalog in both:
            for name in ("a", "b"):
                with refused(TABLE_EXISTS):
                    create(catalog, name)
                with refused(TABLE_EXISTS):
                    declare(catalog, name)

    def test_drop_of_the_other_clients_table_works(self, both: Both) -> None:
        ours, theirs = both
        create(ours, "a")
        create(theirs, "b")
        drop(theirs, "a")
        drop(ours, "b")
        assert names(ours) == ["first"]
        for name in ("a", "b"):
            assert_gone(ours, name)

    def test_table_declared_by_one_client_is_filled_by_the_other(self, both: Both) -> None:
        ours, theirs = both
        declare(ours, "a")
        declare(theirs, "b")
        assert names(ours) == names(theirs) == ["a", "b", "first"]
        for catalog in both:
            for name in ("a", "b"):
                assert describe(catalog, name, check_declared=True).is_only_declared is True
        create(theirs, "a")
        create(ours, "b")
        assert_whole(ours, "a")
        assert_whole(ours, "b")
        for name in ("a", "b"):
            assert describe(theirs, name, check_declared=True).is_only_declared is False
        assert names(theirs, include_declared=False) == ["a", "b", "first"]

    def test_native_client_excludes_tables_declared_by_relance(self, both: Both) -> None:
        ours, theirs = both
        declare(ours, "declared")
        assert names(theirs, include_declared=False) == names(ours, include_declared=False) == ["first"]

    def test_deregistered_table_is_hidden_from_both_clients(self, both: Both) -> None:
        ours, theirs = both
        create(ours, "a")
        deregister(ours, "a")
        assert names(theirs) == ["first"]
        assert not exists(theirs, "a")
        register(ours, "a")
        assert names(ours) == names(theirs) == ["a", "first"]
        assert_whole(ours, "a")

    def test_table_dropped_and_recreated_is_seen_by_the_native_client(self, both: Both) -> None:
        ours, theirs = both
        create(ours, "t")
        drop(ours, "t")
        create(ours, "t", MORE_ROWS)
        assert names(theirs) == ["first", "t"]
        assert lance.dataset(namespace_client=theirs, table_id=["t"]).to_table() == MORE_ROWS


class TestOnDisk:
    """Where looking into every table costs nothing, nothing of the other client's may be missed."""

    @pytest.fixture(params=["disk"])
    def place(self, request: pytest.FixtureRequest) -> Place:
        found: Place = request.getfixturevalue(request.param)
        return found

    def test_table_declared_by_the_native_client_on_disk_can_be_excluded(self, both: Both) -> None:
        ours, theirs = both
        declare(theirs, "declared")
        assert names(ours, include_declared=False) == names(theirs, include_declared=False) == ["first"]

    def test_table_deregistered_by_the_native_client_can_be_registered_again(self, both: Both) -> None:
        ours, theirs = both
        create(theirs, "t")
        deregister(theirs, "t")
        assert_gone(ours, "t")
        register(ours, "t")
        assert_whole(ours, "t")
        assert names(theirs) == ["first", "t"]


class TestOnS3:
    def test_native_markers_on_s3_are_honoured_in_a_native_root(self, moto: S3Place) -> None:
        theirs = native(moto)
        for name in ("a", "b", "hidden"):
            create(theirs, name)
        declare(theirs, "declared")
        deregister(theirs, "hidden")
        ours = moto.open()
        create(ours, "ours")
        assert names(ours) == names(theirs) == ["a", "b", "declared", "ours"]
        without = ["a", "b", "ours"]
        assert names(ours, include_declared=False) == names(theirs, include_declared=False) == without
        assert_gone(ours, "hidden")


class TestEqualResponses:
    def test_listings_and_pages_match_the_native_client(self, both: Both) -> None:
        ours, theirs = both
        for name in ("b", "A", "z10", "z9", "_u", "t.x", "a b"):
            create(theirs, name)
        declare(ours, "declared")
        for include_declared in (None, True, False):
            assert names(ours, include_declared=include_declared) == names(
                theirs, include_declared=include_declared
            )
        for limit in (-1, 0, 1, 2, 3, 8, 9, 10):
            token: str | None = None
            while True:
                request = ListTablesRequest(id=[], limit=limit, page_token=token)
                page = ours.list_tables(request)
                assert given_fields(page) == given_fields(theirs.list_tables(request))
                token = page.page_token
                if token is None:
                    break
        for token in ("", "A", "b", "nothing", "zzz"):
            request = ListTablesRequest(id=[], page_token=token)
            assert given_fields(ours.list_tables(request)) == given_fields(theirs.list_tables(request))

    def test_descriptions_match_the_native_client(self, both: Both) -> None:
        ours, theirs = both
        create(ours, "ours", pa.table({"v": pa.array([[1.0, 2.0]], pa.list_(pa.float32(), 2)), "s": ["x"]}))
        dataset(ours, "first").delete("id = 1")
        declare(theirs, "declared")
        for name in ("first", "ours", "declared"):
            for fields in ({}, {"check_declared": True}, {"load_detailed_metadata": True}):
                mine, native_one = (given_fields(describe(catalog, name, **fields)) for catalog in both)
                shared = mine.keys() & native_one.keys()
                assert {"table", "namespace", "location", "table_uri"} <= shared
                assert {key: mine[key] for key in shared} == {key: native_one[key] for key in shared}
                # Native says "no options" with an empty dictionary, we by saying nothing.
                assert native_one.keys() - {"storage_options"} <= mine.keys(), "we tell what native tells"

    def test_descriptions_of_a_version_match_the_native_client(self, both: Both) -> None:
        dataset(both[0], "first").insert(MORE_ROWS)
        for version in (1, 2):
            fields = {"version": version, "load_detailed_metadata": True}
            mine, native_one = (given_fields(describe(catalog, "first", **fields)) for catalog in both)
            for key in ("version", "var_schema", "metadata"):
                assert mine[key] == native_one[key]

    def test_versions_match_the_native_client(self, both: Both) -> None:
        ours, theirs = both
        for _ in range(3):
            dataset(ours, "first").insert(MORE_ROWS)
        for fields in (
            {},
            {"descending": True},
            {"limit": 2},
            {"limit": 2, "descending": True},
            {"limit": 0},
        ):
            assert versions(ours, "first", **fields) == versions(theirs, "first", **fields)
        request = ListTableVersionsRequest(id=["first"])
        for mine, native_one in zip(
            ours.list_table_versions(request).versions,
            theirs.list_table_versions(request).versions,
            strict=True,
        ):
            assert mine.manifest_path == native_one.manifest_path
            assert mine.manifest_size == native_one.manifest_size
            assert mine.timestamp_millis is not None
            assert abs(mine.timestamp_millis - native_one.timestamp_millis) <= 1

    def test_versions_asked_for_with_a_dictionary_come_as_one(self, both: Both) -> None:
        ours, theirs = both
        dataset(ours, "first").insert(MORE_ROWS)
        several: list[dict[str, Any]] = [{}, {"version": 1}, {"version": 2}]
        for fields in several:
            request = {"id": ["first"], **fields}
            mine, native_one = ours.describe_table_version(request), theirs.describe_table_version(request)
            assert isinstance(mine, dict)
            assert mine.keys() == native_one.keys()
            assert mine["version"].keys() == native_one["version"].keys()
            for key in ("version", "manifest_path", "manifest_size"):
                assert mine["version"][key] == native_one["version"][key]
            assert json.loads(json.dumps(mine)) == mine == pickle.loads(pickle.dumps(mine))
            assert mine.version.version == mine["version"]["version"]
        nothing = {"id": ["first"], "ranges": [{"start_version": 100, "end_version": 200}]}
        assert ours.batch_delete_table_versions(nothing) == theirs.batch_delete_table_versions(nothing)

    def test_declare_create_and_drop_responses_match_the_native_client(self, both: Both) -> None:
        acts: list[Callable[[Any, str], Any]] = [
            declare,
            create,
            lambda catalog, name: catalog.drop_table(DropTableRequest(id=[name])),
        ]
        for act in acts:
            mine, native_one = (given_fields(act(catalog, f"t{n}")) for n, catalog in enumerate(both))
            for key in ("location", "version"):
                assert str(mine.get(key)).replace("t0.lance", "t1.lance") == str(native_one.get(key))

    def test_error_codes_match_the_native_client(self, both: Both) -> None:
        ours, theirs = both
        for call in (
            lambda catalog: describe(catalog, "missing"),
            lambda catalog: deregister(catalog, "missing"),
            lambda catalog: versions(catalog, "missing"),
            lambda catalog: create(catalog, "first"),
            lambda catalog: declare(catalog, "first"),
            lambda catalog: describe(catalog, "first", version=99, load_detailed_metadata=True),
            lambda catalog: declare(catalog, "t", properties={"a": "b"}),
        ):
            with pytest.raises(LanceNamespaceError) as mine:
                call(ours)
            with pytest.raises(LanceNamespaceError) as native_one:
                call(theirs)
            assert int(mine.value.code) == int(native_one.value.code)
            prefix = str(native_one.value).partition(": ")[0]
            assert str(mine.value).startswith(f"{prefix}: "), "lancedb knows errors by this text"
