"""The pipeline as callers use it: run a policy, run a plan, resume a run. One run per lake at a time."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import timedelta

from relance.amounts import plural
from relance.catalog.context import Context
from relance.errors import InvalidInputError
from relance.jobs.base import CatalogRef, deletes_files
from relance.jobs.runner import Engine, Placement, Runner, choose, open_catalog, parse_engine
from relance.namespace import DirectoryNamespace
from relance.policy.model import Policy
from relance.policy.pipeline.execution import Execution, moved_tables
from relance.policy.pipeline.history_rows import RunHead
from relance.policy.pipeline.lease import Holder, held, holder_of
from relance.policy.pipeline.past_runs import History
from relance.policy.pipeline.plan_file import begin, begun, end, require_root
from relance.policy.pipeline.planning import Report, RunPlan, new_run, plan_of_run, ref_of, this_actor
from relance.policy.records import Outcome, RunRecord, RunState
from relance.storage.ballast import emptying

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
