"""What pylance raises about rows, predicates and vectors, as our errors."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from relance.config import StorageOptions
from relance.errors import (
    ConcurrentModificationError,
    InvalidInputError,
    OutcomeUnknownError,
    RelanceError,
    ServiceUnavailableError,
    TableSchemaValidationError,
)
from relance.lance_io import lance_errors
from relance.storage.failures import error_for_text, first_line

_SCHEMA = re.compile(r"Append with different schema|contained null values even though")

_INPUT = re.compile(
    r"Invalid user input|Invalid argument error|Schema error|LanceError\(Schema\)|Cast error|Divide by zero"
    r"|(Arithmetic|Compute) (error|overflow)|Parser error|Error during planning|InvalidInput"
    r"|does not exist in (the )?dataset schema|is not in the dataset"
    r"|does not exist in schema|regex parse error|surrogates not allowed|not (yet )?implemented|Not supported"
    r"|Query vector|All query vectors|Nearest-K|[Nn]probes must|Refine factor|ef must"
)

_EXECUTION = re.compile(r"Execution error")
"""An expression failed on a row, if it was not the store that failed."""

_CONTENTION = re.compile(r"Too many concurrent writers|write contention", re.IGNORECASE)

_NOISE = re.compile(r"(LanceError\(\w+\)|Invalid user input|External error|Query Execution error): ")


@contextmanager
def data_errors(what: str, options: Mapping[str, str]) -> Iterator[None]:
    """Turn what pylance raises into our errors, the caller's mistakes among them.

    Raises:
        TableSchemaValidationError: the rows do not fit the table.
        InvalidInputError: a predicate, an expression, a column or a vector cannot be used.
        ConcurrentModificationError: others kept changing the same rows.
        RelanceError: anything else, as lance_errors tells it.
    """
    with lance_errors(what, options):
        try:
            yield
        except RelanceError:
            raise
        except (TypeError, OverflowError, IndexError) as cause:
            raise InvalidInputError(f"{what}: {_plain(str(cause))}") from cause
        except (OSError, ValueError, RuntimeError) as cause:
            StorageOptions(options).hide_in(cause)
            text = str(cause)
            if _SCHEMA.search(text):
                raise TableSchemaValidationError(f"{what}: {_plain(text)}") from cause
            if _CONTENTION.search(text):
                raise ConcurrentModificationError(f"{what}: {_plain(text)}") from cause
            failed = _EXECUTION.search(text) and error_for_text(text, where=what) is None
            if _INPUT.search(text) or failed:
                raise InvalidInputError(f"{what}: {_plain(text)}") from cause
            raise


@contextmanager
def write_errors(what: str, options: Mapping[str, str]) -> Iterator[None]:
    """Do the same around a commit, of which nobody knows when the store gave no answer.

    Raises:
        OutcomeUnknownError: it may have happened.
    """
    try:
        with data_errors(what, options):
            yield
    except ServiceUnavailableError as cause:
        raise OutcomeUnknownError(cause.detail) from cause


def _plain(text: str) -> str:
    """Return the message without Lance's own words about it, and without the whole schema."""
    return first_line(re.sub(r": Schema \{.*", "", _NOISE.sub("", text)))
