"""The states a marker can be in. Pure. Its bytes are in marker."""

from __future__ import annotations

from enum import StrEnum


class State(StrEnum):
    """What the marker says of the table beside it; no marker at all means the same as cleared."""

    CLEARED = "cleared"
    """Not hidden; the marker stays so that nobody mistakes the name for an untouched one."""
    DEREGISTERED = "deregistered"
    """Hidden until registered again; never expires."""


HIDDEN = frozenset(State) - {State.CLEARED}
"""States in which the table does not exist for readers."""
