"""One HTML page about a run, whole in itself: no script, nothing fetched. Pure."""

from __future__ import annotations

from relance import amounts
from relance.policy.actions import Unknown
from relance.policy.records import Outcome, RunRecord, RunState
from relance.policy.report.figures import figures
from relance.policy.report.markup import Markup, element, joined, shortened
from relance.policy.report.run_summary import Summary, is_planned_only, summary
from relance.policy.report.style import STYLE, STYLE_SOURCE
from relance.policy.report.tables import actions_table, kinds_table, totals_table, unreadable_table

# A frame would be no danger, but nothing here needs one either.
_ALLOWED = f"default-src 'none'; style-src {STYLE_SOURCE}; img-src data:; base-uri 'none'; form-action 'none'"

_STATES: dict[RunState | Unknown, str] = {
    RunState.PLANNED: "○ dry run",
    RunState.RUNNING: "… in progress or interrupted",
    RunState.INTERRUPTED: "✗ interrupted",
    RunState.DONE: "✓ done",
    RunState.FAILED: "✗ some actions failed",
    RunState.REFUSED: "✗ refused",
}
_MOST = 4000


def to_html(record: RunRecord) -> str:
    """Return the page. It may be opened from a file, mailed, printed: all it needs is in it."""
    found = summary(record)
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", http_equiv="Content-Security-Policy", content=_ALLOWED),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="referrer", content="no-referrer"),
        element("title", f"Relance: {shortened(record.policy, 80)}, {amounts.instant(record.started_at)}"),
        # Without this a browser asks the server of the page for an icon.
        element("link", rel="icon", href="data:,"),
        element("style", Markup(STYLE)),
    )
    body = element(
        "body", _header(record, found), element("main", *_sections(record, found)), _footer(record)
    )
    return f"<!doctype html>\n{element('html', head, body, lang='en')}\n"


def _header(record: RunRecord, found: Summary) -> Markup:
    return element(
        "header",
        element("p", "Relance policy run", class_="kicker"),
        element("h1", shortened(record.policy, 300)),
        element(
            "p",
            element(
                "span",
                _STATES.get(record.state, f"? {record.state.value}"),
                class_=f"state {record.state.value}",
            ),
            f" · {amounts.instant(record.started_at)} · {shortened(record.root, 300)}",
        ),
        element("p", found.headline, class_="lead"),
        element("p", record.message[:_MOST], class_="notice") if record.message else None,
        _tiles(record, found),
    )


def _tiles(record: RunRecord, found: Summary) -> Markup:
    would = is_planned_only(record)
    outcomes = [each.outcome for each in record.actions]
    last = record.after or record.before
    tiles = [
        (
            "bytes to free" if would else "bytes freed",
            amounts.in_bytes(sum(each.bytes for each in found.kinds)),
        ),
        ("actions planned", amounts.short_count(len(outcomes)))
        if would
        else ("actions done", amounts.short_count(outcomes.count(Outcome.DONE))),
        ("tables affected", amounts.short_count(len({each.action.table for each in record.actions})))
        if would
        else ("actions failed", amounts.short_count(outcomes.count(Outcome.FAILED))),
        ("tables in the lake", amounts.short_count(last.tables)),
        ("bytes of data", amounts.in_bytes(last.bytes)),
        ("dropped tables", amounts.short_count(last.dropped)),
    ]
    return element(
        "dl",
        *(element("div", element("dt", label), element("dd", value)) for label, value in tiles),
        class_="tiles",
    )


def _sections(record: RunRecord, found: Summary) -> list[Markup]:
    unreadable = unreadable_table(record)
    about = [
        part
        for label, value in found.about
        for part in (element("dt", label), element("dd", shortened(value, 600)))
    ]
    actions = (
        joined(kinds_table(found), element("h3", "Individual actions", class_="later"), actions_table(record))
        if record.actions
        else element("p", "There was nothing to do.", class_="hint")
    )
    return [
        element(
            "div",
            _section("Run", element("dl", *about, class_="about")),
            _section("Lake", totals_table(found)),
            class_="columns",
        ),
        *([_section("Tables that could not be read", unreadable)] if unreadable is not None else []),
        _section("Figures", element("div", figures(record), class_="plots")),
        _section("Actions", actions),
    ]


def _section(title: str, inside: Markup) -> Markup:
    return element("section", element("h2", title), inside)


def _footer(record: RunRecord) -> Markup:
    return element("footer", f"Run {shortened(record.run, 100)}. Times are in UTC; 1 kB is 1,000 bytes.")
