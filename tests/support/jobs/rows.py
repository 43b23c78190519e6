"""A table, job runs and interrupted jobs, for tests of row deletes and updates."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from typing import Any

import lance
import pyarrow as pa
import pytest
from tests.support.jobs.running import results_of
from tests.support.patches import original, substitute
from tests.support.roots import LocalPlace, Place, dataset

from relance.catalog.context import Context
from relance.jobs.base import CatalogRef, Effect, Job, Result
from relance.jobs.plans.row_changes import RewritePlan
from relance.jobs.runner import ThreadRunner, open_catalog

ROWS = 60
PER_FRAGMENT = 10
GIANT = 0.0
SMALL = 20.0
SMALL_TASK = 0.012
"""Seconds, by its weight: of one or two fragments."""


def rows(first: int = 0, count: int = ROWS) -> pa.Table:
    """Return rows: `n` is 0 everywhere, and every seventh `name` is null."""
    ids = range(first, first + count)
    return pa.table(
        {
            "id": pa.array(ids, pa.int64()),
            "n": pa.array([0] * count, pa.int32()),
            "name": pa.array([None if each % 7 == 0 else f"name {each}" for each in ids], pa.string()),
        }
    )


def make(place: Place, *, stable: bool = False, name: str = "t") -> None:
    """Create the table, with six fragments."""
    lance.write_dataset(
        rows(),
        namespace_client=place.open(),
        table_id=[name],
        mode="create",
        max_rows_per_file=PER_FRAGMENT,
        enable_stable_row_ids=stable,
    )


def ref_to(place: Place, **properties: str) -> CatalogRef:
    """Return what tasks open the catalog by."""
    return CatalogRef(tuple((place.properties | properties).items()))


def task_context(place: Place, **properties: str) -> Context:
    """Return the opened catalog, as tasks see it."""
    return open_catalog(ref_to(place, **properties))


def result_of(place: Place, job: Job, *, giant: float = SMALL, dry_run: bool = False) -> Result:
    """Run a job on the table."""
    (result,) = results_of(
        job, ref_to(place), [("t",)], ThreadRunner(2), dry_run=dry_run, oversized_seconds=giant
    )
    return result


def effect_of(place: Place, job: Job, *, giant: float = SMALL) -> Effect:
    """Run a job on the table, which must do something."""
    result = result_of(place, job, giant=giant)
    assert result.error is None, result.error
    assert result.effect is not None
    return result.effect


def prepare(place: Place, job: Any) -> tuple[RewritePlan, list[Any]]:
    """Do all of a job but its commit, with everything pickled on the way."""
    context = task_context(place)
    plan = job.plan(context, ("t",))
    assert plan is not None
    plan = pickle.loads(pickle.dumps(plan))
    values = [pickle.loads(pickle.dumps(each)).run(context) for each in plan.tasks]
    return plan, pickle.loads(pickle.dumps(values))


def finish(place: Place, prepared: tuple[RewritePlan, Sequence[Any]]) -> Effect:
    """Make the commit."""
    plan, values = prepared
    return plan.finish(task_context(place), values)


def opened(place: Place) -> Any:
    """Open the latest version with pylance."""
    return dataset(place.open(), "t")


def content(table: Any) -> list[str]:
    """Return the rows of a dataset in an order of their own, with their ids where those are stable."""
    extra = ["_rowid", "_row_created_at_version"] if table.has_stable_row_ids else []
    found = table.to_table(columns=[*table.schema.names, *extra]).to_pylist()
    return sorted(map(repr, found))


def ids(place: Place, where: str | None = None) -> list[int]:
    """Return the ids of all rows, or of some."""
    found: list[int] = opened(place).to_table(columns=["id"], filter=where)["id"].to_pylist()
    return sorted(found)


def copy_of(place: LocalPlace) -> Any:
    """Return another dataset with the same rows in the same fragments."""
    table = opened(place)
    copy = place.folder.parent / "copy.lance"
    return lance.write_dataset(
        table.to_table(),
        str(copy),
        max_rows_per_file=PER_FRAGMENT,
        enable_stable_row_ids=table.has_stable_row_ids,
    )


def fragments(table: Any) -> list[tuple[int, int, int]]:
    """Return number, rows and deleted rows of each fragment."""
    found = [each.metadata for each in table.get_fragments()]
    return [(each.id, each.physical_rows, each.num_deletions) for each in found]


def unused_files(place: Place) -> set[str]:
    """Return files of data, deletions and indexes of the table that no version mentions."""
    table = opened(place)
    tracked = {each["path"] for each in table.tracked_files().read_all().to_pylist()}
    there = {each["path"] for each in table.all_files().read_all().to_pylist()}
    return {each for each in there - tracked if each.startswith(("data/", "_deletions/", "_indices/"))}


def in_small_tasks(patch: pytest.MonkeyPatch) -> None:
    """Have each task do one or two fragments."""
    substitute(patch, "row_changes.task_seconds", SMALL_TASK)


def count_prepared(patch: pytest.MonkeyPatch, rewrite: type) -> list[int]:
    """Note the fragments that are prepared from now on."""
    seen: list[int] = []
    prepare_them = original("row_changes.prepare", on=rewrite)

    def noting(self: Any, context: Context, at: Any, numbers: Sequence[int]) -> Any:
        seen.extend(numbers)
        return prepare_them(self, context, at, numbers)

    substitute(patch, "row_changes.prepare", noting, on=rewrite)
    return seen
