"""The versions of a table: list, describe, create from a staged manifest, delete, and pylance doing so."""

from __future__ import annotations

import os
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest
from lance_namespace import (
    BatchCreateTableVersionsRequest,
    BatchDeleteTableVersionsRequest,
    CreateTableVersionEntry,
    CreateTableVersionRequest,
    DescribeTableVersionRequest,
    ListTableVersionsRequest,
    ListTableVersionsResponse,
    TableVersion,
)
from lance_namespace.errors import ConcurrentModificationError, LanceNamespaceError
from lance_namespace_urllib3_client.models.version_range import VersionRange
from tests.support.codes import (
    BRANCH_NOT_FOUND,
    CONCURRENT_MODIFICATION,
    INVALID_INPUT,
    INVALID_TABLE_STATE,
    TABLE_NOT_FOUND,
    VERSION_NOT_FOUND,
)
from tests.support.mortal_clients import make_failing
from tests.support.profiles import MOTO
from tests.support.roots import (
    MORE_ROWS,
    ROWS,
    LocalPlace,
    Place,
    S3Place,
    assert_whole,
    create,
    dataset,
    declare,
    describe,
    local_place,
    refused,
    rows,
    versions,
)

from relance import DirectoryNamespace
from relance.errors import OutcomeUnknownError, PermissionDeniedError, TableVersionAlreadyExistsError

STAGED = "_versions/staged-manifest"


def file_of(version: int, scheme: str = "V2") -> str:
    """Return the name of a version's manifest, relative to the table."""
    stem = str(version) if scheme == "V1" else f"{2**64 - 1 - version:020d}"
    return f"_versions/{stem}.manifest"


def grow(catalog: Any, name: str, count: int) -> None:
    """Make a table with `count` versions, each with one row more."""
    create(catalog, name, pa.table({"n": [1]}))
    opened = dataset(catalog, name)
    for number in range(2, count + 1):
        opened.insert(pa.table({"n": [number]}))


def stage(place: Place, table: str, body: bytes, file: str = STAGED) -> str:
    """Put a staged manifest into a table; return its path as a client tells it: relative to the store."""
    place.put(f"{table}.lance/{file}", body)
    return store_path(place, f"{table}.lance/{file}")


def store_path(place: Place, key: str) -> str:
    """Return where a key of the root is, relative to its store."""
    if isinstance(place, S3Place):
        return f"{place.prefix}/{key}"
    assert isinstance(place, LocalPlace)
    return str(place.folder / key).lstrip("/")


def put_version(catalog: Any, name: str, version: int, path: str, **fields: Any) -> TableVersion:
    """Create a version from a staged manifest."""
    request = CreateTableVersionRequest(id=[name], version=version, manifest_path=path, **fields)
    made: TableVersion = catalog.create_table_version(request).version
    return made


def page(catalog: DirectoryNamespace, **fields: Any) -> ListTableVersionsResponse:
    """Return one page of the versions of t."""
    return catalog.list_table_versions(ListTableVersionsRequest(id=["t"], **fields))


def numbers(response: ListTableVersionsResponse) -> list[int]:
    """Return the version numbers of a page."""
    return [each.version for each in response.versions]


