"""Progress on standard error: a bar or a count on a terminal, nothing elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from relance.catalog.repair import MigrationProgress
    from relance.jobs import Progress

_SECONDS = 0.2


def job_bar() -> Callable[[Progress], None] | None:
    """Return the progress callback of a maintenance job."""
    if not sys.stderr.isatty():
        return None
    from relance.jobs import Display

    return Display(sys.stderr)


def migration_bar() -> Callable[[MigrationProgress], None] | None:
    """Return the progress callback of a migration."""
    if not sys.stderr.isatty():
        return None

    def show(progress: MigrationProgress) -> None:
        sys.stderr.write(f"\rmigrate: {progress.done} of {progress.total} tables")
        sys.stderr.write("\n" if progress.done == progress.total else "")
        sys.stderr.flush()

    return show


@contextmanager
def rows_bar(what: str) -> Iterator[Callable[[int], None] | None]:
    """Yield a callback that shows the number of rows; the line is erased when the block ends."""
    if not sys.stderr.isatty():
        yield None
        return
    shown, length = time.monotonic(), 0

    def show(rows: int) -> None:
        nonlocal shown, length
        if time.monotonic() - shown >= _SECONDS:
            text = f"{what}: {rows:,} rows"
            shown, length = time.monotonic(), len(text)
            sys.stderr.write(f"\r{text}")
            sys.stderr.flush()

    try:
        yield show
    finally:
        sys.stderr.write("\r" + " " * length + "\r" if length else "")
        sys.stderr.flush()
