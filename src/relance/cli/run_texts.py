"""The record of a policy run as an answer: a summary as text, the full record as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from relance.cli.exits import CliError, Exit
from relance.cli.failures import Failure
from relance.cli.grids import Grid
from relance.cli.output import Answer, Part
from relance.cli.words import id_text, listed
from relance.units import count, in_bytes

if TYPE_CHECKING:
    from relance.jobs.base import Estimate
    from relance.policy.records import ActionRecord, RunRecord

_ACTIONS = 30
"""Maximum number of actions that a plan lists."""

html_option = click.option(
    "--html", type=click.Path(dir_okay=False), help="Also write the report to this HTML file."
)


def record_answer(record: RunRecord, *, html: str | None = None, actions: bool = False) -> Answer:
    """Return the report of a run, and write it as HTML if a file is named."""
    from relance.policy.report import summary, to_html, to_json

    found = summary(record)
    text: list[Part] = [found.headline]
    if found.message:
        text.append(found.message)
    text += ["", _about(found.about), "", _grid(found.total_rows)]
    if found.kinds:
        text += ["", _grid(found.kind_rows)]
    if actions and record.actions:
        plan = _listed(record)
        text += ["", *plan] if plan else []
    failed = [f"failed: {_action(each)}: {each.error}" for each in found.failures]
    text += ["", *listed(failed)] if failed else []
    if html is not None:
        _write(html, to_html(record))
        text += ["", f"report written to {html}"]
    result = {"record": to_json(record), "html": html}
    return Answer(result, text, _problem(record))


def _about(facts: Sequence[tuple[str, str]]) -> Grid:
    return Grid(["NAME", "VALUE"], facts, prose=frozenset({"VALUE"}), header=False)


def _grid(rows: tuple[tuple[str, ...], ...]) -> Grid:
    headings = [each.upper() for each in rows[0]]
    return Grid(headings, rows[1:], frozenset(headings[1:]))


def _listed(record: RunRecord) -> list[Part]:
    """Return the actions that a run would do, with what each of them would change and why."""
    from relance.policy.records import Outcome

    rows = [
        [
            each.action.kind,
            id_text(each.action.table),
            *_figures(each.planned),
            each.action.rule,
            each.action.why,
        ]
        for each in record.actions
        if each.outcome is Outcome.PLANNED
    ]
    if not rows:
        return []
    rest = len(rows) - _ACTIONS
    headings = ["ACTION", "TABLE", "ROWS", "FILES", "SIZE", "RULE", "WHY"]
    numbers = frozenset({"ROWS", "FILES", "SIZE"})
    grid = Grid(headings, rows[:_ACTIONS], numbers, prose=frozenset({"WHY"}), keep=numbers | {"TABLE"})
    return [grid, *([f"… and {rest} more; --json lists them all"] if rest > 0 else [])]


def _figures(planned: Estimate | None) -> list[str]:
    """Return rows, files and bytes as cells; those that an action does not change are empty."""
    if planned is None:
        return ["", "", ""]
    return [
        count(planned.rows) if planned.rows else "",
        count(planned.files) if planned.files else "",
        in_bytes(planned.bytes) if planned.bytes else "",
    ]


def _action(each: ActionRecord) -> str:
    return f"{each.action.kind} {id_text(each.action.table)}"


def _problem(record: RunRecord) -> Failure | None:
    from relance.policy.records import Outcome, RunState

    if record.state is RunState.REFUSED:
        to_do = "nothing was changed: raise the limit in the policy, narrow the run with --only, or re-plan"
        return Failure("Refused", record.message or "the run was refused", to_do, Exit.REFUSED)
    failed = sum(each.outcome is Outcome.FAILED for each in record.actions)
    if not failed and record.state is not RunState.FAILED:
        return None
    what = f"{failed} of {len(record.actions)} actions failed"
    return Failure("Failed", what, "fix the errors listed above and run it again", Exit.FAILED)


def _write(file: str, text: str) -> None:
    try:
        Path(file).write_text(text, encoding="utf-8")
    except OSError as cause:
        what = f"cannot write report {file}: {cause.strerror}"
        raise CliError(
            what, "choose another file and write it again: relance report --html FILE", Exit.FAILED
        ) from cause
