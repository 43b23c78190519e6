"""A corrupt, foreign or newer `__manifest` gives a typed error; what other clients wrote is kept."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import lance
import pyarrow as pa
import pytest
from lance.namespace import DirectoryNamespace as NativeNamespace
from lance_namespace import ListNamespacesRequest, ListTablesRequest
from lance_namespace.errors import LanceNamespaceError
from tests.support.calls import (
    assert_whole,
    declare,
    deregister,
    describe,
    drop,
    make,
    namespaces,
    register,
    rename,
    rows,
    spaces,
    tables,
    write,
)
from tests.support.codes import INVALID_TABLE_STATE, UNSUPPORTED
from tests.support.lakes import QUIET, Lake
from tests.support.modes import MANIFEST_MODES, V1
from tests.support.roots import refused
from tests.support.servers import S3Server

from relance import DirectoryNamespace
from relance.catalog.manifest.row import CONTROL
from relance.catalog.manifest.schema import READER_FLAGS_KEY, SCHEMA, WRITER_FLAGS_KEY
from relance.catalog.purge import PurgeResult
from relance.catalog.repair import Problem

Call = Callable[[DirectoryNamespace], object]


def _raise_first(results: list[PurgeResult]) -> None:
    for each in results:
        if each.error is not None:
            raise each.error


READS: dict[str, Call] = {
    "list_tables": tables,
    "list_namespaces": namespaces,
    "describe_namespace": lambda catalog: catalog.describe_namespace({"id": ["a"]}),
    "describe_table": lambda catalog: describe(catalog, "a/t"),
    "list_all_tables": lambda catalog: catalog.list_all_tables({}),
    "table_status": lambda catalog: catalog.table_status(["a", "t"]),
    "list_dropped_tables": lambda catalog: catalog.list_dropped_tables(),
}
WRITES: dict[str, Call] = {
    "create_namespace": lambda catalog: spaces(catalog, "new"),
    "drop_namespace": lambda catalog: catalog.drop_namespace({"id": ["a"], "behavior": "cascade"}),
    "create_table": lambda catalog: make(catalog, "new", 1),
    "create a nested table": lambda catalog: make(catalog, "a/new", 1),
    "declare_table": lambda catalog: declare(catalog, "new"),
    "write a table": lambda catalog: write(catalog, "new", 1),
    "drop_table": lambda catalog: drop(catalog, "a/t"),
    "rename_table": lambda catalog: rename(catalog, "a/t", "new"),
    "register_table": lambda catalog: register(catalog, "new", "loose"),
    "deregister_table": lambda catalog: deregister(catalog, "a/t"),
    "undrop_table": lambda catalog: catalog.undrop_table(["a", "gone"]),
    "undrop_namespace": lambda catalog: catalog.undrop_namespace(["gone"]),
    "purge_table": lambda catalog: catalog.purge_table(["a", "gone"], force=True),
    "protect": lambda catalog: catalog.protect(["a", "t"]),
    "drop a root table": lambda catalog: drop(catalog, "root"),
    "rename a root table": lambda catalog: rename(catalog, "root", "new"),
    "deregister a root table": lambda catalog: deregister(catalog, "root"),
    "create over a dropped root table": lambda catalog: make(catalog, "away", 9),
    "declare over a dropped root table": lambda catalog: declare(catalog, "away"),
    "undrop a root table": lambda catalog: catalog.undrop_table(["away"]),
    "undrop a root table elsewhere": lambda catalog: catalog.undrop_table(["away"], new_id=["new"]),
    "purge a root table": lambda catalog: catalog.purge_table(["away"], force=True),
    "purge all": lambda catalog: _raise_first(catalog.purge_tables([["away"], ["a", "gone"]], force=True)),
    "migrate_to_manifest": lambda catalog: catalog.migrate_to_manifest(),
}


@pytest.fixture
def lake(lake: Lake) -> Lake:
    """A root with something in it, in either mode."""
    catalog = lake.open()
    spaces(catalog, "a", "gone")
    make(catalog, "a/t", 1, properties={"n": "1"})
    make(catalog, "a/gone", 2)
    drop(catalog, "a/gone")
    catalog.drop_namespace({"id": ["gone"]})
    make(catalog, "root", 3)
    make(catalog, "away", 4)
    drop(catalog, "away")
    lance.write_dataset(pa.table({"x": [5]}), str(lake.folder / "loose"))
    return lake


def manifest(lake: Lake) -> Any:
    """Open the manifest as a plain Lance table."""
    return lance.dataset(str(lake.folder / "__manifest"))


def replace_manifest(lake: Lake, table: pa.Table | None) -> None:
    """Put another Lance table in the manifest's place, or nothing."""
    shutil.rmtree(lake.folder / "__manifest")
    if table is not None:
        lance.write_dataset(table, str(lake.folder / "__manifest"))


