"""Opening a table with Lance, and Lance's failures as our errors."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import lance

from relance.config import StorageOptions
from relance.errors import (
    InternalError,
    InvalidInputError,
    RelanceError,
    TableBranchNotFoundError,
    TableNotFoundError,
    TableTagNotFoundError,
    TableVersionNotFoundError,
)
from relance.operations.context import Context
from relance.storage.failures import error_for_text, first_line


@contextmanager
def lance_errors(what: str, options: Mapping[str, str]) -> Iterator[None]:
    """Turn what pylance raises, which is any of three builtin classes, into our errors."""
    try:
        yield
    except RelanceError:
        raise
    except (OSError, ValueError, RuntimeError) as cause:
        text = StorageOptions(options).redact(str(cause))
        if text != str(cause):
            cause.args = (text,)
        known = error_for_text(text, where=what)
        raise known or InternalError(f"{what}: {first_line(text)}") from cause


def open_dataset(
    context: Context,
    name: str,
    *,
    version: int | None = None,
    tag: str | None = None,
    branch: str | None = None,
) -> lance.LanceDataset:
    """Return the table's dataset at a version, a tag or the head of a branch.

    Raises:
        InvalidInputError: both a version and a tag are given, or a tag with a branch.
        TableNotFoundError: there is no version at all.
        TableVersionNotFoundError, TableTagNotFoundError, TableBranchNotFoundError: not that one.
    """
    if tag is not None and (version is not None or branch is not None):
        raise InvalidInputError("a tag already names a version and a branch: give either the tag or those")
    where = f"table id '{name}'"
    options = context.lance_options()
    with lance_errors(where, options):
        dataset = _open(context.location(name), options, where)
        if tag is not None:
            if tag not in dataset.tags.list():
                raise TableTagNotFoundError(f"tag '{tag}' of {where}")
            return dataset.checkout_version(tag)
        if branch is not None and branch != "main":
            if branch not in dataset.branches.list():
                raise TableBranchNotFoundError(f"branch '{branch}' of {where}")
            return _checkout(dataset, (branch, version), f"version {version} of branch '{branch}' of {where}")
        if version is not None:
            return _checkout(dataset, version, f"version {version} of {where}")
        return dataset


def _open(location: str, options: Mapping[str, str], where: str) -> lance.LanceDataset:
    try:
        return lance.dataset(location, storage_options=dict(options) or None)
    except ValueError as cause:
        if "was not found" in str(cause):
            raise TableNotFoundError(f"{where} has no version yet") from cause
        raise


def _checkout(
    dataset: lance.LanceDataset, target: int | tuple[str, int | None], what: str
) -> lance.LanceDataset:
    try:
        return dataset.checkout_version(target)
    except OverflowError as cause:
        raise TableVersionNotFoundError(what) from cause
    except (OSError, ValueError) as cause:
        if "was not found" in str(cause):
            raise TableVersionNotFoundError(what) from cause
        raise
