"""The main job: a file says how tables should live, a run on Spark sees to it, a page tells."""

from __future__ import annotations

from pathlib import Path

from examples.demo.lake import LAKE
from examples.demo.show import console, step
from pyspark.sql import SparkSession

import relance.spark
from relance import amounts, policy
from relance.maintenance import Effect
from relance.policy.actions import Action
from relance.policy.model import Policy
from relance.policy.pipeline.planning import RunPlan
from relance.policy.records import ActionRecord, Outcome, RunRecord
from relance.policy.report import lines_of, summary, to_html
from relance.spark.runner import SparkRunner

POLICY = Path(__file__).with_name("policy.toml")
REPORT = LAKE / "report.html"


def keep_healthy(spark: SparkSession, catalog: relance.DirectoryNamespace) -> None:
    """Plan, run, and look back."""
    wanted = policy.parse_policy(POLICY.read_bytes(), file=POLICY.name)
    plan = _show_plan(spark, wanted)
    record = _run(spark, catalog, plan)
    step("the history is a table in the lake: who did what to a table, and what came of it")
    for entry in policy.history(catalog, table=["prod", "sensors", "roof"]):
        console.print(f"{entry.head.actor}  {entry.record.action.kind:16} {entry.record.outcome}")
    again = relance.spark.plan_policy(spark, wanted)
    due = [each for each in again.steps if each.outcome is Outcome.PLANNED]
    left = amounts.plural(len(due), "action")
    console.print(f"a plan right after it has {left}: versions that this run made old go in the next")
    REPORT.write_text(to_html(record))


def _show_plan(spark: SparkSession, wanted: Policy) -> RunPlan:
    step(
        f"a policy says how tables should live ({POLICY.parent.name}/{POLICY.name}); its plan changes nothing"
    )
    plan = relance.spark.plan_policy(spark, wanted, engine="spark")
    for each in plan.steps:
        if each.outcome is Outcome.PLANNED:
            console.print(f"{each.action.kind:18} {_name(each.action):22} {each.action.why}")
    return plan


def _run(spark: SparkSession, catalog: relance.DirectoryNamespace, plan: RunPlan) -> RunRecord:
    step("the plan is run on Spark's executors: row deletes, compaction, cleanup, purge")
    record = policy.run(catalog, plan, engine="spark", spark=SparkRunner(spark))
    for each in record.actions:
        if each.outcome is not Outcome.NOTHING:
            console.print(_result(each))
    console.print()
    for line in lines_of(summary(record)):
        console.print(line)
    if any(each.outcome is Outcome.FAILED for each in record.actions):
        raise SystemExit("an action failed")
    return record


def _result(each: ActionRecord) -> str:
    done = each.effect or Effect()
    fragments = ""
    if done.after.fragments is not None:
        fragments = f", fragments {done.before.fragments} to {done.after.fragments}"
    return (
        f"{each.action.kind:18} {_name(each.action):22} {each.outcome:7} {done.rows:>9,} rows, "
        f"{done.files:>3} files and {amounts.in_bytes(done.bytes)} gone{fragments}, "
        f"{amounts.duration(each.duration)} {each.error or ''}"
    )


def _name(action: Action) -> str:
    return ".".join(action.table) or "the root"