class TestList:
    def test_versions_are_listed_oldest_first_unless_descending(self, catalog: DirectoryNamespace) -> None:
        grow(catalog, "t", 4)
        assert versions(catalog, "t") == [1, 2, 3, 4]
        assert versions(catalog, "t", descending=False) == [1, 2, 3, 4]
        assert versions(catalog, "t", descending=True) == [4, 3, 2, 1]

    def test_versions_are_sorted_numerically_under_both_naming_schemes(self, local: LocalPlace) -> None:
        catalog = local.open()
        for scheme in ("V1", "V2"):
            for version in (1, 2, 9, 10, 11, 100):
                local.put(f"{scheme}.lance/{file_of(version, scheme)}", b"x")
            assert versions(catalog, scheme) == [1, 2, 9, 10, 11, 100]

    def test_pages_list_every_version_in_both_directions(self, catalog: DirectoryNamespace) -> None:
        grow(catalog, "t", 5)
        for descending, expected in ((False, [[1, 2], [3, 4], [5]]), (True, [[5, 4], [3, 2], [1]])):
            first = page(catalog, limit=2, descending=descending)
            second = page(catalog, limit=2, descending=descending, page_token=first.page_token)
            third = page(catalog, limit=2, descending=descending, page_token=second.page_token)
            assert [numbers(each) for each in (first, second, third)] == expected
            assert third.page_token is None

    def test_edge_case_limits_and_page_tokens_are_accepted(self, local: LocalPlace) -> None:
        catalog = local.open()
        grow(catalog, "t", 3)
        assert numbers(page(catalog, limit=3)) == [1, 2, 3]
        assert page(catalog, limit=3).page_token is None
        assert numbers(page(catalog, limit=0)) == []
        assert page(catalog, limit=0).page_token is None
        assert numbers(page(catalog, limit=-1)) == [1, 2, 3]
        assert numbers(page(catalog, page_token="")) == [1, 2, 3]
        assert numbers(page(catalog, page_token="2")) == [3]
        assert numbers(page(catalog, page_token="3")) == []

    @pytest.mark.parametrize("token", ["x", "-1", "1.5", " 1", "next"])
    def test_invalid_page_token_is_refused(self, token: str, local: LocalPlace) -> None:
        catalog = local.open()
        create(catalog, "t")
        with refused(INVALID_INPUT):
            page(catalog, page_token=token)

    def test_listed_versions_describe_their_manifests(
        self, place: Place, catalog: DirectoryNamespace
    ) -> None:
        before = time.time() * 1000
        grow(catalog, "t", 2)
        for each in page(catalog).versions:
            body = place.files()[f"t.lance/{file_of(each.version)}"]
            assert each.manifest_path == store_path(place, f"t.lance/{file_of(each.version)}")
            assert each.manifest_size == len(body)
            assert each.e_tag
            assert each.timestamp_millis is not None
            assert before - 2000 <= each.timestamp_millis <= time.time() * 1000 + 2000

    def test_files_that_are_no_versions_are_not_listed(
        self, place: Place, catalog: DirectoryNamespace
    ) -> None:
        create(catalog, "t")
        for file in (
            "staged.manifest-1234",
            "d7.manifest",
            "latest_version_hint.json",
            "x.manifest.tmp",
            "1.txt",
        ):
            place.put(f"t.lance/_versions/{file}", b"x")
        assert versions(catalog, "t") == [1]

    def test_declared_table_has_no_versions(self, catalog: DirectoryNamespace) -> None:
        declare(catalog, "t")
        assert versions(catalog, "t") == []

    def test_branch_lists_its_own_versions(self, catalog: DirectoryNamespace) -> None:
        grow(catalog, "t", 2)
        dataset(catalog, "t").create_branch("play/ground").insert(pa.table({"n": [9]}))
        assert versions(catalog, "t", branch="play/ground") == [2, 3]
        assert versions(catalog, "t", branch="main") == [1, 2]
        assert versions(catalog, "t") == [1, 2]

    def test_versions_of_a_missing_table_or_branch_are_not_found(self, catalog: DirectoryNamespace) -> None:
        with refused(TABLE_NOT_FOUND):
            versions(catalog, "t")
        create(catalog, "t")
        with refused(BRANCH_NOT_FOUND):
            versions(catalog, "t", branch="play")

    @pytest.mark.parametrize("branch", ["..", "../u.lance", "a//b", "/", "a/./b", "a\0b"], ids=ascii)
    def test_branch_name_cannot_escape_the_table(self, branch: str, local: LocalPlace) -> None:
        catalog = local.open()
        create(catalog, "t")
        create(catalog, "u")
        with pytest.raises(LanceNamespaceError) as caught:
            versions(catalog, "t", branch=branch)
        assert int(caught.value.code) in {INVALID_INPUT, BRANCH_NOT_FOUND}


