"""The exit codes: the one table that errors, commands, jobs for spark-submit and docs/cli.md go by. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum


class Exit(IntEnum):
    """What a command, and a policy submitted to Spark, exits with."""

    OK = 0
    FAILED = 1
    USAGE = 2
    NOT_FOUND = 3
    CONFLICT = 4
    REFUSED = 5
    STORE = 6
    INTERRUPTED = 130
    BROKEN_PIPE = 141


MEANINGS: Mapping[Exit, str] = {
    Exit.OK: "success",
    Exit.FAILED: "failed, fully or in part; or `doctor` or `scrub` found problems",
    Exit.USAGE: "invalid command line, id, expression or settings file",
    Exit.NOT_FOUND: "table, namespace, version, tag, branch, column or folder not found",
    Exit.CONFLICT: "the name is taken, the table's state does not allow it, or it changed concurrently",
    Exit.REFUSED: "refused, nothing was changed: not confirmed, or over a limit of the policy",
    Exit.STORE: "the store denied access or did not respond",
    Exit.INTERRUPTED: "interrupted with Ctrl-C",
    Exit.BROKEN_PIPE: "the reader of the output closed the pipe",
}
