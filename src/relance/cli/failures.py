"""Turn an error into what the user sees: a message, a hint and an exit code."""

from __future__ import annotations

import ast
import errno
import re
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from relance.cli.exits import CliError, Exit
from relance.cli.words import id_text, in_shell

if TYPE_CHECKING:
    from relance.errors import RelanceError

Redact = Callable[[str], str]


@dataclass(frozen=True, slots=True)
class _Known:
    """The hint for errors whose message contains certain words."""

    words: str
    to_do: str
    exit_code: Exit | None = None
    """None keeps the exit code of the error's class."""


_UNDROP_CALL = re.compile(r":?\s*undrop_table\((\[.*?\])\)")
_UNPROTECT_CALL = re.compile(r":?\s*unprotect\((\[.*?\])\) first")
_OBJECT_ID = re.compile(r"(?<=\btable id )'([^']+)'|'([^'\s]*\$[^'\s]*)'")
_FLAG = re.compile(r"\b([a-z]+(?:_[a-z]+)*)=True\b")
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


def failure_of(error: BaseException, redact: Redact) -> Failure:
    """Return the message and hint for an error, without secrets."""
    if isinstance(error, CliError):
        kind = _KINDS.get(error.exit_code, "Usage")
        return Failure(kind, redact(error.what), redact(error.to_do), error.exit_code)
    if isinstance(error, click.UsageError):
        return _usage(error, redact)
    if isinstance(error, click.ClickException):
        return Failure("Usage", redact(error.format_message()), "see relance --help", Exit.USAGE)
    if type(error).__module__.startswith("relance.") or _is_ours(error):
        return _of_relance(error, redact)  # type: ignore[arg-type]  # just checked
    if isinstance(error, OSError) and (to_do := _OS_HINTS.get(error.errno or 0)) is not None:
        what = error.strerror if error.filename is None else f"{error.strerror}: {error.filename}"
        return Failure(type(error).__name__, redact(str(what)), to_do, Exit.FAILED)
    if isinstance(error, OSError) and error.filename is not None:
        what = f"{error.strerror}: {error.filename}"
        return Failure(type(error).__name__, redact(what), "check the path and its permissions", Exit.FAILED)
    what = _one_line(f"{type(error).__name__}: {error}")
    return Failure(type(error).__name__, redact(what), _REPORT, Exit.FAILED)


def _is_ours(error: BaseException) -> bool:
    return any(each.__name__ == "RelanceError" for each in type(error).__mro__)


def _usage(error: click.UsageError, redact: Redact) -> Failure:
    command = error.ctx.command_path if error.ctx is not None else "relance"
    return Failure("Usage", redact(_one_line(error.format_message())), f"see {command} --help", Exit.USAGE)


def _of_policy(error: RelanceError, redact: Redact) -> Failure:
    """Return the first problem of a policy file; `policy check` lists all of them."""
    first, *rest = str(error.detail).splitlines()
    what = f"{first} (and {len(rest)} more)" if rest else first
    file = first.partition(":")[0]
    to_do = f"fix the policy; list every problem: relance policy check {file}"
    return Failure("PolicyError", redact(what), redact(to_do), Exit.USAGE, error.spec_code)


def _of_relance(error: RelanceError, redact: Redact) -> Failure:
    if type(error).__name__ == "PolicyError":
        return _of_policy(error, redact)
    what, exit_code = _one_line(str(error)), exit_of(error)
    called, guarded = _UNDROP_CALL.search(what), _UNPROTECT_CALL.search(what)
    known = next((each for each in _KNOWN if each.words in what), None)
    if called is not None:
        to_do = f"to restore it: relance undrop {_written(called[1])}"
        what = what[: called.start()] + what[called.end() :]
    elif guarded is not None:
        to_do = f"to allow it: relance unprotect {_written(guarded[1])}"
        what = what[: guarded.start()] + what[guarded.end() :]
    elif known is not None:
        to_do, exit_code = known.to_do, known.exit_code or exit_code
    else:
        to_do = _HINTS.get(type(error).__name__) or _inherited_hint(error)
    return Failure(type(error).__name__, redact(_as_typed(what)), to_do, exit_code, error.spec_code)


def _as_typed(what: str) -> str:
    """Rewrite a message of the library with ids and options as the command line takes them."""
    # The library writes 'a$b', in which a shell expands $b; commands take a.b.
    what = _OBJECT_ID.sub(lambda found: f"'{id_text((found[1] or found[2]).split('$'))}'", what)
    what = _FLAG.sub(lambda found: f"--{found[1].replace('_', '-')}", what)
    return what.replace("table id '", "table '")


def _written(parts: str) -> str:
    return in_shell(ast.literal_eval(parts))


def _inherited_hint(error: BaseException) -> str:
    return next((_HINTS[each.__name__] for each in type(error).__mro__ if each.__name__ in _HINTS), _REPORT)


def exit_of(error: BaseException) -> Exit:
    """Return the exit code for an error of the catalog."""
    for each in type(error).__mro__:
        if each.__name__ in _EXITS:
            return _EXITS[each.__name__]
    return Exit.FAILED


def details_of(error: BaseException, redact: Redact) -> str:
    """Return the traceback, for `--debug`."""
    return redact("".join(traceback.format_exception(error)))


