"""Exit codes, and the error that a command raises by itself."""

from __future__ import annotations

from enum import IntEnum


class Exit(IntEnum):
    """What the shell is told; docs/reference/cli.md has the same table."""

    OK = 0
    FAILED = 1
    USAGE = 2
    NOT_FOUND = 3
    CONFLICT = 4
    REFUSED = 5
    STORE = 6
    INTERRUPTED = 130
    BROKEN_PIPE = 141


MEANINGS: dict[Exit, str] = {
    Exit.OK: "done",
    Exit.FAILED: "failed, in whole or in part; or `doctor` and `scrub` found something wrong",
    Exit.USAGE: "the command line, an id, an expression or a file with settings cannot be used",
    Exit.NOT_FOUND: "there is no such table, namespace, version, tag, branch, column or folder",
    Exit.CONFLICT: "the name is taken, the table's state does not allow it, or others changed it meanwhile",
    Exit.REFUSED: "nothing was done: not confirmed, or over a limit of the policy",
    Exit.STORE: "the store refused, or does not answer",
    Exit.INTERRUPTED: "interrupted with Ctrl-C",
    Exit.BROKEN_PIPE: "whoever read the output stopped reading",
}


class CliError(Exception):
    """Something that ends a command: a line that says what, and a line that says what to do."""

    def __init__(self, what: str, to_do: str, exit_code: Exit) -> None:
        super().__init__(what)
        self.what = what
        self.to_do = to_do
        self.exit_code = exit_code
