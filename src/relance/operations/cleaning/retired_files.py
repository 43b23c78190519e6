"""Delete the files of versions that go, in tasks: first the manifests of those versions, then the files.

So no version that is listed ever misses a file. Whoever stops in between leaves files that no version
names; the next cleanup takes them when they are seven days old, as it takes any such file.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any

import lance

from relance.catalog.context import Context
from relance.catalog.layout import ManifestFile, version_of
from relance.catalog.resolve import find_table
from relance.errors import (
    ConcurrentModificationError,
    InternalError,
    KeyNotFoundError,
    TableNotFoundError,
)
from relance.identifiers import TableId
from relance.lance_io import lance_errors, open_at
from relance.operations.cleaning.pacing import paced
from relance.operations.cleaning.policy import CleanupPolicy
from relance.operations.targets import Target
from relance.operations.version_requests import is_main

NO_VERSION_IS_SO_OLD = timedelta(days=365 * 1000)
"""Has Lance remove no version, only files that were never committed."""

_PER_TASK = 5_000
_TASKS_OF_A_RATE = 4
"""So few share a rate: however many of them run at once, each has its part of it."""
_SECONDS_PER_FILE = 0.002
_ALL = 100_000_000

Ref = tuple[str, str, int]
"""What keeps a version: `tag` or `branch`, its name, and the version of main that it names."""


@dataclass(frozen=True, slots=True)
class Removed:
    """What one task deleted."""

    files: int = 0
    bytes: int = 0
    kept: int = 0
    """Files that a version names again that came since the plan."""


@dataclass(frozen=True, slots=True)
class RetiredVersions:
    """The versions of a table that go, as they were planned."""

    table_id: TableId
    directory: str
    planned: int
    """The version that was the latest."""
    head: tuple[str, str | None]
    """The manifest of that version, and what identifies its bytes: a later table has another one."""
    refs: frozenset[Ref]
    versions: frozenset[int]
    manifests: tuple[tuple[str, int], ...] = ()
    """Of these versions, the oldest first, as far as Lance lets them go."""
    opened: lance.LanceDataset | None = field(default=None, compare=False, repr=False)
    """The table as it was opened for the plan, for tasks in the same process."""

    @staticmethod
    def of(
        context: Context,
        target: Target,
        latest: ManifestFile,
        refs: frozenset[Ref],
        versions: Iterable[int],
    ) -> RetiredVersions:
        """Note what identifies the table that was opened: the manifest of its latest version."""
        found, key = target.found, latest.info.key
        return RetiredVersions(
            found.table_id,
            found.directory,
            latest.version,
            (key, _identity(context, key)),
            refs,
            frozenset(versions),
            opened=target.dataset,
        )

    def __reduce__(self) -> tuple[Any, ...]:
        # An opened table stays where it is; whoever gets this opens it again.
        kept = (self.table_id, self.directory, self.planned, self.head)
        return RetiredVersions, (*kept, self.refs, self.versions, self.manifests)

    def retire(self, context: Context, rate: float | None, *, tasks: int) -> lance.LanceDataset:
        """Make sure that the manifests of these versions are gone and that nothing came to name them.

        So many `tasks` do this at the rate together. Returns the table, opened at some version.

        Raises:
            ConcurrentModificationError: it is another table now, or a tag or a branch came since the plan.
        """
        self._require_same(context)
        dataset = self.opened if self.opened is not None else self._open(context)
        self._refuse_new_refs(context, dataset)
        left = [f"{self.directory}/{path}" for path, _ in self.manifests]
        # Mostly another task was here before; a disk is as fast at removing what is gone as at telling so.
        if rate is not None or not context.storage.cheap_lookups:
            there = context.storage.which_exist(left)
            left = [key for key in left if key in there]
        for number, batch in enumerate(paced(left, rate, tasks=tasks)):
            if number or rate is not None:  # time has passed since the look above
                self._require_same(context)
                self._refuse_new_refs(context, dataset)
            context.storage.delete_many(batch)
        # Again: a branch that began meanwhile at one of them reads its files. A version without a
        # manifest cannot be tagged or branched, so nothing comes after this look.
        self._refuse_new_refs(context, dataset)
        return dataset

    def _open(self, context: Context) -> lance.LanceDataset:
        return open_at(context.location_of(self.directory), context.lance_options(), f"{self.table_id}")

    def _require_same(self, context: Context) -> None:
        """Check that the name still leads to the table that was planned for.

        Manifests of a later table in the same directory have the same names.
        """
        try:
            same = find_table(context, self.table_id).directory == self.directory
        except TableNotFoundError:
            same = False
        if not same or _identity(context, self.head[0]) != self.head[1]:
            raise ConcurrentModificationError(
                f"table id '{self.table_id}' was dropped, renamed or cleaned up by another client; retry"
            )

    def _refuse_new_refs(self, context: Context, dataset: lance.LanceDataset) -> None:
        with lance_errors(f"table id '{self.table_id}'", context.lance_options()):
            now = named_by_refs(dataset)
        new = sorted(name for _, name, version in now - self.refs if version in self.versions)
        if new:
            raise ConcurrentModificationError(
                f"table id '{self.table_id}': '{new[0]}' now refers to a version to be removed; retry"
            )

    def named_since(self, context: Context, dataset: lance.LanceDataset) -> frozenset[str]:
        """Return the files that versions name which came since the plan: one may be a restored old one."""
        with lance_errors(f"table id '{self.table_id}'", context.lance_options()):
            if int(dataset.latest_version) <= self.planned:
                return frozenset()
            return frozenset(each["path"] for each in _rows(self._open(context), self.planned + 1))


def named_by_refs(dataset: lance.LanceDataset) -> frozenset[Ref]:
    """Return the tags and branches that name versions of main."""
    tags = {
        ("tag", name, int(each["version"]))
        for name, each in dataset.tags.list().items()
        if is_main(each.get("branch"))
    }
    branches = {
        ("branch", name, int(each["parent_version"]))
        for name, each in dataset.branches.list().items()
        if is_main(each.get("parent_branch"))
    }
    return frozenset(tags | branches)


def _rows(dataset: lance.LanceDataset, least: int) -> Iterable[dict[str, Any]]:
    for batch in dataset.tracked_files(min_version=least):
        yield from batch.to_pylist()


def _identity(context: Context, key: str) -> str | None:
    try:
        return context.storage.head(key).e_tag
    except KeyNotFoundError:
        return None


@dataclass(frozen=True, slots=True)
class DeleteFiles:
    """Deletes some of the files that go. Their names are never used again, so twice does no harm."""

    retired: RetiredVersions
    files: tuple[tuple[str, int], ...]
    rate: float | None
    """Files per second."""
    tasks: int
    """How many keep the rate together."""
    weight: float

    def run(self, context: Context) -> Removed:
        dataset = self.retired.retire(context, self.rate, tasks=self.tasks)
        again = self.retired.named_since(context, dataset)
        files = [each for each in self.files if each[0] not in again]
        for batch in paced(files, self.rate, tasks=self.tasks):
            context.storage.delete_many(f"{self.retired.directory}/{path}" for path, _ in batch)
        return Removed(len(files), sum(each[1] for each in files), len(self.files) - len(files))


@dataclass(frozen=True, slots=True)
class OldFile:
    """A file that Lance lets go."""

    path: str
    """Relative to the table's directory."""
    size: int
    kind: str
    """As Lance calls it."""


