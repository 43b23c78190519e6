"""Table sizes for listings; several tables are opened concurrently."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from typing import Any

from relance.units import count, in_bytes, plural

Id = tuple[str, ...]

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


def sizes_of(measure: Callable[[Id], Size], tables: Sequence[Id]) -> dict[Id, Size]:
    """Return the size of each table; an unreadable table does not affect the others."""
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        return dict(zip(tables, pool.map(lambda each: _size(measure, each), tables), strict=True))


def _size(measure: Callable[[Id], Size], table: Id) -> Size:
    from relance.errors import RelanceError

    try:
        return measure(table)
    except RelanceError as error:
        return Size(error=str(error))
