"""Durations, sizes and instants: read, and printed as people read them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relance import units
from relance.errors import InvalidInputError
from relance.policy.parse import parse_policy
from relance.spark.options import parse_read_options, parse_write_options


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
    assert units.in_bytes(size) == text


@given(st.integers(min_value=0, max_value=2**90))
def test_byte_sizes_and_counts_fit_a_narrow_column(size: int) -> None:
    assert len(units.in_bytes(size)) <= 10
    assert len(units.short_count(size)) <= 10


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
    assert units.short_count(number) == text


def test_plural_matches_its_number() -> None:
    assert units.plural(1, "table") == "1 table"
    assert units.plural(0, "table") == "0 tables"
    assert units.plural(2000, "entry", "entries") == "2,000 entries"


@pytest.mark.parametrize(
    ("ratio", "text"),
    [(0, "0 %"), (0.00001, "< 0.1 %"), (0.125, "12.5 %"), (0.5, "50 %"), (0.99999, "> 99.9 %"), (1, "100 %")],
)
def test_partial_share_never_reads_as_zero_or_whole(ratio: float, text: str) -> None:
    assert units.share(ratio) == text


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
    assert units.duration(timedelta(seconds=seconds)) == text


def test_instants_are_shown_in_utc() -> None:
    paris = timezone(timedelta(hours=1))
    assert units.instant(datetime(2026, 3, 1, 0, 30, tzinfo=paris)) == "2026-02-28 23:30 UTC"
    assert units.day(datetime(2026, 3, 1, 0, 30, tzinfo=UTC)) == "2026-03-01"
    assert units.instant(None) == "–"


def test_difference_has_a_sign() -> None:
    assert units.difference(5, 8) == "+3"
    assert units.difference(3_000_000, 1_000_000, is_bytes=True) == "−2 MB"
    assert units.difference(4, 4) == "±0"


DURATIONS = {
    "7d": timedelta(days=7),
    " 12H ": timedelta(hours=12),
    "1d 6h": timedelta(days=1, hours=6),
    "1d6h30m": timedelta(days=1, hours=6, minutes=30),
    "2w": timedelta(weeks=2),
    "90 s": timedelta(seconds=90),
    "1500ms": timedelta(seconds=1.5),
    "1.5h": timedelta(minutes=90),
    "0.0005ms": timedelta(0),
    "3 min 20 s": timedelta(seconds=200),
    "0": timedelta(0),
}


@pytest.mark.parametrize("text", DURATIONS)
def test_duration_is_read(text: str) -> None:
    assert units.parse_duration(text, what="it") == DURATIONS[text]


@pytest.mark.parametrize("text", ["30", "-30", "1_000", "1.5", "00", "9" * 5000])
def test_duration_without_a_unit_is_refused_and_the_units_named(text: str) -> None:
    with pytest.raises(InvalidInputError, match=r"it has no unit: .*7d, 12h, .*units: w, d, h, m"):
        units.parse_duration(text, what="it")


@pytest.mark.parametrize("text", ["", " ", "soon", "-1d", "1d 2", "1.d", ".5d", "1y", "1e3s", "٣d", "1d, 2h"])
def test_text_that_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(InvalidInputError, match="it is not a duration"):
        units.parse_duration(text, what="it")


@pytest.mark.parametrize("text", ["365001d", "9" * 60 + "w"])
def test_duration_out_of_range_is_refused(text: str) -> None:
    with pytest.raises(InvalidInputError, match=r"it is out of range: .*at most 365000d"):
        units.parse_duration(text, what="it")


def test_message_without_a_name_starts_with_the_complaint() -> None:
    with pytest.raises(InvalidInputError) as raised:
        units.parse_duration("7", what="")
    assert raised.value.detail.startswith("has no unit: '7'")


def test_ttl_ms_of_a_request_may_be_a_number() -> None:
    assert units.parse_ttl_ms("1500", what="ttl_ms") == units.parse_ttl_ms("1500ms", what="ttl_ms")
    assert units.parse_ttl_ms(" 12h ", what="ttl_ms") == timedelta(hours=12)
    for text in ("soon", "9" * 90, "-1"):
        with pytest.raises(InvalidInputError, match="ttl_ms"):
            units.parse_ttl_ms(text, what="ttl_ms")


SIZES = {
    "128MB": 128_000_000,
    "128mb": 128_000_000,
    "128MiB": 134_217_728,
    "128 mib": 134_217_728,
    "1.5kB": 1500,
    "0B": 0,
    "500GB": 500_000_000_000,
    "1 TiB": 1 << 40,
    "7EB": 7 * 10**18,
    "1.0001kB": 1000,
}


@pytest.mark.parametrize("text", SIZES)
def test_size_is_decimal_unless_its_unit_is_binary(text: str) -> None:
    assert units.parse_size(text, what="it") == SIZES[text]


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("128", "has no unit: '128'; use a value such as 500GB or 128MiB"),
        ("1_000_000", "has no unit"),
        ("64m", "is not a size"),
        ("", "is not a size"),
        ("12 parsecs", "is not a size"),
        ("-1MB", "is not a size"),
        ("10EB", "is out of range"),
        ("9" * 200 + "B", "is not a size"),
    ],
)
def test_text_that_is_no_size_is_refused(text: str, complaint: str) -> None:
    with pytest.raises(InvalidInputError, match=f"it {complaint}"):
        units.parse_size(text, what="it")


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("2026-03-01", datetime(2026, 3, 1, tzinfo=UTC)),
        ("2026-03-01T12:00:00+01:00", datetime(2026, 3, 1, 11, tzinfo=UTC)),
        (" 2026-03-01 14:05 UTC", datetime(2026, 3, 1, 14, 5, tzinfo=UTC)),
    ],
)
def test_instant_without_a_zone_is_in_utc(text: str, moment: datetime) -> None:
    found = units.parse_instant(text, what="it")
    assert (found, found.tzinfo) == (moment, UTC)


@pytest.mark.parametrize("text", ["", "soon", "20260301", "1772323200", "2026-13-01", "0001-01-01T00+14"])
def test_text_that_is_no_instant_is_refused(text: str) -> None:
    with pytest.raises(InvalidInputError, match="it is not a time"):
        units.parse_instant(text, what="it")


@given(st.timedeltas(min_value=timedelta(0), max_value=units.LONGEST))
def test_exact_duration_is_read_as_the_same(span: timedelta) -> None:
    assert units.parse_duration(units.exact_duration(span), what="it") == span
    assert units.parse_lance_duration(units.lance_duration(span), what="it") == span


@given(st.timedeltas(min_value=timedelta(seconds=0.01), max_value=timedelta(days=999)))
def test_duration_for_reading_is_read_as_about_the_same(span: timedelta) -> None:
    assert abs(units.parse_duration(units.duration(span), what="it") / span - 1) <= 0.5


@given(st.integers(min_value=0, max_value=2**63 - 1))
def test_printed_size_is_read_as_about_the_same(size: int) -> None:
    assert abs(units.parse_size(units.in_bytes(size), what="it") - size) <= 0.005 * size


@given(st.datetimes(timezones=st.just(UTC)).filter(lambda moment: moment.year >= 1000))
def test_printed_instant_is_read_as_the_same(moment: datetime) -> None:
    assert units.parse_instant(units.instant(moment), what="it") == moment.replace(second=0, microsecond=0)
    assert units.parse_instant(units.instant_to_second(moment), what="it") == moment.replace(microsecond=0)
    assert units.parse_instant(units.day(moment), what="it") == moment.replace(
        hour=0, minute=0, second=0, microsecond=0
    )


@pytest.mark.parametrize(("text", "size"), [("128MB", 128_000_000), ("128MiB", 134_217_728)])
def test_policies_and_spark_read_a_size_alike(text: str, size: int) -> None:
    policy = f'[[rules]]\nname = "a"\ntables = "**"\ncompact = {{ target_bytes = "{text}" }}\n'
    (rule,) = parse_policy(policy, file="policy.toml").rules
    assert [getattr(job, "target_bytes", None) for job in rule.jobs.values()] == [size]
    read = parse_read_options({"path": "t", "root": "/x", "split_bytes": text})
    write = parse_write_options({"path": "t", "root": "/x", "max_bytes_per_file": text})
    assert (read.split_bytes, write.max_bytes_per_file) == (size, size)