@dataclass(frozen=True, slots=True)
class Removal:
    """The files of a table that go, and the tasks that delete them."""

    retired: RetiredVersions
    files: tuple[OldFile, ...]
    """The manifests among them."""
    tasks: tuple[DeleteFiles, ...]
    kept_for_clones: int


def plan_removal(
    context: Context,
    target: Target,
    chosen: Sequence[int],
    policy: CleanupPolicy,
    cloned: frozenset[str],
    listed: Sequence[ManifestFile],
) -> Removal | None:
    """Have Lance name the files that go with the chosen versions, and cut up all but those of clones."""
    with target.errors():
        refs = named_by_refs(target.dataset)  # first: one that comes later is noticed
    found = files_to_remove(context, target, chosen, policy)
    files = tuple(each for each in found if each.kind == _MANIFEST or each.path not in cloned)
    if not files:
        return None
    # The oldest first: what is left when it ends early has no gaps.
    manifests = sorted((each for each in files if each.kind == _MANIFEST), key=_version_in)
    others = [(each.path, each.size) for each in files if each.kind != _MANIFEST]
    retired = RetiredVersions.of(context, target, listed[-1], refs, chosen)
    retired = replace(retired, manifests=tuple((each.path, each.size) for each in manifests))
    rate = policy.rate_limit
    count = max(1, -(-len(others) // _PER_TASK))
    count = count if rate is None else min(count, _TASKS_OF_A_RATE)
    share = None if rate is None else rate / count
    parts = [tuple(others[number::count]) for number in range(count)]
    tasks = tuple(DeleteFiles(retired, part, rate, count, _weight(len(part), share)) for part in parts)
    return Removal(retired, files, tasks, len(found) - len(files))


_MANIFEST = "manifest"


def _version_in(manifest: OldFile) -> int:
    return version_of(manifest.path.rpartition("/")[2]) or 0


def _weight(files: int, rate: float | None) -> float:
    return max(files * _SECONDS_PER_FILE, files / rate if rate else 0.0)


def files_to_remove(
    context: Context, target: Target, chosen: Sequence[int], policy: CleanupPolicy
) -> list[OldFile]:
    """Return the files that Lance lets go with the chosen versions, relative to the table's directory.

    Raises:
        InternalError: Lance names a file elsewhere, or cannot list them all.
    """
    directory = target.found.directory
    with target.errors():
        explained = target.dataset.explain_cleanup_old_versions(
            older_than=None if chosen else NO_VERSION_IS_SO_OLD,
            versions=list(chosen) or None,
            delete_unverified=policy.delete_unverified,
            error_if_tagged_old_versions=False,
            include_files=True,
            max_files=_ALL,
        )
    if explained.candidate_files_truncated:
        raise InternalError(f"the table at '{directory}' has more files to remove than Lance can list")
    before = "/".join(each for each in (context.root.path.strip("/"), directory) if each) + "/"
    found = []
    for each in explained.candidate_files:
        if not each.path.startswith(before):
            raise InternalError(
                f"Lance would remove '{each.path}', which is outside '{before}'; nothing was removed"
            )
        found.append(OldFile(each.path[len(before) :], int(each.size_bytes or 0), str(each.kind)))
    return found