class TestDescribe:
    def describe(self, catalog: DirectoryNamespace, **fields: Any) -> TableVersion:
        """Describe a version of t."""
        return catalog.describe_table_version(DescribeTableVersionRequest(id=["t"], **fields)).version

    def test_describe_version_matches_the_listing(self, catalog: DirectoryNamespace) -> None:
        grow(catalog, "t", 3)
        for listed in page(catalog).versions:
            assert self.describe(catalog, version=listed.version) == listed

    def test_describe_without_a_version_returns_the_latest(self, catalog: DirectoryNamespace) -> None:
        grow(catalog, "t", 3)
        assert self.describe(catalog).version == 3

    def test_describe_version_of_a_branch_returns_it(self, catalog: DirectoryNamespace) -> None:
        grow(catalog, "t", 2)
        dataset(catalog, "t").create_branch("play").insert(pa.table({"n": [9]}))
        assert self.describe(catalog, branch="play").version == 3
        assert "/tree/play/_versions/" in self.describe(catalog, branch="play", version=2).manifest_path
        with refused(VERSION_NOT_FOUND):
            self.describe(catalog, branch="play", version=1)

    def test_describe_version_of_a_missing_target_is_not_found(self, catalog: DirectoryNamespace) -> None:
        with refused(TABLE_NOT_FOUND):
            self.describe(catalog)
        declare(catalog, "t")
        with refused(VERSION_NOT_FOUND):
            self.describe(catalog)
        create(catalog, "t")
        for version in (0, 2, 2**64):
            with refused(VERSION_NOT_FOUND):
                self.describe(catalog, version=version)
        with refused(BRANCH_NOT_FOUND):
            self.describe(catalog, branch="play")


