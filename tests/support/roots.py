"""Places for a root, short calls by table name, and checks of a catalog."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import lance
import pyarrow as pa
import pytest
from lance.namespace import DirectoryNamespace as NativeNamespace
from lance_namespace import (
    CreateTableRequest,
    CreateTableResponse,
    DeclareTableRequest,
    DeclareTableResponse,
    DeregisterTableRequest,
    DescribeTableRequest,
    DescribeTableResponse,
    DropTableRequest,
    ListTablesRequest,
    ListTableVersionsRequest,
    RegisterTableRequest,
    TableExistsRequest,
)
from lance_namespace.errors import LanceNamespaceError, TableNotFoundError
from tests.support.codes import TABLE_NOT_FOUND
from tests.support.modes import V1
from tests.support.servers import S3Server

from relance import DirectoryNamespace
from relance.locations import parse_root
from relance.storage.connect import connect

ROWS = pa.table({"id": [1, 2, 3], "name": ["a", "b", "c"]})
MORE_ROWS = pa.table({"id": [4, 5], "name": ["d", "e"]})


class Place(Protocol):
    """Somewhere a root lies: how to open it, and how to look at its files behind the catalog's back."""

    @property
    def root(self) -> str:
        """The root as users write it."""

    @property
    def mode(self) -> dict[str, str]:
        """The properties that say whether the manifest counts."""

    @property
    def properties(self) -> dict[str, Any]:
        """What opens the root in this place's mode, for our namespace and for the native one."""

    def open(self, **properties: Any) -> DirectoryNamespace:
        """Open the catalog, with further properties if given."""

    def files(self) -> dict[str, bytes]:
        """Return everything in the root: the bytes of each file by its key; folders end in a slash."""

    def put(self, key: str, body: bytes = b"") -> None:
        """Write a file behind the catalog's back."""

    def remove(self, key: str) -> None:
        """Remove a file behind the catalog's back."""


@dataclass(frozen=True, slots=True)
class LocalPlace:
    """A root in a folder of this machine: plain, or the one behind a memory:// root."""

    root: str
    folder: Path
    mode: dict[str, str] = field(default_factory=V1.copy)

    @property
    def properties(self) -> dict[str, Any]:
        return {"root": self.root, **self.mode}

    def open(self, **properties: Any) -> DirectoryNamespace:
        return DirectoryNamespace(**(self.properties | properties))

    def files(self) -> dict[str, bytes]:
        return snapshot(self.folder)

    def put(self, key: str, body: bytes = b"") -> None:
        path = self.folder / key
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(body)

    def remove(self, key: str) -> None:
        (self.folder / key).unlink()


@dataclass(frozen=True, slots=True)
class S3Place:
    """A root below a prefix of a bucket."""

    server: S3Server
    bucket: str
    prefix: str
    mode: dict[str, str] = field(default_factory=V1.copy)

    @property
    def root(self) -> str:
        return f"s3://{self.bucket}/{self.prefix}"

    @property
    def properties(self) -> dict[str, Any]:
        options = {f"storage.{key}": value for key, value in self.server.storage_options().items()}
        return {"root": self.root, **options, **self.mode}

    def open(self, **properties: Any) -> DirectoryNamespace:
        return DirectoryNamespace(**(self.properties | properties))

    def files(self) -> dict[str, bytes]:
        start = f"{self.prefix}/"
        return {
            key.removeprefix(start): body
            for key, body in self.bucket_files().items()
            if key.startswith(start)
        }

    def bucket_files(self) -> dict[str, bytes]:
        """Return everything in the bucket, in the root and beside it."""
        client = self.server.client()
        found: dict[str, bytes] = {}
        for page in client.get_paginator("list_objects_v2").paginate(Bucket=self.bucket):
            for each in page.get("Contents", []):
                found[each["Key"]] = client.get_object(Bucket=self.bucket, Key=each["Key"])["Body"].read()
        return found

    def put(self, key: str, body: bytes = b"") -> None:
        self.server.client().put_object(Bucket=self.bucket, Key=f"{self.prefix}/{key}", Body=body)

    def remove(self, key: str) -> None:
        self.server.client().delete_object(Bucket=self.bucket, Key=f"{self.prefix}/{key}")


def local_place(folder: Path, mode: dict[str, str] = V1) -> LocalPlace:
    """Return a place in a folder, which need not exist."""
    return LocalPlace(str(folder), folder, mode)


def memory_place(name: str) -> LocalPlace:
    """Return the place behind `memory://name`."""
    root = f"memory://{name}"
    return LocalPlace(root, Path(connect(parse_root(root), {}).lance_root))


def snapshot(folder: Path) -> dict[str, bytes]:
    """Return every file below a folder by its relative path; folders and links are there as well."""
    found: dict[str, bytes] = {}
    for current, folders, files in os.walk(os.fsencode(folder)):
        for name in (*folders, *files):
            path = os.path.join(current, name)
            key = os.fsdecode(os.path.relpath(path, os.fsencode(folder)))
            if os.path.islink(path):
                found[f"{key}@"] = os.readlink(path)
            elif os.path.isdir(path):
                found[f"{key}/"] = b""
            else:
                found[key] = Path(os.fsdecode(path)).read_bytes()
    return found


