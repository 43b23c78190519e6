"""Create a table with data: exactly one of several racing creators succeeds.

Over a dropped or purged name the create revives it; that is in revive.
"""

from __future__ import annotations

from relance.errors import (
    ConcurrentModificationError,
    RelanceError,
)
from relance.lifecycle.marker_store import StoredMarker, is_unchanged, new_nonce
from relance.lifecycle.states import State
from relance.listing.layout import flag_new_root
from relance.listing.lookup import TableFacts, look_up
from relance.listing.signs import remove_signs, sign_creating
from relance.operations.context import Context
from relance.operations.directory.claims import busy, settle
from relance.operations.directory.declare import already_exists, refuse_occupied
from relance.operations.directory.naming import Naming
from relance.operations.directory.overwrite import overwrite
from relance.operations.directory.revive import revive
from relance.operations.lance_tables import StagedData, is_settled
from relance.operations.new_table import CreateMode, NewTable
from relance.storage.probe import require_create_only

_ATTEMPTS = 5
"""How often an overwrite or exist_ok looks again when the table comes or goes under its hands."""


class _DroppedAgainError(ConcurrentModificationError):
    """The table was committed, and its marker moved before that could be told."""


def create_in_mode(context: Context, new: NewTable, mode: CreateMode, naming: Naming) -> int:
    """Create, keep or overwrite the table as the mode says, and return its version."""
    for _ in range(_ATTEMPTS):
        facts = look_up(context.storage, new.name)
        if facts.marker is not None and facts.marker.marker.hides:
            version = _create_over_marker(context, new, facts, naming)
        elif (facts.hidden and facts.holds_table) or (facts.has_versions and mode is CreateMode.CREATE):
            raise already_exists(new.table_id, facts)
        else:
            version = _create_visible(context, new, facts, mode, naming)
        if version is not None:
            return version
    raise ConcurrentModificationError(f"too many concurrent changes to table id '{new.table_id}'; retry")


def _create_visible(
    context: Context, new: NewTable, facts: TableFacts, mode: CreateMode, naming: Naming
) -> int | None:
    """Create, keep or overwrite what nothing hides; None means: look again."""
    if facts.has_versions and mode is CreateMode.EXIST_OK:
        head = context.tables.head(new.directory)
        return head.version if head is not None else None
    try:
        if facts.has_versions:
            return overwrite(context, new, facts.marker)
        return _create_fresh(context, new, facts.marker, naming)
    except _DroppedAgainError:
        raise  # it was there for a moment: a second time would bring back what was dropped after it
    except ConcurrentModificationError:
        if mode is CreateMode.CREATE:
            raise
        return None


def _create_over_marker(context: Context, new: NewTable, facts: TableFacts, naming: Naming) -> int | None:
    """Create where a marker hides what is there; None means: look again."""
    if facts.state in {State.DEREGISTERED, State.MOVED}:
        raise already_exists(new.table_id, facts)
    stored = settle(context, new.name, facts.marker)
    if stored is not None and stored.marker.state is State.PURGING:
        raise busy(new.name, stored.marker)
    if stored is None or stored.marker.state not in {State.DELETED, State.PURGED}:
        return None
    return revive(context, new, stored, naming.swap)


def _create_fresh(context: Context, new: NewTable, seen: StoredMarker | None, naming: Naming) -> int:
    """Write the data, then commit version 1, which only one creator can.

    Raises:
        ConcurrentModificationError: another creator came first, or the name was dropped meanwhile.
    """
    storage, name = context.storage, new.name
    refuse_occupied(context, new.table_id)
    require_create_only(storage, to_do="creating a table")
    naming.hold()
    flag_new_root(storage)
    # Listings see this sign and look twice, so that data without a version is never taken for a table.
    sign_creating(storage, name)
    try:
        staged = context.tables.stage(
            new.directory, new.data, token=new_nonce(), overwrite=False, options=new.options
        )
    except RelanceError:
        _after_failed_write(context, name, seen)
        raise
    try:
        naming.hold()
    except RelanceError:
        context.tables.discard(staged)
        raise
    # Just before the commit: so a commit that lands after a purge was sent before its drop, not long after.
    if not is_unchanged(storage, name, seen):
        context.tables.discard(staged)
        raise _beaten(name)
    _commit_first(context, new, staged)
    # And after it: what saw no marker before may have come too late to be seen.
    if not is_unchanged(storage, name, seen):
        raise _DroppedAgainError(
            f"table id '{name}' was dropped while it was being created; check its status, then retry"
        )
    remove_signs(storage, name)
    return 1


def _after_failed_write(context: Context, name: str, seen: StoredMarker | None) -> None:
    """Tidy up after a write that failed: was it beaten?

    Raises:
        ConcurrentModificationError: another creator's table is there.
    """
    # Without a version the sign stays: another creator may have data there that it still has to cover.
    if look_up(context.storage, name).has_versions:
        remove_signs(context.storage, name)
        raise _beaten(name)
    if not is_unchanged(context.storage, name, seen):
        raise _beaten(name)


def _beaten(name: str) -> ConcurrentModificationError:
    return ConcurrentModificationError(f"table id '{name}' was created or changed by another client")


def _commit_first(context: Context, new: NewTable, staged: StagedData) -> None:
    """Commit as version 1 or not at all; a failure is settled by looking whose version 1 is there.

    Raises:
        ConcurrentModificationError: another creator's table is there; our data files are removed.
        OutcomeUnknownError: nobody can tell; nothing is removed.
    """
    try:
        context.tables.commit(
            new.directory, staged, first=True, timeout=context.timing.commit_timeout, options=new.options
        )
    except RelanceError as failure:
        if context.tables.committed_version(new.directory, staged.token, after=0) is not None:
            return
        if not is_settled(failure):
            raise
        if look_up(context.storage, new.name).has_versions:
            context.tables.discard(staged)
            remove_signs(context.storage, new.name)
            raise _beaten(new.name) from failure
        raise
