"""A table with text and vectors, and short calls of the operations on rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import lance
import pyarrow as pa
from lance_namespace import DescribeTableRequest
from tests.support.roots import LocalPlace, ipc

from relance import DirectoryNamespace

SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        ("name", pa.string()),
        ("vector", pa.list_(pa.float32(), 2)),
    ]
)


def quiet_settings(mode: Mapping[str, str]) -> dict[str, str]:
    """Return what turns upkeep in the background off, where there is any."""
    return {} if mode.get("manifest_enabled") == "false" else {"manifest_upkeep": "false"}


def quiet(place: LocalPlace, **properties: str) -> DirectoryNamespace:
    """Open the catalog without upkeep in the background, so that files can be compared."""
    return place.open(**quiet_settings(place.mode), **properties)


def people(ids: Sequence[int]) -> pa.Table:
    """Return rows: the name is `word<id> common`, the vector `[id, 0]`."""
    columns = {
        "id": pa.array(ids, pa.int64()),
        "name": pa.array([f"word{each} common" for each in ids], pa.string()),
        "vector": pa.array([[float(each), 0.0] for each in ids], SCHEMA.field("vector").type),
    }
    return pa.table(columns, schema=SCHEMA)


def make(catalog: Any, ids: Sequence[int] = range(5), name: str = "t") -> None:
    """Create a table with these rows."""
    catalog.create_table({"id": [name]}, ipc(people(ids)))


def add(catalog: Any, rows: pa.Table, name: str = "t", **fields: Any) -> Any:
    """Insert rows."""
    return catalog.insert_into_table({"id": [name], **fields}, ipc(rows))


def count(catalog: Any, name: str = "t", **fields: Any) -> int:
    """Count rows."""
    return int(catalog.count_table_rows({"id": [name], **fields}).count)


def query(catalog: Any, name: str = "t", **fields: Any) -> pa.Table:
    """Run a query and read its answer."""
    request = {"id": [name], "vector": {}, "k": 0, **fields}
    return pa.ipc.open_file(catalog.query_table(request)).read_all()


def ids(catalog: Any, name: str = "t", **fields: Any) -> list[int]:
    """Return the ids of the rows a query finds, in its order."""
    found: list[int] = query(catalog, name, columns={"column_names": ["id"]}, **fields)["id"].to_pylist()
    return found


def opened(catalog: Any, name: str = "t", **pinned: Any) -> Any:
    """Open the table with pylance alone."""
    return lance.dataset(catalog.describe_table(DescribeTableRequest(id=[name])).location, **pinned)
