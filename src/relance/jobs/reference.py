"""The reference of the kinds of jobs, from their classes: tables of docs/policy.md, docs/reference/jobs.md.

`python -m relance.jobs.reference docs/reference/jobs.md docs/policy.md` brings both up to date; a test fails
if they are not.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

from relance.jobs.base import Job, Scope, kinds, only_for, policy_kinds, settings_for
from relance.jobs.settings import in_hours, value_of

_HEAD = """# Jobs

Generated from their classes by `python -m relance.jobs.reference docs/reference/jobs.md docs/policy.md`.
[Maintenance](../maintenance.md) shows how to run them, [policies](../policy.md) run them on their own.
"""
_POLICY_HEAD = "| action | key | value | default | meaning |\n|---|---|---|---|---|\n"
_USES = {None: "", "policy": "policies", "direct": "direct runs", "plan": "Python and plans"}


def rows_of(kind: type[Job]) -> list[str]:
    """Return the rows of a kind in the reference of policy files."""
    settings = settings_for(kind, "policy")
    meaning = " ".join(_meaning(kind).split())
    if kind.key is not None:
        value = value_of(settings[kind.key])
        return [f"| `{kind.kind}` | | {value.name if value is not None else ''} | | {meaning} |"]
    rows = [f"| `{kind.kind}` | | | | {meaning} |"]
    for name, field in settings.items():
        value = value_of(field)
        holds = value.name if value is not None else ""
        rows.append(f"| | `{name}` | {holds} | {_default(field)} | {field.description} |")
    return rows


def policy_table() -> str:
    """Return the table of docs/policy.md."""
    return _POLICY_HEAD + "".join(f"{row}\n" for kind in policy_kinds() for row in rows_of(kind))


def page() -> str:
    """Return docs/reference/jobs.md."""
    return "\n".join([_HEAD, *(line for kind in kinds() for line in _section(kind))])


def _section(kind: type[Job]) -> Iterator[str]:
    yield from (f"## {kind.title}", "", _meaning(kind), "")
    yield f"Python: `relance.jobs.{kind.__name__}`. {' '.join(_facts(kind))}"
    yield ""
    if kind.model_fields:
        yield from ("| setting | value | default | only for | |", "|---|---|---|---|---|")
        for name, field in kind.model_fields.items():
            value = value_of(field)
            holds = value.name if value is not None else ""
            use = _USES[only_for(field)]
            yield f"| `{name}` | {holds} | {_default(field)} | {use} | {field.description} |"
        yield ""


def _facts(kind: type[Job]) -> Iterator[str]:
    if kind.in_policy:
        yield f"In policies: `{kind.kind}`."
    if kind.command is not None:
        yield f"On the command line: [`relance {kind.command}`](cli.md)."
    where = {Scope.TABLES: "tables", Scope.DROPPED: "dropped tables", Scope.ROOT: "the catalog as a whole"}
    named = ", which a direct run must name" if kind.needs_names else ""
    yield f"Works on {where[kind.scope]}{named}."
    if kind.irreversible:
        yield "Cannot be undone."


def _meaning(kind: type[Job]) -> str:
    return inspect.cleandoc(kind.__doc__ or "")


def _default(field: Any) -> str:
    if field.is_required():
        return "required"
    default = field.default
    if default is None:
        return ""
    if isinstance(default, timedelta):
        return f"`{in_hours(default)}`"
    return f"`{str(default).lower() if isinstance(default, bool) else default}`"


def in_policy_page(text: str) -> str:
    """Return docs/policy.md with the table of today."""
    start = text.index(_POLICY_HEAD)
    end = text.index("\n\n", start)
    return text[:start] + policy_table() + text[end + 1 :]


if __name__ == "__main__":
    reference, policy = map(Path, sys.argv[1:])
    reference.write_text(page())
    policy.write_text(in_policy_page(policy.read_text()))
