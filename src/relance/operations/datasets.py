"""Opening a table with Lance, at a version, a tag or a branch."""

from __future__ import annotations

import lance

from relance.catalog.context import Context
from relance.catalog.resolve import Found
from relance.errors import (
    InvalidInputError,
    TableBranchNotFoundError,
    TableTagNotFoundError,
)
from relance.lance_io import checkout, lance_errors, open_at


def open_dataset(
    context: Context,
    found: Found,
    *,
    version: int | None = None,
    tag: str | None = None,
    branch: str | None = None,
    session: lance.Session | None = None,
) -> lance.LanceDataset:
    """Return the table's dataset at a version, a tag or the head of a branch.

    A session keeps what was read of tables for the next time.

    Raises:
        InvalidInputError: both a version and a tag are given, or a tag with a branch.
        TableNotFoundError: there is no version at all.
        TableVersionNotFoundError, TableTagNotFoundError, TableBranchNotFoundError: not that one.
    """
    if tag is not None and (version is not None or branch is not None):
        raise InvalidInputError(
            "a tag already determines the version and branch: pass either a tag or a version and branch"
        )
    where = f"table id '{found.table_id}'"
    options = context.lance_options()
    with lance_errors(where, options):
        location = context.location_of(found.directory)
        dataset = open_at(location, options, f"{found.table_id}", session=session)
        if tag is not None:
            if tag not in dataset.tags.list():
                raise TableTagNotFoundError(f"tag '{tag}' of {where}")
            return dataset.checkout_version(tag)
        if branch is not None and branch != "main":
            if branch not in dataset.branches.list():
                raise TableBranchNotFoundError(f"branch '{branch}' of {where}")
            return checkout(dataset, (branch, version), f"version {version} of branch '{branch}' of {where}")
        if version is not None:
            return checkout(dataset, version, f"version {version} of {where}")
        return dataset
