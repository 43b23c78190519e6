"""The native directory namespace and ours over one manifest: each reads and writes what the other left."""

from __future__ import annotations

import os
from typing import Any

import lance
import pytest
from lance.namespace import DirectoryNamespace as NativeNamespace
from lance_namespace import (
    CreateNamespaceRequest,
    CreateTableRequest,
    DeclareTableRequest,
    DeregisterTableRequest,
    DescribeNamespaceRequest,
    DescribeTableRequest,
    DropNamespaceRequest,
    DropTableRequest,
    ListNamespacesRequest,
    ListTablesRequest,
    RegisterTableRequest,
)
from lance_namespace.errors import InvalidInputError
from tests.support.calls import (
    all_tables,
    assert_gone,
    assert_whole,
    declare,
    describe,
    directory,
    drop,
    generations,
    ident,
    make,
    namespaces,
    rename,
    rows,
    spaces,
    tables,
    write,
)
from tests.support.codes import TABLE_NOT_FOUND
from tests.support.lakes import Lake
from tests.support.roots import numbers, refused, stream_of


def native(lake: Lake) -> Any:
    """Open the same root with the native namespace, which lists no directories."""
    return NativeNamespace(root=str(lake.folder), manifest_enabled="true", dir_listing_enabled="false")


def their_tables(client: Any, path: str = "") -> list[str]:
    """Return the tables that native lists."""
    return list(client.list_tables(ListTablesRequest(id=ident(path))).tables)


def their_rows(client: Any, path: str) -> list[int]:
    """Return the rows that native leads to."""
    described = client.describe_table(DescribeTableRequest(id=ident(path)))
    return sorted(lance.dataset(described.location).to_table()["x"].to_pylist())


def test_native_client_reads_tables_and_namespaces_written_by_relance(v2: Lake) -> None:
    catalog = v2.open()
    catalog.create_namespace({"id": ["a"], "properties": {"owner": "me"}})
    spaces(catalog, "a/b")
    make(catalog, "t", 1, properties={"n": "1"})
    make(catalog, "a/b/t", 2)
    declare(catalog, "a/d")
    make(catalog, "a/gone", 3)
    drop(catalog, "a/gone")
    rename(catalog, "a/b/t", "a/moved")
    theirs = native(v2)
    assert list(theirs.list_namespaces(ListNamespacesRequest(id=[])).namespaces) == ["a"]
    assert list(theirs.list_namespaces(ListNamespacesRequest(id=["a"])).namespaces) == ["b"]
    assert theirs.describe_namespace(DescribeNamespaceRequest(id=["a"])).properties == {"owner": "me"}
    assert their_tables(theirs) == ["t"]
    assert their_tables(theirs, "a") == ["d", "moved"]
    assert their_rows(theirs, "t") == [1]
    assert their_rows(theirs, "a/moved") == [2]
    assert theirs.describe_table(DescribeTableRequest(id=["t"])).properties == {"n": "1"}
    with refused(4):
        theirs.describe_table(DescribeTableRequest(id=["a", "gone"]))


def test_tables_and_namespaces_written_by_the_native_client_are_read(v2: Lake) -> None:
    theirs = native(v2)
    theirs.create_namespace(CreateNamespaceRequest(id=["a"], properties={"owner": "me"}))
    theirs.create_table(CreateTableRequest(id=["t"], properties={"n": "1"}), stream_of(1))
    theirs.create_table(CreateTableRequest(id=["a", "t"]), stream_of(2))
    theirs.declare_table(DeclareTableRequest(id=["a", "d"]))
    catalog = v2.open()
    assert namespaces(catalog) == ["a"]
    assert catalog.describe_namespace({"id": ["a"]}).properties == {"owner": "me"}
    assert all_tables(catalog) == ["a/d", "a/t", "t"]
    assert tables(catalog, "a", include_declared=False) == ["t"]
    assert_whole(catalog, "t", 1)
    assert_whole(catalog, "a/t", 2)
    assert describe(catalog, "t").properties == {"n": "1"}


def test_lifecycle_works_on_native_tables_while_the_native_client_writes(v2: Lake) -> None:
    theirs = native(v2)
    theirs.create_namespace(CreateNamespaceRequest(id=["a"]))
    for number, path in enumerate(("t", "a/t", "a/u")):
        theirs.create_table(CreateTableRequest(id=ident(path)), stream_of(number))
    catalog = v2.open()
    drop(catalog, "t")
    drop(catalog, "a/t")
    rename(catalog, "a/u", "u")
    # Native rewrites the whole manifest with each of these.
    theirs.create_namespace(CreateNamespaceRequest(id=["b"]))
    theirs.create_table(CreateTableRequest(id=["a", "t"]), stream_of(7))
    theirs.drop_table(DropTableRequest(id=["u"]))
    assert all_tables(catalog) == ["a/t"]
    assert rows(catalog, "a/t") == [7]
    assert len(generations(catalog, "t")) == len(generations(catalog, "a/t")) == 1
    catalog.undrop_table(["t"])
    assert_whole(v2.open(), "t", 0)
    catalog.undrop_table(["a", "t"], new_id=["b", "old"])
    assert_whole(v2.open(), "b/old", 1)
    assert their_rows(native(v2), "b/old") == [1]
    assert namespaces(catalog) == ["a", "b"]


def test_native_client_can_drop_a_namespace_with_dropped_tables(v2: Lake) -> None:
    catalog = v2.open()
    spaces(catalog, "a")
    make(catalog, "a/t", 1)
    drop(catalog, "a/t")
    native(v2).drop_namespace(DropNamespaceRequest(id=["a"]))
    assert namespaces(catalog) == []
    catalog.undrop_table(["a", "t"], new_id=["saved"])
    assert_whole(v2.open(), "saved", 1)


