"""Confirm irreversible actions, listing what they affect."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import click

from relance.cli.exits import CliError, Exit
from relance.cli.output import note
from relance.cli.words import listed


def is_somebody_there() -> bool:
    """Return whether there is a terminal to prompt on."""
    return sys.stdin.isatty() and sys.stderr.isatty()


def confirm(
    what: str,
    items: Sequence[str],
    *,
    yes: bool = False,
    preview: str = "preview with --dry-run",
    warning: str = "cannot be undone",
) -> None:
    """Return if the user confirms.

    Raises:
        CliError: the user declined, or there is no terminal to prompt on.
    """
    if yes:
        return
    if not is_somebody_there():
        raise CliError(
            f"nothing was changed: {what} {warning}, and there is no terminal to confirm on",
            f"pass --yes to confirm; {preview}",
            Exit.REFUSED,
        )
    note(f"{what} {warning}:")
    for each in listed(items):
        note(f"  {each}")
    if not click.confirm("Continue?", default=False, err=True):
        raise CliError("cancelled: nothing was changed", "answer y to continue, or pass --yes", Exit.REFUSED)
