"""One validation of names for every entry point: a name works everywhere or is refused before any write."""

from __future__ import annotations

import re
import tempfile
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lance
import lancedb
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from lance_namespace import LanceNamespace
from lance_namespace.errors import InvalidInputError, LanceNamespaceError
from tests.support.codes import INVALID_INPUT, UNSUPPORTED
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
    describe,
    drop,
    exists,
    ipc,
    local_place,
    names,
    refused,
    rows,
    snapshot,
)
from tests.support.servers import S3Server

from relance import DirectoryNamespace

Call = Callable[[Any, Any], object]

NAMESPACE_OPERATIONS: dict[str, Call] = {
    "list_namespaces": lambda catalog, parts: catalog.list_namespaces({"id": parts}),
    "describe_namespace": lambda catalog, parts: catalog.describe_namespace({"id": parts}),
    "create_namespace": lambda catalog, parts: catalog.create_namespace({"id": parts}),
    "drop_namespace": lambda catalog, parts: catalog.drop_namespace({"id": parts}),
    "namespace_exists": lambda catalog, parts: catalog.namespace_exists({"id": parts}),
    "list_tables": lambda catalog, parts: catalog.list_tables({"id": parts}),
}
TABLE_OPERATIONS: dict[str, Call] = {
    "table_exists": lambda catalog, parts: catalog.table_exists({"id": parts}),
    "describe_table": lambda catalog, parts: catalog.describe_table({"id": parts}),
    "declare_table": lambda catalog, parts: catalog.declare_table({"id": parts}),
    "create_table": lambda catalog, parts: catalog.create_table({"id": parts}, ipc(ROWS)),
    "drop_table": lambda catalog, parts: catalog.drop_table({"id": parts}),
    "register_table": lambda catalog, parts: catalog.register_table({"id": parts, "location": "taken.lance"}),
    "deregister_table": lambda catalog, parts: catalog.deregister_table({"id": parts}),
    "rename_table": lambda catalog, parts: catalog.rename_table({"id": parts, "new_table_name": "renamed"}),
    "list_table_versions": lambda catalog, parts: catalog.list_table_versions({"id": parts}),
    "describe_table_version": lambda catalog, parts: catalog.describe_table_version({"id": parts}),
    "create_table_version": lambda catalog, parts: catalog.create_table_version(
        {"id": parts, "version": 1, "manifest_path": "staged"}
    ),
    "batch_create_table_versions": lambda catalog, parts: catalog.batch_create_table_versions(
        {"entries": [{"id": parts, "version": 1, "manifest_path": "staged"}]}
    ),
    "batch_delete_table_versions": lambda catalog, parts: catalog.batch_delete_table_versions(
        {"id": parts, "ranges": [{"start_version": 0, "end_version": -1}]}
    ),
}
OPERATIONS = NAMESPACE_OPERATIONS | TABLE_OPERATIONS

BAD_NAMES = (
    "", " ", " a", "a ", "\ta", "a\n", "\n", "a\rb", "\0", "a\0b", "a\x1bb", "\x7f", "a\x85b",
    "$", "a$b", "$a", "a$", "/", "a/b", "/a", "a/", "../a", "a/..", "/etc/passwd", "\\", "a\\b", "..\\a",
    ".", "..", "%", "a%b", "%2e%2e", "a%2Fb", "#", "a#b", "?", "a?b", "*", "a*b", '"', 'a"b', "<a>", "a|b",
    "x" * 221, "é" * 111, "日" * 74, "x" * 5000,
    "a\u200bb", "a\u202eb", "\ufeffa", "a\u2028b", "\ue000", "\ud800", "a\udfffb", "\U000fffff", "e\u0301",
)  # fmt: skip

GOOD_NAMES = (
    "t", "T", "0", "_", "-", "-x", "--help", "a.b", "a..b", "a.", ".a", "...", ".hidden", "..a", "~", "~root",
    "x.lance", "x.deleted", "x.declared", "x.creating", "x.manifest", ".lance", ".relance-root",
    ".relance-local", "_versions", "data", "CON", "null", "main",
    "a b", "a  b", "it's", "`a`", "a+b", "a:b", "a&b", "a=b", "a@b", "a,b", "a;b", "a!b", "(a)", "[a]", "{a}",
    "a^b", "a~b", "é", "naïve café", "日本語", "Ελληνικά", "עברית", "😀", "a\u3000b", "a\u00a0b",
    "x" * 220, "é" * 110, "日" * 73,
)  # fmt: skip