class TestCreate:
    @pytest.mark.parametrize(("scheme", "named"), [("V2", "V2"), ("V1", "V1"), ("v1", "V1"), (None, "V2")])
    def test_staged_manifest_becomes_the_next_version(
        self, scheme: str | None, named: str, place: Place, catalog: DirectoryNamespace
    ) -> None:
        create(catalog, "t")
        path = stage(place, "t", b"second")
        made = put_version(catalog, "t", 2, path, naming_scheme=scheme)
        files = place.files()
        assert files[f"t.lance/{file_of(2, named)}"] == b"second"
        assert f"t.lance/{STAGED}" not in files, "the staged file was moved, not copied"
        assert (made.version, made.manifest_size) == (2, len(b"second"))
        assert made.manifest_path == store_path(place, f"t.lance/{file_of(2, named)}")
        assert versions(catalog, "t") == [1, 2]

    def test_staged_real_manifest_makes_a_readable_version(
        self, place: Place, catalog: DirectoryNamespace
    ) -> None:
        create(catalog, "t")
        dataset(catalog, "t").insert(MORE_ROWS)
        manifest = place.files()[f"t.lance/{file_of(2)}"]
        place.remove(f"t.lance/{file_of(2)}")
        assert rows(catalog, "t") == ROWS.to_pylist()
        put_version(catalog, "t", 2, stage(place, "t", manifest))
        assert rows(catalog, "t") == ROWS.to_pylist() + MORE_ROWS.to_pylist()

    def test_staged_manifest_path_may_be_a_uri(self, place: Place, catalog: DirectoryNamespace) -> None:
        create(catalog, "t")
        location = describe(catalog, "t").location
        stage(place, "t", b"second")
        put_version(catalog, "t", 2, f"{location}/{STAGED}")
        assert versions(catalog, "t") == [1, 2]

    def test_first_version_of_a_declared_table_can_be_created(
        self, place: Place, catalog: DirectoryNamespace
    ) -> None:
        declare(catalog, "t")
        put_version(catalog, "t", 1, stage(place, "t", b"first"))
        assert versions(catalog, "t") == [1]

    def test_version_after_a_gap_is_refused_and_the_staged_file_is_kept(
        self, place: Place, catalog: DirectoryNamespace
    ) -> None:
        create(catalog, "t")
        path = stage(place, "t", b"third")
        before = place.files()
        for version in (3, 50):
            with refused(CONCURRENT_MODIFICATION) as caught:
                put_version(catalog, "t", version, path)
            assert "expected 2" in str(caught.value)
        assert place.files() == before

    def test_deleted_version_cannot_be_created_again(self, place: Place, catalog: DirectoryNamespace) -> None:
        grow(catalog, "t", 3)
        place.remove(f"t.lance/{file_of(2)}")
        with refused(CONCURRENT_MODIFICATION):
            put_version(catalog, "t", 2, stage(place, "t", b"again"))
        assert versions(catalog, "t") == [1, 3]

    @pytest.mark.parametrize("scheme", ["V1", "V2"])
    def test_existing_version_with_different_content_is_refused(
        self, scheme: str, place: Place, catalog: DirectoryNamespace
    ) -> None:
        create(catalog, "t")
        before = place.files()[f"t.lance/{file_of(1)}"]
        path = stage(place, "t", b"another first")
        with pytest.raises(TableVersionAlreadyExistsError) as caught:
            put_version(catalog, "t", 1, path, naming_scheme=scheme)
        assert isinstance(caught.value, ConcurrentModificationError)
        assert int(caught.value.code) == CONCURRENT_MODIFICATION
        assert caught.value.spec_code == 12
        assert place.files()[f"t.lance/{file_of(1)}"] == before
        assert versions(catalog, "t") == [1]

    def test_creating_the_same_version_with_the_same_content_succeeds(
        self, place: Place, catalog: DirectoryNamespace
    ) -> None:
        create(catalog, "t")
        put_version(catalog, "t", 2, stage(place, "t", b"second"))
        again = put_version(catalog, "t", 2, stage(place, "t", b"second", "_versions/staged-again"))
        assert again.version == 2
        assert versions(catalog, "t") == [1, 2]
        assert "t.lance/_versions/staged-again" not in place.files()

    def test_staged_file_outside_the_table_is_refused(
        self, place: Place, catalog: DirectoryNamespace
    ) -> None:
        create(catalog, "t")
        create(catalog, "t2")
        place.put("staged", b"x")
        inside = stage(place, "t", b"x")
        table = store_path(place, "t.lance")
        before = place.files()
        for path in (
            "",
            "/",
            "staged",
            store_path(place, "staged"),
            f"{table}/../staged",
            f"{table}/_versions/../../staged",
            f"{table}/./{STAGED}",
            f"{table}//{STAGED}",
            table,
            f"{table}/",
            store_path(place, f"t2.lance/{file_of(1)}"),
            store_path(place, f"lance/{STAGED}"),
            f"elsewhere/{inside}",
            "/etc/passwd",
        ):
            with refused(INVALID_INPUT):
                put_version(catalog, "t", 2, path)
        assert place.files() == before

    @pytest.mark.parametrize("place", ["disk", MOTO, "compatibility"], indirect=True)
    def test_staged_path_with_a_null_character_is_refused(
        self, place: Place, catalog: DirectoryNamespace
    ) -> None:
        create(catalog, "t")
        with refused(INVALID_INPUT):
            put_version(catalog, "t", 2, store_path(place, "t.lance/_versions/a\0b"))

    def test_staged_file_on_another_store_is_refused(self, moto: S3Place) -> None:
        catalog = moto.open()
        create(catalog, "t")
        stage(moto, "t", b"x")
        for base in ("s3://another-bucket", "gs://another-bucket", "file://"):
            with refused(INVALID_INPUT):
                put_version(catalog, "t", 2, f"{base}/{moto.prefix}/t.lance/{STAGED}")
        assert versions(catalog, "t") == [1]

    def test_missing_staged_file_is_refused(self, place: Place, catalog: DirectoryNamespace) -> None:
        create(catalog, "t")
        with refused(INVALID_INPUT) as caught:
            put_version(catalog, "t", 2, store_path(place, "t.lance/_versions/nothing"))
        assert "not found" in str(caught.value)

    def test_invalid_version_number_or_naming_scheme_is_refused(
        self, place: Place, catalog: DirectoryNamespace
    ) -> None:
        create(catalog, "t")
        path = stage(place, "t", b"x")
        loose: Any = catalog
        for version in (0, -1):
            with refused(INVALID_INPUT):
                loose.create_table_version({"id": ["t"], "version": version, "manifest_path": path})
        with refused(INVALID_INPUT):
            put_version(catalog, "t", 2, path, naming_scheme="V3")
        assert versions(catalog, "t") == [1]

    def test_create_version_of_a_missing_table_is_not_found(
        self, place: Place, catalog: DirectoryNamespace
    ) -> None:
        path = stage(place, "t", b"x", "staged")
        with refused(TABLE_NOT_FOUND):
            put_version(catalog, "t", 1, path)

    def test_one_of_many_writers_of_a_version_wins(self, place: Place, catalog: DirectoryNamespace) -> None:
        create(catalog, "t")
        paths = [
            stage(place, "t", f"by {number}".encode(), f"_versions/staged-{number}") for number in range(8)
        ]

        def attempt(number: int) -> int | None:
            try:
                put_version(place.open(), "t", 2, paths[number])
            except TableVersionAlreadyExistsError:
                return None
            return number

        with ThreadPoolExecutor(len(paths)) as pool:
            won = [number for number in pool.map(attempt, range(len(paths))) if number is not None]
        assert len(won) == 1
        assert place.files()[f"t.lance/{file_of(2)}"] == f"by {won[0]}".encode()