def test_cascade_can_be_undone_after_native_writes(v2: Lake) -> None:
    catalog = v2.open()
    spaces(catalog, "a", "a/b")
    make(catalog, "a/b/t", 1)
    catalog.drop_namespace({"id": ["a"], "behavior": "cascade"})
    theirs = native(v2)
    assert list(theirs.list_namespaces(ListNamespacesRequest(id=[])).namespaces) == []
    theirs.create_namespace(CreateNamespaceRequest(id=["z"]))
    catalog.undrop_namespace(["a"])
    assert_whole(v2.open(), "a/b/t", 1)
    assert their_rows(theirs, "a/b/t") == [1]


def test_protection_and_properties_survive_native_writes(v2: Lake) -> None:
    catalog = v2.open()
    make(catalog, "t", 1, properties={"n": "1"})
    catalog.protect(["t"])
    native(v2).create_namespace(CreateNamespaceRequest(id=["z"]))
    with refused(19):
        drop(v2.open(), "t")
    assert describe(v2.open(), "t").properties == {"n": "1"}


def test_native_register_and_deregister_are_seen(v2: Lake) -> None:
    catalog = v2.open()
    make(catalog, "t", 1)
    place = directory(v2, "t")
    theirs = native(v2)
    theirs.deregister_table(DeregisterTableRequest(id=["t"]))
    assert_gone(v2.open(), "t")
    theirs.register_table(RegisterTableRequest(id=["again"], location=place))
    assert_whole(v2.open(), "again", 1)


@pytest.mark.parametrize("bad", ["", ".", "__manifest", "../outside"])
def test_unsafe_location_registered_by_the_native_client_is_never_purged(bad: str, v2: Lake) -> None:
    catalog = v2.open()
    make(catalog, "t", 1)
    lance.write_dataset(numbers(5), str(v2.folder.parent / "outside"))
    theirs = native(v2)
    if bad == "../outside":
        # Native refuses this one too, so it is put there by hand.
        theirs.register_table(RegisterTableRequest(id=["trap"], location="x"))
        manifest = lance.dataset(str(v2.folder / "__manifest"))
        manifest.update({"location": "'../outside'"}, where="object_id = 'trap'")
    else:
        theirs.register_table(RegisterTableRequest(id=["trap"], location=bad))
    with refused(TABLE_NOT_FOUND):
        drop(catalog, "trap")
    before = {key: body for key, body in v2.files().items() if "__manifest" not in key}
    result = catalog.purge_tables([["trap"]], force=True)
    assert not result[0].purged
    catalog.deregister_table({"id": ["trap"]})
    after = {key: body for key, body in v2.files().items() if "__manifest" not in key}
    assert {key for key in before if not key.startswith(".relance")} <= after.keys()
    assert os.path.exists(v2.folder.parent / "outside" / "data")
    assert_whole(v2.open(), "t", 1)


def test_purge_of_an_alias_registered_by_the_native_client_takes_its_row_alone(v2: Lake) -> None:
    catalog = v2.open()
    make(catalog, "t", 1)
    native(v2).register_table(RegisterTableRequest(id=["alias"], location=directory(v2, "t")))
    drop(catalog, "alias")
    assert catalog.purge_table(["alias"], force=True).files == 0
    assert catalog.list_dropped_tables() == []
    assert_whole(v2.open(), "t", 1)


def test_compatibility_mode_and_native_v2_share_root_tables(compatible: Lake) -> None:
    catalog = compatible.open()
    make(catalog, "t", 1)
    write(catalog, "u", 2)
    theirs = native(compatible)
    assert their_tables(theirs) == ["t", "u"]
    assert their_rows(theirs, "t") == [1]
    theirs.create_table(CreateTableRequest(id=["v"]), stream_of(3))
    assert_whole(compatible.open(), "v", 3)
    drop(catalog, "t")
    assert their_tables(native(compatible)) == ["u", "v"]
    rename(catalog, "u", "w")
    assert their_tables(native(compatible)) == ["v", "w"]
    assert their_rows(native(compatible), "w") == [2]
    catalog.undrop_table(["t"])
    assert their_rows(native(compatible), "t") == [1]


@pytest.mark.parametrize("name", ["ours", "native"])
def test_registration_responds_with_the_location_as_given(lake: Lake, name: str) -> None:
    client = lake.catalog if name == "ours" else native(lake)
    for number, end in enumerate(("", "/")):
        given = f"kept{number}{end}"
        lance.write_dataset(numbers(1), str(lake.folder / given))
        assert (
            client.register_table(RegisterTableRequest(id=[f"t{number}"], location=given)).location == given
        )


@pytest.mark.parametrize("name", ["ours", "native"])
@pytest.mark.parametrize(
    ("location", "words"),
    [
        ("/etc/t.lance", "Absolute paths are not allowed"),
        ("s3://other/t.lance", "Absolute URIs are not allowed"),
        ("file:///etc/t.lance", "Absolute"),
        ("../t.lance", "Path traversal is not allowed"),
        ("a/../../t.lance", "Path traversal is not allowed"),
        ("a\\..\\t.lance", "Path traversal is not allowed"),
    ],
)
def test_location_outside_the_root_is_refused_in_the_words_of_native(
    lake: Lake, name: str, location: str, words: str
) -> None:
    client = lake.catalog if name == "ours" else native(lake)
    with pytest.raises(InvalidInputError, match=f"^Invalid input: {words}"):
        client.register_table(RegisterTableRequest(id=["t"], location=location))
