"""Commands for the whole root: migrate, scrub."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from relance.cli.asking import confirm
from relance.cli.base import Command
from relance.cli.exits import Exit
from relance.cli.failures import Failure
from relance.cli.grids import Grid
from relance.cli.output import Answer, Part
from relance.cli.params import dry_run_option, yes_option
from relance.cli.progress import migration_bar
from relance.cli.state import State, pass_state
from relance.cli.words import listed, printable
from relance.units import plural

if TYPE_CHECKING:
    from relance.catalog.repair import Finding
    from relance.namespace import DirectoryNamespace

_LABELS = {
    "mended": "synced",
    "settled": "no longer declared",
    "cleared": "not dropped",
    "copied": "renamed and now copied, with a drop of the old name",
    "purging": "interrupted purge",
    "rows": "rewritten in the manifest",
}
"""How text output names the keys of a migration."""


@click.command(cls=Command)
@click.option(
    "--to",
    "target",
    type=click.Choice(["manifest", "markers", "format"]),
    help="manifest: add a row for every table directory. markers: copy the markers of other clients from "
    "table directories to the root, so that listing takes one request. format: convert a root that a "
    "pre-release wrote (format 1). [default: format if the root needs it, otherwise manifest]",
)
@dry_run_option
@yes_option
@pass_state
def migrate(state: State, *, target: str | None, dry_run: bool, yes: bool) -> Answer:
    """Convert a root to the current format, or to the layout that lists fastest.

    Stop all other clients before you convert the format. A conversion that was interrupted is resumed by
    running the command again.
    """
    catalog = state.catalog
    found: dict[str, Any] | None = None
    if target in {None, "format"}:
        found = _migrate_format(catalog, required=target is not None, dry_run=dry_run, yes=yes)
        target = "manifest" if found is None else "format"
    if target == "markers":
        found = asdict(catalog.migrate_markers(dry_run=dry_run))
    elif found is None:
        found = asdict(catalog.migrate_to_manifest(dry_run=dry_run, progress=migration_bar()))
    kinds = {name: list(value) for name, value in found.items() if isinstance(value, tuple)}
    text: list[Part] = []
    for kind, names in kinds.items():
        if names:
            text += [_kind_line(kind, len(names)), *(f"  {each}" for each in listed(names))]
    if target == "format":
        text.append("the root is of format 1" if dry_run else "the root is now of format 2")
    if not text:
        text = ["nothing to migrate"]
    elif dry_run:
        text.append("dry run: nothing was changed")
    return Answer({"to": target, "dry_run": dry_run, **kinds}, text)


def _migrate_format(
    catalog: DirectoryNamespace, *, required: bool, dry_run: bool, yes: bool
) -> dict[str, Any] | None:
    """Convert a root of format 1 after confirmation; None if it is of the current format already."""
    from relance.catalog.migrate import NothingToConvertError

    try:
        plan = catalog.migrate_format(dry_run=True)
    except NothingToConvertError:
        if required:
            raise
        return None
    if dry_run:
        return asdict(plan)
    kinds = {name: names for name, names in asdict(plan).items() if isinstance(names, tuple) and names}
    confirm(
        f"converting {catalog.root_uri} to format 2",
        [_kind_line(kind, len(names)) for kind, names in kinds.items()],
        yes=yes,
        warning="cannot be undone; stop all other clients first",
    )
    return asdict(catalog.migrate_format())


def _kind_line(kind: str, count: int) -> str:
    return f"{_LABELS.get(kind, kind)}: {plural(count, 'row' if kind == 'rows' else 'table')}"


@click.command(cls=Command)
@click.option("--repair", is_flag=True, help="Repair the problems that can be repaired.")
@yes_option
@pass_state
def scrub(state: State, *, repair: bool, yes: bool) -> Answer:
    """Find inconsistencies in the root; --repair fixes them.

    The exit code is 1 if problems remain.
    """
    found = state.catalog.scrub()
    if repair and found:
        lines = [f"{each.name}: {each.problem.value}; {each.remedy}" for each in found]
        confirm(
            f"repairing {plural(len(found), 'problem')}",
            lines,
            yes=yes,
            preview="list the problems with relance scrub",
        )
        found = state.catalog.scrub(repair=True)
    left = [each for each in found if not each.repaired]
    rows = [
        [each.name, each.problem.value, "repaired" if each.repaired else _left(each, state)] for each in found
    ]
    grid = Grid(
        ["NAME", "PROBLEM", "REMEDY"], rows, empty="no problems found", prose=frozenset({"PROBLEM", "REMEDY"})
    )
    result = {"findings": [_fields(each, state) for each in found], "left": len(left)}
    problem = None
    if left:
        to_do = "follow the remedies above" if repair else "repair them: relance scrub --repair"
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