def _a_file(lake: Lake) -> None:
    replace_manifest(lake, None)
    (lake.folder / "__manifest").write_bytes(b"a file")


def _garbage(lake: Lake) -> None:
    for path in (lake.folder / "__manifest" / "_versions").iterdir():
        path.write_bytes(b"not a manifest")


def _cut(lake: Lake) -> None:
    for path in (lake.folder / "__manifest" / "data").iterdir():
        path.write_bytes(path.read_bytes()[:50])


def _without_data(lake: Lake) -> None:
    shutil.rmtree(lake.folder / "__manifest" / "data")


def _another_table(lake: Lake) -> None:
    replace_manifest(lake, pa.table({"x": [1, 2, 3]}))


def _without(column: str) -> Callable[[Lake], None]:
    def change(lake: Lake) -> None:
        replace_manifest(lake, manifest(lake).to_table().drop_columns([column]))

    return change


def _large_strings(lake: Lake) -> None:
    fields = [pa.field(f.name, pa.large_string()) if f.type == pa.string() else f for f in SCHEMA]
    fields[-1] = pa.field("base_objects", pa.large_list(pa.field("object_id", pa.large_string())))
    replace_manifest(lake, manifest(lake).to_table().cast(pa.schema(fields)))


def _created_at(kind: pa.DataType, value: object) -> Callable[[Lake], None]:
    """Return what adds a column of the namespace spec that must not be null."""

    def change(lake: Lake) -> None:
        table = manifest(lake).to_table()
        field = pa.field("created_at", kind, nullable=False)
        replace_manifest(lake, table.append_column(field, pa.array([value] * len(table), kind)))

    return change


def _numbers(lake: Lake) -> None:
    table = manifest(lake).to_table()
    replace_manifest(lake, table.set_column(2, "location", pa.array([1] * len(table))))


BROKEN: dict[str, Callable[[Lake], None]] = {
    "a file": _a_file,
    "garbage": _garbage,
    "data files cut": _cut,
    "data files gone": _without_data,
    "another table": _another_table,
    **{f"without {column}": _without(column) for column in SCHEMA.names},
    "a column of numbers": _numbers,
}


UNREADABLE = {"a file", "garbage", "data files cut", "data files gone"}
"""What Lance itself fails to read, with an error that may be any of its own."""


@pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=pytest.mark.deep if kind == "a file" else ()) for kind in BROKEN]
)
def test_invalid_manifest_is_refused_by_every_operation_and_left_unchanged(kind: str, lake: Lake) -> None:
    BROKEN[kind](lake)
    before = lake.files()
    calls = READS | WRITES
    if kind == "a file":
        # Lance tries each of these again and again before it gives up.
        calls = {name: calls[name] for name in ("list_tables", "create_table", "drop a root table")}
    for name, call in calls.items():
        with pytest.raises(LanceNamespaceError) as caught:
            call(lake.open())
        assert "manifest" in str(caught.value), name
        if kind not in UNREADABLE:
            assert int(caught.value.code) == INVALID_TABLE_STATE, f"{name}: {caught.value!r}"
    assert lake.files() == before
    v1 = lake.open(V1)
    assert tables(v1) == ([] if lake.is_v2 else ["root"]), "directories can still be listed"


LONG_AGO = datetime(2020, 1, 2, 3, 4, 5, tzinfo=UTC)

