"""The directory namespace catalog, sentence by sentence.

`v1`, `v2` and `compatible` are roots in the three modes, `lake` is one of each with a manifest.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import lance
import lancedb
import pyarrow as pa
import pytest
from lance_namespace import DeregisterTableRequest
from tests.seeds.clients import DirectoryClient, ManifestClient
from tests.seeds.sentences import Page, deviates, holds
from tests.support import roots
from tests.support.calls import (
    all_tables,
    assert_gone,
    assert_whole,
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
    NAMESPACE_EXISTS,
    NAMESPACE_NOT_FOUND,
    TABLE_EXISTS,
    TABLE_NOT_FOUND,
    UNSUPPORTED,
)
from tests.support.lakes import QUIET, Lake
from tests.support.manifest_fixtures import clock, compatible, lake, v2
from tests.support.modes import COMPATIBILITY, MODES, V1, V2
from tests.support.roots import (
    S3Place,
    local_place,
    memory_place,
    native,
    numbers,
    refused,
    snapshot,
    stream_of,
)
from tests.support.servers import S3Server, count_requests

from relance import DirectoryNamespace
from relance.clock import SystemClock
from relance.errors import ConcurrentModificationError, RelanceError, TableAlreadyExistsError
from relance.testing.clock import ManualClock

__all__ = ["clock", "compatible", "lake", "v2"]

HASHED = re.compile(r"[0-9a-f]{8}_(.+)")
ONE_ROW = [{"x": 1}]


@pytest.fixture
def v1(tmp_path: Path) -> Lake:
    return Lake(str(tmp_path / "lake"), V1)


def _suffix(location: str) -> str:
    """Return what follows the hash in the name of a directory."""
    found = HASHED.fullmatch(location)
    assert found is not None, location
    return found[1]


# Introduction


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("store", ["path", "file", "memory", "moto"])
@holds(
    Page.CATALOG,
    "**Lance directory namespace** is a catalog that stores tables in a directory structure on any local or "
    "remote storage system.",
)
def test_catalog_stores_tables_in_directories_on_any_store(
    store: str, mode: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    folder = tmp_path / "lake"
    places: dict[str, Callable[[], Any]] = {
        "path": lambda: local_place(folder, MODES[mode]),
        "file": lambda: local_place(folder, MODES[mode]),
        "memory": lambda: replace(memory_place(tmp_path.name), mode=MODES[mode]),
        "moto": lambda: S3Place(
            request.getfixturevalue("moto_server"),
            request.getfixturevalue("moto_bucket"),
            "lake",
            MODES[mode],
        ),
    }
    place = places[store]()
    root = f"file://{folder}" if store == "file" else place.root
    catalog = place.open(**{"root": root, **QUIET})
    make(catalog, "t", 1)
    assert_whole(catalog, "t", 1)
    inside = {key.partition("/")[2] for key in place.files() if "/" in key and not key.startswith(("_", "."))}
    assert any(key.startswith("_versions/") for key in inside)
    assert any(key.startswith("data/") for key in inside)


# V1: Directory Listing


@holds(
    Page.CATALOG,
    "V1 is a simple 1-level namespace where each table corresponds to a subdirectory with the format "
    "`<table_name>.lance`.",
)
def test_v1_has_one_level_and_a_directory_per_table(v1: Lake) -> None:
    catalog = v1.open()
    make(catalog, "a", 1)
    make(catalog, "b.c", 1)
    assert v1.directories() == {"a.lance", "b.c.lance"}
    for attempt in (
        lambda: spaces(catalog, "ns"),
        lambda: make(catalog, "ns/t", 1),
        lambda: tables(catalog, "ns"),
        lambda: describe(catalog, "ns/t"),
    ):
        with refused(UNSUPPORTED):
            attempt()
    assert namespaces(catalog) == []


@holds(
    Page.CATALOG,
    "A lightweight, simple 1-level namespace that discovers tables by scanning the directory.",
)
def test_v1_discovers_tables_that_any_client_put_there(v1: Lake) -> None:
    lance.write_dataset(numbers(1), v1.folder / "written.lance")
    lancedb.connect(v1.uri).create_table("stock", numbers(1))
    lance.write_dataset(numbers(1), namespace_client=native(local_place(v1.folder)), table_id=["native"])
    DirectoryClient(v1.folder).create("literal", numbers(1))
    catalog = v1.open()
    assert tables(catalog) == ["literal", "native", "stock", "written"]
    for name in tables(catalog):
        assert_whole(catalog, name, 1)


@holds(
    Page.CATALOG,
    "A directory namespace maps to a directory on storage, called the **namespace directory**.",
)
@pytest.mark.parametrize("mode", MODES)
def test_catalog_writes_nothing_outside_its_directory(mode: str, tmp_path: Path) -> None:
    folder = tmp_path / "around"
    (folder / "lake2").mkdir(parents=True)
    (folder / "lake.lance").mkdir()
    catalog = Lake(str(folder / "lake"), MODES[mode], settings=QUIET).open()
    for name in ("t", "u"):
        make(catalog, name, 1)
    drop(catalog, "t")
    catalog.undrop_table(["t"])
    drop(catalog, "u", purge="true")
    deregister(catalog, "t")
    assert {key for key in snapshot(folder) if not key.startswith("lake/")} == {"lake2/", "lake.lance/"}


@holds(
    Page.CATALOG,
    "A Lance table corresponds to a subdirectory in the namespace directory that has the format "
    "`<table_name>.lance`, called a **table directory**.",
)
def test_table_directory_is_a_lance_dataset_that_everyone_can_open(v1: Lake) -> None:
    catalog = v1.open()
    make(catalog, "t", 1)
    assert describe(catalog, "t").location == str(v1.folder / "t.lance")
    assert lance.dataset(v1.folder / "t.lance").to_table().to_pylist() == ONE_ROW
    assert lancedb.connect(v1.uri).open_table("t").to_arrow().to_pylist() == ONE_ROW
    assert DirectoryClient(v1.folder).rows("t") == ONE_ROW
    assert roots.names(native(local_place(v1.folder))) == ["t"]


@pytest.fixture
def example(tmp_path: Path) -> Lake:
    """The layout of the page's example, made without Relance; the mode is V1."""
    folder = tmp_path / "dir1"
    indexed = lance.write_dataset(pa.table({"x": [1], "text": ["a"]}), folder / "table1.lance")
    indexed.create_scalar_index("text", "INVERTED")
    for name in ("table2", "table3"):
        lance.write_dataset(numbers(1), folder / f"{name}.lance")
    (folder / "table3.lance/.lance-deregistered").touch()
    (folder / "table4.lance").mkdir()
    (folder / "table4.lance/.lance-reserved").touch()
    return Lake(str(folder), V1)


