"""Opening a table to look inside or to change it, and Lance's complaints about a request as our errors."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import lance

from relance.catalog.context import Context
from relance.errors import InvalidInputError, RelanceError, TableColumnNotFoundError
from relance.lance_io import lance_errors, transaction_at
from relance.operations.targets import after_write, open_for_reading, open_for_writing
from relance.storage.failures import first_line

_ABOUT_THE_REQUEST = re.compile(
    r"Invalid user input|LanceError\((Schema|Arrow)\)|Not supported|Query Execution error"
    r"|Field '.*' not found|tokenizer|WKT error|are required for|must be divisible"
    r"|LanceError\(Index\).*(not supported|supports only|not conforming)"
    r"|does not exist in the dataset|Task was aborted"  # Lance panics over SQL that it has no plan for
)


@contextmanager
def reading(
    context: Context, parts: Sequence[str] | None, *, version: int | None = None, branch: str | None = None
) -> Iterator[lance.LanceDataset]:
    """Give the dataset of a table, at a version or the head of a branch.

    Raises:
        TableNotFoundError, TableVersionNotFoundError, TableBranchNotFoundError
    """
    target = open_for_reading(context, parts, version=version, branch=branch)
    with target.noticing_removal(), lance_errors(f"table id '{target.found.table_id}'", target.options):
        yield target.dataset


@contextmanager
def changing(
    context: Context, parts: Sequence[str] | None, *, version: int | None = None, branch: str | None = None
) -> Iterator[lance.LanceDataset]:
    """Give the dataset for a block that commits a version; what the catalog keeps of versions follows.

    A commit goes to the branch that the dataset is opened at.

    Raises:
        TableNotFoundError, TableVersionNotFoundError, TableBranchNotFoundError
        ConcurrentModificationError: the table was dropped or renamed while it was changed.
    """
    target = open_for_writing(context, parts, version=version, branch=branch)
    with target.noticing_removal(), lance_errors(f"table id '{target.found.table_id}'", target.options):
        yield target.dataset
    after_write(context, target.found, branch)


@contextmanager
def refusing(what: str) -> Iterator[None]:
    """Turn what Lance says about a request that it cannot fulfil into InvalidInputError."""
    try:
        yield
    except RelanceError:
        raise
    except (KeyError, TypeError, OverflowError) as cause:
        raise InvalidInputError(f"{what}: {first_line(_text(cause))}") from cause
    except (OSError, ValueError, RuntimeError) as cause:
        if _ABOUT_THE_REQUEST.search(str(cause)):
            raise InvalidInputError(f"{what}: {first_line(str(cause))}") from cause
        raise


def _text(cause: Exception) -> str:
    return "".join(str(each) for each in cause.args)


def transaction_id(dataset: lance.LanceDataset) -> str | None:
    """Return the id of the transaction that made the version a dataset is at."""
    transaction = transaction_at(dataset, int(dataset.version))
    return None if transaction is None else str(transaction.uuid)


def require_column(dataset: lance.LanceDataset, path: str) -> None:
    """Check that there is a column, or a field inside one, of this path.

    Raises:
        TableColumnNotFoundError: there is none.
    """
    if not path or dataset.lance_schema.field(path) is None:
        raise TableColumnNotFoundError(
            f"column '{path}'; existing columns: {', '.join(dataset.schema.names)}"
        )
