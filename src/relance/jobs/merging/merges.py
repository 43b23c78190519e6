"""Merge rows into a table by key: plan, work of an engine, one commit, and again if others were faster.

An engine joins the new rows with the table and runs the tasks: merge_here has one, and spark.merge another.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol

from relance.catalog.context import Context
from relance.errors import ConcurrentModificationError, RelanceError, TableVersionNotFoundError
from relance.jobs.engine import back_off, worth_retrying
from relance.jobs.merging.merge_commit import Work, commit_merge, discard, look_again
from relance.jobs.merging.merge_plan import MergePlan, MergeRequest, plan_merge

MERGE_ATTEMPTS = 20
"""How often a merge is planned again: of several at once on one table, one wins each round."""


@dataclass(frozen=True, slots=True)
class Counts:
    """How many rows a merge would touch."""

    updated: int
    inserted: int
    deleted: int


@dataclass(frozen=True, slots=True)
class MergeResult:
    """What a merge did; of a dry run: what it would do."""

    version: int
    """The version that it made, or, if there was nothing to change, the one that is there."""
    updated: int
    inserted: int
    deleted: int
    attempts: int = 1
    duplicates: int | None = 0
    """Rows with a key of ours that a plain append of another client brought in the last moment.

    None when nobody can tell any more, because the versions in question were cleaned up.
    """
    engine: str = ""
    """Where it ran, and why there."""


class MergeEngine(Protocol):
    """Knows the new rows, and has workers."""

    def count(self, plan: MergePlan) -> Counts:
        """Return how many rows the merge would touch; writes nothing."""

    def work(self, plan: MergePlan) -> Work:
        """Write the new rows and delete those that they replace, in files that no version mentions."""

    def count_same_keys(self, plan: MergePlan, version: int) -> int:
        """Return how many rows with a key of ours a later version has in fragments that the plan lacks."""


def run_merge(
    context: Context, request: MergeRequest, engine: MergeEngine, *, dry_run: bool = False
) -> MergeResult:
    """Merge all rows in one version, or none.

    Raises:
        TableNotFoundError: there is no such table, or it is only declared.
        ConcurrentModificationError: others kept changing the same fragments, or dropped the table.
        OutcomeUnknownError: the store gave no answer; it may have happened.
    """
    attempt = 0
    while True:
        attempt += 1
        try:
            plan = plan_merge(context, request)
            if dry_run:
                seen = engine.count(plan)
                return MergeResult(plan.table.version, seen.updated, seen.inserted, seen.deleted, attempt)
            work = engine.work(plan)
            if work.is_empty:
                return _result(plan.table.version, work, attempt)
            checked = _check_keys(context, plan, work, engine)
            version, target = commit_merge(context, plan, work)
            break
        except RelanceError as error:
            if attempt >= MERGE_ATTEMPTS or not worth_retrying(error):
                raise
            back_off(attempt)
    look_again(context, target)
    return _result(version, work, attempt, _duplicates(plan, work, engine, checked=checked, version=version))


def _result(version: int, work: Work, attempts: int, duplicates: int | None = 0) -> MergeResult:
    return MergeResult(version, work.updated, work.inserted, work.deleted, attempts, duplicates)


def _check_keys(context: Context, plan: MergePlan, work: Work, engine: MergeEngine) -> int:
    """Return up to which version nobody has added a row with a key of ours.

    Raises:
        ConcurrentModificationError: somebody has: plan again, so that it is updated.
    """
    try:
        head = context.tables.head(plan.write.directory)
        latest = plan.table.version if head is None else head.version
        if latest > plan.table.version and work.inserted and engine.count_same_keys(plan, latest):
            raise ConcurrentModificationError(
                f"another client added rows with the same keys to table id '{plan.table.id}'; retry the merge"
            )
    except RelanceError:
        with suppress(RelanceError):
            discard(context, plan, work)
        raise
    return latest


def _duplicates(
    plan: MergePlan, work: Work, engine: MergeEngine, *, checked: int, version: int
) -> int | None:
    """Return how many rows with a key of ours came between the last check and the commit."""
    if not work.inserted or version <= checked + 1:
        return 0
    try:
        return engine.count_same_keys(plan, version - 1)
    except TableVersionNotFoundError:
        return None
