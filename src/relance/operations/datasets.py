"""Opening a table with Lance, at a version, a tag or a branch."""

from __future__ import annotations

import lance

from relance.errors import (
    InvalidInputError,
    TableBranchNotFoundError,
    TableTagNotFoundError,
    TableVersionNotFoundError,
)
from relance.lance_errors import lance_errors, open_at
from relance.operations.context import Context
from relance.resolution import Found


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
        dataset = open_at(location, options, str(found.table_id), session=session)
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


def checkout(
    dataset: lance.LanceDataset, target: int | tuple[str, int | None], what: str
) -> lance.LanceDataset:
    """Return the dataset at another version or branch; `what` names it.

    Raises:
        TableVersionNotFoundError: it is not there.
    """
    try:
        return dataset.checkout_version(target)
    except OverflowError as cause:
        raise TableVersionNotFoundError(what) from cause
    except (OSError, ValueError) as cause:
        if "was not found" in str(cause):
            raise TableVersionNotFoundError(what) from cause
        raise
