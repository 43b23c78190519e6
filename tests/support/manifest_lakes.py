"""What the tests of catalogs with a manifest share: roots in both modes, and short calls by path.

An id is written as a path here, `sales/orders`, because a slash cannot be in a name; `""` is the root.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
from lance_namespace.errors import NamespaceNotFoundError, TableNotFoundError
from tests.support.roots import refused, snapshot

from relance import DirectoryNamespace
from relance.testing.clock import ManualClock

__all__ = ["refused", "snapshot"]

NAMESPACE_NOT_FOUND = 1
NAMESPACE_EXISTS = 2
NAMESPACE_NOT_EMPTY = 3
TABLE_NOT_FOUND = 4
TABLE_EXISTS = 5
INVALID_INPUT = 13
CONCURRENT_MODIFICATION = 14
INVALID_TABLE_STATE = 19

V1 = {"manifest_enabled": "false"}
V2 = {"dir_listing_enabled": "false"}
COMPATIBILITY: dict[str, str] = {}
MODES = {"V2": V2, "compatibility": COMPATIBILITY}

IMPLEMENTATION = "relance.DirectoryNamespace"


@dataclass(frozen=True, slots=True)
class Lake:
    """A root, the mode it is opened in, and a clock that the test moves."""

    properties: dict[str, str]
    mode: dict[str, str]
    clock: ManualClock
    folder: Path = field(default_factory=lambda: Path(os.devnull))
    """Where it lies, if on local disk."""

    @property
    def is_v2(self) -> bool:
        return self.mode == V2

    def open(self, mode: dict[str, str] | None = None, **more: str) -> DirectoryNamespace:
        """Open the catalog, in another mode if one is given."""
        # Upkeep in the background would make what a test counts depend on the moment.
        quiet = {"manifest_upkeep": "false"}
        chosen = self.mode if mode is None else mode
        return DirectoryNamespace(clock=self.clock, **{**self.properties, **quiet, **chosen, **more})

    def files(self) -> dict[str, bytes]:
        """Return everything in the root: the bytes of each file by its key; folders end in a slash."""
        return snapshot(self.folder)

    def table_files(self) -> dict[str, bytes]:
        """Return everything but the manifest and what the store keeps for itself."""
        own = ("__manifest/", ".relance-local/")
        return {key: body for key, body in self.files().items() if not key.startswith(own)}

    def directories(self) -> set[str]:
        """Return the names of the directories in the root that are neither the manifest's nor the store's."""
        if not self.folder.exists():
            return set()
        own = {"__manifest", ".relance-local"}
        return {each.name for each in self.folder.iterdir() if each.is_dir()} - own

    def manifest_rows(self) -> dict[str, dict[str, Any]]:
        """Return the rows of the manifest by id, read by Lance alone."""
        rows = lance.dataset(str(self.folder / "__manifest")).to_table().to_pylist()
        return {row["object_id"]: row for row in rows}


def ident(path: str) -> list[str]:
    """Return the id that a path stands for."""
    return path.split("/") if path else []


def ipc(*values: int) -> bytes:
    """Return an Arrow stream of one column `x` with these values."""
    table = numbers(*values)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue().to_pybytes())


def numbers(*values: int) -> pa.Table:
    """Return a table of one column `x`."""
    return pa.table({"x": pa.array(values, pa.int64())})


def spaces(catalog: DirectoryNamespace, *paths: str) -> None:
    """Create namespaces."""
    for path in paths:
        catalog.create_namespace({"id": ident(path)})


def make(catalog: DirectoryNamespace, path: str, *values: int, **fields: Any) -> Any:
    """Create a table with these values."""
    return catalog.create_table({"id": ident(path), **fields}, ipc(*(values or (1, 2, 3))))


def declare(catalog: DirectoryNamespace, path: str, **fields: Any) -> Any:
    """Declare a table."""
    return catalog.declare_table({"id": ident(path), **fields})


def describe(catalog: DirectoryNamespace, path: str, **fields: Any) -> Any:
    """Describe a table."""
    return catalog.describe_table({"id": ident(path), **fields})


def directory(lake: Lake, path: str, catalog: DirectoryNamespace | None = None) -> str:
    """Return the directory of a table, relative to the root on local disk."""
    location = str(describe(catalog or lake.open(), path).location)
    return os.path.relpath(location, lake.folder)


def drop(catalog: DirectoryNamespace, path: str, **context: str) -> dict[str, str]:
    """Drop a table and return the properties of the answer."""
    return dict(catalog.drop_table({"id": ident(path), "context": context}).properties or {})


def rename(catalog: DirectoryNamespace, old: str, new: str) -> None:
    """Rename a table."""
    *namespace, name = ident(new)
    catalog.rename_table({"id": ident(old), "new_namespace_id": namespace, "new_table_name": name})


def register(catalog: DirectoryNamespace, path: str, location: str, **fields: Any) -> Any:
    """Register a directory as a table."""
    return catalog.register_table({"id": ident(path), "location": location, **fields})


def deregister(catalog: DirectoryNamespace, path: str) -> Any:
    """Deregister a table."""
    return catalog.deregister_table({"id": ident(path)})


def tables(catalog: DirectoryNamespace, path: str = "", **fields: Any) -> list[str]:
    """Return the names of a namespace's tables."""
    return list(catalog.list_tables({"id": ident(path), **fields}).tables)


