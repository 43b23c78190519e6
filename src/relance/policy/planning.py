"""Plan a run of a policy: facts, actions, a dry run of each, and the files of plans. To run it: running.

An action whose dry run finds nothing to do is not part of the run that follows. So the run does what the
plan shows, no less and no more; only the figures of actions that follow others on the same table differ.
"""

from __future__ import annotations

import getpass
import os
import secrets
import socket
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from itertools import groupby
from pathlib import Path

from relance.catalog.context import Context, table_id_of
from relance.catalog.states import new_nonce
from relance.errors import (
    InvalidInputError,
    KeyExistsError,
    KeyNotFoundError,
    TransactionNotFoundError,
)
from relance.foreign_json import parse_json
from relance.jobs.base import (
    CatalogRef,
    Estimate,
    Expected,
    Job,
    Result,
    Step,
    deletes_files,
    job_from,
    kind_of,
    kind_order,
)
from relance.jobs.engine import Progress, Run
from relance.jobs.facts import TableFacts, TableState, expiry_order
from relance.jobs.gather import gather
from relance.jobs.runner import Engine, Placement, Runner, choose, open_catalog, parse_engine
from relance.locations import POLICY_DIRECTORY, parse_root
from relance.namespace import DirectoryNamespace
from relance.policy.actions import Action
from relance.policy.codec import decode, digest, dumps, encode
from relance.policy.evaluate import Decision, decisions, evaluate_root
from relance.policy.model import Policy
from relance.policy.records import (
    ActionRecord,
    MoreDropped,
    Outcome,
    RunRecord,
    RunState,
    TableChange,
    Totals,
)
from relance.storage.readback import create_once
from relance.units import plural

TOGETHER = 250
"""Actions that are done, and written to the history, together."""

Subject = tuple[tuple[str, ...], str]
"""A table, one dropped generation of a name, or a task of the root: one that fails keeps from no other."""


@dataclass(frozen=True, slots=True)
class PlannedAction:
    """One action of a plan, and what its dry run showed."""

    number: int
    action: Action
    outcome: Outcome = Outcome.PLANNED
    """Planned, nothing to do, failed or skipped. Only planned ones are done."""
    planned: Estimate | None = None
    follows: tuple[str, ...] = ()
    """Planned kinds that change the same table first; `planned` is as the table is before them."""
    error: str | None = None
    seen: Expected = field(default_factory=Expected)

    @property
    def subject(self) -> Subject:
        if not self.action.table:
            return (), self.action.kind
        return self.action.table, str(self.action.settings.get("deletion_id", ""))

    @property
    def record(self) -> ActionRecord:
        """The action as a dry run shows it."""
        return ActionRecord(self.action, self.outcome, planned=self.planned, error=self.error)

    def step(self, run: str, *, expected: bool) -> Step:
        """Return what the engine runs; jobs with the same `run` may share what they find out.

        Raises:
            InvalidInputError: the kind or one of its settings is unknown or has an unusable value.
        """
        job = job_from(self.action.kind, self.action.settings).for_run(run)
        return Step(job, self.action.table, self.seen if expected else None)


def in_order(actions: Sequence[tuple[Action, Expected]]) -> list[PlannedAction]:
    """Return the actions of a plan in the order in which they are done: by kind, then by table."""

    def place(each: tuple[Action, Expected]) -> tuple[tuple[int, str], tuple[str, ...], str]:
        action = each[0]
        return kind_order(action.kind), action.table, str(action.settings.get("deletion_id", ""))

    return [
        PlannedAction(number, action, seen=seen)
        for number, (action, seen) in enumerate(sorted(actions, key=place))
    ]


def chunks_of(actions: Sequence[PlannedAction]) -> Iterator[list[PlannedAction]]:
    """Yield the actions to be done, of one kind at a time, a few together; the same for the same plan."""
    chunk: list[PlannedAction] = []
    for action in actions:
        if action.outcome is not Outcome.PLANNED:
            continue
        if chunk and (len(chunk) == TOGETHER or chunk[0].action.kind != action.action.kind):
            yield chunk
            chunk = []
        chunk.append(action)
    if chunk:
        yield chunk


