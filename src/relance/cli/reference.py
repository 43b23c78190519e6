"""The command-line reference, generated from the commands.

`python -m relance.cli.reference docs/reference/cli.md` writes the page; a test fails if it is out of date.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator
from pathlib import Path

import click

from relance.cli.app import SECTIONS, app
from relance.cli.base import shared_options
from relance.cli.exits import MEANINGS
from relance.cli.shapes import SHAPES

_HEAD = """# Command line reference

Generated from the commands by `python -m relance.cli.reference docs/reference/cli.md`;
`relance COMMAND --help` prints the same text. New here? Start with the [guide](../cli.md).
"""

_JSON = """## JSON

With `--json`, every command prints one document to standard output, even if it fails:

```
{"ok": true, "command": "ls", "result": {}}
{"ok": false, "command": "show", "error": {"type": "TableNotFoundError", "code": 4, "message": "", …}}
```

The keys of `result` are listed under each command. A command that failed in part has both `result` and
`error`. An error has `type`, `code` (from the namespace specification, see [errors](errors.md), or null),
`message` and `hint`. Times are in ISO format, and ids have the form that commands accept. New keys may be
added; existing keys are never renamed. Progress and prompts go to standard error.
"""


def page() -> str:
    """Return the page."""
    parts = [_HEAD, "\n".join(_exit_codes()), "\n".join(_shared()), _JSON]
    for title, commands in SECTIONS.items():
        parts.append(f"## {title}\n")
        for command in commands:
            parts += _command(command, str(command.name))
    return "\n".join(parts).rstrip() + "\n"


def _exit_codes() -> Iterator[str]:
    yield from ("## Exit codes", "", "| code | meaning |", "|---|---|")
    yield from (f"| {int(code)} | {meaning} |" for code, meaning in MEANINGS.items())
    yield ""


def _shared() -> Iterator[str]:
    yield from ("## Common options", "", "Every command accepts these, before or after its name.", "")
    yield from _options(shared_options())
    yield ""


def _command(command: click.Command, path: str) -> Iterator[str]:
    if isinstance(command, click.Group):
        for each in command.commands.values():
            yield from _command(each, f"{path} {each.name}")
        return
    shared = {each.name for each in shared_options()}
    own = [each for each in command.params if each.name not in shared]
    context = click.Context(command, info_name=f"relance {path}")
    usage = " ".join(command.collect_usage_pieces(context)).replace("[OPTIONS] ", "").replace("[OPTIONS]", "")
    yield f"### relance {path}\n"
    yield f"`relance {path} {usage}`".replace(" `", "`") + "\n"
    yield _text(command.help or "") + "\n"
    options = [each for each in own if isinstance(each, click.Option)]
    if options:
        yield from _options(options)
        yield ""
    if path in SHAPES:
        yield "| `result` | |\n|---|---|"
        yield from (f"| `{key}` | {meaning} |" for key, meaning in SHAPES[path].items())
        yield ""


def _options(options: list[click.Option]) -> Iterator[str]:
    yield "| option | |\n|---|---|"
    context = click.Context(app)
    for each in options:
        record = each.get_help_record(context)
        if record is not None:
            names, meaning = record
            yield f"| `{names.replace('|', chr(92) + '|')}` | {' '.join(meaning.split())} |"


def _text(docstring: str) -> str:
    """Return a help text as Markdown; paragraphs marked with a backspace become code blocks."""
    paragraphs = inspect.cleandoc(docstring).split("\n\n")
    return "\n\n".join(
        f"```\n{each.removeprefix(chr(8) + chr(10))}\n```"
        if each.startswith("\b")
        else " ".join(each.split())
        for each in paragraphs
    )


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(page())
