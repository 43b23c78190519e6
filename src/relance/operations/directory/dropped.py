"""Which tables are dropped, by their markers."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from relance.errors import InvalidTableStateError, RelanceError
from relance.lifecycle.marker_store import StoredMarker, read_marker
from relance.lifecycle.states import State
from relance.listing.root_view import view_root
from relance.operations.context import Context

_PARALLEL = 16

_DROPPED = frozenset({State.DELETED, State.PURGING, State.REVIVING})


@dataclass(frozen=True, slots=True)
class _Found:
    name: str
    stored: StoredMarker | None
    error: RelanceError | None


def dropped_markers(context: Context) -> dict[str, StoredMarker]:
    """Return the markers of dropped tables by name: one listing, and one read for each of them.

    Damaged markers are left out; scrub() reports them.
    """
    return {each.name: each.stored for each in _hidden(context) if each.stored and is_dropped(each.stored)}


def is_dropped(stored: StoredMarker) -> bool:
    """Tell whether a marker is one of a drop that is not over."""
    return stored.marker.state in _DROPPED


def _hidden(context: Context) -> list[_Found]:
    names = sorted(view_root(context.storage.list_level("")).hidden)
    with ThreadPoolExecutor(_PARALLEL) as pool:
        return list(pool.map(lambda name: _read(context, name), names))


def _read(context: Context, name: str) -> _Found:
    try:
        return _Found(name, read_marker(context.storage, name), None)
    except InvalidTableStateError as error:
        return _Found(name, None, error)
