"""The page's tables: figures by kind, totals, actions, tables that could not be read. Pure.

Long lists are cut with a count of the rest, so that a page stays small whatever the lake is like; the JSON
has them whole.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from relance import amounts
from relance.jobs.facts import TableFacts
from relance.policy.actions import Unknown
from relance.policy.records import ActionRecord, Outcome, RunRecord
from relance.policy.report.markup import Markup, element, joined, shortened
from relance.policy.report.run_summary import (
    Summary,
    frees_bytes,
    is_planned_only,
    kind_name,
    name_of,
)
from relance.policy.report.selection import unreadable_tables

MOST_ACTIONS = 100
MOST_FAILED = 250
"""More than MOST_ACTIONS are shown only where that many failed."""
MOST_UNREADABLE = 100
_NAME_WIDTH = 300
_TEXT_WIDTH = 600

_ORDER: dict[Outcome | Unknown, int] = {
    outcome: at
    for at, outcome in enumerate(
        (Outcome.FAILED, Outcome.SKIPPED, Outcome.DONE, Outcome.PLANNED, Outcome.NOTHING)
    )
}
_SIGNS: dict[Outcome | Unknown, str] = {
    Outcome.FAILED: "✗",
    Outcome.SKIPPED: "–",
    Outcome.DONE: "✓",
    Outcome.PLANNED: "○",
    Outcome.NOTHING: "·",
}


def table(head: Sequence[str], rows: Sequence[Sequence[str]], *, caption: str | None = None) -> Markup:
    """Return a table whose first column names the row; the other columns hold figures."""
    top = [element("th", each, scope="col", class_="figure" if at else None) for at, each in enumerate(head)]
    body = [
        element(
            "tr",
            element("th", row[0], scope="row"),
            *(element("td", each, class_="figure") for each in row[1:]),
        )
        for row in rows
    ]
    return element(
        "table",
        element("caption", caption) if caption else None,
        element("thead", element("tr", *top)),
        element("tbody", *body),
    )


def name_cell(name: str) -> str:
    """Return a table's name, cut only where no table could have such a name."""
    return shortened(name, _NAME_WIDTH)


def totals_table(found: Summary) -> Markup:
    """Return the lake before and after."""
    head, *rows = found.total_rows
    return table(head, rows)


def kinds_table(found: Summary) -> Markup:
    """Return the figures of each kind of action."""
    head, *kinds = found.kind_rows
    rows = [
        element(
            "tr",
            element("th", each[0], scope="row", role="rowheader", class_="name"),
            *(_labelled(label, cell) for label, cell in zip(head[1:], each[1:], strict=True)),
            role="row",
        )
        for each in kinds
    ]
    return _wide([(each, at > 0) for at, each in enumerate(head)], rows)


def actions_table(record: RunRecord) -> Markup:
    """Return the actions, failed ones first, then those that were skipped; the rest is counted."""
    would = is_planned_only(record)
    order = sorted(record.actions, key=lambda each: _ORDER.get(each.outcome, 0))
    head = (("outcome", False), ("action", False), ("table", False), ("figures", False), ("took", True))
    failed = sum(each.outcome is Outcome.FAILED for each in order)
    most = max(MOST_ACTIONS, min(failed, MOST_FAILED))
    rest = Counter(each.outcome for each in order[most:])
    parts = ", ".join(f"{number:,} {outcome.value}" for outcome, number in rest.items())
    more = (
        f"{amounts.plural(rest.total(), 'more action')} not shown: {parts}. The JSON report lists them all."
    )
    return joined(
        _wide(head, [_action_row(each, would=would) for each in order[:most]]),
        element("p", more, class_="hint") if rest else None,
    )


def unreadable_table(record: RunRecord) -> Markup | None:
    """Return the tables that could not be read with their errors; None when all could."""
    found = unreadable_tables(record)
    count = max(len(found), (record.after or record.before).unreadable)
    if not count:
        return None
    rest = count - min(len(found), MOST_UNREADABLE)
    return joined(
        _wide(
            (("table", False), ("error", False)), [_unreadable_row(each) for each in found[:MOST_UNREADABLE]]
        )
        if found
        else None,
        element("p", f"{amounts.plural(rest, 'more table')} not shown.", class_="hint") if rest else None,
    )


def _action_row(each: ActionRecord, *, would: bool) -> Markup:
    error = each.error or ("no reason given" if each.outcome is Outcome.FAILED else None)
    return element(
        "tr",
        element(
            "td",
            f"{_SIGNS.get(each.outcome, '?')} {each.outcome.value}",
            role="cell",
            class_=f"outcome {each.outcome.name.lower()}",
        ),
        element("td", kind_name(each.action.kind), role="cell", class_="kind"),
        element(
            "th",
            element("div", name_cell(name_of(each.action.table)), class_="name"),
            element("div", shortened(f"{each.action.rule}: {each.action.why}", _TEXT_WIDTH), class_="why"),
            element("div", _cut(error), class_="error") if error else None,
            scope="row",
            role="rowheader",
        ),
        element("td", _figures_of(each, would=would), role="cell"),
        element(
            "td",
            amounts.duration(each.duration) if each.duration else "",
            role="cell",
            class_="figure",
            data_label="took",
        ),
        role="row",
    )


def _figures_of(each: ActionRecord, *, would: bool) -> str:
    """Return what an action did, or would do, in a few words; figures of nothing are left out."""
    found = (
        each.effect
        if each.effect is not None
        else each.planned
        if would or each.outcome is Outcome.PLANNED
        else None
    )
    if found is None:
        return ""
    frees = each.effect is not None or frees_bytes(each.action.kind)
    parts = [
        amounts.plural(found.rows, "row") if found.rows else "",
        amounts.plural(found.files, "file") if found.files else "",
        f"{amounts.in_bytes(found.bytes)}{' freed' if frees else ' to rewrite'}" if found.bytes else "",
        shortened(found.note, _TEXT_WIDTH),
    ]
    if would and frees:
        parts[2] = parts[2].replace(" freed", " to free")
    return ", ".join(part for part in parts if part)


def _unreadable_row(facts: TableFacts) -> Markup:
    return element(
        "tr",
        element("th", name_cell(name_of(facts.table)), scope="row", role="rowheader", class_="name"),
        element("td", _cut(facts.error or ""), role="cell", class_="error"),
        role="row",
    )


def _wide(head: Sequence[tuple[str, bool]], rows: Sequence[Markup]) -> Markup:
    """Return a table whose rows become blocks on a phone; roles keep it a table for screen readers."""
    top = [
        element("th", label, scope="col", role="columnheader", class_="figure" if figure else None)
        for label, figure in head
    ]
    return element(
        "table",
        element("thead", element("tr", *top, role="row"), role="rowgroup"),
        element("tbody", *rows, role="rowgroup"),
        class_="wide",
        role="table",
    )


def _labelled(label: str, text: str) -> Markup:
    return element("td", text, role="cell", class_="figure", data_label=label)


def _cut(text: str) -> str:
    if len(text) <= _TEXT_WIDTH:
        return text
    return f"{text[:_TEXT_WIDTH]}… ({amounts.plural(len(text) - _TEXT_WIDTH, 'more character')})"
