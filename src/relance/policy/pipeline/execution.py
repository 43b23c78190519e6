"""Run a plan, from its beginning or from where an earlier process was stopped.

What was done is in the history, a few steps at a time, so the history is the journal as well: a step that
is not there is done again, which changes nothing where it was done already.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from relance.catalog.context import Context
from relance.jobs.base import CatalogRef, Effect, Result, Step
from relance.jobs.engine import Progress, Run
from relance.jobs.runner import Placement, slices_of
from relance.policy.pipeline.after import seen_after
from relance.policy.pipeline.history_rows import RunHead
from relance.policy.pipeline.lease import Lease
from relance.policy.pipeline.past_runs import History
from relance.policy.pipeline.plan_file import end
from relance.policy.pipeline.planning import RunPlan
from relance.policy.pipeline.steps import PlannedAction, Subject, chunks_of
from relance.policy.records import ActionRecord, Outcome, RunRecord, RunState

_CLONES_FOR_SECONDS = 600
"""So long what is known about clones is relied on; then they are looked for again."""

_CHECK_SECONDS = 0.01

FOUND_DONE = "already done when the run was resumed"

Report = Callable[[Progress], None]


@dataclass(slots=True)
class Execution:
    """A run under way."""

    context: Context
    catalog: CatalogRef
    plan: RunPlan
    where: Placement
    lease: Lease
    progress: Report | None = None
    resumed: bool = False
    sleep: Callable[[float], None] = time.sleep
    _records: dict[int, ActionRecord] = field(default_factory=dict)
    _failed: dict[Subject, str] = field(default_factory=dict)

    def run(self) -> RunRecord:
        """Do all steps that are not in the history, and return what became of all."""
        history, head = History(self.context), self._head()
        if self.resumed:
            self._records = history.actions(self.plan.run)
        else:
            history.add_run(head, self._record(RunState.RUNNING))
        self._take_over_plan(history, head)
        in_doubt = self.resumed
        self._note([each for each in self.plan.steps if each.outcome is Outcome.PLANNED])
        for whole in chunks_of(self.plan.steps):
            chunk = [each for each in whole if each.number not in self._records]
            if not chunk:
                continue
            self.lease.check()
            done = self._done(chunk, in_doubt=in_doubt)
            in_doubt = False  # the process was stopped in one chunk: it never came to the next one
            self.lease.check()
            history.add_actions(head, done.items())
            self._records |= done
            self._note(chunk)
        return self._close(history, head)

    def _head(self) -> RunHead:
        plan = self.plan
        return RunHead(plan.run, plan.actor, plan.policy, plan.policy_hash, self.where.why)

    def _take_over_plan(self, history: History, head: RunHead) -> None:
        """Write what the plan itself decided: steps with nothing to do, failed and skipped ones."""
        settled = [
            each
            for each in self.plan.steps
            if each.outcome is not Outcome.PLANNED and each.number not in self._records
        ]
        done = {each.number: each.record for each in settled}
        history.add_actions(head, done.items())
        self._records |= done

    def _note(self, steps: Sequence[PlannedAction]) -> None:
        """Remember what failed, among the steps of which something is known."""
        for each in steps:
            known = self._records.get(each.number)
            if known is not None and known.outcome is Outcome.FAILED:
                self._failed.setdefault(each.subject, each.action.kind)

    def _done(self, chunk: Sequence[PlannedAction], *, in_doubt: bool) -> dict[int, ActionRecord]:
        """Do some actions of one kind, and return what became of each."""
        done: dict[int, ActionRecord] = {}
        wanted: list[PlannedAction] = []
        for each in chunk:
            if each.subject in self._failed:
                error = f"{self._failed[each.subject]} failed on the same table"
                done[each.number] = replace(each.record, outcome=Outcome.SKIPPED, error=error)
            else:
                wanted.append(each)
        if not wanted:
            return done
        token = f"{self.plan.run}-{int(self.context.clock.monotonic()) // _CLONES_FOR_SECONDS}"
        steps = [each.step(token, expected=True) for each in wanted]
        if in_doubt:
            self._wait_for_claims(steps)
        run = Run(chunk[0].action.kind, self.catalog, self.where, progress=self.progress)
        for at, result in run.results(steps):
            started = self.context.clock.now() - result.duration
            record = _record_of(wanted[at], steps[at], result, started, in_doubt=in_doubt)
            done[wanted[at].number] = record
        return done

    def _wait_for_claims(self, steps: Sequence[Step]) -> None:
        """Wait until the claims of the process that was stopped are over: only then others may go on."""
        for step in steps:
            while (left := step.job.claimed_for(self.context, step.table)) > timedelta(0):
                self.lease.check()
                self.sleep(min(left.total_seconds(), 10.0) + 0.1)

    def _close(self, history: History, head: RunHead) -> RunRecord:
        failed = sum(each.outcome is Outcome.FAILED for each in self._records.values())
        changes, after = seen_after(
            self.context, self.catalog, self.where.table_runner, self.plan, self._records
        )
        told = [f"{failed} of {len(self._records)} actions failed"] if failed else []
        message = "; ".join([*told, *filter(None, [self.plan.message])])
        record = replace(
            self._record(RunState.FAILED if failed else RunState.DONE),
            ended_at=self.context.clock.now(),
            after=after,
            changes=changes,
            message=message,
        )
        history.add_run(head, record)
        end(self.context, self.plan.run, now=self.context.clock.now())
        history.keep_small()
        return record

    def _record(self, state: RunState) -> RunRecord:
        ordered = tuple(self._records[number] for number in sorted(self._records))
        return replace(self.plan.record, state=state, engine=self.where.why, actions=ordered, ended_at=None)


def _record_of(
    planned: PlannedAction, step: Step, result: Result, started: datetime, *, in_doubt: bool
) -> ActionRecord:
    record = ActionRecord(
        planned.action,
        Outcome.DONE,
        planned=planned.planned,
        effect=result.effect,
        started_at=started,
        duration=result.duration,
    )
    if result.error is not None:
        return replace(record, outcome=Outcome.FAILED, error=str(result.error))
    if result.effect is not None and not step.job.is_nothing(result.effect):
        return record
    if in_doubt:
        # Planned, and nothing is left to do: the process that was stopped did it, and could not say so.
        effect = replace(result.effect or Effect(), note=FOUND_DONE)
        return replace(record, effect=effect)
    return replace(record, outcome=Outcome.NOTHING)


@dataclass(frozen=True, slots=True)
class _Check:
    """A task that looks whether the table of a step is still what was planned for."""

    step: Step
    weight: float = _CHECK_SECONDS

    def run(self, context: Context) -> None:
        if self.step.expect is not None:
            self.step.job.check(context, self.step.table, self.step.expect)


def moved_tables(catalog: CatalogRef, where: Placement, plan: RunPlan) -> list[tuple[tuple[str, ...], str]]:
    """Return the tables that moved since they were planned for, in a way that matters, and how."""
    moved: dict[tuple[str, ...], str] = {}
    for chunk in chunks_of(plan.steps):
        checks = [_Check(each.step(plan.run, expected=True)) for each in chunk]
        slices = slices_of(checks, slots=where.table_runner.slots)
        for done in where.table_runner.run(catalog, slices, what=f"check {len(checks)} tables for changes"):
            if done.error is not None:
                moved.setdefault(checks[done.number].step.table, done.error.detail)
    return sorted(moved.items())
