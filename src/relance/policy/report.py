"""Reports of a run: figures for a terminal, JSON, and one HTML page. Pure functions of its record.

What the page shows is chosen here; its markup and its style sheet are in templates.
"""

from __future__ import annotations

import base64
import hashlib
import math
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cache
from typing import TYPE_CHECKING, Any

from relance import units
from relance.errors import InvalidInputError
from relance.identifiers import format_id
from relance.jobs.base import kind_order, kinds
from relance.jobs.facts import TableFacts, TableState, expiry_order
from relance.policy.actions import Unknown
from relance.policy.codec import decode, encode
from relance.policy.records import ActionRecord, MoreDropped, Outcome, RunRecord, RunState, Totals

if TYPE_CHECKING:
    import jinja2

    from relance.jobs.base import Effect, Estimate

FORMAT = 1
"""Raised when a reader of the last format could misread the new one."""

TOP = 20
"""How many tables a plot names; a sentence sums up the others."""
MOST_FAILED = 250
"""How many failed actions the page lists. The JSON has all of them, and of everything else."""
MOST_ACTIONS = 100
MOST_UNREADABLE = 100

_NAME_WIDTH = 300
"""A table's name is cut only where no table could have such a name."""
_TEXT_WIDTH = 600

# --- JSON


def to_json(record: RunRecord) -> dict[str, Any]:
    """Return the record as values that `json.dumps` takes; `from_json` gives an equal record back.

    The form follows the record's own fields. Within one format, fields are only added.
    """
    return {"format": FORMAT, **encode(record)}


def from_json(document: Any) -> RunRecord:
    """Return the record that `to_json` made this document of.

    Raises:
        InvalidInputError: it is not a run's record, or of a newer format.
    """
    if not isinstance(document, dict) or "format" not in document:
        raise InvalidInputError("not a run record that relance saved")
    if document["format"] != FORMAT:
        raise InvalidInputError(
            f"run record has format {document['format']!r}, but this release reads {FORMAT}; "
            "use the release that wrote it or a newer one"
        )
    return decode(RunRecord, document, "record")


# --- Summary


@dataclass(frozen=True, slots=True)
class KindFigures:
    """All actions of one kind together; of a dry run, what they would do."""

    kind: str
    actions: int
    tables: int
    """Different ones, without the root."""
    done: int
    nothing: int
    failed: int
    skipped: int
    rows: int
    files: int
    bytes: int
    """Freed."""
    rewritten: int
    """Bytes that a dry run expects to be read or written again."""
    duration: timedelta
    """Of all actions, also of those that ran at the same time."""


@dataclass(frozen=True, slots=True)
class TotalLine:
    """One figure of the whole lake; `after` is None when it is not known."""

    label: str
    before: int
    after: int | None
    is_bytes: bool = False


@dataclass(frozen=True, slots=True)
class Summary:
    """What a person wants to know first."""

    headline: str
    """One sentence."""
    message: str
    """Why it was refused or failed; empty otherwise."""
    about: tuple[tuple[str, str], ...]
    """Name and value: when, by whom, on what."""
    totals: tuple[TotalLine, ...]
    kinds: tuple[KindFigures, ...]
    """Those with an action, in the order in which they are done."""
    failures: tuple[ActionRecord, ...]
    unreadable: int
    planned_only: bool
    """Whether the figures say what would be done."""

    @property
    def total_rows(self) -> tuple[tuple[str, ...], ...]:
        """Return the lake before and after as text, with a row of headings first."""
        if all(line.after is None for line in self.totals):
            now = ((line.label, _shown(line, line.before)) for line in self.totals)
            return (("in the lake", "now"), *now)
        return (("in the lake", "before", "after", "change"), *map(_total_cells, self.totals))

    @property
    def kind_rows(self) -> tuple[tuple[str, ...], ...]:
        """Return the figures of each kind as text, with a row of headings first."""
        last = ("to free", "to rewrite") if self.planned_only else ("freed", "failed", "took")
        head = ("action", "tables", "rows", "files", *last)
        return (head, *(_kind_cells(figures, planned_only=self.planned_only) for figures in self.kinds))