def earlier_kinds(action: PlannedAction, planned: Mapping[tuple[str, ...], Sequence[str]]) -> tuple[str, ...]:
    """Return which planned kinds change first what an action works on; `planned` is by table."""
    what, table = kind_of(action.action.kind).changes, action.action.table
    if what is None or (table and what == "manifest"):
        return ()
    earlier = planned.get(table, ()) if table else {kind for kinds in planned.values() for kind in kinds}
    return tuple(sorted((kind for kind in earlier if kind_of(kind).changes == what), key=kind_order))


_KEPT_DROPPED = 20
"""Dropped tables without an action that a plan keeps: as many as a report shows."""

_SHOWN = 5
"""Tables that a message names."""

Report = Callable[[Progress], None]


@dataclass(frozen=True, slots=True)
class RunPlan:
    """What a run will do."""

    run: str
    root: str
    policy: str
    policy_hash: str
    actor: str
    made_at: datetime
    state: RunState
    engine: str
    before: Totals
    steps: tuple[PlannedAction, ...]
    tables: tuple[TableFacts, ...]
    """Only tables with an action, and the dropped tables that expire first; without their columns."""
    ended_at: datetime | None = None
    message: str = ""
    began_at: datetime | None = None
    """When it was begun to run, which may be long after it was made."""
    more_dropped: MoreDropped = field(default_factory=MoreDropped)

    @property
    def record(self) -> RunRecord:
        """The plan as reports show it."""
        return RunRecord(
            run=self.run,
            root=self.root,
            policy=self.policy,
            actor=self.actor,
            state=self.state,
            engine=self.engine,
            started_at=self.began_at or self.made_at,
            ended_at=self.ended_at,
            before=self.before,
            after=None,
            actions=tuple(each.record for each in self.steps),
            changes=tuple(TableChange(each) for each in self.tables),
            message=self.message,
            more_dropped=self.more_dropped,
        )


def plan(
    catalog: DirectoryNamespace | CatalogRef,
    policy: Policy,
    *,
    only: Sequence[Sequence[str]] | None = None,
    kinds: Iterable[str] | None = None,
    engine: Engine | str = Engine.AUTO,
    spark: Runner | None = None,
    actor: str | None = None,
    progress: Report | None = None,
) -> RunPlan:
    """Return what a run of the policy would do now: a dry run of every action. Nothing is changed.

    `only` names tables: all others, and the root as a whole, are left alone; `kinds` chooses among what
    the policy asks for. A plan over the policy's limits has the state `refused` and cannot be run.

    Raises:
        InvalidInputError: an id or the engine cannot be used.
    """
    reference = ref_of(catalog)
    run = new_run(open_catalog(reference).clock.now())
    return plan_of_run(
        reference,
        policy,
        run=run,
        only=only,
        kinds=kinds,
        engine=engine,
        spark=spark,
        actor=actor,
        progress=progress,
    )


def plan_of_run(
    reference: CatalogRef,
    policy: Policy,
    *,
    run: str,
    only: Sequence[Sequence[str]] | None,
    kinds: Iterable[str] | None,
    engine: Engine | str,
    spark: Runner | None,
    actor: str | None,
    progress: Report | None,
) -> RunPlan:
    """Return a plan under the name of a run that may hold the lake already.

    Raises:
        InvalidInputError: an id or the engine cannot be used.
    """
    context = open_catalog(reference)
    chosen = None if only is None else {tuple(table_id_of(context, each).parts) for each in only}
    now = context.clock.now()
    gathering = _Gathering(policy, now, None if kinds is None else frozenset(map(_known, kinds)))
    where = choose(parse_engine(engine), spark, tables=_about(chosen))
    for each in gather(
        reference, where.table_runner, only=None if chosen is None else chosen.__contains__, progress=progress
    ):
        gathering.add(each.facts, each.directory)
    if chosen is None:
        gathering.take(evaluate_root(policy, now), Expected())
    steps = _dry_runs(reference, where, run, in_order(gathering.actions), progress)
    steps += tuple(
        _refused(number, *each)
        for number, each in enumerate(sorted(gathering.refused, key=_by_table), len(steps))
    )
    over = _why_over(policy, steps)
    waiting, more = _first_to_expire(gathering.waiting, now)
    tables = sorted([*gathering.tables, *waiting], key=lambda each: (each.table, each.deletion_id or ""))
    return RunPlan(
        run=run,
        root=context.root.uri,
        policy=policy.file,
        policy_hash=policy_hash(policy),
        actor=actor or this_actor(),
        made_at=now,
        state=RunState.PLANNED if over is None else RunState.REFUSED,
        engine=where.why,
        before=gathering.totals,
        steps=steps,
        tables=tuple(tables),
        ended_at=context.clock.now(),
        message=over or gathering.message,
        more_dropped=more,
    )


