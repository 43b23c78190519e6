"""Turn an error into what the user sees: a message, a hint and an exit code."""

from __future__ import annotations

import errno
import re
import shlex
import sys
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from relance.cli.exits import CliError, Exit
from relance.cli.words import id_text, in_shell

if TYPE_CHECKING:
    from typing_extensions import TypeIs

    from relance.cli.advice import Advice
    from relance.errors import RelanceError
    from relance.policy.problems import PolicyError

Id = tuple[str, ...]
Redact = Callable[[str], str]
Advise = Callable[["RelanceError", Sequence[Id]], "Advice | None"]


_REPORT = "this is a bug: run the command again with --debug and report the output"


@dataclass(frozen=True, slots=True)
class Failure:
    """An error as the user sees it."""

    kind: str
    what: str
    to_do: str
    exit_code: Exit
    code: int | None = None
    """The namespace specification's code, if it defines one."""

    def as_json(self) -> dict[str, Any]:
        """Return the error for `--json`."""
        return {"type": self.kind, "code": self.code, "message": self.what, "hint": self.to_do}


def _no_advice(error: RelanceError, ids: Sequence[Id]) -> None:
    return None


def failure_of(
    error: BaseException,
    redact: Redact,
    *,
    ids: Sequence[Id] = (),
    command: str = "",
    advise: Advise = _no_advice,
) -> Failure:
    """Return the message and hint for an error, without secrets.

    Args:
        error: any exception.
        redact: takes the secrets out of a text.
        ids: what the command named, or the one of them that failed.
        command: the command, without `relance`.
        advise: returns what their state says about an error of the catalog.
    """
    if isinstance(error, CliError):
        kind = _KINDS.get(error.exit_code, "Usage")
        return Failure(kind, redact(error.what), redact(error.to_do), error.exit_code)
    if isinstance(error, click.UsageError):
        return _usage(error, redact)
    if isinstance(error, click.ClickException):
        return Failure("Usage", redact(error.format_message()), "see relance --help", Exit.USAGE)
    if is_relance_error(error):
        return _of_relance(error, redact, ids, command, advise)
    if isinstance(error, OSError) and (to_do := _OS_HINTS.get(error.errno or 0)) is not None:
        what = error.strerror if error.filename is None else f"{error.strerror}: {error.filename}"
        return Failure(type(error).__name__, redact(str(what)), to_do, Exit.FAILED)
    if isinstance(error, OSError) and error.filename is not None:
        what = f"{error.strerror}: {error.filename}"
        return Failure(type(error).__name__, redact(what), "check the path and its permissions", Exit.FAILED)
    what = _one_line(f"{type(error).__name__}: {error}")
    return Failure(type(error).__name__, redact(what), _REPORT, Exit.FAILED)


def is_relance_error(error: BaseException) -> TypeIs[RelanceError]:
    """Return whether this is an error of the catalog."""
    # Importing the classes takes a second: if nobody did, the error is none of them.
    loaded = sys.modules.get("relance.errors")
    return loaded is not None and isinstance(error, loaded.RelanceError)


def _usage(error: click.UsageError, redact: Redact) -> Failure:
    command = error.ctx.command_path if error.ctx is not None else "relance"
    return Failure("Usage", redact(_one_line(error.format_message())), f"see {command} --help", Exit.USAGE)


def _of_policy(error: PolicyError, redact: Redact) -> Failure:
    """Return the first problem of a policy file; `policy check` lists all of them."""
    first, *rest = error.problems
    what = f"{first} (and {len(rest)} more)" if rest else str(first)
    to_do = f"fix the policy; list every problem: relance policy check {shlex.quote(first.file)}"
    return Failure("PolicyError", redact(what), redact(to_do), Exit.USAGE, error.spec_code)


def _of_relance(
    error: RelanceError, redact: Redact, ids: Sequence[Id], command: str, advise: Advise
) -> Failure:
    problems = sys.modules.get("relance.policy.problems")
    if problems is not None and isinstance(error, problems.PolicyError):
        return _of_policy(error, redact)
    advice = advise(error, ids)
    detail, to_do, exit_code = error.detail, error.hint, Exit(error.exit_code)
    if advice is not None:
        detail, to_do = advice.detail or detail, advice.to_do
        exit_code = exit_code if advice.exit_code is None else advice.exit_code
    what = redact(_one_line(f"{_prefix(error)}{_as_typed(detail, ids)}"))
    to_do = runnable(to_do, ids, command)
    return Failure(type(error).__name__, what, redact(to_do), exit_code, error.spec_code)


def _prefix(error: RelanceError) -> str:
    """Return what the message begins with; a disk or a damaged file is not an internal error of ours."""
    return "" if type(error).__name__ in {"StorageError", "StorageFullError"} else error.prefix


def runnable(hint: str, ids: Sequence[Id], command: str) -> str:
    """Return a hint whose commands can be run: TABLE and COMMAND become what this command was about."""
    if ids:
        hint = _TABLE.sub(lambda _: in_shell(ids[-1] if command in _TWO_NAMES else ids[0]), hint)
    else:
        hint = _ABOUT_A_TABLE.sub("relance ls --tree", hint)
    return hint.replace(
        "relance COMMAND --help", f"relance {command} --help" if command else "relance --help"
    )


def _as_typed(detail: str, ids: Sequence[Id]) -> str:
    """Return a message that begins with the id of a named object with that id as commands take it.

    Other clients write 'a$b', in which a shell expands $b. The rest stays: it may quote anything.
    """
    for parts in ids:
        for kind, word in (("table id", "table"), ("table", "table"), ("namespace", "namespace")):
            for written in ("$".join(parts), id_text(parts)):
                head = f"{kind} '{written}'"
                if detail.startswith(head):
                    return f"{word} '{id_text(parts)}'{detail[len(head) :]}"
    return detail


def details_of(error: BaseException, redact: Redact) -> str:
    """Return the traceback, for `--debug`."""
    return redact("".join(traceback.format_exception(error)))


def _one_line(text: str) -> str:
    return " ".join(text.split())


_TABLE = re.compile(r"\bTABLE\b")
_ABOUT_A_TABLE = re.compile(r"relance [a-z-]+( --[a-z-]+)* TABLE\b")
_TWO_NAMES = frozenset({"rename", "undrop"})
"""Commands whose last name is the one that may be taken."""

_KINDS = {
    Exit.REFUSED: "Refused",
    Exit.NOT_FOUND: "NotFound",
    Exit.FAILED: "Failed",
    Exit.CONFLICT: "Conflict",
    Exit.INTERRUPTED: "Interrupted",
}

_OUTPUT_FULL = "free up space where the output goes; the command itself completed"

_OS_HINTS = {
    errno.ENOSPC: _OUTPUT_FULL,
    errno.EDQUOT: _OUTPUT_FULL,
    errno.EROFS: "the disk is mounted read-only: choose another place, or remount it for writing",
    errno.EIO: "the disk failed: check it and the system log",
    errno.EACCES: "check the path and its permissions",
    errno.EMFILE: "raise the limit of open files: ulimit -n",
}
"""For what the command line itself reads and writes, by the number of the system error."""
