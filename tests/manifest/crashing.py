"""A catalog that stops dead before a chosen write, as a killed process does."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from relance import DirectoryNamespace

_WRITES = {
    "storage": {"create", "replace", "delete", "delete_many", "delete_below"},
    "manifest": {"commit", "set_metadata"},
    "tables": {"stage", "commit", "discard"},
}


class Crash(BaseException):
    """The process is gone; no handler may go on from here."""


@dataclass(slots=True)
class Fuse:
    """Counts writes, and ends the process before one of them."""

    before: int
    burnt: int = 0

    def burn(self) -> None:
        if self.burnt == self.before:
            raise Crash(f"before write {self.before}")
        self.burnt += 1


class _Fused:
    """Hands everything on, and lets the fuse burn at each write."""

    def __init__(self, inner: Any, writes: set[str], fuse: Fuse) -> None:
        self._inner, self._writes, self._fuse = inner, writes, fuse

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._inner, name)
        if name not in self._writes:
            return found

        def write(*arguments: Any, **options: Any) -> Any:
            self._fuse.burn()
            return found(*arguments, **options)

        return write


def with_fuse(catalog: DirectoryNamespace, fuse: Fuse) -> DirectoryNamespace:
    """Make a catalog stop before the write that the fuse names."""
    context: Any = catalog._context
    catalog._context = replace(
        context,
        connection=replace(context.connection, storage=_Fused(context.storage, _WRITES["storage"], fuse)),
        manifest=_Fused(context.manifest, _WRITES["manifest"], fuse),
        tables=_Fused(context.tables, _WRITES["tables"], fuse),
    )
    return catalog


def crashes(catalog: DirectoryNamespace, act: Callable[[DirectoryNamespace], object], before: int) -> bool:
    """Do something with a catalog that stops before a write; tell whether it came to that write."""
    try:
        act(with_fuse(catalog, Fuse(before)))
    except Crash:
        return True
    return False
