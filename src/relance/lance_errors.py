"""Opening what Lance wrote, and Lance's failures as our errors."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import lance

from relance.config import StorageOptions
from relance.errors import ConcurrentModificationError, InternalError, RelanceError, TableNotFoundError
from relance.storage.failures import error_for_text, first_line

_CONFLICT = re.compile(r"commit conflict|concurrent transaction", re.IGNORECASE)


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
        if _CONFLICT.search(text):
            raise ConcurrentModificationError(f"{what}: {first_line(text)}") from cause
        known = error_for_text(text, where=what)
        raise known or InternalError(f"{what}: {first_line(text)}") from cause


def open_at(
    location: str, options: Mapping[str, str], name: str, *, session: lance.Session | None = None
) -> lance.LanceDataset:
    """Return the dataset at a location; a session keeps what was read of it for the next time.

    Raises:
        TableNotFoundError: there is no version at all.
    """
    where = f"table id '{name}'"
    with lance_errors(where, options):
        try:
            return lance.dataset(location, storage_options=dict(options) or None, session=session)
        except ValueError as cause:
            if "was not found" in str(cause):
                raise TableNotFoundError(f"{where} has no versions yet") from cause
            raise


def transaction_at(dataset: lance.LanceDataset, version: int) -> lance.Transaction | None:
    """Return what made a version; None when Lance does not tell.

    pylance stumbles over the compaction of an indexed table; that comes without an id and without details.
    """
    try:
        return dataset.read_transaction(version)
    except TypeError as cause:
        if "RewrittenIndex" not in str(cause):
            raise
        return lance.Transaction(version - 1, lance.LanceOperation.Rewrite([], []), uuid="")
