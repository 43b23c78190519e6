"""What the arbiter and the marker of a table say, and what both mean together. Pure.

docs/format/lifecycle.md specifies the bodies. Reading and swapping them is in arbiter, the files
around them in layout.
"""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, TypeVar

from relance.clock import from_millis, to_millis
from relance.errors import (
    InvalidTableStateError,
    for_python,
)
from relance.foreign_json import parse_json
from relance.storage.protocol import BODY_MAX_BYTES, Version

FORMAT = 2

SHORT_MAX_BYTES = 64
"""An arbiter that hides nothing is at most this long and every other one is longer: listings show sizes."""

TOMBSTONE_MAX_BYTES = 127
"""A tombstone is at most this long, and what hides a table is longer still: whether a marker counts beside a
tombstone, its bodies tell, not its age."""

OWN_TIME = -1
"""Instead of a time: the last-modified time of the body that says so."""

MARGIN = timedelta(seconds=60)
"""What is added where the times of two objects are compared: stores may round them."""

_NO_TIME = "-"
_SHORT = re.compile(
    r"(?P<state>[cw]) (?P<nonce>[0-9a-zA-Z-]{1,20}) (?P<undid>[0-9a-zA-Z-]{1,24})"
    r" (?P<after>\*|-|[0-9a-z]{1,8}) (?P<fence>-|[0-9a-z]{1,8})"
)
_ID = re.compile(r"[0-9a-zA-Z][0-9a-zA-Z-]{0,23}")
"""A longer deletion id would not fit into an arbiter that hides nothing."""
_ROW_ID = re.compile(r"[0-9a-zA-Z][0-9a-zA-Z-]{0,63}")
"""The first format gave ids of 24 characters, to which the drop of a namespace added the table's number."""

_T = TypeVar("_T")
_LONGEST_LEASE = timedelta(days=365)
_FORMAT_1_SHORT = re.compile(rb"[0-9a-f]{24}(:[0-9a-zA-Z-]{1,31})?|(sweeping|writing) [0-9a-f]{24} \d{1,15}")
_DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"


class State(StrEnum):
    """What the arbiter says of its table."""

    CLEARED = "cleared"
    """Nothing is hidden: an undrop, a create or a finished overwrite left this."""
    WRITING = "writing"
    """An overwrite is being committed; hides nothing. A drop may overrule it."""
    DELETED = "deleted"
    """Dropped; can be undropped until a purge claims it."""
    REVIVING = "reviving"
    """A create over a dropped or purged name is being committed; reads as what it was before."""
    PURGING = "purging"
    """Files are being deleted; only a purge may go on."""
    PURGED = "purged"
    """Files are gone. The tombstone stays: a create that began before the drop may still commit."""


TRANSITIONS: Mapping[State | None, frozenset[State]] = {
    None: frozenset({State.DELETED, State.CLEARED, State.WRITING}),
    State.CLEARED: frozenset({State.DELETED, State.CLEARED, State.WRITING, State.PURGING}),
    State.WRITING: frozenset({State.DELETED, State.CLEARED, State.WRITING}),
    State.DELETED: frozenset({State.CLEARED, State.DELETED, State.REVIVING, State.PURGING}),
    State.REVIVING: frozenset({State.CLEARED, State.DELETED, State.PURGED, State.REVIVING}),
    State.PURGING: frozenset({State.CLEARED, State.DELETED, State.PURGED, State.PURGING}),
    State.PURGED: frozenset(
        {State.CLEARED, State.DELETED, State.REVIVING, State.WRITING, State.PURGING, State.PURGED}
    ),
}
"""What an arbiter in a file may become; None: there is none yet. A swap that is not here is refused.

A cleared or purged one is claimed by a purge to sweep it. A purged one is dropped, undropped or
overwritten when it lies beside another client's table.
"""