FOREIGN_SCHEMAS: dict[str, tuple[Callable[[Lake], None], object]] = {
    "large strings": (_large_strings, None),
    "created_at with a zone": (_created_at(pa.timestamp("us", "UTC"), LONG_AGO), LONG_AGO),
    "created_at in seconds": (_created_at(pa.timestamp("s"), LONG_AGO), LONG_AGO.replace(tzinfo=None)),
    "created_at as a day": (_created_at(pa.date32(), LONG_AGO.date()), LONG_AGO.date()),
    "created_at as a number": (_created_at(pa.int64(), 1577934245000), 1577934245000),
    "created_at as text": (_created_at(pa.large_string(), "2020-01-02"), "2020-01-02"),
}


@pytest.mark.parametrize("kind", FOREIGN_SCHEMAS)
def test_manifest_with_other_columns_works_for_every_operation(kind: str, lake: Lake) -> None:
    change, created = FOREIGN_SCHEMAS[kind]
    for name, call in (READS | WRITES).items():
        folder = lake.folder.parent / name.replace(" ", "-")
        shutil.copytree(lake.folder, folder)
        copied = replace(lake, uri=str(folder))
        change(copied)
        call(copied.open())
        found = copied.manifest_rows()
        for row in found.values():
            assert created is None or row["created_at"] is not None, name
        if created is not None and "a" in found:
            assert found["a"]["created_at"] == created, name
        assert len(found) == manifest(copied).count_rows(), name
        copied.open().maintain_manifest()
        assert set(copied.manifest_rows()) == set(found), name
        assert READS["list_all_tables"](copied.open()), name


@pytest.mark.parametrize("mode", MANIFEST_MODES)
def test_manifest_with_v1_names_on_s3_is_read_at_once_and_works(
    mode: str, moto_server: S3Server, moto_bucket: str
) -> None:
    lake = Lake(f"s3://{moto_bucket}/lake", MANIFEST_MODES[mode], moto_server.storage_options(), QUIET)
    uri = f"{lake.uri}/__manifest"

    def add(*ids: str, **options: Any) -> None:
        added = pa.Table.from_pylist(
            [{"object_id": each, "object_type": "namespace"} for each in ids], SCHEMA
        )
        lance.write_dataset(added, uri, storage_options=lake.options, **options)

    add("a", enable_v2_manifest_paths=False)
    catalog = lake.open()
    for number in range(3):
        assert f"b{number}" not in namespaces(catalog)
        add(f"b{number}", mode="append")
        assert f"b{number}" in namespaces(catalog), "seen at once, not after seconds"
        with refused(2):
            spaces(catalog, f"b{number}")
    make(catalog, "a/t", 1)
    rename(catalog, "a/t", "a/u")
    drop(catalog, "a/u")
    catalog.undrop_table(["a", "u"])
    catalog.protect(["a"])
    assert rows(lake.open(), "a/u") == [1]
    found = lance.dataset(uri, storage_options=lake.options)
    assert found.count_rows() == len(set(found.to_table()["object_id"].to_pylist()))
    assert any(key.endswith(f"/{found.version}.manifest") for key in lake.all_keys("__manifest/_versions"))


def test_unknown_column_that_must_not_be_null_is_named_and_only_read(lake: Lake) -> None:
    table = manifest(lake).to_table()
    field = pa.field("owner", pa.string(), nullable=False)
    replace_manifest(lake, table.append_column(field, pa.array(["ann"] * len(table))))
    before = lake.files()
    for call in READS.values():
        call(lake.open())
    with refused(INVALID_TABLE_STATE) as caught:
        spaces(lake.open(), "new")
    assert "'owner'" in str(caught.value)
    assert lake.files() == before


def test_empty_manifest_folder_counts_as_no_manifest(lake: Lake) -> None:
    shutil.rmtree(lake.folder / "__manifest")
    (lake.folder / "__manifest").mkdir()
    catalog = lake.open()
    assert namespaces(catalog) == []
    spaces(catalog, "new")
    assert namespaces(lake.open()) == ["new"]


