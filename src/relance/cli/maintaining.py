"""Jobs that change or remove data: purge, delete-rows, compact, cleanup."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import click

from relance.amounts import count, duration, in_bytes, plural
from relance.cli.asking import confirm
from relance.cli.base import Command
from relance.cli.engines import run_job
from relance.cli.exits import CliError, Exit
from relance.cli.failures import Failure
from relance.cli.output import Answer, Grid
from relance.cli.params import DROPPED, DURATION, MOMENT, TABLE, dry_run_option, engine_options, yes_option
from relance.cli.state import State, pass_state
from relance.cli.words import id_text

if TYPE_CHECKING:
    from relance.maintenance import Report, Result

Id = tuple[str, ...]

_TELLING = ("version", "rows", "versions", "files", "bytes")
"""A change in which none of these is anything is none."""


@click.command(cls=Command)
@click.argument("tables", type=DROPPED, nargs=-1)
@click.option("--deletion-id", help="Only this drop of the one table that is named.")
@click.option("--deleted-before", type=MOMENT, help="Only drops before this time.")
@click.option("--force", is_flag=True, help="Named tables also before their time has passed.")
@click.option(
    "--rate-limit", type=click.FloatRange(min=0, min_open=True), metavar="N", help="Files per second."
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
    """Delete the files of dropped tables for good.

    Of all tables whose time has passed, or of those that are named.
    """
    from relance.maintenance import PurgeDropped

    if force and not tables:
        raise CliError(
            "--force is for tables that are named", "name them; see relance ls --dropped", Exit.USAGE
        )
    if deletion_id is not None:
        return _purge_one(
            state, tables, deletion_id, force=force, rate_limit=rate_limit, dry_run=dry_run, yes=yes
        )
    job = PurgeDropped(deleted_before=deleted_before, force=force, rate_limit=rate_limit)
    planned = run_job(state, job, list(tables) or None, dry_run=True, engine="local", master=None)
    due = [each for each in planned.results if each.planned is not None]
    if dry_run or not due:
        return _report_answer(state, planned, nothing="no dropped table is due")
    confirm(f"purging {plural(len(due), 'table')}", [_planned_line(each) for each in due], yes=yes)
    # Exactly what was shown: what comes due meanwhile waits for the next time.
    chosen = list(tables) or [each.table for each in due]
    done = run_job(state, job, chosen, dry_run=False, engine=engine, master=master)
    return _report_answer(state, done, nothing="no dropped table is due")


def _purge_one(
    state: State,
    tables: Sequence[Id],
    deletion_id: str,
    *,
    force: bool,
    rate_limit: float | None,
    dry_run: bool,
    yes: bool,
) -> Answer:
    """Purge one drop of a table that was dropped several times."""
    if len(tables) != 1:
        raise CliError("--deletion-id goes with one table", "name the table it belongs to", Exit.USAGE)
    catalog, name = state.catalog, id_text(tables[0])
    known = [each for each in catalog.list_dropped_tables() if each.id == tables[0]]
    if deletion_id not in {each.deletion_id for each in known}:
        raise CliError(
            f"{name} has no drop {deletion_id}", "see the drops: relance ls --dropped", Exit.NOT_FOUND
        )
    result: dict[str, Any] = {"table": name, "deletion_id": deletion_id, "dry_run": dry_run}
    if dry_run:
        return Answer(result, [f"{name}: drop {deletion_id} would be purged"])
    confirm("purging 1 table", [f"{name} (drop {deletion_id})"], yes=yes)
    done = catalog.purge_table(tables[0], deletion_id=deletion_id, force=force, rate_limit=rate_limit)
    result |= {"files": done.files, "bytes": done.bytes}
    return Answer(result, [f"{name}: {plural(done.files, 'file')} removed, {in_bytes(done.bytes)}"])


@click.command(cls=Command, name="delete-rows")
@click.argument("tables", type=TABLE, nargs=-1, required=True)
@click.option(
    "--where", required=True, metavar="SQL", help="Which rows, such as \"day < date '2026-01-01'\"."
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
    """Delete the rows that an SQL expression selects.

    Older versions still have them, until cleanup removes those.
    """
    from relance.maintenance import DeleteRows

    job, nothing = DeleteRows(where), "no row is selected"
    planned = run_job(state, job, list(tables), dry_run=True, engine="local", master=None)
    due = [each for each in planned.results if each.planned is not None and each.planned.rows]
    if dry_run or not due:
        return _report_answer(state, planned, nothing=nothing)
    rows = sum(each.planned.rows for each in due if each.planned is not None)
    confirm(
        f"deleting {plural(rows, 'row')} where {where}",
        [_planned_line(each) for each in due],
        yes=yes,
        warning="can be undone only until a cleanup, by going back to an older version",
    )
    chosen = [each.table for each in planned.results if each in due or each.error is not None]
    report = run_job(state, job, chosen, dry_run=False, engine=engine, master=master)
    return _report_answer(state, report, nothing=nothing)


@click.command(cls=Command)
@click.argument("tables", type=TABLE, nargs=-1)
@click.option(
    "--target-rows", type=click.IntRange(min=1), metavar="N", help="Rows of a fragment that is large enough."
)
@click.option("--target-bytes", type=click.IntRange(min=1), metavar="N", help="Bytes of such a fragment.")
@click.option(
    "--deletion-threshold",
    type=click.FloatRange(0, 1),
    metavar="N",
    default=0.1,
    show_default=True,
    help="Fragments with a larger share of deleted rows are written anew.",
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
    """Write small fragments into larger ones.

    Also those with many deleted rows; of all tables, or of those that are named.
    """
    from relance.maintenance import Compact
    from relance.maintenance.layout.compaction import TARGET_ROWS

    job = Compact(
        target_rows=target_rows or TARGET_ROWS,
        target_bytes=target_bytes,
        deletion_threshold=deletion_threshold,
    )
    report = run_job(state, job, list(tables) or None, dry_run=dry_run, engine=engine, master=master)
    return _report_answer(state, report, nothing="all fragments are as they should be")


@click.command(cls=Command)
@click.argument("tables", type=TABLE, nargs=-1)
@click.option("--older-than", type=DURATION, help="Versions of at least this age, such as 30d; default 14d.")
@click.option(
    "--retain-versions", type=click.IntRange(min=1), metavar="N", help="Keep at least the newest so many."
)
@click.option(
    "--before-version", type=click.IntRange(min=1), metavar="N", help="Only versions before this one."
)
@click.option("--skip-tagged", is_flag=True, help="Keep tagged versions without an error.")
@click.option("--allow-young", is_flag=True, help="Also versions younger than 24 hours.")
@click.option(
    "--ignore-clones", is_flag=True, help="Do not look for shallow clones: for a lake that has none."
)
@click.option("--rate-limit", type=click.IntRange(min=1), metavar="N", help="Files per second.")
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
    """Remove old versions with the files that only they need.

    Of all tables, or of those that are named. Tags, branches and clones keep what they name.
    """
    from relance import CleanupPolicy
    from relance.clock import SystemClock
    from relance.maintenance import CleanUp

    policy = CleanupPolicy(
        before_timestamp=None if older_than is None else SystemClock().now() - older_than,
        before_version=before_version,
        retain_versions=retain_versions,
        error_if_tagged_old_versions=not skip_tagged,
        rate_limit=rate_limit,
    )
    job = CleanUp(policy, allow_young=allow_young, look_for_clones=not ignore_clones)
    planned = run_job(state, job, list(tables) or None, dry_run=True, engine="local", master=None)
    due = [each for each in planned.results if each.planned is not None and _removes(each)]
    nothing = "no version is old enough"
    if dry_run or not due:
        return _report_answer(state, planned, nothing=nothing)
    versions = sum(each.planned.versions for each in due if each.planned is not None)
    confirm(f"removing {plural(versions, 'version')}", [_planned_line(each) for each in due], yes=yes)
    chosen = [each.table for each in planned.results if each in due or each.error is not None]
    report = run_job(state, job, chosen, dry_run=False, engine=engine, master=master)
    return _report_answer(state, report, nothing=nothing)


def _removes(result: Result) -> bool:
    return result.planned is not None and bool(result.planned.versions or result.planned.files)


def _planned_line(result: Result) -> str:
    planned = result.planned
    assert planned is not None  # only of those that have a plan
    if planned.note:
        return f"{id_text(result.table)}: {planned.note}"
    what = [plural(planned.versions, "version")] if planned.versions else []
    what += [plural(planned.files, "file"), in_bytes(planned.bytes)]
    return f"{id_text(result.table)}: {', '.join(what)}"


def _problem_of(failures: Sequence[Failure], tables: int) -> Failure | None:
    if not failures:
        return None
    if tables == 1:
        return failures[0]
    codes = {each.exit_code for each in failures}
    return Failure(
        "Partial",
        f"{len(failures)} of {tables} tables failed",
        "the list above says why; the others are done",
        codes.pop() if len(codes) == 1 else Exit.FAILED,
    )


def _report_answer(state: State, report: Report, *, nothing: str) -> Answer:
    """Return what a run of a job tells."""
    failures = {each.table: state.failure(each.error) for each in report.failed if each.error}
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
        ["TABLE", "ROWS", "VERSIONS", "FILES", "SIZE", ""],
        rows,
        frozenset({"ROWS", "VERSIONS", "FILES", "SIZE"}),
    )
    problem = _problem_of(list(failures.values()), len(report.results))
    if not shown:
        return Answer(result, [nothing], problem)
    if len(report.results) == 1 and shown[0]["change"] is None:
        return Answer(result, [], problem)
    word = "would be done" if report.dry_run else "done"
    summary = (
        f"{report.job}: {plural(len(shown) - len(failures), 'table')} {word} in {duration(report.duration)}"
    )
    return Answer(result, [grid, summary], problem)


def _entry(result: Result, failure: Failure | None) -> dict[str, Any]:
    """Return one table of a report for `--json`; `change` is what was, or would be, done."""
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
    note = change["note"] if error is None else f"failed in part: {error['message']}"
    return [entry["table"], *figures, in_bytes(change["bytes"]) if change["bytes"] else "", note]
