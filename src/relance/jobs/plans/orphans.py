"""Remove orphans: directories that no row, marker or table names, of creates and jobs that died.

A home directory goes through the lifecycle: a drop hides it, and a purge takes it. So a create that merely
slept sees that before it reports success.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

from relance.catalog.context import Context
from relance.catalog.drop import row_deletion
from relance.catalog.layout import Bodies, inspect_name
from relance.catalog.manifest.row import ObjectType, Row
from relance.catalog.manifest.store import Change, Snapshot, transact
from relance.catalog.purge import PurgeOptions, PurgeResult, make_ready, purge_ready
from relance.catalog.repair import HASHED_DIRECTORY, remove_leftovers
from relance.catalog.resolve import generation_of_row
from relance.catalog.states import control_text, new_nonce
from relance.config import ENABLE_MANIFEST
from relance.errors import (
    ConcurrentModificationError,
    InvalidInputError,
    InvalidTableStateError,
    RelanceError,
    UnsupportedOperationError,
)
from relance.identifiers import why_unusable
from relance.jobs.base import Effect, Estimate, Name, TablePlan
from relance.jobs.cleanup import FLOOR
from relance.jobs.engine import worth_retrying
from relance.jobs.orphans import RemoveOrphans
from relance.locations import (
    DEREGISTERED_FILE,
    LAYOUT_KEY,
    MANIFEST_DIRECTORY,
    POLICY_DIRECTORY,
    RESERVED_FILE,
    TABLE_SUFFIX,
    VERSIONS_DIRECTORY,
)
from relance.operations.cleaning.clones import find_clones
from relance.operations.cleaning.pacing import paced, purge_options
from relance.storage.ballast import emptying
from relance.storage.protocol import ObjectInfo

_SECONDS_PER_FILE = 0.002


@emptying()
def plan_orphans(job: RemoveOrphans, context: Context, table: Name) -> TablePlan | None:
    """Look at the root.

    Raises:
        InvalidInputError: a table is named.
        UnsupportedOperationError: the root has a manifest, and the catalog is opened without it.
    """
    if table:
        raise InvalidInputError("remove orphans works on the whole root: name no table")
    before = job.cutoff(context.store_now())
    if not job.allow_young:
        # A moment of a clock that is ahead of the store's lets no younger directory go.
        before = min(before, context.store_now() - FLOOR)
    found = find_orphans(context, before, with_versions=job.with_versions)
    if not found.orphans and not found.kept:
        return None
    # However many of the tasks run in this process, they share its pace.
    tasks = tuple(RemoveDirectory(orphan, before, job.rate_limit) for orphan in found.orphans)
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
class OrphanPlan(TablePlan):
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


_UUID = r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
_DATA_FILE = rf"(?:[01]{{24}}[0-9a-f]{{26}}|{_UUID})"
"""24 binary digits, which spread the names, and 26 hexadecimal ones; old releases took a UUID."""
_BY_LANCE_ALONE = "|".join(
    (
        rf"data/{_DATA_FILE}\.lance",
        rf"data/{_DATA_FILE}/[01]{{32}}\.blob",
        rf"_versions/d?[0-9]{{1,20}}\.manifest(?:-{_UUID})?",
        rf"_transactions/[0-9]{{1,20}}-{_UUID}\.txn",
        r"_deletions/[0-9]{1,20}-[0-9]{1,20}-[0-9]{1,20}\.(?:arrow|bin)",
        rf"_indices/{_UUID}/[^/]+",
    )
)
_BY_OTHERS_TOO = "|".join(
    (
        r"_versions/(?:latest_version_hint\.json|_latest\.manifest)",
        r"_latest\.manifest",
        r"_refs/(?:tags|branches)/[^/]+\.json",
        re.escape(RESERVED_FILE),
        re.escape(DEREGISTERED_FILE),
    )
)
_IN_TABLE = re.compile(rf"(?:tree/.+/)?(?:(?P<proof>{_BY_LANCE_ALONE})|{_BY_OTHERS_TOO})(?:#[0-9]+)?")
"""What Lance and the catalog write into the directory of a table, and below `tree` for a branch; `proof`
has a name that nobody else gives. `#` and a number: not yet whole."""


class Kind(StrEnum):
    """What a directory is that nothing names."""

    AT_HOME = "at home"
    """`<name>.lance` without a version: of a create in the directory of its name."""
    OWN = "own"
    """A directory made up by the catalog, without a version: of a create, or of a job that writes files."""
    WITH_VERSIONS = "with versions"
    """The same with a version: of a create that died just before its row came, or a deregistered table."""


class Kept(StrEnum):
    """Why a directory that nothing names stays."""

    YOUNG = "young"
    UNKNOWN_AGE = "of unknown age"
    WITH_VERSIONS = "with versions"
    CLONED = "read by clones"
    DECLARED = "declared"
    DAMAGED = "with a damaged marker"
    """`scrub` says which file, and what to do about it."""
    FOREIGN = "foreign"
    """Not of a kind that the catalog makes, with a file in it that is none of a table, or without one that
    only Lance writes."""


@dataclass(frozen=True, slots=True)
class Orphan:
    """A directory that may go."""

    directory: str
    kind: Kind
    files: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Findings:
    """What a look at the root showed."""

    orphans: tuple[Orphan, ...]
    kept: tuple[tuple[str, Kept], ...]

    def note(self) -> str:
        """Tell what stays, and why."""
        counts = Counter(why for _, why in self.kept)
        return ", ".join(f"{counts[why]} {why}" for why in Kept if counts[why])


def find_orphans(context: Context, before: datetime, *, with_versions: bool) -> Findings:
    """Look for directories that nothing names and of which every file was written before a moment.

    Raises:
        UnsupportedOperationError: the root has a manifest, and the catalog is opened without it.
        InvalidTableStateError: directories with versions may go, and a table cannot be read that may be a
            clone of one.
    """
    # First the directories, then the rows: one that gets its row in between is not taken for an orphan.
    directories = context.storage.list_level("").directories
    if context.manifest is None and MANIFEST_DIRECTORY in directories:
        raise UnsupportedOperationError(
            "this root has a manifest that may refer to the directories: "
            "open the catalog with manifest_enabled=true",
            hint=ENABLE_MANIFEST,
        )
    named = _named(context)
    kinds = {each: kind_of(context, each) for each in sorted(directories) if not _is_ours(each, named)}
    cloned = _read_by_clones(context, kinds) if with_versions else frozenset[str]()
    orphans: list[Orphan] = []
    kept: list[tuple[str, Kept]] = []
    for directory, kind in kinds.items():
        if kind is None:
            continue
        if directory in cloned:
            kept.append((directory, Kept.CLONED))
        elif isinstance(kind, Kind) and not (kind is Kind.WITH_VERSIONS and not with_versions):
            found = measure(files_of(context, directory), before)
            if isinstance(found, Kept):
                kept.append((directory, found))
            else:
                orphans.append(Orphan(directory, kind, len(found), sum(each.size for each in found)))
        else:
            kept.append((directory, Kept.WITH_VERSIONS if isinstance(kind, Kind) else kind))
    return Findings(tuple(orphans), tuple(kept))


def _is_ours(directory: str, named: frozenset[str]) -> bool:
    """Tell whether a directory is the catalog's own, or one that rows name."""
    ours = directory in (MANIFEST_DIRECTORY, POLICY_DIRECTORY) or directory.startswith(LAYOUT_KEY)
    return ours or directory in named