def all_tables(catalog: DirectoryNamespace, **fields: Any) -> list[str]:
    """Return the ids of all tables, as paths."""
    return [each.replace("$", "/") for each in catalog.list_all_tables(fields).tables]


def namespaces(catalog: DirectoryNamespace, path: str = "", **fields: Any) -> list[str]:
    """Return the names of a namespace's children."""
    return list(catalog.list_namespaces({"id": ident(path), **fields}).namespaces)


def exists(catalog: DirectoryNamespace, path: str) -> bool:
    """Return whether there is such a table."""
    try:
        catalog.table_exists({"id": ident(path)})
    except TableNotFoundError:
        return False
    return True


def space_exists(catalog: DirectoryNamespace, path: str) -> bool:
    """Return whether there is such a namespace."""
    try:
        catalog.namespace_exists({"id": ident(path)})
    except NamespaceNotFoundError:
        return False
    return True


def rows(catalog: DirectoryNamespace, path: str, version: int | None = None) -> list[int]:
    """Return the values of a table, read by pylance through the catalog."""
    dataset = lance.dataset(namespace_client=catalog, table_id=ident(path), version=version)
    return sorted(dataset.to_table()["x"].to_pylist())


def write(catalog: DirectoryNamespace, path: str, *values: int, mode: str = "create") -> None:
    """Write a table with pylance, which declares or describes it first."""
    lance.write_dataset(numbers(*values), namespace_client=catalog, table_id=ident(path), mode=mode)


def generations(catalog: DirectoryNamespace, path: str) -> list[str]:
    """Return the deletion ids of a table's dropped generations, oldest first."""
    wanted = tuple(ident(path))
    return [each.deletion_id for each in catalog.list_dropped_tables() if each.id == wanted]


def assert_gone(catalog: DirectoryNamespace, path: str) -> None:
    """Check that no way of looking finds the table."""
    namespace, _, name = path.rpartition("/")
    assert name not in tables(catalog, namespace)
    assert name not in tables(catalog, namespace, include_declared=False)
    assert path not in all_tables(catalog)
    assert not exists(catalog, path)
    for look in (catalog.describe_table, catalog.list_table_versions, catalog.describe_table_version):
        with refused(TABLE_NOT_FOUND):
            look({"id": ident(path)})


def assert_whole(catalog: DirectoryNamespace, path: str, *values: int) -> None:
    """Check that every way of looking finds the table, with these values."""
    namespace, _, name = path.rpartition("/")
    assert name in tables(catalog, namespace)
    assert name in tables(catalog, namespace, include_declared=False)
    assert path in all_tables(catalog)
    assert exists(catalog, path)
    described = describe(catalog, path, check_declared=True)
    assert (described.namespace, described.table) == (ident(namespace), name)
    assert described.is_only_declared is False
    assert rows(catalog, path) == sorted(values)
