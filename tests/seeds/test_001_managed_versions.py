"""The sentences about versions that the manifest manages, beside a client that knows only the page."""

from __future__ import annotations

import functools
import json
import shutil
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import lance
import pytest
from tests.seeds.clients import MANIFEST_SCHEMA, DirectoryClient, ManifestClient
from tests.seeds.sentences import Page, deviates, holds
from tests.support.calls import directory, ident, make, rows, spaces
from tests.support.codes import CONCURRENT_MODIFICATION, INVALID_TABLE_STATE, VERSION_NOT_FOUND
from tests.support.lakes import QUIET, Lake
from tests.support.managed_versions import versions
from tests.support.modes import MANIFEST_MODES
from tests.support.roots import numbers, refused

from relance.errors import TableVersionAlreadyExistsError

says = functools.partial(holds, Page.IMPLEMENTATION)
departs = functools.partial(deviates, Page.IMPLEMENTATION)

FINAL = {version: f"{2**64 - 1 - version:020d}.manifest" for version in range(1, 9)}
"""The file name of each version in the naming scheme V2, which counts down."""

PATH_FORMS: dict[str, Callable[[Lake, Path], str]] = {
    "absolute": lambda lake, file: str(file),
    "relative to the store": lambda lake, file: str(file).lstrip("/"),
    "relative to the root": lambda lake, file: str(file.relative_to(lake.folder)),
}
"""How other clients may write the path of a manifest: the page does not say."""


@pytest.fixture(params=MANIFEST_MODES)
def lake(request: pytest.FixtureRequest, tmp_path: Path) -> Lake:
    """A root with managed versions, in each mode that has a manifest."""
    settings = {**QUIET, "table_version_management": "true"}
    return Lake(str(tmp_path / "lake"), MANIFEST_MODES[request.param], settings=settings)


def versions_folder(lake: Lake, path: str) -> Path:
    return lake.folder / directory(lake, path) / "_versions"


def stage(lake: Lake, path: str, value: int, version: int = 2) -> Path:
    """Append a value to a table as a caller does: data in its place, the new manifest at a staging path."""
    table, copy = versions_folder(lake, path).parent, lake.folder.parent / f"copy-{uuid.uuid4()}"
    shutil.copytree(table, copy)
    lance.write_dataset(numbers(value), copy, mode="append")
    shutil.copytree(copy, table, dirs_exist_ok=True, ignore=shutil.ignore_patterns("_versions"))
    staged = table / "_versions" / f"{version}.manifest-{uuid.uuid4()}"
    shutil.copyfile(min((copy / "_versions").glob("*.manifest")), staged)
    return staged


def commit(lake: Lake, path: str, version: int, staged: Path, **fields: Any) -> Any:
    """Have the catalog create a version from a staged manifest."""
    request = {"id": ident(path), "version": version, "manifest_path": str(staged), **fields}
    return lake.open().create_table_version(request).version


def commit_all(lake: Lake, *entries: tuple[str, int, Path]) -> None:
    """Have the catalog create versions of several tables."""
    told = [
        {"id": ident(path), "version": version, "manifest_path": str(staged)}
        for path, version, staged in entries
    ]
    lake.open().batch_create_table_versions({"entries": told})


def listed(lake: Lake, path: str = "t") -> list[int]:
    return versions(lake.open(), *ident(path))


def describe(lake: Lake, version: int, path: str = "t") -> Any:
    return lake.open().describe_table_version({"id": ident(path), "version": version}).version


def version_row(lake: Lake, object_id: str) -> tuple[str, Any]:
    """Return the type and the metadata of a row, read as the page describes them."""
    row = ManifestClient(lake.uri).rows()[object_id]
    return row["object_type"], json.loads(row["metadata"])


def insert(lake: Lake, object_id: str, manifest_path: str, **metadata: Any) -> bool:
    """Commit a version as another client that follows the page; False: another writer was faster."""
    found = {"manifest_path": manifest_path, "e_tag": None, **metadata}
    return ManifestClient(lake.uri).insert(object_id, "table_version", None, found)