def _first_to_expire(waiting: Sequence[TableFacts], now: datetime) -> tuple[list[TableFacts], MoreDropped]:
    """Return the dropped tables to keep of those without an action, and the count of the others."""
    queue = sorted(waiting, key=expiry_order)
    rest = queue[_KEPT_DROPPED:]
    due = sum(each.purge_after is not None and each.purge_after <= now for each in rest)
    return queue[:_KEPT_DROPPED], MoreDropped(len(rest), due)


def _about(chosen: set[tuple[str, ...]] | None) -> int:
    """Return about how many tables there are; how many in all is known only when they are listed."""
    return 1_000_000 if chosen is None else len(chosen)


class _Gathering:
    """Takes facts as they come, and keeps what actions need."""

    def __init__(self, policy: Policy, now: datetime, kinds: frozenset[str] | None) -> None:
        self._policy = policy
        self._now = now
        self._kinds = kinds
        self.totals = Totals()
        self.actions: list[tuple[Action, Expected]] = []
        self.refused: list[tuple[tuple[str, ...], Decision]] = []
        self.tables: list[TableFacts] = []
        self.waiting: list[TableFacts] = []
        """Dropped tables without an action."""
        self._unreadable: list[str] = []

    def add(self, facts: TableFacts, directory: str) -> None:
        self.totals = self.totals.plus(facts)
        if facts.error is not None:
            self._unreadable.append(".".join(facts.table))
        decided = decisions(self._policy, facts, self._now)
        actions = [each.action for each in decided if each.action is not None]
        wanted = self.take(actions, Expected(directory, facts.version))
        refused = [each for each in decided if each.refused and self._wants(each.kind)]
        self.refused += [(facts.table, each) for each in refused]
        if wanted or refused:
            self.tables.append(facts.recorded)
        elif facts.state is TableState.DROPPED:
            self.waiting.append(facts.recorded)

    def take(self, actions: Iterable[Action], seen: Expected) -> bool:
        chosen = [each for each in actions if self._wants(each.kind)]
        self.actions += [(each, seen) for each in chosen]
        return bool(chosen)

    def _wants(self, kind: str) -> bool:
        return self._kinds is None or kind in self._kinds

    @property
    def message(self) -> str:
        """Tell which tables cannot be read."""
        names = sorted(self._unreadable)
        more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
        tables = plural(len(names), "table")
        return f"{tables} cannot be read: {', '.join(names[:_SHOWN])}{more}" if names else ""


def _by_table(refused: tuple[tuple[str, ...], Decision]) -> tuple[tuple[str, ...], tuple[int, str]]:
    return refused[0], kind_order(refused[1].kind)


def _refused(number: int, table: tuple[str, ...], decision: Decision) -> PlannedAction:
    """Return the step for what a rule asks for and that cannot be done: it fails, and somebody looks."""
    action = Action(decision.kind, table, decision.rule or "", decision.why)
    return PlannedAction(number, action, Outcome.FAILED, error=decision.why)


def _dry_runs(
    catalog: CatalogRef,
    where: Placement,
    run: str,
    actions: Sequence[PlannedAction],
    progress: Report | None,
) -> tuple[PlannedAction, ...]:
    done: list[PlannedAction] = []
    for _, same in groupby(actions, key=lambda each: each.action.kind):
        group = list(same)
        # A token of its own: what a dry run found out about clones is not what the run may rely on.
        steps = [each.step(f"{run}-plan", expected=False) for each in group]
        shown = _shifted(progress, len(done), len(actions))
        found = Run("dry run", catalog, where, dry_run=True, progress=shown)
        results = sorted(found.results(steps), key=lambda numbered: numbered[0])
        done += [_seen_by(group[at], steps[at].job, result) for at, result in results]
    return _related(done)


def _shifted(progress: Report | None, start: int, total: int) -> Report | None:
    """Return what shows the progress of a part as that of the whole."""
    if progress is None:
        return None
    return lambda seen: progress(replace(seen, done=seen.done + start, total=total))


def _seen_by(action: PlannedAction, job: Job, result: Result) -> PlannedAction:
    if result.error is not None:
        return replace(action, outcome=Outcome.FAILED, error=result.error.detail)
    if result.planned is None or job.is_nothing(result.planned):
        return replace(action, outcome=Outcome.NOTHING, planned=result.planned)
    return replace(action, planned=result.planned)


