"""What the answer to a drop tells. Pure."""

from __future__ import annotations

from relance.clock import to_millis
from relance.errors import InvalidInputError
from relance.lifecycle.marker import Marker
from relance.lifecycle.retention import purge_after


def drop_properties(marker: Marker) -> dict[str, str]:
    """Return the properties of the answer to a drop.

    Raises:
        InvalidInputError: the TTL leads to a time that no clock can show.
    """
    try:
        due = purge_after(marker)
    except OverflowError:
        raise InvalidInputError(f"TTL {marker.ttl} is out of range") from None
    assert marker.deleted_at is not None  # a drop has a time
    assert due is not None  # and a TTL
    return {
        "deleted_at_ms": str(to_millis(marker.deleted_at)),
        "purge_after_ms": str(to_millis(due)),
        "deletion_id": marker.deletion_id,
    }
