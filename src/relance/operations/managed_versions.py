"""The versions of a table when the manifest keeps them: every change is one commit of rows.

What rows and files mean to each other is in version_store; versions without rows are in versions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass

from lance_namespace import (
    DescribeTableVersionRequest,
    ListTableVersionsRequest,
    ListTableVersionsResponse,
    TableVersion,
)

from relance.catalog.arbiter import after_effect
from relance.catalog.context import Context
from relance.catalog.layout import ManifestFile, list_manifests, version_of
from relance.catalog.manifest.row import Row
from relance.catalog.manifest.schema import manages_versions
from relance.catalog.manifest.store import NO_CHANGE, Change, Manifest, Snapshot, transact
from relance.catalog.register import require_home_row
from relance.catalog.resolve import find_in
from relance.catalog.version_rows.agreement import Lag, copy_staged, is_copy, lag_of, put_final, reconcile
from relance.catalog.version_rows.draft import VersionDraft, require_versions, version_taken
from relance.catalog.version_rows.management import switch_on
from relance.catalog.version_rows.rows import StagedVersion, VersionRow, rows_at, rows_of
from relance.errors import (
    ConcurrentModificationError,
    InvalidInputError,
    PermissionDeniedError,
    RelanceError,
    StorageFullError,
    TableNotFoundError,
    TableVersionNotFoundError,
)
from relance.identifiers import TableId
from relance.locations import VERSIONS_DIRECTORY
from relance.operations.version_requests import select_page, tell
from relance.storage.probe import require_create_only

_ROUNDS = 20
"""How often a commit brings rows and files in step first, while others keep writing."""

_Chosen = tuple[list[ManifestFile], str | None]


def version_keeper(context: Context) -> Manifest | None:
    """Return the manifest if it keeps the root's versions; it begins to when the settings say so."""
    manifest = context.manifest
    if manifest is None or manages_versions(manifest.latest().metadata):
        return manifest
    if not context.settings.table_version_management:
        return None
    switch_on(manifest)
    return manifest


@dataclass(frozen=True, slots=True)
class _Seen:
    """A visible table at one version of the manifest, and the files it had after that."""

    snapshot: Snapshot
    table_id: TableId
    directory: str
    has_row: bool
    files: list[ManifestFile]

    @property
    def table(self) -> str:
        return self.table_id.object_id


def _look(context: Context, snapshot: Snapshot, table_id: TableId) -> _Seen:
    found = find_in(context, snapshot, table_id)
    row = snapshot.get([table_id.object_id]).get(table_id.object_id)
    # After the snapshot: then a row that leads to a file which is not listed is of one that was removed.
    files = list_manifests(context.storage, found.directory, None)
    return _Seen(snapshot, table_id, found.directory, row is not None, files)


def list_versions(
    context: Context, manifest: Manifest, table_id: TableId, request: ListTableVersionsRequest
) -> ListTableVersionsResponse:
    """Return a page of the versions."""
    (page, token), rows = _read(context, manifest, table_id, lambda files: select_page(files, request))
    told = [tell(context, each, _metadata(rows, each.version)) for each in page]
    return ListTableVersionsResponse(versions=told, page_token=token)


def describe_version(
    context: Context, manifest: Manifest, table_id: TableId, request: DescribeTableVersionRequest
) -> TableVersion:
    """Return one version, the latest when none is named.

    Raises:
        TableVersionNotFoundError: there is no such version.
    """

    def choose(files: list[ManifestFile]) -> _Chosen:
        if request.version is None:
            return files[-1:], None
        return [each for each in files if each.version == request.version], None

    (page, _), rows = _read(context, manifest, table_id, choose)
    if not page:
        what = "latest version" if request.version is None else f"version {request.version}"
        raise TableVersionNotFoundError(f"{what} of table id '{table_id}'")
    return tell(context, page[0], _metadata(rows, page[0].version))


def _metadata(rows: dict[int, VersionRow], version: int) -> dict[str, str] | None:
    return rows[version].metadata if version in rows else None


def _read(
    context: Context, manifest: Manifest, table_id: TableId, choose: Callable[[list[ManifestFile]], _Chosen]
) -> tuple[_Chosen, dict[int, VersionRow]]:
    """Return the versions that `choose` picks and their rows, after what was committed is in its place."""
    seen = _look(context, manifest.latest(), table_id)
    chosen = choose(seen.files)
    lag, rows = lag_of(seen.snapshot, seen.table, seen.files, chosen[0])
    if lag is Lag.NONE:
        return chosen, rows
    try:
        synchronise(context, manifest, table_id)
    except (PermissionDeniedError, StorageFullError):
        if lag is Lag.FILES:
            raise
        return chosen, rows  # who may only read is told the same, just without rows
    seen = _look(context, manifest.latest(), table_id)
    chosen = choose(seen.files)
    return chosen, rows_at(seen.snapshot, seen.table, [each.version for each in chosen[0]])


