"""What tables are like when a run has ended, beside what they were like before."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields

from relance.catalog.context import Context
from relance.jobs.base import CatalogRef
from relance.jobs.facts import TableFacts
from relance.jobs.gather import gather
from relance.jobs.runner import Runner
from relance.policy.pipeline.planning import RunPlan
from relance.policy.records import ActionRecord, Outcome, TableChange, Totals


def seen_after(
    context: Context,
    catalog: CatalogRef,
    runner: Runner,
    plan: RunPlan,
    records: Mapping[int, ActionRecord],
) -> tuple[tuple[TableChange, ...], Totals]:
    """Return each table of the plan before and after, and the totals; of other tables those from before."""
    done = {each.action.table for each in records.values() if each.outcome is Outcome.DONE}
    touched = [each for each in plan.tables if each.table in done]
    names = {each.table for each in touched}
    now = {_key(each.facts): each.facts.recorded for each in gather(catalog, runner, only=names.__contains__)}
    changes = tuple(
        TableChange(each, now.get(_key(each)) if each.table in names else each) for each in plan.tables
    )
    return changes, _totals(plan.before, changes)


def _key(facts: TableFacts) -> tuple[tuple[str, ...], str]:
    """Tell one generation of a name from the others."""
    return facts.table, facts.deletion_id or ""


def _totals(before: Totals, changes: tuple[TableChange, ...]) -> Totals:
    old, new = Totals(), Totals()
    for each in changes:
        old = old.plus(each.before)
        if each.after is not None:
            new = new.plus(each.after)
    names = [each.name for each in fields(Totals)]
    return Totals(**{name: getattr(before, name) - getattr(old, name) + getattr(new, name) for name in names})
