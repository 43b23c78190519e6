"""The HTML report: well formed with any table name, self-contained, small and readable."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import subprocess
import sys
import unicodedata
from collections import Counter
from dataclasses import replace
from datetime import timedelta
from html import unescape
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.support.paths import REPOSITORY
from tests.support.policy.runs import HOSTILE_NAMES, a_run, dry, every_run, extreme, hostile, night

from relance.jobs.base import Effect, Estimate
from relance.jobs.facts import TableFacts
from relance.policy.actions import Action
from relance.policy.records import ActionRecord, Outcome, RunRecord, RunState, TableChange
from relance.policy.report import (
    MOST_ACTIONS,
    MOST_FAILED,
    TOP,
    bytes_by_table,
    plots_of,
    shortened,
    to_html,
    to_json,
    visible,
)

TEMPLATES = REPOSITORY / "src/relance/policy/templates"
STYLE = (TEMPLATES / "style.css").read_text()
PLOTS = ("freed", "waiting", "bytes", "versions", "deleted", "slowest")
WORD = re.compile(r"[\w-]+")
TAGS = WORD.findall("""
html head meta title link style body header main footer section div p h1 h2 h3 span dl dt dd table caption
thead tbody tr th td figure figcaption details summary svg circle line text
""")
VOID = {"meta", "link"}
ATTRIBUTES = WORD.findall("""
lang charset http-equiv content name rel href id class role scope data-label aria-hidden width height x y x1
x2 y1 y2 cx cy r text-anchor
""")


class Page(HTMLParser):
    """Reads a page strictly: every tag is known and closed, no attribute can run or fetch anything."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.tags: Counter[str] = Counter()
        self.ids: list[str] = []
        self.texts: list[tuple[str, str]] = []
        self.attributes: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)
        self.close()
        assert not self.open, f"not closed: {self.open}"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag in TAGS, tag
        given = dict(attrs)
        assert len(given) == len(attrs)
        assert set(given) <= set(ATTRIBUTES), (tag, given)
        assert given.get("href") in (None, "data:,")
        self.tags[tag] += 1
        self.attributes.append((tag, given))
        if given.get("id"):
            self.ids.append(str(given["id"]))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.handle_endtag(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append((self.open[-1] if self.open else "", data))

    def handle_comment(self, data: str) -> None:
        raise AssertionError(f"a comment: {data}")

    def handle_pi(self, data: str) -> None:
        raise AssertionError(f"a processing instruction: {data}")

    def unknown_decl(self, data: str) -> None:
        raise AssertionError(f"a declaration: {data}")

    def text_in(self, tag: str) -> str:
        return " ".join(data for inside, data in self.texts if inside == tag)


@pytest.mark.parametrize("name", list(every_run()))
def test_page_of_every_run_is_well_formed_and_loads_nothing(name: str) -> None:
    text = to_html(every_run()[name])
    text.encode()
    page = Page(text)
    assert len(page.ids) == len(set(page.ids))
    assert page.tags["h1"] == 1
    for plot in PLOTS:
        assert plot in page.ids
    assert "@import" not in text
    assert "url(" not in STYLE


def unseen(text: str) -> set[str]:
    """Return the characters that could hide or reverse other text."""
    return {each for each in text if unicodedata.category(each) in {"Cc", "Cf", "Cs", "Zl", "Zp"}} - {"\n"}


anything = st.text(st.characters(), max_size=40) | st.sampled_from(HOSTILE_NAMES)


@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow])
@given(anything, anything, st.integers(0, 2**80), st.sampled_from(RunState), st.sampled_from(Outcome))
def test_page_survives_any_names_and_figures(
    name: str, other: str, figure: int, state: RunState, outcome: Outcome
) -> None:
    facts = TableFacts(
        (name, other), rows=figure, deleted_rows=figure // 3, bytes=figure, versions=figure, error=other
    )
    effect = Effect(figure, figure, figure, figure, note=other)
    action = Action("clean_up", (name,), other, name, {other: name})
    taken = timedelta(microseconds=min(figure, 10**18))
    record = ActionRecord(action, outcome, None, effect, name, None, taken)
    run = a_run([record], [TableChange(facts, facts)], state=state, message=other)
    text = to_html(replace(run, root=name, policy=other, actor=name, engine=other, run=name))
    text.encode()
    page = Page(text)
    assert page.tags["svg"] >= 1
    assert unseen(text) == set()


