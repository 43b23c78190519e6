"""Tables of many small fragments, for tests of compaction and index refresh."""

from __future__ import annotations

from typing import Any, Protocol, TypeVar

import lance
import numpy as np
import pyarrow as pa
from tests.support.jobs.rows import ref_to
from tests.support.jobs.running import results_of
from tests.support.roots import Place
from tests.support.rows import quiet_settings

from relance.catalog.context import Context
from relance.jobs.base import CatalogRef, Job, Result
from relance.jobs.runner import ThreadRunner, open_catalog

EACH = 100
"""Rows of a fragment."""

TABLE = ("t",)


P = TypeVar("P")
P_co = TypeVar("P_co", covariant=True)


class _Plans(Protocol[P_co]):
    """A job, by the kind of plan it makes."""

    def plan(self, context: Context, table: tuple[str, ...]) -> P_co | None: ...


def quiet_ref(place: Place, **properties: str) -> CatalogRef:
    """Return what tasks open the catalog by, without upkeep in the background."""
    return ref_to(place, **quiet_settings(place.mode), **properties)


def quiet_context(place: Place, **properties: str) -> Context:
    """Return the opened catalog, as tasks see it, without upkeep in the background."""
    return open_catalog(quiet_ref(place, **properties))


def some(first: int, number: int) -> pa.Table:
    """Return rows with ids from `first` on; the word is one of seven."""
    ids = np.arange(first, first + number)
    return pa.table({"id": ids, "value": ids * 0.5, "word": [f"w{each % 7}" for each in ids]})


def at(place: Place, table: str = "t", **pinned: Any) -> lance.LanceDataset:
    """Open a table with pylance alone."""
    found = place.open().describe_table({"id": [table]})
    return lance.dataset(found.location, storage_options=found.storage_options, **pinned)


def fill(
    place: Place, *, fragments: int = 8, stable: bool = False, indexes: bool = True, table: str = "t"
) -> None:
    """Create a table of this many fragments."""
    declared = place.open().declare_table({"id": [table]})
    for number in range(fragments):
        lance.write_dataset(
            some(number * EACH, EACH),
            declared.location,
            mode="append" if number else "create",
            enable_stable_row_ids=stable,
            storage_options=declared.storage_options,
        )
    if indexes:
        at(place, table).create_scalar_index("id", "BTREE")
        at(place, table).create_scalar_index("word", "BITMAP")


def append(place: Place, first: int, number: int, table: str = "t") -> None:
    """Append rows as another client does."""
    dataset = at(place, table)
    lance.write_dataset(some(first, number), dataset, mode="append")


def ids(place: Place, table: str = "t") -> list[int]:
    """Return the ids of all rows, sorted."""
    return sorted(at(place, table).to_table(columns=["id"])["id"].to_pylist())


def lengths(dataset: lance.LanceDataset) -> list[int]:
    """Return the rows of each fragment, in their order."""
    return [each.count_rows() for each in dataset.get_fragments()]


def assert_indexes_are_right(place: Place, table: str = "t") -> None:
    """Check that queries give the same rows with the indexes and without."""
    dataset = at(place, table)
    for query in ("id >= 3 and id < 750", "word = 'w3'", "id = 5", "id > 100000"):
        by_index = dataset.scanner(filter=query).to_table().sort_by("id")
        without = dataset.scanner(filter=query, use_scalar_index=False).to_table().sort_by("id")
        assert by_index.equals(without), query


def unindexed(place: Place, table: str = "t") -> dict[str, int]:
    """Return how many rows each index does not cover."""
    dataset = at(place, table)
    names = {each.name for each in dataset.describe_indices() if not each.name.startswith("__")}
    return {name: dataset.stats.index_stats(name)["num_unindexed_rows"] for name in sorted(names)}


def planned(place: Place, job: _Plans[P]) -> P:
    """Return the job's plan for the table, which must have something to do."""
    plan = job.plan(quiet_context(place), TABLE)
    assert plan is not None
    return plan


def run(place: Place, job: Job, *tables: tuple[str, ...], giant: bool = False, **options: Any) -> Result:
    """Do a job on one table: in one task, or cut up as a giant one."""
    seconds = -1 if giant else 20
    (result,) = results_of(
        job, quiet_ref(place), tables or [TABLE], ThreadRunner(3), oversized_seconds=seconds, **options
    )
    return result
