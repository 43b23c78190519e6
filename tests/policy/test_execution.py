"""Plan and run: a run does what the dry run showed, and a failing table does not affect the others."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from lance.namespace import DirectoryNamespace as NativeNamespace
from lance_namespace import ListTablesRequest
from tests.support.internals import context_of
from tests.support.jobs.lakes import DAY, ClockBehind, age
from tests.support.modes import COMPATIBILITY, V1
from tests.support.patches import original, substitute
from tests.support.policy.lakes import OLD_ROWS, POLICY, ROWS, PolicyLake, outcomes, the_policy
from tests.support.policy.policies import KINDS
from tests.support.roots import ipc

from relance.errors import InvalidInputError
from relance.jobs import Compact, maintain
from relance.jobs.base import CatalogRef
from relance.jobs.engine import Progress
from relance.policy import history, plan, run, run_policy, run_record, runs
from relance.policy.planning import RunPlan
from relance.policy.records import Outcome, RunRecord, RunState


def _keys(record: RunRecord, outcome: Outcome) -> set[tuple[str, tuple[str, ...], str]]:
    return {key for key, each in outcomes(record).items() if each is outcome}


def _as_planned(made: RunPlan, record: RunRecord) -> None:
    """Check that a run did what its plan says, with the same figures where nothing came before."""
    assert record.state is RunState.DONE, [each.error for each in record.actions if each.error]
    assert _keys(record, Outcome.DONE) == _keys(made.record, Outcome.PLANNED)
    assert _keys(record, Outcome.NOTHING) == _keys(made.record, Outcome.NOTHING)
    for step, done in zip(made.steps, record.actions, strict=True):
        if step.outcome is not Outcome.PLANNED or step.follows:
            continue
        assert step.planned is not None
        assert done.effect is not None
        match step.action.kind:
            case "delete_rows" | "compact":
                assert done.effect.rows == step.planned.rows
            case "purge" | "remove_orphans" | "clean_up":
                assert (done.effect.files, done.effect.bytes) == (step.planned.files, step.planned.bytes)


def test_run_does_what_its_dry_run_showed(lake: PolicyLake) -> None:
    before = lake.state()
    made = plan(lake.catalog, the_policy())
    assert lake.state() == before, "a dry run changes nothing"
    assert {each.action.kind for each in made.steps} == set(KINDS)

    record = run(lake.catalog, made)

    _as_planned(made, record)
    assert {key[0] for key in _keys(record, Outcome.DONE)} == set(KINDS)
    deleted = next(each for each in record.actions if each.action.kind == "delete_rows")
    assert deleted.effect is not None
    assert deleted.effect.rows == 4 * OLD_ROWS
    facts = lake.facts()
    assert facts["readings", ""].rows == 4 * (40 - OLD_ROWS)
    assert facts["prod", "orders", ""].protected
    assert facts["prod", "orders", ""].unindexed_rows == 0
    assert facts["readings", ""].drop_ttl == "30d"
    assert {each.id for each in lake.catalog.list_dropped_tables()} == {("kept",)}
    assert lake.state()["orphans"] == []
    assert lake.state()["problems"] == []


def test_run_without_a_manifest_does_what_its_dry_run_showed(tmp_path: Path) -> None:
    lake = PolicyLake(str(tmp_path / "lake"), mode=V1)
    lake.fill()
    text = POLICY.replace("maintain_manifest = true\n", "")
    made = plan(lake.catalog, the_policy(text))
    _as_planned(made, run(lake.catalog, made))
    assert lake.facts()["readings", ""].drop_ttl == "30d"
    assert [each.id for each in lake.catalog.list_dropped_tables()] == [("kept",)]


@pytest.mark.deep
def test_run_on_s3_does_what_its_dry_run_showed(s3_lake: PolicyLake) -> None:
    made = plan(s3_lake.catalog, the_policy())
    record = run(s3_lake.catalog, made)
    _as_planned(made, record)
    assert run_record(s3_lake.catalog) == record
    assert len(history(s3_lake.catalog)) == len(record.actions)
    assert [each.state for each in runs(s3_lake.catalog)] == [RunState.DONE]
    assert set(s3_lake.catalog.list_tables({"id": []}).tables) == {"later", "readings"}


def test_plan_says_which_actions_depend_on_others(lake: PolicyLake) -> None:
    made = plan(lake.catalog, the_policy())
    follows = {each.action.kind: each.follows for each in made.steps if each.action.table == ("readings",)}
    assert follows["delete_rows"] == ()
    assert follows["compact"] == ("delete_rows",)
    assert follows["clean_up"] == (), "it goes by the versions that there were"
    (compacted,) = (
        each for each in made.steps if each.action.kind == "compact" and each.action.table == ("readings",)
    )
    assert compacted.planned is not None
    assert "before delete_rows" in compacted.planned.note


@pytest.mark.parametrize("mode", [COMPATIBILITY, V1])
def test_cleanup_keeps_planned_versions_despite_those_the_run_makes(
    tmp_path: Path, mode: dict[str, str]
) -> None:
    lake = PolicyLake(str(tmp_path / "lake"), mode=mode)
    lake.fill()
    kept = lake.dataset("readings").version
    text = """