def test_hostile_names_are_shown_escaped() -> None:
    text = to_html(hostile())
    page = Page(text)
    assert "<script" not in text
    assert "<img" not in text
    assert HOSTILE_NAMES[0] in page.text_in("div")
    assert HOSTILE_NAMES[1] in page.text_in("h1")
    assert HOSTILE_NAMES[1] in page.text_in("title")
    assert "right\\u{202E}to left" in unescape(text)
    assert unseen(text) == set()


def test_style_sheet_matches_the_content_security_policy() -> None:
    text = to_html(a_run())
    style = re.search(r"<style>(.*?)</style>", text, re.DOTALL)
    assert style is not None
    digest = base64.b64encode(hashlib.sha256(style[1].encode()).digest()).decode()
    policies = [given["content"] or "" for _, given in Page(text).attributes if given.get("http-equiv")]
    assert len(policies) == 1
    assert f"style-src 'sha256-{digest}'" in policies[0]
    assert policies[0].startswith("default-src 'none'")
    assert "unsafe" not in policies[0]


def test_page_for_ten_thousand_tables_is_small_and_counts_the_rest() -> None:
    record = night(10_000)
    text = to_html(record)
    assert len(text.encode()) < 250_000
    failed = sum(each.outcome is Outcome.FAILED for each in record.actions)
    shown = len(re.findall('class="outcome ', text))
    assert shown == MOST_FAILED + MOST_ACTIONS
    assert f"{failed - MOST_FAILED} more failed actions not shown; the JSON report lists them all." in text
    assert f"{len(record.actions) - failed - MOST_ACTIONS:,} more actions not shown: " in text
    assert "9,980 other tables" in text or "9,989 other tables" in text


def test_page_for_ten_thousand_of_the_longest_names_stays_below_3_mb() -> None:
    names = [("<" * 220, "&" * 220, f"{'é' * 100}{at}") for at in range(10_000)]
    known = TableFacts((), rows=1, deleted_rows=1, error="<" * 900)
    facts = [replace(known, table=name, bytes=at, versions=at) for at, name in enumerate(names)]
    actions = [
        ActionRecord(Action("compact", name, "r", '"' * 900), Outcome.FAILED, error="&" * 900)
        for name in names
    ]
    text = to_html(a_run(actions, [TableChange(each, each) for each in facts], state=RunState.FAILED))
    assert len(text.encode()) < 3_000_000


def test_failed_tables_stand_at_the_top_with_their_errors() -> None:
    text = to_html(night())
    outcomes = re.findall(r'class="outcome (\w+)"', text)
    assert outcomes[:3] == ["failed"] * 3
    assert outcomes[3:4] == ["skipped"]
    assert "failed" not in outcomes[3:]
    assert text.count("rewritten by another writer ten times") == 3
    first, second, *_ = re.findall(r"<h2>(.*?)</h2>", text)
    assert (first, second) == ("Failed tables", "Run")
    assert "Failed tables" not in to_html(night(failures=False))
    assert "Failed tables" not in to_html(dry(night()))


def test_all_failures_of_a_table_stand_together() -> None:
    lost = TableFacts(("t",), error="manifest 7 is missing")
    failed = [
        ActionRecord(Action(kind, table, "rule", "why"), Outcome.FAILED, error=f"{kind} broke")
        for kind, table in (("compact", ("t",)), ("clean_up", ("u",)), ("clean_up", ("t",)))
    ]
    text = to_html(a_run(failed, [TableChange(lost, lost)], state=RunState.FAILED))
    section = text[text.index("Failed tables") : text.index("<h2>Run")]
    assert re.findall(r'<dt class="name">(.*?)</dt>', section) == ["t", "u"]
    places = [section.index(part) for part in ("compact broke", "clean_up broke", "manifest 7", ">u</dt>")]
    assert places == sorted(places)


def test_failed_tables_beyond_the_first_are_folded() -> None:
    text = to_html(night(13 * (TOP + 5)))
    section = text[text.index("Failed tables") : text.index("<h2>Run")]
    before, folded = section.split("<details>")
    assert before.count("<dt") == TOP
    assert folded.count("<dt") == 5
    assert "<summary>5 more failed tables</summary>" in folded


