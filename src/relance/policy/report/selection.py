"""Which figures each plot of the page shows, and in which order. Pure; drawing them is in plots."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from relance import amounts
from relance.jobs.facts import TableFacts, TableState, expiry_order
from relance.policy.records import MoreDropped, RunRecord
from relance.policy.report.run_summary import kind_name, kinds_of, name_of

TOP = 20
"""How many tables a plot names; the rest is told in a sentence."""


@dataclass(frozen=True, slots=True)
class Bar:
    """One line of a plot; `after` is None when there is nothing to compare with."""

    label: str
    before: float
    after: float | None = None
    note: str = ""


@dataclass(frozen=True, slots=True)
class Chosen:
    """The lines of a plot, and what became of the others."""

    bars: tuple[Bar, ...]
    rest: str = ""


@dataclass(frozen=True, slots=True)
class Waiting:
    """A dropped table that waits for its purge."""

    label: str
    since: datetime | None
    until: datetime | None
    """None: it stays until somebody says when."""


@dataclass(frozen=True, slots=True)
class Queue:
    """Dropped tables, those that go first in front."""

    now: datetime
    shown: tuple[Waiting, ...]
    rest: str = ""


def bytes_by_table(record: RunRecord) -> Chosen:
    """Return the tables whose bytes changed most; those with the most bytes where nothing changed."""
    return _by_change(_bars(record, lambda facts: facts.bytes), amounts.in_bytes)


def versions_by_table(record: RunRecord) -> Chosen:
    """Return the tables whose number of versions changed most."""
    return _by_change(_bars(record, lambda facts: facts.versions), amounts.short_count)


def deleted_ratios(record: RunRecord) -> Chosen:
    """Return the tables with the largest share of deleted rows, before or after."""
    found = _bars(record, lambda facts: facts.deleted_ratio if facts.rows is not None else None)
    some = [bar for bar in found if bar.before or bar.after]
    some.sort(key=lambda bar: (-max(bar.before, bar.after or 0.0), bar.label))
    rest = some[TOP:]
    told = (
        f"{amounts.plural(len(rest), 'other table')}: at most {amounts.share(_largest(rest))}."
        if rest
        else ""
    )
    return Chosen(tuple(some[:TOP]), told)


def freed_by_kind(record: RunRecord) -> Chosen:
    """Return the bytes that each kind of action freed, or would free; kinds that freed none are left out."""
    kinds = [each for each in kinds_of(record) if each.bytes]
    return Chosen(
        tuple(
            Bar(kind_name(each.kind), each.bytes, note=amounts.plural(each.tables, "table")) for each in kinds
        )
    )


def slowest_tables(record: RunRecord) -> Chosen:
    """Return the tables whose actions took longest together, in seconds."""
    taken: dict[tuple[str, ...], timedelta] = {}
    actions: dict[tuple[str, ...], int] = {}
    for each in record.actions:
        if each.duration > timedelta():
            taken[each.action.table] = taken.get(each.action.table, timedelta()) + each.duration
            actions[each.action.table] = actions.get(each.action.table, 0) + 1
    order = sorted(taken, key=lambda table: (-taken[table], table))
    rest = sum((taken[table] for table in order[TOP:]), timedelta())
    others = amounts.plural(len(order) - TOP, "other table")
    return Chosen(
        tuple(
            Bar(name_of(table), taken[table].total_seconds(), note=amounts.plural(actions[table], "action"))
            for table in order[:TOP]
        ),
        f"{others} in total: {amounts.duration(rest)}." if len(order) > TOP else "",
    )


def pending_purges(record: RunRecord) -> Queue:
    """Return the dropped tables that are still there after the run, those that go first in front."""
    now = record.ended_at or record.started_at
    last = [each.after if record.after is not None else each.before for each in record.changes]
    dropped = [facts for facts in last if facts is not None and facts.state is TableState.DROPPED]
    dropped.sort(key=expiry_order)
    shown = tuple(
        Waiting(name_of(facts.table), facts.dropped_at, facts.purge_after) for facts in dropped[:TOP]
    )
    rest = dropped[TOP:]
    count = len(rest) + record.more_dropped.tables
    due = sum(1 for facts in rest if facts.purge_after is not None and facts.purge_after <= now)
    return Queue(now, shown, _rest_waiting(count, due, record.more_dropped) if count else "")


def _rest_waiting(count: int, due: int, counted: MoreDropped) -> str:
    waiting, due = f"{amounts.plural(count, 'more dropped table')} waiting", due + counted.due
    if not counted.tables:
        return f"{waiting}; {due:,} of them are due now."
    # Since the plan counted them, others may have become due.
    return f"{waiting}; at least {due:,} of them are due now." if due else f"{waiting}."


def unreadable_tables(record: RunRecord) -> tuple[TableFacts, ...]:
    """Return what is known of tables that could not be read, at the end or, failing that, at the start."""
    last = (each.after or each.before for each in record.changes)
    return tuple(sorted((facts for facts in last if facts.error is not None), key=lambda facts: facts.table))


def _bars(record: RunRecord, figure: Callable[[TableFacts], float | None]) -> list[Bar]:
    """Return a bar for each table whose figure is known; a table that is gone has 0 afterwards.

    Dropped tables that only wait have none: of many, the record has but the first.
    """
    ended = record.after is not None
    purged = {
        (each.action.table, each.action.settings.get("deletion_id"))
        for each in record.actions
        if each.action.kind == "purge"
    }
    bars = []
    for each in record.changes:
        facts = each.before
        if facts.state is TableState.DROPPED and purged.isdisjoint(
            {(facts.table, facts.deletion_id), (facts.table, None)}
        ):
            continue
        before = figure(each.before)
        after = (figure(each.after) if each.after is not None else 0) if ended else None
        if before is not None and (after is not None or not ended):
            bars.append(Bar(name_of(each.before.table), before, after))
    return bars


def _by_change(bars: Iterable[Bar], show: Callable[[int], str]) -> Chosen:
    order = sorted(bars, key=lambda bar: (-_change(bar), -bar.before, bar.label))
    rest = order[TOP:]
    return Chosen(tuple(order[:TOP]), _sums(rest, show) if rest else "")


def _sums(rest: Sequence[Bar], show: Callable[[int], str]) -> str:
    before = show(int(sum(bar.before for bar in rest)))
    others = amounts.plural(len(rest), "other table")
    if rest[0].after is None:
        return f"{others} in total: {before}."
    after = show(int(sum(bar.after or 0 for bar in rest)))
    return f"{others} in total: {before} before, {after} after."


def _change(bar: Bar) -> float:
    return 0.0 if bar.after is None else abs(bar.after - bar.before)


def _largest(bars: Sequence[Bar]) -> float:
    return max(max(bar.before, bar.after or 0.0) for bar in bars)