[limits]
max_bytes_deleted = {limit}
[defaults]
drop_ttl = "30d"
compact = true
clean_up = {{ retain_versions = 1, allow_young = true }}
"""
    free = plan(lake.catalog, the_policy(text.format(limit='"1TB"')), only=[["readings"]])
    (cleaned,) = (each for each in free.steps if each.action.kind == "clean_up")
    assert cleaned.planned is not None
    limit = cleaned.planned.bytes

    record = run_policy(lake.catalog, the_policy(text.format(limit=limit)), only=[["readings"]])

    assert record.state is RunState.DONE
    (done,) = (each for each in record.actions if each.action.kind == "clean_up")
    assert done.effect is not None
    assert (done.effect.files, done.effect.bytes) == (cleaned.planned.files, limit)
    assert min(each["version"] for each in lake.dataset("readings").versions()) == kept


def test_action_with_nothing_to_do_in_the_plan_is_not_run(lake: PolicyLake) -> None:
    run_policy(lake.catalog, the_policy())
    text = POLICY.replace("'90 days'", "'900 days'")  # nothing is so old
    made = plan(lake.catalog, the_policy(text), only=[["readings"]])
    assert _keys(made.record, Outcome.NOTHING) == {("delete_rows", ("readings",), "")}
    version = lake.dataset("readings").version
    record = run(lake.catalog, made)
    assert _keys(record, Outcome.NOTHING) == {("delete_rows", ("readings",), "")}
    assert lake.dataset("readings").version == version


def test_run_is_limited_to_the_named_tables_and_kinds(lake: PolicyLake) -> None:
    record = run_policy(lake.catalog, the_policy(), only=[["readings"]], kinds=["compact", "drop_ttl"])
    done = {("drop_ttl", ("readings",), ""), ("compact", ("readings",), "")}
    assert _keys(record, Outcome.DONE) == done
    assert record.before.tables == 1


def test_failing_table_does_not_affect_the_others(lake: PolicyLake) -> None:
    lake.make("events_a", fragments=3)
    lake.make("events_b", fragments=3)
    for file in Path(lake.location("events_a"), "data").iterdir():
        file.unlink()  # its rows cannot be read, and its versions can
    record = run_policy(lake.catalog, the_policy())
    found = outcomes(record)
    assert record.state is RunState.FAILED
    assert found["delete_rows", ("events_a",), ""] is Outcome.FAILED
    assert found["compact", ("events_a",), ""] is Outcome.SKIPPED
    assert found["delete_rows", ("events_b",), ""] is Outcome.DONE
    assert found["compact", ("events_b",), ""] is Outcome.DONE
    assert found["maintain_manifest", (), ""] is Outcome.DONE
    assert [each.record.action.table for each in history(lake.catalog, failed=True)] == [("events_a",)]


def test_impossible_rule_fails_without_affecting_other_actions(lake: PolicyLake) -> None:
    text = POLICY.replace("ts < now()", "when_ < now()").replace(
        'time_column = "ts"', 'time_column = "when_"'
    )
    record = run_policy(lake.catalog, the_policy(text))
    failed = [each for each in record.actions if each.outcome is Outcome.FAILED]
    assert [(each.action.kind, each.action.table) for each in failed] == [("delete_rows", ("readings",))]
    assert "when_" in (failed[0].error or "")
    assert outcomes(record)["compact", ("readings",), ""] is Outcome.DONE


@pytest.mark.parametrize(
    ("limit", "name"),
    [("max_tables = 1", "max_tables"), ("max_bytes_deleted = 10", "bytes"), ("max_rows_deleted = 9", "rows")],
)
def test_run_over_a_limit_is_refused_and_does_nothing(lake: PolicyLake, limit: str, name: str) -> None:
    before = lake.state()
    policy = the_policy(f"[limits]\n{limit}\n{POLICY}")
    made = plan(lake.catalog, policy)
    assert made.state is RunState.REFUSED
    for record in (run_policy(lake.catalog, policy), run(lake.catalog, made)):
        assert record.state is RunState.REFUSED
        assert name in record.message
        assert _keys(record, Outcome.DONE) == set()
    assert lake.state() == before
    assert [each.state for each in runs(lake.catalog)] == [RunState.REFUSED] * 2


def test_run_exactly_at_a_limit_is_executed(lake: PolicyLake) -> None:
    policy = the_policy(f"[limits]\nmax_rows_deleted = {4 * OLD_ROWS}\n{POLICY}")
    assert run_policy(lake.catalog, policy).state is RunState.DONE


def test_protection_without_a_manifest_fails_in_the_dry_run(tmp_path: Path) -> None:
    lake = PolicyLake(str(tmp_path / "lake"), mode=V1)
    lake.make("readings")
    made = plan(lake.catalog, the_policy("[defaults]\nprotect = true"))
    assert [each.outcome for each in made.steps] == [Outcome.FAILED]
    assert "manifest_enabled=true" in (made.steps[0].error or "")


def test_unreadable_table_is_reported_and_stops_nothing(lake: PolicyLake) -> None:
    lake.make("broken")
    for file in Path(lake.location("broken"), "_versions").iterdir():
        file.write_bytes(b"no manifest")
    record = run_policy(lake.catalog, the_policy())
    assert record.before.unreadable == 1
    assert "broken" in record.message
    assert outcomes(record)["compact", ("readings",), ""] is Outcome.DONE


def test_totals_and_changes_show_before_and_after(lake: PolicyLake) -> None:
    record = run_policy(lake.catalog, the_policy())
    assert record.after is not None
    assert (record.before.dropped, record.after.dropped) == (3, 1)
    assert record.before.rows - record.after.rows == 4 * OLD_ROWS
    assert record.after.fragments == sum(
        each.fragments or 0 for key, each in lake.facts().items() if not key[-1]
    )
    changes = {(*each.before.table, each.before.deletion_id is not None): each for each in record.changes}
    assert changes["gone", True].after is None
    assert changes["kept", True].after == changes["kept", True].before
    readings = changes["readings", False]
    assert readings.after is not None
    assert (readings.before.fragments, readings.after.fragments) == (4, 1)


def test_policy_run_reports_progress_of_every_phase(lake: PolicyLake) -> None:
    told: list[Progress] = []
    run_policy(lake.catalog, the_policy(), progress=told.append)
    assert {each.job for each in told} >= {"inspect", "dry run", *KINDS}
    for job in {each.job for each in told}:
        last = [each for each in told if each.job == job][-1]
        assert last.done == last.total


def test_dropped_generations_of_a_name_are_purged_separately(lake: PolicyLake) -> None:
    for name in ("first", "second"):
        lake.make("prod", name)
    due = lake.drop_long_ago("prod", "first")
    lake.catalog.rename_table({"id": ["prod", "second"], "new_table_name": "first"})
    lake.catalog.drop_table({"id": ["prod", "first"], "context": {"ttl_ms": "30d"}})
    record = run_policy(lake.catalog, the_policy(), only=[["prod", "first"]])
    assert _keys(record, Outcome.DONE) == {("purge", ("prod", "first"), due)}
    (left,) = (each for each in lake.catalog.list_dropped_tables() if each.id == ("prod", "first"))
    assert left.deletion_id != due
    lake.catalog.undrop_table(["prod", "first"])
    assert lake.dataset("prod", "first").count_rows() == 40


def test_history_table_is_hidden_from_listings_and_orphan_removal(lake: PolicyLake) -> None:
    run_policy(lake.catalog, the_policy())
    level = lake.context.storage.list_level(".relance-policy")
    assert level.directories == ("history",)
    assert "lease" in {each.key.rpartition("/")[2] for each in level.files}
    assert set(lake.catalog.list_tables({"id": []}).tables) == {"later", "readings"}
    native = NativeNamespace(root=lake.uri).list_tables(ListTablesRequest(id=[]))
    assert set(native.tables) == {"kept", "later", "readings"}, "it knows no markers"
    assert lake.catalog.scrub() == []
    made = plan(lake.catalog, the_policy(), kinds=["remove_orphans"])
    assert [each.outcome for each in made.steps] == [Outcome.NOTHING]
    assert made.steps[0].planned is None, "nothing is kept either"
    with pytest.raises(InvalidInputError, match="is reserved for the catalog"):
        lake.catalog.register_table({"id": ["mine"], "location": ".relance-policy/history"})


def test_columns_are_available_to_the_policy_but_not_stored_in_the_plan(lake: PolicyLake) -> None:
    lake.catalog.create_table({"id": ["events_wide"]}, ipc(pa.table({f"c{n}": [n] for n in range(50)})))
    made = plan(lake.catalog, the_policy())
    assert any("ts" in (each.error or "") for each in made.steps if each.action.table == ("events_wide",))
    assert all(each.columns == () for each in made.tables)


def test_history_has_the_start_and_end_of_a_run(lake: PolicyLake) -> None:
    before = datetime.now(UTC)
    record = run_policy(lake.catalog, the_policy())
    (entry,) = runs(lake.catalog)
    assert before <= entry.started_at == record.started_at
    assert entry.ended_at == record.ended_at
    assert runs(lake.catalog, since=datetime.now(UTC)) == []
    assert runs(lake.catalog, since=before - timedelta(seconds=1)) == [entry]


@pytest.mark.parametrize(("skew", "purged"), [("0s", True), ("2h", False)])
def test_clock_skew_of_the_catalog_delays_purges(lake: PolicyLake, skew: str, purged: bool) -> None:
    reference = CatalogRef(tuple({**dict(lake.ref.properties), "clock_skew": skew}.items()))
    made = plan(reference, the_policy("[defaults]\npurge = true\n"))
    assert bool(made.steps) is purged, "the tables were dropped an hour ago"


def test_fragment_that_compaction_rewrites_for_its_deleted_rows_is_due(lake: PolicyLake) -> None:
    lake.make("sparse", fragments=3)
    start = lake.dataset("sparse").get_fragments()[1].fragment_id << 32
    lake.dataset("sparse").delete(f"_rowaddr >= {start} AND _rowaddr < {start + ROWS // 2}")
    facts = lake.facts()["sparse", ""]
    assert (facts.deleted_ratio, facts.fragment_deleted_ratio) == (1 / 6, 1 / 2)
    wanted = "[defaults]\ncompact = { deletion_threshold = 0.3, target_rows = 1, min_fragments = 100 }\n"
    made = plan(lake.catalog, the_policy(wanted), only=[["sparse"]])
    job = Compact(deletion_threshold=0.3, target_rows=1)
    (directly,) = maintain(lake.catalog, job, [["sparse"]], dry_run=True).results
    assert [each.planned for each in made.steps] == [directly.planned]
    assert directly.planned is not None
    assert made.steps[0].action.why == "a fragment with 50.0% of rows deleted, more than 30.0%"
    above = wanted.replace("0.3", "0.5")
    assert plan(lake.catalog, the_policy(above), only=[["sparse"]]).steps == ()


def test_planned_ages_hold_where_the_clock_is_behind(lake: PolicyLake) -> None:
    age(Path(lake.location("readings")), 2 * DAY)
    wanted = "[defaults]\nclean_up = { retain_versions = 2 }\nremove_orphans = true\n"
    made = plan(lake.catalog, the_policy(wanted))
    assert {each.action.kind for each in made.steps} == {"clean_up", "remove_orphans"}
    behind = context_of(lake.open(clock=ClockBehind()))
    for step in made.steps:
        found = step.step(made.run, expected=True).plan(behind)
        assert (found and found.estimate) == step.planned


def test_dropped_tables_of_a_run_are_purged_as_one_batch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = PolicyLake(str(tmp_path / "lake"), mode=V1)
    for number in range(6):
        lake.make(f"t{number}")
        lake.drop_long_ago(f"t{number}")
    sizes: list[int] = []
    purge_ready = original("purge_job.purge")

    def purge(context: Any, ready: Any, options: Any) -> Any:
        sizes.append(len(ready))
        return purge_ready(context, ready, options)

    substitute(monkeypatch, "purge_job.purge", purge)
    record = run_policy(lake.catalog, the_policy("[defaults]\npurge = true\n"))
    assert record.state is RunState.DONE
    assert {each.outcome for each in record.actions} == {Outcome.DONE}
    assert sizes == [6]
    assert lake.catalog.list_dropped_tables() == []