def test_actions_beyond_the_limit_are_counted_by_outcome() -> None:
    text = to_html(night(200, failures=False))
    assert text.count('class="outcome ') == MOST_ACTIONS
    assert re.search(
        r"more actions not shown: \d+ done, \d+ nothing to do\. The JSON report lists them all\.", text
    )


def test_unreadable_tables_are_listed_and_the_rest_counted() -> None:
    facts = TableFacts(("lost",), error="manifest 7 is missing")
    run = a_run(changes=[TableChange(facts, facts)])
    assert "could not be read" not in to_html(a_run())
    assert "✗ could not be read" in to_html(run)
    assert "manifest 7 is missing" in to_html(run)
    assert run.after is not None
    more = replace(run, after=replace(run.after, unreadable=4))
    assert "3 more unreadable tables not shown." in to_html(more)


def test_page_of_a_refused_run_starts_with_the_reason() -> None:
    text = to_html(every_run()["refused"])
    page = Page(text)
    assert "Refused, nothing was done" in page.text_in("p")
    assert text.index("max_bytes_deleted is 50 GB") < text.index("<h2>")
    assert "Nothing ran, so there are no times." in text


def test_interrupted_run_shows_figures_from_before_it() -> None:
    record = every_run()["interrupted"]
    assert "Before the run: number of versions, largest first." in to_html(record)
    waiting = ActionRecord(Action("purge", ("t",), "r", "w"), Outcome.PLANNED, Estimate(bytes=500))
    assert "500 B to free" in to_html(replace(record, actions=(waiting,)))


@pytest.mark.parametrize("record", [a_run(), a_run(state=RunState.PLANNED)])
def test_plot_without_data_is_replaced_by_a_sentence(record: RunRecord) -> None:
    page = Page(to_html(record))
    assert page.tags["figure"] == len(PLOTS)
    assert page.tags["svg"] == 0


def test_page_of_a_dry_run_shows_no_results() -> None:
    text = to_html(dry(night()))
    assert "Bytes that would be freed" in text
    assert "to rewrite" in text
    assert [key for key, plot in plots_of(dry(night())).items() if plot.paired] == ["waiting"]


def test_every_plot_is_a_table_with_its_figures_as_text() -> None:
    record = night()
    page = Page(to_html(record))
    assert page.tags["figure"] == page.tags["figcaption"] == len(PLOTS)
    classes = [str(given.get("class")).split()[0] for tag, given in page.attributes if tag == "table"]
    assert classes.count("plot") == len(PLOTS)
    heads = [given for tag, given in page.attributes if tag == "th"]
    assert heads
    assert all(given.get("scope") in ("row", "col") for given in heads)
    drawings = [given for tag, given in page.attributes if tag == "svg"]
    assert all(given["aria-hidden"] == "true" for given in drawings)
    bar = bytes_by_table(record).bars[0]
    row = [cell for tag, cell in page.texts if tag in ("th", "td")]
    at = row.index(bar.label)
    assert row[at + 1 : at + 3] == ["180 GB", "108 GB"]


