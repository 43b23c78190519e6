"""Add a manifest row for every table directory, dropped ones included, so that no listing is needed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

from relance.identifiers import TableId
from relance.listing.lookup import TableFacts, look_up
from relance.listing.root_view import view_root
from relance.listing.tables import list_tables
from relance.manifest.entry import Entry, ObjectType
from relance.manifest.store import Change, Snapshot, transact
from relance.operations.announcing import finish
from relance.operations.context import Context
from relance.operations.in_step import is_held, wanted_change
from relance.operations.rows.lookups import require_manifest

_BATCH = 500
"""Tables per commit: an interrupted run resumes where it stopped."""


@dataclass(frozen=True, slots=True)
class ManifestMigration:
    """Tables that were added to the manifest, or would be in a dry run."""

    registered: tuple[str, ...]
    """Visible tables that were added."""
    dropped: tuple[str, ...]
    """Dropped tables that were added."""
    mended: tuple[str, ...]
    """Tables whose row was synced with their directory."""
    shadowed: tuple[str, ...]
    """Directories left unchanged because another object in the manifest has their name."""
    dry_run: bool


@dataclass(frozen=True, slots=True)
class MigrationProgress:
    """Progress of a migration, passed to the progress callback after each batch."""

    done: int
    total: int


def migrate_to_manifest(
    context: Context, *, dry_run: bool, progress: Callable[[MigrationProgress], None] | None
) -> ManifestMigration:
    """Register all V1 directories and markers. Safe to repeat, and to interrupt at any time.

    Raises:
        UnsupportedOperationError: the catalog is opened without a manifest.
    """
    manifest = require_manifest(context, to_do="migrating to the manifest")
    view = view_root(context.storage.list_level(""))
    visible = set(list_tables(context.storage, include_declared=True))
    names = sorted(visible | view.hidden | manifest.latest().own_directories())
    found: dict[str, list[str]] = {"registered": [], "dropped": [], "mended": [], "shadowed": []}
    waiting = iter(names)
    done = 0
    while batch := list(islice(waiting, _BATCH)):
        if not dry_run:
            for name in batch:
                finish(context, TableId((), name))

        def plan(snapshot: Snapshot, batch: Sequence[str] = batch) -> tuple[Change, list[tuple[str, str]]]:
            return _plan(context, snapshot, batch)

        for kind, name in plan(manifest.latest())[1] if dry_run else transact(manifest, plan):
            found[kind].append(name)
        done += len(batch)
        if progress is not None:
            progress(MigrationProgress(done, len(names)))
    return ManifestMigration(
        registered=tuple(found["registered"]),
        dropped=tuple(found["dropped"]),
        mended=tuple(found["mended"]),
        shadowed=tuple(found["shadowed"]),
        dry_run=dry_run,
    )


def _plan(context: Context, snapshot: Snapshot, names: Sequence[str]) -> tuple[Change, list[tuple[str, str]]]:
    removed: list[str] = []
    added: list[Entry] = []
    told: list[tuple[str, str]] = []
    rows = snapshot.get(names)
    for facts in _facts(context, names):
        row = rows.get(facts.name)
        is_taken = row is not None and (row.object_type != ObjectType.TABLE or not row.has_own_directory)
        if is_taken and facts.is_visible:
            told.append(("shadowed", facts.name))
            continue  # the name is not free; a drop, whose row has another id, is brought in all the same
        if is_held(context, snapshot, facts):
            continue  # whoever is at work on it gives it its row
        change = wanted_change(snapshot, facts)
        if change.is_empty:
            continue
        removed += change.removed
        added += change.added
        if change.removed:
            told.append(("mended", facts.name))
        else:
            told.append(("dropped" if change.added[0].is_dropped else "registered", facts.name))
    return Change(tuple(removed), tuple(added)), told


def _facts(context: Context, names: Sequence[str]) -> Iterator[TableFacts]:
    return (look_up(context.storage, name) for name in names)
