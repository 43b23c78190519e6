"""The figures of a run's summary count what they claim to, however the run ended."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest
from tests.support.policy.runs import NOW, a_run, dry, every_run, hostile, night

from relance.jobs.base import Effect, Estimate
from relance.jobs.facts import TableFacts, TableState
from relance.policy.actions import Action
from relance.policy.records import ActionRecord, Outcome, RunRecord, RunState, TableChange, Totals
from relance.policy.report import (
    TOP,
    bytes_by_table,
    deleted_ratios,
    freed_by_kind,
    kind_name,
    lines_of,
    name_of,
    pending_purges,
    slowest_tables,
    summary,
    unreadable_tables,
    versions_by_table,
)


def did(
    kind: str,
    table: str,
    outcome: Outcome = Outcome.DONE,
    *,
    effect: Effect | None = None,
    planned: Estimate | None = None,
    error: str | None = None,
    seconds: float = 0,
) -> ActionRecord:
    action = Action(kind, (table,), "rule", "why")
    return ActionRecord(action, outcome, planned, effect, error, NOW, timedelta(seconds=seconds))


RUN = a_run(
    [
        did("purge", "old", effect=Effect(files=7, bytes=500), seconds=1),
        did("compact", "a", effect=Effect(rows=10), planned=Estimate(rows=9, bytes=900), seconds=2),
        did("compact", "b", Outcome.FAILED, effect=Effect(rows=5), error="lost", seconds=3),
        did("compact", "c", Outcome.NOTHING),
        did("clean_up", "a", effect=Effect(files=3, bytes=40), seconds=4),
        did("clean_up", "a", Outcome.SKIPPED, planned=Estimate(bytes=10**9)),
    ],
    state=RunState.FAILED,
)


def test_kinds_count_their_own_actions_in_execution_order() -> None:
    compact, clean_up, purge = summary(RUN).kinds
    assert [compact.kind, clean_up.kind, purge.kind] == ["compact", "clean_up", "purge"]
    assert (compact.actions, compact.tables, compact.done, compact.failed, compact.nothing) == (3, 3, 1, 1, 1)
    # What a failed action had done by then counts too.
    assert (compact.rows, compact.files, compact.bytes, compact.duration) == (15, 0, 0, timedelta(seconds=5))
    assert (clean_up.actions, clean_up.tables, clean_up.skipped, clean_up.bytes) == (2, 1, 1, 40)
    assert (purge.files, purge.bytes, purge.failed) == (7, 500, 0)


def test_headline_of_a_run_counts_its_outcomes() -> None:
    said = summary(RUN).headline
    assert said == "3 of 6 actions done on 4 tables, 1 failed, 1 with nothing to do, 1 skipped; 540 B freed."
    assert [each.action.table for each in summary(RUN).failures] == [("b",)]


def test_dry_run_separates_bytes_freed_from_bytes_rewritten() -> None:
    planned = [
        did("compact", "a", Outcome.PLANNED, planned=Estimate(rows=10, bytes=7000)),
        did("purge", "b", Outcome.PLANNED, planned=Estimate(files=2, bytes=500)),
    ]
    found = summary(a_run(planned, state=RunState.PLANNED))
    assert found.headline == "Dry run: 2 actions on 2 tables would free 500 B."
    assert [(each.bytes, each.rewritten) for each in found.kinds] == [(0, 7000), (500, 0)]
    assert found.kind_rows[0][-2:] == ("to free", "to rewrite")
    assert found.total_rows[0] == ("in the lake", "now")


def test_summary_of_a_refused_run_says_why() -> None:
    found = summary(dry(night(), RunState.REFUSED, "too much"))
    assert found.headline.startswith("Refused, nothing was done: 76 actions on 41 tables would free ")
    assert "too much" in lines_of(found)


def test_interrupted_run_does_not_count_actions_not_started() -> None:
    begun = did("purge", "a", effect=Effect(bytes=3))
    waiting = did("purge", "b", Outcome.PLANNED, planned=Estimate(bytes=500))
    found = summary(a_run([begun, waiting], state=RunState.RUNNING))
    assert found.headline == (
        "In progress or interrupted: 1 of 2 actions done on 2 tables, 1 not started; 3 B freed."
    )


def test_headline_of_a_run_with_nothing_to_do_says_so() -> None:
    assert summary(a_run()).headline == "Nothing to do: the lake has no tables."
    some = replace(a_run(), before=Totals(tables=3), after=Totals(tables=3))
    assert summary(some).headline == "Nothing to do: every table complies with the policy."


@pytest.mark.parametrize("name", list(every_run()))
def test_summary_of_every_run_can_be_printed_as_lines(name: str) -> None:
    record = every_run()[name]
    found = summary(record)
    lines = lines_of(found)
    assert lines[0] == found.headline
    assert [line for line in lines if line.startswith("failed: ")] or not found.failures
    for table in (found.total_rows, found.kind_rows):
        assert {len(row) for row in table} == {len(table[0])}


def test_every_kind_and_the_root_have_a_display_name() -> None:
    assert [kind_name(kind) for kind in ("clean_up", "drop_ttl", "compact")] == [
        "clean up versions",
        "set drop TTL",
        "compact",
    ]
    assert kind_name("of_tomorrow") == "of_tomorrow"
    assert name_of(()) == "(the root)"
    assert name_of(("a", "b")) == "a.b"
    assert name_of(("a.b", "c")) == "`a.b`.c"


def sized(name: str, before: int, after: int | None) -> TableChange:
    facts = TableFacts((name,), rows=before, bytes=before, versions=before)
    return TableChange(facts, None if after is None else replace(facts, bytes=after, versions=after))


def test_tables_are_ordered_by_change_and_the_rest_is_summed() -> None:
    changes = [sized(f"t{at:02}", 1000 + at, 1000) for at in range(TOP + 5)]
    chosen = bytes_by_table(a_run(changes=changes))
    assert [bar.label for bar in chosen.bars[:2]] == ["t24", "t23"]
    assert len(chosen.bars) == TOP
    assert chosen.rest == "5 other tables in total: 5.01 kB before, 5 kB after."
    assert (
        versions_by_table(a_run(changes=changes)).rest
        == "5 other tables in total: 5,010 before, 5,000 after."
    )


def test_purged_table_is_zero_afterwards_and_a_dry_run_has_no_afterwards() -> None:
    changes = [sized("gone", 70, None)]
    (bar,) = bytes_by_table(a_run(changes=changes)).bars
    assert (bar.before, bar.after) == (70, 0)
    (bar,) = bytes_by_table(a_run(changes=changes, state=RunState.PLANNED)).bars
    assert (bar.before, bar.after) == (70, None)


def test_unknown_figure_is_not_drawn() -> None:
    change = TableChange(TableFacts(("a",)), TableFacts(("a",)))
    assert bytes_by_table(a_run(changes=[change])).bars == ()


def test_shares_of_deleted_rows_are_sorted_in_descending_order() -> None:
    def holding(name: str, deleted: int) -> TableChange:
        facts = TableFacts((name,), rows=100 - deleted, deleted_rows=deleted)
        return TableChange(facts, replace(facts, deleted_rows=0))

    chosen = deleted_ratios(a_run(changes=[holding(f"t{at:02}", at) for at in range(TOP + 3)]))
    assert [bar.before for bar in chosen.bars[:2]] == [0.22, 0.21]
    assert chosen.rest == "2 other tables: at most 2 %."


def test_kinds_that_freed_nothing_are_omitted() -> None:
    assert [(bar.label, bar.before) for bar in freed_by_kind(RUN).bars] == [
        ("clean up versions", 40),
        ("purge", 500),
    ]


def test_time_of_a_table_sums_all_its_actions() -> None:
    bars = slowest_tables(RUN).bars
    assert [(bar.label, bar.before, bar.count) for bar in bars[:2]] == [
        ("a", 6.0, 2),
        ("b", 3.0, 1),
    ]


def waiting(name: str, days: int | None) -> TableChange:
    due = None if days is None else NOW + timedelta(days=days)
    facts = TableFacts((name,), TableState.DROPPED, dropped_at=NOW, purge_after=due)
    return TableChange(facts, facts)


def test_pending_purges_are_sorted_by_due_time() -> None:
    purged = TableChange(TableFacts(("purged",), TableState.DROPPED, purge_after=NOW), None)
    undropped = replace(waiting("back", 1), after=TableFacts(("back",)))
    record = a_run(
        changes=[waiting("never", None), waiting("late", 5), waiting("due", -1), purged, undropped]
    )
    assert [each.label for each in pending_purges(record).shown] == ["due", "late", "never"]
    before = pending_purges(dry(record))
    assert [each.label for each in before.shown] == ["due", "purged", "back", "late", "never"]


def test_pending_purges_beyond_the_limit_are_counted() -> None:
    record = a_run(changes=[waiting(f"t{at:02}", at - TOP - 2) for at in range(TOP + 4)])
    assert pending_purges(record).rest == "4 more dropped tables waiting; 3 of them are due now."


def test_unreadable_tables_are_taken_from_the_end_of_the_run() -> None:
    bad, good = TableFacts(("t",), error="gone"), TableFacts(("t",))
    assert unreadable_tables(a_run(changes=[TableChange(bad, good)])) == ()
    assert unreadable_tables(a_run(changes=[TableChange(good, bad)])) == (bad,)
    assert unreadable_tables(a_run(changes=[TableChange(bad)], state=RunState.PLANNED)) == (bad,)
    found: RunRecord = hostile()
    assert summary(found).unreadable == len(unreadable_tables(found))
