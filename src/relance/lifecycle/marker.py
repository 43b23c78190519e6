"""Marker bytes: encode and decode. Pure. Reading and swapping them is in marker_store."""

from __future__ import annotations

import json
import uuid
from dataclasses import dataclass
from datetime import datetime

from relance.clock import from_millis, to_millis
from relance.errors import InvalidTableStateError
from relance.lifecycle.states import State

FORMAT = 1

CLEARED_MAX_BYTES = 64
"""A cleared marker is at most this long and every other one is longer: a listing tells them apart."""


@dataclass(frozen=True, slots=True)
class Marker:
    """What a marker says; every one written has a nonce of its own, so no two bodies are equal."""

    state: State
    nonce: str
    hidden_at: datetime | None = None
    """When the table was hidden; None for cleared."""


def cleared() -> Marker:
    """Return a new marker that hides nothing."""
    return Marker(State.CLEARED, _nonce())


def deregistered(at: datetime) -> Marker:
    """Return a new marker that hides a table until it is registered again."""
    return Marker(State.DEREGISTERED, _nonce(), at)


def is_hidden_size(size: int) -> bool:
    """Tell from a marker's size alone whether it hides its table."""
    return size > CLEARED_MAX_BYTES


def encode(marker: Marker) -> bytes:
    """Return the marker's bytes."""
    if marker.state is State.CLEARED:
        return marker.nonce.encode()
    body = {
        "format": FORMAT,
        "state": marker.state.value,
        "deleted_at_ms": to_millis(marker.hidden_at) if marker.hidden_at else None,
        "nonce": marker.nonce,
    }
    return json.dumps(body).encode()


def decode(body: bytes, *, name: str) -> Marker:
    """Return what `body` says of table `name`.

    Raises:
        InvalidTableStateError: the bytes are damaged or of a format this release does not know.
    """
    if not is_hidden_size(len(body)):
        return Marker(State.CLEARED, body.decode("ascii", errors="replace"))
    try:
        fields = json.loads(body)
        known = fields["format"] == FORMAT
    except (ValueError, TypeError, KeyError) as cause:
        raise InvalidTableStateError(f"the marker of table {name!r} is damaged: {_start_of(body)}") from cause
    if not known:
        raise InvalidTableStateError(
            f"the marker of table {name!r} has format {fields['format']!r}, which this release does not "
            "know: use the release that wrote it"
        )
    try:
        return Marker(State(fields["state"]), str(fields["nonce"]), from_millis(int(fields["deleted_at_ms"])))
    except (ValueError, TypeError, KeyError, OverflowError) as cause:
        raise InvalidTableStateError(f"the marker of table {name!r} is damaged: {_start_of(body)}") from cause


def _nonce() -> str:
    return uuid.uuid4().hex


def _start_of(body: bytes) -> str:
    return repr(body[:40].decode("utf-8", errors="replace"))