def first_seen(lake: Lake, *object_ids: str) -> dict[str, dict[str, Any]]:
    """Return the rows of the first version of the manifest that has any of these rows."""
    for version in (each["version"] for each in lance.dataset(f"{lake.uri}/__manifest").versions()):
        table = lance.dataset(f"{lake.uri}/__manifest", version=version).to_table()
        found = {row["object_id"]: row for row in table.to_pylist() if row["object_id"] in object_ids}
        if found:
            return found
    raise AssertionError(f"{object_ids} are nowhere")


# CreateTableVersion.


@says(
    "When table version management is enabled (V2 with table_version_management=true in __manifest metadata),"
    " the directory namespace acts as an external manifest store."
)
@pytest.mark.parametrize("founder", ["relance", "another client"])
def test_metadata_of_the_manifest_decides_for_every_client_of_the_root(lake: Lake, founder: str) -> None:
    if founder == "relance":
        make(lake.open(), "first", 1)
    else:
        found = lance.write_dataset(MANIFEST_SCHEMA.empty_table(), f"{lake.uri}/__manifest")
        found.update_metadata({"table_version_management": "true"})
    assert lance.dataset(f"{lake.uri}/__manifest").metadata["table_version_management"] == "true"
    plain = replace(lake, settings=QUIET)
    catalog = plain.open()
    assert plain.mode == lake.mode
    make(catalog, "t", 1)
    assert catalog.describe_table({"id": ["t"]}).managed_versioning is True
    lance.write_dataset(numbers(2), namespace_client=catalog, table_id=["t"], mode="append")
    rows_found = ManifestClient(lake.uri).rows()
    assert {"t$1", "t$2"} <= set(rows_found)
    assert rows_found["t$2"]["object_type"] == "table_version"
    theirs = stage(plain, "t", 3, version=3)
    assert insert(lake, "t$3", str(theirs)), "the row of another client is a version, too"
    assert rows(plain.open(), "t") == [1, 2, 3]


@says("When table version management is not enabled: (CreateTableVersion)")
def test_manifest_without_the_metadata_keeps_no_versions(lake: Lake) -> None:
    plain = replace(lake, settings=QUIET)
    make(plain.open(), "t", 1)
    lance.write_dataset(numbers(2), namespace_client=plain.open(), table_id=["t"], mode="append")
    assert "table_version_management" not in lance.dataset(f"{lake.uri}/__manifest").metadata
    assert not plain.open().describe_table({"id": ["t"]}).managed_versioning
    assert {row["object_type"] for row in ManifestClient(lake.uri).rows().values()} == {"namespace", "table"}
    assert insert(lake, "t$3", "t.lance/_versions/3.manifest-x")
    assert listed(plain) == [1, 2], "no row is a version"


@says(
    "Stage manifest in object storage: The caller writes the new manifest to a staging path (e.g., "
    "{table_location}/_versions/{version}.manifest-{uuid})."
)
@says("This staged manifest is not yet visible to readers.")
def test_staged_manifest_is_not_yet_visible(lake: Lake) -> None:
    make(lake.open(), "t", 1)
    location = versions_folder(lake, "t").parent
    stage(lake, "t", 7)
    assert listed(lake) == [1]
    assert rows(lake.open(), "t") == [1]
    assert lance.dataset(location).count_rows() == 1
    assert "t$2" not in ManifestClient(lake.uri).rows()
    with refused(VERSION_NOT_FOUND):
        describe(lake, 2)


