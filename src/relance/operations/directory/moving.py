"""Leave a directory to a row of the manifest: from then on the marker only hides the old name."""

from __future__ import annotations

from contextlib import suppress

from relance.errors import ConcurrentModificationError, KeyExistsError
from relance.lifecycle import moves
from relance.lifecycle.marker_store import StoredMarker, new_nonce, read_marker, stored_state
from relance.lifecycle.states import LEASED, VISIBLE, Action, State, is_allowed
from relance.listing.lookup import look_up
from relance.locations import DEREGISTERED_FILE, table_file
from relance.operations.context import Context
from relance.operations.directory.claims import Swap, busy, swap
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
            tell_others(context, name)
            return
        if not is_allowed(state, Action.MOVE):
            assert stored is not None  # an absent marker can be moved
            if state in LEASED:
                raise busy(name, stored.marker)
            break
        with suppress(ConcurrentModificationError):
            swap_for_moved(context, name, stored)
            return
    raise ConcurrentModificationError(f"too many concurrent changes to table id '{name}'; retry")


def leave_to_row(context: Context, name: str) -> None:
    """Leave the directory of a deregistered table to the row that is about to lead to it.

    Raises:
        ConcurrentModificationError: it is not deregistered any more.
    """
    facts = look_up(context.storage, name)
    if facts.state is State.MOVED:
        tell_others(context, name)
    elif facts.state is State.DEREGISTERED or (facts.deregistered_inside and facts.state in VISIBLE):
        swap_for_moved(context, name, facts.marker)
    else:
        raise ConcurrentModificationError(f"table id '{name}' was changed by another client")


def swap_for_moved(
    context: Context, name: str, stored: StoredMarker | None, *, undid: str = "", swap: Swap = swap
) -> None:
    """Do the same over exactly the marker that was read.

    Raises:
        ConcurrentModificationError: another client was first.
    """
    if stored is not None:
        require_replace(context.storage, to_do="moving a table out of its root directory")
    marker = stored.marker if stored is not None else None
    moved = moves.move(marker, new_nonce(), at=context.clock.now(), undid=undid)
    swap(context, name, moved, over=stored)
    tell_others(context, name)


def tell_others(context: Context, name: str) -> None:
    """Hide the table also from clients that know only the spec's own file; the marker decides."""
    with suppress(KeyExistsError):
        context.storage.create(table_file(name, DEREGISTERED_FILE), b"deregistered")
