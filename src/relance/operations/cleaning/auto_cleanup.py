"""Lance's automatic cleanup during commits: read and set its keys in a table's config."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from relance.catalog.context import Context
from relance.errors import InvalidInputError
from relance.identifiers import TableId
from relance.lance_io import lance_errors
from relance.operations.targets import after_write, open_for_reading, open_for_writing
from relance.units import lance_duration, parse_lance_duration, require_duration

INTERVAL = "lance.auto_cleanup.interval"
OLDER_THAN = "lance.auto_cleanup.older_than"
RETAIN_VERSIONS = "lance.auto_cleanup.retain_versions"

_DIGITS = 19
"""More do not fit into Lance's number."""


@dataclass(frozen=True, slots=True)
class AutoCleanup:
    """Every `interval` versions, Lance removes the versions that both rules let go.

    Tables of other clients may have neither rule: Lance removes every old version then.
    """

    interval: int
    older_than: timedelta | None = None
    retain_versions: int | None = None


def get_auto_cleanup(context: Context, table_id: TableId) -> AutoCleanup | None:
    """Return the automatic cleanup in the table's config, or None if it is off.

    Raises:
        TableNotFoundError: there is no such table, or it has no version.
        InvalidInputError: a value is none that Lance can read, so that it cleans up nothing.
    """
    target = open_for_reading(context, table_id.parts)
    with lance_errors(f"table id '{table_id}'", target.options):
        config = target.dataset.config()
    if INTERVAL not in config:
        return None
    older_than, retain = config.get(OLDER_THAN), config.get(RETAIN_VERSIONS)
    return AutoCleanup(
        _number(config[INTERVAL], INTERVAL),
        None if older_than is None else parse_lance_duration(older_than, what=f"config {OLDER_THAN!r}"),
        None if retain is None else _number(retain, RETAIN_VERSIONS),
    )


def _number(text: str, key: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) <= _DIGITS):
        raise InvalidInputError(
            f"config {key!r} is not a number: {text[:40]!r}. "
            "Lance cleans up nothing until set_auto_cleanup sets it"
        )
    return int(text)


def set_auto_cleanup(context: Context, table_id: TableId, wanted: AutoCleanup | None) -> int:
    """Set the keys of the wanted cleanup, remove the others, and return the version that records it.

    Raises:
        TableNotFoundError: there is no such table, or it has no version.
        InvalidInputError: a number is not positive, the age is negative or out of range, or there is no rule.
    """
    keys = {} if wanted is None else _keys(wanted)
    target = open_for_writing(context, table_id.parts)
    dataset = target.dataset
    with lance_errors(f"table id '{table_id}'", target.options):
        # In one commit: with an interval and no rule in between, Lance would remove every old version.
        dataset.update_config({key: keys.get(key) for key in (INTERVAL, OLDER_THAN, RETAIN_VERSIONS)})
    after_write(context, target.found, None)
    return int(dataset.version)


def _keys(wanted: AutoCleanup) -> dict[str, str]:
    """Return the config that makes Lance do what is wanted."""
    keys = {INTERVAL: str(wanted.interval)}
    for what, number in (("an interval", wanted.interval), ("retain_versions", wanted.retain_versions)):
        if number is not None and number < 1:
            raise InvalidInputError(f"auto cleanup needs {what} of at least 1, got {number}")
    if wanted.older_than is not None:
        age = require_duration(wanted.older_than, what="older_than of auto cleanup")
        keys[OLDER_THAN] = lance_duration(age)
    if wanted.retain_versions is not None:
        keys[RETAIN_VERSIONS] = str(wanted.retain_versions)
    if len(keys) == 1:
        raise InvalidInputError(
            "auto cleanup without a rule removes every old version: give older_than or retain_versions"
        )
    return keys
