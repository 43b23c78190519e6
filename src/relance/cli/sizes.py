"""Table sizes for listings; several tables are opened concurrently."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from relance.units import count, in_bytes, plural

if TYPE_CHECKING:
    from relance.namespace import DirectoryNamespace

SIZE_HEADINGS = ("ROWS", "SIZE", "FRAGMENTS", "VERSION")

_AT_ONCE = 8


@dataclass(frozen=True, slots=True)
class Size:
    """Size of one table; None if unknown."""

    rows: int | None = None
    bytes: int | None = None
    fragments: int | None = None
    version: int | None = None
    error: str | None = None
    """Why the table cannot be read."""

    def as_json(self) -> dict[str, Any]:
        """Return the size for `--json`."""
        return asdict(self)

    @property
    def cells(self) -> list[str]:
        if self.error is not None:
            return ["unreadable", "-", "-", "-"]
        return [count(self.rows), in_bytes(self.bytes), count(self.fragments), count(self.version)]

    @property
    def summary(self) -> str:
        return "unreadable" if self.error else f"{plural(self.rows or 0, 'row')}, {in_bytes(self.bytes)}"


def sizes_of(catalog: DirectoryNamespace, tables: Sequence[tuple[str, ...]]) -> dict[tuple[str, ...], Size]:
    """Return the size of each table; an unreadable table does not affect the others."""
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        return dict(zip(tables, pool.map(lambda each: _size(catalog, each), tables), strict=True))


def _size(catalog: DirectoryNamespace, table: tuple[str, ...]) -> Size:
    from relance.errors import RelanceError

    try:
        found = catalog.describe_table(
            {"id": list(table), "load_detailed_metadata": True, "vend_credentials": False}
        )
    except RelanceError as error:
        return Size(error=str(error))
    measured = found.metadata or {}
    return Size(
        rows=int(measured.get("total_rows", 0)),
        bytes=int(measured.get("total_files_size", 0)),
        fragments=int(measured.get("total_fragments", 0)),
        version=found.version,
    )
