"""The sentences about the implementation, on local disk unless a sentence names a store."""

from __future__ import annotations

import functools
import itertools
import json
import os
import re
import shutil
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest
from lance.namespace import DirectoryNamespace as NativeNamespace
from lance_namespace import (
    CreateNamespaceRequest,
    DeclareTableRequest,
    DeregisterTableRequest,
    DescribeTableRequest,
    DescribeTableResponse,
    DropTableRequest,
    ListTablesRequest,
)
from lance_namespace.errors import LanceNamespaceError
from tests.seeds.clients import MANIFEST_SCHEMA, DirectoryClient, ManifestClient
from tests.seeds.sentences import Page, deviates, holds
from tests.support.calls import (
    declare,
    deregister,
    describe,
    directory,
    drop,
    exists,
    make,
    namespaces,
    register,
    rename,
    rows,
    space_exists,
    spaces,
    tables,
)
from tests.support.codes import (
    CONCURRENT_MODIFICATION,
    INTERNAL,
    INVALID_INPUT,
    NAMESPACE_EXISTS,
    NAMESPACE_NOT_EMPTY,
    NAMESPACE_NOT_FOUND,
    PERMISSION_DENIED,
    SERVICE_UNAVAILABLE,
    TABLE_EXISTS,
    TABLE_NOT_FOUND,
    UNSUPPORTED,
    VERSION_NOT_FOUND,
)
from tests.support.lakes import QUIET, Lake, make_older
from tests.support.modes import COMPATIBILITY, MANIFEST_MODES, MODES, V1, V2
from tests.support.profiles import MOTO
from tests.support.roots import numbers, refused
from tests.support.servers import S3Server

from relance import DirectoryNamespace
from relance.config import SETTINGS
from relance.errors import RelanceError, TableVersionAlreadyExistsError

says = functools.partial(holds, Page.IMPLEMENTATION)
departs = functools.partial(deviates, Page.IMPLEMENTATION)

Call = Callable[[], object]

BOTH_AT_ONCE = 8
"""Clients that race."""

SOFT = "a drop is soft, as the page on soft delete proposes: the table can be undropped until it is purged"
MOVED = (
    "the row is moved to an id below `__dropped` and keeps its content, so that the object can be undropped; "
    "no row has its own id any more"
)
ONE_COMMIT = (
    "Lance 14 was seen to write a key twice when a merge-insert uses the key's index, and a merge-insert "
    "checks nothing but the key. One commit adds the row and rewrites the head row, so that all changes "
    "exclude each other; a row that a merge-insert added at the same time is found, and wins"
)


@pytest.fixture
def v1(tmp_path: Path) -> Lake:
    return Lake(str(tmp_path / "lake"), V1)


@pytest.fixture
def v2(tmp_path: Path) -> Lake:
    return Lake(str(tmp_path / "lake"), V2, settings=QUIET)


@pytest.fixture
def compatible(tmp_path: Path) -> Lake:
    return Lake(str(tmp_path / "lake"), COMPATIBILITY, settings=QUIET)


@pytest.fixture(params=MANIFEST_MODES)
def lake(request: pytest.FixtureRequest, tmp_path: Path) -> Lake:
    """A root with a manifest."""
    return Lake(str(tmp_path / "lake"), MANIFEST_MODES[request.param], settings=QUIET)


@pytest.fixture(params=MODES)
def any_lake(request: pytest.FixtureRequest, tmp_path: Path) -> Lake:
    """A root in any mode."""
    return Lake(str(tmp_path / "lake"), MODES[request.param], settings=QUIET)


def stranger(lake: Lake) -> ManifestClient:
    """Return the client of another implementation on the same root."""
    return ManifestClient(lake.uri)


def found_manifest(lake: Lake, *columns: pa.Field) -> ManifestClient:
    """Have another implementation create the manifest, with further columns."""
    schema = MANIFEST_SCHEMA
    for column in columns:
        schema = schema.append(column)
    lance.write_dataset(schema.empty_table(), f"{lake.uri}/__manifest", schema=schema)
    return stranger(lake)


def at_once(*calls: Call) -> list[int | None]:
    """Make all calls on threads of their own; return the error codes, None for a success."""

    def outcome(call: Call) -> int | None:
        try:
            call()
        except LanceNamespaceError as error:
            return int(error.code)
        return None

    with ThreadPoolExecutor(len(calls)) as pool:
        return list(pool.map(outcome, calls))


def winners(lake: Lake, call: Callable[[DirectoryNamespace], object]) -> list[int | None]:
    """Have several clients do the same at once; return the losers' codes after checking that one won."""
    catalogs = [lake.open() for _ in range(BOTH_AT_ONCE)]
    outcomes = at_once(*[functools.partial(call, catalog) for catalog in catalogs])
    assert outcomes.count(None) == 1, outcomes
    return [outcome for outcome in outcomes if outcome is not None]


def folder(lake: Lake, path: str) -> Path:
    return lake.folder / directory(lake, path)


# Namespace implementation configuration properties.


@says("The root property is required")
def test_root_property_is_required() -> None:
    with refused(INVALID_INPUT) as caught:
        DirectoryNamespace(manifest_enabled="false")
    assert "'root'" in str(caught.value)


@says("and specifies the root directory of the namespace where tables are stored.")
@says("The root namespace is the root directory specified by the root configuration property.")
@says("This is the base path where all tables are stored.")
def test_root_property_names_the_directory_where_tables_are_stored(any_lake: Lake) -> None:
    catalog = any_lake.open()
    make(catalog, "t", 1)
    if any_lake.mode != V1:
        spaces(catalog, "a")
        make(catalog, "a/t", 2)
    for path in ("t", *(["a/t"] if any_lake.mode != V1 else [])):
        location = Path(str(describe(catalog, path).location))
        assert location.parent == any_lake.folder
        assert (location / "_versions").is_dir()
    assert catalog.describe_namespace({"id": []}).properties == {}


