"""Facts of all tables of a lake, gathered in tasks: one cheap open of each, nothing of its data is read."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from typing import Any, TypeVar

import lance
from lance_namespace import ListTablesRequest

from relance.catalog.context import Context
from relance.catalog.layout import ManifestFile, list_manifests
from relance.catalog.manifest.store import Snapshot, rereading
from relance.catalog.resolve import (
    Found,
    Generation,
    all_generations,
    find_in,
    find_table,
    period_end,
)
from relance.catalog.states import MARGIN
from relance.errors import RelanceError, TableNotFoundError
from relance.identifiers import DELIMITER, TableId
from relance.jobs.base import CatalogRef
from relance.jobs.engine import Progress
from relance.jobs.facts import TableFacts, TableState
from relance.jobs.plans.fragments import deleted_share
from relance.jobs.plans.index_refresh import lags_of
from relance.jobs.runner import Runner, open_catalog, slices_of
from relance.lance_io import lance_errors, open_at
from relance.operations.drop_ttl import own_ttl
from relance.operations.tables import list_all_tables

_T = TypeVar("_T")
_R = TypeVar("_R")

_PER_TASK = 50
"""Tables that one task looks at: their rows of the manifest come in one read."""

_WINDOW = 2_000
"""Tables that are out at a time, more with many slots: what a runner has done it keeps until all is done."""

_AT_ONCE = 16
"""Tables of a task that are looked at together where each look waits for the store."""

_SECONDS_PER_TABLE = 0.01


@dataclass(frozen=True, slots=True)
class Gathered:
    """What is known of a table, and where it is."""

    facts: TableFacts
    directory: str = ""


@dataclass(frozen=True, slots=True)
class _Dropped:
    """A dropped generation to look at."""

    facts: TableFacts
    directory: str


@dataclass(frozen=True, slots=True)
class Look:
    """A task that looks at some tables."""

    tables: tuple[tuple[str, ...], ...] = ()
    dropped: tuple[_Dropped, ...] = ()

    @property
    def weight(self) -> float:
        return _SECONDS_PER_TABLE * (len(self.tables) + len(self.dropped))

    def run(self, context: Context) -> list[Gathered]:
        """Look at each; what cannot be read is told, and what is gone by now is left out."""
        live = _look_at_live(context, [TableId(each[:-1], each[-1]) for each in self.tables])
        return [*live, *_each(context, partial(_look_at_dropped, context), self.dropped)]


def gather(
    catalog: CatalogRef,
    runner: Runner,
    *,
    only: Callable[[tuple[str, ...]], bool] | None = None,
    progress: Callable[[Progress], None] | None = None,
) -> Iterator[Gathered]:
    """Yield the facts of all live, declared and dropped tables, as they come.

    `only` chooses among their ids. A table that cannot be read has an error in its facts.
    """
    context = open_catalog(catalog)
    tasks, total = _tasks(context, only or (lambda table: True))
    seen = Progress("inspect", 0, total, 0)
    _tell(progress, seen)
    size = max(_WINDOW // _PER_TASK, 4 * runner.slots)
    for start in range(0, len(tasks), size):
        window = tasks[start : start + size]
        slices = slices_of(window, slots=runner.slots)
        for done in runner.run(catalog, slices, what=f"inspect {total} tables"):
            found = _lost(window[done.number], done.error) if done.error is not None else done.value
            failed = sum(each.facts.error is not None for each in found)
            count = len(window[done.number].tables) + len(window[done.number].dropped)
            seen = replace(seen, done=seen.done + count, failed=seen.failed + failed)
            yield from found
            _tell(progress, seen)


def _tell(progress: Callable[[Progress], None] | None, seen: Progress) -> None:
    if progress is not None:
        progress(seen)


def _tasks(context: Context, only: Callable[[tuple[str, ...]], bool]) -> tuple[list[Look], int]:
    listed = list_all_tables(context, ListTablesRequest(include_declared=True)).tables
    live = [each for name in listed if only(each := tuple(name.split(DELIMITER)))]
    dropped = [
        _dropped(context, each) for each in all_generations(context) if only(tuple(each.table_id.parts))
    ]
    tasks = [Look(tables=tuple(live[at : at + _PER_TASK])) for at in range(0, len(live), _PER_TASK)]
    tasks += [Look(dropped=tuple(dropped[at : at + _PER_TASK])) for at in range(0, len(dropped), _PER_TASK)]
    return tasks, len(live) + len(dropped)


def _dropped(context: Context, generation: Generation) -> _Dropped:
    status, row = generation.status(context), generation.row
    facts = TableFacts(
        tuple(generation.table_id.parts),
        TableState.DROPPED,
        deletion_id=status.deletion_id,
        dropped_at=status.deleted_at,
        purge_after=status.purge_after,
        properties=() if row is None else _pairs(row.properties),
    )
    try:
        return _Dropped(facts, generation.directory)
    except TableNotFoundError as error:
        return _Dropped(replace(facts, error=error.detail), "")


def _lost(task: Look, error: RelanceError) -> list[Gathered]:
    """Return what is known of tables whose task was lost as a whole."""
    live = [Gathered(TableFacts(each, error=error.detail)) for each in task.tables]
    gone = [Gathered(replace(each.facts, error=error.detail), each.directory) for each in task.dropped]
    return live + gone


@rereading
def _look_at_live(context: Context, tables: Sequence[TableId]) -> list[Gathered]:
    snapshot = None if context.manifest is None or not tables else context.manifest.latest()
    if snapshot is not None:
        snapshot.get([str(each) for each in tables])  # a snapshot keeps what it found
    looked = _each(context, partial(_look_at, context, snapshot), tables)
    return [each for each in looked if each is not None]


def _each(context: Context, look: Callable[[_T], _R], wanted: Sequence[_T]) -> list[_R]:
    """Return what a look at each gives; on a store with latency many are under way at once."""
    if context.storage.cheap_lookups:
        return [look(each) for each in wanted]
    with ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="relance look") as pool:
        return list(pool.map(look, wanted))


def _look_at(context: Context, snapshot: Snapshot | None, table_id: TableId) -> Gathered | None:
    table = tuple(table_id.parts)
    try:
        found = find_table(context, table_id) if snapshot is None else find_in(context, snapshot, table_id)
    except TableNotFoundError:
        return None  # dropped or renamed since it was listed
    except RelanceError as error:
        return Gathered(TableFacts(table, error=error.detail))
    row = None if snapshot is None else snapshot.get([table_id.object_id]).get(table_id.object_id)
    known = TableFacts(
        table,
        protected=row is not None and row.is_protected,
        properties=_pairs(found.properties),
    )
    try:
        return Gathered(_live_facts(context, found, known), found.directory)
    except RelanceError as error:
        return Gathered(TableFacts(table, error=error.detail), found.directory)


def _live_facts(context: Context, found: Found, known: TableFacts) -> TableFacts:
    at_home = found.home is not None
    if found.is_only_declared(context.storage):
        ttl = own_ttl(dict(known.properties), {}, at_home=at_home)
        return replace(known, state=TableState.DECLARED, drop_ttl=ttl)
    what, options = f"table id '{found.table_id}'", context.lance_options()
    with lance_errors(what, options):
        dataset = open_at(context.location_of(found.directory), options, f"{found.table_id}")
        facts = _measured(context, found.directory, dataset, known)
        ttl = own_ttl(dict(known.properties), dataset.config(), at_home=at_home)
        return replace(facts, drop_ttl=ttl)


def _look_at_dropped(context: Context, dropped: _Dropped) -> Gathered:
    """Return what a dropped table holds, and when it can be purged.

    By the store's clock its period ends so much later, and the clock of a run may be ahead of that.
    """
    found = _held_by_dropped(context, dropped)
    facts, late = found.facts, context.timing.clock_skew + MARGIN
    at = None if facts.purge_after is None else period_end(facts.purge_after, late)
    return replace(found, facts=replace(facts, purgeable_at=at))


def _held_by_dropped(context: Context, dropped: _Dropped) -> Gathered:
    """Return what a dropped table holds; one that cannot be read any more can still be purged."""
    if dropped.facts.error is not None:
        return Gathered(dropped.facts)
    try:
        options = context.lance_options()
        with lance_errors(f"table at '{dropped.directory}'", options):
            dataset = open_at(context.location_of(dropped.directory), options, dropped.directory)
            facts = _measured(context, dropped.directory, dataset, dropped.facts)
            return Gathered(facts, dropped.directory)
    except RelanceError:
        return Gathered(dropped.facts, dropped.directory)


def _purge_after(known: TableFacts, written: datetime | None) -> datetime | None:
    """Return when a dropped table expires; its period begins with the last write, if that came later.

    Both times are the store's. The one that Lance keeps in a version is of its writer's clock.
    """
    dropped, due = known.dropped_at, known.purge_after
    if written is None or dropped is None or due is None or written <= dropped:
        return due
    return period_end(written, due - dropped)


def _measured(context: Context, directory: str, dataset: lance.LanceDataset, known: TableFacts) -> TableFacts:
    latest: dict[str, Any] = dataset.get_version()
    summary = {key: int(value) for key, value in latest["metadata"].items() if str(value).isdecimal()}
    manifests = list_manifests(context.storage, directory, None)
    last_write = latest["timestamp"].astimezone(UTC)
    return replace(
        known,
        version=int(dataset.version),
        rows=summary.get("total_rows"),
        deleted_rows=summary.get("total_deletion_file_rows"),
        fragments=summary.get("total_fragments"),
        fragment_deleted_ratio=_most_deleted(dataset, summary.get("total_deletion_file_rows")),
        bytes=summary.get("total_files_size"),
        versions=len(manifests),
        oldest_version_at=_oldest(manifests, last_write),
        last_write=last_write,
        unindexed_rows=_lag(dataset),
        columns=tuple((field.name, str(field.type)) for field in dataset.schema),
        purge_after=_purge_after(known, manifests[-1].info.modified if manifests else None),
    )


def _oldest(manifests: Sequence[ManifestFile], last_write: datetime) -> datetime:
    """Return when the oldest version was written, by its file: to read each version would take too long."""
    if len(manifests) < 2 or manifests[0].info.modified is None:
        return last_write
    return min(manifests[0].info.modified, last_write)


def _most_deleted(dataset: lance.LanceDataset, deleted_rows: int | None) -> float:
    if deleted_rows == 0:
        return 0.0  # spares a look at each of what may be many fragments
    return max((deleted_share(each.metadata) for each in dataset.get_fragments()), default=0.0)


def _lag(dataset: lance.LanceDataset) -> int | None:
    if all(each.name.startswith("__") for each in dataset.describe_indices()):
        return None
    fragments = [each.metadata for each in dataset.get_fragments()]
    return max((each.rows for each in lags_of(dataset, fragments)), default=0)


def _pairs(properties: dict[str, str]) -> tuple[tuple[str, str], ...]:
    return tuple(sorted(properties.items()))
