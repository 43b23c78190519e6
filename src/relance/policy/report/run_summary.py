"""A run in a few figures: what a terminal shows, and the head of the HTML page. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta

from relance import amounts
from relance.identifiers import format_id
from relance.jobs.base import kind_order, kinds
from relance.policy.records import ActionRecord, Outcome, RunRecord, RunState, Totals


@dataclass(frozen=True, slots=True)
class KindFigures:
    """All actions of one kind together; of a dry run, what they would do."""

    kind: str
    actions: int
    tables: int
    """Different ones; the root counts as one."""
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
        if all(each.after is None for each in self.totals):
            now = ((each.label, _shown(each, each.before)) for each in self.totals)
            return (("in the lake", "now"), *now)
        return (("in the lake", "before", "after", "change"), *map(_total_cells, self.totals))

    @property
    def kind_rows(self) -> tuple[tuple[str, ...], ...]:
        """Return the figures of each kind as text, with a row of headings first."""
        last = ("to free", "to rewrite") if self.planned_only else ("freed", "failed", "took")
        head = ("action", "tables", "rows", "files", *last)
        return (head, *(_kind_cells(each, planned_only=self.planned_only) for each in self.kinds))


def summary(record: RunRecord) -> Summary:
    """Return the run in a few figures."""
    kinds = kinds_of(record)
    return Summary(
        headline=_headline(record, kinds),
        message=record.message,
        about=_about(record),
        totals=_totals(record.before, record.after),
        kinds=kinds,
        failures=tuple(each for each in record.actions if each.outcome is Outcome.FAILED),
        unreadable=(record.after or record.before).unreadable,
        planned_only=is_planned_only(record),
    )


def lines_of(found: Summary) -> list[str]:
    """Return the summary as plain text, for pipes and logs: columns are padded, nothing is coloured."""
    lines = [found.headline, *([found.message] if found.message else []), ""]
    width = max(len(label) for label, _ in found.about)
    lines += [f"{label.ljust(width)}  {value}" for label, value in found.about]
    lines += ["", *_aligned(found.total_rows)]
    if found.kinds:
        lines += ["", *_aligned(found.kind_rows)]
    if found.failures:
        lines += ["", *(_failure_line(each) for each in found.failures)]
    return lines


def is_planned_only(record: RunRecord) -> bool:
    """Return whether the figures say what would be done: a dry run, or a run that was refused."""
    return record.state in (RunState.PLANNED, RunState.REFUSED)


def name_of(table: tuple[str, ...]) -> str:
    """Return a table's name as it can be given to a command; the root has none of its own."""
    return format_id(table) if table else "(the root)"


def kinds_of(record: RunRecord) -> tuple[KindFigures, ...]:
    """Return the figures of each kind with an action, in the order in which they are done."""
    would = is_planned_only(record)
    by_kind: dict[str, list[ActionRecord]] = {}
    for each in record.actions:
        by_kind.setdefault(each.action.kind, []).append(each)
    return tuple(_figures(kind, by_kind[kind], would=would) for kind in sorted(by_kind, key=kind_order))


def kind_name(kind: str) -> str:
    """Return what reports call a kind of action; one of a newer release by its own name."""
    return next((known.title for known in kinds() if known.kind == kind), kind)


def frees_bytes(kind: str) -> bool:
    """Return whether the bytes of a kind are bytes that go; those that others estimate are rewritten."""
    return any(known.frees_bytes for known in kinds() if known.kind == kind)


def freed_bytes(each: ActionRecord, *, would: bool) -> int:
    """Return how many bytes an action freed, or would free."""
    if not would:
        return each.effect.bytes if each.effect else 0
    return each.planned.bytes if each.planned and frees_bytes(each.action.kind) else 0


def _figures(kind: str, records: list[ActionRecord], *, would: bool) -> KindFigures:
    found = [each.planned if would else each.effect for each in records]
    outcomes = [each.outcome for each in records]
    rewritten = (
        sum(each.planned.bytes for each in records if each.planned) if would and not frees_bytes(kind) else 0
    )
    return KindFigures(
        kind=kind,
        actions=len(records),
        tables=len({each.action.table for each in records}),
        done=outcomes.count(Outcome.DONE),
        nothing=outcomes.count(Outcome.NOTHING),
        failed=outcomes.count(Outcome.FAILED),
        skipped=outcomes.count(Outcome.SKIPPED),
        rows=sum(each.rows for each in found if each),
        files=sum(each.files for each in found if each),
        bytes=sum(freed_bytes(each, would=would) for each in records),
        rewritten=rewritten,
        duration=sum((each.duration for each in records), timedelta()),
    )


def _headline(record: RunRecord, kinds: Iterable[KindFigures]) -> str:
    outcomes = [each.outcome for each in record.actions]
    freed = amounts.in_bytes(sum(each.bytes for each in kinds))
    tables = amounts.plural(len({each.action.table for each in record.actions}), "table")
    actions = amounts.plural(len(outcomes), "action")
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
    unfinished = "In progress or interrupted: " if record.state is RunState.RUNNING else ""
    return f"{unfinished}{', '.join(parts)}; {freed} freed."


def _about(record: RunRecord) -> tuple[tuple[str, str], ...]:
    ended = record.ended_at
    took = f", took {amounts.duration(ended - record.started_at)}" if ended else ""
    return (
        (
            "state",
            f"{record.state.value} (dry run)" if record.state is RunState.PLANNED else record.state.value,
        ),
        ("started", f"{amounts.instant(record.started_at)}{took}"),
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
    change = amounts.difference(line.before, line.after, is_bytes=line.is_bytes)
    return (line.label, _shown(line, line.before), _shown(line, line.after), change)


def _shown(line: TotalLine, figure: int) -> str:
    return amounts.in_bytes(figure) if line.is_bytes else amounts.short_count(figure)


def _kind_cells(each: KindFigures, *, planned_only: bool) -> tuple[str, ...]:
    first = (kind_name(each.kind), *map(amounts.short_count, (each.tables, each.rows, each.files)))
    if planned_only:
        return (*first, amounts.in_bytes(each.bytes), amounts.in_bytes(each.rewritten))
    failed, took = amounts.short_count(each.failed), amounts.duration(each.duration)
    return (*first, amounts.in_bytes(each.bytes), failed, took)


def _failure_line(each: ActionRecord) -> str:
    what = f"{kind_name(each.action.kind)} {name_of(each.action.table)}"
    return f"failed: {what}: {each.error or 'no reason given'}"


def _aligned(rows: Sequence[tuple[str, ...]]) -> list[str]:
    widths = [max(len(row[at]) for row in rows) for at in range(len(rows[0]))]
    return [
        "  ".join(
            [
                row[0].ljust(widths[0]),
                *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True)),
            ]
        ).rstrip()
        for row in rows
    ]