def _related(steps: Sequence[PlannedAction]) -> tuple[PlannedAction, ...]:
    """Say which steps follow from others, and leave out what comes after one that failed."""
    planned: dict[tuple[str, ...], list[str]] = {}
    failed: dict[object, str] = {}
    related: list[PlannedAction] = []
    for step in steps:
        if step.outcome is Outcome.PLANNED and step.subject in failed:
            step = after_failure(step, failed[step.subject])
        elif step.outcome is Outcome.FAILED:
            failed.setdefault(step.subject, step.action.kind)
        elif step.outcome is Outcome.PLANNED:
            step = _following(step, earlier_kinds(step, planned))
            planned.setdefault(step.action.table, []).append(step.action.kind)
        related.append(step)
    return tuple(related)


def after_failure(step: PlannedAction, failed: str) -> PlannedAction:
    """Return a step that is not done because an earlier one of its table failed."""
    return replace(step, outcome=Outcome.SKIPPED, error=f"{failed} failed on the same table")


def _following(step: PlannedAction, kinds: tuple[str, ...]) -> PlannedAction:
    if not kinds or step.planned is None:
        return step
    note = f"estimated before {', '.join(kinds)}, which will change the figures"
    joined = f"{step.planned.note}; {note}" if step.planned.note else note
    return replace(step, follows=kinds, planned=replace(step.planned, note=joined))


def _why_over(policy: Policy, steps: Sequence[PlannedAction]) -> str | None:
    todo = [(each, each.planned) for each in steps if each.outcome is Outcome.PLANNED and each.planned]
    return policy.limits.why_exceeded(
        tables=len({each.action.table for each, _ in todo if each.action.table}),
        bytes_deleted=sum(found.bytes for each, found in todo if deletes_files(each.action.kind)),
        rows_deleted=sum(found.rows for each, found in todo if kind_of(each.action.kind).deletes_rows),
    )


def ref_of(catalog: DirectoryNamespace | CatalogRef) -> CatalogRef:
    """Return how tasks open the catalog."""
    return catalog if isinstance(catalog, CatalogRef) else CatalogRef(catalog.properties)


def new_run(now: datetime) -> str:
    """Return the name of a run: by their names runs are in order."""
    return f"{now:%Y%m%dT%H%M%S}-{secrets.token_hex(4)}"


def _known(kind: str) -> str:
    return kind_of(kind).kind


def policy_hash(policy: Policy) -> str:
    """Return what tells what a policy says from what others say, whatever the file looks like."""
    rules = [
        {
            "name": rule.name,
            "tables": [str(pattern) for pattern in rule.tables],
            "properties": encode(rule.properties),
            "jobs": {kind: job and job.model_dump(mode="json") for kind, job in rule.jobs.items()},
            "window": encode(rule.window),
            "rate_limit": rule.rate_limit,
        }
        for rule in policy.rules
    ]
    return digest(dumps([rules, policy.limits.model_dump(mode="json")]))