@says("This can be a local path like /my/dir or a cloud storage URI like s3://bucket/prefix.")
@pytest.mark.parametrize("store", ["disk", MOTO])
def test_root_is_a_local_path_or_a_cloud_storage_uri(
    store: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    if store == "disk":
        lake = Lake(str(tmp_path / "my/dir"))
    else:
        server: S3Server = request.getfixturevalue("moto_server")
        bucket: str = request.getfixturevalue("moto_bucket")
        lake = Lake(f"s3://{bucket}/prefix", options=server.storage_options())
    make(lake.open(), "t", 1)
    assert lake.dataset("t").count_rows() == 1
    assert lake.location("t") == f"{lake.uri}/t.lance"


@says(
    "The manifest_enabled property controls whether the manifest table is used for tracking tables and "
    "namespaces (V2)."
)
def test_manifest_enabled_controls_whether_the_manifest_is_used(tmp_path: Path) -> None:
    for enabled in (True, False):
        root = tmp_path / str(enabled)
        make(DirectoryNamespace(root=root, manifest_enabled=enabled), "t", 1)
        assert (root / "__manifest").exists() is enabled


@says("Defaults to true. (manifest_enabled)")
@says("Defaults to true. (dir_listing_enabled)")
@says(
    "By default, both properties are enabled, which means the implementation operates in Compatibility Mode."
)
def test_default_is_compatibility_mode(tmp_path: Path) -> None:
    catalog = DirectoryNamespace(root=tmp_path)
    spaces(catalog, "a")
    make(catalog, "t", 1)
    make(catalog, "a/t", 2)
    DirectoryClient(tmp_path).create("listed", numbers(3))
    assert tables(catalog) == ["listed", "t"]
    assert {"t", "a", "a$t"} <= set(ManifestClient(str(tmp_path)).rows())
    assert (tmp_path / "t.lance").is_dir()
    assert "default true" in SETTINGS["manifest_enabled"]
    assert "default true" in SETTINGS["dir_listing_enabled"]


@says(
    "The dir_listing_enabled property controls whether directory scanning is used for table discovery (V1)."
)
def test_dir_listing_enabled_controls_whether_directories_are_found(tmp_path: Path) -> None:
    make(DirectoryNamespace(root=tmp_path), "known", 1)
    DirectoryClient(tmp_path).create("listed", numbers(3))
    assert tables(DirectoryNamespace(root=tmp_path, dir_listing_enabled=True)) == ["known", "listed"]
    assert tables(DirectoryNamespace(root=tmp_path, dir_listing_enabled=False)) == ["known"]


@says(
    "Properties with the storage. prefix are passed directly to the underlying Lance ObjectStore after "
    "removing the prefix."
)
@says("For example, storage.region becomes region when passed to the storage layer.")
def test_storage_properties_reach_the_store_without_their_prefix(
    moto_server: S3Server, moto_bucket: str, tmp_path: Path
) -> None:
    roots = {f"s3://{moto_bucket}/lake": moto_server.storage_options(), str(tmp_path): {}}
    for (root, needed), mode in itertools.product(roots.items(), MODES):
        options = {**needed, "region": "eu-central-1", "new_to_relance": "1"}
        properties: dict[str, Any] = {f"storage.{key}": value for key, value in options.items()}
        catalog = DirectoryNamespace(**{"root": f"{root}/{mode}", **MODES[mode], **QUIET, **properties})
        make(catalog, "t", 1)  # on S3, not without the endpoint and the keys
        described = describe(catalog, "t")
        assert described.storage_options == options
        assert lance.dataset(described.location, storage_options=options).count_rows() == 1


# Object mapping: namespaces.


@says("A child namespace is a logical container tracked in the manifest table.")
@says("Child namespaces do not correspond to physical subdirectories.")
def test_child_namespace_is_a_row_and_no_directory(lake: Lake) -> None:
    spaces(lake.open(), "a", "a/b")
    assert stranger(lake).rows()["a$b"]["object_type"] == "namespace"
    assert lake.directories() == set()


@says(
    "Child namespaces are only supported in V2; V1 treats the root directory as a flat namespace containing "
    "only tables."
)
def test_child_namespaces_need_the_manifest(v1: Lake) -> None:
    catalog = v1.open()
    make(catalog, "t", 1)
    for call in (catalog.create_namespace, catalog.describe_namespace, catalog.list_namespaces):
        with refused(UNSUPPORTED):
            call({"id": ["a"]})
    with refused(UNSUPPORTED):
        make(catalog, "a/t", 1)
    assert tables(catalog) == ["t"]
    spaces(v1.open(COMPATIBILITY), "a")


@says(
    "The namespace identifier is a list of strings representing the namespace path. For example, a "
    'namespace ["prod", "analytics"] is serialized to prod$analytics when stored in the manifest table\'s '
    "object_id column."
)
def test_namespace_identifier_is_joined_by_dollars(lake: Lake) -> None:
    catalog = lake.open()
    catalog.create_namespace({"id": ["prod"]})
    catalog.create_namespace({"id": ["prod", "analytics"]})
    assert {"prod", "prod$analytics"} <= set(stranger(lake).rows())
    stranger(lake).create_namespace("prod$other")
    assert namespaces(lake.open(), "prod") == ["analytics", "other"]


PROPERTIES = {"owner": "ann", "größe": '"7" {}', "empty": ""}
ANY_JSON: dict[str, Any] = {
    "text": "x",
    "number": 423,
    "none": None,
    "nested": {"a": [1, {"b": None}]},
    "relance.mine": "5",
    "relance.id": 7,
    "relance.control": "mine",
}
NUMBERS = {"large": "1e400", "exact": "0.1234567890123456789012", "short": "1e5"}
"""Literals that Python cannot hold, or would write differently."""
ANY_TEXT = json.dumps(ANY_JSON)[:-1] + "".join(f', "{key}": {each}' for key, each in NUMBERS.items()) + "}"
AS_TEXT = {
    "text": "x",
    "number": "423",
    "none": "null",
    "nested": '{"a": [1, {"b": null}]}',
    "relance.mine": "5",
    "relance.id": "7",
    "relance.control": "mine",
    **NUMBERS,
}


def literally(text: str) -> Any:
    """Return the value of a JSON text, with fractions as text."""
    return json.loads(text, parse_float=str)


@says("Namespace properties are stored as JSON in the metadata column of the manifest table.")
def test_namespace_properties_are_json_in_the_metadata_column(lake: Lake) -> None:
    catalog = lake.open()
    catalog.create_namespace({"id": ["a"], "properties": PROPERTIES})
    assert json.loads(stranger(lake).rows()["a"]["metadata"]) == PROPERTIES
    stranger(lake).insert("b", "namespace", None, ANY_TEXT)
    for _ in range(2):
        assert catalog.describe_namespace({"id": ["b"]}).properties == AS_TEXT
        catalog.drop_namespace({"id": ["b"]})
        catalog.undrop_namespace(["b"])
        assert literally(stranger(lake).rows()["b"]["metadata"]) == ANY_JSON | NUMBERS
    catalog.create_namespace({"id": ["b"], "mode": "overwrite", "properties": {"text": "y"}})
    kept = {key: text for key, text in AS_TEXT.items() if key.startswith("relance.")}
    assert catalog.describe_namespace({"id": ["b"]}).properties == {"text": "y", **kept}


@says("This is only available in V2. (namespace properties)")
def test_namespace_properties_need_the_manifest(v1: Lake) -> None:
    with refused(UNSUPPORTED):
        v1.open().create_namespace({"id": ["a"], "properties": PROPERTIES})
    assert not v1.folder.exists()


# Object mapping: tables.


@says("A table is a subdirectory containing Lance table data.")
@says(
    "The directory must contain valid Lance format files including the _versions/ directory with version "
    "manifests."
)
def test_table_is_a_directory_that_lance_opens(any_lake: Lake) -> None:
    catalog = any_lake.open()
    make(catalog, "t", 1, 2)
    location = folder(any_lake, "t")
    assert lance.dataset(location).count_rows() == 2
    assert [path.suffix for path in (location / "_versions").glob("*.manifest")] == [".manifest"]


@says(
    "The table identifier is a list of strings representing the namespace path followed by the table name. "
    'For example, a table ["prod", "analytics", "users"] represents a table named users in namespace '
    '["prod", "analytics"]. This is serialized to prod$analytics$users when stored in the manifest table\'s '
    "object_id column."
)
@says('Multi-level table identifiers (e.g., ["prod", "analytics", "users"]) are supported.')
def test_table_identifier_is_joined_by_dollars(lake: Lake) -> None:
    catalog = lake.open()
    spaces(catalog, "prod", "prod/analytics")
    make(catalog, "prod/analytics/users", 1)
    assert stranger(lake).rows()["prod$analytics$users"]["object_type"] == "table"
    described = describe(catalog, "prod/analytics/users")
    assert (described.namespace, described.table) == (["prod", "analytics"], "users")
    assert rows(catalog, "prod/analytics/users") == [1]


@says("In V1 (root namespace only), tables are stored as <table_name>.lance directories")
def test_v1_stores_tables_as_name_dot_lance(v1: Lake) -> None:
    make(v1.open(), "users", 1)
    declare(v1.open(), "later")
    assert v1.directories() == {"users.lance", "later.lance"}


@says(
    "In V2 with dir_listing_enabled=true and an empty namespace (root level), tables use the "
    "<table_name>.lance naming convention for backward compatibility"
)
def test_root_tables_are_name_dot_lance_if_directories_are_listed(compatible: Lake) -> None:
    make(compatible.open(), "users", 1)
    declare(compatible.open(), "later")
    assert compatible.directories() == {"users.lance", "later.lance"}
    assert stranger(compatible).rows()["users"]["location"] == "users.lance"
    assert DirectoryClient(compatible.folder).rows("users") == [{"x": 1}]


@says(
    "In V2 for child namespaces, or when dir_listing_enabled=false, tables are stored as <hash>_<object_id> "
    "directories where hash provides entropy for object store throughput"
)
def test_other_tables_are_in_directories_with_a_hash(lake: Lake) -> None:
    catalog = lake.open()
    spaces(catalog, "a")
    names = [f"a/t{number}" for number in range(4)] + (["root"] if lake.is_v2 else [])
    for name in names:
        make(catalog, name, 1)
    hashes = set()
    for name in names:
        matched = re.fullmatch(r"([0-9a-f]{8})_(.*)", directory(lake, name))
        assert matched is not None
        assert matched[2] == name.replace("/", "$")
        hashes.add(matched[1])
    assert len(hashes) == len(names)


@says("Table properties are stored in Lance table metadata and can be accessed via the Lance SDK.")
def test_table_properties_are_metadata_of_the_lance_table(any_lake: Lake) -> None:
    catalog = any_lake.open()
    paths = ["t"]
    if any_lake.mode != V1:
        spaces(catalog, "a")
        paths.append("a/t")
    for path in paths:
        make(catalog, path, 1, properties={"owner": "ann"})
        dataset = lance.dataset(folder(any_lake, path))
        assert dataset.metadata == {"owner": "ann"}
        dataset.update_metadata({"unit": "kg"})
        described = describe(any_lake.open(), path, load_detailed_metadata=True)
        assert described.properties == {"owner": "ann", "unit": "kg"}


# Lance table identification.


@says("In V1, a Lance table is any directory with the .lance suffix (e.g., users.lance/).")
def test_v1_table_is_any_directory_with_the_suffix(v1: Lake) -> None:
    DirectoryClient(v1.folder).create("users", numbers(1))
    lance.write_dataset(numbers(1), v1.folder / "other")
    lance.write_dataset(numbers(1), v1.folder / "upper.LANCE")
    assert tables(v1.open()) == ["users"]
    assert rows(v1.open(), "users") == [1]


@says("The directory must contain valid Lance table data to be usable.")
def test_directory_without_lance_data_cannot_be_read(v1: Lake) -> None:
    (v1.folder / "junk.lance").mkdir(parents=True)
    (v1.folder / "junk.lance" / "readme").write_text("no table")
    make(v1.open(), "t", 1)
    with refused(TABLE_NOT_FOUND):
        v1.open().count_table_rows({"id": ["junk"]})
    assert rows(v1.open(), "t") == [1]


@says('Only single-level table identifiers (e.g., ["users"]) are supported in this mode.')
def test_v1_knows_single_level_identifiers_only(v1: Lake) -> None:
    catalog = v1.open()
    make(catalog, "users", 1)
    for call in (describe, declare, drop, deregister):
        with refused(UNSUPPORTED):
            call(catalog, "a/users")


@says('In V2, a Lance table is identified by a row in the manifest table with object_type="table".')
@says("The row's location field points to the Lance table directory.")
def test_row_identifies_the_table_and_its_location_leads_there(lake: Lake) -> None:
    spaces(lake.open(), "a")
    lance.write_dataset(numbers(7), lake.folder / "somewhere")
    assert stranger(lake).insert("a$t", "table", "somewhere", ANY_JSON)
    assert stranger(lake).insert("a$n", "namespace", None)
    assert stranger(lake).insert("a$v", "view", "somewhere")
    assert tables(lake.open(), "a") == ["t"]
    assert describe(lake.open(), "a/t").location == str(lake.folder / "somewhere")
    assert rows(lake.open(), "a/t") == [7]


@departs(
    'In V2, a Lance table is identified by a row in the manifest table with object_type="table". (dropped)',
    because="without managed versions a dropped row keeps its type, below the id `__dropped`, where no "
    "listing of a namespace finds it: any type that native clients do not know makes all their changes fail, "
    "and as a `namespace` the row could be removed by their drop_namespace, with the files lost",
)
def test_dropped_row_keeps_its_type_so_that_native_clients_can_write(lake: Lake) -> None:
    spaces(lake.open(), "a")
    make(lake.open(), "a/t", 1)
    deletion_id = drop(lake.open(), "a/t")["deletion_id"]
    assert stranger(lake).rows()[f"__dropped${deletion_id}"]["object_type"] == "table"
    native = NativeNamespace(root=lake.uri, manifest_enabled="true", dir_listing_enabled="false")
    for path in ([], ["a"]):
        assert stranger(lake).tables("$".join(path)) == tables(lake.open(), "/".join(path)) == []
        assert native.list_tables(ListTablesRequest(id=path)).tables == []
    native.create_namespace(CreateNamespaceRequest(id=["theirs"]))
    lake.open().undrop_table(["a", "t"])
    assert rows(lake.open(), "a/t") == [1]
    assert stranger(lake).insert("a$odd", "relance_table", "somewhere")
    with pytest.raises(LanceNamespaceError, match="Invalid object type"):
        native.create_namespace(CreateNamespaceRequest(id=["more"]))


def append(catalog: DirectoryNamespace, path: str) -> None:
    lance.write_dataset(numbers(8), namespace_client=catalog, table_id=path.split("/"), mode="append")


def _rename_and_back(catalog: DirectoryNamespace, path: str) -> None:
    rename(catalog, path, f"{path}2")
    rename(catalog, f"{path}2", path)


def _drop_and_undrop(catalog: DirectoryNamespace, path: str) -> None:
    drop(catalog, path)
    catalog.undrop_table(path.split("/"))


VERBS: dict[str, Callable[[DirectoryNamespace, str], object]] = {
    "write": append,
    "overwrite": lambda catalog, path: make(catalog, path, 8, mode="overwrite"),
    "rename and back": _rename_and_back,
    "drop and undrop": _drop_and_undrop,
    "protect": lambda catalog, path: catalog.protect(path.split("/")),
    "properties": lambda catalog, path: make(
        catalog, path, 8, mode="overwrite", properties={"text": "y", "k": "v"}
    ),
}


@pytest.mark.parametrize("path", ["a/t", "t"])
@pytest.mark.parametrize("verb", VERBS)
@says("Parse the metadata column as JSON")
def test_metadata_of_other_clients_survives_every_verb(lake: Lake, path: str, verb: str) -> None:
    spaces(lake.open(), "a")
    location = "t.lance" if path == "t" else "somewhere"
    lance.write_dataset(numbers(7), lake.folder / location)
    assert stranger(lake).insert(path.replace("/", "$"), "table", location, ANY_TEXT)
    catalog = lake.open()
    assert describe(catalog, path).properties == AS_TEXT
    VERBS[verb](catalog, path)
    kept = literally(stranger(lake).rows()[path.replace("/", "$")]["metadata"])
    if verb == "properties":
        assert (kept.pop("text"), kept.pop("k")) == ("y", "v")
        assert kept == {key: value for key, value in ANY_JSON.items() if key.startswith("relance.")}
    else:
        assert {**kept, "relance.protected": "true"} == {**ANY_JSON, **NUMBERS, "relance.protected": "true"}
    assert describe(lake.open(), path).location is not None


@says("A valid Lance table directory must be non-empty.")
def test_empty_directory_is_no_table(any_lake: Lake) -> None:
    (any_lake.folder / "empty.lance").mkdir(parents=True)
    assert tables(any_lake.open()) == []
    assert not exists(any_lake.open(), "empty")
    make(any_lake.open(), "empty", 1)
    assert rows(any_lake.open(), "empty") == [1]


# CreateNamespace.


@says(
    "This operation is only supported in V2. V1 does not support explicit namespace creation since it uses "
    "a flat directory structure."
)
def test_v1_creates_no_namespaces(v1: Lake) -> None:
    with refused(UNSUPPORTED):
        spaces(v1.open(), "a")
    assert not v1.folder.exists()


@departs(
    "The implementation creates a new namespace using a merge-insert operation on the manifest table",
    because=ONE_COMMIT,
)
def test_namespace_is_created_in_one_commit_that_respects_merge_inserts(lake: Lake) -> None:
    spaces(lake.open(), "first")
    before = lance.dataset(f"{lake.uri}/__manifest")
    catalog = lake.open()
    assert namespaces(catalog) == ["first"]  # it knows this version of the manifest
    assert stranger(lake).create_namespace("theirs")
    spaces(catalog, "ours")
    after = lance.dataset(f"{lake.uri}/__manifest")
    assert after.version == before.version + 2
    assert not stranger(lake).create_namespace("ours")
    with refused(NAMESPACE_EXISTS):
        spaces(catalog, "theirs")
    assert namespaces(lake.open()) == ["first", "ours", "theirs"]
    assert after.count_rows() == len(stranger(lake).rows())


@says(
    "Merge-insert a new row into the manifest table with: object_id set to the namespace identifier (e.g., "
    "prod$analytics)"
)
@says('object_type set to "namespace"')
@says("metadata containing the namespace properties as JSON")
def test_row_of_a_new_namespace(lake: Lake) -> None:
    spaces(lake.open(), "prod")
    lake.open().create_namespace({"id": ["prod", "analytics"], "properties": {"k": "v"}})
    row = stranger(lake).rows()["prod$analytics"]
    assert (row["object_type"], row["location"], row["metadata"]) == ("namespace", None, '{"k": "v"}')


@departs(
    "created_at set to the current timestamp",
    because="native clients drop every column that is not in their schema, so that the next change by one "
    "would lose it. In a manifest that another client created with this column, each new row gets "
    "the time",
)
def test_created_at_is_set_where_the_manifest_has_it(lake: Lake) -> None:
    began = datetime.now(UTC).replace(microsecond=0)
    client = found_manifest(lake, pa.field("created_at", pa.timestamp("us", "UTC"), nullable=False))
    assert client.create_namespace("theirs")
    catalog = lake.open()
    spaces(catalog, "ours")
    make(catalog, "ours/t", 1)
    drop(catalog, "ours/t")
    catalog.undrop_table(["ours", "t"])
    for row in client.rows().values():
        assert began <= row["created_at"] <= datetime.now(UTC)
    assert client.create_namespace("theirs$again")
    assert namespaces(lake.open()) == ["ours", "theirs"]


@says(
    "Primary-key deduplication on object_id ensures no duplicate rows are inserted. If a namespace with the"
    " same identifier already exists, the operation fails."
)
def test_one_of_several_namespaces_with_one_identifier_is_created(lake: Lake) -> None:
    spaces(lake.open(), "first")
    losers = winners(lake, lambda catalog: spaces(catalog, "a"))
    assert set(losers) == {NAMESPACE_EXISTS}
    assert len(stranger(lake).rows()) == lance.dataset(f"{lake.uri}/__manifest").count_rows()


@says("If a namespace with the same identifier already exists, return error code 2 (NamespaceAlreadyExists).")
def test_existing_namespace_is_code_2(lake: Lake) -> None:
    spaces(lake.open(), "a", "a/b")
    for path in ("a", "a/b"):
        with refused(NAMESPACE_EXISTS):
            spaces(lake.open(), path)


@says("Validate the parent namespace exists (if not creating at root level)")
@says(
    "If the parent namespace does not exist (for nested namespaces), return error code 1 (NamespaceNotFound)."
)
def test_namespace_without_a_parent_is_code_1(lake: Lake) -> None:
    spaces(lake.open(), "a")
    make(lake.open(), "t", 1)
    for path in ("b/c", "a/b/c", "t/c"):
        with refused(NAMESPACE_NOT_FOUND):
            spaces(lake.open(), path)


@says("If the identifier format is invalid, return error code 13 (InvalidInput).")
@pytest.mark.parametrize("parts", [None, "a", [""], ["a$b"], ["a/b"], [".."], ["a", ""], [7]], ids=ascii)
def test_invalid_namespace_identifier_is_code_13(lake: Lake, parts: Any) -> None:
    with refused(INVALID_INPUT):
        lake.open().create_namespace({"id": parts})
    assert not lake.folder.exists()


# ListNamespaces.


@says("In V1, this operation returns an empty list since namespaces are not supported.")
def test_v1_lists_no_namespaces(v1: Lake) -> None:
    spaces(v1.open(COMPATIBILITY), "a")
    assert namespaces(v1.open()) == []


@says("This operation lists child namespaces within a parent namespace.")
@says('Query for rows where object_type = "namespace"')
@says("Filter to rows where object_id starts with the parent namespace prefix")
@says("Further filter to rows where object_id has exactly one more level than the parent")
@says("Return the list of namespace names (the last component of each identifier)")
def test_listing_shows_the_direct_children_of_a_namespace(lake: Lake) -> None:
    catalog = lake.open()
    spaces(catalog, "a", "ab", "a/b", "a/b/c", "ab/x")
    make(catalog, "a/t", 1)
    stranger(lake).create_namespace("a$theirs", number=1)
    assert namespaces(lake.open()) == ["a", "ab"]
    assert namespaces(lake.open(), "a") == ["b", "theirs"]
    assert namespaces(lake.open(), "a/b") == ["c"]
    assert namespaces(lake.open(), "a/b/c") == []


@says("If the parent namespace does not exist (V2 only), return error code 1 (NamespaceNotFound).")
def test_listing_below_a_missing_namespace_is_code_1(lake: Lake) -> None:
    with refused(NAMESPACE_NOT_FOUND):
        namespaces(lake.open(), "a")
    spaces(lake.open(), "a")
    with refused(NAMESPACE_NOT_FOUND):
        namespaces(lake.open(), "a/b")


# DescribeNamespace.


@says("This operation is only supported in V2 and returns namespace metadata.")
def test_v1_describes_no_namespace(v1: Lake) -> None:
    spaces(v1.open(COMPATIBILITY), "a")
    with refused(UNSUPPORTED):
        v1.open().describe_namespace({"id": ["a"]})
    assert v1.open(COMPATIBILITY).describe_namespace({"id": ["a"]}).properties == {}


@says("Query the manifest table for the row with the matching object_id")
def test_describe_reads_the_row_with_the_identifier(lake: Lake) -> None:
    spaces(lake.open(), "a", "b")
    stranger(lake).create_namespace("a$b", k="nested")
    stranger(lake).create_namespace("a$bc", k="longer")
    assert lake.open().describe_namespace({"id": ["a", "b"]}).properties == {"k": "nested"}


@departs(
    "Return the namespace name and properties",
    because="the response of the client has properties and no field for a name; the caller gave it",
)
def test_describe_returns_the_properties_of_a_namespace(lake: Lake) -> None:
    lake.open().create_namespace({"id": ["a"], "properties": PROPERTIES})
    described = lake.open().describe_namespace({"id": ["a"]})
    assert described.properties == PROPERTIES
    assert "name" not in type(described).model_fields


@says("If the namespace does not exist, return error code 1 (NamespaceNotFound). (DescribeNamespace)")
def test_describing_a_missing_namespace_is_code_1(lake: Lake) -> None:
    spaces(lake.open(), "a")
    make(lake.open(), "a/t", 1)
    for path in ("b", "a/b", "a/t"):
        with refused(NAMESPACE_NOT_FOUND):
            lake.open().describe_namespace({"id": path.split("/")})
        assert not space_exists(lake.open(), path)


# DropNamespace.


@says("This operation is only supported in V2 and removes a namespace.")
def test_drop_removes_a_namespace(lake: Lake) -> None:
    spaces(lake.open(), "a", "b")
    lake.open().drop_namespace({"id": ["a"]})
    assert namespaces(lake.open()) == ["b"]
    with refused(UNSUPPORTED):
        lake.open(V1).drop_namespace({"id": ["b"]})


@says("Check that the namespace exists in the manifest table")
@says("If the namespace does not exist, return error code 1 (NamespaceNotFound). (DropNamespace)")
def test_dropping_a_missing_namespace_is_code_1(lake: Lake) -> None:
    spaces(lake.open(), "a")
    for parts in (["b"], ["a", "b"]):
        with refused(NAMESPACE_NOT_FOUND):
            lake.open().drop_namespace({"id": parts})


@says("Query for any child namespaces or tables with identifiers starting with this namespace's prefix")
@says("If any children exist, the operation fails")
@says("If the namespace contains tables or child namespaces, return error code 3 (NamespaceNotEmpty).")
@pytest.mark.parametrize("child", ["namespace", "table", "declared", "grandchild"])
def test_dropping_a_namespace_with_children_is_code_3(lake: Lake, child: str) -> None:
    catalog = lake.open()
    spaces(catalog, "a", "ab")
    match child:
        case "namespace":
            spaces(catalog, "a/b")
        case "table":
            make(catalog, "a/t", 1)
        case "declared":
            declare(catalog, "a/t")
        case _:
            stranger(lake).insert("a$gone$t", "table", "x")
    with refused(NAMESPACE_NOT_EMPTY):
        lake.open().drop_namespace({"id": ["a"]})
    assert space_exists(lake.open(), "a")
    lake.open().drop_namespace({"id": ["ab"]})


@departs("Delete the namespace row from the manifest table using the object_id primary key", because=MOVED)
def test_row_of_a_dropped_namespace_is_moved(lake: Lake) -> None:
    lake.open().create_namespace({"id": ["a"], "properties": {"k": "v"}})
    dropped = lake.open().drop_namespace({"id": ["a"]}).properties
    assert dropped is not None
    found = stranger(lake).rows()
    assert "a" not in found
    assert json.loads(found[f"__dropped${dropped['deletion_id']}"]["metadata"])["relance.id"] == "a"
    assert stranger(lake).create_namespace("a", k="theirs"), "the name is free for every client"
    assert lake.open().describe_namespace({"id": ["a"]}).properties == {"k": "theirs"}


# DeclareTable.


@says(
    "This operation declares a new Lance table, reserving the table name and location without creating "
    "actual data files."
)
def test_declare_reserves_a_name_and_writes_no_data(any_lake: Lake) -> None:
    location = declare(any_lake.open(), "t").location
    assert tables(any_lake.open()) == ["t"]
    assert tables(any_lake.open(), include_declared=False) == []
    assert describe(any_lake.open(), "t").location == location
    assert not list(Path(str(location)).rglob("*.lance"))
    assert not (Path(str(location)) / "_versions").exists()
    with refused(TABLE_EXISTS):
        declare(any_lake.open(), "t")


@says("Create a .lance-reserved file at the location to mark the table's existence")
def test_declare_creates_the_reserved_file_at_the_location(any_lake: Lake) -> None:
    paths = ["t"]
    if any_lake.mode != V1:
        spaces(any_lake.open(), "a")
        paths.append("a/t")
    for path in paths:
        location = Path(str(declare(any_lake.open(), path).location))
        assert [file.name for file in location.iterdir()] == [".lance-reserved"]
        assert exists(any_lake.open(), path)
        make(any_lake.open(), path, 1)
        assert not (location / ".lance-reserved").exists()
        assert rows(any_lake.open(), path) == [1]


@says("In V1: <root>/<table_name>.lance")
def test_v1_declares_at_the_home_directory(v1: Lake) -> None:
    assert declare(v1.open(), "t").location == f"{v1.uri}/t.lance"


@says("In V2 with dir_listing_enabled=true at root level: <root>/<table_name>.lance")
def test_root_table_is_declared_at_the_home_directory(compatible: Lake) -> None:
    assert declare(compatible.open(), "t").location == f"{compatible.uri}/t.lance"


@says("In V2 for child namespaces or with dir_listing_enabled=false: <root>/<hash>_<object_id>/")
def test_other_table_is_declared_in_a_directory_with_a_hash(lake: Lake) -> None:
    spaces(lake.open(), "a")
    for path in ("a/t", *(["t"] if lake.is_v2 else [])):
        location = str(declare(lake.open(), path).location)
        assert re.fullmatch(r"[0-9a-f]{8}_" + re.escape(path.replace("/", "$")), Path(location).name)


@says("In V2, merge-insert a row into the manifest table with: object_id set to the table identifier")
@says('object_type set to "table"')
@says("location set to the table directory path")
def test_row_of_a_declared_table(lake: Lake) -> None:
    spaces(lake.open(), "a")
    declare(lake.open(), "a/t")
    row = stranger(lake).rows()["a$t"]
    assert row["object_type"] == "table"
    assert row["location"] == directory(lake, "a/t")
    assert (lake.folder / row["location"] / ".lance-reserved").exists()


@says("Validate the parent namespace exists (in V2)")
@says("If the parent namespace does not exist, return error code 1 (NamespaceNotFound). (DeclareTable)")
def test_declaring_in_a_missing_namespace_is_code_1(lake: Lake) -> None:
    with refused(NAMESPACE_NOT_FOUND):
        declare(lake.open(), "a/t")
    assert lake.directories() == set()


@says(
    "Primary-key deduplication on object_id ensures no duplicate rows are inserted. If a table with the same "
    "identifier already exists, the operation fails."
)
@says("If a table with the same identifier already exists, return error code 5 (TableAlreadyExists).")
def test_declaring_an_existing_table_is_code_5(any_lake: Lake) -> None:
    catalog = any_lake.open()
    make(catalog, "t", 1)
    declare(catalog, "d")
    for name in ("t", "d"):
        with refused(TABLE_EXISTS):
            declare(any_lake.open(), name)
    assert rows(any_lake.open(), "t") == [1]
    if any_lake.mode != V1:
        lance.write_dataset(numbers(2), any_lake.folder / "x")
        assert stranger(any_lake).insert("theirs", "table", "x")
        with refused(TABLE_EXISTS):
            declare(any_lake.open(), "theirs")
        assert len(stranger(any_lake).rows()) == lance.dataset(f"{any_lake.uri}/__manifest").count_rows()


@says("If there is a concurrent creation attempt, return error code 14 (ConcurrentModification).")
def test_concurrent_declares_have_one_winner_and_losers_are_told(any_lake: Lake) -> None:
    make(any_lake.open(), "first", 1)
    losers = winners(any_lake, lambda catalog: declare(catalog, "t"))
    # Who came after the winner was done is told 5, as for any existing table.
    assert set(losers) <= {CONCURRENT_MODIFICATION, TABLE_EXISTS}
    assert tables(any_lake.open()) == ["first", "t"]


# ListTables.


@says("List all entries in the root directory")
@says("Filter to directories matching the *.lance pattern")
@says("Return the table names (directory names without the .lance suffix)")
def test_v1_lists_directories_with_the_suffix(v1: Lake) -> None:
    client = DirectoryClient(v1.folder)
    for name in ("users", "a.b", "x.lance"):
        client.create(name, numbers(1))
    lance.write_dataset(numbers(1), v1.folder / "12345678_a$t")
    (v1.folder / "file.lance").write_text("not a directory")
    assert tables(v1.open()) == client_tables(client) == ["a.b", "users", "x.lance"]


def client_tables(client: DirectoryClient) -> list[str]:
    return [name for name in client.tables() if client.directory(name).is_dir()]


@says("This operation lists tables within a namespace.")
@says('Query the manifest table for rows where object_type = "table"')
@says("Filter to rows where object_id starts with the namespace prefix")
@says("Further filter to rows where object_id has exactly one more level than the namespace")
@says("Return the list of table names")
def test_tables_of_a_namespace_are_listed_from_their_rows(lake: Lake) -> None:
    catalog = lake.open()
    spaces(catalog, "a", "ab", "a/b")
    for path in ("a/t", "ab/u", "a/b/v", "root"):
        make(catalog, path, 1)
    lance.write_dataset(numbers(2), lake.folder / "x")
    assert stranger(lake).insert("a$theirs", "table", "x", {"n": 1})
    assert tables(lake.open(), "a") == stranger(lake).tables("a") == ["t", "theirs"]
    assert tables(lake.open(), "a/b") == ["v"]
    assert tables(lake.open()) == ["root"]
    drop(lake.open(), "a/t")
    assert tables(lake.open(), "a") == stranger(lake).tables("a") == ["theirs"]
    native = NativeNamespace(root=lake.uri, manifest_enabled="true", dir_listing_enabled="false")
    assert native.list_tables(ListTablesRequest(id=["a"])).tables == ["theirs"]


@says(
    "When both V1 and V2 are enabled (the default Compatibility Mode), the implementation performs both "
    "queries and merges results, with manifest entries taking precedence when duplicates exist."
)
def test_compatibility_mode_merges_rows_and_directories(compatible: Lake) -> None:
    catalog = compatible.open()
    make(catalog, "both", 1)
    DirectoryClient(compatible.folder).create("listed", numbers(2))
    lance.write_dataset(numbers(3), compatible.folder / "far")
    assert stranger(compatible).insert("row", "table", "far")
    DirectoryClient(compatible.folder).create("row", numbers(4))
    assert tables(compatible.open()) == ["both", "listed", "row"]
    assert rows(compatible.open(), "row") == [3], "the row wins"


@says("If the namespace does not exist (V2 only), return error code 1 (NamespaceNotFound).")
def test_listing_tables_of_a_missing_namespace_is_code_1(lake: Lake) -> None:
    make(lake.open(), "t", 1)
    for path in ("a", "t", "a/b"):
        with refused(NAMESPACE_NOT_FOUND):
            tables(lake.open(), path)


# DescribeTable.


@says("This operation returns table metadata including schema, version, and properties.")
def test_describe_returns_schema_version_and_properties(any_lake: Lake) -> None:
    make(any_lake.open(), "t", 1, properties={"owner": "ann"})
    described = describe(any_lake.open(), "t", load_detailed_metadata=True)
    assert [field.name for field in described.var_schema.fields] == ["x"]
    dataset = lance.dataset(folder(any_lake, "t"))
    assert (described.version, described.properties) == (dataset.version, {"owner": "ann"})
    assert describe(any_lake.open(), "t").properties == {"owner": "ann"}


@says(
    "Read the table metadata and return: name: The table name; schema: The Arrow schema of the table; "
    "version: The current version number; location: The table directory path"
)
@says("Open the Lance table using the Lance SDK")
def test_describe_returns_name_schema_version_and_location(any_lake: Lake) -> None:
    make(any_lake.open(), "t", 1)
    any_lake.write(numbers(2), "t", mode="append")
    described: DescribeTableResponse = describe(any_lake.open(), "t", load_detailed_metadata=True)
    assert (described.table, described.version) == ("t", 2)
    assert described.var_schema is not None
    assert [field.name for field in described.var_schema.fields] == ["x"]
    assert lance.dataset(described.location).count_rows() == 2
    plain = describe(any_lake.open(), "t")
    assert (plain.version, plain.var_schema) == (None, None), "only opened if details are asked for"


@says("In V1, check for the <table_name>.lance directory")
def test_v1_describes_a_directory(v1: Lake) -> None:
    DirectoryClient(v1.folder).create("t", numbers(1))
    assert describe(v1.open(), "t").location == f"{v1.uri}/t.lance"


@says("In V2, query the manifest table for the table location")
def test_v2_describes_the_location_of_the_row(v2: Lake) -> None:
    make(v2.open(), "other", 1)
    DirectoryClient(v2.folder).create("t", numbers(1))
    assert not exists(v2.open(), "t"), "the directory does not count"
    lance.write_dataset(numbers(2), v2.folder / "far")
    assert stranger(v2).insert("t", "table", "far")
    assert describe(v2.open(), "t").location == f"{v2.uri}/far"


@says(
    "When both V1 and V2 are enabled (the default Compatibility Mode), first check the manifest table, then"
    " fall back to checking the .lance directory. (DescribeTable)"
)
def test_compatibility_mode_describes_the_row_before_the_directory(compatible: Lake) -> None:
    make(compatible.open(), "other", 1)
    DirectoryClient(compatible.folder).create("t", numbers(1))
    assert describe(compatible.open(), "t").location == f"{compatible.uri}/t.lance"
    lance.write_dataset(numbers(2), compatible.folder / "far")
    assert stranger(compatible).insert("t", "table", "far")
    assert describe(compatible.open(), "t").location == f"{compatible.uri}/far"
    assert describe(compatible.open(), "other").location == f"{compatible.uri}/other.lance"


@says("If the parent namespace does not exist, return error code 1 (NamespaceNotFound). (DescribeTable)")
def test_describing_in_a_missing_namespace_is_code_1(lake: Lake) -> None:
    spaces(lake.open(), "a", "gone")
    make(lake.open(), "gone/t", 1)
    lake.open().drop_namespace({"id": ["gone"], "behavior": "cascade"})
    for path in ("b/t", "a/b/t", "gone/t"):
        with refused(NAMESPACE_NOT_FOUND):
            describe(lake.open(), path)
        with refused(NAMESPACE_NOT_FOUND):
            lake.open().table_exists({"id": path.split("/")})
    with pytest.raises(RelanceError, match="Namespace not found"):
        lance.dataset(namespace_client=lake.open(), table_id=["b", "t"])
    with refused(NAMESPACE_NOT_FOUND) as caught:
        describe(lake.open(), "gone/t")
    assert "was dropped on" in str(caught.value)


@departs(
    "If the parent namespace does not exist, return error code 1 (NamespaceNotFound). (DescribeTable, "
    "DeclareTable, DeregisterTable and DropTable in V1)",
    because="V1 has single-level identifiers only: it cannot tell whether a namespace exists, and answers "
    "Unsupported (0) to any longer identifier, as native does",
)
def test_v1_answers_unsupported_to_an_identifier_with_a_namespace(v1: Lake) -> None:
    make(v1.open(), "t", 1)
    native = NativeNamespace(root=v1.uri, manifest_enabled="false")
    calls: dict[Call, Call] = {
        lambda: describe(v1.open(), "b/t"): lambda: native.describe_table(
            DescribeTableRequest(id=["b", "t"])
        ),
        lambda: declare(v1.open(), "b/t"): lambda: native.declare_table(DeclareTableRequest(id=["b", "t"])),
        lambda: deregister(v1.open(), "b/t"): lambda: native.deregister_table(
            DeregisterTableRequest(id=["b", "t"])
        ),
        lambda: drop(v1.open(), "b/t"): lambda: native.drop_table(DropTableRequest(id=["b", "t"])),
    }
    for ours, theirs in calls.items():
        for call in (ours, theirs):
            with refused(UNSUPPORTED):
                call()
    assert tables(v1.open()) == ["t"]


@says("If the table does not exist, return error code 4 (TableNotFound). (DescribeTable)")
def test_describing_a_missing_table_is_code_4(any_lake: Lake) -> None:
    paths = ["t"]
    if any_lake.mode != V1:
        spaces(any_lake.open(), "a")
        paths += ["a", "a/t"]
    for path in paths:
        with refused(TABLE_NOT_FOUND):
            describe(any_lake.open(), path)


@says("If a specific version is requested and does not exist, return error code 11 (TableVersionNotFound).")
def test_describing_a_missing_version_is_code_11(any_lake: Lake) -> None:
    make(any_lake.open(), "t", 1)
    for fields in ({"version": 7}, {"version": 7, "load_detailed_metadata": True}):
        with refused(VERSION_NOT_FOUND):
            describe(any_lake.open(), "t", **fields)


# DeregisterTable.


@says(
    "This operation deregisters a table from the namespace while preserving its data on storage. The table "
    "files remain at their storage location and can be re-registered later using RegisterTable."
)
def test_deregistered_table_keeps_its_files_and_can_be_registered_again(any_lake: Lake) -> None:
    make(any_lake.open(), "t", 1)
    location = directory(any_lake, "t")
    files = {key: body for key, body in any_lake.files().items() if key.startswith(f"{location}/")}
    deregister(any_lake.open(), "t")
    assert tables(any_lake.open()) == []
    assert files.items() <= any_lake.files().items()
    register(any_lake.open(), "t", location)
    assert rows(any_lake.open(), "t") == [1]


@says("Locate the table by checking for the <table_name>.lance directory (DeregisterTable)")
@says("Verify the table exists and is not already deregistered")
@says("Create a .lance-deregistered marker file inside the table directory")
@says("Return the table location for reference")
def test_v1_deregisters_by_a_file_in_the_directory(v1: Lake) -> None:
    DirectoryClient(v1.folder).create("t", numbers(1))
    assert deregister(v1.open(), "t").location == f"{v1.uri}/t.lance"
    assert (v1.folder / "t.lance" / ".lance-deregistered").is_file()
    with refused(TABLE_NOT_FOUND):
        deregister(v1.open(), "t")


@says("Table data remains intact at its original location")
@says("The table is excluded from ListTables results")
@says("The table returns TableNotFound for DescribeTable and TableExists operations")
def test_deregistered_table_is_hidden_and_intact(any_lake: Lake) -> None:
    make(any_lake.open(), "t", 1, 2)
    location = folder(any_lake, "t")
    deregister(any_lake.open(), "t")
    assert lance.dataset(location).count_rows() == 2
    assert tables(any_lake.open()) == []
    for call in (any_lake.open().describe_table, any_lake.open().table_exists):
        with refused(TABLE_NOT_FOUND):
            call({"id": ["t"]})


@says("The table can be re-registered by removing the marker file and calling RegisterTable")
def test_removing_the_file_registers_a_table_again(v1: Lake) -> None:
    make(v1.open(), "t", 1)
    deregister(v1.open(), "t")
    (v1.folder / "t.lance" / ".lance-deregistered").unlink()
    assert tables(v1.open()) == ["t"]
    deregister(v1.open(), "t")
    register(v1.open(), "t", "t.lance")
    assert not (v1.folder / "t.lance" / ".lance-deregistered").exists()
    assert rows(v1.open(), "t") == [1]


@says("DropTable still works on deregistered tables")
@departs("(removes both data and marker file)", because=SOFT)
def test_deregistered_table_can_be_dropped(v1: Lake) -> None:
    make(v1.open(), "t", 1)
    deregister(v1.open(), "t")
    drop(v1.open(), "t")
    assert (v1.folder / "t.lance" / ".lance-deregistered").exists()
    assert v1.open().purge_table(["t"], force=True).purged
    assert not (v1.folder / "t.lance").exists()


@says("Locate the table by querying the manifest table for the table location (DeregisterTable)")
@says("Remove the table row from the manifest table using the object_id primary key (DeregisterTable)")
@says("Keep the table files at the storage location")
@says("Return the table location and properties for reference")
def test_v2_deregisters_by_removing_the_row(lake: Lake) -> None:
    spaces(lake.open(), "a")
    make(lake.open(), "a/t", 1, properties={"k": "v"})
    location = folder(lake, "a/t")
    response = deregister(lake.open(), "a/t")
    assert (response.location, response.properties) == (str(location), {"k": "v"})
    assert set(stranger(lake).rows()) == {"a", "__dropped$head"}
    assert lance.dataset(location).count_rows() == 1


@says(
    "When both V1 and V2 are enabled (the default Compatibility Mode), first check the manifest table, then"
    " fall back to checking the .lance directory. If found in manifest, follow V2 behavior; otherwise "
    "follow V1 behavior. (DeregisterTable)"
)
def test_compatibility_mode_deregisters_the_row_before_the_directory(compatible: Lake) -> None:
    make(compatible.open(), "other", 1)
    lance.write_dataset(numbers(2), compatible.folder / "far")
    assert stranger(compatible).insert("row", "table", "far")
    DirectoryClient(compatible.folder).create("listed", numbers(1))
    deregister(compatible.open(), "row")
    assert "row" not in stranger(compatible).rows()
    assert sorted(path.name for path in (compatible.folder / "far").iterdir() if path.name[0] == ".") == []
    deregister(compatible.open(), "listed")
    assert (compatible.folder / "listed.lance" / ".lance-deregistered").exists()
    assert tables(compatible.open()) == ["other"]


@says("If the parent namespace does not exist, return error code 1 (NamespaceNotFound). (DeregisterTable)")
def test_deregistering_in_a_missing_namespace_is_code_1(lake: Lake) -> None:
    for _ in range(2):
        with refused(NAMESPACE_NOT_FOUND):
            deregister(lake.open(), "b/t")
        make(lake.open(), "t", 1, mode="exist_ok")


@says("If the table does not exist or is already deregistered, return error code 4 (TableNotFound).")
def test_deregistering_a_missing_or_deregistered_table_is_code_4(any_lake: Lake) -> None:
    make(any_lake.open(), "t", 1)
    deregister(any_lake.open(), "t")
    for name in ("t", "missing"):
        with refused(TABLE_NOT_FOUND):
            deregister(any_lake.open(), name)


# DropTable.


@departs("This operation removes a table and its data.", because=SOFT)
@departs("Delete the table directory and all its contents from storage (V1)", because=SOFT)
@departs(
    "Delete the table directory and all its contents from storage (failure here does not affect the success"
    " of the drop since the table is no longer reachable)",
    because=SOFT,
)
def test_dropped_table_is_gone_and_its_files_go_with_the_purge(any_lake: Lake) -> None:
    make(any_lake.open(), "t", 1)
    location = folder(any_lake, "t")
    drop(any_lake.open(), "t")
    assert tables(any_lake.open()) == []
    with refused(TABLE_NOT_FOUND):
        describe(any_lake.open(), "t")
    assert lance.dataset(location).count_rows() == 1
    assert any_lake.open().purge_table(["t"], force=True).purged
    assert not location.exists()


@says("Locate the table by checking for the <table_name>.lance directory (DropTable)")
def test_v1_drops_a_directory(v1: Lake) -> None:
    client = DirectoryClient(v1.folder)
    client.create("t", numbers(1))
    drop(v1.open(), "t")
    assert client.tables() == tables(v1.open()) == []


@says("If deletion fails midway (directory is still non-empty), the drop has failed and should be retried")
def test_purge_that_failed_midway_is_retried(v1: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    make(v1.open(), "t", 1)
    drop(v1.open(), "t")

    unlink = os.unlink

    def fail(*_: object, **__: object) -> None:
        raise OSError(5, "Input/output error")

    def fail_inside(path: str, *, dir_fd: int | None = None) -> None:
        if dir_fd is not None:
            fail()
        unlink(path)

    with monkeypatch.context() as patched:
        patched.setattr(os, "rename", fail)
        patched.setattr(os, "unlink", fail_inside)
        with refused(SERVICE_UNAVAILABLE):
            v1.open().purge_table(["t"], force=True)
    assert any((v1.folder / "t.lance").iterdir())
    assert tables(v1.open()) == []
    make_older(v1.folder / "t.control")  # the claim of the purge that failed has run out
    assert v1.open().purge_table(["t"], force=True).purged
    assert not (v1.folder / "t.lance").exists()
    assert not DirectoryClient(v1.folder).marker("t").exists()
    make(v1.open(), "t", 2)
    assert rows(v1.open(), "t") == [2]


@says("Locate the table by querying the manifest table for the table location (DropTable)")
@departs(
    "Remove the table row from the manifest table using the object_id primary key (DropTable)", because=MOVED
)
def test_row_of_a_dropped_table_is_moved(lake: Lake) -> None:
    spaces(lake.open(), "a")
    lance.write_dataset(numbers(2), lake.folder / "far")
    assert stranger(lake).insert("a$t", "table", "far", {"n": 1})
    deletion_id = drop(lake.open(), "a/t")["deletion_id"]
    found = stranger(lake).rows()
    assert "a$t" not in found
    assert found[f"__dropped${deletion_id}"]["location"] == "far"
    assert stranger(lake).tables("a") == []
    assert stranger(lake).insert("a$t", "table", "far2"), "the name is free for every client"


@says(
    "When both V1 and V2 are enabled (the default Compatibility Mode), first check the manifest table, then"
    " fall back to checking the .lance directory. If found in manifest, follow V2 behavior; otherwise "
    "follow V1 behavior. (DropTable)"
)
def test_compatibility_mode_drops_the_row_before_the_directory(compatible: Lake) -> None:
    make(compatible.open(), "other", 1)
    lance.write_dataset(numbers(2), compatible.folder / "far")
    assert stranger(compatible).insert("row", "table", "far")
    client = DirectoryClient(compatible.folder)
    client.create("listed", numbers(1))
    drop(compatible.open(), "row")
    assert "row" not in stranger(compatible).rows()
    assert not client.marker("row").exists()
    drop(compatible.open(), "listed")
    assert client.marker("listed").exists()
    assert tables(compatible.open()) == ["other"]


@says("If the parent namespace does not exist, return error code 1 (NamespaceNotFound). (DropTable)")
def test_dropping_in_a_missing_namespace_is_code_1(lake: Lake) -> None:
    for _ in range(2):
        with refused(NAMESPACE_NOT_FOUND):
            drop(lake.open(), "b/t")
        make(lake.open(), "t", 1, mode="exist_ok")


@says("If the table does not exist, return error code 4 (TableNotFound). (DropTable)")
def test_dropping_a_missing_table_is_code_4(any_lake: Lake) -> None:
    make(any_lake.open(), "t", 1)
    drop(any_lake.open(), "t")
    for name in ("t", "missing"):
        with refused(TABLE_NOT_FOUND):
            drop(any_lake.open(), name)


@says("If there is a file system permission error, return error code 15 (PermissionDenied).")
def test_permission_error_is_code_15(any_lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    make(any_lake.open(), "t", 1)
    catalog = any_lake.open()
    tables(catalog)
    _fail_writes(monkeypatch, PermissionError(13, "Permission denied"))
    with refused(PERMISSION_DENIED):
        drop(catalog, "t")
    monkeypatch.undo()
    assert rows(any_lake.open(), "t") == [1]


@says("If there is an unexpected I/O error, return error code 18 (Internal).")
def test_io_error_is_code_18(any_lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    make(any_lake.open(), "t", 1)
    catalog = any_lake.open()
    tables(catalog)
    _fail_writes(monkeypatch, OSError(5, "Input/output error"))
    with refused(INTERNAL):
        drop(catalog, "t")
    monkeypatch.undo()
    assert rows(any_lake.open(), "t") == [1]


@says("If there is an unexpected I/O error, return error code 18 (Internal). (a version that cannot be read)")
def test_version_that_cannot_be_read_is_code_18(any_lake: Lake) -> None:
    make(any_lake.open(), "t", 1)
    for manifest in (folder(any_lake, "t") / "_versions").glob("*.manifest"):
        manifest.unlink()
        manifest.mkdir()
    with refused(INTERNAL):
        make(any_lake.open(), "t", 2, mode="overwrite")


def _fail_writes(monkeypatch: pytest.MonkeyPatch, error: OSError) -> None:
    """Make every look at the disk and every change of it fail."""

    def fail(*_: object, **__: object) -> None:
        raise type(error)(*error.args)

    for function in ("scandir", "open", "link", "lstat", "unlink", "rename", "replace"):
        monkeypatch.setattr(os, function, fail)


# Versions.


def stage(lake: Lake, path: str, body: bytes | None = None, name: str = "staged") -> str:
    """Put a staged manifest into a table; return its path as clients tell it."""
    versions = folder(lake, path) / "_versions"
    versions.mkdir(exist_ok=True)
    file = versions / f"{name}.manifest-{uuid.uuid4()}"
    file.write_bytes(latest_manifest(lake, path).read_bytes() if body is None else body)
    return str(file)


def latest_manifest(lake: Lake, path: str) -> Path:
    return min((folder(lake, path) / "_versions").glob("*.manifest"))  # the names count down


def commit(lake: Lake, path: str, version: int, staged: str, **fields: Any) -> Any:
    """Create a version from a staged manifest."""
    request = {"id": path.split("/"), "version": version, "manifest_path": staged, **fields}
    return lake.open().create_table_version(request).version


def listed(lake: Lake, path: str = "t", **fields: Any) -> list[int]:
    response = lake.open().list_table_versions({"id": path.split("/"), **fields})
    return [each.version for each in response.versions]


def with_versions(lake: Lake, count: int = 3, name: str = "t") -> None:
    make(lake.open(), name, 1)
    for number in range(2, count + 1):
        lake.write(numbers(number), name, mode="append")


@pytest.fixture(params=["V1", "V2", "compatibility", "managed"])
def root(request: pytest.FixtureRequest, tmp_path: Path) -> Lake:
    """A root in any mode, and one with managed versions."""
    if request.param != "managed":
        return Lake(str(tmp_path / "lake"), MODES[request.param], settings=QUIET)
    return Lake(str(tmp_path / "lake"), settings={**QUIET, "table_version_management": "true"})


@says("This operation creates a new version entry for a table. It supports put_if_not_exists semantics.")
def test_one_of_several_writers_of_a_version_wins(root: Lake) -> None:
    make(root.open(), "t", 1)
    body = latest_manifest(root, "t").read_bytes()
    staged = [stage(root, "t", body + bytes([number])) for number in range(BOTH_AT_ONCE)]
    outcomes = at_once(*[functools.partial(commit, root, "t", 2, each) for each in staged])
    assert outcomes.count(None) == 1
    assert {outcome for outcome in outcomes if outcome is not None} == {CONCURRENT_MODIFICATION}
    assert listed(root) == [1, 2]


@says("Resolve the table location (CreateTableVersion)")
@says("Parse the staging manifest path from the request")
@says("Determine the final manifest path based on the naming scheme (V1 or V2)")
@says(
    "Copy the staging manifest to the final path in the _versions/ directory using put_if_not_exists "
    "semantics"
)
@says("Delete the staging manifest file")
@says("Return the created version info including the final manifest path")
@pytest.mark.parametrize(("scheme", "file"), [("V1", "2.manifest"), ("V2", f"{2**64 - 3}.manifest")])
def test_staged_manifest_becomes_the_version(any_lake: Lake, scheme: str, file: str) -> None:
    make(any_lake.open(), "t", 1)
    staged = stage(any_lake, "t")
    body = Path(staged).read_bytes()
    version = commit(any_lake, "t", 2, staged, naming_scheme=scheme)
    final = folder(any_lake, "t") / "_versions" / file
    assert final.read_bytes() == body
    assert not Path(staged).exists()
    assert (version.version, version.manifest_size) == (2, len(body))
    assert f"/{version.manifest_path}" == str(final)
    assert listed(any_lake) == [1, 2]


@says("If the table does not exist, return error code 4 (TableNotFound). (CreateTableVersion)")
def test_version_of_a_missing_table_is_code_4(root: Lake) -> None:
    make(root.open(), "t", 1)
    staged = stage(root, "t")
    with refused(TABLE_NOT_FOUND):
        commit(root, "missing", 2, staged)


@departs(
    "If the version already exists, return error code 12 (TableVersionAlreadyExists).",
    because="the client's package gives code 12 to TableColumnNotFound, and pylance rebases and retries on "
    "14, as native answers it; the error carries 12 as `spec_code`",
)
def test_existing_version_is_code_14_and_carries_12(root: Lake) -> None:
    with_versions(root, 2)
    with pytest.raises(TableVersionAlreadyExistsError) as caught:
        commit(root, "t", 2, stage(root, "t", b"other"))
    assert (int(caught.value.code), caught.value.spec_code) == (CONCURRENT_MODIFICATION, 12)
    assert listed(root) == [1, 2]


@says("If there is a concurrent creation attempt, return error code 14 (ConcurrentModification). (versions)")
def test_version_that_does_not_follow_is_code_14(root: Lake) -> None:
    with_versions(root, 2)
    with refused(CONCURRENT_MODIFICATION):
        commit(root, "t", 4, stage(root, "t"))
    assert listed(root) == [1, 2]


# BatchCreateTableVersions.


def commit_all(lake: Lake, *entries: tuple[str, int, str]) -> list[int]:
    request = {
        "entries": [
            {"id": [name], "version": version, "manifest_path": staged} for name, version, staged in entries
        ]
    }
    return [each.version for each in lake.open().batch_create_table_versions(request).versions]


@says("This operation atomically creates version entries for multiple tables.")
@says(
    "When table version management is not enabled, this operation iterates through each entry and calls "
    "CreateTableVersion for each one."
)
def test_versions_of_several_tables_are_created(root: Lake) -> None:
    for name in ("t", "u"):
        make(root.open(), name, 1)
    entries = [("t", 2, stage(root, "t")), ("u", 2, stage(root, "u"))]
    assert commit_all(root, *entries) == [2, 2]
    assert listed(root, "t") == listed(root, "u") == [1, 2]
    assert not any(Path(staged).exists() for _, _, staged in entries)


@says("If any version already exists, the entire batch fails.")
@departs(
    "If any version already exists, return error code 12 (TableVersionAlreadyExists).",
    because="as for a single version: 14, with 12 as `spec_code`",
)
@departs(
    "Atomicity is not guaranteed.",
    because="more than that: without managed versions, too, all entries are checked before the first is "
    "created, so that only a failure of the store or a writer at the same moment can leave a part",
)
def test_batch_with_an_existing_version_creates_none(root: Lake) -> None:
    make(root.open(), "t", 1)
    with_versions(root, 2, "u")
    with pytest.raises(TableVersionAlreadyExistsError) as caught:
        commit_all(root, ("t", 2, stage(root, "t")), ("u", 2, stage(root, "u", b"other")))
    assert (int(caught.value.code), caught.value.spec_code) == (CONCURRENT_MODIFICATION, 12)
    assert (listed(root, "t"), listed(root, "u")) == ([1], [1, 2])


@says("If any table does not exist, return error code 4 (TableNotFound).")
def test_batch_with_a_missing_table_is_code_4(root: Lake) -> None:
    make(root.open(), "t", 1)
    with refused(TABLE_NOT_FOUND):
        commit_all(root, ("t", 2, stage(root, "t")), ("missing", 2, stage(root, "t")))
    assert listed(root) == [1]


@says("If there is a concurrent modification, return error code 14 (ConcurrentModification).")
def test_batch_that_does_not_follow_is_code_14(root: Lake) -> None:
    for name in ("t", "u"):
        make(root.open(), name, 1)
    with refused(CONCURRENT_MODIFICATION):
        commit_all(root, ("t", 2, stage(root, "t")), ("u", 3, stage(root, "u")))
    assert (listed(root, "t"), listed(root, "u")) == ([1], [1])


# ListTableVersions.


@says("List all files in the _versions/ directory")
@says("Parse version numbers from manifest filenames (handling both V1 and V2 naming schemes)")
@pytest.mark.parametrize("scheme", ["V1", "V2"])
def test_versions_are_listed_from_names_of_either_scheme(any_lake: Lake, scheme: str) -> None:
    make(any_lake.open(), "t", 1)
    if scheme == "V1":
        latest_manifest(any_lake, "t").rename(folder(any_lake, "t") / "_versions" / "1.manifest")
    (folder(any_lake, "t") / "_versions" / "notes.txt").write_text("no version")
    for number in range(2, 12):
        any_lake.write(numbers(number), "t", mode="append")
    assert listed(any_lake) == list(range(1, 12))
    names = {path.name for path in (folder(any_lake, "t") / "_versions").glob("*.manifest")}
    assert ("11.manifest" in names) is (scheme == "V1")


@says("Extract metadata from file attributes (size, e_tag, last_modified timestamp)")
def test_listed_versions_have_size_tag_and_time(any_lake: Lake) -> None:
    with_versions(any_lake, 1)
    file = latest_manifest(any_lake, "t")
    (version,) = any_lake.open().list_table_versions({"id": ["t"]}).versions
    assert f"/{version.manifest_path}" == str(file)
    assert version.manifest_size == file.stat().st_size
    assert version.timestamp_millis == pytest.approx(file.stat().st_mtime * 1000, abs=1)
    if version.e_tag is not None:
        assert version.e_tag == any_lake.open().describe_table_version({"id": ["t"]}).version.e_tag


@says("Extract metadata from file attributes (size, e_tag, last_modified timestamp) (on S3)")
def test_listed_versions_have_their_tag_on_s3(moto_server: S3Server, moto_bucket: str) -> None:
    lake = Lake(f"s3://{moto_bucket}/lake", V1, moto_server.storage_options())
    make(lake.open(), "t", 1)
    (version,) = lake.open().list_table_versions({"id": ["t"]}).versions
    found = moto_server.client().head_object(Bucket=moto_bucket, Key=version.manifest_path)
    assert (version.manifest_size, version.e_tag) == (found["ContentLength"], found["ETag"])
    assert version.timestamp_millis == found["LastModified"].timestamp() * 1000


@says("This operation lists version entries for a table.")
@says("Sort results by version number (descending if descending=true)")
def test_versions_are_sorted_either_way(root: Lake) -> None:
    with_versions(root, 12)
    assert listed(root) == listed(root, descending=False) == list(range(1, 13))
    assert listed(root, descending=True) == list(range(12, 0, -1))


@says("Apply pagination using page_token and limit")
@pytest.mark.parametrize("descending", [False, True])
def test_versions_are_listed_in_pages(root: Lake, descending: bool) -> None:
    with_versions(root, 5)
    pages: list[list[int]] = []
    token = None
    while token is not None or not pages:
        page = root.open().list_table_versions(
            {"id": ["t"], "limit": 2, "page_token": token, "descending": descending}
        )
        pages.append([each.version for each in page.versions])
        token = page.page_token
    assert pages == ([[5, 4], [3, 2], [1]] if descending else [[1, 2], [3, 4], [5]])


@pytest.mark.parametrize("path", ["t", "a/t"])
@says("Parse the metadata column as JSON to extract version details")
def test_version_metadata_of_other_clients_is_told_and_kept(lake: Lake, tmp_path: Path, path: str) -> None:
    lake = replace(lake, settings={**QUIET, "table_version_management": "true"})
    spaces(lake.open(), "a")
    make(lake.open(), path, 1)
    copy = tmp_path / "copy"
    shutil.copytree(folder(lake, path), copy)
    lance.write_dataset(numbers(2), copy, mode="append")
    shutil.copytree(copy / "data", folder(lake, path) / "data", dirs_exist_ok=True)
    staged = stage(lake, path, min((copy / "_versions").glob("*.manifest")).read_bytes())
    theirs = {"note": {"a": [1, None]}, "n": 423, "none": None, "relance.mine": "x"}
    facts = {"manifest_path": staged, "manifest_size": Path(staged).stat().st_size, "e_tag": None}
    object_id = path.replace("/", "$")
    assert stranger(lake).insert(f"{object_id}$2", "table_version", None, {**facts, **theirs})

    def told(path: str) -> dict[int, dict[str, str] | None]:
        response = lake.open().list_table_versions({"id": path.split("/")})
        return {each.version: each.metadata for each in response.versions}

    as_text = {"note": '{"a": [1, null]}', "n": "423", "none": "null", "relance.mine": "x"}
    assert told(path) == {1: None, 2: as_text}
    assert rows(lake.open(), path) == [1, 2]
    append(lake.open(), path)
    drop(lake.open(), path)
    lake.open().undrop_table(path.split("/"))
    rename(lake.open(), path, f"{path}2")
    assert told(f"{path}2") == {1: None, 2: as_text, 3: None}
    kept = json.loads(stranger(lake).rows()[f"{object_id}2$2"]["metadata"])
    assert theirs.items() <= kept.items()
    assert rows(lake.open(), f"{path}2") == [1, 2, 8]


@says("If the table does not exist, return error code 4 (TableNotFound). (ListTableVersions)")
def test_listing_versions_of_a_missing_table_is_code_4(root: Lake) -> None:
    make(root.open(), "t", 1)
    drop(root.open(), "t")
    for name in ("t", "missing"):
        with refused(TABLE_NOT_FOUND):
            listed(root, name)


# DescribeTableVersion.


@says("This operation retrieves details for a specific table version.")
@says("Open the Lance dataset at the specified version")
@says("Read the manifest file to extract version metadata")
@says(
    "Return the version information including manifest_path, manifest_size, e_tag, timestamp_millis, and "
    "metadata"
)
def test_version_is_described_by_its_manifest(root: Lake) -> None:
    with_versions(root, 3)
    for number in (1, 2, 3):
        version = root.open().describe_table_version({"id": ["t"], "version": number}).version
        file = Path(f"/{version.manifest_path}")
        assert version.version == number
        assert file == folder(root, "t") / "_versions" / f"{2**64 - 1 - number}.manifest"
        assert version.manifest_size == file.stat().st_size
        assert version.timestamp_millis == pytest.approx(file.stat().st_mtime * 1000, abs=1)
    assert root.open().describe_table_version({"id": ["t"]}).version.version == 3


@says("If the version does not exist, return error code 11 (TableVersionNotFound).")
@says("If the table does not exist, return error code 4 (TableNotFound). (DescribeTableVersion)")
def test_missing_version_is_code_11_and_missing_table_code_4(root: Lake) -> None:
    with_versions(root, 2)
    for number in (0, 3):
        with refused(VERSION_NOT_FOUND):
            root.open().describe_table_version({"id": ["t"], "version": number})
    with refused(TABLE_NOT_FOUND):
        root.open().describe_table_version({"id": ["missing"], "version": 1})


# BatchDeleteTableVersions.


def delete(lake: Lake, start: int, end: int, name: str = "t", **fields: Any) -> int:
    request = {"id": [name], "ranges": [{"start_version": start, "end_version": end}], **fields}
    count: int | None = lake.open().batch_delete_table_versions(request).deleted_count
    assert count is not None
    return count


@says("This operation deletes multiple version entries for a table.")
@says("Delete the manifest files in the _versions/ directory for each specified version")
@says("Return the count of deleted versions")
def test_manifests_of_deleted_versions_are_removed(root: Lake) -> None:
    with_versions(root, 5)
    assert delete(root, 2, 4) == 2
    assert listed(root) == [1, 4, 5]
    left = {path.name for path in (folder(root, "t") / "_versions").glob("*.manifest")}
    assert left == {f"{2**64 - 1 - number}.manifest" for number in (1, 4, 5)}
    assert root.dataset("t").count_rows() == 5


@says("Delete rows from the manifest table using the object_id primary key for each specified version")
def test_rows_of_deleted_versions_are_removed(lake: Lake) -> None:
    lake = replace(lake, settings={**QUIET, "table_version_management": "true"})
    with_versions(lake, 4)
    assert listed(lake) == [1, 2, 3, 4]
    assert delete(lake, 2, 4) == 2
    assert sorted(key for key in stranger(lake).rows() if key.startswith("t$")) == ["t$1", "t$4"]


@says("If the table does not exist, return error code 4 (TableNotFound). (BatchDeleteTableVersions)")
def test_deleting_versions_of_a_missing_table_is_code_4(root: Lake) -> None:
    make(root.open(), "t", 1)
    with refused(TABLE_NOT_FOUND):
        delete(root, 1, 2, "missing")


@says(
    "If any specified version does not exist, the operation may either skip it silently or return error "
    "code 11 (TableVersionNotFound), depending on the ignore_missing parameter."
)
def test_missing_versions_are_skipped_or_code_11_as_asked(root: Lake) -> None:
    with_versions(root, 5)
    assert delete(root, 2, 3) == 1
    strict = ({"ignore_missing": False}, {"context": {"ignore_missing": "false"}})
    for fields in strict:
        for start, end in ((1, 3), (2, 3), (1, -1), (4, 9), (7, -1), (1, 2**62)):
            with refused(VERSION_NOT_FOUND) as caught:
                delete(root, start, end, **fields)
            assert "nothing was deleted" in str(caught.value)
    assert listed(root) == [1, 3, 4, 5]
    with refused(INVALID_INPUT):
        delete(root, 1, 2, ignore_missing="perhaps")
    assert delete(root, 1, 3) == 1
    assert delete(root, 3, 5, ignore_missing=False) == 2
    assert delete(root, 1, 5, ignore_missing=True) == 0
    assert listed(root) == [5]
