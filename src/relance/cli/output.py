"""What a command answers, and the one place that prints it: a JSON document, or text for people.

Commands compute an Answer; nothing else writes to standard output.
"""

from __future__ import annotations

import dataclasses
import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import Enum
from typing import TYPE_CHECKING, Any, TextIO

from relance.cli.exits import Exit
from relance.cli.failures import Failure
from relance.cli.words import printable

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

_PIPE_WIDTH = 100_000
"""No line of a pipe is wrapped."""

_LEAST = 16
"""What is left for the last column of a table, at least."""


@dataclass(frozen=True, slots=True)
class Grid:
    """Rows below headings; columns named in `right` hold numbers."""

    headings: Sequence[str]
    rows: Sequence[Sequence[str]]
    right: frozenset[str] = frozenset()
    empty: str = ""
    """What is said when there are no rows."""


@dataclass(frozen=True, slots=True)
class Branch:
    """A node of a tree."""

    label: str
    children: Sequence[Branch] = ()


Part = str | Grid | Branch
"""What text is made of."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What came of a command."""

    result: Mapping[str, Any]
    """For `--json`: a stable shape."""
    text: Sequence[Part] = ()
    """For people."""
    problem: Failure | None = None
    """Why the exit code is not 0 although there is a result."""
    write: Callable[[TextIO], None] | None = field(default=None, repr=False)
    """Writes to standard output by itself, in place of `text`."""


def print_answer(answer: Answer, *, command: str, as_json: bool) -> Exit:
    """Print an answer, and return the exit code."""
    problem = answer.problem
    if as_json:
        document = {"ok": problem is None, "command": command, "result": answer.result}
        if problem is not None:
            document["error"] = problem.as_json()
        _print_json(document)
    else:
        if answer.write is not None:
            answer.write(sys.stdout)
        else:
            for part in answer.text:
                _print_part(part)
        sys.stdout.flush()
        if problem is not None:
            print_failure(problem)
    return Exit.OK if problem is None else problem.exit_code


def print_failed(failure: Failure, *, command: str, as_json: bool) -> None:
    """Print that a command gave no result."""
    if as_json:
        _print_json({"ok": False, "command": command, "error": failure.as_json()})
    else:
        print_failure(failure)


def print_failure(failure: Failure) -> None:
    """Print what went wrong and what to do, to standard error."""
    console = console_on(sys.stderr)
    for label, style, text in (("error: ", "bold red", failure.what), ("  do:  ", "bold", failure.to_do)):
        console.print(_styled(label, style), _styled(printable(text)), sep="")


def note(text: str) -> None:
    """Print a line for people, to standard error."""
    console_on(sys.stderr).print(_styled(printable(text)))


def console_on(stream: TextIO) -> Console:
    """Return a console that has colours only on a terminal, and wraps lines only there."""
    from rich.console import Console

    terminal = stream.isatty()
    plain_text = not terminal or bool(os.environ.get("NO_COLOR"))
    return Console(
        file=stream,
        highlight=False,
        markup=False,
        emoji=False,
        width=None if terminal else _PIPE_WIDTH,
        color_system=None if plain_text else "auto",
    )


def _styled(text: str, style: str = "") -> Any:
    from rich.text import Text

    return Text(text, style=style)


def _print_json(document: Mapping[str, Any]) -> None:
    json.dump(document, sys.stdout, indent=2, default=plain, ensure_ascii=False)
    sys.stdout.write("\n")
    sys.stdout.flush()


def _print_part(part: Part) -> None:
    console = console_on(sys.stdout)
    with console.capture() as captured:
        if isinstance(part, str):
            console.print(_styled("\n".join(map(printable, part.split("\n")))))
        elif isinstance(part, Branch):
            console.print(_tree(part))
        elif part.rows:
            console.print(_table(part, console.width))
        elif part.empty:
            console.print(_styled(part.empty))
    # The last column is filled up with blanks, which nobody wants in a pipe.
    sys.stdout.write("".join(line.rstrip(" \n") + "\n" for line in captured.get().splitlines(keepends=True)))


def _table(grid: Grid, width: int) -> RenderableType:
    from rich.table import Table

    table = Table(
        box=None,
        pad_edge=False,
        padding=(0, 2, 0, 0),
        show_edge=False,
        show_header=any(grid.headings),
        header_style="bold",
    )
    whole = _fits_but_for_the_last(grid, width)
    last = len(grid.headings) - 1
    for number, heading in enumerate(grid.headings):
        table.add_column(
            heading,
            justify="right" if heading in grid.right else "left",
            no_wrap=heading in grid.right or (whole and number < last),
            overflow="fold",
        )
    for row in grid.rows:
        table.add_row(*(_styled(printable(cell)) for cell in row))
    return table


def _fits_but_for_the_last(grid: Grid, width: int) -> bool:
    """Tell whether ids and times need not be broken when only the last column is."""
    from rich.cells import cell_len

    columns = list(zip(grid.headings, *grid.rows, strict=True))[:-1]
    return sum(2 + max(map(cell_len, each)) for each in columns) + _LEAST <= width


def _tree(branch: Branch) -> RenderableType:
    from rich.tree import Tree

    tree = Tree(_styled(printable(branch.label)), guide_style="dim")
    _grow(tree, branch.children)
    return tree


def _grow(tree: Any, children: Sequence[Branch]) -> None:
    for child in children:
        _grow(tree.add(_styled(printable(child.label))), child.children)


def plain(value: Any) -> Any:
    """Return a value as JSON can hold it: times in ISO format, spans in seconds."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {each.name: getattr(value, each.name) for each in dataclasses.fields(value)}
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, set | frozenset | tuple):
        return list(value)
    if isinstance(value, bytes):
        return value.hex()
    return str(value)
