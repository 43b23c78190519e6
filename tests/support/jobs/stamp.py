"""A kind of job as an extension would bring it: one module, found by policies, commands, plans and docs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from relance.jobs.base import (
    Effect,
    Estimate,
    Expected,
    Figures,
    Job,
    Name,
    TablePlan,
    Task,
    Verdict,
    setting,
)
from relance.jobs.settings import Duration, Text
from relance.units import exact_duration

if TYPE_CHECKING:
    from relance.jobs.base import Context
    from relance.jobs.facts import TableFacts

KEY = "stamp"


class Stamp(Job):
    """Write a text into the configuration of tables."""

    kind, label, command, order = "stamp", "stamp", "stamp", 65

    text: Text = setting("seen")
    """Text to write."""
    quiet_for: Duration | None = setting(None, only="policy")
    """Stamp only tables without a write for this long."""

    def due(self, facts: TableFacts, now: datetime) -> Verdict:
        if self.quiet_for is None or facts.last_write is None:
            return Verdict(True, "the policy asks for a stamp")
        quiet = now - facts.last_write >= self.quiet_for
        return Verdict(
            quiet, f"written to {'before' if quiet else 'in'} the last {exact_duration(self.quiet_for)}"
        )

    def plan(self, context: Context, table: Name, expect: Expected | None = None) -> TablePlan | None:
        from relance.jobs.plans.tables import open_expected

        dataset = open_expected(context, table, expect).dataset
        return None if dataset.config().get(KEY) == self.text else StampPlan(dataset, self.text)


@dataclass(frozen=True)
class StampPlan(TablePlan):
    """A table without the text."""

    dataset: Any
    text: str
    tasks: tuple[Task, ...] = ()

    @property
    def estimate(self) -> Estimate:
        return Estimate(note=f"stamped with {self.text!r}")

    def finish(self, context: Context, values: Sequence[Any]) -> Effect:
        self.dataset.update_config({KEY: self.text})
        return Effect(int(self.dataset.version), before=Figures(), note=self.estimate.note)
