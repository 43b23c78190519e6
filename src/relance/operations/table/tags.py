"""Tags of a table: names for versions."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import lance
from lance_namespace import (
    CreateTableTagRequest,
    CreateTableTagResponse,
    DeleteTableTagRequest,
    DeleteTableTagResponse,
    GetTableTagVersionRequest,
    GetTableTagVersionResponse,
    ListTableTagsRequest,
    ListTableTagsResponse,
    UpdateTableTagRequest,
    UpdateTableTagResponse,
)
from lance_namespace_urllib3_client.models.tag_contents import TagContents

from relance.catalog.context import Context
from relance.errors import InvalidInputError, TableTagAlreadyExistsError, TableTagNotFoundError
from relance.operations.paging import page_of
from relance.operations.table.opening import reading
from relance.operations.table.ref_files import is_gone, read_refs
from relance.operations.table.refs import check_tag_name
from relance.operations.version_requests import is_main


def list_table_tags(context: Context, request: ListTableTagsRequest) -> ListTableTagsResponse:
    """Return the tags, sorted by name, a page at a time.

    Raises:
        TableNotFoundError: there is no such table.
    """
    with reading(context, request.id) as dataset:
        found = read_refs(dataset.tags.list)
    page, token = page_of(sorted(found, key=str.encode), token=request.page_token, limit=request.limit)
    return ListTableTagsResponse(tags={name: _tell(found[name]) for name in page}, page_token=token)


def _tell(tag: Any) -> TagContents:
    return TagContents(branch=tag["branch"], version=tag["version"], manifestSize=tag["manifest_size"])


def get_table_tag_version(context: Context, request: GetTableTagVersionRequest) -> GetTableTagVersionResponse:
    """Return the version that a tag names, and its branch unless that is main.

    Raises:
        TableTagNotFoundError: there is no such tag.
    """
    with reading(context, request.id) as dataset:
        tag = _require(dataset, request.tag)
        return GetTableTagVersionResponse(version=tag["version"], branch=tag["branch"])


def create_table_tag(context: Context, request: CreateTableTagRequest) -> CreateTableTagResponse:
    """Name a version.

    Raises:
        TableTagAlreadyExistsError: the name is taken.
        TableVersionNotFoundError, TableBranchNotFoundError: there is no such version or branch.
        InvalidInputError: not a usable name or version.
    """
    check_tag_name(request.tag)
    with _at_version(context, request) as dataset:
        if request.tag in read_refs(dataset.tags.list):
            raise TableTagAlreadyExistsError(f"'{request.tag}': use update_table_tag to move it")
        try:
            dataset.tags.create(request.tag, _reference(request))
        except ValueError as cause:
            if "already exists" in str(cause):
                raise TableTagAlreadyExistsError(
                    f"'{request.tag}': use update_table_tag to move it"
                ) from cause
            raise
    return CreateTableTagResponse()


def update_table_tag(context: Context, request: UpdateTableTagRequest) -> UpdateTableTagResponse:
    """Let a tag name another version.

    Raises:
        TableTagNotFoundError: there is no such tag.
        TableVersionNotFoundError, TableBranchNotFoundError: there is no such version or branch.
        InvalidInputError: not a usable version.
    """
    with _at_version(context, request) as dataset:
        _require(dataset, request.tag)
        with _going(request.tag):
            dataset.tags.update(request.tag, _reference(request))
    return UpdateTableTagResponse()


def delete_table_tag(context: Context, request: DeleteTableTagRequest) -> DeleteTableTagResponse:
    """Remove a tag; the version stays.

    Raises:
        TableTagNotFoundError: there is no such tag.
    """
    with reading(context, request.id) as dataset:
        _require(dataset, request.tag)
        with _going(request.tag):
            dataset.tags.delete(request.tag)
    return DeleteTableTagResponse()


@contextmanager
def _at_version(
    context: Context, request: CreateTableTagRequest | UpdateTableTagRequest
) -> Iterator[lance.LanceDataset]:
    """Give the dataset of a request at its version, which is there."""
    if request.version < 1:
        raise InvalidInputError(f"version must be 1 or more, got {request.version}")
    with reading(context, request.id, version=request.version, branch=request.branch) as dataset:
        yield dataset


def _reference(request: CreateTableTagRequest | UpdateTableTagRequest) -> tuple[str | None, int]:
    return (None if is_main(request.branch) else request.branch, request.version)


def _require(dataset: lance.LanceDataset, name: str) -> Any:
    found = read_refs(dataset.tags.list).get(name)
    if found is None:
        raise TableTagNotFoundError(f"'{name}'")
    return found


@contextmanager
def _going(name: str) -> Iterator[None]:
    """Tell when another client deletes the tag at the same time."""
    try:
        yield
    except (OSError, ValueError) as cause:
        if is_gone(cause):
            raise TableTagNotFoundError(f"'{name}'") from cause
        raise
