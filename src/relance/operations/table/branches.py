"""Branches of a table: lines of versions of their own."""

from __future__ import annotations

import re
from typing import Any

from lance_namespace import (
    CreateTableBranchRequest,
    CreateTableBranchResponse,
    DeleteTableBranchRequest,
    DeleteTableBranchResponse,
    ListTableBranchesRequest,
    ListTableBranchesResponse,
)
from lance_namespace_urllib3_client.models.branch_contents import BranchContents

from relance.catalog.context import Context, table_id_of
from relance.catalog.resolve import find_table
from relance.errors import (
    InvalidInputError,
    InvalidTableStateError,
    TableBranchAlreadyExistsError,
    TableBranchNotFoundError,
)
from relance.operations.cleaning.clones import clone_of_branch
from relance.operations.paging import page_of
from relance.operations.table.opening import reading
from relance.operations.table.ref_files import is_gone, read_refs
from relance.operations.table.refs import check_branch_name
from relance.storage.failures import first_line

_TAKEN = re.compile(r"already exists|Clone operation should not enter")
"""What Lance says when another client makes the branch at the same time."""


def list_table_branches(context: Context, request: ListTableBranchesRequest) -> ListTableBranchesResponse:
    """Return the branches besides main, sorted by name, a page at a time.

    Raises:
        TableNotFoundError: there is no such table.
    """
    with reading(context, request.id) as dataset:
        found = read_refs(dataset.branches.list)
    page, token = page_of(sorted(found, key=str.encode), token=request.page_token, limit=request.limit)
    return ListTableBranchesResponse(branches={name: _tell(found[name]) for name in page}, page_token=token)


def _tell(branch: Any) -> BranchContents:
    return BranchContents(
        parentBranch=branch["parent_branch"],
        parentVersion=branch["parent_version"],
        createAt=branch["create_at"],
        manifestSize=branch["manifest_size"],
        metadata=branch["metadata"] or None,
    )


def create_table_branch(context: Context, request: CreateTableBranchRequest) -> CreateTableBranchResponse:
    """Begin a branch at a version, by default the latest, of main or of another branch.

    Raises:
        TableBranchAlreadyExistsError: the name is taken.
        TableBranchNotFoundError: the branch to begin from does not exist.
        TableVersionNotFoundError: the version to begin from does not exist.
        InvalidInputError: not a usable name.
    """
    name = check_branch_name(request.name)
    with reading(context, request.id, version=request.from_version, branch=request.from_branch) as dataset:
        if name in read_refs(dataset.branches.list):
            raise _taken(name)
        try:
            # The version by its number: the head may move on.
            dataset.create_branch(name, (_branch(request.from_branch), dataset.version))
        except OSError as cause:
            if _TAKEN.search(str(cause)):
                raise _taken(name) from cause
            raise
    return CreateTableBranchResponse()


def _branch(name: str | None) -> str | None:
    return None if name == "main" else name


def _taken(name: str) -> TableBranchAlreadyExistsError:
    return TableBranchAlreadyExistsError(f"'{name}'")


def delete_table_branch(context: Context, request: DeleteTableBranchRequest) -> DeleteTableBranchResponse:
    """Remove a branch with its versions.

    Raises:
        TableBranchNotFoundError: there is no such branch.
        InvalidTableStateError: tags, other branches or shallow clones build on it, or a table that may be
            such a clone cannot be read.
        InvalidInputError: it is main, which stays.
    """
    if request.name == "main":
        raise InvalidInputError("branch 'main' cannot be deleted; use drop_table to drop the table")
    with reading(context, request.id) as dataset:
        if request.name not in read_refs(dataset.branches.list):
            raise TableBranchNotFoundError(f"'{request.name}'")
        directory = find_table(context, table_id_of(context, request.id)).directory
        clone = clone_of_branch(context, directory, request.name)
        if clone is not None:
            raise InvalidTableStateError(
                f"the shallow clone at '{clone}' reads files of branch '{request.name}': "
                "drop and purge the clone first"
            )
        try:
            dataset.branches.delete(request.name)
        except (OSError, ValueError) as cause:
            if "is referenced by" in str(cause):
                raise InvalidTableStateError(first_line(str(cause))) from cause
            if is_gone(cause):
                raise TableBranchNotFoundError(f"'{request.name}'") from cause
            raise
    return DeleteTableBranchResponse()
