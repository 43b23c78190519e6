"""When a purge may begin and when a claim's holder counts as gone, with two clocks."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from relance.config import parse_duration
from relance.errors import InvalidInputError
from relance.lifecycle import moves
from relance.lifecycle.retention import (
    Timing,
    creators_are_gone,
    holder_is_gone,
    is_due,
    is_purgeable,
    purge_after,
)

NOW = datetime(2026, 3, 1, tzinfo=UTC)
TIMING = Timing()
DROPPED = moves.drop(None, "n", at=NOW, ttl=timedelta(days=7), version=1)
SECOND = timedelta(seconds=1)


def test_table_is_purgeable_after_its_retention_period_plus_clock_skew() -> None:
    due = NOW + timedelta(days=7)
    assert purge_after(DROPPED) == due
    assert not is_purgeable(DROPPED, now=due, timing=TIMING)
    assert not is_purgeable(DROPPED, now=due + TIMING.clock_skew - SECOND, timing=TIMING)
    assert is_purgeable(DROPPED, now=due + TIMING.clock_skew, timing=TIMING)


def test_table_that_is_not_dropped_is_never_purgeable() -> None:
    for marker in (
        moves.cleared("n"),
        moves.deregister(None, "n", at=NOW),
        moves.claim_revival(DROPPED, "n", token="t", until=NOW),
    ):
        assert not is_purgeable(marker, now=NOW + timedelta(days=10_000), timing=TIMING)


def test_holder_is_gone_only_after_lease_clock_skew_and_request_age() -> None:
    claimed = moves.claim_purge(DROPPED, "n", token="t", until=NOW)
    wait = TIMING.clock_skew + TIMING.request_age
    assert not holder_is_gone(claimed, now=NOW + wait, timing=TIMING)
    assert holder_is_gone(claimed, now=NOW + wait + SECOND, timing=TIMING)
    assert not holder_is_gone(DROPPED, now=NOW + timedelta(days=999), timing=TIMING)


def test_expired_drops_and_abandoned_purges_are_due() -> None:
    claimed = moves.claim_purge(DROPPED, "n", token="t", until=NOW)
    wait = TIMING.clock_skew + TIMING.request_age
    assert not is_due(claimed, now=NOW + wait, timing=TIMING)
    assert is_due(claimed, now=NOW + wait + SECOND, timing=TIMING)
    assert not is_due(DROPPED, now=NOW + wait + SECOND, timing=TIMING)
    assert is_due(DROPPED, now=NOW + timedelta(days=7) + TIMING.clock_skew, timing=TIMING)


def test_creators_are_gone_after_commit_timeout_request_age_and_clock_skew() -> None:
    wait = TIMING.commit_timeout + TIMING.request_age + TIMING.clock_skew
    assert not creators_are_gone(DROPPED, now=NOW + wait, timing=TIMING)
    assert creators_are_gone(DROPPED, now=NOW + wait + SECOND, timing=TIMING)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("7d", 604800),
        ("12h", 43200),
        ("1d 6h", 108000),
        ("90s", 90),
        ("500ms", 0.5),
        ("1000", 1),
        ("0", 0),
        ("2W", 1209600),
    ],
)
def test_durations_are_parsed_with_units(text: str, seconds: float) -> None:
    assert parse_duration(text, what="x") == timedelta(seconds=seconds)


@pytest.mark.parametrize("text", ["", "d", "-1d", "1.5h", "7 days", "1y", "9" * 30, "9" * 30 + "d", "٣d"])
def test_invalid_duration_is_refused(text: str) -> None:
    with pytest.raises(InvalidInputError):
        parse_duration(text, what="drop_ttl")
