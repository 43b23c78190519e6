"""Shell completion: print the script that the shell loads."""

from __future__ import annotations

from typing import TextIO

import click
from click.shell_completion import get_completion_class

from relance.cli.base import Command
from relance.cli.output import Answer

_VARIABLE = "_RELANCE_COMPLETE"
_HOW = {
    "bash": 'add to ~/.bashrc: eval "$(relance completion bash)"',
    "zsh": 'add to ~/.zshrc: eval "$(relance completion zsh)"',
    "fish": "relance completion fish > ~/.config/fish/completions/relance.fish",
}


@click.command(cls=Command)
@click.argument("shell", type=click.Choice(sorted(_HOW)))
@click.pass_context
def completion(context: click.Context, shell: str) -> Answer:
    """Print a shell completion script.

    Completes commands, options, and the names of tables and namespaces in the catalog.

    \b
    bash: add to ~/.bashrc:  eval "$(relance completion bash)"
    zsh:  add to ~/.zshrc:   eval "$(relance completion zsh)"
    fish: relance completion fish > ~/.config/fish/completions/relance.fish
    """
    found = get_completion_class(shell)
    assert found is not None  # click knows these three
    script = found(context.find_root().command, {}, "relance", _VARIABLE).source()

    def write(stream: TextIO) -> None:
        stream.write(script + "\n")

    return Answer({"shell": shell, "script": script, "install": _HOW[shell]}, write=write)