def settle(context: Context, table_id: TableId) -> Snapshot | None:
    """Let versions that are committed and wait for their files get them, if there are any.

    Returns the manifest that says there can be none, so that the caller need not read it again.
    """
    snapshot = context.latest()
    if snapshot is not None and not (
        manages_versions(snapshot.metadata) or context.settings.table_version_management
    ):
        return snapshot
    manifest = version_keeper(context)
    if manifest is None:
        return None
    try:
        seen = _look(context, manifest.latest(), table_id)
    except TableNotFoundError:
        return None
    if lag_of(seen.snapshot, seen.table, seen.files)[0] is Lag.FILES:
        synchronise(context, manifest, table_id)
    return None


def record_versions(context: Context, table_id: TableId) -> None:
    """Give the versions of a table that has just come to its name their rows, if the manifest keeps versions.

    The table is there whatever becomes of this: the next look at its versions adopts what has no row.
    """
    manifest = context.manifest
    # Whoever changed the table has just read the manifest, so that this costs no request.
    with suppress(RelanceError):
        if manifest is not None and manages_versions(manifest.recent().metadata):
            synchronise(context, manifest, table_id)


def synchronise(context: Context, manifest: Manifest, table_id: TableId) -> None:
    """Bring files and rows of a table in step: finish what others began, adopt what came without us.

    Raises:
        TableNotFoundError: there is no such table.
    """
    storage = context.storage
    seen = _look(context, manifest.latest(), table_id)
    if not seen.has_row:
        require_home_row(context, table_id.parts)  # versions have rows only below the row of their table
        seen = _look(context, manifest.latest(), table_id)
    rows = rows_of(seen.snapshot, seen.table)
    gone = copy_staged(storage, seen.directory, rows, seen.files)
    doomed = {version for version, row in rows.items() if row.is_deleting}
    storage.delete_many(each.info.key for each in seen.files if each.version in doomed)

    def plan(snapshot: Snapshot) -> tuple[Change, list[VersionRow]]:
        now = _look(context, snapshot, table_id)
        if not now.has_row or now.directory != seen.directory:
            return NO_CHANGE, []
        return reconcile(
            now.table,
            rows_of(snapshot, now.table),
            now.files,
            copied=lambda row, file: is_copy(storage, now.directory, row, file),
            gone=gone,
        )

    settled = transact(manifest, plan)
    storage.delete_many(row.key(seen.directory) for row in settled)


@dataclass(frozen=True, slots=True)
class DeleteVersions:
    """Versions of a table that are to go."""

    table_id: TableId
    ranges: tuple[range, ...]
    ignore_missing: bool = True


Step = StagedVersion | DeleteVersions


@dataclass(frozen=True, slots=True)
class _Planned:
    """What a commit found: tables to bring in step first, or the keys that each step is about."""

    behind: tuple[TableId, ...] = ()
    keys: tuple[list[str], ...] = ()


@dataclass(frozen=True, slots=True)
class StepResult:
    """What became of one step: the version that was made, or how many are gone."""

    version: TableVersion | None = None
    deleted: int = 0


def commit_steps(
    context: Context,
    manifest: Manifest,
    steps: Sequence[Step],
    *,
    leaving: Sequence[TableId] = (),
    also: Callable[[Snapshot], Change] | None = None,
) -> list[StepResult]:
    """Do all steps in one commit of the manifest, or none, and then what it means for the files.

    `also` adds to the commit; the tables of `leaving` must have no version that waits for its file.

    Raises:
        OutcomeUnknownError: the commit was made, but not all that follows from it.
        TableNotFoundError: a table does not exist.
        TableVersionAlreadyExistsError: a version exists with other content.
        ConcurrentModificationError: a version is not the one after the latest.
        TableVersionNotFoundError: a version to delete is missing, and that is not to be ignored.
        InvalidTableStateError: the latest version would be deleted.
    """
    require_create_only(context.storage, to_do="committing a version")
    for step in steps:
        if isinstance(step, StagedVersion):
            _check_staging(step)

    def plan(snapshot: Snapshot) -> tuple[Change, _Planned]:
        return _plan(context, snapshot, steps, leaving, also or (lambda _: NO_CHANGE))

    for _ in range(_ROUNDS):
        planned = transact(manifest, plan)
        if not planned.behind:
            tables = ", ".join(dict.fromkeys(f"{step.table_id}" for step in steps))
            with after_effect(tables, "was committed to"):
                results, lost = _finish(context, manifest, steps, planned.keys)
                if lost and (also is not None or len(lost) < len(steps)):
                    raise version_taken(lost[0])  # the rest of the commit stays
            if lost:
                raise version_taken(lost[0])
            return results
        for table_id in planned.behind:
            synchronise(context, manifest, table_id)
    raise ConcurrentModificationError("too many concurrent commits to the table; retry")


