"""The page's plots, each with its heading, its words and a table of its figures. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta

from relance import units
from relance.policy.records import RunRecord
from relance.policy.report import plots, selection
from relance.policy.report.markup import Markup, element, joined
from relance.policy.report.run_summary import is_planned_only
from relance.policy.report.selection import Bar, Chosen
from relance.policy.report.tables import name_cell, table

Draw = Callable[[str, str, str, Sequence[Bar], plots.Show], Markup]


@dataclass(frozen=True, slots=True)
class Plot:
    """One plot: how it is drawn, and what is said of it."""

    key: str
    title: str
    caption: str
    empty: str
    """What stands there instead when there is nothing to draw."""
    choose: Callable[[RunRecord], Chosen]
    show: plots.Show
    draw: Draw = plots.bar_plot


def figures(record: RunRecord) -> Markup:
    """Return all plots of a run."""
    drawn = [_figure(each, record) for each in _plots(would=is_planned_only(record))]
    # The two short ones stand side by side.
    return joined(drawn[0], _waiting(record), *drawn[1:])


def _plots(*, would: bool) -> tuple[Plot, ...]:
    shown = "Now" if would else "Before and after the run"
    order = "largest first" if would else "largest change first"
    return (
        Plot(
            "freed",
            "Bytes that would be freed" if would else "Bytes freed",
            "By kind of action.",
            "No action would free any bytes." if would else "No action freed any bytes.",
            selection.freed_by_kind,
            _bytes,
        ),
        Plot(
            "bytes",
            "Bytes by table",
            f"{shown}: data files of the latest version, {order}.",
            "No table in this run has a known size.",
            selection.bytes_by_table,
            _bytes,
        ),
        Plot(
            "versions",
            "Versions by table",
            f"{shown}: number of versions, {order}.",
            "No table in this run has a known number of versions.",
            selection.versions_by_table,
            _count,
        ),
        Plot(
            "deleted",
            "Deleted rows",
            f"{shown}: deleted rows as a share of the rows in a table's files, largest first.",
            "No table in this run has deleted rows in its files.",
            selection.deleted_ratios,
            units.share,
            plots.dot_plot,
        ),
        Plot(
            "slowest",
            "Slowest tables",
            "Total time of all actions on each table.",
            "Nothing ran, so there are no times." if would else "No action has a recorded time.",
            selection.slowest_tables,
            _seconds,
        ),
    )


def _figure(plot: Plot, record: RunRecord) -> Markup:
    chosen = plot.choose(record)
    if not chosen.bars:
        return _framed(plot.key, plot.title, element("p", plot.empty, class_="hint"))
    paired = any(bar.after is not None for bar in chosen.bars)
    legend = plots.legend(dots=plot.draw is plots.dot_plot) if paired else None
    desc = f"{plot.caption} {units.plural(len(chosen.bars), 'line')}. {chosen.rest}".strip()
    rows = [_row(bar, plot.show, paired=paired) for bar in chosen.bars]
    head = ["name", "before", "after"] if paired else ["name", "figure"]
    return _framed(
        plot.key,
        plot.title,
        element("figcaption", plot.caption, " ", legend),
        plot.draw(plot.key, plot.title, desc, chosen.bars, plot.show),
        element("p", chosen.rest, class_="hint") if chosen.rest else None,
        _details(table(head, rows)),
    )


def _waiting(record: RunRecord) -> Markup:
    queue = selection.pending_purges(record)
    title = "Waiting for purge"
    if not queue.shown:
        return _framed("waiting", title, element("p", "No dropped tables are waiting.", class_="hint"))
    oldest = queue.shown[0]
    caption = (
        "Dropped tables, from the drop (ring) to the end of the retention period (dot). "
        f"Next: {plots.waits(oldest, queue.now)}."
    )
    rows = [
        [name_cell(each.label), units.instant(each.since), units.instant(each.until)] for each in queue.shown
    ]
    return _framed(
        "waiting",
        title,
        element("figcaption", caption),
        plots.waiting_plot("waiting", title, f"{caption} {queue.rest}".strip(), queue),
        element("p", queue.rest, class_="hint") if queue.rest else None,
        _details(table(["name", "dropped", "expires"], rows)),
    )


def _framed(key: str, title: str, *inside: Markup | None) -> Markup:
    return element("figure", element("h3", title), *inside, id=key)


def _row(bar: Bar, show: plots.Show, *, paired: bool) -> list[str]:
    cells = [name_cell(bar.label), show(bar.before)]
    if paired:
        return [*cells, "" if bar.after is None else show(bar.after)]
    return [cells[0], plots.values(bar, show)]


def _details(inside: Markup) -> Markup:
    return element("details", element("summary", "Show as a table with full names"), inside)


def _bytes(figure: float) -> str:
    return units.in_bytes(int(figure))


def _count(figure: float) -> str:
    # Half of an axis need not be whole; what is drawn always is.
    return units.short_count(int(figure)) if figure == int(figure) else f"{figure:,.1f}"


def _seconds(figure: float) -> str:
    return units.duration(timedelta(seconds=figure))
