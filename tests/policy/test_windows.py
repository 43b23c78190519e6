"""Windows: open when they should be, across midnight, days of the week and changes of the clock."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from relance.errors import InvalidInputError
from relance.policy.windows import DAYS, Window, check_timezone, parse_span

BERLIN = ZoneInfo("Europe/Berlin")
NIGHT = Window(*parse_span("22:00-06:00"), timezone="Europe/Berlin")


@pytest.mark.parametrize(
    ("hour", "is_open"), [(21, False), (22, True), (23, True), (0, True), (5, True), (6, False), (12, False)]
)
def test_window_across_midnight_follows_local_time(hour: int, is_open: bool) -> None:
    assert NIGHT.is_open(datetime(2026, 7, 1, hour, tzinfo=BERLIN).astimezone(UTC)) is is_open


def test_days_of_a_window_are_those_on_which_it_opens() -> None:
    friday = Window(*parse_span("22:00-06:00"), days=("fri",))
    assert friday.is_open(datetime(2026, 11, 21, 5, tzinfo=UTC))  # a Saturday
    assert not friday.is_open(datetime(2026, 11, 20, 5, tzinfo=UTC))
    assert friday.opens_at(datetime(2026, 11, 20, 23, tzinfo=UTC)) == datetime(2026, 11, 27, 22, tzinfo=UTC)


def test_all_day_window_is_open_until_midnight() -> None:
    sunday = Window(*parse_span("00:00-24:00"), days=("sun",))
    assert sunday.is_open(datetime(2026, 11, 15, 23, 59, 59, tzinfo=UTC))
    assert not sunday.is_open(datetime(2026, 11, 16, tzinfo=UTC))


def test_window_follows_daylight_saving_time() -> None:
    # On 29 March 2026 two o'clock becomes three in Berlin.
    short = Window(*parse_span("01:00-04:00"), timezone="Europe/Berlin")
    midnight = datetime(2026, 3, 28, 23, tzinfo=UTC)
    opened = [minute for minute in range(360) if short.is_open(midnight + timedelta(minutes=minute))]
    assert opened == list(range(60, 180))


def test_window_starting_in_a_skipped_hour_still_opens() -> None:
    skipped = Window(*parse_span("02:30-05:00"), timezone="Europe/Berlin")
    assert skipped.is_open(datetime(2026, 3, 29, 2, tzinfo=UTC))


@settings(max_examples=100)
@given(
    st.integers(0, 4_000_000_000).map(lambda seconds: datetime.fromtimestamp(seconds, UTC)),
    st.integers(0, 1439),
    st.integers(1, 1440),
    st.lists(st.sampled_from(DAYS), min_size=1, unique=True),
    st.sampled_from(["UTC", "Europe/Berlin", "America/St_Johns", "Pacific/Apia", "Australia/Lord_Howe"]),
)
def test_window_is_closed_until_it_opens(
    now: datetime, start: int, end: int, days: list[str], zone: str
) -> None:
    window = Window(start, end, tuple(days), zone)
    opens = window.opens_at(now)
    assert opens > now
    assert window.is_open(opens) or _changes(opens)
    if not window.is_open(now):
        assert not window.is_open(now + (opens - now) / 2)


def _changes(moment: datetime) -> bool:
    """Tell whether the clock is changed that night, so that the span may be gone as a whole."""
    day = timedelta(days=1)
    return (moment - day).utcoffset() != (moment + day).utcoffset()


@pytest.mark.parametrize("text", ["", "22-6", "22:00", "24:00-06:00", "22:60-23:00", "10:00-10:00"])
def test_invalid_time_span_is_refused(text: str) -> None:
    with pytest.raises(InvalidInputError):
        parse_span(text)


@pytest.mark.parametrize(
    "name", ["", "Europe", "../etc/x", "/etc/passwd", "Mars/Base", "a\0b", "x" * 5000, "ü"]
)
def test_unknown_time_zone_is_refused(name: str) -> None:
    with pytest.raises(InvalidInputError, match="time zone"):
        check_timezone(name)