@says("object_id set to <table_id>$<version> (e.g., users$1 or ns1$users$1)")
@says('object_type set to "table_version"')
@says("metadata containing the JSON-encoded version metadata including the staging manifest path")
@pytest.mark.parametrize("path", ["users", "ns1/users"])
def test_version_begins_as_a_row_with_the_staging_path(lake: Lake, path: str) -> None:
    spaces(lake.open(), "ns1")
    make(lake.open(), path, 1)
    object_id = path.replace("/", "$")
    staged = stage(lake, path, 7)
    commit(lake, path, 2, staged, metadata={"by": "ann"})
    (row,) = first_seen(lake, f"{object_id}$2").values()
    metadata = json.loads(row["metadata"])
    assert (row["object_type"], row["location"]) == ("table_version", None)
    assert lake.folder / metadata["manifest_path"] == staged
    assert metadata["by"] == "ann"
    assert version_row(lake, f"{object_id}$1")[0] == version_row(lake, f"{object_id}$2")[0] == "table_version"


@says("Primary-key deduplication on object_id ensures no duplicate rows are inserted. (CreateTableVersion)")
def test_one_of_several_writers_gets_the_row_of_a_version(lake: Lake) -> None:
    make(lake.open(), "t", 1)
    for version, value in ((2, 10), (3, 20), (4, 30)):
        before = rows(lake.open(), "t")
        staged = [stage(lake, "t", value + number, version) for number in range(4)]
        listed(lake)

        def ours(file: Path, version: int = version) -> bool:
            try:
                commit(lake, "t", version, file)
            except TableVersionAlreadyExistsError:
                return False
            return True

        def theirs(file: Path, version: int = version) -> bool:
            return insert(lake, f"t${version}", str(file), manifest_size=file.stat().st_size)

        with ThreadPoolExecutor(4) as threads:
            calls = [threads.submit(act, file) for act, file in zip((ours, theirs) * 2, staged, strict=True)]
        won = [value + number for number, call in enumerate(calls) if call.result()]
        assert len(won) == 1
        assert rows(lake.open(), "t") == [*before, *won]
        ids = lance.dataset(f"{lake.uri}/__manifest").to_table()["object_id"].to_pylist()
        assert len(ids) == len(set(ids))


@says("The commit is effectively complete after this step.")
@says("If this fails, another writer has already committed that version.")
def test_row_alone_commits_a_version(lake: Lake) -> None:
    make(lake.open(), "t", 1)
    theirs, ours = stage(lake, "t", 7), stage(lake, "t", 8)
    assert insert(lake, "t$2", str(theirs))
    with refused(CONCURRENT_MODIFICATION):
        commit(lake, "t", 2, ours)
    assert listed(lake) == [1, 2]
    assert rows(lake.open(), "t") == [1, 7]
    assert not insert(lake, "t$2", str(ours))


@says(
    "Finalize in object storage: Copy the staged manifest to the standard location "
    "({table_location}/_versions/{version}.manifest)."
)
@says("This makes it discoverable by readers that do not use the manifest table.")
@says(
    "Update manifest table pointer: Update the metadata in the manifest table row to point to the finalized "
    "manifest path, synchronizing both systems."
)
@pytest.mark.parametrize(("scheme", "name"), [("V1", "2.manifest"), ("V2", FINAL[2])])
def test_committed_version_is_finalized_and_its_row_leads_there(lake: Lake, scheme: str, name: str) -> None:
    make(lake.open(), "t", 1)
    staged = stage(lake, "t", 7)
    body = staged.read_bytes()
    commit(lake, "t", 2, staged, naming_scheme=scheme)
    final = versions_folder(lake, "t") / name
    assert final.read_bytes() == body
    kind, metadata = version_row(lake, "t$2")
    assert (kind, lake.folder / metadata["manifest_path"]) == ("table_version", final)
    assert metadata["manifest_size"] == len(body)
    if scheme == "V2":  # Lance itself does not read a folder with names of both schemes
        assert lance.dataset(final.parent.parent).count_rows() == 2
        if not lake.is_v2:
            assert DirectoryClient(lake.folder).rows("t") == [{"x": 1}, {"x": 7}]


# BatchCreateTableVersions.


