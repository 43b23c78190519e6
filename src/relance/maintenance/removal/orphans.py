"""Remove orphans: directories that no row, marker or table names, of creates and jobs that died.

A home directory goes through the lifecycle: a drop hides it, and a purge takes it. So a create that merely
slept sees that before it reports success.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

from relance.catalog.context import Context
from relance.catalog.drop import row_deletion
from relance.catalog.manifest.row import ObjectType, Row
from relance.catalog.manifest.store import Change, Snapshot, transact
from relance.catalog.purge import PurgeOptions, PurgeResult, make_ready, purge_ready
from relance.catalog.repair import remove_leftovers
from relance.catalog.resolve import generation_of_row
from relance.catalog.states import control_text, new_nonce
from relance.clock import require_moment
from relance.errors import ConcurrentModificationError, InvalidInputError, RelanceError
from relance.locations import TABLE_SUFFIX
from relance.maintenance.execute import worth_retrying
from relance.maintenance.removal.leftovers import (
    Findings,
    Kept,
    Kind,
    Orphan,
    files_of,
    find_orphans,
    kind_of,
    measure,
)
from relance.maintenance.work import Effect, Estimate, TablePlan
from relance.operations.cleaning.pacing import paced, purge_options
from relance.storage.ballast import emptying
from relance.units import require_duration

FLOOR = timedelta(hours=24)
"""Younger directories stay unless it is said by name that they may go."""

_SECONDS_PER_FILE = 0.002


@dataclass(frozen=True, slots=True)
class RemoveOrphans:
    """Removes directories that nothing names and of which every file is older than a span.

    What is not of a kind that the catalog makes is reported and never touched.
    """

    older_than: timedelta = FLOOR
    allow_young: bool = False
    """Let `older_than` be less than 24 hours: only where nobody creates tables."""
    with_versions: bool = False
    """Also directories that hold a version. A deregistered table looks the same: look at the dry run."""
    rate_limit: float | None = None
    """Files per second in each process."""
    before: datetime | None = None
    """Instead of `older_than`, the moment that it led to where the run was planned."""
    name: str = field(default="remove orphans", init=False)

    def __post_init__(self) -> None:
        require_duration(self.older_than, what="older_than")
        if self.older_than < FLOOR and not self.allow_young:
            raise InvalidInputError(
                "directories younger than 24 hours may belong to a create in progress: "
                f"older_than={self.older_than} requires allow_young"
            )
        if self.rate_limit is not None and self.rate_limit <= 0:
            raise InvalidInputError(f"rate_limit must be above 0, got {self.rate_limit}")
        if self.before is not None:
            require_moment(self.before, what="before")

    def targets(self, context: Context) -> Sequence[tuple[str, ...]]:
        return [()]

    @emptying()
    def pin(self, context: Context) -> RemoveOrphans:
        """Return the job with the moment before which directories may go, by the store's clock."""
        if self.before is not None:
            return self
        return replace(self, before=context.store_now() - self.older_than)

    @emptying()
    def plan(self, context: Context, table: tuple[str, ...]) -> TablePlan | None:
        """Look at the root.

        Raises:
            InvalidInputError: a table is named.
            UnsupportedOperationError: the root has a manifest, and the catalog is opened without it.
        """
        if table:
            raise InvalidInputError("remove orphans works on the whole root: name no table")
        before = context.store_now() - self.older_than if self.before is None else self.before
        if not self.allow_young:
            # A moment of a clock that is ahead of the store's lets no younger directory go.
            before = min(before, context.store_now() - FLOOR)
        found = find_orphans(context, before, with_versions=self.with_versions)
        if not found.orphans and not found.kept:
            return None
        # However many of the tasks run in this process, they share its pace.
        tasks = tuple(RemoveDirectory(each, before, self.rate_limit) for each in found.orphans)
        return OrphanPlan(found, tasks)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one directory."""

    directory: str
    files: int = 0
    bytes: int = 0
    kept: str = ""
    """Why it is still there."""


@dataclass(frozen=True, slots=True)
class OrphanPlan:
    """The directories that go."""

    found: Findings
    tasks: tuple[RemoveDirectory, ...]

    @property
    def estimate(self) -> Estimate:
        orphans = self.found.orphans
        names = ", ".join(each.directory for each in orphans[:10])
        note = f"{len(orphans)} directories: {names}" if orphans else "nothing"
        return Estimate(
            files=sum(each.files for each in orphans),
            bytes=sum(each.bytes for each in orphans),
            note=note + _kept(self.found),
        )

    def finish(self, context: Context, values: Sequence[Any]) -> Effect:
        outcomes: list[Outcome] = list(values)
        stayed = [each for each in outcomes if each.kept]
        note = f"{len(outcomes) - len(stayed)} directories removed{_kept(self.found)}"
        note += "".join(f"; {each.directory}: {each.kept}" for each in stayed)
        return Effect(
            files=sum(each.files for each in outcomes),
            bytes=sum(each.bytes for each in outcomes),
            note=note,
        )


def _kept(found: Findings) -> str:
    return f"; kept: {found.note()}" if found.kept else ""


@dataclass(frozen=True, slots=True)
class RemoveDirectory:
    """Looks at a directory once more, and removes it."""

    orphan: Orphan
    before: datetime
    rate: float | None

    @property
    def weight(self) -> float:
        return 0.05 + self.orphan.files * _SECONDS_PER_FILE

    @emptying()
    def run(self, context: Context) -> Outcome:
        directory = self.orphan.directory
        try:
            return self._remove(context)
        except RelanceError as error:
            if worth_retrying(error) and not isinstance(error, ConcurrentModificationError):
                raise
            # One directory that cannot go does not keep the others.
            return Outcome(directory, kept=error.detail)

    def _remove(self, context: Context) -> Outcome:
        directory = self.orphan.directory
        if kind_of(context, directory) is not self.orphan.kind or _is_named(context, directory):
            return Outcome(directory, kept="now in use")
        infos = measure(files_of(context, directory), self.before)
        if isinstance(infos, Kept):
            # A run that was killed and begun again finds nothing: that is what it wanted.
            return Outcome(directory, kept="" if infos is Kept.UNKNOWN_AGE else str(infos))
        options = purge_options(force=True, rate=self.rate)
        match self.orphan.kind:
            case Kind.AT_HOME:
                name = directory.removesuffix(TABLE_SUFFIX)
                return self._purged(remove_leftovers(context, name, self.before, options))
            case Kind.WITH_VERSIONS:
                return self._purged(_purge_as_dropped(context, directory, options))
        removed = Outcome(directory)
        for batch in paced(infos, self.rate):
            if kind_of(context, directory) is not Kind.OWN or _is_named(context, directory):
                raise ConcurrentModificationError(f"'{directory}' became a table while it was being removed")
            # Only what was listed: a file that comes now belongs to somebody.
            context.storage.delete_many(each.key for each in batch)
            total = removed.bytes + sum(each.size for each in batch)
            removed = Outcome(directory, removed.files + len(batch), total)
        context.storage.prune(directory)
        return removed

    def _purged(self, result: PurgeResult) -> Outcome:
        if result.error is not None:
            raise result.error
        return Outcome(self.orphan.directory, result.files, result.bytes)


def _is_named(context: Context, directory: str) -> bool:
    if context.manifest is None:
        return False
    snapshot = context.manifest.latest()
    name = directory.removesuffix(TABLE_SUFFIX)
    return bool(snapshot.sharing([directory])) or bool(snapshot.get([name]))


def _purge_as_dropped(context: Context, directory: str, options: PurgeOptions) -> PurgeResult:
    """Give the directory the row of a dropped table, unless a row leads to it, and purge that.

    Raises:
        ConcurrentModificationError: a row came to lead to it.
    """
    manifest = context.require_manifest(to_do="removing a directory with versions")
    control = row_deletion(new_nonce(), context.store_now(), timedelta(0))
    live = Row(directory.partition("_")[2], ObjectType.TABLE, directory)
    row = live.dropped(control.id, control_text(control))

    def plan(snapshot: Snapshot) -> tuple[Change, None]:
        if snapshot.sharing([directory]):
            raise ConcurrentModificationError(f"'{directory}' became a table in the meantime")
        return Change(added=(row,)), None

    transact(manifest, plan)
    ready = make_ready(context, generation_of_row(row, control), force=True)
    (result,) = purge_ready(context, [ready], options)
    return result
