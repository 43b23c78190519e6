"""The catalog: tables, namespaces and their lifecycle, over an arbiter. Catalog is the seam upwards."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from relance.catalog.catalog import Catalog

__all__ = ["Catalog"]


def __getattr__(name: str) -> object:
    if name == "Catalog":
        from relance.catalog.catalog import Catalog  # states and layout do not need all of it

        return Catalog
    raise AttributeError(name)
