"""Bodies of the arbiter and the marker to the letter, their transitions, and what both mean together."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import product
from typing import Any

import pytest
from tests.support.internals import context_of

import relance
from relance.catalog.arbiter import swap_file
from relance.catalog.layout import read_control
from relance.catalog.states import (
    OWN_TIME,
    SHORT_MAX_BYTES,
    TRANSITIONS,
    Control,
    Mark,
    Marked,
    Situation,
    State,
    Timing,
    after_of,
    cleared,
    control_text,
    counts,
    decode_control,
    decode_mark,
    deleted,
    encode_control,
    encode_mark,
    fence_of,
    is_format_1,
    is_strict,
    plain,
    purged,
    purging,
    returned,
    reviving,
    seconds,
    situation,
    taken_over,
    undid,
    writing,
)
from relance.clock import LATEST
from relance.errors import InternalError, InvalidTableStateError
from relance.storage.protocol import BODY_MAX_BYTES, Version

TIMING = Timing()
NOW = datetime(2026, 3, 1, tzinfo=UTC)
NOW_S = seconds(NOW)
VERSION = Version("1")
WEEK = timedelta(days=7)
NONCE = "5f0c1d2e3f405162"
OLD = "9a8b7c6d5e4f3021"
ID = "7700112233445566"

DELETED = Control(State.DELETED, NONCE, id=ID, version=3, ttl=WEEK, after=NOW_S)
BODIES: Mapping[State, Control] = {
    State.CLEARED: Control(State.CLEARED, NONCE, undid=OLD, after=OWN_TIME),
    State.WRITING: Control(State.WRITING, NONCE, undid=OLD, after=NOW_S, fence=NOW_S, token=NONCE),
    State.DELETED: DELETED,
    State.REVIVING: Control(
        State.REVIVING,
        NONCE,
        token=NONCE,
        writers=("one", NONCE),
        fence=NOW_S,
        before=replace(DELETED, since=NOW_S),
    ),
    State.PURGING: Control(
        State.PURGING,
        NONCE,
        id=ID,
        token=NONCE,
        lease=timedelta(minutes=10),
        upto=NOW_S - 100,
        before=replace(DELETED, since=NOW_S),
    ),
    State.PURGED: Control(State.PURGED, NONCE, id=ID),
}


def marked(control: Control, *, ago: timedelta = timedelta(0)) -> Marked:
    return Marked(control, VERSION, NOW - ago)


# Transitions.


@pytest.mark.parametrize(("over", "state"), list(product([None, *State], State)))
def test_swap_is_refused_unless_the_table_of_transitions_has_it(over: State | None, state: State) -> None:
    context = context_of(
        relance.DirectoryNamespace(root=f"memory://swap-{over}-{state}", manifest_enabled="false")
    )
    old = None
    if over is not None:
        context.storage.create("t.control", encode_control(BODIES[over]))
        old = read_control(context, "t")
    new = replace(BODIES[state], nonce="another-nonce")
    if state not in TRANSITIONS[over]:
        with pytest.raises(InternalError, match="cannot go from"):
            swap_file(context, "t", new, over=old)
        new = BODIES[over] if over is not None else new
        assert (read_control(context, "t") is None) is (over is None)
        return
    swap_file(context, "t", new, over=old)
    after = read_control(context, "t")
    assert after is not None
    assert after.control == replace(new, token=new.nonce if state is State.WRITING else new.token)


def test_table_of_transitions_is_that_of_the_specification() -> None:
    c, w, d, r, p, t = (
        State.CLEARED,
        State.WRITING,
        State.DELETED,
        State.REVIVING,
        State.PURGING,
        State.PURGED,
    )
    assert dict(TRANSITIONS) == {
        None: {d, c, w},
        c: {d, c, w, p},
        w: {d, c, w},
        d: {c, d, r, p},
        r: {c, d, t, r},
        p: {c, d, t, p},
        t: {c, d, r, w, p, t},
    }


# Bodies of the arbiter.


@pytest.mark.parametrize(
    ("body", "control"),
    [
        (
            b"c 5f0c1d2e3f405162 9a8b7c6d5e4f3021 * -",
            Control(State.CLEARED, NONCE, undid=OLD, after=OWN_TIME),
        ),
        (b"c 5f0c1d2e3f405162 - - -", Control(State.CLEARED, NONCE)),
        (
            b"w 0011223344556677 9a8b7c6d5e4f3021 t0x3k9z -",
            Control(
                State.WRITING,
                "0011223344556677",
                undid=OLD,
                after=int("t0x3k9z", 36),
                token="0011223344556677",
            ),
        ),
        (
            b"c 5f0c1d2e3f405162 9a8b7c6d5e4f3021 tb8n40 tb8p1s",
            Control(State.CLEARED, NONCE, undid=OLD, after=int("tb8n40", 36), fence=int("tb8p1s", 36)),
        ),
    ],
)
def test_short_body_is_written_and_read_to_the_letter(body: bytes, control: Control) -> None:
    assert encode_control(control) == body
    assert decode_control(body, name="t") == control


@pytest.mark.parametrize(
    ("fields", "control"),
    [
        (
            {
                "state": "deleted",
                "nonce": NONCE,
                "id": ID,
                "version": 3,
                "ttl_ms": 604800000,
                "after_s": NOW_S,
            },
            DELETED,
        ),
        (
            {
                "state": "reviving",
                "nonce": NONCE,
                "fence_s": NOW_S,
                "token": NONCE,
                "writers": ["one", NONCE],
                "before": {
                    "state": "deleted",
                    "nonce": NONCE,
                    "id": ID,
                    "version": 3,
                    "ttl_ms": 604800000,
                    "after_s": NOW_S,
                    "since_s": NOW_S,
                },
            },
            BODIES[State.REVIVING],
        ),
        (
            {
                "state": "purging",
                "nonce": NONCE,
                "id": ID,
                "token": NONCE,
                "lease_ms": 600000,
                "upto_s": NOW_S - 100,
                "before": {
                    "state": "deleted",
                    "nonce": NONCE,
                    "id": ID,
                    "version": 3,
                    "ttl_ms": 604800000,
                    "after_s": NOW_S,
                    "since_s": NOW_S,
                },
            },
            BODIES[State.PURGING],
        ),
        ({"state": "purged", "nonce": NONCE, "id": ID}, BODIES[State.PURGED]),
        (
            {"state": "deleted", "nonce": NONCE, "id": ID, "to": "m", "at": "01234567_m"},
            Control(State.DELETED, NONCE, id=ID, to="m", at="01234567_m"),
        ),
        (
            {"state": "deleted", "nonce": NONCE, "id": ID, "deleted_at_ms": NOW_S * 1000, "clock": "store"},
            Control(State.DELETED, NONCE, id=ID, deleted_at=NOW, by_store_clock=True),
        ),
    ],
)
def test_long_body_is_json_with_the_specified_fields(fields: dict[str, Any], control: Control) -> None:
    body = encode_control(control)
    assert json.loads(body) == {"format": 2, **fields}
    assert decode_control(json.dumps({"format": 2, **fields}).ljust(65).encode(), name="t") == control
    assert control_text(control).encode() == body


@pytest.mark.parametrize("state", list(State))
def test_length_of_a_body_says_whether_it_hides_the_table(state: State) -> None:
    body = encode_control(BODIES[state])
    assert (len(body) <= SHORT_MAX_BYTES) is (state in {State.CLEARED, State.WRITING})
    assert decode_control(body, name="t") == BODIES[state]


def test_longest_short_body_still_is_short() -> None:
    far = seconds(LATEST)
    longest = Control(State.WRITING, "f" * 16, undid="f" * 16, after=far, fence=far, token="f" * 16)
    assert len(encode_control(longest)) <= SHORT_MAX_BYTES
    assert decode_control(encode_control(longest), name="t") == longest


def test_row_may_have_a_longer_deletion_id_than_a_file() -> None:
    control = Control(State.DELETED, NONCE, id="7726a1b94c3d5e6f01234567-1203")
    body = encode_control(control)
    assert decode_control(body, name="t", in_row=True) == control
    with pytest.raises(InvalidTableStateError, match="scrub"):
        decode_control(body, name="t")


def test_tombstone_is_longer_than_a_short_body_whatever_its_id() -> None:
    for deletion_id in ("7", ID):
        body = encode_control(Control(State.PURGED, "1", id=deletion_id))
        assert len(body) > SHORT_MAX_BYTES
        assert decode_control(body, name="t").id == deletion_id


def test_optional_fields_may_be_null_or_missing() -> None:
    body = {"format": 2, "state": "deleted", "nonce": NONCE, "id": ID}
    nulls = {"ttl_ms": None, "after_s": None, "fence_s": None, "since_s": None, "upto_s": None, "padding": ""}
    plain_body, with_nulls = (json.dumps(fields).ljust(65).encode() for fields in (body, body | nulls))
    assert decode_control(plain_body, name="t") == decode_control(with_nulls, name="t")


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"c",
        b"c 5f0c1d2e3f405162 - - - ",
        b"c  - - -",
        b"d 5f0c1d2e3f405162 - - -",
        b"c 5f0c1d2e3f405162 - T0X -",
        b"c 5f0c1d2e3f405162 - - *",
        b"c " + b"x" * 21 + b" - - -",
        b"\xff" * 40,
        b"x" * 200,
        b"[" * 10_000,
        *(
            json.dumps(fields).ljust(65).encode()
            for fields in (
                [1, 2, 3],
                {"state": "deleted", "nonce": NONCE, "id": ID},
                {"format": 2, "state": "frozen", "nonce": NONCE, "id": ID},
                {"format": 2, "state": "deleted", "nonce": NONCE},
                {"format": 2, "state": "deleted", "nonce": 7, "id": ID},
                {"format": 2, "state": "deleted", "nonce": NONCE, "id": ID, "ttl_ms": -1},
                {"format": 2, "state": "deleted", "nonce": NONCE, "id": ID, "ttl_ms": True},
                {"format": 2, "state": "deleted", "nonce": NONCE, "id": ID, "ttl_ms": 10**30},
                {"format": 2, "state": "purging", "nonce": NONCE, "id": ID, "token": NONCE},
                {"format": 2, "state": "reviving", "nonce": NONCE, "before": {"state": "x"}},
            )
        ),
    ],
)
def test_damaged_body_raises_and_asks_for_scrub(body: bytes) -> None:
    with pytest.raises(InvalidTableStateError, match=r"corrupt arbiter of table id 't' .*scrub\(\)"):
        decode_control(body, name="t")


def test_body_of_a_later_format_names_that_format() -> None:
    body = json.dumps({"format": 3, "state": "deleted", "nonce": NONCE}).ljust(65).encode()
    with pytest.raises(InvalidTableStateError, match="unknown format 3"):
        decode_control(body, name="t")


# Bodies of the marker.


def test_marker_is_that_of_the_seed_with_our_fields_beside() -> None:
    mark = Mark(NOW, WEEK, ID, OLD)
    body = encode_mark(mark)
    assert json.loads(body) == {
        "deleted_at_ms": NOW_S * 1000,
        "ttl_ms": 604800000,
        "relance": {"id": ID, "after": OLD},
    }
    assert decode_mark(body, NOW) == replace(mark, modified=NOW)
    assert not decode_mark(body, None).is_foreign


@pytest.mark.parametrize(
    ("body", "deleted_at", "ttl"),
    [
        (b'{"deleted_at_ms": 1772323200000, "ttl_ms": 604800000}', NOW, WEEK),
        (b'{"ttl_ms": 604800000, "deleted_at_ms": 1772323200000, "by": "somebody"}', NOW, WEEK),
        (b'{"deleted_at_ms": 1772323200000}', NOW, None),
        (b'{"deleted_at_ms": "yesterday", "ttl_ms": -1}', None, None),
        (b'{"deleted_at_ms": true, "ttl_ms": 1e400}', None, None),
        (b'{"deleted_at_ms": 1' + b"0" * 40 + b', "ttl_ms": 1' + b"0" * 40 + b"}", None, None),
        (b'{"relance": {"id": "", "after": ""}}', None, None),
        (b'{"relance": {"id": 7}}', None, None),
        (b'{"relance": {"id": "x", "after": 7}}', None, None),
        (b'{"relance": "mine"}', None, None),
        (b"", None, None),
        (b"not json", None, None),
        (b"[1, 2]", None, None),
        (b"null", None, None),
        (b"\xff\xfe\x00", None, None),
        (b"[" * 10_000, None, None),
        (b'{"ttl_ms": 1, "x": "' + b"x" * BODY_MAX_BYTES + b'"}', None, None),
    ],
)
def test_any_other_marker_is_one_of_another_implementation(
    body: bytes, deleted_at: datetime | None, ttl: timedelta | None
) -> None:
    mark = decode_mark(body, NOW)
    assert mark.is_foreign
    assert (mark.deleted_at, mark.ttl, mark.modified) == (deleted_at, ttl, NOW)
    assert not is_format_1(body)
    assert counts(None, mark)


@pytest.mark.parametrize(
    "body",
    [
        b"0123456789abcdef01234567",
        b"0123456789abcdef01234567:89ab-cd",
        b"sweeping 0123456789abcdef01234567 1772323200000",
        b"writing 0123456789abcdef01234567 1772323200000",
        b'{"format": 1, "state": "deleted", "nonce": "0123456789abcdef01234567"}',
    ],
)
def test_marker_of_format_1_is_recognised(body: bytes) -> None:
    assert is_format_1(body)


# What both mean together: the truth tables.

SHORT = Control(State.CLEARED, "n", undid=OLD)
"""Its deletion that ended last is OLD."""
FOREIGN = Mark(modified=NOW)
OURS = Mark(NOW, WEEK, ID, OLD, NOW)
"""Of the deletion ID, put after OLD had ended."""
LATE = Mark(NOW, WEEK, "late", "older", NOW)


@pytest.mark.parametrize(
    ("control", "mark", "expected"),
    [
        (None, None, False),
        (None, FOREIGN, True),
        (None, replace(OURS, after=""), True),
        (None, OURS, True),
        (SHORT, None, False),
        (SHORT, FOREIGN, True),
        (SHORT, OURS, True),
        (SHORT, LATE, False),
        (replace(SHORT, state=State.WRITING), FOREIGN, True),
        (replace(SHORT, state=State.WRITING), OURS, True),
        (replace(SHORT, state=State.WRITING), LATE, False),
        (DELETED, None, False),
        (DELETED, FOREIGN, True),
        (DELETED, OURS, True),
        (DELETED, LATE, False),
        (Control(State.PURGED, "n", id=OLD), None, False),
        (Control(State.PURGED, "n", id=OLD), FOREIGN, True),
        (Control(State.PURGED, "n", id=OLD), OURS, True),
        (Control(State.PURGED, "n", id=OLD), LATE, False),
    ],
)
def test_marker_counts_when_it_belongs_to_the_present_deletion(
    control: Control | None, mark: Mark | None, expected: bool
) -> None:
    assert counts(None if control is None else marked(control), mark) is expected


@pytest.mark.parametrize(
    ("after", "dropped_later", "expected"),
    [
        (None, 0, False),
        (NOW_S, 0, True),
        (NOW_S, 50 * 60 - 1, True),
        (NOW_S, 50 * 60, False),
        (NOW_S, 51 * 60, False),
    ],
)
def test_drop_within_fifty_minutes_of_the_last_one_is_strict(
    after: int | None, dropped_later: int, expected: bool
) -> None:
    control = replace(DELETED, after=after)
    assert is_strict(marked(control, ago=timedelta(seconds=-dropped_later)), TIMING) is expected
    since = marked(replace(control, since=NOW_S + dropped_later), ago=timedelta(days=-9))
    assert is_strict(since, TIMING) is expected, "the time that a claim kept decides"


def test_own_drop_whose_time_is_not_known_yet_counts_as_strict() -> None:
    assert is_strict(Marked(DELETED, VERSION, None), TIMING)


STRICT = replace(DELETED, after=NOW_S)
PLAIN = replace(DELETED, after=None)


@pytest.mark.parametrize(
    ("control", "mark", "expected"),
    [
        (None, None, Situation.VISIBLE),
        (None, FOREIGN, Situation.DROPPED),
        (None, OURS, Situation.DROPPED),
        (SHORT, None, Situation.VISIBLE),
        (SHORT, FOREIGN, Situation.DROPPED),
        (SHORT, OURS, Situation.DROPPED),
        (SHORT, LATE, Situation.VISIBLE),
        (STRICT, None, Situation.DROPPED),
        (STRICT, FOREIGN, Situation.DROPPED),
        (STRICT, OURS, Situation.DROPPED),
        (STRICT, LATE, Situation.DROPPED),
        (PLAIN, None, Situation.VISIBLE),
        (PLAIN, FOREIGN, Situation.DROPPED),
        (PLAIN, OURS, Situation.DROPPED),
        (PLAIN, LATE, Situation.VISIBLE),
        (BODIES[State.PURGING], None, Situation.PURGING),
        (BODIES[State.PURGING], FOREIGN, Situation.PURGING),
        (BODIES[State.PURGING], OURS, Situation.PURGING),
        (BODIES[State.PURGED], None, Situation.VISIBLE),
        (BODIES[State.PURGED], FOREIGN, Situation.DROPPED),
        (BODIES[State.PURGED], LATE, Situation.VISIBLE),
    ],
)
def test_situation_is_what_arbiter_and_marker_mean_together(
    control: Control | None, mark: Mark | None, expected: Situation
) -> None:
    arbiter = None if control is None else marked(control)
    assert situation(arbiter, mark, TIMING) is expected
    if control is not None and control.state in {State.DELETED, State.PURGED}:
        assert arbiter is not None
        claim = marked(reviving(arbiter, "token", TIMING))
        assert situation(claim, mark, TIMING) is expected, "the claim of a create reads as what it was"


# Bodies that follow from each other.


def test_time_and_fence_are_carried_through_an_overwrite_into_the_drop() -> None:
    visible = marked(cleared(undid=OLD, fence=NOW_S + 5), ago=timedelta(hours=1))
    claim = writing(visible, "token", TIMING)
    assert (claim.undid, claim.fence) == (OLD, NOW_S + 5)
    assert claim.after == seconds(NOW - timedelta(hours=1)), "the time of the cleared body, which said '*'"
    drop = deleted(marked(claim), deletion_id=ID, version=1, ttl=WEEK, timing=TIMING)
    assert drop.after == claim.after
    assert drop.fence == seconds(NOW + TIMING.reach) + 1, "the overruled write may still commit until then"


def test_claim_of_a_create_keeps_what_it_was_taken_from_through_takeovers() -> None:
    dropped = marked(DELETED, ago=timedelta(days=1))
    first = reviving(dropped, "one", TIMING)
    second = reviving(marked(first), "two", TIMING)
    assert first.writers == ("one",)
    assert second.writers == ("one", "two")
    kept = replace(DELETED, since=seconds(NOW - timedelta(days=1)))
    assert first.before == second.before == kept
    assert second.fence == seconds(NOW + TIMING.reach) + 1
    ended = taken_over(marked(second), TIMING)
    assert ended.writers == second.writers, "whoever ends a create writes nothing of its own"
    back = returned(ended, fence=ended.fence)
    assert replace(back, nonce=DELETED.nonce) == replace(kept, fence=ended.fence)


def test_purge_over_a_dead_purge_keeps_its_limit() -> None:
    first = purging(marked(DELETED), TIMING, upto=NOW_S - 100)
    assert (first.id, first.upto, first.lease) == (ID, NOW_S - 100, TIMING.lease)
    second = purging(marked(replace(first, stopped=True)), TIMING, upto=NOW_S + 9999)
    assert (second.id, second.upto, second.before) == (first.id, first.upto, first.before)
    assert not second.stopped
    assert second.token != first.token
    assert purged(second).id == ID


def test_each_body_says_which_deletion_ended_last_and_when() -> None:
    assert (undid(None), after_of(None), fence_of(None, TIMING)) == ("", None, None)
    assert undid(marked(SHORT)) == OLD
    assert undid(marked(BODIES[State.PURGED])) == ID
    assert after_of(marked(BODIES[State.PURGED])) == NOW_S
    assert after_of(marked(cleared(undid=OLD))) == NOW_S
    assert fence_of(marked(BODIES[State.PURGED]), TIMING) is None


def test_bodies_of_equal_states_differ() -> None:
    bodies = {encode_control(cleared(undid=OLD)) for _ in range(100)}
    assert len(bodies) == 100
    assert plain(marked(SHORT)) == marked(SHORT)
