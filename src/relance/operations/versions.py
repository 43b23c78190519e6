"""The versions of a table: list, describe, create from a staged manifest, delete."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass

from lance_namespace import (
    BatchCreateTableVersionsRequest,
    BatchCreateTableVersionsResponse,
    BatchDeleteTableVersionsRequest,
    BatchDeleteTableVersionsResponse,
    CreateTableVersionEntry,
    CreateTableVersionRequest,
    CreateTableVersionResponse,
    DescribeTableVersionRequest,
    DescribeTableVersionResponse,
    ListTableVersionsRequest,
    ListTableVersionsResponse,
    TableVersion,
)

from relance.errors import (
    ConcurrentModificationError,
    InvalidInputError,
    InvalidTableStateError,
    KeyExistsError,
    KeyNotFoundError,
    OutcomeUnknownError,
    TableVersionAlreadyExistsError,
    TableVersionNotFoundError,
)
from relance.listing.manifest_files import (
    ManifestFile,
    list_manifests,
    manifest_key,
    parse_scheme,
    version_of,
)
from relance.locations import VERSIONS_DIRECTORY
from relance.manifest.schema import manages_versions
from relance.operations.context import Context
from relance.operations.places import table_id_of, visible_table


def is_managed(context: Context) -> bool:
    """Tell whether clients are to commit versions through the catalog."""
    if context.settings.table_version_tracking:
        return True
    return context.manifest is not None and manages_versions(context.manifest.latest().metadata)


def list_table_versions(context: Context, request: ListTableVersionsRequest) -> ListTableVersionsResponse:
    """Return the versions, oldest first unless asked otherwise, a page at a time.

    Raises:
        TableNotFoundError, TableBranchNotFoundError: there is no such table or branch.
        InvalidInputError: the page token is none of ours.
    """
    found = visible_table(context, table_id_of(context, request.id))
    manifests = list_manifests(context.storage, found.directory, request.branch)
    if request.descending:
        manifests = manifests[::-1]
    if request.page_token:
        after = _parse_token(request.page_token)
        manifests = [m for m in manifests if (m.version < after if request.descending else m.version > after)]
    unlimited = request.limit is None or request.limit < 0
    page = manifests if unlimited else manifests[: request.limit]
    token = str(page[-1].version) if page and len(page) < len(manifests) else None
    return ListTableVersionsResponse(versions=[_describe(context, each) for each in page], page_token=token)


def describe_table_version(
    context: Context, request: DescribeTableVersionRequest
) -> DescribeTableVersionResponse:
    """Return one version, the latest when none is named.

    Raises:
        TableNotFoundError, TableBranchNotFoundError, TableVersionNotFoundError
    """
    found = visible_table(context, table_id_of(context, request.id))
    table_id = found.table_id
    manifests = list_manifests(context.storage, found.directory, request.branch)
    if request.version is None:
        chosen = manifests[-1] if manifests else None
        what = f"latest version for table id '{table_id}'"
    else:
        chosen = next((each for each in manifests if each.version == request.version), None)
        what = f"version {request.version} of table id '{table_id}'"
    if chosen is None:
        raise TableVersionNotFoundError(what)
    return DescribeTableVersionResponse(version=_describe(context, chosen))


@dataclass(frozen=True, slots=True)
class _NewVersion:
    """A checked request for a version: where its manifest is staged and where it goes."""

    table: str
    """The id."""
    directory: str
    version: int
    branch: str | None
    staging: str
    body: bytes
    target: str


def create_table_version(context: Context, request: CreateTableVersionRequest) -> CreateTableVersionResponse:
    """Make the staged manifest the next version, if nobody else has: put-if-not-exists.

    Raises:
        TableNotFoundError: there is no such table.
        TableVersionAlreadyExistsError: the version exists with other content.
        ConcurrentModificationError: the version is not the one after the latest.
        InvalidInputError: the staged manifest is missing or outside the table.
    """
    return CreateTableVersionResponse(version=_put_version(context, _check(context, request)))


def batch_create_table_versions(
    context: Context, request: BatchCreateTableVersionsRequest
) -> BatchCreateTableVersionsResponse:
    """Create several versions, one after another; all are checked before the first is made.

    Raises:
        As create_table_version; versions made before a failure stay.
    """
    checked = [_check(context, entry) for entry in request.entries]
    _check_sequence(context, checked)
    return BatchCreateTableVersionsResponse(versions=[_put_version(context, each) for each in checked])


def batch_delete_table_versions(
    context: Context, request: BatchDeleteTableVersionsRequest
) -> BatchDeleteTableVersionsResponse:
    """Delete the manifests in the given ranges; versions that are not there count as nothing.

    Raises:
        TableNotFoundError, TableBranchNotFoundError: there is no such table or branch.
        InvalidTableStateError: no version would be left.
        InvalidInputError: a range is upside down.
    """
    found = visible_table(context, table_id_of(context, request.id))
    table_id = found.table_id
    ranges = [_parse_range(each.start_version, each.end_version) for each in request.ranges]
    manifests = list_manifests(context.storage, found.directory, request.branch)
    doomed = [each for each in manifests if any(each.version in versions for versions in ranges)]
    if doomed and len(doomed) == len(manifests):
        raise InvalidTableStateError(
            f"table id '{table_id}' would be left without any version: use drop_table to remove it"
        )
    context.storage.delete_many(each.info.key for each in doomed)
    return BatchDeleteTableVersionsResponse(deleted_count=len(doomed))


def _check_sequence(context: Context, batch: list[_NewVersion]) -> None:
    """Check that every entry can follow what is there and the entries before it."""
    latest: dict[tuple[str, str | None], list[int]] = {}
    for new in batch:
        place = (new.table, new.branch)
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
            if context.storage.read(same.info.key).body != new.body:
                raise TableVersionAlreadyExistsError(
                    f"version {new.version} of table id '{new.table}' already exists with different content"
                )
        else:
            _check_next(new, known[-1] if known else 0)
            known.append(new.version)


def _check_next(new: _NewVersion, latest: int) -> None:
    begins_branch = latest == 0 and new.branch not in {None, "main"}
    if new.version != latest + 1 and not begins_branch:
        raise ConcurrentModificationError(
            f"version {new.version} of table id '{new.table}' cannot follow version {latest}: "
            f"expected {latest + 1}"
        )


def _parse_range(start: int, end: int) -> range:
    if start < 0 or end < -1 or (end != -1 and end < start):
        raise InvalidInputError(f"version range {start}..{end} is upside down: end is exclusive, -1 is open")
    return range(start, 2**64 if end == -1 else end)


def _check(context: Context, entry: CreateTableVersionRequest | CreateTableVersionEntry) -> _NewVersion:
    found = visible_table(context, table_id_of(context, entry.id))
    scheme = parse_scheme(entry.naming_scheme)
    if entry.version < 1:
        raise InvalidInputError(f"version must be 1 or more, got {entry.version}")
    staging = _staging_key(context, found.directory, entry.manifest_path)
    target = manifest_key(found.directory, entry.branch, entry.version, scheme)
    try:
        body = context.storage.read(staging).body
    except KeyNotFoundError as cause:
        raise InvalidInputError(f"staging manifest not found at {entry.manifest_path!r}") from cause
    return _NewVersion(
        str(found.table_id), found.directory, entry.version, entry.branch, staging, body, target
    )


def _staging_key(context: Context, directory: str, path: str) -> str:
    """Return the key of a staged manifest, which may be given as a URI or relative to the store."""
    base = _store_path(context, directory) + "/"
    in_store = _in_store(context, path)
    relative = in_store.removeprefix(base)
    if relative == in_store or any(part in {"", ".", ".."} for part in relative.split("/")):
        raise InvalidInputError(f"staging manifest {path!r} is not inside the table at {base!r}")
    folder, _, file = relative.rpartition("/")
    if not folder.endswith(VERSIONS_DIRECTORY) or version_of(file) is not None:
        # What is staged is deleted once it is copied: never a version that is committed, never data.
        raise InvalidInputError(
            f"{path!r} is no staged manifest: it must be in {VERSIONS_DIRECTORY}/, unnumbered"
        )
    return f"{directory}/{relative}"


def _in_store(context: Context, path: str) -> str:
    """Return a path relative to the store; a URI of another store gives ""."""
    if "://" not in path:
        return path.lstrip("/")
    scheme, _, rest = path.partition("://")
    authority, _, inside = rest.partition("/")
    root_scheme, separator, root = context.connection.lance_root.partition("://")
    ours = (root_scheme, root.partition("/")[0]) if separator else ("file", "")
    return inside if (scheme, authority) == ours else ""


def _put_version(context: Context, new: _NewVersion) -> TableVersion:
    storage = context.storage
    manifests = list_manifests(storage, new.directory, new.branch, missing_ok=True)
    same = next((each for each in manifests if each.version == new.version), None)
    latest = manifests[-1].version if manifests else 0
    if same is None:
        _check_next(new, latest)
    target = same.info.key if same is not None else new.target
    if same is None:
        with suppress(KeyExistsError, OutcomeUnknownError):  # whose it is, its content tells
            storage.create(target, new.body)
    try:
        content = storage.read(target).body
    except KeyNotFoundError as cause:
        raise OutcomeUnknownError(f"version {new.version} of table '{new.table}' was not written") from cause
    if content != new.body:
        raise TableVersionAlreadyExistsError(
            f"version {new.version} of table id '{new.table}' already exists with different content"
        )
    if new.staging != target:
        storage.delete(new.staging)
    return _describe(context, ManifestFile(new.version, storage.head(target)))


def _parse_token(token: str) -> int:
    if not token.isdecimal():
        raise InvalidInputError(f"page token {token!r} is not one of ours: use the token of the page before")
    return int(token)


def _describe(context: Context, manifest: ManifestFile) -> TableVersion:
    info = manifest.info
    return TableVersion(
        version=manifest.version,
        manifest_path=_store_path(context, info.key),
        manifest_size=info.size,
        e_tag=info.e_tag,
        timestamp_millis=round(info.modified.timestamp() * 1000) if info.modified else None,
    )


def _store_path(context: Context, key: str) -> str:
    """Return a key as Lance wants manifest paths: relative to the store, not to the root."""
    root = context.connection.lance_root
    if "://" not in root:
        return f"{root}/{key}".lstrip("/")
    prefix = root.partition("://")[2].partition("/")[2]
    return f"{prefix}/{key}" if prefix else key
