"""Command results and the only place that prints them: as a JSON document or as text.

Commands compute an Answer; nothing else writes to standard output.
"""

from __future__ import annotations

import codecs
import dataclasses
import io
import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import Enum
from typing import TYPE_CHECKING, Any, TextIO

from relance.cli.exits import Exit
from relance.cli.failures import Failure
from relance.cli.grids import Grid, lay_out, vertical
from relance.cli.words import printable

if TYPE_CHECKING:
    from rich.console import Console

_PIPE_WIDTH = 100_000
"""Lines are never wrapped in a pipe."""


@dataclass(frozen=True, slots=True)
class Branch:
    """A node of a tree."""

    label: str
    children: Sequence[Branch] = ()


Part = str | Grid | Branch
"""A piece of text output."""


@dataclass(frozen=True, slots=True)
class Answer:
    """The result of a command."""

    result: Mapping[str, Any]
    """For `--json`: a stable shape."""
    text: Sequence[Part] = ()
    """For people."""
    problem: Failure | None = None
    """Why the exit code is not 0 even though there is a result."""
    write: Callable[[TextIO], None] | None = field(default=None, repr=False)
    """Writes to standard output directly, instead of `text`."""


def prepare_streams() -> None:
    """Make standard output and error accept any text: escape characters their encoding lacks."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:  # closed by the parent process
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115  # until the end
        elif hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")


def print_answer(answer: Answer, *, command: str, as_json: bool, upright: bool = False) -> Exit:
    """Print an answer and return the exit code; `upright` prints tables as one line per value."""
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
                _print_part(part, upright=upright)
        sys.stdout.flush()
        if problem is not None:
            print_failure(problem)
    return Exit.OK if problem is None else problem.exit_code


def print_failed(failure: Failure, *, command: str, as_json: bool) -> None:
    """Print the error of a command that has no result."""
    if as_json:
        _print_json({"ok": False, "command": command, "error": failure.as_json()})
    else:
        print_failure(failure)


def print_failure(failure: Failure) -> None:
    """Print the message and the hint of an error to standard error."""
    console = console_on(sys.stderr)
    for label, style, text in (("error: ", "bold red", failure.what), (" hint: ", "bold", failure.to_do)):
        # The terminal breaks long lines: what it breaks can still be copied as one command.
        console.print(_styled(label, style), _styled(printable(text)), sep="", soft_wrap=True)


def note(text: str) -> None:
    """Print a line to standard error."""
    console_on(sys.stderr).print(_styled(printable(text)), soft_wrap=True)


def console_on(stream: TextIO) -> Console:
    """Return a console that uses colors and wraps lines only on a terminal."""
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
    # ASCII only on a terminal: text may contain control characters. Serialized before it is written, so that
    # a value that is not JSON leaves no partial document.
    ascii_only = sys.stdout.isatty() or (sys.stdout.encoding or "").lower() not in {"utf-8", "utf8"}
    text = json.dumps(document, indent=2, default=plain, ensure_ascii=ascii_only)
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def _print_part(part: Part, *, upright: bool) -> None:
    if isinstance(part, str):
        lines = printable(part, keep="\n").split("\n")
    elif isinstance(part, Branch):
        lines = list(_tree_lines(part))
    elif not part.rows:
        lines = [printable(part.empty)] if part.empty else []
    elif upright and part.header:
        lines = list(vertical(part))
    else:
        lines = list(_grid_lines(part))
    sys.stdout.write("".join(f"{line}\n" for line in lines))


def _grid_lines(grid: Grid) -> Sequence[str]:
    """Return a table as lines, fitted to the terminal if there is one; a note says what is not shown."""
    if not sys.stdout.isatty():
        return lay_out(grid, None).lines
    console = console_on(sys.stdout)
    laid_out = lay_out(grid, console.width)
    first, *rest = laid_out.lines
    if grid.header and console.color_system is not None:
        first = f"\x1b[1m{first}\x1b[0m"
    return [first, *rest, *([laid_out.note] if laid_out.note else [])]


def _tree_lines(branch: Branch) -> Iterator[str]:
    """Yield a tree as lines, each node below its parent."""
    yield printable(branch.label)
    yield from _lines_below(branch, "")


def _lines_below(branch: Branch, before: str) -> Iterator[str]:
    for number, child in enumerate(branch.children, 1):
        is_last = number == len(branch.children)
        yield f"{before}{'└── ' if is_last else '├── '}{printable(child.label)}"
        yield from _lines_below(child, before + ("    " if is_last else "│   "))


def plain(value: Any) -> Any:
    """Return a JSON value: times in ISO format, durations in seconds."""
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


class TerminalSink(io.RawIOBase):
    """Writes UTF-8 to a terminal, with control characters other than line ends and tabs escaped."""

    def __init__(self, stream: TextIO) -> None:
        super().__init__()
        self._stream = stream
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        text = self._decoder.decode(bytes(data))
        self._stream.write(printable(text, keep="\n\t"))
        return len(data)
