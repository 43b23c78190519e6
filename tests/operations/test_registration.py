"""deregister_table hides a table from everybody, register_table brings it back; nothing else moves."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lance
import lancedb
import pytest
from lance_namespace import DeregisterTableRequest, RegisterTableRequest
from lance_namespace.errors import TableNotFoundError
from tests.support.codes import INVALID_INPUT, TABLE_EXISTS, TABLE_NOT_FOUND, UNSUPPORTED
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
    deregister,
    describe,
    drop,
    exists,
    names,
    native,
    refused,
    register,
    rows,
)

from relance import DirectoryNamespace


class TestRoundTrips:
    def test_a_deregistered_table_comes_back_whole(self, catalog: DirectoryNamespace) -> None:
        create(catalog, "t")
        deregister(catalog, "t")
        assert_gone(catalog, "t")
        register(catalog, "t")
        assert_whole(catalog, "t")

    def test_it_can_go_and_come_back_again_and_again(self, catalog: DirectoryNamespace) -> None:
        create(catalog, "t")
        for _ in range(3):
            deregister(catalog, "t")
            assert_gone(catalog, "t")
            register(catalog, "t")
            assert_whole(catalog, "t")

    def test_the_responses_tell_the_location(self, catalog: DirectoryNamespace) -> None:
        location = create(catalog, "t").location
        hidden = catalog.deregister_table(DeregisterTableRequest(id=["t"]))
        assert (hidden.id, hidden.location) == (["t"], location)
        shown = catalog.register_table(RegisterTableRequest(id=["t"], location="t.lance"))
        assert shown.location == location

    def test_a_declared_table_can_go_and_come_back(self, catalog: DirectoryNamespace) -> None:
        declare(catalog, "t")
        deregister(catalog, "t")
        assert_gone(catalog, "t")
        register(catalog, "t")
        assert names(catalog) == ["t"]
        assert describe(catalog, "t", check_declared=True).is_only_declared is True

    def test_data_is_not_touched(self, place: Place, catalog: DirectoryNamespace) -> None:
        create(catalog, "t")
        data = {
            key: body
            for key, body in place.files().items()
            if key.startswith(("t.lance/data/", "t.lance/_v"))
        }
        assert len(data) >= 2
        deregister(catalog, "t")
        register(catalog, "t")
        after = place.files()
        assert data.items() <= after.items()
        assert "t.lance/.lance-deregistered" not in after

    def test_other_tables_stay_where_they_are(self, catalog: DirectoryNamespace) -> None:
        for name in ("a", "b", "c"):
            create(catalog, name)
        deregister(catalog, "b")
        assert names(catalog) == ["a", "c"]
        assert_whole(catalog, "a")


class TestHidden:
    def test_every_operation_but_register_and_drop_refuses_it(self, catalog: Any) -> None:
        create(catalog, "t")
        deregister(catalog, "t")
        requests: dict[str, dict[str, Any]] = {
            "describe_table": {},
            "table_exists": {},
            "deregister_table": {},
            "list_table_versions": {},
            "describe_table_version": {},
            "create_table_version": {"version": 2, "manifest_path": "x"},
            "batch_delete_table_versions": {"ranges": [{"start_version": 1, "end_version": 2}]},
        }
        for name, request in requests.items():
            with refused(TABLE_NOT_FOUND):
                getattr(catalog, name)({"id": ["t"], **request})

    def test_the_message_says_how_to_bring_it_back(self, local: LocalPlace) -> None:
        catalog = local.open()
        create(catalog, "t")
        deregister(catalog, "t")
        with refused(TABLE_NOT_FOUND) as caught:
            describe(catalog, "t")
        assert "register_table" in str(caught.value)
        assert "t.lance" in str(caught.value)

    @pytest.mark.parametrize("place", ["disk", "memory", "moto"], indirect=True)
    def test_its_name_stays_taken_where_the_directory_is_the_name(self, catalog: DirectoryNamespace) -> None:
        create(catalog, "t")
        deregister(catalog, "t")
        with refused(TABLE_EXISTS):
            create(catalog, "t", MORE_ROWS)
        with refused(TABLE_EXISTS):
            declare(catalog, "t")
        with refused(TABLE_EXISTS):
            lance.write_dataset(MORE_ROWS, namespace_client=catalog, table_id=["t"], mode="create")
        register(catalog, "t")
        assert_whole(catalog, "t")

    def test_clients_do_not_find_it(self, local: LocalPlace) -> None:
        catalog = local.open()
        create(catalog, "t")
        deregister(catalog, "t")
        with pytest.raises(TableNotFoundError):
            lance.dataset(namespace_client=catalog, table_id=["t"])
        with pytest.raises(TableNotFoundError):
            lance.write_dataset(ROWS, namespace_client=catalog, table_id=["t"], mode="append")
        database = lancedb.connect_namespace("relance.DirectoryNamespace", local.properties)
        assert database.list_tables().tables == []
        with pytest.raises(Exception, match="not found"):
            database.open_table("t")

    @pytest.mark.parametrize("place", ["disk", "moto"], indirect=True)
    def test_native_does_not_see_it_until_it_is_back(self, place: Place) -> None:
        catalog = place.open()
        create(catalog, "t")
        create(catalog, "u")
        deregister(catalog, "t")
        assert names(native(place)) == ["u"]
        assert not exists(native(place), "t")
        register(catalog, "t")
        assert names(native(place)) == ["t", "u"]
        assert exists(native(place), "t")

    @pytest.mark.parametrize("place", ["disk", "moto"], indirect=True)
    def test_one_that_native_hid_comes_back_through_register(self, place: Place) -> None:
        create(native(place), "t")
        deregister(native(place), "t")
        catalog = place.open()
        assert_gone(catalog, "t")
        register(catalog, "t")
        assert_whole(catalog, "t")
        assert names(native(place)) == ["t"]

    def test_one_hidden_by_the_marker_alone_stays_hidden(self, place: Place) -> None:
        # A register that stopped half-way has removed the file inside and not yet swapped the marker.
        catalog = place.open()
        create(catalog, "t")
        deregister(catalog, "t")
        place.remove("t.lance/.lance-deregistered")
        assert_gone(catalog, "t")
        register(catalog, "t")
        assert_whole(catalog, "t")

    def test_deregistering_it_twice_is_refused(self, catalog: DirectoryNamespace) -> None:
        create(catalog, "t")
        deregister(catalog, "t")
        with refused(TABLE_NOT_FOUND):
            deregister(catalog, "t")

    def test_a_table_that_is_not_there_cannot_be_hidden(self, place: Place) -> None:
        with refused(TABLE_NOT_FOUND):
            deregister(place.open(), "t")
        assert place.files() == {}


class TestLocations:
    def test_the_table_s_own_location_may_be_relative_or_absolute(self, place: Place) -> None:
        catalog = place.open()
        location = create(catalog, "t").location
        assert location is not None
        for spelling in ("t.lance", "t.lance/", location, f"{location}/"):
            deregister(catalog, "t")
            register(catalog, "t", location=spelling)
            assert_whole(catalog, "t")

    def test_a_file_uri_names_a_local_location(self, local: LocalPlace) -> None:
        catalog = local.open()
        create(catalog, "t")
        deregister(catalog, "t")
        register(catalog, "t", location=f"file://{local.root}/t.lance")
        assert_whole(catalog, "t")

    @pytest.mark.parametrize(
        "location",
        [
            "", ".", "..", "/", "./", "t.lance/..", "../t.lance", "../elsewhere/t.lance", "x/../t.lance",
            "./t.lance", "t.lance/.", "u.lance", "t", "t.lance/data", "t.lance/_versions", ".relance-root",
            "__manifest", "/etc", "/t.lance", "//t.lance", "s3://bucket/t.lance", "s3://other/lake/t.lance",
            "gs://bucket/t.lance", "file:///etc", "memory://x/t.lance", "http://host/t.lance", "t.lance\0",
            "t.lance?x", "t%2elance", " ", "\n",
        ],
        ids=ascii,
    )  # fmt: skip
    def test_any_other_location_is_refused_and_nothing_moves(self, location: str, disk: LocalPlace) -> None:
        catalog = disk.open()
        create(catalog, "t")
        create(catalog, "u", MORE_ROWS)
        deregister(catalog, "t")
        before = disk.files()
        with refused(INVALID_INPUT):
            register(catalog, "t", location=location)
        assert disk.files() == before
        assert_whole(catalog, "u", MORE_ROWS)

    def test_the_root_itself_and_places_outside_it_are_refused(
        self, disk: LocalPlace, tmp_path: Path
    ) -> None:
        catalog = disk.open()
        create(catalog, "t")
        deregister(catalog, "t")
        outside = [tmp_path / "t.lance", tmp_path / "root2" / "t.lance", disk.folder / "x" / "t.lance"]
        for location in (disk.root, f"{disk.root}/", f"file://{disk.root}", *map(str, outside)):
            with refused(INVALID_INPUT):
                register(catalog, "t", location=location)
        assert_gone(catalog, "t")

    def test_another_bucket_or_prefix_is_refused(self, moto: S3Place) -> None:
        catalog = moto.open()
        create(catalog, "t")
        deregister(catalog, "t")
        for location in (
            moto.root,
            f"s3://{moto.bucket}/t.lance",
            f"s3://{moto.bucket}/{moto.prefix}2/t.lance",
            f"s3://{moto.bucket}2/{moto.prefix}/t.lance",
            f"{moto.root}/u.lance",
            f"{moto.root}/../{moto.prefix}/t.lance",
        ):
            with refused(INVALID_INPUT):
                register(catalog, "t", location=location)
        assert_gone(catalog, "t")

    def test_there_must_be_a_table_at_the_location(self, place: Place) -> None:
        catalog = place.open()
        with refused(TABLE_NOT_FOUND):
            register(catalog, "t")
        assert place.files() == {}


class TestModes:
    def test_a_visible_table_is_registered_already(self, catalog: DirectoryNamespace) -> None:
        create(catalog, "t")
        for mode in (None, "create", "CREATE"):
            with refused(TABLE_EXISTS):
                register(catalog, "t", mode=mode)

    def test_overwrite_takes_a_visible_table_as_it_is(self, catalog: DirectoryNamespace) -> None:
        create(catalog, "t")
        register(catalog, "t", mode="Overwrite")
        assert_whole(catalog, "t")

    def test_an_unknown_mode_and_properties_are_refused(self, disk: LocalPlace) -> None:
        catalog = disk.open()
        create(catalog, "t")
        deregister(catalog, "t")
        with refused(INVALID_INPUT):
            register(catalog, "t", mode="bogus")
        with refused(UNSUPPORTED):
            register(catalog, "t", properties={"owner": "me"})
        assert_gone(catalog, "t")


class TestDrop:
    def test_a_deregistered_table_can_be_dropped(self, catalog: DirectoryNamespace) -> None:
        create(catalog, "t")
        deregister(catalog, "t")
        drop(catalog, "t")
        assert_gone(catalog, "t")

    def test_one_that_native_hid_can_be_dropped(self, local: LocalPlace) -> None:
        create(native(local), "t")
        deregister(native(local), "t")
        catalog = local.open()
        drop(catalog, "t")
        assert_gone(catalog, "t")

    def test_its_name_can_be_created_anew_and_shows_the_new_rows(self, catalog: DirectoryNamespace) -> None:
        create(catalog, "t")
        deregister(catalog, "t")
        drop(catalog, "t")
        create(catalog, "t", MORE_ROWS)
        assert_whole(catalog, "t", MORE_ROWS)
        assert rows(catalog, "t") == MORE_ROWS.to_pylist()

    def test_dropping_a_table_that_is_not_there_is_refused(self, place: Place) -> None:
        with refused(TABLE_NOT_FOUND):
            drop(place.open(), "t")
        assert place.files() == {}

    def test_a_dropped_table_cannot_be_dropped_or_deregistered_again(
        self, catalog: DirectoryNamespace
    ) -> None:
        create(catalog, "t")
        drop(catalog, "t")
        for act in (drop, deregister):
            with refused(TABLE_NOT_FOUND):
                act(catalog, "t")

    def test_the_response_tells_the_id_and_the_location(self, catalog: Any) -> None:
        location = create(catalog, "t").location
        response = catalog.drop_table({"id": ["t"]})
        assert (response.id, response.location) == (["t"], location)

    def test_dropping_one_table_leaves_its_neighbours(self, catalog: DirectoryNamespace) -> None:
        for name in ("t", "t2", "t.lance", "t.data", "tt"):
            create(catalog, name)
        drop(catalog, "t")
        assert names(catalog) == ["t.data", "t.lance", "t2", "tt"]
        for name in ("t2", "t.lance", "t.data", "tt"):
            assert_whole(catalog, name)
