"""The root as a whole: migrate, scrub."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from relance.amounts import plural
from relance.cli.asking import confirm
from relance.cli.base import Command
from relance.cli.exits import Exit
from relance.cli.failures import Failure
from relance.cli.output import Answer, Grid, Part
from relance.cli.params import dry_run_option, yes_option
from relance.cli.progress import migration_bar
from relance.cli.state import State, pass_state
from relance.cli.words import listed, printable

if TYPE_CHECKING:
    from relance.operations.findings import Finding


@click.command(cls=Command)
@click.option(
    "--to",
    "target",
    type=click.Choice(["manifest", "markers"]),
    default="manifest",
    show_default=True,
    help="manifest: give every table directory a row. markers: bring what other clients keep inside tables "
    "to the root, so that listing is one request.",
)
@dry_run_option
@pass_state
def migrate(state: State, *, target: str, dry_run: bool) -> Answer:
    """Bring a root that other clients made to the form that is fastest."""
    catalog = state.catalog
    if target == "markers":
        found: dict[str, Any] = asdict(catalog.migrate_markers(dry_run=dry_run))
    else:
        found = asdict(catalog.migrate_to_manifest(dry_run=dry_run, progress=migration_bar()))
    kinds = {name: list(value) for name, value in found.items() if isinstance(value, tuple)}
    text: list[Part] = []
    for kind, names in kinds.items():
        if names:
            text += [f"{kind}: {plural(len(names), 'table')}", *(f"  {each}" for each in listed(names))]
    if not text:
        text = ["nothing is left to migrate"]
    elif dry_run:
        text.append("nothing was changed: this was a dry run")
    return Answer({"to": target, "dry_run": dry_run, **kinds}, text)


@click.command(cls=Command)
@click.option("--repair", is_flag=True, help="Mend what can be mended.")
@yes_option
@pass_state
def scrub(state: State, *, repair: bool, yes: bool) -> Answer:
    """Look for what does not fit together in the root, and mend it.

    The exit code is 1 when something is left.
    """
    found = state.catalog.scrub()
    if repair and found:
        lines = [f"{each.name}: {each.problem.value}; {each.remedy}" for each in found]
        confirm(
            f"mending {plural(len(found), 'problem')}",
            lines,
            yes=yes,
            preview="relance scrub shows what it finds",
        )
        found = state.catalog.scrub(repair=True)
    left = [each for each in found if not each.repaired]
    rows = [
        [each.name, each.problem.value, "repaired" if each.repaired else _left(each, state)] for each in found
    ]
    grid = Grid(["NAME", "PROBLEM", "REMEDY"], rows, empty="everything fits together")
    result = {"findings": [_fields(each, state) for each in found], "left": len(left)}
    problem = None
    if left:
        to_do = (
            "relance scrub --repair mends what can be mended"
            if not repair
            else "the list says what is left to do"
        )
        problem = Failure(
            "Scrub", f"{plural(len(left), 'problem')} in {state.catalog.root_uri}", to_do, Exit.FAILED
        )
    return Answer(result, [grid], problem)


def _left(finding: Finding, state: State) -> str:
    if finding.error is None:
        return finding.remedy
    return printable(f"{finding.remedy} (failed: {state.failure(finding.error).what})")


def _fields(finding: Finding, state: State) -> dict[str, Any]:
    error = None if finding.error is None else state.failure(finding.error).as_json()
    return {
        "name": finding.name,
        "problem": finding.problem.value,
        "remedy": finding.remedy,
        "repaired": finding.repaired,
        "error": error,
    }
