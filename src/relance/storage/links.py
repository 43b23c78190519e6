"""Links below a folder that Lance is about to clean up: Lance follows them, and would delete behind them."""

from __future__ import annotations

from relance.errors import InvalidTableStateError
from relance.storage.protocol import ObjectStorage


def require_no_links(storage: ObjectStorage, directory: str) -> None:
    """Check that nothing below a folder is a link, a pipe or a socket. Object stores have none.

    Raises:
        InvalidTableStateError: something is.
    """
    pending = [directory] if storage.cheap_lookups else []
    while pending:
        folder = pending.pop()
        level = storage.list_level(folder)
        for name in level.odd:
            if storage.is_occupied(f"{folder}/{name}"):  # not just an empty folder
                raise InvalidTableStateError(
                    f"'{folder}/{name}' in {storage.name} is a link, a pipe or a socket, which Lance would "
                    "follow: nothing was cleaned up; remove it"
                )
        pending += [f"{folder}/{name}" for name in level.directories]
