"""Marker bytes round-trip; damaged or newer markers are never misread."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relance.errors import InvalidTableStateError
from relance.lifecycle import moves
from relance.lifecycle.marker import SHORT_MAX_BYTES, Marker, decode, encode, is_hidden_size
from relance.lifecycle.marker_store import new_nonce

NONCES = st.text("0123456789abcdef", min_size=24, max_size=24)
MOMENTS = st.datetimes(
    min_value=datetime.fromisoformat("1971-01-01"),
    max_value=datetime.fromisoformat("2200-01-01"),
    timezones=st.just(UTC),
).map(lambda moment: moment.replace(microsecond=moment.microsecond // 1000 * 1000))
SPANS = st.integers(min_value=0, max_value=10**12).map(lambda ms: timedelta(milliseconds=ms))


@st.composite
def markers(draw: st.DrawFn) -> Marker:
    """Any marker that the moves can make."""
    nonce, at, ttl = draw(NONCES), draw(MOMENTS), draw(SPANS)
    start = draw(st.sampled_from([None, moves.cleared(nonce), moves.deregister(None, nonce, at=at)]))
    dropped = moves.drop(start, nonce, at=at, ttl=ttl, version=draw(st.integers(0, 2**40)))
    claimed = moves.claim_purge(dropped, nonce, token=draw(NONCES), until=draw(MOMENTS))
    purged = moves.finish_purge(claimed, nonce, at=draw(MOMENTS))
    reviving = moves.claim_revival(draw(st.sampled_from([dropped, purged])), nonce, token=nonce, until=at)
    cleared = moves.cleared(nonce, undid=draw(st.sampled_from(["", nonce])))
    sweeping = moves.claim_sweep(draw(st.sampled_from([cleared, purged])), nonce, until=at)
    hidden = moves.deregister(None, nonce, at=at)
    writing = moves.claim_write(None, nonce, until=at)
    overruled = moves.drop(writing, nonce, at=at, ttl=ttl, version=1)
    return draw(
        st.sampled_from([dropped, claimed, purged, reviving, cleared, sweeping, hidden, writing, overruled])
    )


@given(markers())
def test_encoded_marker_round_trips_and_its_size_says_if_it_hides(marker: Marker) -> None:
    body = encode(marker)
    assert is_hidden_size(len(body)) == marker.hides
    found = decode(body, name="t")
    assert encode(found) == body
    assert (found.state, found.nonce, found.deleted_at) == (marker.state, marker.nonce, marker.deleted_at)
    assert found.hides == marker.hides


@given(st.binary(max_size=300))
def test_decode_of_any_bytes_returns_a_marker_or_a_typed_error(body: bytes) -> None:
    try:
        marker = decode(body, name="t")
    except InvalidTableStateError:
        return
    assert is_hidden_size(len(body)) == marker.hides


@given(markers(), st.data())
def test_truncated_marker_never_decodes_as_a_hidden_state(marker: Marker, data: st.DataObject) -> None:
    body = encode(marker)
    cut = body[: data.draw(st.integers(0, len(body) - 1))]
    try:
        found = decode(cut, name="t")
    except InvalidTableStateError:
        return
    assert not is_hidden_size(len(cut))
    assert not found.hides


@pytest.mark.parametrize(
    "change",
    [
        {"format": 2},
        {"state": "melted"},
        {"state": "cleared"},
        {"deleted_at_ms": "soon"},
        {"ttl_ms": -1},
        {"ttl_ms": None},
        {"nonce": 7},
        {"version": None},
        {"state": "purging"},
    ],
)
def test_marker_with_an_unknown_format_or_invalid_field_is_refused(change: dict[str, object]) -> None:
    dropped = moves.drop(None, new_nonce(), at=datetime(2026, 1, 1, tzinfo=UTC), ttl=timedelta(1), version=1)
    body = json.dumps({**json.loads(encode(dropped)), **change}).encode()
    with pytest.raises(InvalidTableStateError):
        decode(body, name="t")


def test_marker_bytes_match_the_format_page() -> None:
    at = datetime(2026, 3, 1, tzinfo=UTC)
    assert encode(moves.drop(None, "a" * 24, at=at, ttl=timedelta(days=7), version=3)) == (
        b'{"format": 1, "state": "deleted", "deleted_at_ms": 1772323200000, "ttl_ms": 604800000, '
        b'"nonce": "aaaaaaaaaaaaaaaaaaaaaaaa", "version": 3, "deletion_id": "aaaaaaaaaaaaaaaaaaaaaaaa"}'
    )
    assert len(encode(moves.cleared(new_nonce(), undid=new_nonce()))) <= SHORT_MAX_BYTES
