"""deregister_table hides a table from every client, register_table restores it; no files move."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lance
import lancedb
import pytest
from lance_namespace import DeregisterTableRequest, RegisterTableRequest
from lance_namespace.errors import TableNotFoundError
from tests.support.codes import INVALID_INPUT, TABLE_EXISTS, TABLE_NOT_FOUND, UNSUPPORTED
from tests.support.profiles import MEMORY, MOTO
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
    def test_deregistered_table_is_intact_after_register(self, catalog: DirectoryNamespace) -> None:
        create(catalog, "t")
        deregister(catalog, "t")
        assert_gone(catalog, "t")
        register(catalog, "t")
        assert_whole(catalog, "t")

    def test_table_can_be_deregistered_and_registered_repeatedly(self, catalog: DirectoryNamespace) -> None:
        create(catalog, "t")
        for _ in range(3):
            deregister(catalog, "t")
            assert_gone(catalog, "t")
            register(catalog, "t")
            assert_whole(catalog, "t")

    def test_responses_contain_the_location_as_native_does(self, catalog: DirectoryNamespace) -> None:
        location = create(catalog, "t").location
        hidden = catalog.deregister_table(DeregisterTableRequest(id=["t"]))
        assert (hidden.id, hidden.location) == (["t"], location)
        shown = catalog.register_table(RegisterTableRequest(id=["t"], location="t.lance"))
        assert shown.location == "t.lance"

    def test_declared_table_can_be_deregistered_and_registered(self, catalog: DirectoryNamespace) -> None:
        declare(catalog, "t")
        deregister(catalog, "t")
        assert_gone(catalog, "t")
        register(catalog, "t")
        assert names(catalog) == ["t"]
        assert describe(catalog, "t", check_declared=True).is_only_declared is True

    def test_deregister_and_register_do_not_touch_the_data(
        self, place: Place, catalog: DirectoryNamespace
    ) -> None:
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

    def test_deregister_does_not_affect_other_tables(self, catalog: DirectoryNamespace) -> None:
        for name in ("a", "b", "c"):
            create(catalog, name)
        deregister(catalog, "b")
        assert names(catalog) == ["a", "c"]
        assert_whole(catalog, "a")


class TestDeregistered:
    def test_every_operation_but_register_and_drop_refuses_a_deregistered_table(self, catalog: Any) -> None:
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

    def test_error_for_a_deregistered_table_suggests_register(self, local: LocalPlace) -> None:
        catalog = local.open()
        create(catalog, "t")
        deregister(catalog, "t")
        with refused(TABLE_NOT_FOUND) as caught:
            describe(catalog, "t")
        assert "register_table" in str(caught.value)
        assert "t.lance" in str(caught.value)

    @pytest.mark.parametrize("place", ["disk", MEMORY, MOTO], indirect=True)
    def test_name_of_a_deregistered_table_stays_taken_without_a_manifest(
        self, catalog: DirectoryNamespace
    ) -> None:
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

    def test_pylance_and_lancedb_do_not_find_a_deregistered_table(self, local: LocalPlace) -> None:
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

    @pytest.mark.parametrize("place", ["disk", MOTO], indirect=True)
    def test_native_client_does_not_see_a_deregistered_table(self, place: Place) -> None:
        catalog = place.open()
        create(catalog, "t")
        create(catalog, "u")
        deregister(catalog, "t")
        assert names(native(place)) == ["u"]
        assert not exists(native(place), "t")
        register(catalog, "t")
        assert names(native(place)) == ["t", "u"]
        assert exists(native(place), "t")

    @pytest.mark.parametrize("place", ["disk", MOTO], indirect=True)
    def test_table_deregistered_by_the_native_client_can_be_registered(self, place: Place) -> None:
        create(native(place), "t")
        deregister(native(place), "t")
        catalog = place.open()
        assert_gone(catalog, "t")
        register(catalog, "t")
        assert_whole(catalog, "t")
        assert names(native(place)) == ["t"]

    def test_removing_the_file_inside_brings_a_deregistered_table_back(self, place: Place) -> None:
        # The sign beside the directory, which stays, is only a hint to look inside.
        catalog = place.open()
        create(catalog, "t")
        deregister(catalog, "t")
        place.remove("t.lance/.lance-deregistered")
        assert "t.deregistered" in place.files()
        assert_whole(catalog, "t")
        deregister(catalog, "t")
        assert_gone(catalog, "t")
        register(catalog, "t")
        assert "t.deregistered" not in place.files()
        assert_whole(catalog, "t")

    def test_second_deregister_is_refused(self, catalog: DirectoryNamespace) -> None:
        create(catalog, "t")
        deregister(catalog, "t")
        with refused(TABLE_NOT_FOUND):
            deregister(catalog, "t")

    def test_deregister_of_a_missing_table_is_not_found(self, place: Place) -> None:
        with refused(TABLE_NOT_FOUND):
            deregister(place.open(), "t")
        assert place.files() == {}


class TestLocations:
    def test_own_location_may_be_relative_or_absolute(self, place: Place) -> None:
        catalog = place.open()
        location = create(catalog, "t").location
        assert location is not None
        for spelling in ("t.lance", "t.lance/", location, f"{location}/"):
            deregister(catalog, "t")
            register(catalog, "t", location=spelling)
            assert_whole(catalog, "t")

    def test_own_location_may_be_a_file_uri(self, local: LocalPlace) -> None:
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
    def test_register_with_another_location_is_refused_and_changes_nothing(
        self, location: str, disk: LocalPlace
    ) -> None:
        catalog = disk.open()
        create(catalog, "t")
        create(catalog, "u", MORE_ROWS)
        deregister(catalog, "t")
        before = disk.files()
        with refused(INVALID_INPUT):
            register(catalog, "t", location=location)
        assert disk.files() == before
        assert_whole(catalog, "u", MORE_ROWS)

    def test_register_of_the_root_or_a_path_outside_it_is_refused(
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

    def test_register_of_another_bucket_or_prefix_is_refused(self, moto: S3Place) -> None:
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

    def test_register_without_table_data_is_not_found(self, place: Place) -> None:
        catalog = place.open()
        with refused(TABLE_NOT_FOUND):
            register(catalog, "t")
        assert place.files() == {}


class TestModes:
    def test_register_of_a_visible_table_is_refused(self, catalog: DirectoryNamespace) -> None:
        create(catalog, "t")
        for mode in (None, "create", "CREATE"):
            with refused(TABLE_EXISTS):
                register(catalog, "t", mode=mode)

    def test_register_overwrite_keeps_a_visible_table_unchanged(self, catalog: DirectoryNamespace) -> None:
        create(catalog, "t")
        register(catalog, "t", mode="Overwrite")
        assert_whole(catalog, "t")

    def test_register_with_an_unknown_mode_or_properties_is_refused(self, disk: LocalPlace) -> None:
        catalog = disk.open()
        create(catalog, "t")
        deregister(catalog, "t")
        with refused(INVALID_INPUT):
            register(catalog, "t", mode="bogus")
        with refused(UNSUPPORTED):
            register(catalog, "t", properties={"owner": "me"})
        assert_gone(catalog, "t")


class TestDrop:
    def test_deregistered_table_can_be_dropped(self, catalog: DirectoryNamespace) -> None:
        create(catalog, "t")
        deregister(catalog, "t")
        drop(catalog, "t")
        assert_gone(catalog, "t")

    def test_table_deregistered_by_the_native_client_can_be_dropped(self, local: LocalPlace) -> None:
        create(native(local), "t")
        deregister(native(local), "t")
        catalog = local.open()
        drop(catalog, "t")
        assert_gone(catalog, "t")

    def test_name_of_a_dropped_deregistered_table_can_be_created_again(
        self, catalog: DirectoryNamespace
    ) -> None:
        create(catalog, "t")
        deregister(catalog, "t")
        drop(catalog, "t")
        create(catalog, "t", MORE_ROWS)
        assert_whole(catalog, "t", MORE_ROWS)
        assert rows(catalog, "t") == MORE_ROWS.to_pylist()

    def test_drop_of_a_missing_table_is_not_found(self, place: Place) -> None:
        with refused(TABLE_NOT_FOUND):
            drop(place.open(), "t")
        assert place.files() == {}

    def test_drop_and_deregister_of_a_dropped_table_are_not_found(self, catalog: DirectoryNamespace) -> None:
        create(catalog, "t")
        drop(catalog, "t")
        for act in (drop, deregister):
            with refused(TABLE_NOT_FOUND):
                act(catalog, "t")

    def test_drop_response_contains_id_and_location(self, catalog: Any) -> None:
        location = create(catalog, "t").location
        response = catalog.drop_table({"id": ["t"]})
        assert (response.id, response.location) == (["t"], location)

    def test_drop_leaves_tables_with_similar_names(self, catalog: DirectoryNamespace) -> None:
        for name in ("t", "t2", "t.lance", "t.data", "tt"):
            create(catalog, name)
        drop(catalog, "t")
        assert names(catalog) == ["t.data", "t.lance", "t2", "tt"]
        for name in ("t2", "t.lance", "t.data", "tt"):
            assert_whole(catalog, name)
