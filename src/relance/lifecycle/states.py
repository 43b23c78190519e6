"""States of a marker, the actions on it, and one table of moves. Pure. Its bytes are in marker."""

from __future__ import annotations

from enum import StrEnum


class State(StrEnum):
    """What the marker says of the table beside it."""

    ABSENT = "absent"
    """There is no marker: the name was never dropped, or long ago. Never written."""
    CLEARED = "cleared"
    """Not hidden. The marker stays, so that nobody mistakes the name for an untouched one."""
    DELETED = "deleted"
    """Dropped; can be undropped until a purge claims it."""
    PURGING = "purging"
    """Files are being deleted; only the holder of the claim may go on, or a later one after its lease."""
    PURGED = "purged"
    """Files are gone. The tombstone stays: a create that began before the drop may still commit."""
    REVIVING = "reviving"
    """A create over a dropped or purged name is writing; only the holder of the claim may finish."""
    DEREGISTERED = "deregistered"
    """Hidden until registered again; never expires."""
    WRITING = "writing"
    """An overwrite of a visible table is being committed; hides nothing. A drop may overrule it."""
    SWEEPING = "sweeping"
    """A marker that is no longer needed is about to be removed; it counts as what it was before."""
    MOVED = "moved"
    """The table in this directory is a row's now, under whatever id the manifest says; hidden here."""


class Action(StrEnum):
    """What can be done to a name."""

    DROP = "drop"
    UNDROP = "undrop"
    CLAIM_PURGE = "claim purge"
    FINISH_PURGE = "finish purge"
    CLAIM_REVIVAL = "claim revival"
    FINISH_REVIVAL = "finish revival"
    RECOVER = "recover"
    DEREGISTER = "deregister"
    REGISTER = "register"
    CLAIM_SWEEP = "claim sweep"
    CLAIM_WRITE = "claim write"
    FINISH_WRITE = "finish write"
    MOVE = "move"


BEFORE = None
"""In the table of moves: back to the state the claim was taken from."""

TRANSITIONS: dict[tuple[State, Action], State | None] = {
    (State.ABSENT, Action.DROP): State.DELETED,
    (State.CLEARED, Action.DROP): State.DELETED,
    (State.DEREGISTERED, Action.DROP): State.DELETED,
    (State.DELETED, Action.UNDROP): BEFORE,
    (State.DELETED, Action.CLAIM_PURGE): State.PURGING,
    (State.DEREGISTERED, Action.CLAIM_PURGE): State.PURGING,
    # Left-overs below a tombstone, of a create that committed after the purge.
    (State.PURGED, Action.CLAIM_PURGE): State.PURGING,
    # Another holder's claim, or one's own to lengthen the lease.
    (State.PURGING, Action.CLAIM_PURGE): State.PURGING,
    (State.PURGING, Action.FINISH_PURGE): State.PURGED,
    (State.DELETED, Action.CLAIM_REVIVAL): State.REVIVING,
    (State.PURGED, Action.CLAIM_REVIVAL): State.REVIVING,
    (State.REVIVING, Action.CLAIM_REVIVAL): State.REVIVING,
    (State.REVIVING, Action.FINISH_REVIVAL): State.CLEARED,
    (State.REVIVING, Action.RECOVER): BEFORE,
    (State.SWEEPING, Action.RECOVER): BEFORE,
    (State.ABSENT, Action.DEREGISTER): State.DEREGISTERED,
    (State.CLEARED, Action.DEREGISTER): State.DEREGISTERED,
    (State.DEREGISTERED, Action.REGISTER): State.CLEARED,
    (State.ABSENT, Action.CLAIM_WRITE): State.WRITING,
    (State.CLEARED, Action.CLAIM_WRITE): State.WRITING,
    (State.WRITING, Action.FINISH_WRITE): State.CLEARED,
    (State.WRITING, Action.RECOVER): State.CLEARED,
    (State.WRITING, Action.DROP): State.DELETED,
    (State.CLEARED, Action.CLAIM_SWEEP): State.SWEEPING,
    (State.PURGED, Action.CLAIM_SWEEP): State.SWEEPING,
    (State.ABSENT, Action.MOVE): State.MOVED,
    (State.CLEARED, Action.MOVE): State.MOVED,
    (State.WRITING, Action.MOVE): State.MOVED,
    (State.DEREGISTERED, Action.MOVE): State.MOVED,
    (State.DELETED, Action.MOVE): State.MOVED,
    (State.MOVED, Action.CLAIM_SWEEP): State.SWEEPING,
}
"""Every move there is; a pair that is not here is refused."""

VISIBLE = frozenset({State.ABSENT, State.CLEARED, State.WRITING})
"""States in which the marker hides nothing."""

LEASED = frozenset({State.PURGING, State.REVIVING, State.SWEEPING, State.WRITING})
"""States that belong to a holder, until its lease is over."""


def is_allowed(state: State, action: Action) -> bool:
    """Tell whether `action` may be done in `state`."""
    return (state, action) in TRANSITIONS


def target(state: State, action: Action, *, before: State | None) -> State:
    """Return the state after `action`; `before` is what a claim was taken from.

    Raises:
        KeyError: the move is not in the table.
    """
    found = TRANSITIONS[(state, action)]
    if found is not None:
        return found
    return before or State.CLEARED
