"""Reserve a table's name and place without writing data."""

from __future__ import annotations

from dataclasses import replace

from relance.errors import (
    ConcurrentModificationError,
    KeyExistsError,
    TableAlreadyExistsError,
)
from relance.identifiers import TableId
from relance.lifecycle import moves
from relance.lifecycle.marker_store import is_unchanged, new_nonce
from relance.lifecycle.retention import creators_are_gone
from relance.lifecycle.states import State
from relance.lifecycle.status import why_hidden
from relance.listing.layout import flag_new_root
from relance.listing.lookup import TableFacts, look_up
from relance.listing.signs import sign_declared
from relance.locations import (
    RESERVED_FILE,
    VERSIONS_DIRECTORY,
    table_directory,
    table_file,
)
from relance.operations.context import Context
from relance.operations.directory.claims import busy, claim_revival, settle
from relance.operations.directory.naming import Naming
from relance.storage.probe import require_create_only, require_replace
from relance.storage.readback import create_once


def declare(context: Context, table_id: TableId, naming: Naming) -> None:
    """Reserve the name: of several racing callers exactly one succeeds.

    Raises:
        TableAlreadyExistsError: the name is taken, by data or by another declare.
    """
    facts = look_up(context.storage, table_id.name)
    if facts.marker is not None and facts.marker.marker.hides:
        _declare_over_marker(context, table_id, facts, naming)
    elif facts.holds_table:
        raise already_exists(table_id, facts)
    else:
        _reserve(context, table_id, naming)
        if not is_unchanged(context.storage, table_id.name, facts.marker):
            raise ConcurrentModificationError(
                f"table id '{table_id}' was dropped while it was being declared"
            )


def already_exists(table_id: TableId, facts: TableFacts) -> TableAlreadyExistsError:
    """Return the error for a name that is taken, with the ways out."""
    name = f"table id '{table_id}'"
    if facts.state is State.DELETED and facts.marker is not None:
        return TableAlreadyExistsError(
            f"{name} {why_hidden(table_id.parts, facts.marker.marker)}; alternatively, replace it "
            f"with create_table or delete it permanently with purge_table(['{table_id}'], "
            "force=True)"
        )
    if facts.state is State.MOVED:
        return TableAlreadyExistsError(
            f"{name}: '{table_directory(table_id.name)}' contains a table with another name in "
            "the manifest; open the catalog with manifest_enabled=true"
        )
    if facts.hidden:
        return TableAlreadyExistsError(
            f"{name} is deregistered: restore it with register_table (location "
            f"'{table_id}.lance') or remove it with drop_table"
        )
    if facts.only_declared:
        return TableAlreadyExistsError(
            f"{name} is already declared: write to its location, create it with create_table, or "
            "remove it with drop_table"
        )
    return TableAlreadyExistsError(name)


def refuse_occupied(context: Context, table_id: TableId) -> None:
    """Check that nothing but a directory has the table's place on a disk: Lance would follow a link.

    Raises:
        TableAlreadyExistsError: a file or a symbolic link is there.
    """
    directory = table_directory(table_id.name)
    if context.storage.is_occupied(directory):
        raise TableAlreadyExistsError(
            f"table id '{table_id}': there is a file or a symbolic link at {directory!r}"
        )


def _declare_over_marker(context: Context, table_id: TableId, facts: TableFacts, naming: Naming) -> None:
    """Declare a name whose table was purged; a dropped one is refused.

    A declare has no end: the client writes on its own and does not tell. Clearing a drop's marker for
    it would show the old table again if that write fails.

    Raises:
        TableAlreadyExistsError: the table was dropped or deregistered, or purged a short while ago.
        ConcurrentModificationError: another client holds or moved the marker.
    """
    stored = settle(context, table_id.name, facts.marker)
    if stored is None or stored.marker.state is State.CLEARED:
        raise ConcurrentModificationError(f"table id '{table_id}' was changed by another client; retry")
    if stored.marker.state is State.PURGING:
        raise busy(table_id.name, stored.marker)
    if stored.marker.state is not State.PURGED:
        raise already_exists(table_id, replace(facts, marker=stored))
    if not creators_are_gone(stored.marker, now=context.clock.now(), timing=context.timing):
        raise TableAlreadyExistsError(
            f"table id '{table_id}' was purged, but a create that started before its drop may "
            "still be in progress: use create_table, or retry in half an hour"
        )
    require_replace(context.storage, to_do="redeclaring a purged table")
    claim = claim_revival(context, table_id.name, stored, naming.swap)
    if not look_up(context.storage, table_id.name).empty:
        claim.settle(moves.recover(claim.stored.marker, new_nonce()))
        raise TableAlreadyExistsError(
            f"table id '{table_id}' was purged, but new files have appeared since: delete them "
            f"with purge_table(['{table_id}']), or replace them with create_table"
        )
    _reserve(context, table_id, Naming())  # the claim holds the name
    claim.settle(moves.finish_revival(claim.stored.marker, new_nonce()))


def _reserve(context: Context, table_id: TableId, naming: Naming) -> None:
    storage, name = context.storage, table_id.name
    refuse_occupied(context, table_id)
    require_create_only(storage, to_do="declaring a table")
    naming.hold()
    flag_new_root(storage)
    # First the sign that listings see, then the file that decides: after a crash in between there is
    # a sign without a table, which hides nothing.
    sign_declared(storage, name)
    try:
        create_once(storage, table_file(name, RESERVED_FILE), f"reserved {new_nonce()}".encode())
    except KeyExistsError as cause:
        # Perhaps our own, from an answer that was lost, and changed since: so not "it existed before".
        raise ConcurrentModificationError(f"table id '{table_id}' was declared by another client") from cause
    if storage.which_exist([table_file(name, f"{VERSIONS_DIRECTORY}/")]):
        # A create that began before us has committed: the table is its, not ours.
        raise ConcurrentModificationError(f"table id '{table_id}' was created by another client")
