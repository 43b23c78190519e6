"""Act 4: a policy file says how tables should be maintained; a run on Spark does it."""

from __future__ import annotations

import os
from pathlib import Path

from examples.demo.lake import LAKE
from examples.demo.show import call, console, heading, say, show_table
from pyspark.sql import SparkSession

import relance.spark
from relance import policy, units
from relance.policy.model import Policy
from relance.policy.planning import RunPlan
from relance.policy.records import Outcome, RunRecord
from relance.policy.report import summary, to_html
from relance.spark.runner import SparkRunner

POLICY = Path(__file__).with_name("policy.toml")
REPORT = LAKE / "report.html"
_NAMED = 3
"""Tables that a line of the plan names."""


def maintain(spark: SparkSession, catalog: relance.DirectoryNamespace) -> None:
    """Plan, run, and see what a new plan would do."""
    heading("Act 4: a policy maintains the lake")
    wanted = policy.parse_policy(POLICY.read_bytes(), file=POLICY.name)
    say(
        f"{os.path.relpath(POLICY)} says: keep two days of readings, compact small files, clean up old "
        "versions, protect prod, purge expired tables. A plan shows what is due and changes nothing."
    )
    record = _run(spark, catalog, _plan(spark, wanted))
    REPORT.write_text(to_html(record))
    again = relance.spark.plan_policy(spark, wanted)
    due = sum(step.outcome is Outcome.PLANNED for step in again.steps)
    console.print()
    say(
        f"A new plan has {units.plural(due, 'action')}: the versions that this run replaced can be cleaned "
        "up next. The catalog keeps a history of all runs, and the report of this one is in "
        f"{REPORT}."
    )


def _plan(spark: SparkSession, wanted: Policy) -> RunPlan:
    call("plan = relance.spark.plan_policy(spark, policy)")
    plan = relance.spark.plan_policy(spark, wanted, engine="spark")
    tables: dict[str, list[str]] = {}
    for step in plan.steps:
        if step.outcome is Outcome.PLANNED:
            tables.setdefault(step.action.kind, []).append(".".join(step.action.table) or "(root)")
    rows = [(kind, f"{len(names)}", _shortened(names)) for kind, names in tables.items()]
    show_table(["action", "tables", "which"], rows, text=["which"])
    return plan


def _shortened(names: list[str]) -> str:
    rest = len(names) - _NAMED
    return ", ".join(names[:_NAMED]) + (f" and {rest} more" if rest > 0 else "")


def _run(spark: SparkSession, catalog: relance.DirectoryNamespace, plan: RunPlan) -> RunRecord:
    call('relance.policy.run(catalog, plan, engine="spark", spark=SparkRunner(spark))')
    record = policy.run(catalog, plan, engine="spark", spark=SparkRunner(spark))
    found = summary(record)
    say(found.headline)
    headings, *rows = found.total_rows
    show_table(headings, rows)
    if any(action.outcome is Outcome.FAILED for action in record.actions):
        raise SystemExit("an action failed")
    return record
