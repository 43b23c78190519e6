"""The versions of a table: list, describe, create from a staged manifest, delete.

Here the manifest files alone count. When the catalog's manifest keeps versions as rows, which branches
never have, managed_versions takes over.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext

from lance_namespace import (
    BatchCreateTableVersionsRequest,
    BatchCreateTableVersionsResponse,
    BatchDeleteTableVersionsRequest,
    BatchDeleteTableVersionsResponse,
    CreateTableVersionRequest,
    CreateTableVersionResponse,
    DescribeTableVersionRequest,
    DescribeTableVersionResponse,
    ListTableVersionsRequest,
    ListTableVersionsResponse,
    TableVersion,
)

from relance.catalog.arbiter import after_effect
from relance.catalog.context import Context, table_id_of
from relance.catalog.layout import ManifestFile, list_manifests
from relance.catalog.manifest.schema import manages_versions
from relance.catalog.resolve import find_table
from relance.catalog.version_rows.agreement import put_final
from relance.catalog.version_rows.draft import check_next, require_versions, version_taken
from relance.catalog.version_rows.rows import MANIFEST_MAX_BYTES, StagedVersion
from relance.config import parse_flag
from relance.errors import InvalidTableStateError, TableVersionNotFoundError, UnsupportedOperationError
from relance.operations import managed_versions
from relance.operations.managed_versions import DeleteVersions, commit_steps, version_keeper
from relance.operations.version_requests import check_staged, is_main, parse_ranges, select_page, tell


def is_managed(context: Context) -> bool:
    """Tell whether clients are to commit versions through the catalog."""
    if context.settings.table_version_tracking or context.manifest is None:
        return context.settings.table_version_tracking
    if context.settings.table_version_management:
        return version_keeper(context) is not None
    # A root begins to keep versions once and goes on: a few seconds' delay does no harm.
    return manages_versions(context.manifest.recent().metadata)


def list_table_versions(context: Context, request: ListTableVersionsRequest) -> ListTableVersionsResponse:
    """Return the versions, oldest first unless asked otherwise, a page at a time.

    Raises:
        TableNotFoundError, TableBranchNotFoundError: there is no such table or branch.
        InvalidInputError: the page token is none of ours.
    """
    table_id = table_id_of(context, request.id)
    if is_main(request.branch) and (keeper := version_keeper(context)) is not None:
        return managed_versions.list_versions(context, keeper, table_id, request)
    found = find_table(context, table_id)
    files = list_manifests(context.storage, found.directory, request.branch)
    page, token = select_page(files, request)
    return ListTableVersionsResponse(versions=[tell(context, each) for each in page], page_token=token)


def describe_table_version(
    context: Context, request: DescribeTableVersionRequest
) -> DescribeTableVersionResponse:
    """Return one version, the latest when none is named.

    Raises:
        TableNotFoundError, TableBranchNotFoundError, TableVersionNotFoundError
    """
    table_id = table_id_of(context, request.id)
    if is_main(request.branch) and (keeper := version_keeper(context)) is not None:
        version = managed_versions.describe_version(context, keeper, table_id, request)
        return DescribeTableVersionResponse(version=version)
    found = find_table(context, table_id)
    manifests = list_manifests(context.storage, found.directory, request.branch)
    if request.version is None:
        chosen = manifests[-1] if manifests else None
        what = f"latest version for table id '{table_id}'"
    else:
        chosen = next((each for each in manifests if each.version == request.version), None)
        what = f"version {request.version} of table id '{table_id}'"
    if chosen is None:
        raise TableVersionNotFoundError(what)
    return DescribeTableVersionResponse(version=tell(context, chosen))


def create_table_version(context: Context, request: CreateTableVersionRequest) -> CreateTableVersionResponse:
    """Make the staged manifest the next version, if nobody else has: put-if-not-exists.

    Raises:
        TableNotFoundError: there is no such table.
        TableVersionAlreadyExistsError: the version exists with other content.
        ConcurrentModificationError: the version is not the one after the latest.
        InvalidInputError: the staged manifest is missing or outside the table.
    """
    new = check_staged(context, request)
    if is_main(new.branch) and (keeper := version_keeper(context)) is not None:
        (result,) = commit_steps(context, keeper, [new])
        return CreateTableVersionResponse(version=result.version)
    return CreateTableVersionResponse(version=_put_version(context, new))


def batch_create_table_versions(
    context: Context, request: BatchCreateTableVersionsRequest
) -> BatchCreateTableVersionsResponse:
    """Create several versions: all or none if the manifest keeps them, else one after another.

    Raises:
        As create_table_version.
        OutcomeUnknownError: one failed without rows; those before it stay.
        UnsupportedOperationError: one of several is of a branch, which has no rows.
    """
    checked = [check_staged(context, entry) for entry in request.entries]
    keeper = version_keeper(context)
    if keeper is not None and all(is_main(each.branch) for each in checked):
        results = commit_steps(context, keeper, checked) if checked else []
        made = [each.version for each in results if each.version is not None]
        return BatchCreateTableVersionsResponse(versions=made)
    if keeper is not None and len(checked) > 1:
        raise UnsupportedOperationError(
            "versions of branches are not in the manifest, so several cannot be created "
            "atomically: create them one by one"
        )
    _check_sequence(context, checked)
    versions: list[TableVersion] = []
    for new in checked:
        with after_effect(new.table_id.object_id, "got some of the versions") if versions else nullcontext():
            versions.append(_put_version(context, new))
    return BatchCreateTableVersionsResponse(versions=versions)


def parse_ignore_missing(given: object, context: Mapping[str, str] | None) -> bool:
    """Return what a request says about versions that are not there; they are ignored by default.

    Raises:
        InvalidInputError: it is neither true nor false.
    """
    wish = (context or {}).get("ignore_missing", "true") if given is None else given
    return wish if isinstance(wish, bool) else parse_flag(str(wish), what="ignore_missing")


def batch_delete_table_versions(
    context: Context, request: BatchDeleteTableVersionsRequest, *, ignore_missing: bool = True
) -> BatchDeleteTableVersionsResponse:
    """Delete the manifests in the given ranges, all that are there or, if one is missing, none.

    Raises:
        TableVersionNotFoundError: a version is missing, and that is not to be ignored.
        TableNotFoundError, TableBranchNotFoundError: there is no such table or branch.
        InvalidTableStateError: no version would be left, or, if the manifest keeps them, not the latest.
        InvalidInputError: a range is upside down.
    """
    table_id = table_id_of(context, request.id)
    ranges = parse_ranges(request.ranges)
    if is_main(request.branch) and (keeper := version_keeper(context)) is not None:
        (result,) = commit_steps(context, keeper, [DeleteVersions(table_id, ranges, ignore_missing)])
        return BatchDeleteTableVersionsResponse(deleted_count=result.deleted)
    found = find_table(context, table_id)
    manifests = list_manifests(context.storage, found.directory, request.branch)
    if not ignore_missing:
        require_versions(f"{table_id}", [each.version for each in manifests], ranges)
    doomed = [each for each in manifests if any(each.version in versions for versions in ranges)]
    if doomed and len(doomed) == len(manifests):
        raise InvalidTableStateError(
            f"table id '{table_id}' would have no versions left: use drop_table to remove it"
        )
    context.storage.delete_many(each.info.key for each in doomed)
    return BatchDeleteTableVersionsResponse(deleted_count=len(doomed))


def _check_sequence(context: Context, batch: list[StagedVersion]) -> None:
    """Check that every entry can follow what is there and the entries before it."""
    latest: dict[tuple[str, str | None], list[int]] = {}
    for new in batch:
        place = (new.directory, new.branch)
        if place not in latest:
            manifests = list_manifests(context.storage, new.directory, new.branch, missing_ok=True)
            latest[place] = [each.version for each in manifests]
        known = latest[place]
        if new.version in known:
            same = next(
                m
                for m in list_manifests(context.storage, new.directory, new.branch)
                if m.version == new.version
            )
            if context.storage.read(same.info.key, at_most=MANIFEST_MAX_BYTES).body != new.body:
                raise version_taken(new)
        else:
            check_next(new, known[-1] if known else 0)
            known.append(new.version)


def _put_version(context: Context, new: StagedVersion) -> TableVersion:
    storage = context.storage
    manifests = list_manifests(storage, new.directory, new.branch, missing_ok=True)
    same = next((each for each in manifests if each.version == new.version), None)
    if same is None:
        check_next(new, manifests[-1].version if manifests else 0)
    target = same.info.key if same is not None else new.target
    if not put_final(storage, target, new.body):
        raise version_taken(new)
    for key in new.settled_keys:
        if key != target:
            storage.delete(key)
    return tell(context, ManifestFile(new.version, storage.head(target)))
