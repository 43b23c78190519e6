"""Predicates with the time of the run written into them, and what Lance makes of those."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import lance
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from relance.errors import InvalidInputError
from relance.jobs.predicates import check_predicate, depends_on_time, pin_time

NOW = datetime(2026, 3, 31, 12, 30, 0, 250, tzinfo=UTC)


def _at(text: str) -> str:
    return f"arrow_cast('{text}Z', 'Timestamp(Microsecond, Some(\"UTC\"))')"


PINNED = _at("2026-03-31T12:30:00.000250")


@pytest.mark.parametrize(
    ("text", "pinned"),
    [
        ("ts < now()", f"ts < {PINNED}"),
        ("ts<NOW ( )", f"ts<{PINNED}"),
        ("ts < current_timestamp", f"ts < {PINNED}"),
        ("ts < Current_Timestamp()", f"ts < {PINNED}"),
        ("ts < now() - interval '90 days'", f"ts < {_at('2025-12-31T12:30:00.000250')}"),
        ("ts < now() -\ninterval '90' DAY and x", f"ts < {_at('2025-12-31T12:30:00.000250')} and x"),
        ("ts < now() - interval 2 hours", f"ts < {_at('2026-03-31T10:30:00.000250')}"),
        ("ts < now() - INTERVAL '1 month'", f"ts < {_at('2026-02-28T12:30:00.000250')}"),
        ("ts < now() - interval '1 year 2 days 3 hours'", f"ts < {_at('2025-03-29T09:30:00.000250')}"),
        ("ts < now() + interval '1 week' - interval '1 second'", f"ts < {_at('2026-04-07T12:29:59.000250')}"),
        ("day < current_date", "day < date '2026-03-31'"),
        ("day < today() - interval '1 week'", "day < date '2026-03-24'"),
        ("day < current_date() - interval '3 months'", "day < date '2025-12-31'"),
        ("ts < current_date - interval '1 hour'", f"ts < {_at('2026-03-30T23:00:00.000000')}"),
        ("now() > a or b < now()", f"{PINNED} > a or b < {PINNED}"),
        ("(now()) /* now() */ > a -- now()", f"({PINNED}) /* now() */ > a -- now()"),
    ],
)
def test_current_time_is_pinned_in_a_predicate(text: str, pinned: str) -> None:
    assert depends_on_time(text)
    assert pin_time(text, NOW) == pinned


@pytest.mark.parametrize(
    "text",
    [
        "x = 'now()'",
        "x = 'it''s now()'",
        "`now()` > 3",
        "`current_date` > 3",
        '"current_date" > 3',
        "now > 3",
        "a.current_date > 3",
        "current_date.a > 3",
        "know() > 3",
        "now_() > 3",
        "current_dates > 3",
        "x > 3 -- now()",
        "x > 3 /* current_date\n */",
        "interval > 3",
        "now(1) > 2",
    ],
)
def test_text_that_only_resembles_the_current_time_is_kept(text: str) -> None:
    assert not depends_on_time(text)
    assert pin_time(text, NOW) == text


def test_time_in_another_zone_is_pinned_to_the_same_instant() -> None:
    there = NOW.astimezone(timezone(timedelta(hours=-9)))
    assert pin_time("ts < now() and d < current_date", there) == f"ts < {PINNED} and d < date '2026-03-31'"


@pytest.mark.parametrize(
    ("text", "column", "message"),
    [
        ("ts < now()", None, "time_column"),
        ("ts < now()", "day", "does not use"),
        ("x = 'ts' and now() > y", "ts", "does not use"),
        ("ts + interval '1 day' < now()", "ts", "only be added to"),
        ("ts < interval '1 day' + now()", "ts", "only be added to"),
        ("ts < now() - interval '1 fortnight'", "ts", "invalid interval"),
        ("ts < now() - interval ''", "ts", "invalid interval"),
        ("ts < now() - interval '90'", "ts", "invalid interval"),
        ("ts < now() - interval '-1 day'", "ts", "invalid interval"),
        ("ts < now() - interval '9999 years'", "ts", "out of range"),
        ("ts < now() - interval '999999999 weeks'", "ts", "too long|out of range"),
        ("ts < now() - interval '1 day' * 2", "ts", "followed by"),
        ("x > random()", None, "different result in each run"),
        ("x > current_time", None, "different result in each run"),
        ("x = 'a", None, "unclosed"),
        ("x = `a", None, "unclosed"),
        ("x > 3; drop table y", None, "semicolon"),
    ],
)
def test_invalid_time_predicate_is_refused(text: str, column: str | None, message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        check_predicate(text, column)


@pytest.mark.parametrize(
    ("text", "column"),
    [("x > 3", None), ("ts < now()", "ts"), ("`my ts` < now()", "my ts"), ("ts < date '2026-01-01'", "ts")],
)
def test_valid_time_predicate_is_accepted(text: str, column: str | None) -> None:
    check_predicate(text, column)


FRAGMENTS = st.sampled_from(
    [
        "now()",
        "now",
        "(",
        ")",
        "'",
        '"',
        "`",
        "--",
        "/*",
        "*/",
        "\n",
        " ",
        "interval",
        "'1 day'",
        "-",
        "+",
        "current_date",
        "a",
        "9",
        ".",
    ]
)


@pytest.mark.parametrize("text", ["ts < now() - interval '90 days", 'interval"now()', "`ts < now()"])
def test_unclosed_quote_is_refused(text: str) -> None:
    with pytest.raises(InvalidInputError, match="unclosed"):
        pin_time(text, NOW)


@settings(max_examples=250)
@given(st.lists(FRAGMENTS, max_size=12).map("".join))
@example("interval'now()")
def test_pinned_predicate_no_longer_depends_on_the_time(text: str) -> None:
    try:
        pinned = pin_time(text, NOW)
    except InvalidInputError:
        return
    assert not depends_on_time(pinned) or not depends_on_time(text)
    assert pin_time(pinned, NOW + timedelta(days=1)) == pinned


COLUMNS = {
    "plain": pa.timestamp("us"),
    "coarse": pa.timestamp("s"),
    "fine": pa.timestamp("ns"),
    "utc": pa.timestamp("us", "UTC"),
    "east": pa.timestamp("ms", "+02:00"),
    "west": pa.timestamp("us", "America/New_York"),
}


@pytest.fixture(scope="module")
def events(tmp_path_factory: pytest.TempPathFactory) -> lance.LanceDataset:
    path: Path = tmp_path_factory.mktemp("lance")
    start = datetime(2026, 3, 31, tzinfo=UTC)
    moments = [start + timedelta(hours=each) for each in range(24)]
    data = {name: pa.array(moments, holds) for name, holds in COLUMNS.items()}
    data["day"] = pa.array([(start + timedelta(days=each)).date() for each in range(-12, 12)], pa.date32())
    return lance.write_dataset(pa.table(data), str(path / "events.lance"))


@pytest.mark.parametrize("column", COLUMNS)
def test_lance_reads_the_pinned_time_as_the_same_instant_in_every_zone(
    events: lance.LanceDataset, column: str
) -> None:
    assert events.count_rows(pin_time(f"{column} < now()", NOW)) == 13
    assert events.count_rows(pin_time(f"{column} < now() - interval '3 hours'", NOW)) == 10
    assert events.count_rows(pin_time(f"now() - interval '1 day' >= {column}", NOW)) == 0


def test_lance_compares_dates_with_pinned_dates_and_times(events: lance.LanceDataset) -> None:
    assert events.count_rows(pin_time("day < current_date", NOW)) == 12
    assert events.count_rows(pin_time("day < now()", NOW)) == 13
    assert events.count_rows(pin_time("day < today() - interval '2 days'", NOW)) == 10