@dataclass(frozen=True, slots=True)
class Timing:
    """The periods that the lifecycle depends on."""

    drop_ttl: timedelta = timedelta(days=7)
    """How long a dropped table is kept when nothing says otherwise."""
    clock_skew: timedelta = timedelta(minutes=5)
    """By how much the clocks of two clients may differ. Decides nothing about tables."""
    lease: timedelta = timedelta(minutes=10)
    """How long a claim may be used after it was taken."""
    request_age: timedelta = timedelta(minutes=15)
    """How long after it was sent the store may still execute a request."""
    commit_timeout: timedelta = timedelta(minutes=2)
    """How long a Lance commit may take."""
    quarantine: timedelta = timedelta(days=7)
    """How long a tombstone is kept."""
    patience: timedelta = timedelta(seconds=15)
    """How long a claim must not have changed before another client takes it over."""

    @property
    def reach(self) -> timedelta:
        """How long after a claim was taken something sent under it may still take effect."""
        return self.lease + self.request_age

    @property
    def late(self) -> timedelta:
        """How long after a drop ended a request about its marker may still take effect."""
        return 2 * self.reach


@dataclass(frozen=True, slots=True)
class Control:
    """A body of the arbiter. Every one has a nonce of its own, so no two are equal."""

    state: State
    nonce: str
    undid: str = ""
    """Cleared, writing: the deletion that ended last."""
    after: int | None = None
    """When the arbiter last left a dropped state, in seconds; OWN_TIME is the time of this body."""
    fence: int | None = None
    """Until when a write that was taken over or overruled may still commit; purges wait for it."""
    id: str = ""
    """Names the deletion, through all the states that follow from it."""
    version: int = 0
    """Deleted: the latest version at the drop, 0 when there was none or it is unknown."""
    ttl: timedelta | None = None
    """Deleted: the retention period; None is the catalog's."""
    since: int | None = None
    """When this state began, in seconds, if that is not the time of this body."""
    token: str = ""
    """Of a claim's holder. A create commits under it."""
    writers: tuple[str, ...] = ()
    """Reviving: the tokens of this create and of those it took over from."""
    lease: timedelta | None = None
    """Purging: how long the claim may be used."""
    stopped: bool = False
    """Purging: the holder gave up, and nothing that it sent can hit a later table: another may go on."""
    upto: int | None = None
    """Purging: nothing younger than this is deleted, in seconds."""
    before: Control | None = None
    """What a claim was taken from."""
    to: str = ""
    """Deleted by a rename that is not decided yet: the new id."""
    at: str = ""
    """And the directory of the copy."""
    deleted_at: datetime | None = None
    """When the table was dropped, if that is not when this state began: of a drop that was adopted, or in
    a manifest row, which has no time of its own."""
    by_store_clock: bool = False
    """In a manifest row: `deleted_at` is the store's time."""

    @property
    def origin(self) -> Control:
        """What this claim was taken from."""
        assert self.before is not None  # every claim says so
        return self.before


@dataclass(frozen=True, slots=True)
class Marked:
    """An arbiter as it was read, with the version that a swap must find unchanged."""

    control: Control
    version: Version
    modified: datetime | None = None
    """By the store's clock; None right after our own write."""

    @property
    def state(self) -> State:
        return self.control.state

    @property
    def time(self) -> int | None:
        """When its state began, in seconds."""
        if self.control.since is not None:
            return self.control.since
        return None if self.modified is None else seconds(self.modified)

    @property
    def dropped_at(self) -> datetime | None:
        """When the table was dropped, by the store's clock."""
        if self.control.deleted_at is not None:
            return self.control.deleted_at
        return self.modified if self.control.since is None else from_millis(self.control.since * 1000)


@dataclass(frozen=True, slots=True)
class Mark:
    """A marker: the seed's file that says a table is dropped."""

    deleted_at: datetime | None = None
    ttl: timedelta | None = None
    """None: it does not say, so the catalog's retention period counts."""
    id: str | None = None
    """The deletion it belongs to; None when another implementation wrote it."""
    after: str = ""
    """The deletion that the arbiter had ended last when the drop read it."""
    modified: datetime | None = None
    to: str = ""
    """Of a rename: the new id, as in the arbiter that follows."""
    at: str = ""

    @property
    def is_foreign(self) -> bool:
        return self.id is None


