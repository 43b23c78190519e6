"""How far a stream has read a table, and the form in which Spark keeps it. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from relance.errors import InvalidInputError


@dataclass(frozen=True, slots=True)
class Position:
    """A point in the history of one table: all up to it was read."""

    location: str
    """The directory of the table, so that another table of the same name is noticed."""
    version: int
    transaction: str
    """What made the version: a table that was purged and created again counts from 1 in the same place."""
    fragments: int | None = None
    """So many fragments of the version were read as the first state; None: all of the version was."""

    def whole(self) -> Position:
        """Return the position after the last fragment of the first state."""
        return replace(self, fragments=None)


START: dict[str, Any] = {"version": -1}
"""The offset before anything was read.

It says nothing else because Spark does not keep it: a query that is restarted before its first batch was
done asks for it again, and must not get another one.
"""


def to_offset(position: Position) -> dict[str, Any]:
    """Return the position as Spark keeps it."""
    offset = {
        "version": position.version,
        "location": position.location,
        "transaction": position.transaction,
    }
    return offset if position.fragments is None else {**offset, "fragments": position.fragments}


def from_offset(offset: dict[str, Any]) -> Position | None:
    """Return the position that an offset stands for; None is the start.

    Raises:
        InvalidInputError: it was not made here.
    """
    if offset == START:
        return None
    try:
        return Position(
            location=str(offset["location"]),
            version=int(offset["version"]),
            transaction=str(offset["transaction"]),
            fragments=int(offset["fragments"]) if "fragments" in offset else None,
        )
    except (KeyError, TypeError, ValueError) as cause:
        raise InvalidInputError(
            f"the checkpoint has an offset from another source, {offset!r}; start with a new checkpoint"
        ) from cause