class TestBatchCreate:
    def entry(self, place: Place, name: str, version: int, body: bytes) -> CreateTableVersionEntry:
        """Stage a manifest and return the entry that commits it."""
        path = stage(place, name, body, f"_versions/staged-{version}")
        return CreateTableVersionEntry(id=[name], version=version, manifest_path=path)

    def batch(self, catalog: DirectoryNamespace, *entries: CreateTableVersionEntry) -> list[int]:
        """Commit entries; return the numbers of the versions made."""
        request = BatchCreateTableVersionsRequest(entries=list(entries))
        return [each.version for each in catalog.batch_create_table_versions(request).versions]

    def test_batch_creates_versions_of_several_tables(
        self, place: Place, catalog: DirectoryNamespace
    ) -> None:
        create(catalog, "t")
        grow(catalog, "u", 2)
        entries = [self.entry(place, "t", 2, b"t2"), self.entry(place, "u", 3, b"u3")]
        assert self.batch(catalog, *entries) == [2, 3]
        assert (versions(catalog, "t"), versions(catalog, "u")) == ([1, 2], [1, 2, 3])

    def test_batch_creates_several_versions_of_one_table_in_order(
        self, place: Place, catalog: DirectoryNamespace
    ) -> None:
        create(catalog, "t")
        assert self.batch(catalog, *(self.entry(place, "t", number, b"x") for number in (2, 3, 4))) == [
            2,
            3,
            4,
        ]
        assert versions(catalog, "t") == [1, 2, 3, 4]

    def test_batch_that_fails_after_a_version_was_made_has_an_unknown_outcome(
        self, place: Place, catalog: DirectoryNamespace
    ) -> None:
        create(catalog, "t")
        entries = [self.entry(place, "t", number, b"x") for number in (2, 3)]
        make_failing(catalog, 0, PermissionDeniedError)
        with pytest.raises(PermissionDeniedError):
            self.batch(catalog, *entries)
        assert versions(catalog, "t") == [1]
        life = make_failing(catalog, 2, PermissionDeniedError)  # after a file, and the removal of its source
        with pytest.raises(OutcomeUnknownError):
            self.batch(catalog, *entries)
        assert versions(catalog, "t") == [1, 2], life.done

    def test_empty_batch_creates_nothing(self, catalog: DirectoryNamespace) -> None:
        assert self.batch(catalog) == []

    @pytest.mark.parametrize(
        ("spoil", "code"),
        [
            ({"id": ["missing"]}, TABLE_NOT_FOUND),
            ({"id": ["a/b"]}, INVALID_INPUT),
            ({"version": 0}, INVALID_INPUT),
            ({"naming_scheme": "V9"}, INVALID_INPUT),
            ({"manifest_path": "elsewhere"}, INVALID_INPUT),
            ({"version": 9}, CONCURRENT_MODIFICATION),
            ({"version": 1}, CONCURRENT_MODIFICATION),
        ],
        ids=lambda value: str(value),
    )
    def test_failing_entry_undoes_the_whole_batch(
        self, spoil: dict[str, Any], code: int, local: LocalPlace
    ) -> None:
        catalog = local.open()
        create(catalog, "t")
        create(catalog, "u")
        bad = self.entry(local, "u", 2, b"u2").model_copy(update=spoil)
        with refused(code):
            self.batch(catalog, self.entry(local, "t", 2, b"t2"), bad)
        assert (versions(catalog, "t"), versions(catalog, "u")) == ([1], [1])


