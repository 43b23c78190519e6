"""Past policy runs: history, report."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING

import click

from relance.cli.base import Command
from relance.cli.exits import CliError, Exit
from relance.cli.grids import Grid
from relance.cli.output import Answer, Part
from relance.cli.params import MOMENT, TABLE
from relance.cli.policies import KIND
from relance.cli.run_texts import html_option, record_answer
from relance.cli.state import State, pass_state
from relance.cli.words import id_text, moment_cell
from relance.units import count, duration, in_bytes

if TYPE_CHECKING:
    from relance.policy.past_runs import HistoryEntry, RunEntry

Id = tuple[str, ...]

_KEPT = frozenset({"TABLE", "ACTION", "OUTCOME"})


@click.command(cls=Command)
@click.option(
    "--actions",
    is_flag=True,
    help="List actions instead of runs; implied by --table, --kind, --failed and --run.",
)
@click.option("--table", type=TABLE, help="Only actions on this table.")
@click.option("--kind", type=KIND, help="Only actions of this kind.")
@click.option("--failed", is_flag=True, help="Only failed actions.")
@click.option("--run", "name", help="Only actions of this run.")
@click.option("--since", type=MOMENT, help="Only entries since this time.")
@click.option(
    "--limit",
    type=click.IntRange(min=1),
    metavar="N",
    default=50,
    show_default=True,
    help="At most N entries.",
)
@pass_state
def history(
    state: State,
    *,
    actions: bool,
    table: Id | None,
    kind: str | None,
    failed: bool,
    name: str | None,
    since: datetime | None,
    limit: int,
) -> Answer:
    """List past policy runs, or their actions, newest first."""
    from relance.policy import history as past_actions
    from relance.policy import runs as past_runs

    if not (actions or table or kind or failed or name):
        return _runs_answer(past_runs(state.catalog, since=since)[:limit])
    found = past_actions(
        state.catalog, since=since, table=table, kind=kind, failed=failed, run=name, limit=limit
    )
    return _actions_answer(found)


def _runs_answer(found: Sequence[RunEntry]) -> Answer:
    from relance.policy.records import RunState

    entries = [
        {
            "run": each.head.run,
            "state": each.state.value,
            "policy": each.head.policy,
            "actor": each.head.actor,
            "engine": each.head.engine,
            "started_at": each.started_at,
            "ended_at": each.ended_at,
            "message": each.message,
        }
        for each in found
    ]
    rows = [
        [
            each.head.run,
            each.state.value,
            moment_cell(each.started_at),
            "-" if each.ended_at is None else duration(each.ended_at - each.started_at),
            each.head.actor,
            each.head.policy,
            each.message,
        ]
        for each in found
    ]
    headings = ["RUN", "STATE", "STARTED (UTC)", "TOOK", "BY", "POLICY", "MESSAGE"]
    grid = Grid(headings, rows, frozenset({"TOOK"}), "no policy runs yet", frozenset({"MESSAGE"}))
    text: list[Part] = [grid]
    text += [
        f"run {each.head.run} was interrupted; to resume it: relance run --resume --run {each.head.run}"
        for each in found
        if each.state is RunState.INTERRUPTED
    ][:1]
    return Answer({"runs": entries}, text)


def _actions_answer(found: Sequence[HistoryEntry]) -> Answer:
    entries = [
        {
            "run": each.head.run,
            "at": each.at,
            "actor": each.head.actor,
            "table": id_text(each.record.action.table),
            "kind": each.record.action.kind,
            "rule": each.record.action.rule,
            "why": each.record.action.why,
            "outcome": each.record.outcome.value,
            "rows": None if each.record.effect is None else each.record.effect.rows,
            "files": None if each.record.effect is None else each.record.effect.files,
            "bytes": None if each.record.effect is None else each.record.effect.bytes,
            "seconds": each.record.duration,
            "error": each.record.error,
        }
        for each in found
    ]
    rows = [
        [
            moment_cell(each.at),
            id_text(each.record.action.table),
            each.record.action.kind,
            each.record.outcome.value,
            count(None if each.record.effect is None else each.record.effect.rows),
            in_bytes(None if each.record.effect is None else each.record.effect.bytes),
            each.head.actor,
            each.record.error or each.record.action.why,
        ]
        for each in found
    ]
    headings = ["AT (UTC)", "TABLE", "ACTION", "OUTCOME", "ROWS", "SIZE", "BY", "WHY"]
    grid = Grid(headings, rows, frozenset({"ROWS", "SIZE"}), "no matching actions", frozenset({"WHY"}), _KEPT)
    return Answer({"actions": entries}, [grid])


@click.command(cls=Command)
@click.argument("name", metavar="[RUN]", required=False)
@html_option
@pass_state
def report(state: State, name: str | None, *, html: str | None) -> Answer:
    """Show the report of a policy run: the latest, or the one named."""
    from relance.policy import run_record
    from relance.policy.records import RunState

    record = run_record(state.catalog, name)
    if record is None:
        what = f"run {name} not found" if name else "no policy runs yet"
        raise CliError(what, "list the runs: relance history; start one: relance run", Exit.NOT_FOUND)
    answer = record_answer(record, html=html)
    text = list(answer.text)
    if record.state is RunState.INTERRUPTED:
        text += ["", f"to resume it: relance run --resume --run {record.run}"]
    return Answer(answer.result, text)  # the report of a failed run is itself a success
