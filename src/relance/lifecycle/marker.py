"""Marker bytes: encode and decode. Pure. Making the next marker is in moves, swapping it in marker_store."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import lru_cache

from relance.clock import from_millis, to_millis
from relance.errors import InvalidTableStateError
from relance.lifecycle.states import LEASED, VISIBLE, State

FORMAT = 1

SHORT_MAX_BYTES = 64
"""A marker that hides nothing is at most this long and every other one is longer: listings see sizes."""

_CLEARED = re.compile(rb"(?P<nonce>[0-9a-zA-Z-]{1,31})(:(?P<undid>[0-9a-zA-Z-]{1,31}))?")
_SHORT_CLAIM = re.compile(rb"(?P<state>sweeping|writing) (?P<nonce>[0-9a-zA-Z-]{1,31}) (?P<until>\d{1,15})")


@dataclass(frozen=True, slots=True)
class Marker:
    """What a marker says. Every one that is written has a nonce of its own, so no two bodies are equal."""

    state: State
    nonce: str
    deleted_at: datetime | None = None
    """When the table was hidden."""
    ttl: timedelta | None = None
    """How long after that it may be purged; None is never (deregistered)."""
    version: int = 0
    """The latest version at the drop; 0 when there was none."""
    deletion_id: str = ""
    """Names this drop, through all the states that follow from it."""
    was_deregistered: bool = False
    """The drop hid a deregistered table, so an undrop gives that back."""
    before: State | None = None
    """What a claim was taken from."""
    token: str = ""
    """Of the claim's holder; a revival commits under it."""
    lease_until: datetime | None = None
    """When the holder stops by itself."""
    purged_at: datetime | None = None
    writer_until: datetime | None = None
    """Deleted: an overwrite was being committed when the table was dropped, and may go on until then."""
    undid: str = ""
    """The deletion that was last undone or written over, so that who made it can tell."""

    @property
    def hides(self) -> bool:
        """Whether the table does not exist for readers."""
        if self.state is State.SWEEPING:
            return self.before is not State.CLEARED
        return self.state not in VISIBLE


def is_hidden_size(size: int) -> bool:
    """Tell from a marker's size alone whether it hides its table."""
    return size > SHORT_MAX_BYTES


def encode(marker: Marker) -> bytes:
    """Return the marker's bytes, short if and only if it hides nothing."""
    if marker.state is State.CLEARED:
        return f"{marker.nonce}:{marker.undid}".encode() if marker.undid else marker.nonce.encode()
    if not marker.hides and marker.lease_until is not None:
        return f"{marker.state} {marker.nonce} {to_millis(marker.lease_until)}".encode()
    fields: dict[str, str | int | None] = {
        "format": FORMAT,
        "state": marker.state.value,
        "deleted_at_ms": _millis(marker.deleted_at),
        "ttl_ms": None if marker.ttl is None else round(marker.ttl.total_seconds() * 1000),
        "nonce": marker.nonce,
        "version": marker.version,
        "deletion_id": marker.deletion_id,
    }
    if marker.undid:
        fields["undid"] = marker.undid
    if marker.was_deregistered:
        fields["was_deregistered"] = True
    if marker.before is not None:
        fields["before"] = marker.before.value
    if marker.token:
        fields["token"] = marker.token
    if marker.lease_until is not None:
        fields["lease_until_ms"] = _millis(marker.lease_until)
    if marker.writer_until is not None:
        fields["writer_until_ms"] = _millis(marker.writer_until)
    if marker.purged_at is not None:
        fields["purged_at_ms"] = _millis(marker.purged_at)
    return json.dumps(fields).encode()


@lru_cache(maxsize=1024)
def decode(body: bytes, *, name: str) -> Marker:
    """Return what `body` says of table `name`.

    Raises:
        InvalidTableStateError: the bytes are damaged or of a format this release does not know.
    """
    if not is_hidden_size(len(body)):
        return _decode_short(body, name)
    try:
        fields = json.loads(body)
        known = fields["format"] == FORMAT
    except (ValueError, TypeError, KeyError) as cause:
        raise _damaged(body, name) from cause
    if not known:
        raise InvalidTableStateError(
            f"the marker for table id '{name}' has the unknown format {fields['format']!r}. "
            "Nothing was changed; use the release that wrote it"
        )
    try:
        return _decode_fields(fields)
    except (ValueError, TypeError, KeyError, OverflowError, AttributeError) as cause:
        raise _damaged(body, name) from cause


def _decode_short(body: bytes, name: str) -> Marker:
    if claim := _SHORT_CLAIM.fullmatch(body):
        nonce, state = claim["nonce"].decode(), State(claim["state"].decode())
        until = from_millis(int(claim["until"]))
        return Marker(state, nonce, before=State.CLEARED, token=nonce, lease_until=until)
    cleared = _CLEARED.fullmatch(body)
    if cleared is None:
        raise _damaged(body, name)
    return Marker(State.CLEARED, cleared["nonce"].decode(), undid=(cleared["undid"] or b"").decode())


def _decode_fields(fields: dict[str, object]) -> Marker:
    state = State(str(fields["state"]))
    ttl = fields["ttl_ms"]
    marker = Marker(
        state=state,
        nonce=_text(fields["nonce"]),
        deleted_at=_moment(fields["deleted_at_ms"]),
        ttl=None if ttl is None else timedelta(milliseconds=_whole(ttl)),
        version=_whole(fields["version"]),
        deletion_id=_text(fields["deletion_id"]),
        undid=_text(fields.get("undid", "")),
        was_deregistered=fields.get("was_deregistered") is True,
        before=State(str(fields["before"])) if "before" in fields else None,
        token=_text(fields.get("token", "")),
        lease_until=_moment(fields["lease_until_ms"]) if "lease_until_ms" in fields else None,
        writer_until=_moment(fields["writer_until_ms"]) if "writer_until_ms" in fields else None,
        purged_at=_moment(fields["purged_at_ms"]) if "purged_at_ms" in fields else None,
    )
    if not marker.hides:
        raise ValueError("a body of this size must be a hiding marker")
    if state in LEASED and (marker.lease_until is None or not marker.token or marker.before is None):
        raise ValueError("a claim needs a holder, a lease and a previous state")
    if state is State.DELETED and (marker.deleted_at is None or marker.ttl is None):
        raise ValueError("a drop needs a time and a TTL")
    if marker.deleted_at is not None and marker.ttl is not None:
        _ = marker.deleted_at + marker.ttl  # an expiry that no clock can show is damage too
    return marker


def _damaged(body: bytes, name: str) -> InvalidTableStateError:
    start = repr(body[:40].decode("utf-8", errors="replace"))
    return InvalidTableStateError(
        f"corrupt marker for table id '{name}' ({len(body)} bytes, starting with {start}). "
        "Nothing was changed; run scrub() for repair options"
    )


def _millis(moment: datetime | None) -> int | None:
    return None if moment is None else to_millis(moment)


def _moment(value: object) -> datetime | None:
    return None if value is None else from_millis(_whole(value))


def _whole(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise ValueError(f"not a whole number: {value!r}")
    return value


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError(f"not a string: {value!r}")
    return value
