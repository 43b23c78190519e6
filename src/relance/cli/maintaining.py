"""Jobs that change or remove data: purge, delete-rows, compact, cleanup."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from relance.cli.asking import confirm
from relance.cli.base import Command
from relance.cli.engines import run_job
from relance.cli.exits import CliError, Exit
from relance.cli.failures import Failure
from relance.cli.grids import Grid
from relance.cli.output import Answer
from relance.cli.params import DROPPED, DURATION, MOMENT, TABLE, dry_run_option, engine_options, yes_option
from relance.cli.state import State, pass_state
from relance.cli.words import id_text
from relance.units import count, duration, exact_duration, in_bytes, plural

if TYPE_CHECKING:
    from relance.jobs import Report, Result
    from relance.jobs.base import Estimate

Id = tuple[str, ...]

_TELLING = ("version", "rows", "versions", "files", "bytes")
"""A change in which all of these are zero or null is no change."""


@click.command(cls=Command)
@click.argument("tables", type=DROPPED, nargs=-1)
@click.option("--deletion-id", help="Purge only this drop of the named table.")
@click.option("--deleted-before", type=MOMENT, help="Purge only tables dropped before this time.")
@click.option(
    "--force", is_flag=True, help="Purge the named tables even if their retention period has not ended."
)
@click.option(
    "--rate-limit",
    type=click.FloatRange(min=0, min_open=True),
    metavar="N",
    help="Delete at most N files per second.",
)
@dry_run_option
@yes_option
@engine_options
@pass_state
def purge(
    state: State,
    tables: Sequence[Id],
    *,
    deletion_id: str | None,
    deleted_before: datetime | None,
    force: bool,
    rate_limit: float | None,
    dry_run: bool,
    yes: bool,
    engine: str | None,
    master: str | None,
) -> Answer:
    """Permanently delete the files of dropped tables.

    Purges the named tables, or every dropped table whose retention period has ended.
    """
    from relance.jobs import PurgeDropped

    if force and not tables:
        raise CliError(
            "--force requires table names", "name the tables; see relance ls --dropped", Exit.USAGE
        )
    if deletion_id is not None and len(tables) != 1:
        raise CliError("--deletion-id requires exactly one table", "name the table it belongs to", Exit.USAGE)
    job = PurgeDropped(
        deleted_before=deleted_before, deletion_id=deletion_id, force=force, rate_limit=rate_limit
    )

    def ask(due: Sequence[Result]) -> None:
        confirm(f"purging {plural(len(due), 'table')}", [planned_line(each) for each in due])

    run = partial(run_job, state, job, engine=engine, master=master)
    report = run_confirmed(run, tables, lambda _: True, ask, dry_run=dry_run, yes=yes)
    why = "matches" if tables or deleted_before is not None else "has expired"
    nothing = f"nothing to purge: no dropped table {why}"
    answer = report_answer(state, report, nothing=nothing)
    return answer if deletion_id is None else _with_drop(answer, deletion_id)


def _with_drop(answer: Answer, deletion_id: str) -> Answer:
    """Add what `--json` says of the one drop that was purged."""
    (entry,) = answer.result["tables"]
    change = entry["change"] or {}
    drop = {
        "table": entry["table"],
        "deletion_id": deletion_id,
        "files": change.get("files", 0),
        "bytes": change.get("bytes", 0),
    }
    return replace(answer, result={**answer.result, **drop})


@click.command(cls=Command, name="delete-rows")
@click.argument("tables", type=TABLE, nargs=-1, required=True)
@click.option(
    "--where", required=True, metavar="SQL", help="Rows to delete, such as \"day < date '2026-01-01'\"."
)
@dry_run_option
@yes_option
@engine_options
@pass_state
def delete_rows(
    state: State,
    tables: Sequence[Id],
    *,
    where: str,
    dry_run: bool,
    yes: bool,
    engine: str | None,
    master: str | None,
) -> Answer:
    """Delete the rows that match an SQL expression.

    The rows remain in older versions until cleanup removes those versions.
    """
    from relance.jobs import DeleteRows

    def ask(due: Sequence[Result]) -> None:
        rows = sum(each.planned.rows for each in due if each.planned is not None)
        confirm(
            f"deleting {plural(rows, 'row')} where {where}",
            [planned_line(each) for each in due],
            warning="can be undone only by restoring an older version, until cleanup removes it",
        )

    run = partial(run_job, state, DeleteRows(where=where), engine=engine, master=master)
    report = run_confirmed(run, tables, lambda planned: planned.rows > 0, ask, dry_run=dry_run, yes=yes)
    return report_answer(state, report, nothing="no rows match")


@click.command(cls=Command)
@click.argument("tables", type=TABLE, nargs=-1)
@click.option("--target-rows", type=click.IntRange(min=1), metavar="N", help="Target rows per fragment.")
@click.option("--target-bytes", type=click.IntRange(min=1), metavar="N", help="Target bytes per fragment.")
@click.option(
    "--deletion-threshold",
    type=click.FloatRange(0, 1),
    metavar="N",
    default=0.1,
    show_default=True,
    help="Rewrite fragments whose share of deleted rows exceeds this.",
)
@dry_run_option
@engine_options
@pass_state
def compact(
    state: State,
    tables: Sequence[Id],
    *,
    target_rows: int | None,
    target_bytes: int | None,
    deletion_threshold: float,
    dry_run: bool,
    engine: str | None,
    master: str | None,
) -> Answer:
    """Merge small fragments into larger ones.

    Also rewrites fragments with many deleted rows. Compacts the named tables, or all tables.
    """
    from relance.jobs import Compact
    from relance.jobs.compact import TARGET_ROWS

    job = Compact(
        target_rows=target_rows or TARGET_ROWS,
        target_bytes=target_bytes,
        deletion_threshold=deletion_threshold,
    )
    report = run_job(state, job, list(tables) or None, dry_run=dry_run, engine=engine, master=master)
    return report_answer(state, report, nothing="nothing to compact")


@click.command(cls=Command)
@click.argument("tables", type=TABLE, nargs=-1)
@click.option(
    "--older-than",
    type=DURATION,
    help="Remove only versions older than this, such as 30d. "
    "Default: 14d, unless --retain-versions or --before-version is given.",
)
@click.option(
    "--retain-versions", type=click.IntRange(min=1), metavar="N", help="Always keep the newest N versions."
)
@click.option(
    "--before-version", type=click.IntRange(min=1), metavar="N", help="Remove only versions before this one."
)
@click.option("--skip-tagged", is_flag=True, help="Skip tagged versions instead of failing.")
@click.option("--allow-young", is_flag=True, help="Allow removing versions younger than 24 hours.")
@click.option(
    "--ignore-clones", is_flag=True, help="Skip the search for shallow clones; safe only if there are none."
)
@click.option(
    "--rate-limit", type=click.IntRange(min=1), metavar="N", help="Delete at most N files per second."
)
@dry_run_option
@yes_option
@engine_options
@pass_state
def cleanup(
    state: State,
    tables: Sequence[Id],
    *,
    older_than: timedelta | None,
    retain_versions: int | None,
    before_version: int | None,
    skip_tagged: bool,
    allow_young: bool,
    ignore_clones: bool,
    rate_limit: int | None,
    dry_run: bool,
    yes: bool,
    engine: str | None,
    master: str | None,
) -> Answer:
    """Remove old versions and the files that only they use.

    Cleans up the named tables, or all tables. Never removes versions that tags, branches or clones use.
    """
    from relance.jobs import CleanUp
    from relance.jobs.cleanup import FLOOR

    if older_than is not None and older_than < FLOOR and not allow_young:
        raise CliError(
            f"--older-than {exact_duration(older_than)} removes versions that jobs may still use",
            "use at least 24h, or pass --allow-young if no job uses them",
            Exit.USAGE,
        )
    job = CleanUp(
        older_than=older_than,
        before_version=before_version,
        retain_versions=retain_versions,
        skip_tagged=skip_tagged,
        allow_young=allow_young,
        ignore_clones=ignore_clones,
        rate_limit=rate_limit,
    )

    def ask(due: Sequence[Result]) -> None:
        versions = sum(each.planned.versions for each in due if each.planned is not None)
        confirm(f"removing {plural(versions, 'version')}", [planned_line(each) for each in due])

    run = partial(run_job, state, job, engine=engine, master=master)
    report = run_confirmed(
        run, tables, lambda planned: bool(planned.versions or planned.files), ask, dry_run=dry_run, yes=yes
    )
    return report_answer(state, report, nothing="no versions to remove")


def run_confirmed(
    run: Callable[..., Report],
    tables: Sequence[Id],
    acts: Callable[[Estimate], bool],
    ask: Callable[[Sequence[Result]], None],
    *,
    dry_run: bool,
    yes: bool,
) -> Report:
    """Run a job on these tables, or on all it applies to, after the user has seen and confirmed its plan.

    Args:
        run: runs the job on its argument.
        tables: the named tables.
        acts: whether a plan for a table does anything.
        ask: shows the plans that do, and returns if the user confirms.
        dry_run: return the plan.
        yes: the user has confirmed already, so there is nothing to show and nothing is planned for it.
    """
    if yes and not dry_run:
        return run(tables or None, dry_run=False)
    planned = run(tables or None, dry_run=True)
    due = [each for each in planned.results if each.planned is not None and acts(each.planned)]
    if dry_run or not due:
        return planned
    ask(due)
    # Exactly what was shown: what becomes due in the meantime waits for the next run.
    chosen = [each.table for each in planned.results if each in due or each.error is not None]
    return run(chosen, dry_run=False)


def planned_line(result: Result) -> str:
    planned = result.planned
    assert planned is not None  # callers pass only results with a plan
    if planned.note:
        return f"{id_text(result.table)}: {planned.note}"
    what = [plural(planned.versions, "version")] if planned.versions else []
    what += [plural(planned.files, "file"), in_bytes(planned.bytes)]
    return f"{id_text(result.table)}: {', '.join(what)}"


def _problem_of(failures: Sequence[Failure], tables: int) -> Failure | None:
    if not failures:
        return None
    if tables == 1 or _is_shared(failures, tables):
        return failures[0]
    codes = {each.exit_code for each in failures}
    return Failure(
        "Partial",
        f"{len(failures)} of {tables} tables failed",
        "see the errors above; the other tables were processed",
        codes.pop() if len(codes) == 1 else Exit.FAILED,
    )


def _is_shared(failures: Sequence[Failure], tables: int) -> bool:
    """Return whether every table failed for the same wrong argument, which is not about any of them."""
    return len(failures) == tables and len(set(failures)) == 1 and failures[0].exit_code is Exit.USAGE


def report_answer(state: State, report: Report, *, nothing: str) -> Answer:
    """Return the report of a job as an answer."""
    failures = {each.table: state.failure(each.error, each.table) for each in report.failed if each.error}
    entries = [_entry(each, failures.get(each.table)) for each in report.results]
    result = {
        "job": report.job,
        "engine": report.engine,
        "dry_run": report.dry_run,
        "seconds": report.duration,
        "tables": entries,
    }
    shown = [each for each in entries if each["change"] is not None or each["error"] is not None]
    rows = [_row(each) for each in shown]
    grid = Grid(
        ["TABLE", "ROWS", "VERSIONS", "FILES", "SIZE", "NOTE"],
        rows,
        frozenset({"ROWS", "VERSIONS", "FILES", "SIZE"}),
        prose=frozenset({"NOTE"}),
    )
    problem = _problem_of(list(failures.values()), len(report.results))
    if not shown:
        return Answer(result, [nothing], problem)
    is_shared = _is_shared(list(failures.values()), len(report.results))
    if is_shared or (len(report.results) == 1 and shown[0]["change"] is None):
        return Answer(result, [], problem)
    tables = plural(len(shown) - len(failures), "table")
    how = "(dry run, nothing was changed)" if report.dry_run else f"in {duration(report.duration)}"
    summary = f"{report.job}: {tables} {how}"
    return Answer(result, [grid, summary], problem)


def _entry(result: Result, failure: Failure | None) -> dict[str, Any]:
    """Return one table of a report for `--json`; `change` is what was, or would be, changed."""
    change: dict[str, Any] | None = None
    if result.effect is not None:
        effect = result.effect
        change = {
            "version": effect.version,
            "rows": effect.rows,
            "versions": (effect.before.versions or 0) - (effect.after.versions or 0),
            "files": effect.files,
            "bytes": effect.bytes,
            "note": effect.note,
        }
    elif result.planned is not None:
        planned = result.planned
        change = {
            "version": None,
            "rows": planned.rows,
            "versions": planned.versions,
            "files": planned.files,
            "bytes": planned.bytes,
            "note": planned.note,
        }
    if change is not None and not any(change.get(each) for each in _TELLING):
        change = None
    return {
        "table": id_text(result.table),
        "change": change,
        "error": None if failure is None else failure.as_json(),
        "seconds": result.duration,
    }


def _row(entry: dict[str, Any]) -> list[str]:
    change, error = entry["change"], entry["error"]
    if change is None:
        return [entry["table"], "", "", "", "", f"failed: {error['message']}"]
    figures = [count(change[name]) if change[name] else "" for name in ("rows", "versions", "files")]
    note = change["note"] if error is None else f"partly failed: {error['message']}"
    return [entry["table"], *figures, in_bytes(change["bytes"]) if change["bytes"] else "", note]