def summary(record: RunRecord) -> Summary:
    """Return the run in a few figures."""
    kinds = _kinds_of(record)
    return Summary(
        headline=_headline(record, kinds),
        message=record.message,
        about=_about(record),
        totals=_totals(record.before, record.after),
        kinds=tuple(each for each in kinds if each.nothing < each.actions or not _is_planned_only(record)),
        failures=tuple(action for action in record.actions if action.outcome is Outcome.FAILED),
        unreadable=(record.after or record.before).unreadable,
        planned_only=_is_planned_only(record),
    )


def lines_of(overview: Summary) -> list[str]:
    """Return the summary as plain text, for pipes and logs: columns are padded, nothing is coloured."""
    lines = [overview.headline, *([overview.message] if overview.message else []), ""]
    width = max(len(label) for label, _ in overview.about)
    lines += [f"{label.ljust(width)}  {value}" for label, value in overview.about]
    lines += ["", *_aligned(overview.total_rows)]
    if overview.kinds:
        lines += ["", *_aligned(overview.kind_rows)]
    if overview.failures:
        lines += ["", *(_failure_line(action) for action in overview.failures)]
    return lines


def name_of(table: tuple[str, ...]) -> str:
    """Return a table's name as it can be given to a command; the root has none of its own."""
    return format_id(table) if table else "(the root)"


def _is_planned_only(record: RunRecord) -> bool:
    """Return whether the figures say what would be done: a dry run, or a run that was refused."""
    return record.state in (RunState.PLANNED, RunState.REFUSED)


def kind_name(kind: str) -> str:
    """Return what reports call a kind of action; one of a newer release by its own name."""
    return next((known.title for known in kinds() if known.kind == kind), kind)


def _frees(kind: str) -> bool:
    """Return whether the bytes of a kind are bytes that go; those that others estimate are rewritten."""
    return any(known.frees_bytes for known in kinds() if known.kind == kind)


def _kinds_of(record: RunRecord) -> tuple[KindFigures, ...]:
    """Return the figures of each kind with an action, in the order in which they are done."""
    would = _is_planned_only(record)
    by_kind: dict[str, list[ActionRecord]] = {}
    for action in record.actions:
        by_kind.setdefault(action.action.kind, []).append(action)
    return tuple(_figures(kind, by_kind[kind], would=would) for kind in sorted(by_kind, key=kind_order))


def _figures(kind: str, actions: list[ActionRecord], *, would: bool) -> KindFigures:
    effects = [action.planned if would else action.effect for action in actions]
    outcomes = [action.outcome for action in actions]
    total = sum(effect.bytes for effect in effects if effect)
    # What an action did is freed, whatever its kind; an estimate of most kinds is read or written again.
    frees = not would or _frees(kind)
    return KindFigures(
        kind=kind,
        actions=len(actions),
        tables=_tables(actions),
        done=outcomes.count(Outcome.DONE),
        nothing=outcomes.count(Outcome.NOTHING),
        failed=outcomes.count(Outcome.FAILED),
        skipped=outcomes.count(Outcome.SKIPPED),
        rows=sum(effect.rows for effect in effects if effect),
        files=sum(effect.files for effect in effects if effect),
        bytes=total if frees else 0,
        rewritten=0 if frees else total,
        duration=sum((action.duration for action in actions), timedelta()),
    )


_UNFINISHED: dict[object, str] = {
    RunState.RUNNING: "In progress or interrupted: ",
    RunState.INTERRUPTED: "Interrupted: ",
}


def _tables(actions: Iterable[ActionRecord]) -> int:
    """Return how many tables actions are about; those on the root as a whole are about none."""
    return len({each.action.table for each in actions if each.action.table})


