"""Short calls on a catalog, with ids written as paths, and checks of what a catalog shows.

A path is `sales/orders`, because a name cannot contain a slash; `""` is the root. The calls of
tests.support.roots take a name instead, and work on native catalogs as well.
"""

from __future__ import annotations

import os
from typing import Any

import lance
from lance_namespace.errors import NamespaceNotFoundError, TableNotFoundError
from tests.support.codes import NAMESPACE_NOT_FOUND, TABLE_NOT_FOUND
from tests.support.lakes import Lake
from tests.support.roots import numbers, refused, stream_of

from relance import DirectoryNamespace

IMPLEMENTATION = "relance.DirectoryNamespace"


def ident(path: str) -> list[str]:
    """Return the id that a path stands for."""
    return path.split("/") if path else []


def spaces(catalog: DirectoryNamespace, *paths: str) -> None:
    """Create namespaces."""
    for path in paths:
        catalog.create_namespace({"id": ident(path)})


def make(catalog: DirectoryNamespace, path: str, *values: int, **fields: Any) -> Any:
    """Create a table with these values."""
    return catalog.create_table({"id": ident(path), **fields}, stream_of(*(values or (1, 2, 3))))


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
    except (TableNotFoundError, NamespaceNotFoundError):
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
    with refused(TABLE_NOT_FOUND if space_exists(catalog, namespace) else NAMESPACE_NOT_FOUND):
        catalog.describe_table({"id": ident(path)})
    for look in (catalog.list_table_versions, catalog.describe_table_version):
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