@holds(
    Page.CATALOG,
    "It contains active tables `table1` and `table2` at table directories `/my/dir1/table1.lance` and "
    "`/my/dir1/table2.lance`.",
)
def test_example_contains_the_active_tables_at_their_directories(example: Lake) -> None:
    catalog = example.open()
    assert {path.name for path in (example.folder / "table1.lance").iterdir()} >= {
        "data",
        "_versions",
        "_indices",
    }
    assert tables(catalog, include_declared=False) == ["table1", "table2"]
    for name in ("table1", "table2"):
        assert describe(catalog, name).location == str(example.folder / f"{name}.lance")
        assert_whole(catalog, name, 1)


@holds(
    Page.CATALOG,
    "Table `table3` exists on storage but is deregistered (excluded from table listings).",
)
def test_example_excludes_the_deregistered_table_from_listings(example: Lake) -> None:
    catalog = example.open()
    assert "table3" not in tables(catalog)
    assert "table3" not in all_tables(catalog)
    assert lance.dataset(example.folder / "table3.lance").count_rows() == 1


@holds(Page.CATALOG, "Table `table4` is reserved but not yet created with data.")
def test_example_shows_the_reserved_table_as_declared(example: Lake) -> None:
    catalog = example.open()
    assert tables(catalog) == ["table1", "table2", "table4"]
    assert describe(catalog, "table4", check_declared=True).is_only_declared is True
    assert make(catalog, "table4", 7).version == 1
    assert_whole(catalog, "table4", 7)


# Table Existence


@holds(
    Page.CATALOG,
    "In V1, a table exists in a Lance directory namespace if a table directory of the specific name exists "
    "and the table is not marked as deregistered.",
)
def test_v1_table_exists_if_its_directory_exists_and_is_not_deregistered(v1: Lake) -> None:
    catalog = v1.open()
    assert_gone(catalog, "t")
    lance.write_dataset(numbers(1), v1.folder / "t.lance")
    assert_whole(catalog, "t", 1)
    (v1.folder / "t.lance/.lance-deregistered").touch()
    assert_gone(catalog, "t")
    (v1.folder / "t.lance/.lance-deregistered").unlink()
    assert_whole(catalog, "t", 1)


