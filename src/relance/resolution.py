"""From an id to where the table is and what state it is in."""

from __future__ import annotations

from collections.abc import Sequence

from relance.errors import TableNotFoundError, UnsupportedOperationError
from relance.identifiers import TableId, parse_namespace_id, parse_table_id
from relance.lifecycle.marker import Marker
from relance.lifecycle.status import why_hidden
from relance.listing.lookup import TableFacts, look_up
from relance.storage.protocol import ObjectStorage

_FLAT = "the directory catalog (V1) is flat; child namespaces need manifest mode"


def root_table_id(parts: Sequence[str] | None) -> TableId:
    """Return the validated id of a table at the root.

    Raises:
        InvalidInputError: not a usable id.
        UnsupportedOperationError: it lies in a child namespace.
    """
    table_id = parse_table_id(parts)
    if table_id.namespace:
        raise UnsupportedOperationError(f"table id '{table_id}' has several parts: {_FLAT}")
    return table_id


def require_root_namespace(parts: Sequence[str] | None) -> None:
    """Check that a namespace id names the root.

    Raises:
        InvalidInputError: not a usable id.
        UnsupportedOperationError: it names a child namespace.
    """
    namespace = parse_namespace_id(parts)
    if namespace:
        raise UnsupportedOperationError(f"namespace '{'$'.join(namespace)}': {_FLAT}")


def find_table(storage: ObjectStorage, table_id: TableId) -> TableFacts:
    """Return the visible table.

    Raises:
        TableNotFoundError: there is none, or it is hidden.
    """
    facts = look_up(storage, table_id.name)
    if facts.marker is not None and facts.marker.marker.hides:
        raise not_found(table_id, facts.marker.marker)
    if facts.deregistered_inside:
        raise TableNotFoundError(
            f"table id '{table_id}' is deregistered: "
            f"register_table with location '{table_id}.lance' brings it back"
        )
    if not facts.holds_table:
        raise not_found(table_id, None)
    return facts


def not_found(table_id: TableId, marker: Marker | None) -> TableNotFoundError:
    """Return the error for a table that is not there for readers, with what became of it."""
    if marker is None or not marker.hides:
        return TableNotFoundError(f"table id '{table_id}'")
    return TableNotFoundError(f"table id '{table_id}' {why_hidden(table_id.name, marker)}")