GOOD_NAMES_ON_S3 = (
    "t", "~", "x.lance", "a b", "it's", "`a`", "a+b", "a:b", "a&b=c@d", "(a)[b]{c}", "a^b", "é", "日本語",
    "😀", "a\u3000b", "x" * 220,
)  # fmt: skip
"""Each kind of oddity once, because a round on S3 takes long; all of them lie side by side in one test."""

_LANCEDB_NAME = re.compile(r"[A-Za-z0-9_.-]+")
"""lancedb refuses other names by itself, before it asks any catalog."""


@pytest.mark.parametrize("name", BAD_NAMES, ids=ascii)
def test_invalid_name_is_refused_by_every_operation_and_changes_nothing(name: str, local: LocalPlace) -> None:
    catalog = local.open()
    create(catalog, "taken")
    beside = snapshot(local.folder.parent)
    for call in OPERATIONS.values():
        for parts in ([name], ["ok", name], [name, "ok"]):
            with refused(INVALID_INPUT):
                call(catalog, parts)
    assert snapshot(local.folder.parent) == beside


LOOKS = (
    "list_tables",
    "list_namespaces",
    "describe_namespace",
    "namespace_exists",
    "table_exists",
    "describe_table",
)


@pytest.mark.parametrize("name", ["__manifest", "__dropped"])
def test_reserved_name_is_only_looked_for(name: str, local: LocalPlace) -> None:
    catalog = local.open()
    create(catalog, "taken")
    beside = snapshot(local.folder.parent)
    for operation, call in OPERATIONS.items():
        for parts in ([name], ["ok", name], [name, "ok"]):
            with pytest.raises(LanceNamespaceError) as caught:
                call(catalog, parts)
            if operation in LOOKS:
                assert int(caught.value.code) != INVALID_INPUT, operation
            else:  # V1 has no namespaces
                assert int(caught.value.code) in {INVALID_INPUT, UNSUPPORTED}, operation
    assert snapshot(local.folder.parent) == beside


def test_invalid_names_on_s3_are_refused_by_every_operation(moto: S3Place) -> None:
    catalog = moto.open()
    create(catalog, "taken")
    before = moto.bucket_files()
    for name in BAD_NAMES:
        for call in OPERATIONS.values():
            with refused(INVALID_INPUT):
                call(catalog, [name])
    assert moto.bucket_files() == before


def test_error_for_an_invalid_name_has_the_name_and_the_reason(local: LocalPlace) -> None:
    with refused(INVALID_INPUT) as caught:
        create(local.open(), "a/b")
    assert "'a/b'" in str(caught.value)
    assert "separates folders" in str(caught.value)


def test_every_operation_that_takes_an_id_is_tested_here() -> None:
    # The last takes ids inside what it commits, and only where the catalog keeps versions.
    without_id = {"namespace_id", "list_all_tables", "batch_commit_tables"}
    implemented = {name for name in vars(DirectoryNamespace) if hasattr(LanceNamespace, name)}
    assert {name for name in implemented if not name.startswith("_")} - without_id == set(OPERATIONS)


@pytest.mark.parametrize("operation", TABLE_OPERATIONS)
def test_table_id_must_be_a_non_empty_list_of_strings(operation: str, local: LocalPlace) -> None:
    for parts in ([], None, "t", 7, [7], [None], {"a": "b"}):
        with refused(INVALID_INPUT):
            TABLE_OPERATIONS[operation](local.open(), parts)
    assert not local.folder.exists()


@pytest.mark.parametrize("operation", OPERATIONS)
def test_child_namespaces_are_unsupported_without_a_manifest(operation: str, disk: LocalPlace) -> None:
    parts = ["child"] if operation in NAMESPACE_OPERATIONS else ["child", "t"]
    with refused(UNSUPPORTED):
        OPERATIONS[operation](disk.open(), parts)
    assert not disk.folder.exists()


@pytest.mark.parametrize("name", GOOD_NAMES, ids=ascii)
def test_unusual_valid_name_works_end_to_end_on_disk(name: str, local: LocalPlace) -> None:
    check_from_end_to_end(local, name)


@pytest.mark.parametrize("name", GOOD_NAMES_ON_S3, ids=ascii)
def test_unusual_valid_name_works_end_to_end_on_s3(name: str, moto: S3Place) -> None:
    check_from_end_to_end(moto, name)