def _one_line(text: str) -> str:
    return " ".join(text.split())


_KNOWN = (
    _Known(
        "look_for_clones=False",
        "repair that table, drop and purge it, or pass --ignore-clones if the catalog has no shallow clones",
    ),
    _Known("allow_young=True", "choose older versions, or pass --allow-young if no job uses them"),
    _Known("force=True", "wait until then, or pass --force"),
    _Known("is not dropped", "nothing to restore: see relance ls --dropped"),
    _Known("No field named", "list the columns: relance show TABLE"),
    _Known("cannot infer the file format", "pass --format"),
    _Known("or overwrite it", "choose another name, or pass --overwrite"),
    _Known("there is no folder", "create the folder first"),
    _Known("to resume", "list the runs: relance history", Exit.NOT_FOUND),
    _Known("be resumed", "list the runs: relance history", Exit.NOT_FOUND),
    _Known(
        "manifest_enabled=true",
        "set manifest_enabled = true under [catalog] in relance.toml, or RELANCE_MANIFEST_ENABLED=true",
    ),
    _Known("there is no table or namespace", "list what exists: relance ls --tree", Exit.NOT_FOUND),
    _Known("is protected", "to allow it: relance unprotect TABLE"),
)

_KINDS = {
    Exit.REFUSED: "Refused",
    Exit.NOT_FOUND: "NotFound",
    Exit.FAILED: "Failed",
    Exit.CONFLICT: "Conflict",
}

_EXITS: dict[str, Exit] = {
    "UnsupportedOperationError": Exit.USAGE,
    "InvalidInputError": Exit.USAGE,
    "TableSchemaValidationError": Exit.USAGE,
    "NamespaceNotFoundError": Exit.NOT_FOUND,
    "TableNotFoundError": Exit.NOT_FOUND,
    "TableIndexNotFoundError": Exit.NOT_FOUND,
    "TableTagNotFoundError": Exit.NOT_FOUND,
    "TransactionNotFoundError": Exit.NOT_FOUND,
    "TableVersionNotFoundError": Exit.NOT_FOUND,
    "TableColumnNotFoundError": Exit.NOT_FOUND,
    "TableBranchNotFoundError": Exit.NOT_FOUND,
    "NamespaceAlreadyExistsError": Exit.CONFLICT,
    "NamespaceNotEmptyError": Exit.CONFLICT,
    "TableAlreadyExistsError": Exit.CONFLICT,
    "TableIndexAlreadyExistsError": Exit.CONFLICT,
    "TableTagAlreadyExistsError": Exit.CONFLICT,
    "TableBranchAlreadyExistsError": Exit.CONFLICT,
    "InvalidTableStateError": Exit.CONFLICT,
    "ConcurrentModificationError": Exit.CONFLICT,
    "PermissionDeniedError": Exit.STORE,
    "UnauthenticatedError": Exit.STORE,
    "ServiceUnavailableError": Exit.STORE,
    "ThrottlingError": Exit.STORE,
    "StorageError": Exit.STORE,
    "InternalError": Exit.FAILED,
}
"""By class name, because importing the classes takes a second. A test checks the names."""

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

_HINTS: dict[str, str] = {
    "UnsupportedOperationError": "not supported by this catalog or environment: see relance doctor",
    "InvalidInputError": "fix the value above; see relance COMMAND --help",
    "TableSchemaValidationError": "the rows must match the columns of the table: see relance show TABLE",
    "NamespaceNotFoundError": "list namespaces: relance ls --tree; create one: relance create-namespace NAME",
    "TableNotFoundError": "list tables: relance ls --tree; list dropped tables: relance ls --dropped",
    "TableIndexNotFoundError": "list the indexes: relance show TABLE",
    "TableTagNotFoundError": "list the tags: relance show TABLE",
    "TransactionNotFoundError": "list the versions: relance versions TABLE",
    "TableVersionNotFoundError": "list the versions: relance versions TABLE",
    "TableColumnNotFoundError": "list the columns: relance show TABLE",
    "TableBranchNotFoundError": "list the branches: relance show TABLE",
    "NamespaceAlreadyExistsError": "choose another name, or pass --exist-ok",
    "NamespaceNotEmptyError": "pass --cascade to drop its contents too; undrop restores them",
    "TableAlreadyExistsError": "choose another name; see what uses this one: relance status TABLE",
    "InvalidTableStateError": "check its state: relance status TABLE, relance show TABLE",
    "LeaseHeldError": "wait for the other run with --wait 10m; if it was interrupted: relance run --resume",
    "ConcurrentModificationError": "another client changed it at the same time: check its state and retry",
    "OutcomeUnknownError": "the change may have been applied: check before you retry",
    "PermissionDeniedError": "check the credentials and their permissions: relance doctor",
    "UnauthenticatedError": "check the credentials: relance doctor",
    "ServiceUnavailableError": "check that the store is reachable: relance doctor",
    "StorageFullError": "free space: relance drop --purge TABLE, relance purge, or as the message above says",
    "StorageError": "repair the disk or raise the limit above, then retry: relance doctor",
    "ThrottlingError": "retry later, or pass --rate-limit if the command supports it",
}
