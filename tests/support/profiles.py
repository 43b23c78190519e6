"""Which tests `make test` leaves to `make test-deep`: the costly ones.

A test that costs more than about two seconds carries `@deep`. Parameters that run a test once more on another
store are deep too; one small matrix of all verbs on S3 stays in the everyday profile (tests/net).
"""

from __future__ import annotations

import pytest

deep = pytest.mark.deep

MEMORY = pytest.param("memory", marks=deep)
MINIO = pytest.param("minio", marks=deep)
MOTO = pytest.param("moto", marks=deep)
"""The stores other than the local disk, as parameters of a root."""

SLOW_FIXTURES = {"azurite_server", "minio_server", "running_cluster", "tab"}
"""What takes seconds to start: a further store, a Spark cluster, a browser."""


def is_costly(item: pytest.Item) -> bool:
    """Tell whether a test is deep because of the fixtures it uses."""
    return not SLOW_FIXTURES.isdisjoint(getattr(item, "fixturenames", ()))
