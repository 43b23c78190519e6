"""What became of a name, and of all dropped names."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from relance.identifiers import TableId
from relance.lifecycle.retention import is_purgeable
from relance.lifecycle.status import Exists, NotFound, SoftDeleted, TableStatus
from relance.operations.context import Context
from relance.operations.generations import all_generations, state_of_name


def table_status(context: Context, table_id: TableId) -> TableStatus:
    """Return whether the table exists, is dropped, or is not there; a purged one is not there.

    Raises:
        InvalidTableStateError: its marker cannot be understood.
    """
    state, parts = state_of_name(context, table_id), tuple(table_id.parts)
    if state.visible:
        return Exists(parts)
    return (state.dropped[-1].status if state.dropped else None) or NotFound(parts)


def list_dropped_tables(context: Context, namespace: Sequence[str] | None = None) -> list[SoftDeleted]:
    """Return the dropped tables, of all or of one namespace, oldest drop first.

    Damaged markers are left out; scrub() reports them.
    """
    found = (each.status for each in all_generations(context))
    return [
        each for each in found if each is not None and (namespace is None or each.id[:-1] == tuple(namespace))
    ]


def list_purgable_tables(context: Context, deleted_before: datetime | None) -> list[SoftDeleted]:
    """Return the dropped tables whose time has passed, and that were dropped before the cut-off."""
    now = context.clock.now()
    due = (
        each.status
        for each in all_generations(context)
        if is_purgeable(each.marker, now=now, timing=context.timing)
    )
    return [
        each
        for each in due
        if each is not None and (deleted_before is None or each.deleted_at < deleted_before)
    ]