class TestFeatureFlags:
    @pytest.mark.parametrize("flags", ["1", "2", str(1 << 40), str(2**64 - 1)])
    def test_unknown_reader_flag_refuses_every_operation(self, flags: str, lake: Lake) -> None:
        manifest(lake).update_metadata({READER_FLAGS_KEY: flags})
        before = lake.files()
        for call in (READS | WRITES).values():
            with refused(UNSUPPORTED) as caught:
                call(lake.open())
            assert "newer" in str(caught.value)
        assert lake.files() == before

    @pytest.mark.parametrize("flags", ["1", str(1 << 33), str(2**64 - 1)])
    def test_unknown_writer_flag_refuses_changes_but_not_reads(self, flags: str, lake: Lake) -> None:
        manifest(lake).update_metadata({WRITER_FLAGS_KEY: flags})
        before = lake.table_files()
        for name in ("list_tables", "describe_table", "list_dropped_tables"):
            READS[name](lake.open())
        assert rows(lake.open(), "a/t") == [1]
        refusals = {}
        for name, call in WRITES.items():
            try:
                call(lake.open())
            except LanceNamespaceError as error:
                refusals[name] = int(error.code)
        if lake.is_v2:
            refusals["migrate_to_manifest"] = UNSUPPORTED  # there is nothing to migrate
        assert refusals == dict.fromkeys(WRITES, UNSUPPORTED)
        assert lake.table_files() == before, "no file is left behind either"

    @pytest.mark.parametrize("key", [READER_FLAGS_KEY, WRITER_FLAGS_KEY])
    def test_non_numeric_flags_are_an_invalid_state(self, key: str, lake: Lake) -> None:
        for text in ("", "x", "-1", "0x1", "٣"):
            manifest(lake).update_metadata({key: text})
            with refused(INVALID_TABLE_STATE):
                spaces(lake.open(), "new")

    def test_cleared_flags_are_ignored(self, lake: Lake) -> None:
        manifest(lake).update_metadata({READER_FLAGS_KEY: "0", WRITER_FLAGS_KEY: "0", "other": "x"})
        spaces(lake.open(), "new")
        assert namespaces(lake.open()) == ["a", "new"]
        assert manifest(lake).metadata["other"] == "x"


def rewrite(lake: Lake, object_id: str, **columns: str) -> None:
    """Change columns of one row behind the catalog's back."""
    quoted = {column: "'" + value.replace("'", "''") + "'" for column, value in columns.items()}
    manifest(lake).update(quoted, where=f"object_id = '{object_id}'")


class TestCorruptRows:
    @pytest.mark.parametrize("text", ["not json", "[]", '"text"', "7", '{"n": 1}', '{"n": null}', '{"n":'])
    def test_metadata_of_any_kind_is_tolerated_and_preserved(self, text: str, lake: Lake) -> None:
        rewrite(lake, "a$t", metadata=text)
        assert_whole(lake.open(), "a/t", 1)
        rename(lake.open(), "a/t", "a/moved")
        assert lake.manifest_rows()["a$moved"]["metadata"] == text
        drop(lake.open(), "a/moved")
        lake.open().undrop_table(["a", "moved"])
        lake.open().protect(["a", "moved"])
        lake.open().unprotect(["a", "moved"])
        assert lake.manifest_rows()["a$moved"]["metadata"] == text
        assert_whole(lake.open(), "a/moved", 1)

    def test_of_two_rows_with_one_id_the_one_of_the_other_client_counts(self, lake: Lake) -> None:
        lance.write_dataset(pa.table({"x": [8]}), str(lake.folder / "theirs"))
        lake.open().protect(["a", "t"])  # a key of ours
        theirs = {"object_id": "a$t", "object_type": "table", "location": "theirs"}
        row = pa.Table.from_pylist([theirs], schema=SCHEMA)
        lance.write_dataset(row, str(lake.folder / "__manifest"), mode="append")
        assert_whole(lake.open(), "a/t", 8)
        before = lake.files()
        found = {finding.name: finding.problem for finding in lake.open().scrub()}
        assert found.pop("a$t") is Problem.DUPLICATE_ROW
        assert set(found.values()) == {Problem.ORPHAN_DIRECTORY}
        assert lake.files() == before
        lake.open().scrub(repair=True)
        assert lake.manifest_rows()["a$t"]["location"] == "theirs"
        assert len(manifest(lake).to_table(filter="object_id = 'a$t'")) == 1
        assert_whole(lake.open(), "a/t", 8)

    def test_table_without_a_location_is_not_found(self, lake: Lake) -> None:
        manifest(lake).update({"location": "null"}, where="object_id = 'a$t'")
        with refused(4):
            describe(lake.open(), "a/t")
        make(lake.open(), "a/other", 4)
        assert_whole(lake.open(), "a/other", 4)

    def test_dropped_row_with_a_corrupt_state_is_left_alone(self, lake: Lake) -> None:
        found = lake.manifest_rows()
        dropped = {key: str(found[key]["location"]) for key in found if key.startswith("__dropped$")}
        (object_id,) = (key for key, location in dropped.items() if location.endswith("a$gone"))
        metadata = json.loads(found[object_id]["metadata"])
        rewrite(lake, object_id, metadata=json.dumps({**metadata, CONTROL: "{}"}))
        with pytest.raises(LanceNamespaceError):
            lake.open().undrop_table(["a", "gone"])
        with pytest.raises(LanceNamespaceError):
            lake.open().purge_table(["a", "gone"], force=True)
        assert object_id in lake.manifest_rows()
        assert_whole(lake.open(), "root", 3)