def _read_by_clones(context: Context, kinds: Mapping[str, Kind | Kept | None]) -> frozenset[str]:
    """Return the directories with versions of which a table that stays reads files.

    Raises:
        InvalidTableStateError: a table cannot be read, so nobody can tell what it names.
    """
    chosen = {each for each, kind in kinds.items() if kind is Kind.WITH_VERSIONS}
    if not chosen:
        return frozenset()
    bases = {base.split("/")[0] for clone in find_clones(context, besides=chosen) for base in clone.bases}
    return frozenset(chosen & bases)


def _named(context: Context) -> frozenset[str]:
    """Return the top directories that rows lead to or below, and those of names that rows keep."""
    if context.manifest is None:
        return frozenset()
    return frozenset(_names_of_rows(context.manifest.latest().all_rows()))


def _names_of_rows(rows: Iterable[object]) -> Iterator[str]:
    for row in rows:
        assert isinstance(row, dict)  # of Arrow's rows
        yield f"{row['object_id']}{TABLE_SUFFIX}"
        if row["location"]:
            yield str(row["location"]).strip("/").split("/")[0]


def kind_of(context: Context, directory: str) -> Kind | Kept | None:
    """Tell what a directory is that no row names; None when it is a table, or a marker tells about it."""
    if directory.endswith(TABLE_SUFFIX):
        name = directory.removesuffix(TABLE_SUFFIX)
        if why_unusable(name) is not None or not context.settings.dir_listing:
            return Kept.FOREIGN
        try:
            home = inspect_name(context, name, bodies=Bodies.ALL)
        except InvalidTableStateError:
            return Kept.DAMAGED
        # Leftovers are hidden like a dropped table while they are removed.
        return None if home.has_versions or home.reserved else Kind.AT_HOME
    if context.manifest is None or not HASHED_DIRECTORY.fullmatch(directory):
        return Kept.FOREIGN
    versions, reserved, hidden = (
        f"{directory}/{VERSIONS_DIRECTORY}/",
        f"{directory}/{RESERVED_FILE}",
        f"{directory}/{DEREGISTERED_FILE}",
    )
    present = context.storage.which_exist([versions, reserved, hidden])
    if versions in present:
        return Kind.WITH_VERSIONS
    return Kept.DECLARED if present else Kind.OWN


def files_of(context: Context, directory: str) -> Iterator[ObjectInfo]:
    """Yield the files of a directory with their times as the catalog's clock shows them."""
    for info in context.storage.list_recursive(directory):
        modified = None if info.modified is None else context.clock.at_store(info.modified)
        yield replace(info, modified=modified)


def measure(infos: Iterable[ObjectInfo], before: datetime) -> list[ObjectInfo] | Kept:
    """Return the files of a directory of the root if all are of a table and old, else why not."""
    found = list(infos)
    if not found or any(each.modified is None for each in found):
        return Kept.UNKNOWN_AGE
    # A name tells little: `20260101_backup` looks as if the catalog had made it up.
    names = [_IN_TABLE.fullmatch(each.key.partition("/")[2]) for each in found]
    if not all(names) or not any(name is not None and name["proof"] for name in names):
        return Kept.FOREIGN
    if any(each.modified is not None and each.modified >= before for each in found):
        return Kept.YOUNG
    return found
