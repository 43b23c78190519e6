"""lancedb on a catalog that records the queries it is handed."""

from __future__ import annotations

from typing import Any, ClassVar

import lancedb
import pyarrow as pa
from tests.support.roots import LocalPlace

from relance import DirectoryNamespace

SPY = f"{__name__}.Recording"


class Recording(DirectoryNamespace):
    """A catalog that remembers the queries it was handed."""

    queries: ClassVar[list[Any]] = []

    def query_table(self, request: Any) -> Any:
        Recording.queries.append(request)
        return super().query_table(request)


def connect(place: LocalPlace) -> Any:
    """Open a place with lancedb, which hands its queries to the catalog."""
    return lancedb.connect_namespace(
        SPY, place.properties, namespace_client_pushdown_operations=["QueryTable"]
    )


def ids_in(rows: pa.Table) -> list[int]:
    """Return the ids of rows, in their order."""
    listed: list[int] = rows["id"].to_pylist()
    return listed
