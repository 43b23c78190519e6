"""The history: every action with its run, filters, and a table that stays small."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import lance
import pyarrow as pa
import pytest
from tests.support.patches import substitute
from tests.support.policy.lakes import OLD_ROWS, PolicyLake, the_policy

from relance.errors import InvalidInputError, InvalidTableStateError
from relance.policy import history, plan, run, run_policy, run_record, runs
from relance.policy.actions import Action, Unknown
from relance.policy.codec import decode, encode
from relance.policy.past_runs import HISTORY_DIRECTORY, History, RunHead
from relance.policy.planning import decode_plan, encode_plan, policy_hash
from relance.policy.records import ActionRecord, MoreDropped, Outcome, RunRecord, RunState
from relance.policy.report import lines_of, summary, to_html

HEAD = RunHead("run", "me@here", "policy.toml", "hash", "local")


def _record(number: int) -> ActionRecord:
    return ActionRecord(Action("compact", ("t", f"n{number}"), "rule", "why"), Outcome.DONE)


def test_history_keeps_every_action_with_its_details(lake: PolicyLake) -> None:
    before = datetime.now(UTC)
    record = run_policy(lake.catalog, the_policy(), actor="ann@night")
    kept = history(lake.catalog)
    assert [each.record for each in reversed(kept)] == list(record.actions)
    assert {each.head.actor for each in kept} == {"ann@night"}
    assert {each.head.policy for each in kept} == {"policy.toml"}
    assert {each.head.policy_hash for each in kept} == {policy_hash(the_policy())}
    assert {each.head.run for each in kept} == {record.run}
    (deleted,) = history(lake.catalog, kind="delete_rows", table=["readings"])
    found = deleted.record
    assert found.outcome is Outcome.DONE
    assert found.action.rule == "ninety days"
    assert found.action.why
    assert found.effect is not None
    assert (found.effect.before.deleted_rows, found.effect.after.deleted_rows) == (0, 4 * OLD_ROWS)
    assert found.started_at is not None
    assert found.started_at >= before
    assert found.duration > timedelta(0)
    assert run_record(lake.catalog) == record == run_record(lake.catalog, record.run)


def test_history_is_filtered_by_time_table_kind_run_and_failure(lake: PolicyLake) -> None:
    first = run_policy(lake.catalog, the_policy())
    between = datetime.now(UTC)
    lake.append("readings")
    second = run_policy(lake.catalog, the_policy())
    assert {each.head.run for each in history(lake.catalog, since=between)} == {second.run}
    assert {each.head.run for each in history(lake.catalog, run=first.run)} == {first.run}
    assert {each.record.action.table for each in history(lake.catalog, table=["prod", "orders"])} == {
        ("prod", "orders")
    }
    kinds = {each.record.action.kind for each in history(lake.catalog, kind="purge")}
    assert kinds == {"purge"}
    assert history(lake.catalog, failed=True) == []
    assert len(history(lake.catalog, limit=3)) == 3
    assert [each.head.run for each in runs(lake.catalog)] == [second.run, first.run]


def test_history_of_names_with_quotes_is_found(lake: PolicyLake) -> None:
    History(lake.context).add_actions(
        HEAD, [(0, ActionRecord(Action("purge", ("it's",), "r", "w"), Outcome.FAILED, error="x'y"))]
    )
    (found,) = history(lake.catalog, table=["it's"], failed=True)
    assert found.record.error == "x'y"


def test_history_of_a_new_lake_is_empty(lake: PolicyLake) -> None:
    assert history(lake.catalog) == []
    assert runs(lake.catalog) == []
    assert run_record(lake.catalog) is None


def test_run_adds_few_history_versions_and_old_ones_are_removed(
    lake: PolicyLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = run_policy(lake.catalog, the_policy())
    dataset = lance.dataset(f"{lake.uri}/{HISTORY_DIRECTORY}")
    kinds = {each.action.kind for each in record.actions}
    assert dataset.version <= len(kinds) + 3, "one commit for a kind, not for an action"
    substitute(monkeypatch, "history.old_versions", timedelta(0))
    substitute(monkeypatch, "history.many_fragments", 4)
    run(lake.catalog, plan(lake.catalog, the_policy()))
    dataset = lance.dataset(f"{lake.uri}/{HISTORY_DIRECTORY}")
    assert len(dataset.versions()) == 1
    assert len(dataset.get_fragments()) == 1
    assert len(runs(lake.catalog)) == 2
    assert run_record(lake.catalog, record.run) == record


def test_history_rows_written_twice_count_once(lake: PolicyLake) -> None:
    kept = History(lake.context)
    for _ in range(2):
        kept.add_actions(HEAD, [(number, _record(number)) for number in range(3)])
    assert len(kept.entries()) == 3
    assert len(kept.actions("run")) == 3


def test_history_of_another_release_is_refused(lake: PolicyLake) -> None:
    run_policy(lake.catalog, the_policy())
    lance.dataset(f"{lake.uri}/{HISTORY_DIRECTORY}").update_schema_metadata({"relance.history": "2"})
    with pytest.raises(InvalidTableStateError, match="a different release"):
        history(lake.catalog)


def test_run_record_round_trips_through_json(lake: PolicyLake) -> None:
    record = run_policy(lake.catalog, the_policy())
    assert decode(RunRecord, encode(record), "record") == record
    assert record.state is RunState.DONE


def test_policy_hash_changes_with_the_policy_not_with_its_layout() -> None:
    compact = """[[rules]]