class Situation(StrEnum):
    """What arbiter and marker say together, wherever there is a table."""

    VISIBLE = "visible"
    DROPPED = "dropped"
    PURGING = "purging"


def new_nonce() -> str:
    """Return a text that no other body holds: equal bodies have equal e-tags on S3."""
    return secrets.token_hex(8)  # short: a cleared arbiter holds two of them in 64 bytes


def seconds(moment: datetime) -> int:
    """Return whole seconds since the Unix epoch, rounded down."""
    return to_millis(moment) // 1000


def state_of(marked: Marked | None) -> State | None:
    """Return the state of an arbiter; None when there is none."""
    return None if marked is None else marked.state


def undid(marked: Marked | None) -> str:
    """Return the deletion that ended last, "" when there was none."""
    if marked is None:
        return ""
    return marked.control.id if marked.state is State.PURGED else marked.control.undid


def after_of(marked: Marked | None) -> int | None:
    """Return when the arbiter last left a dropped state."""
    if marked is None:
        return None
    own = marked.state is State.PURGED or marked.control.after == OWN_TIME
    return marked.time if own else marked.control.after


def fence_of(marked: Marked | None, timing: Timing) -> int | None:
    """Return until when a write that began before may still commit."""
    if marked is None or marked.state is State.PURGED:
        return None
    fence = marked.control.fence
    if marked.state not in {State.WRITING, State.REVIVING} or marked.modified is None:
        return fence
    reach = seconds(marked.modified + timing.reach) + 1
    return reach if fence is None else max(fence, reach)


def plain(marked: Marked | None) -> Marked | None:
    """Return what the arbiter reads as: the claim of a create reads as what it was taken from."""
    if marked is None or marked.state is not State.REVIVING:
        return marked
    return Marked(marked.control.origin, marked.version, marked.modified)


def is_strict(marked: Marked, timing: Timing) -> bool:
    """Tell whether a drop came so soon after another one ended that a missing marker means nothing."""
    after, dropped = marked.control.after, marked.time
    if after is None:
        return False
    return dropped is None or dropped - after < timing.late.total_seconds()


def counts(marked: Marked | None, mark: Mark | None) -> bool:
    """Tell whether the marker, beside an arbiter that is no claim, says that the table is dropped."""
    if mark is None or mark.is_foreign:
        return mark is not None
    if marked is None:
        return True  # nobody removes an arbiter while a marker may still come late; listings decide so too
    if marked.state is State.DELETED:
        return mark.id == marked.control.id
    return mark.after == undid(marked)


def is_dropped_again(marked: Marked, mark: Mark) -> bool:
    """Tell whether another client undropped the table and then dropped it, which no verb has adopted yet."""
    if marked.state is not State.DELETED or not mark.is_foreign:
        return False
    # What was adopted is older than the arbiter that says so.
    return marked.modified is not None and mark.modified is not None and mark.modified > marked.modified


def situation(marked: Marked | None, mark: Mark | None, timing: Timing) -> Situation:
    """Return what both mean together."""
    read_as = plain(marked)
    if read_as is not None and read_as.state is State.PURGING:
        return Situation.PURGING
    dropped = counts(read_as, mark)
    if read_as is not None and read_as.state is State.DELETED:
        dropped = dropped or is_strict(read_as, timing)
    return Situation.DROPPED if dropped else Situation.VISIBLE


def is_deleted(marked: Marked | None) -> bool:
    """Tell whether the arbiter says that the table is dropped or being purged."""
    return state_of(plain(marked)) in {State.DELETED, State.PURGING}


def is_purged(marked: Marked | None) -> bool:
    """Tell whether a tombstone is there, which hides what Relance wrote."""
    return state_of(plain(marked)) is State.PURGED


