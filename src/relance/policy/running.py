"""Run a plan, from its beginning or from where an earlier process was stopped.

What was done is in the history, a few steps at a time, so the history is the journal as well: a step that
is not there is done again, which changes nothing where it was done already.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from datetime import datetime, timedelta

from relance.catalog.context import Context
from relance.errors import InvalidInputError
from relance.jobs.base import CatalogRef, Effect, Result, Step, deletes_files
from relance.jobs.engine import Run
from relance.jobs.facts import TableFacts
from relance.jobs.gather import gather
from relance.jobs.runner import Engine, Placement, Runner, choose, open_catalog, parse_engine, slices_of
from relance.namespace import DirectoryNamespace
from relance.policy.lease import Holder, Lease, held, holder_of
from relance.policy.model import Policy
from relance.policy.past_runs import History, RunHead
from relance.policy.planning import (
    PlannedAction,
    Report,
    RunPlan,
    Subject,
    begin,
    begun,
    chunks_of,
    end,
    new_run,
    plan_of_run,
    ref_of,
    require_root,
    this_actor,
)
from relance.policy.records import ActionRecord, Outcome, RunRecord, RunState, TableChange, Totals
from relance.storage.ballast import emptying
from relance.units import plural

_CLONES_FOR_SECONDS = 600
"""So long what is known about clones is relied on; then they are looked for again."""

_CHECK_SECONDS = 0.01

FOUND_DONE = "already done when the run was resumed"


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


_SHOWN = 5
"""Tables that a refusal names."""


def run_policy(
    catalog: DirectoryNamespace | CatalogRef,
    policy: Policy,
    *,
    only: Sequence[Sequence[str]] | None = None,
    kinds: Iterable[str] | None = None,
    engine: Engine | str = Engine.AUTO,
    spark: Runner | None = None,
    actor: str | None = None,
    wait: timedelta | None = None,
    progress: Report | None = None,
) -> RunRecord:
    """Run a policy now and return its record, which is also kept in the history.

    `only` restricts the run to these tables, `kinds` to these kinds of actions. `wait` is how long to wait
    for another run on this lake to end. A failing table does not affect the others. If a limit of the
    policy would be exceeded, nothing is done.

    Raises:
        LeaseHeldError: another run is in progress; the message names it.
        InvalidInputError: an id or the engine cannot be used.
        UnsupportedOperationError: the store does not honour conditional writes.
    """
    reference = ref_of(catalog)
    context = open_catalog(reference)
    who = actor or this_actor()
    name = new_run(context.clock.now())
    with held(context, name, who, wait=wait) as lease:
        made = plan_of_run(
            reference,
            policy,
            run=name,
            only=only,
            kinds=kinds,
            engine=engine,
            spark=spark,
            actor=who,
            progress=progress,
        )
        lease.check()
        if made.state is RunState.REFUSED:
            return _refuse(context, made, made.message)
        choice = _choice(made, engine, spark)
        with emptying(really=_frees_space(made)):
            begin(context, made)
            return Execution(context, reference, made, choice, lease, progress).run()


def run(
    catalog: DirectoryNamespace | CatalogRef,
    made: RunPlan,
    *,
    engine: Engine | str = Engine.AUTO,
    spark: Runner | None = None,
    actor: str | None = None,
    wait: timedelta | None = None,
    progress: Report | None = None,
) -> RunRecord:
    """Run a plan, saved or not, exactly as it is; a plan can run only once.

    The history records who runs the plan, not who made it: `actor`, or user@host. If a table was dropped,
    renamed or replaced after the plan was made, or rows that a planned delete covers were changed, nothing
    is done and the record says why.

    Raises:
        LeaseHeldError: another run is in progress; the message names it.
        InvalidInputError: the plan is for another lake, or has already been started.
        UnsupportedOperationError: the store does not honour conditional writes.
    """
    reference = ref_of(catalog)
    context = open_catalog(reference)
    require_root(made, context.root.uri)
    made = replace(made, actor=actor or this_actor())
    if made.state is RunState.REFUSED:
        return _refuse(context, replace(made, began_at=context.clock.now()), made.message)
    with held(context, made.run, made.actor, wait=wait) as lease:
        _require_new(context, made.run)
        made = replace(made, began_at=context.clock.now())
        choice = _choice(made, engine, spark)
        if moved := moved_tables(reference, choice, made):
            return _refuse(context, made, _told(moved))
        with emptying(really=_frees_space(made)):
            begin(context, made)
            return Execution(context, reference, made, choice, lease, progress).run()


def resume(
    catalog: DirectoryNamespace | CatalogRef,
    name: str | None = None,
    *,
    engine: Engine | str = Engine.AUTO,
    spark: Runner | None = None,
    actor: str | None = None,
    wait: timedelta | None = None,
    progress: Report | None = None,
) -> RunRecord:
    """Resume an interrupted run: the named one, or the most recent.

    Finished actions are not repeated, and the result is the same as without the interruption. The history
    names both who started the run and who resumed it: `actor`, or user@host.

    Raises:
        TransactionNotFoundError: there is no such run.
        LeaseHeldError: another run is in progress, possibly this one.
    """
    reference = ref_of(catalog)
    context = open_catalog(reference)
    made, who = begun(context, name), actor or this_actor()
    with held(context, made.run, who, wait=wait) as lease:
        made = begun(context, made.run)  # it may have ended while it was waited for
        if who != made.actor:
            made = replace(made, actor=f"{made.actor}, resumed by {who}")
        kept = History(context).record(made.run, root=context.root.uri)
        if kept is not None and kept.state is not RunState.RUNNING:
            end(context, made.run, now=context.clock.now())  # stopped just before this
            return kept
        choice = _choice(made, engine, spark)
        with emptying(really=_frees_space(made)):
            return Execution(context, reference, made, choice, lease, progress, resumed=True).run()


def left_of(catalog: DirectoryNamespace | CatalogRef, name: str | None = None) -> RunPlan:
    """Return what `resume` would do: the plan of an interrupted run, with its remaining steps.

    Raises:
        TransactionNotFoundError: there is no such run.
    """
    context = open_catalog(ref_of(catalog))
    made = begun(context, name)
    done = History(context).actions(made.run)
    return replace(made, steps=tuple(each for each in made.steps if each.number not in done))


def who_runs(catalog: DirectoryNamespace | CatalogRef) -> Holder | None:
    """Return the holder of the policy run in progress on a lake; None if there is none."""
    return holder_of(open_catalog(ref_of(catalog)))


def _choice(made: RunPlan, engine: Engine | str, spark: Runner | None) -> Placement:
    tables = {each.action.table for each in made.steps if each.outcome is Outcome.PLANNED}
    return choose(parse_engine(engine), spark, tables=len(tables))


def _frees_space(made: RunPlan) -> bool:
    """Tell whether a run may write its history on a full disk: it frees space, or finds nothing to do."""
    planned = {each.action.kind for each in made.steps if each.outcome is Outcome.PLANNED}
    return not planned or any(map(deletes_files, planned))


def _require_new(context: Context, name: str) -> None:
    """Check that no run of a plan has ended: a second one would write over what the history says of it."""
    for known in History(context).runs(run=name):
        if known.state in {RunState.DONE, RunState.FAILED}:
            raise InvalidInputError(
                f"run {name}, started {known.started_at:%Y-%m-%d %H:%M:%S} UTC, has already ended; "
                "a plan can run only once: re-plan"
            )


def _refuse(context: Context, made: RunPlan, why: str) -> RunRecord:
    """Return the record of a run that did nothing, and keep it in the history."""
    now = context.clock.now()
    record = replace(made.record, state=RunState.REFUSED, message=why, ended_at=now)
    head = RunHead(made.run, made.actor, made.policy, made.policy_hash, made.engine)
    History(context).add_run(head, record)
    return record


def _told(moved: Sequence[tuple[tuple[str, ...], str]]) -> str:
    shown = "; ".join(why for _, why in moved[:_SHOWN])
    more = f"; and {len(moved) - _SHOWN} more" if len(moved) > _SHOWN else ""
    tables = plural(len(moved), "table")
    return f"{tables} changed after the plan was made; nothing was done: {shown}{more}"


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
