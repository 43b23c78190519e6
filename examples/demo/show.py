"""What the demo prints: acts, the calls they make, and what came back."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Sequence

from rich.console import Console

from relance.errors import RelanceError

_WIDTH = 100
_INDENT = " " * 4

console = Console(highlight=False, markup=False, emoji=False, soft_wrap=True)


def heading(text: str) -> None:
    """Print the heading of a section."""
    console.print()
    console.print(f"━━ {text} ".ljust(_WIDTH, "━"), style="bold")


def call(code: str) -> None:
    """Print the call that the demo makes next."""
    console.print()
    console.print(f">>> {code}", style="cyan")


def say(text: str) -> None:
    """Print a sentence of the story."""
    console.print(textwrap.fill(text, _WIDTH))


def show_table(headings: Sequence[str], rows: Sequence[Sequence[str]], *, text: Sequence[str] = ()) -> None:
    """Print aligned rows: the first column and those in `text` to the left, numbers to the right."""
    widths = [max(map(len, column)) for column in zip(headings, *rows, strict=True)]
    for row in (headings, *rows):
        cells = [
            cell.ljust(width) if number == 0 or name in text else cell.rjust(width)
            for number, (name, cell, width) in enumerate(zip(headings, row, widths, strict=True))
        ]
        console.print(_INDENT + "  ".join(cells).rstrip(), style="bold" if row is headings else None)


def expect_error(action: Callable[[], object]) -> None:
    """Do something that must be refused, and print the error."""
    try:
        action()
    except RelanceError as error:
        text = f"{type(error).__name__}: {error}"
        console.print(
            textwrap.fill(text, _WIDTH, initial_indent=_INDENT, subsequent_indent=_INDENT), style="red"
        )
    else:
        raise SystemExit("this should have been refused")