# Bodies that follow from each other. Times that only the store knows are OWN_TIME.


def deleted(
    over: Marked | None,
    *,
    deletion_id: str,
    version: int,
    ttl: timedelta | None,
    timing: Timing,
    deleted_at: datetime | None = None,
) -> Control:
    """Return the body of a drop; `deleted_at` is the time of one that is adopted."""
    return Control(
        State.DELETED,
        new_nonce(),
        id=deletion_id,
        version=version,
        ttl=ttl,
        deleted_at=deleted_at,
        after=after_of(over),
        fence=fence_of(over, timing),
    )


def cleared(*, undid: str, fence: int | None = None, after: int | None = OWN_TIME) -> Control:
    """Return a body that hides nothing and names the deletion that ended last."""
    return Control(State.CLEARED, new_nonce(), undid=undid, fence=fence, after=after)


def writing(over: Marked | None, token: str, timing: Timing) -> Control:
    """Return the claim of an overwrite."""
    return Control(
        State.WRITING,
        token,
        undid=undid(over),
        fence=fence_of(over, timing),
        after=after_of(over),
        token=token,
    )


def reviving(over: Marked, token: str, timing: Timing) -> Control:
    """Return the claim of a create, over a dropped or purged name or over another such claim."""
    if over.state is State.REVIVING:
        before, writers = over.control.before, over.control.writers
    else:
        before, writers = _kept(over), ()
    return Control(
        State.REVIVING,
        token,
        token=token,
        before=before,
        writers=(*writers, token),
        fence=fence_of(over, timing),
    )


def taken_over(over: Marked, timing: Timing) -> Control:
    """Return the claim of a client that ends a create which does not go on; it writes nothing of its own."""
    token = new_nonce()
    return replace(over.control, nonce=token, token=token, fence=fence_of(over, timing))


def returned(claim: Control, *, fence: int | None) -> Control:
    """Return what a create's claim was taken from, as a new body."""
    fence = fence if claim.origin.state is State.DELETED else None
    return replace(claim.origin, nonce=new_nonce(), fence=fence)


def revived(claim: Control, *, fence: int | None) -> Control:
    """Return what follows a create's claim once its version is there."""
    return cleared(undid=claim.origin.id, fence=fence)


def purging(over: Marked, timing: Timing, *, upto: int | None) -> Control:
    """Return the claim of a purge, also over the claim of another one, whose limit stays."""
    token = new_nonce()
    if over.state is State.PURGING:
        return replace(over.control, nonce=token, token=token, lease=timing.lease, stopped=False)
    return Control(
        State.PURGING,
        token,
        id=over.control.id or over.control.undid or token,
        token=token,
        lease=timing.lease,
        upto=upto,
        before=_kept(over),
    )


def purged(claim: Control) -> Control:
    """Return the tombstone."""
    return Control(State.PURGED, new_nonce(), id=claim.id)


def _kept(over: Marked) -> Control:
    """Return a body as a claim keeps it: with the time that only its file knew."""
    return replace(over.control, since=over.time)


# Encoding.


def encode_control(control: Control) -> bytes:
    """Return the bytes of the arbiter: short if it hides nothing, longest if it hides a table."""
    if control.state in {State.CLEARED, State.WRITING}:
        after = "*" if control.after == OWN_TIME else _base36(control.after)
        parts = (control.state.value[0], control.nonce, control.undid or "-", after, _base36(control.fence))
        return " ".join(parts).encode()
    body = json.dumps({"format": FORMAT, **_fields(control)})
    longer_than = SHORT_MAX_BYTES if control.state is State.PURGED else TOMBSTONE_MAX_BYTES
    return body.ljust(longer_than + 1).encode()


def control_text(control: Control) -> str:
    """Return the same for a manifest row."""
    return encode_control(control).decode()


def _fields(control: Control) -> dict[str, Any]:
    optional = {
        key: write(getattr(control, name))
        for key, (name, write, _) in _FIELDS.items()
        if getattr(control, name) != getattr(_EMPTY, name)
    }
    return {"state": control.state.value, "nonce": control.nonce, **optional}


