"""Policy files: check one, or explain what it does to a table."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import click

from relance.cli.base import Command, Group
from relance.cli.catalog_options import why_untrusted
from relance.cli.exits import CliError, Exit
from relance.cli.failures import Failure
from relance.cli.grids import Grid
from relance.cli.output import Answer, Part
from relance.cli.params import TABLE
from relance.cli.state import State, pass_state
from relance.cli.words import id_text
from relance.units import plural

if TYPE_CHECKING:
    from relance.jobs.facts import TableFacts
    from relance.policy.evaluate import Explanation
    from relance.policy.model import Policy

Id = tuple[str, ...]

DEFAULT_FILE = "policy.toml"

KINDS = (
    "protect",
    "drop_ttl",
    "delete_rows",
    "compact",
    "refresh_indexes",
    "clean_up",
    "purge",
    "remove_orphans",
    "maintain_manifest",
)
"""As in relance.jobs, which takes a while to import; a test checks that they agree."""


class _Kind(click.Choice[str]):
    """One of the kinds, or one that an extension brings."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if value not in self.choices:
            from relance.jobs.base import policy_kinds

            if value in [kind.kind for kind in policy_kinds()]:
                return str(value)
        return super().convert(value, param, ctx)


KIND = _Kind(KINDS)

policy_option = click.option(
    "--policy",
    "file",
    type=click.Path(dir_okay=False),
    help=f"Policy file. Default: the one set in relance.toml, then {DEFAULT_FILE}.",
)


def read_policy(state: State, named: str | None) -> Policy:
    """Return the policy from the named file, the file in the settings, or the default file.

    Raises:
        CliError: the file cannot be read.
        PolicyError: the policy is invalid.
    """
    from relance.policy import parse_policy
    from relance.policy.parse import MAX_FILE_BYTES

    file = named or _from_settings(state) or _default_file()
    try:
        with Path(file).open("rb") as stream:
            text = stream.read(MAX_FILE_BYTES + 1)  # enough to detect a file that is too large
    except OSError as cause:
        what = f"cannot read policy {file}: {cause.strerror}"
        raise CliError(
            what, "pass the path of a policy file; docs/policy.md describes the format", Exit.USAGE
        ) from cause
    return parse_policy(text, file=file)


def _default_file() -> str:
    """Return the default file, which nobody named.

    Raises:
        CliError: others than the user may have written it.
    """
    try:
        why = why_untrusted(Path(DEFAULT_FILE))
    except OSError:
        why = None  # there is none, which is reported when it is read
    if why is not None:
        raise CliError(f"no policy specified, and {why}", "to use it, pass its path", Exit.USAGE)
    return DEFAULT_FILE


def _from_settings(state: State) -> str | None:
    try:
        return state.lake.policy
    except CliError:
        return None  # checking a file needs no catalog


@click.group(cls=Group)
def policy() -> None:
    """Check a policy file, or explain what it does to a table."""


@policy.command(cls=Command)
@click.argument("file", type=click.Path(dir_okay=False), required=False)
@pass_state
def check(state: State, file: str | None) -> Answer:
    """Check a policy file and list every problem with its line and key."""
    from relance.policy.problems import PolicyError

    try:
        found = read_policy(state, file)
    except PolicyError as error:
        problems = [asdict(each) for each in error.problems]
        text = [str(each) for each in error.problems]
        problem = Failure(
            "PolicyError",
            f"{plural(len(problems), 'problem')} in the policy",
            "fix the lines listed above",
            Exit.USAGE,
            13,
        )
        named = error.problems[0].file
        return Answer({"file": named, "problems": problems, "rules": [], "limits": {}}, text, problem)
    rules = [
        {
            "name": each.name,
            "line": each.line,
            "tables": [str(pattern) for pattern in each.tables],
            "parts": list(each.jobs),
        }
        for each in found.rules
    ]
    rows = [
        [
            str(each.line),
            each.name,
            ", ".join(map(str, each.tables)),
            ", ".join(each.jobs),
        ]
        for each in found.rules
    ]
    grid = Grid(
        ["LINE", "RULE", "TABLES", "SETS"], rows, frozenset({"LINE"}), prose=frozenset({"TABLES", "SETS"})
    )
    limits = {name: value for name, value in found.limits.model_dump().items() if value is not None}
    text = [*found.hints, f"{found.file} is valid: {plural(len(rules), 'rule')}"]
    return Answer({"file": found.file, "problems": [], "rules": rules, "limits": limits}, [grid, *text])


@policy.command(cls=Command)
@pass_state
def schema(state: State) -> Answer:
    """Print the JSON schema of policy files, for completion and validation in editors."""
    from relance.policy.schema import schema_text

    text = schema_text()

    def write(stream: TextIO) -> None:
        stream.write(text)

    return Answer({"schema": json.loads(text)}, write=write)


@policy.command(cls=Command)
@click.argument("table", type=TABLE, required=False)
@policy_option
@pass_state
def explain(state: State, table: Id | None, *, file: str | None) -> Answer:
    """Explain which rules match a table, which ones apply, and what is due now.

    Without a table: what the policy does for the catalog as a whole.
    """
    from relance.clock import SystemClock
    from relance.policy.evaluate import explain as explain_table
    from relance.policy.evaluate import explain_root

    read = read_policy(state, file)
    now = SystemClock().now()
    if table is None:
        found = [explain_root(read, now)]
    else:
        found = [explain_table(read, each, now) for each in _facts(state, table)]
    text: list[Part] = []
    for each in found:
        text += [*([""] if text else []), *_explained(each)]
    return Answer({"policy": read.file, "explanations": [_fields(each) for each in found]}, text)


def _facts(state: State, table: Id) -> list[TableFacts]:
    """Return the facts about a table and about dropped tables of the same name."""
    from relance.jobs.base import CatalogRef
    from relance.jobs.gather import gather
    from relance.jobs.runner import ThreadRunner

    reference = CatalogRef(state.catalog.properties)
    found = [each.facts for each in gather(reference, ThreadRunner(), only=lambda each: each == table)]
    if not found:
        state.catalog.table_exists({"id": list(table)})  # raises the error that explains why
    return found


def _fields(found: Explanation) -> dict[str, Any]:
    return {
        "table": id_text(found.table),
        "error": found.error,
        "window": found.window,
        "rules": [asdict(each) for each in found.matches],
        "decisions": [
            {
                "kind": each.kind,
                "rule": each.rule,
                "overrides": list(each.overrides),
                "acts": each.action is not None,
                "refused": each.refused,
                "why": each.why,
                "settings": dict(each.action.settings) if each.action is not None else {},
            }
            for each in found.decisions
        ],
    }


def _explained(found: Explanation) -> list[Part]:
    matches = [
        [str(each.line), each.rule, "yes" if each.matches else "no", each.why] for each in found.matches
    ]
    decisions = [
        [
            each.kind,
            "blocked" if each.refused else "now" if each.action is not None else "no",
            each.rule or "-",
            ", ".join(each.overrides),
            each.why,
        ]
        for each in found.decisions
    ]
    text: list[Part] = [
        id_text(found.table),
        "",
        Grid(
            ["LINE", "RULE", "MATCHES", "WHY"],
            matches,
            frozenset({"LINE"}),
            "the policy has no rules",
            frozenset({"WHY"}),
        ),
        "",
        f"window: {found.window}",
        "",
        Grid(["ACTION", "DUE", "RULE", "OVERRIDES", "WHY"], decisions, prose=frozenset({"OVERRIDES", "WHY"})),
    ]
    return [*text, found.error] if found.error else text
