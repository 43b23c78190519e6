"""Ask before what cannot be undone, naming what will go."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import click

from relance.cli.exits import CliError, Exit
from relance.cli.output import note
from relance.cli.words import listed


def is_somebody_there() -> bool:
    """Tell whether a question would be seen and could be answered."""
    return sys.stdin.isatty() and sys.stderr.isatty()


def confirm(
    what: str,
    items: Sequence[str],
    *,
    yes: bool,
    preview: str = "--dry-run shows what would go",
    warning: str = "cannot be undone",
) -> None:
    """Return when the user agrees to what cannot be undone.

    Raises:
        CliError: the answer is no, or there is nobody to ask.
    """
    if yes:
        return
    if not is_somebody_there():
        raise CliError(
            f"nothing was done: {what} {warning}, and there is no terminal to ask on",
            f"pass --yes if you are sure; {preview}",
            Exit.REFUSED,
        )
    note(f"{what} {warning}:")
    for each in listed(items):
        note(f"  {each}")
    if not click.confirm("Go on?", default=False, err=True):
        raise CliError("nothing was done", "answer y to go on, or pass --yes", Exit.REFUSED)