def decode_control(body: bytes, *, name: str, in_row: bool = False) -> Control:
    """Return what the arbiter of table `name` says, a file or the text in a manifest row.

    A row may have a longer deletion id: it has no short body that would have to hold it.

    Raises:
        InvalidTableStateError: the bytes are damaged or of a format this release does not know.
    """
    try:
        if len(body) <= SHORT_MAX_BYTES:
            return _decode_short(body.decode())
        fields = parse_json(body)
        known = fields["format"] == FORMAT
    except (ValueError, TypeError, KeyError) as cause:
        raise _damaged(body, name) from cause
    if not known:
        raise InvalidTableStateError(
            f"the arbiter of table id '{name}' has the unknown format {fields['format']!r}. "
            "Nothing was changed; use the release that wrote it"
        )
    try:
        control = _decode_fields(fields)
    except (ValueError, TypeError, KeyError, OverflowError, AttributeError) as cause:
        raise _damaged(body, name) from cause
    ids = _ROW_ID if in_row else _ID
    for each in (control, control.before or control):
        if not all(ids.fullmatch(deletion) for deletion in (each.undid, each.id) if deletion):
            raise _damaged(body, name)
    return control


def _decode_short(text: str) -> Control:
    match = _SHORT.fullmatch(text)
    if match is None:
        raise ValueError(text)
    state = State.CLEARED if match["state"] == "c" else State.WRITING
    return Control(
        state,
        match["nonce"],
        undid="" if match["undid"] == "-" else match["undid"],
        after=OWN_TIME if match["after"] == "*" else _from_base36(match["after"]),
        fence=_from_base36(match["fence"]),
        token=match["nonce"] if state is State.WRITING else "",
    )


def _decode_fields(fields: Mapping[str, Any]) -> Control:
    known = {name: read(fields[key]) for key, (name, _, read) in _FIELDS.items() if key in fields}
    control = Control(State(str(fields["state"])), _text(fields["nonce"]), **known)
    if control.state in {State.REVIVING, State.PURGING} and (control.before is None or not control.token):
        raise ValueError("a claim needs a holder and a previous state")
    if control.state in {State.DELETED, State.PURGED} and not control.id:
        raise ValueError("a deletion needs an id")
    return control


def _decode_before(fields: Mapping[str, Any]) -> Control:
    # No claim is taken from another one, which would need a state before it.
    return _decode_fields({key: value for key, value in fields.items() if key != "before"})


def encode_mark(mark: Mark) -> bytes:
    """Return the bytes of a marker of ours."""
    assert mark.deleted_at is not None  # a drop has a time
    assert mark.ttl is not None  # and a retention period
    fields = {
        "deleted_at_ms": to_millis(mark.deleted_at),
        "ttl_ms": _whole_millis(mark.ttl),
        "relance": {"id": mark.id, "after": mark.after} | ({"to": mark.to, "at": mark.at} if mark.at else {}),
    }
    return json.dumps(fields).encode()


def decode_mark(body: bytes, modified: datetime | None) -> Mark:
    """Return what a marker says; any body that is not one of ours is one of another implementation."""
    fields = _object(body)
    relance = fields.get("relance")
    ours = relance if isinstance(relance, dict) else {}
    after = ours.get("after", "")
    if not is_deletion_id(ours.get("id")) or not (after == "" or is_deletion_id(after)):
        ours, after = {}, ""
    renamed = isinstance(ours.get("to"), str) and isinstance(ours.get("at"), str)
    return Mark(
        _readable(_moment, fields.get("deleted_at_ms")),
        _readable(_period, fields.get("ttl_ms")),
        ours.get("id"),
        after,
        modified,
        ours["to"] if renamed else "",
        ours["at"] if renamed else "",
    )


def is_deletion_id(value: object) -> bool:
    """Tell whether this can name a deletion."""
    return isinstance(value, str) and _ID.fullmatch(value) is not None


