"""The page in a real browser: every plot is drawn inside its frame, nothing overflows, nothing is fetched."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from tests.support.browser import Tab, browser
from tests.support.policy.runs import crowded, every_run, night
from tests.support.services import required

from relance.policy.records import RunRecord
from relance.policy.report import (
    TOP,
    bytes_by_table,
    deleted_ratios,
    freed_by_kind,
    pending_purges,
    slowest_tables,
    to_html,
    versions_by_table,
)

DESKTOP, PHONE, PAPER = 1280, 360, 688
"""Pixels; paper is A4 within its margins."""
LETTER_HEIGHT = 940
"""Pixels of US Letter within its margins; A4 is higher."""

RUNS = {**every_run(), "many": night(10_000), "crowded": crowded()}

PLOTS = """[...document.querySelectorAll('figure')].map(figure => {
  const table = figure.querySelector('table.plot');
  if (!table) return {key: figure.id, said: figure.innerText, height: figure.offsetHeight};
  const box = each => { const b = each.getBoundingClientRect(); return [b.left, b.top, b.right, b.bottom]; };
  const all = (inside, selector) => [...inside.querySelectorAll(selector)];
  const text = each => {
    const range = document.createRange(); range.selectNodeContents(each); return box(range);
  };
  return {
    key: figure.id, height: figure.offsetHeight, frame: box(table),
    axis: box(table.querySelector('.axis')),
    ticks: all(table, '.axis text').filter(each => each.checkVisibility()).map(box),
    rows: all(table, 'tbody tr').map(row => ({
      frame: box(row), name: box(row.querySelector('.name')), drawing: box(row.querySelector('.drawing')),
      marks: all(row, 'circle').map(box), lines: all(row, 'line').map(box),
      figures: all(row, 'td.figure').map(text),
    })),
  };
})"""

OVERFLOWING = """[...document.querySelectorAll('body *')].filter(each =>
  !each.closest('svg') && !each.closest('thead') && each.getBoundingClientRect().right > innerWidth + 0.5
).map(each => each.tagName + ' ' + each.className + ': ' + each.textContent.slice(0, 60))"""


@pytest.fixture(scope="module")
def tab() -> Iterator[Tab]:
    """Run one browser for this module, or skip where there is none."""
    with required("apt-get"), browser() as found:
        yield found


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Write the page of every run."""
    folder = tmp_path_factory.mktemp("pages")
    found = {}
    for name, record in RUNS.items():
        found[name] = folder / f"{name}.html"
        found[name].write_text(to_html(record), encoding="utf-8")
    return found


def expected_marks(record: RunRecord) -> dict[str, int]:
    """Return how many marks each plot must show; plots with none are sentences."""
    chosen = {
        "freed": freed_by_kind(record),
        "bytes": bytes_by_table(record),
        "versions": versions_by_table(record),
        "deleted": deleted_ratios(record),
        "slowest": slowest_tables(record),
    }
    marks = {key: sum(1 if bar.after is None else 2 for bar in each.bars) for key, each in chosen.items()}
    shown = pending_purges(record).shown
    marks["waiting"] = sum((each.since is not None) + (each.until is not None) for each in shown)
    return marks


def is_inside(box: list[float], frame: list[float]) -> bool:
    left, top, right, bottom = frame
    return box[0] >= left - 1 and box[1] >= top - 1 and box[2] <= right + 1 and box[3] <= bottom + 1


@pytest.mark.parametrize("width", [DESKTOP, PHONE])
@pytest.mark.parametrize("name", list(RUNS))
def test_plots_fit_their_frames_and_the_page_fits_the_window(
    tab: Tab, pages: dict[str, Path], name: str, width: int
) -> None:
    sent = tab.open(pages[name], width=width)
    assert sent == [pages[name].as_uri()]
    tab.evaluate("document.querySelectorAll('details').forEach(each => { each.open = true; })")
    assert tab.evaluate("innerWidth") == width
    assert tab.evaluate("document.documentElement.scrollWidth") <= width
    assert tab.evaluate(OVERFLOWING) == []
    # The page's policy let its style sheet in.
    assert tab.evaluate("getComputedStyle(document.querySelector('.tiles')).display") == "grid"
    plots: list[dict[str, Any]] = tab.evaluate(PLOTS)
    marks = {each["key"]: sum(len(row["marks"]) for row in each.get("rows", [])) for each in plots}
    assert marks == expected_marks(RUNS[name])
    for plot in plots:
        if "frame" in plot:
            check_plot(plot)
        else:
            assert len(plot["said"].splitlines()) >= 2


