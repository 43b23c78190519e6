"""The ages that Lance reads in a table's config are those that get_auto_cleanup reads."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import lance
import pyarrow as pa
import pytest

from relance import AutoCleanup, DirectoryNamespace
from relance.errors import InvalidInputError
from relance.units import parse_lance_duration

READ = {
    "14days": timedelta(days=14),
    "1day 2h": timedelta(days=1, hours=2),
    "1day2h": timedelta(days=1, hours=2),
    "30min": timedelta(minutes=30),
    "30m": timedelta(minutes=30),
    "1M": timedelta(seconds=2_630_016),
    "2months": timedelta(seconds=2 * 2_630_016),
    "1y": timedelta(days=365.25),
    "2weeks 3 wk 1w": timedelta(weeks=6),
    "1 2d": timedelta(days=12),
    "1.5h": timedelta(minutes=90),
    "1 .5h": timedelta(minutes=90),
    "1h 0.5m": timedelta(hours=1, seconds=30),
    "5hrs": timedelta(hours=5),
    "9secs": timedelta(seconds=9),
    "500ms": timedelta(milliseconds=500),
    "7millis": timedelta(milliseconds=7),
    "10us": timedelta(microseconds=10),
    "10µs": timedelta(microseconds=10),
    "2500ns": timedelta(microseconds=2),
    " 1d\t2\u00a0h\n": timedelta(days=1, hours=2),
    "0": timedelta(0),
    "0s": timedelta(0),
}
REFUSED = [
    "",
    " ",
    "7",
    "00",
    "-1d",
    "+1d",
    ".5h",
    "1.h",
    "1.5.5h",
    "1H",
    "1Day",
    "1mon",
    "1micros",
    "1\u03bcs",
    "1qtr",
    "1d 2",
    "1d, 2h",
    "1h h",
    "1e3s",
    "soon",
]


@pytest.mark.parametrize("text", READ)
def test_every_duration_of_lance_is_read(tmp_path: Path, text: str) -> None:
    catalog = DirectoryNamespace(root=tmp_path)
    settings = {"lance.auto_cleanup.interval": "20", "lance.auto_cleanup.older_than": text}
    dataset = lance.write_dataset(pa.table({"a": [1]}), tmp_path / "t.lance")
    dataset.update_config(settings)
    assert catalog.get_auto_cleanup(["t"]) == AutoCleanup(20, READ[text])


@pytest.mark.parametrize("text", REFUSED)
def test_text_that_lance_does_not_read_is_an_error(text: str) -> None:
    with pytest.raises(InvalidInputError, match="none of Lance's durations"):
        parse_lance_duration(text, what="it")


@pytest.mark.parametrize("text", ["9" * 20 + "d", "9" * 5000 + "s", "1000000y"])
def test_duration_beyond_all_time_is_out_of_range(text: str) -> None:
    with pytest.raises(InvalidInputError, match="out of range"):
        parse_lance_duration(text, what="it")


@pytest.mark.parametrize("text", [*READ, *REFUSED])
def test_lance_itself_reads_the_same_durations(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], text: str
) -> None:
    dataset = lance.write_dataset(pa.table({"a": [1]}), tmp_path / "t.lance")
    dataset.update_config({"lance.auto_cleanup.interval": "1", "lance.auto_cleanup.older_than": text})
    # Lance commits whether or not it can read the age, and says so in its log only.
    assert ("parsing lance.auto_cleanup.older_than" in capfd.readouterr().err) is (text in REFUSED)