def is_format_1(body: bytes) -> bool:
    """Tell whether a marker was written by the first format, in which it meant other things as well."""
    if _FORMAT_1_SHORT.fullmatch(body):
        return True
    fields = _object(body)
    return fields.get("format") == 1 and "nonce" in fields


def _object(body: bytes) -> dict[str, Any]:
    """Return the JSON object in a marker, an empty one if there is none."""
    try:
        fields = parse_json(body) if len(body) <= BODY_MAX_BYTES else None
    except ValueError:
        fields = None
    return fields if isinstance(fields, dict) else {}


def _readable(read: Callable[[object], _T], value: object) -> _T | None:
    try:
        return read(value)
    except (ValueError, OverflowError):
        return None


def _damaged(body: bytes, name: str) -> InvalidTableStateError:
    start = repr(body[:40].decode("utf-8", errors="replace"))
    return for_python(
        InvalidTableStateError(
            f"corrupt arbiter of table id '{name}' ({len(body)} bytes, starting with {start}). "
            "Nothing was changed",
            hint="list repair options: relance scrub",
        ),
        "; run scrub() for repair options",
    )


def _base36(value: int | None) -> str:
    if value is None:
        return _NO_TIME
    digits = ""
    while value:
        value, digit = divmod(value, 36)
        digits = _DIGITS[digit] + digits
    return digits or "0"


def _from_base36(text: str) -> int | None:
    return None if text == _NO_TIME else _time(int(text, 36))


def _whole_millis(period: timedelta) -> int:
    return period // timedelta(milliseconds=1)


def _time(value: object) -> int:
    from_seconds(_whole(value))  # one that no calendar has raises
    return _whole(value)


def _moment(value: object) -> datetime:
    return from_millis(_whole(value))


def _period(value: object) -> timedelta:
    return timedelta(milliseconds=_whole(value))


def _lease(value: object) -> timedelta:
    lease = _period(value)
    if lease > _LONGEST_LEASE:
        raise ValueError(f"not the lease of a claim: {lease}")
    return lease


def _whole(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise ValueError(f"not a whole number: {value!r}")
    return value


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError(f"not a string: {value!r}")
    value.encode()  # half of a surrogate pair could not be written again
    return value


def from_seconds(moment: int) -> datetime:
    """Return the moment that is so many seconds after the Unix epoch."""
    return from_millis(moment * 1000)


def _as_is(value: object) -> object:
    return value


def _if_any(read: Callable[[Any], object]) -> Callable[[object], object]:
    return lambda value: None if value is None else read(value)


_EMPTY = Control(State.CLEARED, "")
_FIELDS: Mapping[str, tuple[str, Callable[[Any], object], Callable[[Any], Any]]] = {
    "id": ("id", _as_is, _text),
    "undid": ("undid", _as_is, _text),
    "version": ("version", _as_is, _whole),
    "ttl_ms": ("ttl", _whole_millis, _if_any(_period)),
    "after_s": ("after", _as_is, _if_any(_time)),
    "fence_s": ("fence", _as_is, _if_any(_time)),
    "since_s": ("since", _as_is, _if_any(_time)),
    "token": ("token", _as_is, _text),
    "writers": ("writers", _as_is, lambda tokens: tuple(_text(token) for token in tokens)),
    "lease_ms": ("lease", _whole_millis, _if_any(_lease)),
    "stopped": ("stopped", _as_is, lambda value: value is True),
    "upto_s": ("upto", _as_is, _if_any(_time)),
    "before": ("before", _fields, _if_any(_decode_before)),
    "to": ("to", _as_is, _text),
    "at": ("at", _as_is, _text),
    "deleted_at_ms": ("deleted_at", to_millis, _if_any(_moment)),
    "clock": ("by_store_clock", lambda _: "store", lambda value: value == "store"),
}
"""The optional fields of a body in their order: the attribute, how it is written, how it is read."""