def _headline(record: RunRecord, kinds: Iterable[KindFigures]) -> str:
    would = _is_planned_only(record)
    shown = [each for each in record.actions if not (would and each.outcome is Outcome.NOTHING)]
    outcomes = [action.outcome for action in shown]
    freed = units.in_bytes(sum(figures.bytes for figures in kinds))
    tables = units.plural(_tables(shown), "table")
    actions = units.plural(len(outcomes), "action")
    if record.state is RunState.REFUSED:
        return f"Refused, nothing was done: {actions} on {tables} would free {freed}."
    if not outcomes and not record.before.tables + record.before.dropped:
        return "Nothing to do: the lake has no tables."
    if not outcomes:
        return "Nothing to do: every table complies with the policy."
    if record.state is RunState.PLANNED:
        return f"Dry run: {actions} on {tables} would free {freed}."
    parts = [f"{outcomes.count(Outcome.DONE):,} of {actions} done on {tables}"]
    for outcome, words in (
        (Outcome.FAILED, "failed"),
        (Outcome.NOTHING, "with nothing to do"),
        (Outcome.SKIPPED, "skipped"),
        (Outcome.PLANNED, "not started"),
    ):
        if outcome in outcomes:
            parts.append(f"{outcomes.count(outcome):,} {words}")
    return f"{_UNFINISHED.get(record.state, '')}{', '.join(parts)}; {freed} freed."


def _about(record: RunRecord) -> tuple[tuple[str, str], ...]:
    ended = record.ended_at
    took = f", took {units.duration(ended - record.started_at)}" if ended else ""
    return (
        (
            "state",
            f"{record.state.value} (dry run)" if record.state is RunState.PLANNED else record.state.value,
        ),
        ("started", f"{units.instant(record.started_at)}{took}"),
        ("by", record.actor),
        ("root", record.root),
        ("policy", record.policy),
        ("engine", record.engine),
        ("run", record.run),
    )


def _totals(before: Totals, after: Totals | None) -> tuple[TotalLine, ...]:
    labels = {
        "tables": "tables",
        "dropped": "dropped tables",
        "unreadable": "unreadable tables",
        "rows": "rows",
        "deleted_rows": "deleted rows in files",
        "fragments": "fragments",
        "bytes": "bytes of data",
        "versions": "versions",
    }
    return tuple(
        TotalLine(label, getattr(before, name), getattr(after, name) if after else None, name == "bytes")
        for name, label in labels.items()
    )


def _total_cells(line: TotalLine) -> tuple[str, ...]:
    if line.after is None:
        return (line.label, _shown(line, line.before), "", "")
    change = units.difference(line.before, line.after, is_bytes=line.is_bytes)
    return (line.label, _shown(line, line.before), _shown(line, line.after), change)


def _shown(line: TotalLine, figure: int) -> str:
    return units.in_bytes(figure) if line.is_bytes else units.short_count(figure)


def _kind_cells(figures: KindFigures, *, planned_only: bool) -> tuple[str, ...]:
    counts = map(units.short_count, (figures.tables or None, figures.rows, figures.files))
    first = (kind_name(figures.kind), *counts, units.in_bytes(figures.bytes))
    if planned_only:
        return (*first, units.in_bytes(figures.rewritten))
    return (*first, units.short_count(figures.failed), units.duration(figures.duration))


def _failure_line(action: ActionRecord) -> str:
    what = f"{kind_name(action.action.kind)} {name_of(action.action.table)}"
    return f"failed: {what}: {action.error or 'no reason given'}"