def check_plot(plot: dict[str, Any]) -> None:
    frame, rows, axis = plot["frame"], plot["rows"], plot["axis"]
    assert frame[2] - frame[0] > 250
    for row in rows:
        assert is_inside(row["frame"], frame)
        drawing = row["drawing"]
        # All drawings of a plot stand under one axis, which is wide enough to compare them.
        assert (drawing[0], drawing[2]) == (axis[0], axis[2])
        assert drawing[2] - drawing[0] > 90
        for mark in row["marks"]:
            assert min(mark[2] - mark[0], mark[3] - mark[1]) >= 7.9
        for box in [*row["marks"], *row["lines"]]:
            assert is_inside(box, drawing), (plot["key"], box, drawing)
        assert row["name"][3] <= drawing[1] + 1
        boxes = [drawing, *row["figures"]]
        for box in row["figures"]:
            assert is_inside(box, row["frame"]), (plot["key"], box, row["frame"])
        assert all(left[2] <= right[0] for left, right in pairwise(boxes)), (plot["key"], boxes)
    for tick in plot["ticks"]:
        assert is_inside(tick, axis), (plot["key"], tick, axis)
    ticks = sorted(plot["ticks"])
    assert all(left[2] <= right[0] for left, right in pairwise(ticks)), (plot["key"], ticks)


def test_hostile_names_add_no_elements_to_the_page(tab: Tab, pages: dict[str, Path]) -> None:
    tab.open(pages["hostile"], width=DESKTOP)
    assert tab.evaluate("document.querySelectorAll('script, img, iframe, object, form, a').length") == 0
    assert tab.evaluate("document.querySelectorAll('style').length") == 1
    assert str(tab.evaluate("document.title")).startswith("Relance: ")
    assert tab.evaluate("document.querySelectorAll('figure').length") == 6


def test_browser_helper_reports_requests_made_by_a_page(tab: Tab, tmp_path: Path) -> None:
    fetching = tmp_path / "fetching.html"
    fetching.write_text("<!doctype html><img src='http://127.0.0.1:9/picture.png'>")
    assert "http://127.0.0.1:9/picture.png" in tab.open(fetching, width=DESKTOP)


def test_page_follows_the_dark_or_light_preference(tab: Tab, pages: dict[str, Path]) -> None:
    paper = "getComputedStyle(document.body).backgroundColor"
    tab.open(pages["night"], width=DESKTOP)
    light = tab.evaluate(paper)
    tab.open(pages["night"], width=DESKTOP, dark=True)
    assert light == "rgb(255, 255, 255)"
    assert tab.evaluate(paper) == "rgb(18, 24, 31)"


@pytest.mark.parametrize("name", ["night", "dry_run", "hostile", "many", "crowded"])
def test_printed_plots_fit_a_sheet_and_are_light(tab: Tab, pages: dict[str, Path], name: str) -> None:
    tab.open(pages[name], width=PAPER, media="print", dark=True)
    assert tab.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert tab.evaluate("document.documentElement.scrollWidth") <= PAPER
    for plot in tab.evaluate(PLOTS):
        assert plot["height"] <= LETTER_HEIGHT, plot["key"]
        if "frame" in plot:
            check_plot(plot)
    inside = "[...document.querySelectorAll('figure, tr')].map(each => getComputedStyle(each).breakInside)"
    assert set(tab.evaluate(inside)) == {"avoid"}


def test_folded_failures_are_printed(tab: Tab, pages: dict[str, Path]) -> None:
    seen = "[...document.querySelectorAll('.failures dt')].filter(each => each.checkVisibility()).length"
    tab.open(pages["crowded"], width=PHONE)
    assert tab.evaluate(seen) == TOP
    tab.open(pages["crowded"], width=PAPER, media="print")
    assert tab.evaluate(seen) == 50
    assert tab.evaluate("document.querySelector('.failures').innerText").count("and_more_words_0000") >= 1


def test_page_can_be_printed_as_pdf(tab: Tab, pages: dict[str, Path]) -> None:
    tab.open(pages["night"], width=DESKTOP)
    printed = tab.pdf()
    assert printed.startswith(b"%PDF")
    assert 3 <= len(re.findall(rb"/Type\s*/Page\b(?!s)", printed)) <= 12
