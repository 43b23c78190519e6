"""Lance's automatic cleanup during commits: read and set its two keys in a table's config."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from relance.catalog.context import Context
from relance.config import parse_duration
from relance.errors import InvalidInputError
from relance.identifiers import TableId
from relance.lance_io import lance_errors
from relance.operations.targets import after_write, open_for_reading, open_for_writing

INTERVAL = "lance.auto_cleanup.interval"
OLDER_THAN = "lance.auto_cleanup.older_than"


@dataclass(frozen=True, slots=True)
class AutoCleanup:
    """Every `interval` versions, Lance removes versions older than `older_than`."""

    interval: int
    older_than: timedelta


def get_auto_cleanup(context: Context, table_id: TableId) -> AutoCleanup | None:
    """Return the automatic cleanup in the table's config, or None if it is off.

    Raises:
        TableNotFoundError: there is no such table, or it has no version.
    """
    target = open_for_reading(context, table_id.parts)
    with lance_errors(f"table id '{table_id}'", target.options):
        config = target.dataset.config()
    if INTERVAL not in config or OLDER_THAN not in config:
        return None
    try:
        interval = int(config[INTERVAL])
    except ValueError as cause:
        raise InvalidInputError(f"config {INTERVAL!r} is not a number: {config[INTERVAL]!r}") from cause
    return AutoCleanup(interval, parse_duration(config[OLDER_THAN], what=f"config {OLDER_THAN!r}"))


def set_auto_cleanup(context: Context, table_id: TableId, wanted: AutoCleanup | None) -> int:
    """Set or remove both keys, and return the version that records it.

    Raises:
        TableNotFoundError: there is no such table, or it has no version.
        InvalidInputError: the interval is not positive, or the age is negative.
    """
    if wanted is not None and (wanted.interval < 1 or wanted.older_than < timedelta(0)):
        raise InvalidInputError(
            f"auto cleanup needs an interval of at least 1 and an age that is not negative, got {wanted}"
        )
    target = open_for_writing(context, table_id.parts)
    dataset = target.dataset
    with lance_errors(f"table id '{table_id}'", target.options):
        if wanted is None:
            dataset.delete_config_keys([key for key in (INTERVAL, OLDER_THAN) if key in dataset.config()])
        else:
            seconds = round(wanted.older_than.total_seconds())
            dataset.update_config({INTERVAL: str(wanted.interval), OLDER_THAN: f"{seconds}s"})
    after_write(context, target.found, None)
    return int(dataset.version)
