"""Run policies: plan, run. Past runs are in past."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import click

from relance.cli.asking import confirm
from relance.cli.base import Command
from relance.cli.engines import spark_session, wants_spark
from relance.cli.exits import CliError, Exit
from relance.cli.failures import Failure
from relance.cli.output import Answer, note
from relance.cli.params import DURATION, TABLE, engine_options, yes_option
from relance.cli.policies import KIND, read_policy
from relance.cli.progress import job_bar
from relance.cli.run_texts import html_option, record_answer
from relance.cli.state import State, pass_state
from relance.cli.words import id_text, moment
from relance.units import in_bytes, plural

if TYPE_CHECKING:
    from relance.policy import RunPlan
    from relance.policy.records import RunRecord

Id = tuple[str, ...]

_file = click.argument("file", metavar="[POLICY]", type=click.Path(dir_okay=False), required=False)
_only = click.option("--only", type=TABLE, multiple=True, help="Only this table; repeatable.")
_kind = click.option(
    "--kind", "kinds", type=KIND, multiple=True, help="Only this kind of action; repeatable."
)


@click.command(cls=Command)
@_file
@_only
@_kind
@click.option(
    "--save", type=click.Path(dir_okay=False), help="Save the plan to a file for relance run --plan."
)
@html_option
@engine_options
@pass_state
def plan(
    state: State,
    file: str | None,
    *,
    only: Sequence[Id],
    kinds: Sequence[str],
    save: str | None,
    html: str | None,
    engine: str | None,
    master: str | None,
) -> Answer:
    """Show what a policy run would do now, without changing anything."""
    from relance.policy import save_plan

    made = _plan(state, file, only, kinds, _engine(state, engine, master))
    answer = record_answer(made.record, html=html, actions=True)
    if save is None:
        return answer
    save_plan(made, save)
    text = [*answer.text, "", f"plan saved to {save}; to run it: relance run --plan {save}"]
    return Answer({**answer.result, "saved": save}, text, answer.problem)


def _engine(state: State, engine: str | None, master: str | None) -> dict[str, Any]:
    """Return the engine arguments of the pipeline."""
    if not wants_spark(engine, master):
        return {"engine": "local", "spark": None}
    session = spark_session(state, master)
    from relance.spark.policy import runner_for

    return {"engine": "spark", "spark": runner_for(session, "spark")}


def _chosen(state: State, only: Sequence[Id], kinds: Sequence[str]) -> dict[str, Any]:
    """Return the selection arguments of the pipeline.

    Raises:
        CliError: one of the tables does not exist.
    """
    from relance.catalog.resolve import NotFound

    for each in only:
        if isinstance(state.catalog.table_status(each), NotFound):
            what = f"table {id_text(each)} not found"
            raise CliError(what, "list tables: relance ls --tree", Exit.NOT_FOUND)
    return {"only": list(only) or None, "kinds": list(kinds) or None}


def _plan(
    state: State, file: str | None, only: Sequence[Id], kinds: Sequence[str], where: dict[str, Any]
) -> RunPlan:
    from relance.policy import plan as make_plan

    policy = read_policy(state, file)
    return make_plan(state.catalog, policy, **_chosen(state, only, kinds), **where, progress=job_bar())


@click.command(cls=Command)
@_file
@_only
@_kind
@click.option("--plan", "saved", type=click.Path(dir_okay=False), help="Run exactly this saved plan, once.")
@click.option("--resume", is_flag=True, help="Resume the most recent interrupted run.")
@click.option("--run", "name", help="With --resume: resume this run.")
@click.option("--every", type=DURATION, help="Repeat at this interval, such as 1h, until stopped.")
@click.option("--wait", type=DURATION, help="Wait this long for another run to finish, such as 10m.")
@click.option("--actor", help="Name to record in the history. Default: user@host.")
@html_option
@yes_option
@engine_options
@pass_state
def run(
    state: State,
    file: str | None,
    *,
    only: Sequence[Id],
    kinds: Sequence[str],
    saved: str | None,
    resume: bool,
    name: str | None,
    every: timedelta | None,
    wait: timedelta | None,
    actor: str | None,
    html: str | None,
    yes: bool,
    engine: str | None,
    master: str | None,
) -> Answer:
    """Run a policy and record the run in the catalog.

    Lists the rows and files it would delete and asks first, then does exactly that; --yes skips the question.
    """
    _refuse_mixtures(file, only, kinds, saved, resume=resume, name=name, every=every, yes=yes)
    where = _engine(state, engine, master)
    common = {**where, "wait": wait, "actor": actor, "progress": job_bar()}
    if every is not None:
        return _run_often(state, file, every, {**_chosen(state, only, kinds), **common}, html)
    with _resumable(state):
        return _run_once(
            state, file, only, kinds, saved, html, where, common, resume=resume, name=name, yes=yes
        )


@contextmanager
def _resumable(state: State) -> Iterator[None]:
    """Turn Ctrl-C into an error that says how to resume the run."""
    try:
        yield
    except KeyboardInterrupt as cause:
        from relance.policy import runs as past_runs
        from relance.policy.records import RunState

        newest = next(iter(past_runs(state.catalog)), None)
        if newest is None or newest.state is not RunState.INTERRUPTED:
            raise CliError(
                "interrupted before the run began: nothing was changed", "run it again", Exit.INTERRUPTED
            ) from cause
        run = newest.head.run
        to_do = f"to resume it: relance run --resume --run {run}; to see what was done: relance report {run}"
        raise CliError(f"run {run} was interrupted", to_do, Exit.INTERRUPTED) from cause


def _run_once(
    state: State,
    file: str | None,
    only: Sequence[Id],
    kinds: Sequence[str],
    saved: str | None,
    html: str | None,
    where: dict[str, Any],
    common: dict[str, Any],
    *,
    resume: bool,
    name: str | None,
    yes: bool,
) -> Answer:
    """Run, or resume a run, after confirmation."""
    if resume:
        return record_answer(_resume(state, name, common, yes=yes), html=html)
    if saved is not None:
        return record_answer(_run_saved(state, saved, common, yes=yes), html=html)
    if yes:
        from relance.policy import run_policy

        policy = read_policy(state, file)
        record = run_policy(state.catalog, policy, **_chosen(state, only, kinds), **common)
        return record_answer(record, html=html)
    made = _plan(state, file, only, kinds, where)
    return record_answer(_run_shown(state, made, common, yes=False), html=html)


def _refuse_mixtures(
    file: str | None,
    only: Sequence[Id],
    kinds: Sequence[str],
    saved: str | None,
    *,
    resume: bool,
    name: str | None,
    every: timedelta | None,
    yes: bool,
) -> None:
    chosen = [each for each, given in (("--plan", saved), ("--resume", resume), ("--every", every)) if given]
    if len(chosen) > 1:
        raise CliError(f"{chosen[0]} cannot be combined with {chosen[1]}", "use only one of them", Exit.USAGE)
    if (saved or resume) and (file or only or kinds):
        what = f"{chosen[0]} always follows its original plan"
        raise CliError(what, "remove the policy, --only and --kind", Exit.USAGE)
    if name is not None and not resume:
        raise CliError("--run requires --resume", "pass --resume as well", Exit.USAGE)
    if every is not None and not yes:
        what = "nothing was changed: --every cannot ask for confirmation before each run"
        raise CliError(what, "pass --yes to run the policy unattended", Exit.REFUSED)


def _run_saved(state: State, file: str, common: dict[str, Any], *, yes: bool) -> RunRecord:
    from relance.policy import load_plan

    return _run_shown(state, load_plan(file, root=state.catalog.root_uri), common, yes=yes)


def _run_shown(state: State, made: RunPlan, common: dict[str, Any], *, yes: bool) -> RunRecord:
    """List the irreversible actions, ask, and run exactly that plan."""
    from relance.policy import run as run_plan

    _ask(made, yes=yes)
    return run_plan(state.catalog, made, **common)


def _resume(state: State, name: str | None, common: dict[str, Any], *, yes: bool) -> RunRecord:
    """List the irreversible actions left in a run, ask, and resume it."""
    from relance.policy import resume as resume_run
    from relance.policy.running import left_of

    if not yes:
        left = left_of(state.catalog, name)
        _ask(left, yes=False, preview=f"see what was done so far with relance report {left.run}")
        name = left.run  # not a run that was interrupted since
    return resume_run(state.catalog, name, **common)


def _ask(made: RunPlan, *, yes: bool, preview: str = "preview with relance plan") -> None:
    from relance.jobs.base import kind_of
    from relance.policy.records import Outcome, RunState

    going = [
        each.record
        for each in made.steps
        if each.outcome is Outcome.PLANNED and kind_of(each.action.kind).irreversible
    ]
    if going and made.state is not RunState.REFUSED:
        lines = [
            f"{each.action.kind} {id_text(each.action.table)}: {_estimate(each.planned)}" for each in going
        ]
        confirm(
            f"{plural(len(going), 'action')} of this run",
            lines,
            yes=yes,
            preview=preview,
        )


def _estimate(planned: Any) -> str:
    if planned is None:
        return ""
    parts = [plural(planned.rows, "row")] if planned.rows else []
    parts += [plural(planned.versions, "version")] if planned.versions else []
    parts += [plural(planned.files, "file"), in_bytes(planned.bytes)] if planned.files else []
    return ", ".join(parts) or planned.note


def _run_often(
    state: State, file: str | None, every: timedelta, arguments: dict[str, Any], html: str | None
) -> Answer:
    """Run now and at every interval until a signal arrives; a failing run does not end the loop.

    The exit code is that of the last run, so that a supervisor sees whether it works now.
    """
    from relance.policy import run_policy
    from relance.policy.schedule import repeat, stopped_by_signals

    read_policy(state, file)  # report an invalid policy immediately
    runs: list[dict[str, Any]] = []
    last: Failure | None = None

    def work() -> None:
        nonlocal last
        try:
            record = run_policy(state.catalog, read_policy(state, file), **arguments)
        except Exception as error:  # noqa: BLE001  # including transient failures, such as a lost executor
            last = state.failure(error)
            runs.append({"run": None, "state": "failed", "error": last.as_json()})
            note(f"error: {last.what}")
            return
        answer = record_answer(record, html=html)
        last = answer.problem
        problem = None if last is None else last.as_json()
        runs.append({"run": record.run, "state": record.state.value, "error": problem})
        note(f"{moment(record.started_at)}: {answer.text[0]}")

    with stopped_by_signals() as stop:
        repeat(every, work, stop=stop, told=lambda due: note(f"next run: {moment(due)}"))
    failed = sum(each["error"] is not None for each in runs)
    text = f"{plural(len(runs), 'run')}, {failed} failed or refused"
    return Answer({"runs": runs}, [text], last)
