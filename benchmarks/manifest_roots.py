"""Roots whose manifest has many entries, opened by either implementation, and calls on them to time."""

from __future__ import annotations

import json
import os
import random
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count, cycle
from zlib import crc32

import lance
import pyarrow as pa
from lance.namespace import DirectoryNamespace as NativeNamespace
from lance_namespace import (
    CreateNamespaceRequest,
    DeclareTableRequest,
    DescribeTableRequest,
    DropTableRequest,
    LanceNamespace,
    ListTablesRequest,
    TableExistsRequest,
)

import relance
from benchmarks.roots import temporary_root
from relance.catalog.manifest.schema import SCHEMA
from relance.locations import MANIFEST_DIRECTORY, RESERVED_FILE

V2 = {"manifest_enabled": "true", "dir_listing_enabled": "false"}

NAMESPACES = 100
LARGE = "ns_000"
"""The namespace that holds half of the entries; the rest is spread over the others."""
PAGE = 100
_DROPPABLE = 100
"""Tables that have a directory, which native wants to remove when it drops them."""
_LOOKED_AT = 2_000
"""So many that no lookup is repeated soon."""


def open_ours(root: str, options: Mapping[str, str] | None = None) -> relance.DirectoryNamespace:
    """Open a root with Relance."""
    return relance.DirectoryNamespace(clock=None, root=root, **V2, **storage_properties(options))


def open_native(root: str, options: Mapping[str, str] | None = None) -> LanceNamespace:
    """Open a root with the native namespace."""
    namespace: LanceNamespace = NativeNamespace(root=root, **V2, **storage_properties(options))
    return namespace


def storage_properties(options: Mapping[str, str] | None) -> dict[str, str]:
    """Return storage options as the properties both implementations are opened with."""
    return {f"storage.{key}": value for key, value in (options or {}).items()}


def table_ids(entries: int) -> Iterator[tuple[str, str]]:
    """Yield the namespace and the name of each table of a manifest with so many entries."""
    large = entries // 2
    for number in range(entries - NAMESPACES):
        namespace = LARGE if number < large else f"ns_{1 + number % (NAMESPACES - 1):03d}"
        yield namespace, f"table_{number:07d}"


def location_of(object_id: str) -> str:
    """Return the directory of a table, named as both implementations name it."""
    return f"{crc32(object_id.encode()):08x}_{object_id}"


def manifest_rows(entries: int) -> pa.Table:
    """Return the rows of a manifest with so many entries."""
    namespaces = [f"ns_{number:03d}" for number in range(NAMESPACES)]
    tables = [f"{namespace}${name}" for namespace, name in table_ids(entries)]
    return rows_of(dict.fromkeys(namespaces) | {each: location_of(each) for each in tables})


def rows_of(locations: Mapping[str, str | None]) -> pa.Table:
    """Return the rows of tables by id, and of namespaces, which have no location; some with properties."""
    properties = json.dumps({"owner": "bench"})
    columns = {
        "object_id": list(locations),
        "object_type": ["table" if location else "namespace" for location in locations.values()],
        "location": list(locations.values()),
        "metadata": [None if number % 3 else properties for number in range(len(locations))],
        "base_objects": [None] * len(locations),
    }
    return pa.table([pa.array(columns[each.name], each.type) for each in SCHEMA], schema=SCHEMA)


def write_manifest(root: str, rows: pa.Table, options: Mapping[str, str] | None = None) -> None:
    """Write the whole manifest as one version, as if another client had."""
    uri = f"{root}/{MANIFEST_DIRECTORY}"
    lance.write_dataset(rows, uri, storage_options=dict(options or {}), data_storage_version="2.2")


def droppable(entries: int) -> list[tuple[str, str]]:
    """Return the tables that have a directory, in random order."""
    ids = list(table_ids(entries))
    return random.Random(4).sample(ids, _DROPPABLE)


@dataclass(slots=True)
class Calls:
    """The operations of one opened root; each call is about another object."""

    namespace: LanceNamespace
    entries: int
    root: str
    _new: Iterator[int] = field(default_factory=count)
    _to_drop: list[tuple[str, str]] = field(default_factory=list)
    _to_look_at: Iterator[tuple[str, str]] = field(default_factory=lambda: iter(()))

    def __post_init__(self) -> None:
        self._to_drop = droppable(self.entries)
        kept = sorted(set(table_ids(self.entries)) - set(self._to_drop))
        self._to_look_at = cycle(random.Random(5).sample(kept, min(_LOOKED_AT, len(kept))))

    def create_namespace(self) -> None:
        self.namespace.create_namespace(CreateNamespaceRequest(id=["ns_001", f"child_{next(self._new)}"]))

    def declare_table(self) -> None:
        self.namespace.declare_table(DeclareTableRequest(id=["ns_002", f"declared_{next(self._new)}"]))

    def drop_table(self) -> None:
        """Drop one of the tables the manifest was written with."""
        self.namespace.drop_table(DropTableRequest(id=list(self._to_drop.pop())))

    def describe_table(self) -> None:
        self.namespace.describe_table(DescribeTableRequest(id=list(next(self._to_look_at))))

    def table_exists(self) -> None:
        self.namespace.table_exists(TableExistsRequest(id=list(next(self._to_look_at))))

    def first_page(self) -> None:
        list_page(self.namespace, None)

    def middle_page(self) -> None:
        list_page(self.namespace, f"table_{self.entries // 4:07d}")


def list_page(namespace: LanceNamespace, token: str | None) -> None:
    """List a page of the large namespace.

    Raises:
        RuntimeError: it is not a full one, so that its time would mean nothing.
    """
    response = namespace.list_tables(ListTablesRequest(id=[LARGE], limit=PAGE, page_token=token))
    if len(response.tables) != PAGE:
        raise RuntimeError(f"a page of {len(response.tables)} instead of {PAGE}")


@contextmanager
def measured_roots(entries: int) -> Iterator[tuple[Calls, Calls]]:
    """Write a manifest and a copy of it; yield our calls on the one and native's on the other."""
    with temporary_root() as folder:
        ours, native = f"{folder}/ours", f"{folder}/native"
        os.mkdir(ours)
        write_manifest(ours, manifest_rows(entries))
        for namespace, name in droppable(entries):
            directory = f"{ours}/{location_of(f'{namespace}${name}')}"
            os.mkdir(directory)
            with open(f"{directory}/{RESERVED_FILE}", "wb") as file:
                file.write(b"reserved")
        shutil.copytree(ours, native)
        catalog = open_ours(ours)
        catalog.create_namespace(CreateNamespaceRequest(id=["warm_up"]))
        catalog.maintain_manifest()
        yield Calls(catalog, entries, ours), Calls(open_native(native), entries, native)
