"""Leave a directory to a row of the manifest: from then on the marker only hides the old name."""

from __future__ import annotations

from contextlib import suppress

from relance.errors import ConcurrentModificationError, KeyExistsError
from relance.lifecycle import moves
from relance.lifecycle.marker_store import StoredMarker, new_nonce, read_marker, stored_state
from relance.lifecycle.states import LEASED, Action, State, is_allowed
from relance.locations import DEREGISTERED_FILE, table_file
from relance.operations.context import Context
from relance.operations.directory.claims import busy, swap
from relance.storage.probe import require_replace

_ATTEMPTS = 20


def move_away(context: Context, name: str) -> None:
    """Hide the directory of this name for good, whatever the marker says of it now.

    Raises:
        ConcurrentModificationError: another client holds the marker.
    """
    for _ in range(_ATTEMPTS):
        stored = read_marker(context.storage, name)
        state = stored_state(stored)
        if state is State.MOVED:
            _tell_others(context, name)
            return
        if not is_allowed(state, Action.MOVE):
            assert stored is not None  # an absent marker can be moved
            if state in LEASED:
                raise busy(name, stored.marker)
            break
        with suppress(ConcurrentModificationError):
            swap_for_moved(context, name, stored)
            return
    raise ConcurrentModificationError(f"table id '{name}' keeps changing: try again")


def swap_for_moved(context: Context, name: str, stored: StoredMarker | None, *, undid: str = "") -> None:
    """Do the same over exactly the marker that was read.

    Raises:
        ConcurrentModificationError: another client was first.
    """
    if stored is not None:
        require_replace(context.storage, to_do="moving a table away from the directory of its name")
    marker = stored.marker if stored is not None else None
    moved = moves.move(marker, new_nonce(), at=context.clock.now(), undid=undid)
    swap(context, name, moved, over=stored)
    _tell_others(context, name)


def _tell_others(context: Context, name: str) -> None:
    # The marker decides. This file is for clients that know only the spec's own one.
    with suppress(KeyExistsError):
        context.storage.create(table_file(name, DEREGISTERED_FILE), b"deregistered")