def check_from_end_to_end(place: Place, name: str) -> None:
    """Create, list, describe, open, append to, and drop a table with pylance and, if it may, lancedb."""
    catalog = place.open()
    create(catalog, name)
    assert names(catalog) == [name]
    assert_whole(catalog, name)
    assert describe(catalog, name).table == name
    opened = lance.dataset(namespace_client=catalog, table_id=[name])
    assert opened.count_rows() == ROWS.num_rows
    lance.write_dataset(MORE_ROWS, namespace_client=catalog, table_id=[name], mode="append")
    assert rows(catalog, name) == ROWS.to_pylist() + MORE_ROWS.to_pylist()
    assert describe(catalog, name, load_detailed_metadata=True).version == 2
    if _LANCEDB_NAME.fullmatch(name):
        database = lancedb.connect_namespace("relance.DirectoryNamespace", place.properties)
        assert database.open_table(name).count_rows() == ROWS.num_rows + MORE_ROWS.num_rows
    drop(catalog, name)
    assert_gone(catalog, name)
    assert names(catalog) == []


@pytest.mark.parametrize("place", ["disk", MOTO, "compatibility"], indirect=True)
def test_unusual_names_coexist_and_are_sorted_by_bytes(place: Place) -> None:
    catalog = place.open()
    for name in GOOD_NAMES:
        create(catalog, name)
    assert names(catalog) == sorted(GOOD_NAMES, key=str.encode)
    assert names(catalog, include_declared=False) == names(catalog)
    for name in GOOD_NAMES[::2]:
        drop(catalog, name)
    assert names(catalog) == sorted(GOOD_NAMES[1::2], key=str.encode)
    for name in GOOD_NAMES[1::2]:
        assert exists(catalog, name)


@pytest.mark.parametrize("name", ["a b", "é", "it's", "[a]", "x.lance", "😀"])
def test_unusual_name_can_be_written_by_pylance_through_the_catalog(name: str, local: LocalPlace) -> None:
    catalog = local.open(table_version_tracking_enabled="true")
    lance.write_dataset(ROWS, namespace_client=catalog, table_id=[name], mode="create")
    lance.write_dataset(MORE_ROWS, namespace_client=catalog, table_id=[name], mode="append")
    assert_whole(catalog, name, lance.dataset(describe(catalog, name).location).to_table())
    assert describe(catalog, name, load_detailed_metadata=True).version == 2


any_name = st.one_of(
    st.text(st.characters(), max_size=12),
    st.text("abAB09._-~ $/\\%#?*\"'<>|:+&=@[]{}()^`,;!\0\n\t", max_size=6),
    st.text("é日😀ǅİßﬁ\u0301\u200b\u00a0\u3000.", max_size=6),
    st.text("x.é", min_size=100, max_size=260),
    st.sampled_from([*BAD_NAMES, *GOOD_NAMES]),
)


def works_or_is_refused(place: Place, name: str) -> bool:
    """Take a name through a table's whole life; return False when it is refused with nothing changed."""
    catalog: Any = place.open()
    before = place.files()
    try:
        catalog.create_table({"id": [name]}, ipc(ROWS))
    except InvalidInputError:
        assert place.files() == before
        return False
    assert names(catalog) == [name]
    assert_whole(catalog, name)
    assert lance.dataset(namespace_client=catalog, table_id=[name]).to_table() == ROWS
    drop(catalog, name)
    assert_gone(catalog, name)
    return True


@pytest.mark.deep
@given(name=any_name)
@settings(max_examples=300)
def test_any_name_on_disk_works_or_is_refused_without_a_trace(name: str) -> None:
    with tempfile.TemporaryDirectory() as sandbox:
        place = local_place(Path(sandbox, "root"))
        worked = works_or_is_refused(place, name)
        # Nothing is ever written beside the root, and nothing at all for a refused name.
        assert {path.name for path in Path(sandbox).iterdir()} == ({"root"} if worked else set())


@pytest.mark.deep
@given(name=any_name)
@settings(max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_name_on_s3_works_or_is_refused_without_a_trace(
    name: str, moto_server: S3Server, moto_bucket: str
) -> None:
    place = S3Place(moto_server, moto_bucket, uuid.uuid4().hex)
    beside = set(place.bucket_files())
    works_or_is_refused(place, name)
    assert all(key.startswith(f"{place.prefix}/") for key in set(place.bucket_files()) - beside)