def _aligned(rows: Sequence[tuple[str, ...]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for label, *figures in rows:
        cells = [cell.rjust(width) for cell, width in zip(figures, widths[1:], strict=True)]
        lines.append("  ".join([label.ljust(widths[0]), *cells]).rstrip())
    return lines


# --- What the plots show


@dataclass(frozen=True, slots=True)
class Bar:
    """One line of a plot; `after` is None when there is nothing to compare with."""

    label: str
    before: float
    after: float | None = None
    count: int = 0
    """How many tables or actions a figure is of, in plots that say so."""


@dataclass(frozen=True, slots=True)
class Chosen:
    """The lines of a plot, and a sentence about those that are not shown."""

    bars: tuple[Bar, ...]
    rest: str = ""


@dataclass(frozen=True, slots=True)
class Waiting:
    """A dropped table that waits for its purge."""

    label: str
    since: datetime | None
    until: datetime | None
    """None: it is kept until it is purged by name."""


@dataclass(frozen=True, slots=True)
class Queue:
    """Dropped tables, those that expire first in front."""

    now: datetime
    shown: tuple[Waiting, ...]
    rest: str = ""


def bytes_by_table(record: RunRecord) -> Chosen:
    """Return the tables whose bytes changed most; those with the most bytes where nothing changed."""
    return _by_change(_bars(record, lambda facts: facts.bytes), units.in_bytes)


def versions_by_table(record: RunRecord) -> Chosen:
    """Return the tables whose number of versions changed most."""
    return _by_change(_bars(record, lambda facts: facts.versions), units.short_count)


def deleted_ratios(record: RunRecord) -> Chosen:
    """Return the tables with the largest share of deleted rows, before or after."""
    bars = _bars(record, lambda facts: facts.deleted_ratio if facts.rows is not None else None)
    some = [bar for bar in bars if bar.before or bar.after]
    some.sort(key=lambda bar: (-_larger(bar), bar.label))
    rest = some[TOP:]
    others = units.plural(len(rest), "other table")
    return Chosen(
        tuple(some[:TOP]), f"{others}: at most {units.share(max(map(_larger, rest)))}." if rest else ""
    )


def freed_by_kind(record: RunRecord) -> Chosen:
    """Return the bytes that each kind of action freed, or would free; kinds that freed none are left out."""
    kinds = [figures for figures in _kinds_of(record) if figures.bytes]
    return Chosen(
        tuple(Bar(kind_name(figures.kind), figures.bytes, count=figures.tables) for figures in kinds)
    )


def slowest_tables(record: RunRecord) -> Chosen:
    """Return the tables whose actions took longest together, in seconds."""
    taken: dict[tuple[str, ...], timedelta] = {}
    actions: Counter[tuple[str, ...]] = Counter()
    for action in record.actions:
        if action.duration > timedelta():
            taken[action.action.table] = taken.get(action.action.table, timedelta()) + action.duration
            actions[action.action.table] += 1
    order = sorted(taken, key=lambda table: (-taken[table], table))
    rest = sum((taken[table] for table in order[TOP:]), timedelta())
    others = units.plural(len(order) - TOP, "other table")
    return Chosen(
        tuple(
            Bar(name_of(table), taken[table].total_seconds(), count=actions[table]) for table in order[:TOP]
        ),
        f"{others} in total: {units.duration(rest)}." if len(order) > TOP else "",
    )


def pending_purges(record: RunRecord) -> Queue:
    """Return the dropped tables that still exist after the run, those that expire first in front."""
    now = record.ended_at or record.started_at
    last = [change.after if record.after is not None else change.before for change in record.changes]
    dropped = [facts for facts in last if facts is not None and facts.state is TableState.DROPPED]
    dropped.sort(key=expiry_order)
    shown = tuple(
        Waiting(name_of(facts.table), facts.dropped_at, facts.purge_after) for facts in dropped[:TOP]
    )
    rest = dropped[TOP:]
    count = len(rest) + record.more_dropped.tables
    due = sum(1 for facts in rest if facts.purge_after is not None and facts.purge_after <= now)
    return Queue(now, shown, _rest_waiting(count, due, record.more_dropped) if count else "")


def unreadable_tables(record: RunRecord) -> tuple[TableFacts, ...]:
    """Return what is known of tables that could not be read, at the end or, failing that, at the start."""
    last = (change.after or change.before for change in record.changes)
    return tuple(sorted((facts for facts in last if facts.error is not None), key=lambda facts: facts.table))


def _rest_waiting(count: int, due: int, counted: MoreDropped) -> str:
    waiting, due = f"{units.plural(count, 'more dropped table')} waiting", due + counted.due
    if not counted.tables:
        return f"{waiting}; {due:,} of them are due now."
    # Since the plan counted them, others may have become due.
    return f"{waiting}; at least {due:,} of them are due now." if due else f"{waiting}."


def _bars(record: RunRecord, figure: Callable[[TableFacts], float | None]) -> list[Bar]:
    """Return a bar for each table whose figure is known; a purged table has 0 afterwards.

    Dropped tables that only wait have none: of many, the record has but the first.
    """
    ended = record.after is not None
    purged = {
        (action.action.table, action.action.settings.get("deletion_id"))
        for action in record.actions
        if action.action.kind == "purge"
    }
    bars = []
    for change in record.changes:
        facts = change.before
        if facts.state is TableState.DROPPED and purged.isdisjoint(
            {(facts.table, facts.deletion_id), (facts.table, None)}
        ):
            continue
        before = figure(facts)
        after = (figure(change.after) if change.after is not None else 0) if ended else None
        if before is not None and (after is not None or not ended):
            bars.append(Bar(name_of(facts.table), before, after))
    return bars


def _by_change(bars: Iterable[Bar], show: Callable[[int], str]) -> Chosen:
    order = sorted(bars, key=lambda bar: (-_change(bar), -bar.before, bar.label))
    rest = order[TOP:]
    return Chosen(tuple(order[:TOP]), _sums(rest, show) if rest else "")


def _sums(rest: Sequence[Bar], show: Callable[[int], str]) -> str:
    before = show(int(sum(bar.before for bar in rest)))
    others = units.plural(len(rest), "other table")
    if rest[0].after is None:
        return f"{others} in total: {before}."
    after = show(int(sum(bar.after or 0 for bar in rest)))
    return f"{others} in total: {before} before, {after} after."


def _change(bar: Bar) -> float:
    return 0.0 if bar.after is None else abs(bar.after - bar.before)


def _larger(bar: Bar) -> float:
    return max(bar.before, bar.after or 0.0)


# --- Plots: places on an axis


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a plot as it is drawn: a track with marks at its ends. Places are in percent."""

    label: str
    cells: tuple[str, ...]
    start: float
    end: float
    ring: bool
    """Whether its start is marked: a figure before the run, or the moment of a drop."""
    dot: str = "after"
    """The mark at its end; empty: none."""


@dataclass(frozen=True, slots=True)
class Plot:
    """What one plot shows; its words are in the template."""

    lines: tuple[Line, ...] = ()
    ticks: tuple[tuple[float, str, bool], ...] = ()
    """Figures on the axis: place, label, and whether a narrow screen has no room for the label."""
    rest: str = ""
    paired: bool = False
    """Whether its lines compare two figures or moments."""
    is_logarithmic: bool = False
    now: float | None = None
    """The place of the run, on an axis of time."""


Show = Callable[[float], str]

_FAR = 50
"""An axis becomes logarithmic where the largest figure is more than this many times the smallest."""
_AFTER_NOTHING = 15.0
"""Where the smallest figure stands on a logarithmic axis, in percent, if there are figures of nothing."""
_POWERS = tuple(float(10**power) for power in range(28))
_TIMES = (0.01, 0.1, 1.0, 10.0, 60.0, 600.0, 3600.0, 36_000.0, 864_000.0, 8_640_000.0)


def plots_of(record: RunRecord) -> dict[str, Plot]:
    """Return the plots of a run."""
    return {
        "freed": _plot(freed_by_kind(record), _bytes, _POWERS),
        "waiting": _waiting_plot(pending_purges(record)),
        "bytes": _plot(bytes_by_table(record), _bytes, _POWERS),
        "versions": _plot(versions_by_table(record), _count, _POWERS),
        "deleted": _plot(deleted_ratios(record), units.share),
        "slowest": _plot(slowest_tables(record), _seconds, _TIMES),
    }


def _plot(chosen: Chosen, show: Show, steps: Sequence[float] = ()) -> Plot:
    """Return a plot of bars: rings and dots where there is an `after`, else dots alone."""
    bars = chosen.bars
    if not bars:
        return Plot()
    paired = any(bar.after is not None for bar in bars)
    figures = [bar.before for bar in bars] + [bar.after for bar in bars if bar.after is not None]
    place, ticks, far = _axis(figures, steps)
    lines = []
    for bar in bars:
        if bar.after is not None:
            cells: tuple[str, ...] = (show(bar.before), show(bar.after))
            lines.append(Line(bar.label, cells, place(bar.before), place(bar.after), ring=True))
        else:
            cells = (show(bar.before), f"{bar.count:,}") if bar.count else (show(bar.before),)
            lines.append(Line(bar.label, cells, 0.0, place(bar.before), ring=False))
    labels = ((place(tick), show(tick), 0 < at == len(ticks) - 2) for at, tick in enumerate(ticks))
    return Plot(tuple(lines), tuple(labels), chosen.rest, paired, far)


def _waiting_plot(queue: Queue) -> Plot:
    """Return a plot with a line for each dropped table, from its drop to the end of its retention period."""
    now = queue.now
    moments = [now, *(at for table in queue.shown for at in (table.since, table.until) if at is not None)]
    first, last = min(moments), max(moments)

    def place(moment: datetime) -> float:
        return 100 * ((moment - first) / (last - first)) if last > first else 50.0

    lines = []
    for table in queue.shown:
        since, until = table.since, table.until
        lines.append(
            Line(
                table.label,
                (units.day(since) if since else "–", _expires(until, now)),
                place(since) if since else 0.0,
                place(until) if until else 100.0,
                ring=since is not None,
                dot="" if until is None else "due" if until <= now else "after",
            )
        )
    ends = ((place(first), units.day(first), False), (place(last), units.day(last), True))
    return Plot(tuple(lines), ends if last > first else ends[:1], queue.rest, paired=True, now=place(now))


def _expires(until: datetime | None, now: datetime) -> str:
    if until is None:
        return "no date"
    left = until - now
    return f"{units.day(until)}\n{f'in {units.duration(left)}' if left > timedelta() else 'due now'}"


def _axis(
    figures: Sequence[float], steps: Sequence[float]
) -> tuple[Callable[[float], float], Sequence[float], bool]:
    """Return the place of a figure in percent, the figures to label, and whether the axis is logarithmic.

    With `steps`, figures that are far apart get a logarithmic axis labelled at some of these steps, so that
    a small table stays visible next to a large one.
    """
    high = max(figures)
    smallest = min((figure for figure in figures if figure > 0), default=high)
    if not high:
        return lambda _: 0.0, [0], False
    if not steps or high <= smallest * _FAR:
        return lambda figure: 100 * (figure / high), [0, high / 2, high], False
    low = max((step for step in steps if step <= smallest), default=smallest)
    origin = _AFTER_NOTHING if min(figures) <= 0 else 0.0
    decades = math.log(high / low)

    def place(figure: float) -> float:
        return origin + (100 - origin) * math.log(figure / low) / decades if figure > 0 else 0.0

    inside = [step for step in steps if low <= step <= high]
    labelled = inside[:: math.ceil(len(inside) / 3)]
    return place, [0, *labelled] if origin else labelled, True


def _bytes(figure: float) -> str:
    return units.in_bytes(int(figure))


def _count(figure: float) -> str:
    # Half of an axis need not be whole; what is drawn always is.
    return units.short_count(int(figure)) if figure == int(figure) else f"{figure:,.1f}"


def _seconds(figure: float) -> str:
    return units.duration(timedelta(seconds=figure))


# --- HTML


@dataclass(frozen=True, slots=True)
class Failure:
    """What failed on a table."""

    what: str
    error: str
    why: str
    """The rule and its reason; empty for a table that could not be read."""


def to_html(record: RunRecord) -> str:
    """Return one HTML page, complete in itself: open it from a file, mail it, print it."""
    environment, style, source = _templates()
    overview = summary(record)
    failed, more_failed = _failed_tables(record)
    actions, more_actions = _other_actions(record)
    return environment.get_template("run.html").render(
        style=style,
        style_source=source,
        record=record,
        summary=overview,
        would=overview.planned_only,
        last=record.after or record.before,
        failed=list(failed.items()),
        more_failed=more_failed,
        top=TOP,
        plots=plots_of(record),
        actions=actions,
        more_actions=more_actions,
    )


@cache
def _templates() -> tuple[jinja2.Environment, str, str]:
    """Return the templates, their style sheet, and the source that a Content-Security-Policy allows it as.

    Text that a template inserts is made visible and escaped wherever it stands: no template can forget it.
    """
    import jinja2  # only a page takes it

    loader = jinja2.PackageLoader("relance.policy")
    environment = jinja2.Environment(
        loader=loader,
        autoescape=True,
        finalize=_finalized,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "bytes": units.in_bytes,
        "count": units.short_count,
        "cut": _cut,
        "duration": units.duration,
        "figures": _figures_of,
        "instant": units.instant,
        "kind_name": kind_name,
        "name_of": name_of,
        "percent": "{:.1f}%".format,
        "plural": units.plural,
        "shortened": shortened,
    }
    style, _, _ = loader.get_source(environment, "style.css")
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    return environment, style, f"'sha256-{digest}'"


def visible(text: str) -> str:
    """Return the text with control and format characters spelled out: they could hide or reverse the rest."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(
        f"\\u{{{ord(letter):X}}}" if unicodedata.category(letter) in _UNSEEN and letter != "\n" else letter
        for letter in text
    )


_UNSEEN = {"Cc", "Cf", "Cs", "Zl", "Zp"}
"""Control, format, lone surrogates, line and paragraph separators."""


def _finalized(value: Any) -> Any:
    # What a macro returns is markup already.
    return value if hasattr(value, "__html__") else visible(str(value))


def shortened(text: str, width: int = _TEXT_WIDTH) -> str:
    """Return the text on one line, with its middle left out where it is longer than `width`."""
    text = visible(text).replace("\n", " ")
    if len(text) <= width:
        return text
    half = (width - 1) // 2
    return f"{text[:half]}…{text[half + 1 - width :]}"


def _cut(text: str, width: int = _TEXT_WIDTH) -> str:
    rest = len(text) - width
    return text if rest <= 0 else f"{text[:width]}… ({units.plural(rest, 'more character')})"


def _failed_tables(record: RunRecord) -> tuple[dict[tuple[str, ...], list[Failure]], str]:
    """Return what failed by table, and a sentence about failures that are not shown."""
    failed = [action for action in record.actions if action.outcome is Outcome.FAILED]
    unreadable = unreadable_tables(record)
    by_table: dict[tuple[str, ...], list[Failure]] = {}
    for action in failed[:MOST_FAILED]:
        name, why = kind_name(action.action.kind), f"{action.action.rule}: {action.action.why}"
        failure = Failure(name, action.error or "no reason given", why)
        by_table.setdefault(action.action.table, []).append(failure)
    for facts in unreadable[:MOST_UNREADABLE]:
        failure = Failure("could not be read", facts.error or "no reason given", "")
        by_table.setdefault(facts.table, []).append(failure)
    # A record has only tables with an action; its totals count all.
    lost = max(len(unreadable), (record.after or record.before).unreadable)
    more = []
    if len(failed) > MOST_FAILED:
        rest = units.plural(len(failed) - MOST_FAILED, "more failed action")
        more.append(f"{rest} not shown; the JSON report lists them all.")
    if lost > len(unreadable[:MOST_UNREADABLE]):
        rest = units.plural(lost - len(unreadable[:MOST_UNREADABLE]), "more unreadable table")
        more.append(f"{rest} not shown.")
    return by_table, " ".join(more)


_ORDER = (Outcome.SKIPPED, Outcome.DONE, Outcome.PLANNED, Outcome.NOTHING)


def _other_actions(record: RunRecord) -> tuple[list[ActionRecord], str]:
    """Return the actions that did not fail, skipped ones first, and a sentence about those not shown."""
    order: dict[Outcome | Unknown, int] = {outcome: at for at, outcome in enumerate(_ORDER)}
    actions = [action for action in record.actions if action.outcome is not Outcome.FAILED]
    actions.sort(key=lambda action: order.get(action.outcome, -1))
    rest = Counter(action.outcome for action in actions[MOST_ACTIONS:])
    if not rest:
        return actions, ""
    parts = ", ".join(f"{number:,} {outcome.value}" for outcome, number in rest.items())
    more = f"{units.plural(rest.total(), 'more action')} not shown: {parts}."
    return actions[:MOST_ACTIONS], f"{more} The JSON report lists them all."


def _figures_of(action: ActionRecord) -> str:
    """Return what an action did, or would do, in a few words; figures of nothing are left out."""
    figures: Effect | Estimate | None = action.effect
    if figures is None and action.outcome in (Outcome.PLANNED, Outcome.SKIPPED):
        figures = action.planned
    if figures is None:
        return ""
    frees = action.effect is not None or _frees(action.action.kind)
    use = "to rewrite" if not frees else "freed" if action.effect is not None else "to free"
    parts = [
        units.plural(figures.rows, "row") if figures.rows else "",
        units.plural(figures.files, "file") if figures.files else "",
        f"{units.in_bytes(figures.bytes)} {use}" if figures.bytes else "",
        figures.note,
    ]
    return shortened(", ".join(part for part in parts if part))
