"""list_tables and list_all_tables: what is shown, in which order and pages, and what a listing costs."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import lance
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lance_namespace import ListTablesRequest, ListTablesResponse
from lance_namespace.errors import LanceNamespaceError
from tests.support.codes import TABLE_NOT_FOUND
from tests.support.modes import COMPATIBILITY, V1
from tests.support.profiles import MEMORY
from tests.support.roots import (
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
    exists_or_raise,
    local_place,
    names,
    native,
    refused,
    snapshot,
)
from tests.support.servers import S3Server, count_requests

from relance import DirectoryNamespace
from relance.identifiers import why_unusable

FLAG = b'{"format": 2, "nested_markers": "none"}\n'
"""Of a root in which no other client has hidden tables by files inside them."""
ANY_VERSION = "_versions/18446744073709551614.manifest"
TABLES = 2000
DECLARED = 500
UNSORTED = ["z9", "z10", "a", "B", "_u", "é", "t.x", "t", "日", "😀", "A", "t-x"]


def page(catalog: Any, **fields: Any) -> ListTablesResponse:
    """Return one page of the listing."""
    response: ListTablesResponse = catalog.list_tables(ListTablesRequest(id=[], **fields))
    return response


def walk(catalog: Any, limit: int, **fields: Any) -> list[list[str]]:
    """Return all pages, following the tokens."""
    pages: list[list[str]] = []
    token: str | None = None
    while True:
        response = page(catalog, limit=limit, page_token=token, **fields)
        pages.append(response.tables)
        token = response.page_token
        if token is None:
            return pages
        assert response.tables[-1] == token, "the token is the last name of its page"


def put_table(place: Place, name: str) -> None:
    """Put what looks like a table of one version into the root."""
    place.put(f"{name}.lance/{ANY_VERSION}", b"manifest")


def test_listing_a_missing_root_is_empty_and_does_not_create_it(local: LocalPlace) -> None:
    assert names(local.open()) == []
    assert not local.folder.exists()


def test_listing_an_empty_root_is_empty(place: Place, catalog: DirectoryNamespace) -> None:
    assert names(catalog) == []
    assert page(catalog, limit=5).page_token is None
    assert place.files() == {}


def test_tables_are_sorted_by_their_utf_8_bytes(catalog: DirectoryNamespace) -> None:
    for name in UNSORTED:
        declare(catalog, name)
    assert names(catalog) == ["A", "B", "_u", "a", "t", "t-x", "t.x", "z10", "z9", "é", "日", "😀"]


def test_changes_of_another_client_are_listed_immediately(place: Place, catalog: DirectoryNamespace) -> None:
    create(catalog, "mine")
    create(place.open(), "theirs")
    assert names(catalog) == ["mine", "theirs"]
    drop(place.open(), "mine")
    assert names(catalog) == ["theirs"]


class TestPages:
    @pytest.fixture
    def catalog(self, local: LocalPlace) -> DirectoryNamespace:
        catalog = local.open()
        for name in ("a", "b", "c", "d", "e"):
            create(catalog, name)
        return catalog

    def test_limit_cuts_the_page_and_returns_a_token(self, catalog: DirectoryNamespace) -> None:
        response = page(catalog, limit=2)
        assert (response.tables, response.page_token) == (["a", "b"], "b")

    def test_last_page_has_no_token_even_when_it_is_full(self, catalog: DirectoryNamespace) -> None:
        assert page(catalog, limit=5).page_token is None
        response = page(catalog, limit=2, page_token="c")
        assert (response.tables, response.page_token) == (["d", "e"], None)

    def test_page_token_need_not_be_a_table_name(self, catalog: DirectoryNamespace) -> None:
        assert page(catalog, page_token="bb").tables == ["c", "d", "e"]
        assert page(catalog, page_token="zz").tables == []

    def test_empty_page_token_means_the_start(self, catalog: DirectoryNamespace) -> None:
        assert page(catalog, page_token="", limit=1).tables == ["a"]

    def test_limit_of_zero_returns_nothing(self, catalog: DirectoryNamespace) -> None:
        response = page(catalog, limit=0)
        assert (response.tables, response.page_token) == ([], None)

    def test_negative_limit_means_no_limit(self, catalog: DirectoryNamespace) -> None:
        response = page(catalog, limit=-1)
        assert (response.tables, response.page_token) == (["a", "b", "c", "d", "e"], None)

    @pytest.mark.parametrize("limit", [2**63 - 1, 2**63, 10**100])
    def test_limit_beyond_any_count_returns_everything(self, catalog: DirectoryNamespace, limit: int) -> None:
        request = {"id": [], "limit": limit}
        assert catalog.list_tables(request).tables == ["a", "b", "c", "d", "e"]
        assert catalog.list_all_tables(request).tables == ["a", "b", "c", "d", "e"]
        assert catalog.list_namespaces(request).namespaces == []
        assert len(catalog.list_table_versions({"id": ["a"], "limit": limit}).versions) == 1
        assert catalog.list_table_tags({"id": ["a"], "limit": limit}).tags == {}

    def test_page_token_of_a_dropped_table_still_works(
        self, local: LocalPlace, catalog: DirectoryNamespace
    ) -> None:
        token = page(catalog, limit=3).page_token
        drop(local.open(), "c")
        assert page(catalog, page_token=token).tables == ["d", "e"]

    def test_hidden_tables_do_not_shorten_a_page(
        self, local: LocalPlace, catalog: DirectoryNamespace
    ) -> None:
        deregister(catalog, "b")
        local.put("c.lance/.lance-deregistered")
        assert walk(catalog, 2) == [["a", "d"], ["e"]]

    def test_excluded_declared_tables_do_not_shorten_a_page(self, catalog: DirectoryNamespace) -> None:
        for name in ("aa", "bb", "cc"):
            declare(catalog, name)
        assert walk(catalog, 2, include_declared=False) == [["a", "b"], ["c", "d"], ["e"]]
        assert walk(catalog, 3) == [["a", "aa", "b"], ["bb", "c", "cc"], ["d", "e"]]

    def test_list_all_tables_uses_the_same_pages(self, catalog: DirectoryNamespace) -> None:
        response = catalog.list_all_tables(ListTablesRequest(limit=3))
        assert (response.tables, response.page_token) == (["a", "b", "c"], "c")
        rest = catalog.list_all_tables(ListTablesRequest(limit=3, page_token="c"))
        assert (rest.tables, rest.page_token) == (["d", "e"], None)


usable_names = st.text(st.characters(codec="utf-8"), min_size=1, max_size=8).filter(
    lambda name: why_unusable(name) is None
)


@given(chosen=st.sets(usable_names, max_size=12), limit=st.integers(1, 13))
@settings(max_examples=60)
def test_pages_list_every_table_once_in_order(chosen: set[str], limit: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        place = local_place(Path(folder))
        for name in chosen:
            put_table(place, name)
        pages = walk(place.open(), limit)
        assert [name for each in pages for name in each] == sorted(chosen, key=str.encode)
        assert all(len(each) == limit for each in pages[:-1])


class TestDeclaredTables:
    def test_declared_tables_are_listed_unless_excluded(self, catalog: DirectoryNamespace) -> None:
        create(catalog, "created")
        declare(catalog, "declared")
        assert names(catalog) == ["created", "declared"]
        assert names(catalog, include_declared=True) == ["created", "declared"]
        assert names(catalog, include_declared=False) == ["created"]

    def test_declared_table_counts_as_created_after_a_pylance_write(
        self, catalog: DirectoryNamespace
    ) -> None:
        lance.write_dataset(ROWS, namespace_client=catalog, table_id=["t"], mode="create")
        assert names(catalog, include_declared=False) == ["t"]

    def test_declared_table_counts_as_created_after_create_table(self, catalog: DirectoryNamespace) -> None:
        declare(catalog, "t")
        create(catalog, "t")
        assert names(catalog, include_declared=False) == ["t"]

    def test_table_declared_by_a_client_without_signs_is_recognised(
        self, place: Place, catalog: DirectoryNamespace
    ) -> None:
        place.put("theirs.lance/.lance-reserved", b"reserved")
        assert names(catalog) == ["theirs"]
        assert names(catalog, include_declared=False) == []

    @pytest.mark.parametrize("place", ["disk", MEMORY], indirect=True)
    def test_table_declared_by_another_client_on_disk_is_recognised(
        self, place: Place, catalog: DirectoryNamespace
    ) -> None:
        create(catalog, "ours")
        place.put("theirs.lance/.lance-reserved", b"reserved")
        assert names(catalog) == ["ours", "theirs"]
        assert names(catalog, include_declared=False) == ["ours"]


class TestListAllTables:
    def test_list_all_tables_lists_the_same_tables_as_list_tables(self, catalog: DirectoryNamespace) -> None:
        create(catalog, "b")
        declare(catalog, "a")
        create(catalog, "hidden")
        deregister(catalog, "hidden")
        assert catalog.list_all_tables(ListTablesRequest()).tables == ["a", "b"]
        assert catalog.list_all_tables(ListTablesRequest(include_declared=False)).tables == ["b"]


class TestUnrelatedFiles:
    def test_unrelated_files_are_never_listed_or_deleted(
        self, place: Place, catalog: DirectoryNamespace
    ) -> None:
        foreign = {
            "loose.lance": b"a file",
            "notes.txt": b"hello",
            "a.deleted": b"",
            "b.declared": b"",
            "c.creating": b"",
            "d.lance.deleted": b"x" * 100,
            "UPPER.LANCE/x": b"1",
            "folder/table.lance/" + ANY_VERSION: b"nested",
            "plain/file": b"1",
            "a%b.lance/_versions/1.manifest": b"a name that cannot be addressed",
            ".lance/_versions/1.manifest": b"no name at all",
            "_SUCCESS": b"",
            "x.lance.tmp": b"1",
        }
        if place.mode == V1:
            foreign["__manifest/_versions/1.manifest"] = b"of no concern where directories alone count"
        for key, body in foreign.items():
            place.put(key, body)
        create(catalog, "t")
        assert names(catalog) == ["t"]
        assert names(catalog, include_declared=False) == ["t"]
        assert_whole(catalog, "t")
        drop(catalog, "t")
        assert names(catalog) == []
        after = place.files()
        assert {key: after.get(key) for key in foreign} == foreign

    def test_loose_file_is_no_table_and_is_never_deleted(
        self, place: Place, catalog: DirectoryNamespace
    ) -> None:
        place.put("x.lance", b"a file")
        with refused(TABLE_NOT_FOUND):
            exists_or_raise(catalog, "x")
        with refused(TABLE_NOT_FOUND):
            drop(catalog, "x")
        assert place.files()["x.lance"] == b"a file"
        assert names(catalog) == []

    def test_loose_file_on_disk_blocks_its_name_with_a_clean_error(self, local: LocalPlace) -> None:
        catalog: Any = local.open()
        local.put("x.lance", b"a file")
        for attempt in (create, declare):
            with pytest.raises(LanceNamespaceError, match="'x"):
                attempt(catalog, "x")
        assert local.files()["x.lance"] == b"a file"
        assert_gone(catalog, "x")

    def test_loose_object_on_s3_does_not_block_its_name(self, moto: S3Place) -> None:
        moto.put("x.lance", b"a file")
        catalog = moto.open()
        create(catalog, "x")
        assert_whole(catalog, "x")
        drop(catalog, "x")
        assert_gone(catalog, "x")
        assert moto.files()["x.lance"] == b"a file"

    def test_empty_folders_are_never_listed_or_removed(self, local: LocalPlace) -> None:
        catalog = local.open()
        create(catalog, "t")
        (local.folder / "empty.lance").mkdir()
        (local.folder / "empty").mkdir()
        assert names(catalog) == ["t"]
        assert not exists(catalog, "empty")
        assert (local.folder / "empty.lance").is_dir()

    def test_folders_containing_only_empty_folders_are_never_listed(self, local: LocalPlace) -> None:
        catalog = local.open()
        (local.folder / "hollow.lance" / "data").mkdir(parents=True)
        (local.folder / "hollow2.lance" / "_versions").mkdir(parents=True)
        assert names(catalog) == []
        assert names(catalog, include_declared=False) == []
        assert not exists(catalog, "hollow")
        assert not exists(catalog, "hollow2")

    def test_empty_folder_does_not_block_its_name(self, local: LocalPlace) -> None:
        (local.folder / "t.lance" / "data").mkdir(parents=True)
        catalog = local.open()
        create(catalog, "t")
        assert_whole(catalog, "t")

    def test_folder_objects_on_s3_do_not_block_names(self, moto: S3Place) -> None:
        # Consoles and Hadoop tools write empty objects whose key ends in a slash.
        for key in ("", "plain/", "t.lance/", "t.lance/data/"):
            moto.put(key)
        catalog = moto.open()
        create(catalog, "t")
        declare(catalog, "t.lance")
        create(catalog, "t.lance.lance")
        assert_whole(catalog, "t")
        assert names(catalog, include_declared=False) == ["t", "t.lance.lance"]
        drop(catalog, "t")
        assert not exists(catalog, "t")

    def test_folder_object_on_s3_hides_no_other_table(self, moto: S3Place) -> None:
        # Such a key loses its slash on the way to us, and then is no longer where its bytes belong.
        moto.put("t.lance/")
        moto.put("z.txt")
        catalog = moto.open()
        lance.write_dataset(ROWS, namespace_client=catalog, table_id=["t.lance"], mode="create")
        assert "t.lance" in names(catalog)
        assert "t.lance" in names(catalog, include_declared=False)

    def test_symbolic_links_are_never_listed_followed_or_removed(
        self, local: LocalPlace, tmp_path: Path
    ) -> None:
        elsewhere = local_place(tmp_path / "elsewhere")
        create(elsewhere.open(), "t")
        catalog = local.open()
        create(catalog, "real")
        (local.folder / "linked.lance").symlink_to(elsewhere.folder / "t.lance")
        (local.folder / "dangling.lance").symlink_to(tmp_path / "nowhere")
        (local.folder / "loop.lance").symlink_to(local.folder)
        outside = elsewhere.files()
        assert names(catalog) == ["real"]
        assert names(catalog, include_declared=False) == ["real"]
        for name in ("linked", "dangling", "loop"):
            with refused(TABLE_NOT_FOUND):
                describe(catalog, name)
            with refused(TABLE_NOT_FOUND):
                drop(catalog, name)
        assert elsewhere.files() == outside
        assert (local.folder / "linked.lance").is_symlink()

    @pytest.mark.parametrize("mode", ["create", "exist_ok", "overwrite"])
    def test_create_through_a_symbolic_link_is_refused(
        self, mode: str, local: LocalPlace, tmp_path: Path
    ) -> None:
        outside = tmp_path / "outside"
        outside.mkdir()
        local.folder.mkdir()
        (local.folder / "t.lance").symlink_to(outside)
        catalog: Any = local.open()
        with pytest.raises(LanceNamespaceError):
            create(catalog, "t", mode=mode)
        with pytest.raises(LanceNamespaceError):
            declare(catalog, "t")
        assert snapshot(outside) == {}
        assert_gone(catalog, "t")

    def test_root_behind_a_symbolic_link_works(self, tmp_path: Path) -> None:
        (tmp_path / "real").mkdir()
        (tmp_path / "link").symlink_to(tmp_path / "real")
        catalog = local_place(tmp_path / "link").open()
        create(catalog, "t")
        assert_whole(catalog, "t")

    def test_file_names_that_are_not_utf_8_cause_no_error(self, local: LocalPlace) -> None:
        catalog = local.open()
        create(catalog, "t")
        folder = os.fsencode(local.folder)
        os.makedirs(folder + b"/\xff\xfe.lance/_versions")
        Path(os.fsdecode(folder + b"/\xff.deleted")).write_bytes(b"x")
        Path(os.fsdecode(folder + b"/t.lance/\xff")).write_bytes(b"x")
        assert names(catalog) == ["t"]
        assert names(catalog, include_declared=False) == ["t"]
        drop(catalog, "t")
        assert_gone(catalog, "t")

    def test_neighbour_with_the_roots_name_as_a_prefix_is_not_listed(self, moto: S3Place) -> None:
        create(S3Place(moto.server, moto.bucket, f"{moto.prefix}2").open(), "theirs")
        create(S3Place(moto.server, moto.bucket, f"{moto.prefix}/below").open(), "below")
        catalog = moto.open()
        create(catalog, "ours")
        assert names(catalog) == ["ours"]


class TestNativeMarkers:
    @pytest.mark.parametrize("body", [b"reserved", b""])
    def test_native_deregistered_marker_hides_a_table_from_listings(
        self, body: bytes, place: Place, catalog: DirectoryNamespace
    ) -> None:
        put_table(place, "hidden")
        put_table(place, "shown")
        place.put("hidden.lance/.lance-deregistered", body)
        assert names(catalog) == ["shown"]
        assert_gone(catalog, "hidden")

    @pytest.mark.parametrize("place", ["disk", MEMORY], indirect=True)
    def test_native_deregistered_marker_hides_a_table_created_by_relance(
        self, place: Place, catalog: DirectoryNamespace
    ) -> None:
        create(catalog, "hidden")
        create(catalog, "shown")
        place.put("hidden.lance/.lance-deregistered")
        assert names(catalog) == ["shown"]
        assert_gone(catalog, "hidden")

    def test_table_deregistered_by_the_native_client_is_hidden(self, local: LocalPlace) -> None:
        create(native(local), "t")
        deregister(native(local), "t")
        assert_gone(local.open(), "t")

    def test_native_deregistered_marker_on_s3_hides_a_table_from_lookups(self, moto: S3Place) -> None:
        catalog = moto.open()
        create(catalog, "t")
        moto.put("t.lance/.lance-deregistered")
        with refused(TABLE_NOT_FOUND):
            exists_or_raise(catalog, "t")
        with refused(TABLE_NOT_FOUND):
            describe(catalog, "t")


class TestLeftoversOfAKilledCreate:
    def test_data_without_a_version_is_not_listed(self, place: Place, catalog: DirectoryNamespace) -> None:
        create(catalog, "t")
        place.put("killed.creating")
        place.put("killed.lance/data/abc.lance", b"data")
        assert names(catalog) == ["t"]
        assert_gone(catalog, "killed")

    def test_leftover_creating_sign_does_not_hide_a_table(
        self, place: Place, catalog: DirectoryNamespace
    ) -> None:
        create(catalog, "t")
        place.put("t.creating")
        assert_whole(catalog, "t")

    def test_declared_table_stays_listed_during_a_create(
        self, place: Place, catalog: DirectoryNamespace
    ) -> None:
        declare(catalog, "t")
        place.put("t.creating")
        place.put("t.lance/data/abc.lance", b"data")
        assert names(catalog) == ["t"]
        assert names(catalog, include_declared=False) == []


FLAG = b'{"format": 2, "nested_markers": "none"}\n'


def put_many(place: S3Place, keys: list[str], body: bytes = b"x") -> None:
    """Put many objects into a root, several at a time."""
    client = place.server.client()

    def put(key: str) -> None:
        client.put_object(Bucket=place.bucket, Key=f"{place.prefix}/{key}", Body=body)

    with ThreadPoolExecutor(4) as pool:
        for _ in pool.map(put, keys):
            pass


def counted(place: S3Place, **fields: Any) -> tuple[list[str], int]:
    """List through a fresh catalog behind a counting proxy; return the names and the requests it took."""
    with count_requests(place.server) as counter:
        found = names(S3Place(counter.server, place.bucket, place.prefix).open(), **fields)
        return found, counter.count()


@pytest.fixture(scope="module")
def many(moto_server: S3Server) -> S3Place:
    """A root of ours with many tables of one file each; whoever changes it puts it back."""
    place = S3Place(moto_server, moto_server.make_bucket("many"), "lake")
    place.put(".relance-root", FLAG)
    put_many(place, [f"table{number:05d}.lance/{ANY_VERSION}" for number in range(TABLES)])
    return place


@contextmanager
def changed(place: Place, *, put: list[str], remove: list[str]) -> Iterator[None]:
    """Put and remove objects for the duration of the block."""
    for key in put:
        place.put(key)
    for key in remove:
        place.remove(key)
    try:
        yield
    finally:
        for key in put:
            place.remove(key)
        for key in remove:
            place.put(key, FLAG if key == ".relance-root" else b"")


@contextmanager
def real_table(place: S3Place, name: str) -> Iterator[None]:
    """Have a table that Lance can read for the duration of the block."""
    before = place.files()
    create(place.open(), name)
    try:
        yield
    finally:
        for key in place.files().keys() - before.keys():
            place.remove(key)


@pytest.mark.deep
class TestRequests:
    def test_listing_costs_one_request_per_thousand_entries(self, many: S3Place) -> None:
        found, requests = counted(many)
        assert found == [f"table{number:05d}" for number in range(TABLES)]
        assert requests <= 3 + TABLES // 1000  # the flag, a page of all keys, and the top level

    def test_excluding_declared_tables_costs_nothing_when_there_are_none(self, many: S3Place) -> None:
        found, requests = counted(many, include_declared=False)
        assert len(found) == TABLES
        assert requests <= 3 + TABLES // 1000  # the flag, a page of all keys, and the top level

    def test_page_costs_no_more_requests_than_the_whole_listing(self, many: S3Place) -> None:
        found, requests = counted(many, limit=10, page_token="table01500")
        assert found == [f"table{number:05d}" for number in range(1501, 1511)]
        assert requests <= 3 + TABLES // 1000  # the flag, a page of all keys, and the top level

    @pytest.mark.parametrize("include_declared", [True, False])
    def test_listing_without_the_root_flag_is_correct_and_needs_few_requests(
        self, include_declared: bool, many: S3Place
    ) -> None:
        markers = [f"table{number}.lance/.lance-deregistered" for number in ("00007", "01999")]
        with changed(
            many,
            put=[*markers, "table00100.lance/.lance-reserved"],
            remove=[".relance-root", f"table00100.lance/{ANY_VERSION}"],
        ):
            found, requests = counted(many, include_declared=include_declared)
        left_out = {7, 1999} if include_declared else {7, 100, 1999}
        assert found == [f"table{number:05d}" for number in range(TABLES) if number not in left_out]
        assert requests <= TABLES // 50

    def test_declared_tables_do_not_cost_a_request_each(self, moto: S3Place) -> None:
        moto.put(".relance-root", FLAG)
        declared = [f"declared{number:04d}" for number in range(DECLARED)]
        put_many(moto, [f"{name}.declared" for name in declared], b"")
        put_many(moto, [f"{name}.lance/.lance-reserved" for name in declared], b"reserved")
        put_many(moto, [f"{name}.lance/{ANY_VERSION}" for name in ("declared0100", "created")])
        assert counted(moto)[0] == ["created", *declared]
        found, requests = counted(moto, include_declared=False)
        assert found == ["created", "declared0100"]
        assert requests <= DECLARED // 50

    def test_unusual_names_after_many_others_are_classified_correctly(self, many: S3Place) -> None:
        # Whether a version is there is looked up in pages of keys, in the order of their bytes.
        odd = [f"é created.lance/{ANY_VERSION}", "é declared.lance/.lance-reserved", "é declared.declared"]
        with changed(many, put=[*odd, f"日.lance/{ANY_VERSION}", "日.declared"], remove=[]):
            assert counted(many)[0][TABLES:] == ["é created", "é declared", "日"]
            assert counted(many, include_declared=False)[0][TABLES:] == ["é created", "日"]

    def test_lookup_of_one_table_costs_at_most_three_requests(self, many: S3Place) -> None:
        with real_table(many, "table00001a"), count_requests(many.server) as counter:
            catalog = S3Place(counter.server, many.bucket, many.prefix).open()
            exists_or_raise(catalog, "table00001a")
            assert counter.count() <= 2, counter.requests
            counter.reset()
            describe(catalog, "table00001a")
            assert counter.count() <= 6, "small ones, since a page is full; Lance reads the properties once"
            counter.reset()
            describe(catalog, "table00001a")
            assert counter.count() <= 3, counter.requests

    def test_listing_in_compatibility_mode_adds_one_read_of_the_manifest(self, moto: S3Place) -> None:
        compatible = replace(moto, mode=COMPATIBILITY)
        for name in ("a", "b", "c"):
            create(compatible.open(), name)
        put_table(moto, "by another client")
        with count_requests(moto.server) as counter:
            catalog = replace(compatible, server=counter.server).open()
            assert names(catalog) == ["a", "b", "by another client", "c"]
            assert counter.count() <= 6, "the manifest is opened and read once"
            # The second look learns by which file it knows the manifest again.
            for look, most in ((names, 3), (names, 2), (lambda each: exists_or_raise(each, "b"), 4)):
                counter.reset()
                look(catalog)
                assert counter.count() <= most

    def test_opening_a_catalog_costs_no_request(self, many: S3Place) -> None:
        with count_requests(many.server) as counter:
            S3Place(counter.server, many.bucket, many.prefix).open().namespace_id()
            assert counter.count() == 0
