"""The `relance` program: its commands, and how their results and errors are printed."""

from __future__ import annotations

import os
import signal
import sys
import threading
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, NoReturn

import click

from relance import __version__
from relance.cli import (
    completion,
    doctor,
    jobs,
    lifecycle,
    looking,
    maintaining,
    past,
    policies,
    roots,
    rows,
    runs,
)
from relance.cli.base import Group
from relance.cli.exits import CliError, Exit
from relance.cli.output import Answer, note, prepare_streams, print_answer, print_failed, print_failure
from relance.cli.state import State


class App(Group):
    """The top-level group: prints results and turns every error into a message and an exit code."""

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        **extra: Any,
    ) -> NoReturn:
        state = extra.setdefault("obj", State())
        given = sys.argv[1:] if args is None else list(args)
        state.json = "--json" in given  # even if the rest of the command line is invalid
        prepare_streams()
        try:
            with warnings.catch_warnings():
                warnings.showwarning = lambda message, *_, **__: note(
                    f"warning: {state.redact(str(message))}"
                )
                code = self._run(given, state, complete_var, extra)
        except BrokenPipeError:
            _forget_output()
            code = Exit.BROKEN_PIPE
        except OSError as error:  # the JSON document of the error could not be written either
            _forget_output()
            with suppress(OSError, ValueError):
                print_failure(state.failure(error))
            code = Exit.FAILED
        sys.exit(int(code))

    def _run(self, args: list[str], state: State, complete_var: str | None, extra: dict[str, Any]) -> int:
        try:
            answer = super().main(args, "relance", complete_var, standalone_mode=False, **extra)
            if not isinstance(answer, Answer):
                return int(answer or 0)  # of --help and --version
            return print_answer(answer, command=state.command, as_json=state.json, upright=state.vertical)
        except (KeyboardInterrupt, click.Abort) as error:
            with _without_interrupts():
                sys.stderr.write("\n")
                failure = state.failure(_interrupted(error))
                print_failed(failure, command=state.command, as_json=state.json)
            return failure.exit_code
        except click.exceptions.Exit as ended:
            return ended.exit_code
        except click.exceptions.NoArgsIsHelpError as error:
            if state.json:
                print_failed(state.failure(_no_command(error)), command=state.command, as_json=True)
                return Exit.USAGE
            sys.stdout.write(f"{error.message}\n")
            return Exit.OK
        except BrokenPipeError:
            raise
        except Exception as error:  # noqa: BLE001  # every error ends here
            failure = state.failure(error)
            print_failed(failure, command=state.command, as_json=state.json)
            return failure.exit_code

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return a command; one of a kind of job that an extension brings is not in the list."""
        return super().get_command(ctx, cmd_name) or jobs.find_command(cmd_name)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands by section."""
        for title, commands in SECTIONS.items():
            with formatter.section(title):
                formatter.write_dl([(str(each.name), each.get_short_help_str(limit=90)) for each in commands])


def _forget_output() -> None:
    """Discard further output: otherwise Python reports the closed stream again when it exits."""
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


@contextmanager
def _without_interrupts() -> Iterator[None]:
    """Ignore Ctrl-C: it has been pressed."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _interrupted(error: BaseException) -> CliError:
    """Return what to say after Ctrl-C: at a question nothing has happened yet."""
    if isinstance(error, click.Abort):
        return CliError(
            "cancelled: nothing was changed", "run the command again to continue", Exit.INTERRUPTED
        )
    to_do = "run the command again; a change is either complete or has not happened"
    return CliError("interrupted", to_do, Exit.INTERRUPTED)


def _no_command(error: click.UsageError) -> click.UsageError:
    return click.UsageError("Missing command.", error.ctx)


@click.group(
    cls=App,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
    epilog="Ids look like prod.analytics.users; put a name that contains a dot in backticks.",
)
@click.version_option(__version__, prog_name="relance")
def app() -> None:
    """Manage a catalog of Lance tables: browse, drop and undrop, maintain, run policies."""


SECTIONS: dict[str, tuple[click.Command, ...]] = {
    "Browse": (looking.ls, looking.show, looking.status, looking.versions),
    "Tables and namespaces": (
        lifecycle.create_namespace,
        lifecycle.rename,
        lifecycle.drop,
        lifecycle.undrop,
        maintaining.purge,
        lifecycle.register,
        lifecycle.deregister,
        lifecycle.protect,
        lifecycle.unprotect,
    ),
    "Rows": (rows.query, rows.import_, rows.export, maintaining.delete_rows, jobs.update_rows),
    "Maintenance": (
        maintaining.compact,
        jobs.refresh_indexes,
        maintaining.cleanup,
        jobs.remove_orphans,
        jobs.maintain_manifest,
        roots.migrate,
        roots.scrub,
        doctor.doctor,
    ),
    "Policies": (policies.policy, runs.plan, runs.run, past.history, past.report),
    "Shell": (completion.completion,),
}
"""Every command, by section."""

for _commands in SECTIONS.values():
    for _command in _commands:
        app.add_command(_command)


def main() -> NoReturn:
    """Run the program with the arguments of this process."""
    try:
        app.main()
    finally:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # a second Ctrl-C would only spoil the exit code