@says(
    "Stage manifests in object storage: For each entry, the caller writes the new manifest to a staging path "
    "(e.g., {table_location}/_versions/{version}.manifest-{uuid})."
)
@says(
    "Atomically commit to manifest table: Merge-insert all version rows into the __manifest table in a "
    "single atomic commit"
)
@says("object_id set to <table_id>$<version>")
@says('object_type set to "table_version" (BatchCreateTableVersions)')
@says(
    "metadata containing the JSON-encoded version metadata including the staging manifest path "
    "(BatchCreateTableVersions)"
)
@says("Finalize in object storage: For each entry, copy the staged manifest to the standard location.")
@says(
    "Update manifest table pointers: Update the metadata in each manifest table row to point to the "
    "finalized manifest paths."
)
def test_batch_begins_as_rows_of_one_commit_and_ends_with_files(lake: Lake) -> None:
    spaces(lake.open(), "ns")
    staged = {}
    for path in ("t", "ns/u"):
        make(lake.open(), path, 1)
        staged[path] = stage(lake, path, 7)
    assert listed(lake, "t") == listed(lake, "ns/u") == [1]
    bodies = {path: file.read_bytes() for path, file in staged.items()}
    commit_all(lake, ("t", 2, staged["t"]), ("ns/u", 2, staged["ns/u"]))
    first = first_seen(lake, "t$2", "ns$u$2")
    for path, object_id in (("t", "t$2"), ("ns/u", "ns$u$2")):
        row = first[object_id]
        assert row["object_type"] == "table_version"
        assert lake.folder / json.loads(row["metadata"])["manifest_path"] == staged[path]
        final = versions_folder(lake, path) / FINAL[2]
        assert final.read_bytes() == bodies[path]
        assert lake.folder / version_row(lake, object_id)[1]["manifest_path"] == final
        assert rows(lake.open(), path) == [1, 7]


@says(
    "Primary-key deduplication on object_id ensures no duplicate rows are inserted. "
    "(BatchCreateTableVersions)"
)
@says("The commit is effectively complete after this step. (BatchCreateTableVersions)")
def test_batch_with_a_version_that_another_client_committed_adds_no_row(lake: Lake) -> None:
    for name in ("t", "u"):
        make(lake.open(), name, 1)
    theirs = stage(lake, "u", 9)
    ours = [("t", 2, stage(lake, "t", 7)), ("u", 2, stage(lake, "u", 7))]
    assert insert(lake, "u$2", str(theirs))
    with refused(CONCURRENT_MODIFICATION):
        commit_all(lake, *ours)
    assert (listed(lake, "t"), listed(lake, "u")) == ([1], [1, 2])
    assert "t$2" not in ManifestClient(lake.uri).rows()
    assert (rows(lake.open(), "t"), rows(lake.open(), "u")) == ([1], [1, 9])
    ids = lance.dataset(f"{lake.uri}/__manifest").to_table()["object_id"].to_pylist()
    assert len(ids) == len(set(ids))


# ListTableVersions.


@says('object_type = "table_version"')
@says("object_id starts with <table_id>$")
@says("Parse the version number from each object_id")
def test_versions_are_listed_from_the_rows_of_the_table(lake: Lake) -> None:
    for name in ("t", "tt"):
        make(lake.open(), name, 1)
    for version in range(2, 4):
        staged = stage(lake, "tt", version, version)
        assert insert(lake, f"tt${version}", str(staged))
        assert listed(lake, "tt") == list(range(1, version + 1))
    client = ManifestClient(lake.uri)
    assert client.insert("t$2", "view", "somewhere")
    assert client.insert("t$x", "table_version", None, {"manifest_path": "x"})
    assert client.insert("t$a$3", "table_version", None, {"manifest_path": "x"})
    assert listed(lake, "t") == [1]
    assert listed(lake, "tt") == [1, 2, 3]


