"""A run's record as JSON and back. Pure.

The form follows the record's own fields, so a field cannot be forgotten; a document in the tests holds it
still. Within one format fields are only added: a reader skips those it does not know, and takes the default
of those that an older writer did not have. Moments are ISO 8601 in UTC, durations whole microseconds.
"""

from __future__ import annotations

from typing import Any

from relance.errors import InvalidInputError
from relance.policy.codec import decode, encode
from relance.policy.records import RunRecord

FORMAT = 1
"""Raised when a reader of the last format could misread the new one."""


def to_json(record: RunRecord) -> dict[str, Any]:
    """Return the record as values that `json.dumps` takes; `from_json` gives an equal record back."""
    return {"format": FORMAT, **encode(record)}


def from_json(document: Any) -> RunRecord:
    """Return the record that `to_json` made this document of.

    Raises:
        InvalidInputError: it is not a run's record, or of a newer format.
    """
    if not isinstance(document, dict) or "format" not in document:
        raise InvalidInputError("not a run record that relance saved")
    if document["format"] != FORMAT:
        raise InvalidInputError(
            f"run record has format {document['format']!r}, but this release reads {FORMAT}; "
            "use the release that wrote it or a newer one"
        )
    return decode(RunRecord, document, "record")