@deviates(
    Page.CATALOG,
    "In object store terms, this means the prefix `<table_name>.lance/` has at least one file in it and the "
    "file `<table_name>.lance/.lance-deregistered` does not exist.",
    because="a create that died before its first version leaves data files that cannot be opened: a table "
    "exists if its prefix contains a version or .lance-reserved",
)
@pytest.mark.parametrize("store", ["disk", "moto"])
def test_prefix_with_data_files_alone_is_no_table(
    store: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    place = (
        local_place(tmp_path / "lake")
        if store == "disk"
        else S3Place(request.getfixturevalue("moto_server"), request.getfixturevalue("moto_bucket"), "lake")
    )
    catalog = place.open()
    place.put("leftover.lance/data/0.lance", b"unfinished")
    place.put("declared.lance/.lance-reserved")
    assert not exists(catalog, "leftover")
    assert exists(catalog, "declared")
    with refused(TABLE_NOT_FOUND):
        describe(catalog, "leftover")
    assert tables(catalog, include_declared=False) == []
    make(catalog, "leftover", 1)
    assert_whole(catalog, "leftover", 1)
    place.put("leftover.lance/.lance-deregistered")
    assert not exists(catalog, "leftover")


# Marker Files


@holds(Page.CATALOG, "`.lance-reserved` Indicates a table name/location is reserved but not yet created")
@pytest.mark.parametrize("mode", [V1, COMPATIBILITY], ids=["V1", "compatibility"])
def test_declare_writes_the_reserved_marker(mode: dict[str, str], tmp_path: Path) -> None:
    lake = Lake(str(tmp_path / "lake"), mode, settings=QUIET)
    catalog = lake.open()
    declare(catalog, "t")
    assert (lake.folder / "t.lance/.lance-reserved").is_file()
    assert describe(catalog, "t", check_declared=True).is_only_declared is True
    with refused(TABLE_EXISTS):
        declare(catalog, "t")
    make(catalog, "t", 1)
    assert_whole(catalog, "t", 1)


@holds(
    Page.CATALOG,
    "`.lance-deregistered` Indicates a table has been deregistered but data is preserved",
)
def test_deregistered_marker_of_any_client_hides_the_table_and_keeps_its_data(v1: Lake) -> None:
    catalog, other = v1.open(), native(local_place(v1.folder))
    for name in ("ours", "theirs"):
        make(catalog, name, 1)
    before = v1.files()
    deregister(catalog, "ours")
    roots.deregister(other, "theirs")
    for name in ("ours", "theirs"):
        assert (v1.folder / f"{name}.lance/.lance-deregistered").is_file()
        assert_gone(catalog, name)
    assert roots.names(other) == []
    assert {key: v1.files()[key] for key in before} == before


@holds(
    Page.CATALOG,
    "When a table is deregistered via the `DeregisterTable` operation, the `.lance-deregistered` marker file "
    "is created inside the table directory.",
)
@pytest.mark.parametrize("mode", [V1, COMPATIBILITY], ids=["V1", "compatibility"])
def test_deregister_table_creates_the_marker_inside_the_directory(
    mode: dict[str, str], tmp_path: Path
) -> None:
    lake = Lake(str(tmp_path / "lake"), mode, settings=QUIET)
    catalog = lake.open()
    make(catalog, "t", 1)
    before = {key for key in lake.files() if key.startswith("t.lance/")}
    deregister(catalog, "t")
    after = {key for key in lake.files() if key.startswith("t.lance/")}
    assert after - before == {"t.lance/.lance-deregistered"}
    with refused(TABLE_NOT_FOUND):
        deregister(catalog, "t")


@holds(Page.CATALOG, "This causes the table to be excluded from `ListTables` results")
@pytest.mark.parametrize("mode", MODES)
def test_deregistered_table_is_excluded_from_list_tables(mode: str, tmp_path: Path) -> None:
    catalog = Lake(str(tmp_path / "lake"), MODES[mode], settings=QUIET).open()
    for name in ("t", "u"):
        make(catalog, name, 1)
    deregister(catalog, "t")
    assert tables(catalog) == ["u"]
    assert tables(catalog, include_declared=False) == ["u"]
    assert all_tables(catalog) == ["u"]


@deviates(
    Page.CATALOG,
    "This causes the table to be excluded from `ListTables` results (on object stores)",
    because="a listing of all keys finds the markers inside directories, but only as long as one page of "
    "1,000 keys holds the root. One request per table would be too many, so a listing of a larger root "
    "looks inside its tables every 10 minutes: until then it may show a table that another client "
    "deregistered; a lookup of one table never does",
)
@pytest.mark.parametrize("mode", [V1, COMPATIBILITY], ids=["V1", "compatibility"])
@pytest.mark.parametrize("keys", [0, 1001])
def test_marker_of_another_client_in_a_large_root_is_noticed_after_ten_minutes(
    mode: dict[str, str], keys: int, moto_server: S3Server, moto_bucket: str
) -> None:
    place, clock = S3Place(moto_server, moto_bucket, "lake", mode), ManualClock(datetime.now(UTC))
    catalog = place.open(clock=clock, **QUIET)
    for name in ("t", "u"):
        make(catalog, name, 1)
    store = moto_server.client()
    for number in range(keys):
        store.put_object(Bucket=moto_bucket, Key=f"lake/other/{number}")
    assert tables(catalog) == ["t", "u"]
    native(place).deregister_table(DeregisterTableRequest(id=["t"]))
    for client in (catalog, place.open(clock=clock, **QUIET)):
        assert tables(client) == (["t", "u"] if keys else ["u"])
    clock.advance(timedelta(minutes=10))
    for client in (catalog, place.open(clock=clock, **QUIET)):
        assert tables(client) == ["u"]
        assert not exists(client, "t")


@holds(
    Page.CATALOG,
    'and to return "not found" for `DescribeTable` and `TableExists` operations',
)
@pytest.mark.parametrize("mode", MODES)
def test_deregistered_table_is_not_found_by_describe_and_exists(mode: str, tmp_path: Path) -> None:
    catalog = Lake(str(tmp_path / "lake"), MODES[mode], settings=QUIET).open()
    make(catalog, "t", 1)
    deregister(catalog, "t")
    for look in (catalog.describe_table, catalog.table_exists):
        with refused(TABLE_NOT_FOUND):
            look({"id": ["t"]})


@holds(Page.CATALOG, "while preserving the table data for potential re-registration.")
@pytest.mark.parametrize("mode", MODES)
def test_deregistered_table_keeps_its_data_and_can_be_registered_again(mode: str, tmp_path: Path) -> None:
    lake = Lake(str(tmp_path / "lake"), MODES[mode], settings=QUIET)
    catalog = lake.open()
    make(catalog, "t", 1)
    catalog.insert_into_table({"id": ["t"]}, stream_of(2))
    location = directory(lake, "t", catalog)
    inside = {key: body for key, body in lake.files().items() if key.startswith(f"{location}/")}
    deregister(catalog, "t")
    assert {key: lake.files()[key] for key in inside} == inside
    register(catalog, "t", location)
    assert_whole(catalog, "t", 1, 2)
    assert rows(catalog, "t", version=1) == [1]
    assert directory(lake, "t", catalog) == location


# V2: Manifest


@holds(
    Page.CATALOG,
    "V2 uses a special `__manifest` table (a Lance table) stored in the namespace directory to track all "
    "tables and namespaces.",
)
def test_manifest_is_a_lance_table_that_tracks_all_tables_and_namespaces(lake: Lake) -> None:
    catalog = lake.open()
    spaces(catalog, "ns", "ns/sub")
    for path in ("t", "ns/t", "ns/sub/t"):
        make(catalog, path, 1)
    declare(catalog, "d")
    assert (lake.folder / "__manifest/_versions").is_dir()
    assert (lake.folder / "__manifest/data").is_dir()
    client = ManifestClient(lake.uri)
    kinds = {key: row["object_type"] for key, row in client.rows().items() if "__dropped" not in key}
    assert kinds == {
        "ns": "namespace",
        "ns$sub": "namespace",
        "t": "table",
        "d": "table",
        "ns$t": "table",
        "ns$sub$t": "table",
    }
    assert client.table("ns$sub$t") == ONE_ROW
    assert client.tables("ns") == ["t"]


@holds(Page.CATALOG, "**Nested namespaces**: Support for hierarchical namespace organization")
def test_namespaces_are_nested_to_any_depth(lake: Lake) -> None:
    catalog = lake.open()
    spaces(catalog, "a", "a/b", "a/b/c")
    make(catalog, "a/b/c/t", 1)
    assert (namespaces(catalog), namespaces(catalog, "a"), namespaces(catalog, "a/b")) == (
        ["a"],
        ["b"],
        ["c"],
    )
    assert_whole(catalog, "a/b/c/t", 1)
    assert ManifestClient(lake.uri).create_namespace("a$b$other")
    assert namespaces(catalog, "a/b") == ["c", "other"]
    with refused(NAMESPACE_NOT_FOUND):
        spaces(catalog, "missing/child")


@holds(
    Page.CATALOG,
    "**Better performance**: Table discovery queries the manifest table instead of scanning the directory",
)
def test_v2_discovers_tables_in_the_manifest_and_never_scans_the_directory(
    v2: Lake, moto_server: S3Server, moto_bucket: str
) -> None:
    catalog = v2.open()
    make(catalog, "t", 1)
    for name in ("stray.lance", "0badf00d_stray"):
        lance.write_dataset(numbers(1), v2.folder / name)
    assert tables(catalog) == all_tables(catalog) == ["t"]
    assert not exists(catalog, "stray")
    with count_requests(moto_server) as counter:
        remote = S3Place(counter.server, moto_bucket, "lake", {**V2, **QUIET}).open()
        for name in ("a", "b"):
            make(remote, name, 1)
        assert tables(remote) == ["a", "b"]
        counter.reset()
        assert tables(remote) == ["a", "b"]
        assert exists(remote, "a")
        asked = [path for _, path in counter.requests]
    assert asked != []
    assert all("__manifest" in path for path in asked), asked


@holds(Page.CATALOG, "and leverages Lance's random access capability.")
def test_table_is_looked_up_without_reading_the_rows_of_others(lake: Lake) -> None:
    spaces(lake.open(), "ns")
    manifest = lake.folder / "__manifest"
    before = {path.name for path in (manifest / "data").iterdir()}
    many = 2000
    for part in ("a", "b"):
        ids = [f"ns${part}{number}" for number in range(many)]
        others = [[None] * many] * 2
        columns = [ids, ["table"] * many, [f"0badf00d_{each}" for each in ids], *others]
        schema = lance.dataset(manifest).schema
        lance.write_dataset(
            pa.table(dict(zip(schema.names, columns, strict=True)), schema), manifest, mode="append"
        )
        if part == "a":
            before |= {path.name for path in (manifest / "data").iterdir()}
    lance.dataset(manifest).optimize.optimize_indices()
    (file,) = {path.name for path in (manifest / "data").iterdir()} - before
    (manifest / "data" / file).unlink()
    catalog = lake.open()
    assert str(describe(catalog, "ns/a7").location).endswith("/0badf00d_ns$a7")
    assert exists(catalog, "ns/a1999")
    assert not exists(catalog, "ns/c7")
    with pytest.raises(RelanceError):
        describe(catalog, "ns/b7")


@holds(
    Page.CATALOG,
    "**Metadata support**: All operations can be supported, e.g. namespaces can have associated "
    "properties/metadata",
)
def test_namespaces_have_properties(lake: Lake) -> None:
    catalog = lake.open()
    catalog.create_namespace({"id": ["ns"], "properties": {"owner": "ann"}})
    assert catalog.describe_namespace({"id": ["ns"]}).properties == {"owner": "ann"}
    client = ManifestClient(lake.uri)
    assert client.create_namespace("theirs", owner="bob", size=3)
    assert (catalog.describe_namespace({"id": ["theirs"]}).properties or {})["owner"] == "bob"
    assert space_exists(catalog, "theirs")


@holds(Page.CATALOG, "tables can be renamed.")
def test_tables_can_be_renamed_within_and_across_namespaces(lake: Lake) -> None:
    catalog = lake.open()
    spaces(catalog, "a", "b")
    make(catalog, "a/t", 1)
    for old, new in (("a/t", "a/u"), ("a/u", "b/t"), ("b/t", "t"), ("t", "u")):
        rename(catalog, old, new)
        assert_gone(catalog, old)
        assert_whole(catalog, new, 1)
    assert ManifestClient(lake.uri).table("u") == ONE_ROW


@holds(
    Page.CATALOG,
    "**Optimized directory path**: Hash-based directory naming prevents conflicts and maximizes throughput "
    "in object storage.",
)
def test_directories_of_racing_clients_never_collide(v2: Lake) -> None:
    paths = [f"t{number}" for number in range(8)]
    clients = [v2.open(clock=SystemClock()) for _ in range(4)]
    with ThreadPoolExecutor(len(clients)) as threads:
        list(threads.map(lambda pair: make(clients[pair[0] % 4], pair[1], 1), enumerate(paths)))
    locations = [directory(v2, path) for path in paths]
    assert len({location.partition("_")[0] for location in locations}) == len(paths)
    assert sorted(_suffix(location) for location in locations) == paths


# V2: Directory Layout


@holds(Page.CATALOG, "__manifest/ # The manifest table")
@holds(Page.CATALOG, "table1.lance/ # Root namespace table (compatibility mode)")
@holds(Page.CATALOG, "a1b2c3d4_table2/ # Root namespace table (V2)")
@holds(Page.CATALOG, "e5f6g7h8_ns1$table3/ # Table in child namespace")
def test_one_root_holds_the_layout_of_the_page(compatible: Lake) -> None:
    both, rows_only = compatible.open(), compatible.open(V2)
    make(both, "table1", 1)
    make(rows_only, "table2", 1)
    spaces(both, "ns1")
    make(both, "ns1/table3", 1)
    found = sorted(HASHED.sub(r"#_\1", name) for name in compatible.directories())
    assert found == ["#_ns1$table3", "#_table2", "table1.lance"]
    assert {path.name for path in (compatible.folder / "__manifest").iterdir()} >= {"data", "_versions"}
    for catalog in (both, rows_only):
        for path in ("table1", "table2", "ns1/table3"):
            assert_whole(catalog, path, 1)


# Manifest Table Schema


@holds(
    Page.CATALOG,
    "The `__manifest` table has the following schema: `object_id` String, `object_type` String, `location` "
    "String (nullable), `metadata` String (nullable), `base_objects` List<String> (nullable)",
)
def test_manifest_has_the_columns_of_the_page(lake: Lake) -> None:
    spaces(lake.open(), "ns")
    schema = lance.dataset(lake.folder / "__manifest").schema
    assert [(field.name, str(field.type), field.nullable) for field in schema][:4] == [
        ("object_id", "string", False),
        ("object_type", "string", False),
        ("location", "string", True),
        ("metadata", "string", True),
    ]
    base_objects = schema.field("base_objects")
    assert len(schema) == 5
    assert base_objects.nullable
    assert base_objects.type.value_type == pa.string()


@holds(Page.CATALOG, "`object_id`: Unique identifier for the object.")
def test_object_ids_are_unique_after_every_verb(lake: Lake) -> None:
    catalog = lake.open()
    spaces(catalog, "ns")
    for path in ("t", "u", "ns/t"):
        make(catalog, path, 1)
    drop(catalog, "t")
    make(catalog, "t", 2)
    drop(catalog, "ns/t")
    make(catalog, "ns/t", 2)
    rename(catalog, "u", "v")
    drop(catalog, "v")
    catalog.undrop_table(["v"])
    ids = lance.dataset(lake.folder / "__manifest").to_table()["object_id"].to_pylist()
    assert len(ids) == len(set(ids))
    assert None not in ids


@holds(Page.CATALOG, "For root-level objects, this is the name.")
@holds(
    Page.CATALOG,
    "For nested objects, this is the namespace path joined by `$` delimiter (e.g., `ns1$ns2$table_name`)",
)
def test_object_id_is_the_path_joined_by_dollar_signs(lake: Lake) -> None:
    catalog = lake.open()
    spaces(catalog, "ns1", "ns1/ns2")
    make(catalog, "table_name", 1)
    make(catalog, "ns1/ns2/table_name", 1)
    ids = {key for key in ManifestClient(lake.uri).rows() if "__dropped" not in key}
    assert ids == {"ns1", "ns1$ns2", "table_name", "ns1$ns2$table_name"}


@holds(Page.CATALOG, '`object_type`: Either `"namespace"` or `"table"`')
def test_every_row_is_a_namespace_or_a_table(lake: Lake) -> None:
    catalog = lake.open()
    spaces(catalog, "ns")
    for path in ("t", "ns/t"):
        make(catalog, path, 1)
    drop(catalog, "t")
    catalog.drop_namespace({"id": ["ns"], "behavior": "cascade"})
    found = lance.dataset(lake.folder / "__manifest").to_table()["object_type"].to_pylist()
    assert set(found) == {"namespace", "table"}


@deviates(
    Page.CATALOG,
    'Either `"namespace"` or `"table"`',
    because="roots with managed versions have rows of further types: `table_version`, as the page on the "
    "implementation says, and `relance_table` and `relance_namespace` for dropped objects and the head row, "
    "so that no reader of `object_type` takes them for live ones",
)
def test_managed_roots_have_rows_of_further_types(lake: Lake) -> None:
    catalog = lake.open(table_version_management="true")
    spaces(catalog, "ns", "gone")
    for path in ("ns/t", "ns/u"):
        lance.write_dataset(numbers(1), namespace_client=catalog, table_id=path.split("/"))
    drop(catalog, "ns/u")
    catalog.drop_namespace({"id": ["gone"]})
    types: dict[str, set[str]] = {}
    for object_id, row in ManifestClient(lake.uri).rows().items():
        types.setdefault(row["object_type"], set()).add(object_id.partition("$")[0])
    assert types == {
        "namespace": {"ns"},
        "table": {"ns"},
        "table_version": {"ns", "__dropped"},
        "relance_table": {"__dropped"},
        "relance_namespace": {"__dropped"},
    }
    assert ManifestClient(lake.uri).rows()["ns$t$1"]["object_type"] == "table_version"


@holds(
    Page.CATALOG,
    "`location`: Relative path to the table directory within the root (only for tables)",
)
def test_location_is_relative_to_the_root_and_null_for_namespaces(lake: Lake) -> None:
    catalog = lake.open()
    spaces(catalog, "ns")
    for path in ("t", "ns/t"):
        make(catalog, path, 1)
    for object_id, row in ManifestClient(lake.uri).rows().items():
        if row["object_type"] == "namespace":
            assert row["location"] is None
        elif "__dropped" not in object_id:
            assert row["location"] in lake.directories()
    client = ManifestClient(lake.uri)
    client.create_table("deep", numbers(1), location="some/where/deep")
    assert_whole(catalog, "deep", 1)


@deviates(
    Page.CATALOG,
    "`metadata`: JSON-encoded metadata/properties (only for namespaces)",
    because="tables have properties too, in the same column, as native clients write them",
)
def test_metadata_is_json_for_namespaces_and_tables(lake: Lake) -> None:
    catalog = lake.open()
    catalog.create_namespace({"id": ["ns"], "properties": {"owner": "ann"}})
    make(catalog, "ns/t", 1, properties={"team": "a"})
    found = ManifestClient(lake.uri).rows()
    assert json.loads(found["ns"]["metadata"]) == {"owner": "ann"}
    assert json.loads(found["ns$t"]["metadata"]) == {"team": "a"}
    assert describe(catalog, "ns/t").properties == {"team": "a"}


@holds(Page.CATALOG, "`base_objects`: Reserved for future use (e.g., view dependencies)")
def test_base_objects_are_null_in_our_rows_and_kept_in_those_of_others(lake: Lake) -> None:
    catalog = lake.open()
    spaces(catalog, "ns")
    make(catalog, "ns/t", 1)
    client = ManifestClient(lake.uri)
    assert {key for key, row in client.rows().items() if row["base_objects"] is not None} == set()
    client.insert("ns$view", "table", "0badf00d_ns$view", base_objects=["ns$t"])
    lance.write_dataset(numbers(1), lake.folder / "0badf00d_ns$view")
    make(catalog, "ns/u", 1)
    rename(catalog, "ns/view", "ns/seen")
    drop(catalog, "ns/seen")
    catalog.undrop_table(["ns", "seen"])
    assert client.rows()["ns$seen"]["base_objects"] == ["ns$t"]


# Manifest Table Indexes


@holds(Page.CATALOG, "BTREE index on `object_id` for fast lookups")
@holds(Page.CATALOG, "Bitmap index on `object_type` for efficient type filtering")
@holds(Page.CATALOG, "LabelList index on `base_objects` for view dependency queries")
def test_manifest_has_its_three_indexes_from_the_first_change_on(lake: Lake) -> None:
    expected = {"object_id": "BTree", "object_type": "Bitmap", "base_objects": "LabelList"}
    spaces(lake.open(), "ns")
    for _ in range(2):
        manifest = lance.dataset(lake.folder / "__manifest")
        assert {index.field_names[0]: index.index_type for index in manifest.describe_indices()} == expected
        make(lake.open(), "ns/t", 1, mode="exist_ok")
    client = ManifestClient(lake.uri)
    assert client.insert("ns$view", "table", "x", base_objects=["ns$t"])
    for condition in ("object_id = 'ns$view'", "array_has_any(base_objects, ['ns$t'])"):
        found = lance.dataset(client.uri).to_table(filter=condition)
        assert found["object_id"].to_pylist() == ["ns$view"]
    spaces_found = lance.dataset(client.uri).to_table(filter="object_type = 'namespace'")
    assert "ns" in spaces_found["object_id"].to_pylist()


# Manifest Table Commits


def _race(clients: list[Callable[[], bool]]) -> int:
    """Call all at once; return how many succeeded."""
    with ThreadPoolExecutor(len(clients)) as threads:
        return sum(threads.map(lambda act: act(), clients))


def _creates(catalog: DirectoryNamespace, path: str) -> bool:
    try:
        make(catalog, path, 1)
    except (TableAlreadyExistsError, ConcurrentModificationError):
        return False
    return True


@holds(
    Page.CATALOG,
    "When adding a new entry in the manifest table, it must atomically check if the table already exists "
    "such entry",
)
def test_entry_that_exists_cannot_be_added_again(lake: Lake) -> None:
    catalog, client = lake.open(), ManifestClient(lake.uri)
    spaces(catalog, "ns")
    make(catalog, "ns/t", 1)
    client.create_table("ns$theirs", numbers(1))
    client.create_namespace("space")
    before = client.rows()
    for path in ("ns/t", "ns/theirs"):
        with refused(TABLE_EXISTS):
            make(catalog, path, 2)
        with refused(TABLE_EXISTS):
            declare(catalog, path)
    with refused(NAMESPACE_EXISTS):
        spaces(catalog, "space")
    with refused(TABLE_EXISTS):
        make(catalog, "space", 1)
    assert not client.insert("ns$t", "table", "elsewhere")
    assert client.rows() == before


@holds(
    Page.CATALOG,
    "as well as if any concurrent operation writes the same entry, and fail the operation accordingly if "
    "such conflict exists.",
)
def test_of_concurrent_writers_of_one_entry_exactly_one_succeeds(lake: Lake) -> None:
    clients = [lake.open(clock=SystemClock()) for _ in range(3)]
    spaces(clients[0], "ns")
    foreign = ManifestClient(lake.uri)
    for number in range(3):
        path, object_id = f"ns/t{number}", f"ns$t{number}"
        lance.write_dataset(numbers(9), lake.folder / f"0badf00d_{object_id}")

        def insert(object_id: str = object_id) -> bool:
            return foreign.insert(object_id, "table", f"0badf00d_{object_id}")

        def creating(catalog: DirectoryNamespace, path: str = path) -> Callable[[], bool]:
            return lambda: _creates(catalog, path)

        assert _race([*(creating(each) for each in clients), insert]) == 1
        ids = lance.dataset(lake.folder / "__manifest").to_table()["object_id"].to_pylist()
        assert ids.count(object_id) == 1
        values = rows(lake.open(), path)
        assert values in ([1], [9])
        assert foreign.table(object_id) == [{"x": value} for value in values]


# Manifest Table Directory


@holds(
    Page.CATALOG,
    "In V2, table data is stored in directories with hash-based names in the format `<hash>_<object_id>`.",
)
@holds(
    Page.CATALOG,
    "For example, a table `my_table` in namespace `ns1` would be stored in a directory like "
    "`a1b2c3d4_ns1$my_table`.",
)
def test_v2_directories_are_named_by_a_hash_and_the_object_id(v2: Lake) -> None:
    catalog = v2.open()
    spaces(catalog, "ns1")
    for path in ("my_table", "ns1/my_table"):
        make(catalog, path, 1)
    declare(catalog, "ns1/declared")
    for path in ("my_table", "ns1/my_table", "ns1/declared"):
        assert _suffix(directory(v2, path)) == path.replace("/", "$")


@holds(
    Page.CATALOG,
    "Random hash prefixes distribute tables across partitions for better parallelism.",
)
def test_hash_prefixes_are_random(v2: Lake) -> None:
    catalog = v2.open()
    for number in range(16):
        declare(catalog, f"t{number}")
    prefixes = [directory(v2, f"t{number}").partition("_")[0] for number in range(16)]
    assert len(set(prefixes)) == 16
    assert len({prefix[0] for prefix in prefixes}) > 4, "16 random digits are hardly ever so alike"


@holds(
    Page.CATALOG,
    "**Conflict prevention**: High entropy prevents issues when a table is created, deleted, and recreated "
    "with the same name in quick succession.",
)
def test_table_created_deleted_and_created_again_never_gets_the_same_directory(v2: Lake) -> None:
    catalog, seen = v2.open(), set()
    for value in range(5):
        assert make(catalog, "t", value).version == 1
        seen.add(directory(v2, "t", catalog))
        assert_whole(catalog, "t", value)
        drop(catalog, "t", purge="true")
        assert_gone(catalog, "t")
    assert len(seen) == 5
    assert v2.directories() == set()


@holds(Page.CATALOG, "The `object_id` suffix ensures uniqueness and aids debugging.")
def test_directory_ends_with_the_id_of_its_table(v2: Lake) -> None:
    catalog = v2.open()
    spaces(catalog, "ns", "ns/sub")
    paths = ["t", "ns/t", "ns/sub/t", "ns/a.b"]
    for path in paths:
        make(catalog, path, 1)
    found = {_suffix(name) for name in v2.directories()}
    assert found == {path.replace("/", "$") for path in paths}


@deviates(
    Page.CATALOG,
    "in the format `<hash>_<object_id>`",
    because="file systems allow 255 bytes per name: longer directory names are truncated to 240 bytes, and "
    "the row contains the whole id",
)
def test_directory_of_a_very_long_id_is_cut(v2: Lake) -> None:
    catalog, long = v2.open(), "n" * 150
    spaces(catalog, long)
    make(catalog, f"{long}/{long}", 1)
    (name,) = v2.directories()
    assert len(name.encode()) == 240
    assert f"{long}${long}".startswith(_suffix(name))
    assert_whole(catalog, f"{long}/{long}", 1)


@holds(
    Page.CATALOG,
    "In compatibility mode, root namespace tables use `<table_name>.lance` naming to remain compatible with "
    "V1.",
)
def test_root_tables_of_compatibility_mode_are_tables_for_v1_clients(compatible: Lake) -> None:
    catalog = compatible.open()
    make(catalog, "t", 1)
    declare(catalog, "d")
    assert compatible.directories() == {"t.lance", "d.lance"}
    assert_whole(compatible.open(V1), "t", 1)
    assert DirectoryClient(compatible.folder).rows("t") == ONE_ROW
    assert lancedb.connect(compatible.uri).open_table("t").to_arrow().to_pylist() == ONE_ROW
    assert roots.names(native(local_place(compatible.folder))) == ["d", "t"]


# Compatibility Mode


@holds(
    Page.CATALOG,
    "By default, the directory namespace operates in compatibility mode, supporting both V1 and V2 tables "
    "simultaneously.",
)
def test_default_mode_supports_tables_of_v1_and_v2(tmp_path: Path) -> None:
    folder = tmp_path / "lake"
    catalog = DirectoryNamespace(root=str(folder), manifest_upkeep="false")
    spaces(catalog, "ns")
    DirectoryClient(folder).create("of_v1", numbers(1))
    client = ManifestClient(str(folder))
    client.create_table("of_v2", numbers(1))
    client.create_table("ns$of_v2", numbers(1))
    assert tables(catalog) == ["of_v1", "of_v2"]
    for path in ("of_v1", "of_v2", "ns/of_v2"):
        assert_whole(catalog, path, 1)
        drop(catalog, path)
        assert_gone(catalog, path)
        catalog.undrop_table(path.split("/"))
        assert_whole(catalog, path, 1)


@holds(
    Page.CATALOG,
    "This allows gradual migration from V1 to V2 without disrupting existing workflows.",
)
def test_clients_of_v1_go_on_while_others_use_the_manifest(compatible: Lake) -> None:
    old, catalog = DirectoryClient(compatible.folder), compatible.open()
    old.create("before", numbers(1))
    make(catalog, "ours", 1)
    old.create("after", numbers(1))
    assert tables(catalog) == old.tables() == ["after", "before", "ours"]
    for name in old.tables():
        assert_whole(catalog, name, 1)
        assert old.rows(name) == ONE_ROW
    old.drop("ours")
    drop(catalog, "before")
    assert tables(catalog) == old.tables() == ["after"]
    old.undrop("ours")
    catalog.undrop_table(["before"])
    assert tables(catalog) == old.tables() == ["after", "before", "ours"]


@holds(
    Page.CATALOG,
    "When checking if a table exists in the root namespace, the implementation first checks the manifest "
    "table, then falls back to checking if a `<table_name>.lance` directory exists.",
)
def test_root_table_is_looked_up_in_the_manifest_and_then_in_the_directory(compatible: Lake) -> None:
    catalog = compatible.open()
    spaces(catalog, "ns")
    lance.write_dataset(numbers(1), compatible.folder / "t.lance")
    assert_whole(catalog, "t", 1)
    location = ManifestClient(compatible.uri).create_table("t", numbers(2))
    fresh = compatible.open()
    assert_whole(fresh, "t", 2)
    assert directory(compatible, "t", fresh) == location
    ManifestClient(compatible.uri).delete("t")
    assert_whole(compatible.open(), "t", 1)


@holds(
    Page.CATALOG,
    "When listing tables in the root namespace, results from both the manifest table and directory listing "
    "are merged, with manifest entries taking precedence when duplicates exist.",
)
def test_root_listing_merges_manifest_and_directories(compatible: Lake) -> None:
    catalog = compatible.open()
    make(catalog, "both", 1)
    client = ManifestClient(compatible.uri)
    client.create_table("row", numbers(1))
    for name in ("directory", "twice"):
        lance.write_dataset(numbers(1), compatible.folder / f"{name}.lance")
    client.create_table("twice", numbers(2))
    assert tables(catalog) == all_tables(catalog) == ["both", "directory", "row", "twice"]
    assert tables(catalog, include_declared=False) == ["both", "directory", "row", "twice"]
    assert_whole(compatible.open(), "twice", 2)


@holds(
    Page.CATALOG,
    "When creating tables in the root namespace, the table is registered in the manifest and uses the V1 "
    "`<table_name>.lance` naming convention for backward compatibility.",
)
def test_new_root_table_gets_a_row_and_the_directory_of_v1(compatible: Lake) -> None:
    catalog = compatible.open()
    make(catalog, "t", 1)
    declare(catalog, "d")
    lance.write_dataset(numbers(1), namespace_client=catalog, table_id=["w"])
    found = ManifestClient(compatible.uri).rows()
    for name in ("t", "d", "w"):
        assert found[name]["location"] == f"{name}.lance"
        assert (compatible.folder / f"{name}.lance").is_dir()


@holds(
    Page.CATALOG,
    "If a table in the root namespace is renamed, it transitions to the V2 hash-based path naming.",
)
def test_renamed_root_table_moves_to_a_hash_based_directory(compatible: Lake) -> None:
    catalog = compatible.open()
    make(catalog, "old", 1)
    rename(catalog, "old", "new")
    assert_gone(catalog, "old")
    assert_whole(catalog, "new", 1)
    location = ManifestClient(compatible.uri).rows()["new"]["location"]
    assert _suffix(location) == "new"
    assert lance.dataset(compatible.folder / location).to_table().to_pylist() == ONE_ROW
    assert_whole(compatible.open(V2), "new", 1)


@holds(
    Page.CATALOG,
    "For operations in child namespaces, only V2 behavior is used since V1 does not support nested "
    "namespaces.",
)
def test_child_namespaces_know_no_directories_of_v1(compatible: Lake) -> None:
    catalog = compatible.open()
    spaces(catalog, "ns")
    make(catalog, "ns/t", 1)
    for name in ("ns$stray", "ns/stray"):
        lance.write_dataset(numbers(1), compatible.folder / f"{name}.lance")
    assert tables(catalog, "ns") == ["t"]
    assert not exists(catalog, "ns/stray")
    assert _suffix(directory(compatible, "ns/t", catalog)) == "ns$t"
    assert "t" not in tables(compatible.open(V1))


# Migration from V1 to V2


@holds(
    Page.CATALOG,
    "To fully migrate from V1 to V2, add all existing V1 table directory paths to the manifest table.",
)
def test_migration_adds_a_row_for_every_v1_directory(compatible: Lake) -> None:
    old = DirectoryClient(compatible.folder)
    for name in ("a", "b", "dropped"):
        old.create(name, numbers(1))
    old.drop("dropped")
    catalog = compatible.open()
    assert catalog.migrate_to_manifest().registered == ("a", "b")
    found = ManifestClient(compatible.uri).rows()
    for name in ("a", "b"):
        assert (found[name]["object_type"], found[name]["location"]) == ("table", f"{name}.lance")
    assert catalog.migrate_to_manifest().registered == ()
    assert tables(catalog) == ["a", "b"]
    catalog.undrop_table(["dropped"])
    assert_whole(catalog, "dropped", 1)


@holds(
    Page.CATALOG,
    "Once all tables are registered in the manifest, compatibility mode can be disabled to use only V2 "
    "behavior.",
)
def test_root_is_used_without_compatibility_mode_once_its_tables_are_registered(compatible: Lake) -> None:
    old, client = DirectoryClient(compatible.folder), ManifestClient(compatible.uri)
    for name in ("ours", "theirs", "unregistered"):
        old.create(name, numbers(1))
    spaces(compatible.open(), "ns")
    client.insert("theirs", "table", "theirs.lance")
    rows_only = compatible.open(V2)
    assert tables(rows_only) == ["theirs"]
    compatible.open().migrate_to_manifest()
    assert tables(rows_only) == ["ours", "theirs", "unregistered"]
    for name in tables(rows_only):
        assert_whole(rows_only, name, 1)
        drop(rows_only, name)
        assert_gone(rows_only, name)
        rows_only.undrop_table([name])
        assert_whole(rows_only, name, 1)
    make(rows_only, "new", 1)
    assert _suffix(directory(compatible, "new", rows_only)) == "new"