name = "a"
tables = "**"
compact = { min_fragments = 2 }
protect = true
"""
    commented = """# Agreed on 2026-11-01.

[[rules]]
name = "a"  # the only one
protect = true
tables = ["**"]

[rules.compact]
min_fragments = 2
"""
    plain = policy_hash(the_policy(compact))
    assert policy_hash(the_policy(commented)) == plain
    for changed in (
        compact.replace("2", "3"),
        compact.replace('"a"', '"b"'),
        compact.replace("protect = true", "protect = false"),
        compact.replace("**", "*"),
        compact + "[limits]\nmax_tables = 1\n",
        compact + 'window = "22:00-06:00"\n',
    ):
        assert policy_hash(the_policy(changed)) != plain, changed


@pytest.fixture
def newer(lake: PolicyLake) -> tuple[PolicyLake, RunRecord]:
    """A lake of which a newer release did some of the work, in words that this release does not know."""
    record = run_policy(lake.catalog, the_policy())
    dataset = lance.dataset(f"{lake.uri}/{HISTORY_DIRECTORY}")
    rows = [each for each in dataset.to_table().to_pylist() if each["number"] is not None]
    written = {"run": record.run, "at": datetime.now(UTC), "kind": "vacuum"}
    added = [
        {**rows[0], **written, "number": 90, "error": "too warm", "outcome": Outcome.FAILED.value},
        {**rows[0], **written, "number": 91, "outcome": "postponed"},
    ]
    lance.write_dataset(pa.Table.from_pylist(added, dataset.schema), dataset.uri, mode="append")
    return lake, record


def test_actions_of_a_newer_release_are_listed_under_their_own_words(
    newer: tuple[PolicyLake, RunRecord],
) -> None:
    lake, record = newer
    kept = history(lake.catalog)
    assert len(kept) == len(record.actions) + 2
    shown = {(str(each.record.action.kind), str(each.record.outcome)) for each in kept if each.number >= 90}
    assert shown == {("vacuum", "failed"), ("vacuum", "postponed")}
    assert {each.record.action.kind for each in history(lake.catalog, failed=True)} == {"vacuum"}


def test_run_with_actions_of_a_newer_release_is_reported(newer: tuple[PolicyLake, RunRecord]) -> None:
    lake, record = newer
    kept = run_record(lake.catalog)
    assert kept is not None
    assert len(kept.actions) == len(record.actions) + 2
    assert decode(RunRecord, encode(kept), "record") == kept
    text = "\n".join(lines_of(summary(kept)))
    assert "failed: vacuum" in text
    page = to_html(kept)
    assert "postponed" in page
    assert "too warm" in page


def test_run_in_a_state_of_a_newer_release_is_listed_and_reported(lake: PolicyLake) -> None:
    record = run_policy(lake.catalog, the_policy())
    dataset = lance.dataset(f"{lake.uri}/{HISTORY_DIRECTORY}")
    dataset.update({"state": "'paused'"}, where="number IS NULL")
    (found,) = runs(lake.catalog)
    assert found.state.value == "paused"
    kept = run_record(lake.catalog, record.run)
    assert kept is not None
    assert "paused" in to_html(kept)
    assert "paused" in "\n".join(lines_of(summary(kept)))


def test_saved_plan_with_a_kind_of_a_newer_release_is_refused(lake: PolicyLake) -> None:
    made = plan(lake.catalog, the_policy())
    step = made.steps[0]
    changed = replace(made, steps=(replace(step, action=replace(step.action, kind=Unknown("vacuum"))),))
    with pytest.raises(
        InvalidInputError, match="has the action kind 'vacuum', which this release does not support"
    ):
        decode_plan(encode_plan(changed), what="plan 'x.json'")


def test_run_keeps_the_dropped_tables_that_expire_first_and_counts_the_others(
    lake: PolicyLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    substitute(monkeypatch, "policy_plan.kept_dropped", 2)
    for number, days in enumerate((9, 3, 7, 5)):
        lake.make(f"w{number}")
        lake.catalog.drop_table({"id": [f"w{number}"], "context": {"ttl_ms": f"{days}d"}})
    record = run_policy(lake.catalog, the_policy("[defaults]\npurge = true\n"))
    waiting = [each.before.table for each in record.changes if each.after is not None]
    assert waiting == [("w1",), ("w3",)]
    purged = {each.action.table for each in record.actions}
    assert (
        {each.before.table for each in record.changes} - set(waiting)
        == purged
        == {("gone",), ("prod", "old")}
    )
    assert record.more_dropped == MoreDropped(tables=3, due=0), "w0, w2 and kept"
    assert record.after is not None
    assert record.after.dropped == 5
    assert run_record(lake.catalog) == record
    page = to_html(record)
    assert "3 more dropped tables waiting." in page
    only = run_policy(lake.catalog, the_policy("[defaults]\nprotect = true\n"))
    assert (len(only.changes), only.more_dropped.tables) == (2 + len(only.actions), 3)


def test_expired_tables_that_are_only_counted_are_reported_as_due(
    lake: PolicyLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    substitute(monkeypatch, "policy_plan.kept_dropped", 1)
    made = plan(lake.catalog, the_policy('[defaults]\ndrop_ttl = "30d"\n'))
    assert made.more_dropped == MoreDropped(tables=2, due=1)
    assert decode_plan(encode_plan(made), what="it") == made
    assert "2 more dropped tables waiting; at least 1 of them are due now." in to_html(made.record)
