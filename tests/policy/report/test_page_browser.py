"""The page in a real browser: every plot is drawn inside its frame, nothing overflows, nothing is fetched."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.browser import Tab, browser
from tests.support.policy.runs import every_run, night
from tests.support.services import required

from relance.policy.records import RunRecord
from relance.policy.report import to_html
from relance.policy.report.selection import (
    bytes_by_table,
    deleted_ratios,
    freed_by_kind,
    pending_purges,
    slowest_tables,
    versions_by_table,
)

DESKTOP, PHONE, PAPER = 1280, 390, 688
"""Pixels; paper is A4 within its margins."""
LETTER_HEIGHT = 940
"""Pixels of US Letter within its margins; A4 is higher."""

RUNS = {**every_run(), "many": night(10_000)}

PLOTS = """[...document.querySelectorAll('figure')].map(figure => {
  const svg = figure.querySelector('svg.plot');
  if (!svg) return {key: figure.id, said: figure.innerText, height: figure.offsetHeight};
  const frame = svg.getBoundingClientRect();
  const box = each => { const b = each.getBoundingClientRect(); return [b.left, b.top, b.right, b.bottom]; };
  return {
    key: figure.id, height: figure.offsetHeight, frame: box(svg),
    lines: svg.querySelectorAll('g.line').length,
    marks: [...svg.querySelectorAll('rect, circle')].map(box),
    tracks: [...svg.querySelectorAll('line')].map(box),
    texts: [...svg.querySelectorAll('text.value, text.tick')].map(box),
    names: [...svg.querySelectorAll('text.name')].map(box),
  };
})"""

LINES = """[...document.querySelectorAll('svg.plot g.line')].map(line =>
  [...line.querySelectorAll('text.value, rect, circle')].map(each => {
    const b = each.getBoundingClientRect(); return [b.left, b.right];
  })
)"""

OVERFLOWING = """[...document.querySelectorAll('body *')].filter(each =>
  !each.closest('svg g') && !each.closest('thead') && each.getBoundingClientRect().right > innerWidth + 0.5
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
    assert {each["key"]: len(each.get("marks", [])) for each in plots} == expected_marks(RUNS[name])
    for plot in plots:
        if "frame" in plot:
            check_plot(plot)
        else:
            assert len(plot["said"].splitlines()) >= 2


def check_plot(plot: dict[str, Any]) -> None:
    left, top, right, bottom = frame = plot["frame"]
    assert right - left > 250
    assert bottom - top > 40
    for mark in plot["marks"]:
        assert mark[2] - mark[0] >= 0.9, (plot["key"], mark)
        assert mark[3] - mark[1] >= 5, (plot["key"], mark)
    for box in [*plot["marks"], *plot["tracks"], *plot["texts"]]:
        assert is_inside(box, frame), (plot["key"], box, frame)
    assert len(plot["names"]) == plot["lines"]
    for box in plot["names"]:
        # A name of very wide letters is cut off by its frame; it never leaves it at the left, top or bottom.
        assert is_inside([box[0], box[1], min(box[2], right), box[3]], frame), (plot["key"], box)


def test_figures_and_marks_do_not_overlap(tab: Tab, pages: dict[str, Path]) -> None:
    tab.open(pages["night"], width=PHONE)
    rows: list[list[list[float]]] = tab.evaluate(LINES)
    assert len(rows) > 60
    for *marks, figures in rows:
        assert all(right <= figures[0] for _, right in marks), (marks, figures)


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


@pytest.mark.parametrize("name", ["night", "dry_run", "hostile", "many"])
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


def test_page_can_be_printed_as_pdf(tab: Tab, pages: dict[str, Path]) -> None:
    tab.open(pages["night"], width=DESKTOP)
    printed = tab.pdf()
    assert printed.startswith(b"%PDF")
    assert 3 <= len(re.findall(rb"/Type\s*/Page\b(?!s)", printed)) <= 12
