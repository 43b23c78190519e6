"""A table with every kind of column, and calls of the operations inside a table."""

from __future__ import annotations

from typing import Any

import lance
import pyarrow as pa
from tests.support.lakes import QUIET
from tests.support.modes import V1, V2
from tests.support.roots import dataset

from relance import DirectoryNamespace

QUIET_MODES = {"V1": V1, "V2": {**V2, **QUIET}, "compatibility": QUIET}
"""Nothing runs in the background: these tests compare all files before and after."""

COUNT = 300


def _rows() -> pa.Table:
    numbers = pa.array([(row * 7 % 31) / 31 for row in range(COUNT * 8)], pa.float32())
    return pa.table(
        {
            "id": pa.array(range(COUNT), pa.int64()),
            "name": [f"name {row}" for row in range(COUNT)],
            "labels": [["odd" if row % 2 else "even"] for row in range(COUNT)],
            "place": [{"city": f"city {row % 5}"} for row in range(COUNT)],
            "vector": pa.FixedSizeListArray.from_arrays(numbers, 8),
        }
    )


ROWS = _rows()


def call(catalog: Any, operation: str, **fields: Any) -> Any:
    """Call an operation about the table `t`, or about another one if an id is given."""
    return getattr(catalog, operation)({"id": ["t"], **fields})


def opened(catalog: DirectoryNamespace, branch: str | None = None) -> lance.LanceDataset:
    """Open the table with pylance, at the head of main or of a branch."""
    found = dataset(catalog, "t")
    return found if branch is None else found.checkout_version((branch, None))


def heads(catalog: DirectoryNamespace) -> tuple[int, int]:
    """Return the latest versions of main and of the branch `work`."""
    return opened(catalog).version, opened(catalog, "work").version