class TestBatchDelete:
    def delete(self, catalog: DirectoryNamespace, *ranges: tuple[int, int], **fields: Any) -> int | None:
        """Delete ranges of versions of t; return how many were deleted."""
        request = BatchDeleteTableVersionsRequest(
            id=["t"],
            ranges=[VersionRange(start_version=start, end_version=end) for start, end in ranges],
            **fields,
        )
        return catalog.batch_delete_table_versions(request).deleted_count

    def test_batch_delete_excludes_the_end_of_a_range(self, catalog: DirectoryNamespace) -> None:
        grow(catalog, "t", 6)
        assert self.delete(catalog, (2, 4)) == 2
        assert versions(catalog, "t") == [1, 4, 5, 6]
        assert len(rows(catalog, "t")) == 6
        assert len(rows(catalog, "t", version=4)) == 4

    def test_batch_delete_with_end_minus_one_is_open_ended(self, catalog: DirectoryNamespace) -> None:
        grow(catalog, "t", 5)
        assert self.delete(catalog, (3, -1)) == 3
        assert versions(catalog, "t") == [1, 2]
        assert len(rows(catalog, "t")) == 2, "the table opens at the latest version that is left"

    def test_batch_delete_ranges_may_overlap(self, local: LocalPlace) -> None:
        catalog = local.open()
        grow(catalog, "t", 8)
        assert self.delete(catalog, (1, 3), (2, 4), (6, 7)) == 4
        assert versions(catalog, "t") == [4, 5, 7, 8]

    def test_batch_delete_ignores_missing_versions(self, local: LocalPlace) -> None:
        catalog = local.open()
        grow(catalog, "t", 3)
        assert self.delete(catalog, (50, 60)) == 0
        assert self.delete(catalog, (2, 2)) == 0
        assert self.delete(catalog) == 0
        assert self.delete(catalog, (0, 2), (90, -1)) == 1
        assert self.delete(catalog, (0, 2)) == 0
        assert versions(catalog, "t") == [2, 3]

    def test_batch_delete_of_all_versions_is_refused(self, catalog: DirectoryNamespace) -> None:
        grow(catalog, "t", 3)
        for ranges in ([(0, -1)], [(1, 4)], [(1, 2), (2, -1)]):
            with refused(INVALID_TABLE_STATE) as caught:
                self.delete(catalog, *ranges)
            assert "drop_table" in str(caught.value)
        assert versions(catalog, "t") == [1, 2, 3]
        assert len(rows(catalog, "t")) == 3

    @pytest.mark.parametrize("bad", [(3, 1), (-1, 2), (-5, -1), (0, -2)])
    def test_batch_delete_of_a_reversed_range_is_refused(
        self, bad: tuple[int, int], local: LocalPlace
    ) -> None:
        catalog = local.open()
        grow(catalog, "t", 3)
        with refused(INVALID_INPUT):
            self.delete(catalog, (1, 2), bad)
        assert versions(catalog, "t") == [1, 2, 3]

    def test_batch_delete_removes_versions_of_a_branch(self, catalog: DirectoryNamespace) -> None:
        grow(catalog, "t", 2)
        branch = dataset(catalog, "t").create_branch("play")
        branch.insert(pa.table({"n": [8]}))
        branch.insert(pa.table({"n": [9]}))
        assert self.delete(catalog, (3, 4), branch="play") == 1
        assert versions(catalog, "t", branch="play") == [2, 4]
        assert versions(catalog, "t") == [1, 2]

    def test_batch_delete_of_a_missing_table_or_branch_is_not_found(self, local: LocalPlace) -> None:
        catalog = local.open()
        with refused(TABLE_NOT_FOUND):
            self.delete(catalog, (1, 2))
        create(catalog, "t")
        with refused(BRANCH_NOT_FOUND):
            self.delete(catalog, (1, 2), branch="play")


