"""Roots to measure on: many small tables on local disk and in a bucket, opened by either implementation."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from time import perf_counter
from typing import Any

import lance
import pyarrow as pa
from lance_namespace import LanceNamespace, ListTablesRequest, connect
from tests.support.servers import S3Server

MANIFEST = "_versions/18446744073709551614.manifest"
"""Version 1 as Lance names it; a listing never opens it."""

DATA_FILE = "data/part-0.lance"

V1 = {"manifest_enabled": "false", "dir_listing_enabled": "true"}
"""The directory catalog, which native calls by these properties."""

ROOT_FLAG = b'{"format": 2, "nested_markers": "none"}'
"""What a root that Relance flagged says of itself."""

_PARALLEL_PUTS = 8

_TRIED = 100


def open_ours(root: str, options: Mapping[str, str] | None = None) -> LanceNamespace:
    """Open a root with Relance."""
    return _open("relance.DirectoryNamespace", root, options or {})


def open_native(root: str, options: Mapping[str, str] | None = None) -> LanceNamespace:
    """Open a root with the native namespace."""
    return _open("lance.namespace.DirectoryNamespace", root, options or {})


def _open(implementation: str, root: str, options: Mapping[str, str]) -> LanceNamespace:
    storage = {f"storage.{key}": value for key, value in options.items()}
    return connect(implementation, {"root": root, **V1, **storage})


def list_names(namespace: LanceNamespace, *, include_declared: bool = True) -> list[str]:
    """Return the names of all tables at the root."""
    response = namespace.list_tables(ListTablesRequest(id=[], include_declared=include_declared))
    return list(response.tables)


def check_listing(namespace: LanceNamespace, tables: int) -> None:
    """Check that a namespace lists what the root was filled with.

    Raises:
        RuntimeError: it lists something else, so that its time would mean nothing.
    """
    if sorted(list_names(namespace)) != [table_name(number) for number in range(tables)]:
        raise RuntimeError(f"{namespace.namespace_id()} does not list the {tables} tables of its root")


def table_name(number: int) -> str:
    """Return the name of one of the tables; their order is that of their numbers."""
    return f"table_{number:06d}"


@contextmanager
def temporary_root() -> Iterator[str]:
    """Make an empty folder for the duration of the block."""
    with tempfile.TemporaryDirectory(prefix="relance-bench-") as folder:
        yield folder


def seconds_to_make_a_file(folder: str) -> float:
    """Return how long it takes to make a file in a folder.

    To make one, ext4 without a journal looks at each that was removed near it within the last six minutes.
    Who measures that measures what was removed before.
    """
    os.makedirs(folder, exist_ok=True)
    start = perf_counter()
    for number in range(_TRIED):
        # They stay there: to remove them would do what is looked for.
        os.close(os.open(f"{folder}/tried-{number}", os.O_CREAT | os.O_WRONLY))
    return (perf_counter() - start) / _TRIED


def keep_apart(folder: str) -> None:
    """Have a disk, if it can, keep folders that are made in this one away from each other."""
    with suppress(OSError):
        subprocess.run(["chattr", "+T", folder], check=False, capture_output=True)


def fill_folder(root: str, tables: int, *, files: tuple[str, ...] = (MANIFEST, DATA_FILE)) -> None:
    """Make tables out of empty files, each in a folder of its own."""
    for number in range(tables):
        directory = f"{root}/{table_name(number)}.lance"
        os.mkdir(directory)
        for file in files:
            os.mkdir(f"{directory}/{os.path.dirname(file)}")
            os.close(os.open(f"{directory}/{file}", os.O_CREAT | os.O_WRONLY))


def copy_tables(root: str, tables: int) -> None:
    """Make small tables that can be opened: one, and copies of links, as Lance never changes a file."""
    with temporary_root() as model:
        lance.write_dataset(pa.table({"a": [1]}), f"{model}/t.lance")
        for number in range(tables):
            shutil.copytree(f"{model}/t.lance", f"{root}/{table_name(number)}.lance", copy_function=os.link)


def fill_bucket(server: S3Server, bucket: str, prefix: str, tables: int) -> None:
    """Make tables out of tiny objects below a prefix."""
    client: Any = server.client()

    def put_table(number: int) -> None:
        for file in (MANIFEST, DATA_FILE):
            key = f"{prefix}/{table_name(number)}.lance/{file}"
            client.put_object(Bucket=bucket, Key=key, Body=b"x")

    with ThreadPoolExecutor(_PARALLEL_PUTS) as pool:
        list(pool.map(put_table, range(tables)))