class TestUnknownContent:
    def test_unknown_columns_survive_writes(self, lake: Lake) -> None:
        manifest(lake).add_columns({"extra": "concat('x ', object_id)"})
        catalog = lake.open()
        rename(catalog, "a/t", "a/moved")
        drop(catalog, "a/moved")
        catalog.undrop_table(["a", "moved"])
        catalog.protect(["a"])
        spaces(catalog, "new")
        found = lake.manifest_rows()
        assert found["a$moved"]["extra"] == "x a$t"
        assert found["a"]["extra"] == "x a"
        assert found["new"]["extra"] is None
        assert_whole(lake.open(), "a/moved", 1)
        catalog.undrop_table(["a", "gone"])
        assert found.keys() <= {*lake.manifest_rows(), *found}
        assert lake.manifest_rows()["a$gone"]["extra"].startswith("x __dropped$")

    def test_unknown_properties_survive_writes(self, lake: Lake) -> None:
        rewrite(lake, "a$t", metadata='{"n": "1", "vendor.key": "é \\"x\\"", "relance.future": "1"}')
        catalog = lake.open()
        seen = {"n": "1", "vendor.key": 'é "x"', "relance.future": "1"}
        assert describe(catalog, "a/t").properties == seen
        rename(catalog, "a/t", "a/moved")
        catalog.protect(["a", "moved"])
        catalog.unprotect(["a", "moved"])
        drop(catalog, "a/moved")
        catalog.undrop_table(["a", "moved"])
        kept = json.loads(lake.manifest_rows()["a$moved"]["metadata"])
        assert kept == seen
        make(catalog, "a/moved", 2, mode="overwrite", properties={"n": "2"})
        assert json.loads(lake.manifest_rows()["a$moved"]["metadata"])["relance.future"] == "1"

    def test_base_objects_survive_writes(self, lake: Lake) -> None:
        row = manifest(lake).to_table(filter="object_id = 'a$t'").to_pylist()[0]
        changed = pa.Table.from_pylist([{**row, "base_objects": ["x", "y"]}], schema=SCHEMA)
        merge = manifest(lake).merge_insert("object_id").when_matched_update_all()
        merge.execute(changed)
        rename(lake.open(), "a/t", "a/moved")
        assert lake.manifest_rows()["a$moved"]["base_objects"] == ["x", "y"]

    def test_objects_of_an_unknown_type_are_kept_and_block_their_ids(self, lake: Lake) -> None:
        view = pa.Table.from_pylist([{"object_id": "a$v", "object_type": "view"}], schema=SCHEMA)
        lance.write_dataset(view, str(lake.folder / "__manifest"), mode="append")
        catalog = lake.open()
        assert tables(catalog, "a") == ["t"]
        assert namespaces(catalog, "a") == []
        for attempt in (make, declare):
            with refused(5):
                attempt(catalog, "a/v")
        with refused(2):
            spaces(catalog, "a/v")
        with refused(4):
            drop(catalog, "a/v")
        drop(catalog, "a/t")
        with refused(3):
            catalog.drop_namespace({"id": ["a"]})
        assert lake.manifest_rows()["a$v"]["object_type"] == "view"

    def test_objects_below_our_prefix_are_shown_and_never_ours(self, lake: Lake) -> None:
        (lake.folder / "loose").rename(lake.folder / "theirs")
        added = [
            {"object_id": "__dropped", "object_type": "namespace", "metadata": '{"k": 1}'},
            {"object_id": "__dropped$sub", "object_type": "namespace"},
            {"object_id": "__dropped$t", "object_type": "table", "location": "theirs", "metadata": "{}"},
        ]
        lance.write_dataset(
            pa.Table.from_pylist(added, schema=SCHEMA), str(lake.folder / "__manifest"), mode="append"
        )
        dropped = lake.open().list_dropped_tables()
        for _ in range(2):
            catalog = lake.open()
            assert namespaces(catalog) == ["__dropped", "a"]
            assert namespaces(catalog, "__dropped") == ["sub"]
            assert tables(catalog, "__dropped") == ["t"]
            assert "__dropped$t" in catalog.list_all_tables({}).tables
            assert catalog.describe_namespace({"id": ["__dropped"]}).properties == {"k": "1"}
            assert describe(catalog, "__dropped/t").location == str(lake.folder / "theirs")
            assert rows(catalog, "__dropped/t") == [5]
            assert catalog.count_table_rows({"id": ["__dropped", "t"]}).count == 1
            for each in dropped:
                with refused(4):
                    describe(catalog, f"__dropped/{each.deletion_id}")
            assert catalog.list_dropped_tables() == dropped
            assert [each for each in catalog.scrub() if each.name.startswith("__dropped")] == []
            spaces(catalog, "new")  # rewrites the head, and what is beside it
            catalog.drop_namespace({"id": ["new"]})
            for change in (drop, declare, make):
                with refused(13):
                    change(catalog, "__dropped/t")
        assert lake.open().purge_table(["a", "gone"], force=True).purged
        assert rows(lake.open(), "__dropped/t") == [5]

    def test_dropped_rows_have_types_of_their_own_where_native_clients_allow_it(self, lake: Lake) -> None:
        def types() -> dict[str, set[str]]:
            found: dict[str, set[str]] = {}
            for object_id, row in lake.manifest_rows().items():
                found.setdefault(row["object_type"], set()).add(object_id)
            return found

        managed = {**lake.settings, "table_version_management": "true"}
        lake = replace(lake, settings=managed)
        catalog = lake.open()
        catalog.list_table_versions({"id": ["a", "t"]})  # turns it on
        catalog.undrop_table(["a", "gone"])
        catalog.undrop_namespace(["gone"])
        spaces(catalog, "new")
        make(catalog, "a/away", 6)
        for path in ("a/gone", "a/away"):
            drop(catalog, path)
        catalog.drop_namespace({"id": ["gone"]})
        found = types()
        before = {each for each in found["table"] if each.startswith("__dropped$")}
        assert len(before) == 1, "the root table that was dropped before"
        assert {*found["table"], *found["namespace"]} - before == {"a", "a$t", "new", "root"}
        assert found["relance_namespace"] > {"__dropped$head"}
        assert len(found["relance_table"]) == 2
        theirs = NativeNamespace(root=lake.uri, manifest_enabled="true", dir_listing_enabled="false")
        assert theirs.list_tables(ListTablesRequest(id=["a"])).tables == ["t"]
        assert theirs.list_namespaces(ListNamespacesRequest(id=[])).namespaces == ["a", "new"]
        ids = {each.id for each in lake.open().list_dropped_tables()}
        assert ids == {("a", "gone"), ("a", "away"), ("away",)}
        catalog = lake.open()
        catalog.undrop_table(["a", "away"])
        catalog.undrop_namespace(["gone"])
        assert {"a$away"} <= types()["table"]
        assert {"gone"} <= types()["namespace"]
        assert rows(catalog, "a/away") == [6]
        assert catalog.purge_table(["a", "gone"], force=True).purged
        assert "relance_table" not in types()
        assert [each for each in catalog.scrub() if each.name.startswith("__dropped")] == []

    def test_other_table_metadata_survives_writes(self, lake: Lake) -> None:
        manifest(lake).update_metadata({"vendor": "x"})
        manifest(lake).update_config({"lance.something": "y"})
        catalog = lake.open()
        spaces(catalog, "new")
        drop(catalog, "a/t")
        catalog.maintain_manifest()
        assert manifest(lake).metadata["vendor"] == "x"
        assert manifest(lake).config()["lance.something"] == "y"
