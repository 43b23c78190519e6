"""Requests about versions, checked, and versions as they are told. What is done with them is in versions."""

from __future__ import annotations

from collections.abc import Sequence

from lance_namespace import (
    CreateTableVersionEntry,
    CreateTableVersionRequest,
    ListTableVersionsRequest,
    TableVersion,
)
from lance_namespace_urllib3_client.models.version_range import VersionRange

from relance.catalog.context import Context, table_id_of
from relance.catalog.layout import ManifestFile, manifest_key, parse_scheme, version_of
from relance.catalog.resolve import find_table
from relance.catalog.version_rows.draft import NO_END
from relance.catalog.version_rows.rows import MANIFEST_MAX_BYTES, StagedVersion, check_metadata
from relance.errors import InvalidInputError, KeyNotFoundError
from relance.locations import VERSIONS_DIRECTORY


def is_main(branch: str | None) -> bool:
    """Tell whether a request is about the table itself and none of its branches."""
    return branch in {None, "main"}


def select_page(
    files: Sequence[ManifestFile], request: ListTableVersionsRequest
) -> tuple[list[ManifestFile], str | None]:
    """Return those of the versions (oldest first) that a page of the listing shows, and the next token.

    Raises:
        InvalidInputError: the page token is none of ours.
    """
    shown = list(reversed(files)) if request.descending else list(files)
    if request.page_token:
        after = _parse_token(request.page_token)
        shown = [
            each for each in shown if (each.version < after if request.descending else each.version > after)
        ]
    unlimited = request.limit is None or request.limit < 0
    page = shown if unlimited else shown[: request.limit]
    return page, str(page[-1].version) if page and len(page) < len(shown) else None


def _parse_token(token: str) -> int:
    if not token.isdecimal():
        raise InvalidInputError(
            f"invalid page token {token!r}: use the token that the previous page returned"
        )
    return int(token)


def parse_ranges(ranges: Sequence[VersionRange]) -> tuple[range, ...]:
    """Return the ranges of versions that are asked for.

    Raises:
        InvalidInputError: one is upside down.
    """
    return tuple(_parse_range(each.start_version, each.end_version) for each in ranges)


def _parse_range(start: int, end: int) -> range:
    if start < 0 or end < -1 or (end != -1 and end < start):
        raise InvalidInputError(
            f"invalid version range {start}..{end}: end is exclusive and must not be before start; -1 "
            "means no end"
        )
    return range(start, NO_END if end == -1 else end)


def check_staged(
    context: Context, entry: CreateTableVersionRequest | CreateTableVersionEntry
) -> StagedVersion:
    """Return the version that is asked for, with its manifest.

    Raises:
        TableNotFoundError: there is no such table.
        InvalidInputError: the staged manifest is missing or outside the table.
        InvalidTableStateError: the staged manifest is too long, or no file.
    """
    found = find_table(context, table_id_of(context, entry.id))
    scheme = parse_scheme(entry.naming_scheme)
    if entry.version < 1:
        raise InvalidInputError(f"version must be 1 or more, got {entry.version}")
    staging = _staging_key(context, found.directory, entry.manifest_path)
    target = manifest_key(found.directory, entry.branch, entry.version, scheme)
    try:
        body = context.storage.read(staging, at_most=MANIFEST_MAX_BYTES).body
    except KeyNotFoundError as cause:
        raise InvalidInputError(f"staging manifest not found at {entry.manifest_path!r}") from cause
    return StagedVersion(
        table_id=found.table_id,
        directory=found.directory,
        version=entry.version,
        branch=entry.branch,
        staging=staging,
        body=body,
        target=target,
        scheme=scheme,
        metadata=check_metadata(entry.metadata),
    )


def _staging_key(context: Context, directory: str, path: str) -> str:
    """Return the key of a staged manifest, which may be given as a URI or relative to the store."""
    base = store_path(context, directory) + "/"
    in_store = _in_store(context, path)
    relative = in_store.removeprefix(base)
    if relative == in_store or any(part in {"", ".", ".."} for part in relative.split("/")):
        raise InvalidInputError(f"staging manifest {path!r} is outside the table at {base!r}")
    folder, _, file = relative.rpartition("/")
    if not folder.endswith(VERSIONS_DIRECTORY) or version_of(file) is not None:
        # What is staged is deleted once it is copied: never a version that is committed, never data.
        raise InvalidInputError(
            f"{path!r} is not a staging manifest: it must be in {VERSIONS_DIRECTORY}/ and must "
            "not have a version number"
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


def tell(context: Context, manifest: ManifestFile, metadata: dict[str, str] | None = None) -> TableVersion:
    """Return a version as clients are told of it."""
    info = manifest.info
    return TableVersion(
        version=manifest.version,
        manifest_path=store_path(context, info.key),
        manifest_size=info.size,
        e_tag=info.e_tag,
        timestamp_millis=round(info.modified.timestamp() * 1000) if info.modified else None,
        metadata=metadata or None,
    )


def store_path(context: Context, key: str) -> str:
    """Return a key as Lance wants manifest paths: relative to the store, not to the root."""
    root = context.connection.lance_root
    if "://" not in root:
        return f"{root}/{key}".lstrip("/")
    prefix = root.partition("://")[2].partition("/")[2]
    return f"{prefix}/{key}" if prefix else key