def native(place: Place) -> NativeNamespace:
    """Open the same root with the native directory namespace, in the mode that lists directories."""
    listing = {"manifest_enabled": "false", "dir_listing_enabled": "true"}
    return NativeNamespace(**(place.properties | listing | {"vend_input_storage_options": "true"}))


def ipc(table: pa.Table) -> bytes:
    """Return the table as an Arrow stream, the body of create_table."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


def numbers(*values: int) -> pa.Table:
    """Return a table of one column `x`."""
    return pa.table({"x": pa.array(values, pa.int64())})


def stream_of(*values: int) -> bytes:
    """Return an Arrow stream of one column `x` with these values."""
    return ipc(numbers(*values))


def create(catalog: Any, name: str, table: pa.Table = ROWS, **fields: Any) -> CreateTableResponse:
    """Create a table with the given rows."""
    response: CreateTableResponse = catalog.create_table(CreateTableRequest(id=[name], **fields), ipc(table))
    return response


def declare(catalog: Any, name: str, **fields: Any) -> DeclareTableResponse:
    """Declare a table."""
    response: DeclareTableResponse = catalog.declare_table(DeclareTableRequest(id=[name], **fields))
    return response


def names(catalog: Any, **fields: Any) -> list[str]:
    """Return the listed names."""
    tables: list[str] = catalog.list_tables(ListTablesRequest(id=[], **fields)).tables
    return tables


def describe(catalog: Any, name: str, **fields: Any) -> DescribeTableResponse:
    """Describe a table."""
    response: DescribeTableResponse = catalog.describe_table(DescribeTableRequest(id=[name], **fields))
    return response


def drop(catalog: Any, name: str) -> None:
    """Drop a table."""
    catalog.drop_table(DropTableRequest(id=[name]))


def deregister(catalog: Any, name: str) -> None:
    """Hide a table."""
    catalog.deregister_table(DeregisterTableRequest(id=[name]))


def register(catalog: Any, name: str, **fields: Any) -> None:
    """Show a hidden table again."""
    catalog.register_table(RegisterTableRequest(**({"id": [name], "location": f"{name}.lance"} | fields)))


def exists(catalog: Any, name: str, **fields: Any) -> bool:
    """Return whether the catalog says that the table exists."""
    try:
        catalog.table_exists(TableExistsRequest(id=[name], **fields))
    except TableNotFoundError:
        return False
    return True


def versions(catalog: Any, name: str, **fields: Any) -> list[int]:
    """Return the numbers of the listed versions, in their order."""
    response = catalog.list_table_versions(ListTableVersionsRequest(id=[name], **fields))
    return [each.version for each in response.versions]


def dataset(catalog: Any, name: str, **pinned: Any) -> Any:
    """Open a table with pylance by the location and the options that describe_table gives."""
    described = describe(catalog, name)
    return lance.dataset(described.location, storage_options=described.storage_options, **pinned)


def rows(catalog: Any, name: str, **pinned: Any) -> list[dict[str, Any]]:
    """Return the rows of a table, in the order in which they lie there."""
    found: list[dict[str, Any]] = dataset(catalog, name, **pinned).to_table().to_pylist()
    return found


def data_files(place: Place, name: str) -> set[str]:
    """Return the names of the data files in a table's directory, used by a version or not."""
    start = f"{name}.lance/data/"
    return {
        key.removeprefix(start) for key in place.files() if key.startswith(start) and not key.endswith("/")
    }


@contextmanager
def refused(code: int) -> Iterator[pytest.ExceptionInfo[LanceNamespaceError]]:
    """Check that the block raises a namespace error with this code."""
    with pytest.raises(LanceNamespaceError) as caught:
        yield caught
    assert int(caught.value.code) == code, f"{type(caught.value).__name__}: {caught.value}"


@contextmanager
def refused_unchanged(place: Place, code: int) -> Iterator[None]:
    """Check that the block raises this code and changes no file below the root."""
    before = place.files()
    with refused(code):
        yield
    after = place.files()
    assert sorted(before) == sorted(after)
    assert before == after


def assert_gone(catalog: Any, name: str) -> None:
    """Check that no way of looking finds the table."""
    assert name not in names(catalog)
    assert name not in names(catalog, include_declared=False)
    for look in (exists_or_raise, describe, versions):
        with refused(TABLE_NOT_FOUND):
            look(catalog, name)


def exists_or_raise(catalog: Any, name: str, **fields: Any) -> None:
    """Call table_exists and let its error through."""
    catalog.table_exists(TableExistsRequest(id=[name], **fields))


def assert_whole(catalog: Any, name: str, table: pa.Table = ROWS) -> None:
    """Check that every way of looking finds the table, with these rows."""
    assert name in names(catalog)
    assert name in names(catalog, include_declared=False)
    assert exists(catalog, name)
    assert describe(catalog, name, check_declared=True).is_only_declared is False
    assert rows(catalog, name) == table.to_pylist()
