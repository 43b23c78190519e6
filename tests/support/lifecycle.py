"""Small things the lifecycle's tests share."""

from __future__ import annotations

import lance
import pyarrow as pa

import relance


def ipc(*values: int) -> bytes:
    """Return an Arrow stream of one column `x` with these values."""
    table = pa.table({"x": pa.array(values, pa.int64())})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue().to_pybytes())


def rows(catalog: relance.DirectoryNamespace, name: str, version: int | None = None) -> list[int]:
    """Return the values of a table, read by pylance through the catalog."""
    dataset = lance.dataset(namespace_client=catalog, table_id=[name], version=version)
    return sorted(dataset.to_table()["x"].to_pylist())


def tables(catalog: relance.DirectoryNamespace) -> list[str]:
    """Return the listed names."""
    return list(catalog.list_tables({"id": []}).tables)


def make(catalog: relance.DirectoryNamespace, name: str, *values: int) -> None:
    """Create a table."""
    catalog.create_table({"id": [name]}, ipc(*values))


def drop(catalog: relance.DirectoryNamespace, name: str, **context: str) -> dict[str, str]:
    """Drop a table and return the response's properties."""
    response = catalog.drop_table({"id": [name], "context": context})
    return dict(response.properties or {})