def _check_staging(new: StagedVersion) -> None:
    if new.staging.rpartition("/")[0] != f"{new.directory}/{VERSIONS_DIRECTORY}":
        raise InvalidInputError(
            f"staging manifest {new.staging!r} is not in the same directory as the table's manifests"
        )


def _plan(
    context: Context,
    snapshot: Snapshot,
    steps: Sequence[Step],
    leaving: Sequence[TableId],
    also: Callable[[Snapshot], Change],
) -> tuple[Change, _Planned]:
    drafts: dict[TableId, VersionDraft] = {}
    behind: list[TableId] = []
    for table_id in dict.fromkeys([*(step.table_id for step in steps), *leaving]):
        seen = _look(context, snapshot, table_id)
        lag, _ = lag_of(snapshot, seen.table, seen.files)
        if lag is not Lag.NONE or not seen.has_row:
            behind.append(table_id)
        drafts[table_id] = VersionDraft(seen.table, snapshot, {each.version: each for each in seen.files})
        _check_place(seen, steps)
    if behind:
        # Who has lost already is told so, and does not wait for writers that keep coming.
        for step in steps:
            if isinstance(step, StagedVersion):
                drafts[step.table_id].check_taken(step, context.storage)
        return NO_CHANGE, _Planned(behind=tuple(behind))
    keys: list[list[str]] = []
    for step in steps:
        draft = drafts[step.table_id]
        if isinstance(step, StagedVersion):
            keys.append([draft.create(step, context.storage)])
        else:
            if not step.ignore_missing:
                require_versions(draft.table, draft.files, step.ranges)
            keys.append(draft.delete(step.ranges))
    return also(snapshot).plus(*(draft.change for draft in drafts.values())), _Planned((), tuple(keys))


def _check_place(seen: _Seen, steps: Sequence[Step]) -> None:
    staged = (each for each in steps if isinstance(each, StagedVersion) and each.table_id == seen.table_id)
    if any(each.directory != seen.directory for each in staged):
        raise ConcurrentModificationError(
            f"table id '{seen.table_id}' was replaced while its version was being committed"
        )


def _finish(
    context: Context, manifest: Manifest, steps: Sequence[Step], keys: Sequence[list[str]]
) -> tuple[list[StepResult], list[StagedVersion]]:
    """Give new versions their files, take the deleted ones theirs, and have the rows say so.

    Returns the results, and the versions that a writer that did not ask the catalog was faster to write,
    with those that were made for them.
    """
    storage = context.storage
    made: dict[int, ManifestFile] = {}
    lost: list[StagedVersion] = []
    for number, step in enumerate(steps):
        if isinstance(step, DeleteVersions):
            storage.delete_many(keys[number])
        elif any(step.table_id == other.table_id for other in lost):
            lost.append(step)  # it was made for a version before it that is another one now
        elif put_final(storage, keys[number][0], step.body):
            made[number] = ManifestFile(step.version, storage.head(keys[number][0]))
        else:
            lost.append(step)
    with suppress(RelanceError):  # all is decided; what is left undone here, the next look at the table does
        _update_rows(manifest, steps, keys, made)
        staged = [steps[number] for number in made]
        storage.delete_many(
            key for each in staged if isinstance(each, StagedVersion) for key in each.settled_keys
        )
    for table_id in dict.fromkeys(step.table_id for step in lost):
        with suppress(RelanceError):
            synchronise(context, manifest, table_id)
    results = [_result(context, step, keys[number], made.get(number)) for number, step in enumerate(steps)]
    return results, lost


def _result(context: Context, step: Step, keys: list[str], file: ManifestFile | None) -> StepResult:
    if isinstance(step, DeleteVersions) or file is None:
        return StepResult(deleted=len(keys))
    return StepResult(version=tell(context, file, dict(step.metadata)))


def _update_rows(
    manifest: Manifest, steps: Sequence[Step], keys: Sequence[list[str]], made: dict[int, ManifestFile]
) -> None:
    """Have the rows lead to the final files, and remove those of versions whose files are deleted."""

    def plan(snapshot: Snapshot) -> tuple[Change, None]:
        removed: list[str] = []
        added: list[Row] = []
        for number, step in enumerate(steps):
            if isinstance(step, DeleteVersions):
                versions = [version_of(key.rpartition("/")[2]) for key in keys[number]]
                rows = rows_at(
                    snapshot, step.table_id.object_id, [each for each in versions if each is not None]
                )
                removed += [each.manifest_row.object_id for each in rows.values() if each.is_deleting]
                continue
            row = rows_at(snapshot, step.table_id.object_id, [step.version]).get(step.version)
            if number in made and row is not None and row.key(step.directory) == step.staging:
                removed.append(row.manifest_row.object_id)
                added.append(row.final(made[number]).manifest_row)
        return Change(tuple(dict.fromkeys(removed)), tuple(added)), None

    transact(manifest, plan)
