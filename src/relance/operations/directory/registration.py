"""Hide a table without touching its data, and bring it back."""

from __future__ import annotations

from relance.errors import TableAlreadyExistsError, TableNotFoundError
from relance.identifiers import TableId
from relance.lifecycle import moves
from relance.lifecycle.marker_store import new_nonce
from relance.lifecycle.states import Action, State, is_allowed
from relance.listing.lookup import TableFacts, look_up
from relance.locations import DEREGISTERED_FILE, table_file
from relance.operations.context import Context
from relance.operations.directory.claims import Swap, busy, swap
from relance.operations.directory.moving import tell_others
from relance.resolution import not_found
from relance.storage.probe import require_create_only, require_replace


def deregister(context: Context, table_id: TableId, facts: TableFacts, swap: Swap = swap) -> None:
    """Hide the table until it is registered again.

    Raises:
        TableNotFoundError: there is no such table, or it is hidden already.
        ConcurrentModificationError: its state changed meanwhile.
    """
    storage = context.storage
    require_create_only(storage, to_do="deregistering a table")
    if facts.marker is not None:
        require_replace(storage, to_do="deregistering a table again")
    marker = facts.marker.marker if facts.marker is not None else None
    if marker is not None and not is_allowed(marker.state, Action.DEREGISTER):
        raise busy(table_id.name, marker)
    swap(
        context,
        table_id.name,
        moves.deregister(marker, new_nonce(), at=context.clock.now()),
        over=facts.marker,
    )
    tell_others(context, table_id.name)


def register(context: Context, table_id: TableId, *, known_ok: bool, swap: Swap = swap) -> None:
    """Show a deregistered table again.

    Raises:
        TableNotFoundError: there is no table data in its directory.
        TableAlreadyExistsError: it is registered already, and that is not `known_ok`.
    """
    facts = look_up(context.storage, table_id.name)
    if facts.state not in {State.ABSENT, State.CLEARED, State.DEREGISTERED} and facts.marker is not None:
        raise not_found(table_id, facts.marker.marker)
    if not facts.holds_table:
        raise TableNotFoundError(f"table id '{table_id}': no table data at {context.location(table_id.name)}")
    if not facts.hidden:
        if not known_ok:
            raise TableAlreadyExistsError(f"table id '{table_id}' is already registered")
        return
    if facts.state is State.DEREGISTERED:
        require_replace(context.storage, to_do="registering a table")
    # The file inside goes first: with the marker still there the table stays hidden if we stop here.
    context.storage.delete(table_file(table_id.name, DEREGISTERED_FILE))
    if facts.marker is not None and facts.state is State.DEREGISTERED:
        swap(context, table_id.name, moves.register(facts.marker.marker, new_nonce()), over=facts.marker)