def test_small_table_stays_visible_next_to_a_large_one() -> None:
    sizes = (10**13, 10**9, 10**4, 10**3)
    before = [TableFacts((f"t{size}",), bytes=size) for size in sizes]
    changes = [TableChange(facts, replace(facts, bytes=(facts.bytes or 0) // 2)) for facts in before]
    record = a_run(changes=changes)
    plot = plots_of(record)["bytes"]
    assert plot.is_logarithmic
    assert "Logarithmic scale." in to_html(record)
    places = [(line.start, line.end) for line in plot.lines]
    assert all(start - end > 2 for start, end in places)
    assert all(larger[1] - smaller[0] > 5 for larger, smaller in pairwise(places))
    # A purged table stands before the smallest.
    gone = plots_of(replace(record, changes=(*changes, TableChange(before[0]))))["bytes"]
    none, smallest, *_ = sorted(line.end for line in gone.lines)
    assert none == 0 < smallest - 10


def test_axis_is_linear_where_figures_are_close() -> None:
    before = [TableFacts((f"t{size}",), bytes=size) for size in (1000, 500, 100)]
    record = a_run(changes=[TableChange(facts, facts) for facts in before])
    plot = plots_of(record)["bytes"]
    assert [line.end for line in plot.lines] == [100, 50, 10]
    assert plot.ticks == ((0, "0 B", False), (50, "500 B", True), (100, "1 kB", False))
    assert "Logarithmic" not in to_html(record)


def test_zero_and_huge_figures_are_drawn_inside_the_plot() -> None:
    text = to_html(extreme())
    places = [float(each) for each in re.findall(r'"(-?[\d.]+)%"', text)]
    assert places
    assert all(0 <= each <= 100 for each in places)
    assert not re.search(r'"-?(nan|inf)', text, re.IGNORECASE)


def test_long_name_opens_to_its_full_length() -> None:
    name = "a" * 60 + "b" * 60
    failed = ActionRecord(Action("compact", (name,), "r", "w"), Outcome.FAILED, error="e")
    text = to_html(a_run([failed], state=RunState.FAILED))
    assert f"<details><summary>{shortened(name, 64)}</summary>{name}</details>" in text


def test_long_names_are_shortened_in_the_middle() -> None:
    assert shortened("plain", 10) == "plain"
    assert shortened("a" * 10 + "b" * 10, 9) == "aaaa…bbbb"
    assert len(shortened("温度" * 30, 20)) == 20
    assert shortened("one\ntwo", 20) == "one two"
    assert visible("tab\there") == "tab\\u{9}here"


def test_every_template_escapes_what_it_inserts() -> None:
    inserted = [
        (path.name, expression)
        for path in TEMPLATES.iterdir()
        for expression in re.findall(r"\{\{(.*?)\}\}", path.read_text(), re.DOTALL)
    ]
    assert [where for where in inserted if "safe" in where[1]] == [("run.html", " style | safe ")]
    assert not [path for path in TEMPLATES.iterdir() if "autoescape" in path.read_text()]


def test_template_engine_is_imported_only_for_a_page() -> None:
    program = """
import sys
from datetime import UTC, datetime
from relance.policy.records import RunRecord, RunState, Totals
from relance.policy.report import lines_of, summary, to_html, to_json
now = datetime(2026, 3, 1, tzinfo=UTC)
run = RunRecord("r", "", "p", "a", RunState.DONE, "e", now, now, Totals(), Totals(), (), ())
to_json(run), lines_of(summary(run))
assert "jinja2" not in sys.modules
to_html(run)
assert "jinja2" in sys.modules
"""
    subprocess.run([sys.executable, "-c", program], check=True)


def test_example_in_the_report_guide_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    guide = REPOSITORY / "docs" / "report.md"
    (code,) = re.findall(r"```python\n(.*?)```", guide.read_text(), re.DOTALL)
    monkeypatch.chdir(tmp_path)
    Path("run.json").write_text(json.dumps(to_json(night())))
    exec(compile(code, str(guide), "exec"), {})
    assert Path("report.html").read_text(encoding="utf-8") == to_html(night())


def colours(block: str) -> dict[str, tuple[int, ...]]:
    found = re.findall(r"--([\w-]+): #([0-9a-f]{6})", block)
    return {name: tuple(bytes.fromhex(value)) for name, value in found}


def contrast(one: tuple[int, ...], other: tuple[int, ...]) -> float:
    """Return the contrast ratio as WCAG 2 defines it."""

    def luminance(colour: tuple[int, ...]) -> float:
        parts = [each / 255 for each in colour]
        red, green, blue = (p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts)
        return 0.2126 * red + 0.7152 * green + 0.0722 * blue

    high, low = sorted((luminance(one), luminance(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("scheme", [0, 1], ids=["light", "dark"])
def test_text_and_marks_have_enough_contrast(scheme: int) -> None:
    blocks = re.findall(r":root \{(.*?)\}", STYLE, re.DOTALL)
    palette = colours(blocks[scheme])
    for paper in ("paper", "panel"):
        for ink in ("ink", "soft", "bad", "good", "warn"):
            assert contrast(palette[ink], palette[paper]) >= 4.5, (ink, paper)
    assert contrast(palette["ink"], palette["bad-panel"]) >= 4.5
    for mark in ("mark", "edge"):
        assert contrast(palette[mark], palette["paper"]) >= 3, mark