def this_actor() -> str:
    """Return user@host."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a container may know no name for the user
        user = f"uid {os.getuid()}"
    return f"{user}@{socket.gethostname()}"


FORMAT = 1
"""Of the file; another number is refused."""

_RUNS = f"{POLICY_DIRECTORY}/runs"
_LIST_RUNS = "list the runs: relance history"
_MAX_BYTES = 256 * 1024 * 1024
"""A plan of a million tables is shorter."""

_ABANDONED = timedelta(days=30)
"""A run that was not resumed for so long never will be."""


def encode_plan(plan: RunPlan, *, begun: str = "") -> bytes:
    """Return a plan as the bytes of a file; `begun` tells one beginning of its run from another."""
    body = dumps(encode(plan))
    head = f'"relance_plan":{FORMAT},"begun":"{begun}","hash":"{digest(body)}"'
    return f'{{{head},"plan":{body}}}\n'.encode()


def decode_plan(data: bytes, *, what: str) -> RunPlan:
    """Return the plan that a file holds; `what` names it.

    Raises:
        InvalidInputError: it is no plan, of another format, or was edited.
    """
    try:
        found = parse_json(data)
    except ValueError as cause:
        raise InvalidInputError(f"{what} is not a plan: {cause}") from cause
    if not isinstance(found, dict) or "relance_plan" not in found:
        raise InvalidInputError(f"{what} is not a plan; create one with `relance plan --save`")
    if found["relance_plan"] != FORMAT:
        raise InvalidInputError(
            f"{what} has plan format {found['relance_plan']}, but this release supports {FORMAT}; re-plan"
        )
    if digest(dumps(found.get("plan"))) != found.get("hash"):
        raise InvalidInputError(f"{what} was modified after it was saved; re-plan")
    plan = decode(RunPlan, found["plan"], "plan")
    for step in plan.steps:
        _require_known(step.action, what)
    return plan


def _require_known(action: Action, what: str) -> None:
    try:
        job_from(action.kind, action.settings)
    except InvalidInputError as cause:
        raise InvalidInputError(
            f"{what} has the action kind '{action.kind}', which this release does not support as it is "
            f"({cause.detail}); run it with the release that made it, or re-plan"
        ) from cause


def save_plan(plan: RunPlan, file: str | os.PathLike[str]) -> None:
    """Write a plan to a local file, whole or not at all; a device or a pipe is written to as it is."""
    target = Path(file)
    if target.exists() and not target.is_file():
        target.write_bytes(encode_plan(plan))
        return
    target = target.resolve()  # what a link leads to is written anew, not the link
    part = target.with_name(f".{target.name}.{os.getpid()}")
    part.write_bytes(encode_plan(plan))
    part.replace(target)


def load_plan(file: str | os.PathLike[str], *, root: str | None = None) -> RunPlan:
    """Return the plan in a local file; with `root`, only if it is for that lake.

    Raises:
        InvalidInputError: it is no plan, was edited, or is for another lake.
    """
    try:
        data = Path(file).read_bytes()
    except OSError as cause:
        raise InvalidInputError(f"plan {os.fspath(file)!r} cannot be read: {cause.strerror}") from cause
    plan = decode_plan(data, what=f"plan {os.fspath(file)!r}")
    if root is not None:
        require_root(plan, parse_root(root).uri)
    return plan


def require_root(plan: RunPlan, root: str) -> None:
    """Check that a plan is for this lake.

    Raises:
        InvalidInputError: it is for another one.
    """
    if plan.root != root:
        raise InvalidInputError(f"the plan is for {plan.root}, not for {root}; re-plan")


def begin(context: Context, plan: RunPlan) -> None:
    """Keep the plan in the lake until its run has ended.

    Raises:
        InvalidInputError: a run of this plan has begun already.
    """
    try:
        # With a nonce: a second beginning must not take the first one's bytes for its own.
        create_once(context.storage, _key(plan.run), encode_plan(plan, begun=new_nonce()))
    except KeyExistsError as cause:
        raise InvalidInputError(f"run {plan.run} has already started; resume it or re-plan") from cause


def unfinished(context: Context) -> list[str]:
    """Return the runs that have begun and not ended, oldest first."""
    names = (each.key.rpartition("/")[2] for each in context.storage.list_level(_RUNS).files)
    return sorted(each.removesuffix(".json") for each in names if each.endswith(".json"))


def begun(context: Context, run: str | None) -> RunPlan:
    """Return the plan of a run that has not ended, of the newest when none is named.

    Raises:
        TransactionNotFoundError: there is none.
    """
    names = unfinished(context)
    name = run or (names[-1] if names else None)
    if name is None:
        raise TransactionNotFoundError("there is no interrupted run to resume", hint=_LIST_RUNS)
    try:
        stored = context.storage.read(_key(name), at_most=_MAX_BYTES)
    except (KeyNotFoundError, InvalidInputError) as cause:
        known = ", ".join(names) or "none"
        raise TransactionNotFoundError(
            f"run {name} cannot be resumed: it has ended or never started; interrupted runs: {known}",
            hint=_LIST_RUNS,
        ) from cause
    return decode_plan(stored.body, what=f"the plan of run {name}")


def end(context: Context, run: str, *, now: datetime) -> None:
    """Forget the plan of a run that has ended, and those that nobody resumed for a month."""
    keys = [_key(run)]
    for each in context.storage.list_level(_RUNS).files:
        if each.modified is not None and each.modified < now - _ABANDONED:
            keys.append(each.key)
    context.storage.delete_many(keys)


def _key(run: str) -> str:
    if "/" in run or run.startswith("."):
        raise InvalidInputError(f"invalid run name {run!r}")
    return f"{_RUNS}/{run}.json"
