"""Figures as people read them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relance import amounts


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (None, "–"),
        (0, "0 B"),
        (999, "999 B"),
        (1000, "1 kB"),
        (1_550, "1.55 kB"),
        (12_340_000, "12.3 MB"),
        (999_499, "999 kB"),
        (999_500, "1 MB"),
        (123_456_789_012, "123 GB"),
        (10**18, "1 EB"),
        (10**24, "1.0e+06 EB"),
        (-2_500_000, "-2.5 MB"),
    ],
)
def test_byte_sizes_have_three_digits_and_a_unit(size: int | None, text: str) -> None:
    assert amounts.in_bytes(size) == text


@given(st.integers(min_value=0, max_value=2**90))
def test_byte_sizes_and_counts_fit_a_narrow_column(size: int) -> None:
    assert len(amounts.in_bytes(size)) <= 10
    assert len(amounts.short_count(size)) <= 10


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (None, "–"),
        (0, "0"),
        (1234, "1,234"),
        (9_999_999, "9,999,999"),
        (12_300_000, "12.3 M"),
        (7 * 10**9, "7 bn"),
    ],
)
def test_counts_are_exact_as_long_as_they_fit(number: int | None, text: str) -> None:
    assert amounts.short_count(number) == text


def test_plural_matches_its_number() -> None:
    assert amounts.plural(1, "table") == "1 table"
    assert amounts.plural(0, "table") == "0 tables"
    assert amounts.plural(2000, "entry", "entries") == "2,000 entries"


@pytest.mark.parametrize(
    ("ratio", "text"),
    [(0, "0 %"), (0.00001, "< 0.1 %"), (0.125, "12.5 %"), (0.5, "50 %"), (0.99999, "> 99.9 %"), (1, "100 %")],
)
def test_partial_share_never_reads_as_zero_or_whole(ratio: float, text: str) -> None:
    assert amounts.share(ratio) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 s"),
        (0.001, "< 0.01 s"),
        (0.25, "0.25 s"),
        (9.949, "9.95 s"),
        (9.96, "10 s"),
        (59.6, "1 min"),
        (200, "3 min 20 s"),
        (3600, "1 h"),
        (7500, "2 h 5 min"),
        (100_000, "1 d 3 h"),
        (-5, "-5 s"),
    ],
)
def test_durations_have_at_most_two_units(seconds: float, text: str) -> None:
    assert amounts.duration(timedelta(seconds=seconds)) == text


def test_instants_are_shown_in_utc() -> None:
    paris = timezone(timedelta(hours=1))
    assert amounts.instant(datetime(2026, 3, 1, 0, 30, tzinfo=paris)) == "2026-02-28 23:30 UTC"
    assert amounts.day(datetime(2026, 3, 1, 0, 30, tzinfo=UTC)) == "2026-03-01"
    assert amounts.instant(None) == "–"


def test_difference_has_a_sign() -> None:
    assert amounts.difference(5, 8) == "+3"
    assert amounts.difference(3_000_000, 1_000_000, is_bytes=True) == "−2 MB"
    assert amounts.difference(4, 4) == "±0"