@departs(
    "Query the manifest table for rows where:",
    because="the file of a version decides as well as its row: a version that was written by path is a "
    "version for every reader, so it is listed and gets a row; a row whose manifest is gone is removed",
)
def test_version_that_was_written_by_path_is_listed_and_gets_a_row(lake: Lake) -> None:
    make(lake.open(), "t", 1)
    lance.write_dataset(numbers(2), versions_folder(lake, "t").parent, mode="append")
    assert "t$2" not in ManifestClient(lake.uri).rows()
    assert listed(lake) == [1, 2]
    assert version_row(lake, "t$2")[1]["manifest_path"].endswith(f"/_versions/{FINAL[2]}")
    assert insert(lake, "t$3", f"{versions_folder(lake, 't')}/3.manifest-{uuid.uuid4()}")
    assert listed(lake) == [1, 2]
    assert "t$3" not in ManifestClient(lake.uri).rows()


# DescribeTableVersion.


@says(
    "Query manifest table: Retrieve the manifest path for the requested version from the row with object_id ="
    " <table_id>$<version>."
)
@says("If the path matches the expected path based on the naming scheme, synchronization is complete.")
@pytest.mark.parametrize("form", PATH_FORMS)
def test_row_with_the_final_path_is_left_as_it_is(lake: Lake, form: str) -> None:
    make(lake.open(), "t", 1)
    staged = stage(lake, "t", 7)
    final = staged.rename(staged.with_name(FINAL[2]))
    assert insert(lake, "t$2", PATH_FORMS[form](lake, final), manifest_size=final.stat().st_size)
    before = lake.files()
    version = describe(lake, 2)
    assert (version.version, f"/{version.manifest_path}") == (2, str(final))
    assert lake.files() == before
    assert rows(lake.open(), "t") == [1, 7]


@says(
    "Synchronize to object storage: If the manifest path does not match the expected path based on the naming"
    " scheme (i.e., it is a staging path), copy the staged manifest to its final location "
    "({table_location}/_versions/{version}.manifest)."
)
@says("This is an idempotent operation.")
@says(
    "Update manifest table: Update the metadata in the manifest table row to reflect the finalized path for "
    "future readers."
)
@says("Return version information: Return the version information with the finalized manifest path")
@pytest.mark.parametrize("form", PATH_FORMS)
@pytest.mark.parametrize("path", ["t", "ns/t"])
def test_staging_path_is_synchronized(lake: Lake, path: str, form: str) -> None:
    spaces(lake.open(), "ns")
    make(lake.open(), path, 1)
    staged = stage(lake, path, 7)
    body, final = staged.read_bytes(), staged.with_name(FINAL[2])
    object_id = f"{path.replace('/', '$')}$2"
    assert insert(lake, object_id, PATH_FORMS[form](lake, staged), note="theirs")
    with ThreadPoolExecutor(4) as threads:
        told = list(threads.map(lambda _: describe(lake, 2, path), range(4)))
    assert {f"/{version.manifest_path}" for version in told} == {str(final)}
    assert final.read_bytes() == body
    metadata = version_row(lake, object_id)[1]
    assert lake.folder / metadata["manifest_path"] == final
    assert (metadata["manifest_size"], metadata["note"]) == (len(body), "theirs")
    before = lake.files()
    assert describe(lake, 2, path) == told[0]
    assert lake.files() == before
    assert rows(lake.open(), path) == [1, 7]
    assert lance.dataset(final.parent.parent).count_rows() == 2


@says("or error if synchronization fails.")
@pytest.mark.parametrize(
    ("why", "code"),
    [("nothing is staged", VERSION_NOT_FOUND), ("a folder has its place", INVALID_TABLE_STATE)],
)
def test_version_that_cannot_be_synchronized_is_an_error(lake: Lake, why: str, code: int) -> None:
    make(lake.open(), "t", 1)
    staged = stage(lake, "t", 7)
    final = staged.with_name(FINAL[2])
    assert insert(lake, "t$2", str(staged))
    if why == "nothing is staged":
        staged.unlink()
    else:
        final.mkdir()
    for _ in range(2):
        with refused(code):
            describe(lake, 2)
    if final.is_dir():
        assert staged.exists()
        final.rmdir()
        assert describe(lake, 2).version == 2
        assert rows(lake.open(), "t") == [1, 7]
    else:
        assert rows(lake.open(), "t") == [1]
