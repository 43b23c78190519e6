"""Reading the tags and branches of a table while others delete theirs. Their names are in refs."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from relance.errors import InvalidTableStateError
from relance.storage.failures import first_line

_GONE = re.compile(r"Not found: .*_refs/")
_TRIES = 5


def is_gone(cause: Exception) -> bool:
    """Tell whether Lance could not find the file of a tag or branch, or says that there is none."""
    return "does not exist" in str(cause) or _GONE.search(str(cause)) is not None


def read_refs(listing: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """Return what `listing` lists; Lance fails when a file goes between its listing and its reading.

    Raises:
        InvalidTableStateError: it fails every time, so a file cannot be read at all.
    """
    for _ in range(_TRIES):
        try:
            return listing()
        except (OSError, ValueError) as cause:
            if _GONE.search(str(cause)) is None:
                raise
            last = cause
    raise InvalidTableStateError(f"cannot read tags or branches: {first_line(str(last))}") from last