@pytest.mark.parametrize("place", ["disk", MOTO, "compatibility"], indirect=True)
class TestManagedVersioning:
    """Real pylance calls that commit every version through the catalog."""

    @pytest.fixture
    def managed(self, place: Place) -> Recorder:
        return Recorder(**place.properties, table_version_tracking_enabled="true")

    def open(self, managed: Recorder, **pinned: Any) -> Any:
        """Open t through the catalog."""
        return lance.dataset(namespace_client=managed, table_id=["t"], **pinned)

    def write(self, managed: Recorder, table: pa.Table, mode: str, **options: Any) -> Any:
        """Write t through the catalog."""
        return lance.write_dataset(table, namespace_client=managed, table_id=["t"], mode=mode, **options)

    def test_every_pylance_write_creates_its_version_through_the_catalog(self, managed: Recorder) -> None:
        self.write(managed, ROWS, "create")
        self.write(managed, MORE_ROWS, "append")
        self.write(managed, MORE_ROWS, "overwrite")
        opened = self.open(managed)
        opened.insert(ROWS)
        opened.delete("id = 1")
        opened.update({"name": "'z'"}, where="id = 4")
        assert managed.made == [1, 2, 3, 4, 5, 6]
        assert versions(managed, "t") == [1, 2, 3, 4, 5, 6]
        found = self.open(managed).to_table().sort_by("id").to_pylist()
        assert [(row["id"], row["name"]) for row in found] == [(2, "b"), (3, "c"), (4, "z"), (5, "e")]

    def test_pylance_write_leaves_no_staged_manifest(self, place: Place, managed: Recorder) -> None:
        self.write(managed, ROWS, "create")
        self.write(managed, MORE_ROWS, "append")
        in_versions = [key for key in place.files() if "/_versions/" in key]
        assert all(key.endswith((".manifest", ".json", "/")) for key in in_versions)

    def test_pylance_reads_old_versions_tags_and_restores(self, managed: Recorder) -> None:
        self.write(managed, ROWS, "create")
        self.write(managed, MORE_ROWS, "append")
        self.write(managed, MORE_ROWS, "overwrite")
        opened = self.open(managed)
        assert opened.checkout_version(1).to_table() == ROWS
        opened.tags.create("both", 2)
        assert self.open(managed, version="both").count_rows() == 5
        assert self.open(managed, version=1).count_rows() == 3
        opened.checkout_version(2).restore()
        assert (self.open(managed).version, self.open(managed).count_rows()) == (4, 5)
        with pytest.raises(ValueError, match="not found"):
            self.open(managed, version=99)

    def test_pylance_compaction_and_indexing_create_versions_through_the_catalog(
        self, managed: Recorder
    ) -> None:
        self.write(managed, ROWS, "create")
        for _ in range(3):
            self.write(managed, MORE_ROWS, "append")
        opened = self.open(managed)
        opened.optimize.compact_files()
        assert len(self.open(managed).get_fragments()) == 1
        opened.create_scalar_index("id", "BTREE")
        assert self.open(managed).to_table(filter="id = 4").num_rows == 3
        assert managed.made == versions(managed, "t")

    def test_pylance_writes_with_the_v1_naming_scheme(self, place: Place, managed: Recorder) -> None:
        self.write(managed, ROWS, "create", enable_v2_manifest_paths=False)
        self.write(managed, MORE_ROWS, "append")
        assert {f"t.lance/{file_of(version, 'V1')}" for version in (1, 2)} <= set(place.files())
        assert self.open(managed).count_rows() == 5
        assert versions(managed, "t") == [1, 2]

    def test_branch_starts_at_the_version_it_was_created_from(self, managed: Recorder) -> None:
        self.write(managed, ROWS, "create")
        self.write(managed, MORE_ROWS, "append")
        branch = self.open(managed).create_branch("play")
        branch.insert(MORE_ROWS)
        assert versions(managed, "t", branch="play") == [2, 3]
        assert versions(managed, "t") == [1, 2]
        assert describe(managed, "t", branch="play").version == 3
        assert self.open(managed).count_rows() == 5

    def test_concurrent_pylance_writers_both_succeed(self, managed: Recorder) -> None:
        self.write(managed, ROWS, "create")
        one, other = self.open(managed), self.open(managed)
        one.insert(MORE_ROWS)
        other.insert(MORE_ROWS)
        assert self.open(managed).count_rows() == 7
        assert versions(managed, "t") == [1, 2, 3]

    def test_version_committed_outside_the_catalog_is_seen(self, place: Place, managed: Recorder) -> None:
        self.write(managed, ROWS, "create")
        dataset(place.open(), "t").insert(MORE_ROWS)
        self.write(managed, MORE_ROWS, "append")
        assert versions(managed, "t") == [1, 2, 3]
        assert self.open(managed).count_rows() == 7

    def test_table_made_by_create_table_can_be_written_by_pylance(self, managed: Recorder) -> None:
        create(managed, "t")
        self.write(managed, MORE_ROWS, "append")
        assert managed.made == [2]
        assert_whole(managed, "t", pa.concat_tables([ROWS, MORE_ROWS]))


class Recorder(DirectoryNamespace):
    """A catalog that remembers the versions made on main."""

    def __init__(self, **properties: Any) -> None:
        """Open the catalog with an empty memory."""
        super().__init__(**properties)
        self.made: list[int] = []

    def create_table_version(self, request: Any) -> Any:
        """Create the version and remember it."""
        response = super().create_table_version(request)
        if "branch" not in dict(request):
            assert response.version is not None
            self.made.append(response.version.version)
        return response


@pytest.mark.parametrize("management", ["true", "false"])
def test_staged_file_that_is_too_long_is_refused_unread(tmp_path: Path, management: str) -> None:
    local = local_place(tmp_path / "root", {"table_version_management": management})
    catalog = local.open()
    create(catalog, "t")
    path = stage(local, "t", b"")
    os.truncate(f"/{path}", 512 * 2**20)
    entry = {"id": ["t"], "version": 2, "manifest_path": path}
    for call in (
        lambda: catalog.create_table_version(entry),
        lambda: catalog.batch_create_table_versions({"entries": [entry]}),
    ):
        with refused(INVALID_TABLE_STATE) as caught:
            call()
        assert "at most 268435456" in str(caught.value)
    assert versions(catalog, "t") == [1]
