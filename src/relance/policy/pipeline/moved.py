"""Did a table move since it was planned, in a way that matters?

What matters: the table was dropped, renamed or replaced by another one; and for a delete of rows also that
the rows it was planned over were changed. Rows that were added, compaction, indexes and settings are fine:
the predicate of the plan is a fixed one, and holds for new rows as well.
"""

from __future__ import annotations

from dataclasses import dataclass

import lance

from relance.catalog.context import Context, table_id_of
from relance.catalog.resolve import find_table, state_of_name
from relance.errors import InvalidTableStateError, RelanceError, TableNotFoundError
from relance.jobs.plans.row_changes import pieces_of
from relance.lance_io import lance_errors, transaction_at
from relance.operations.datasets import open_dataset
from relance.policy.actions import Action, Kind

MOST_VERSIONS = 500
"""So many versions that came since the plan are looked at; with more it counts as moved."""

_HARMLESS = (
    lance.LanceOperation.Append,
    lance.LanceOperation.Delete,
    lance.LanceOperation.Rewrite,
    lance.LanceOperation.CreateIndex,
    lance.LanceOperation.UpdateConfig,
)
"""After these a row has the values that it had, or is gone."""


class MovedError(InvalidTableStateError):
    """The table changed after the plan was made; nothing was done to it. Re-plan."""


@dataclass(frozen=True, slots=True)
class Seen:
    """A table as it was planned for."""

    directory: str = ""
    version: int | None = None


def check_unmoved(context: Context, action: Action, seen: Seen) -> None:
    """Check that an action still means what it meant when it was planned.

    Raises:
        MovedError: it does not.
    """
    if not action.table:
        return
    if action.kind is Kind.PURGE:
        _check_dropped(context, action, seen)
        return
    what = f"table id '{'$'.join(action.table)}'"
    try:
        found = find_table(context, table_id_of(context, action.table))
    except TableNotFoundError as cause:
        raise MovedError(f"{cause.detail}; it existed when the plan was made: re-plan") from cause
    if found.directory != seen.directory:
        raise MovedError(f"{what} was replaced after the plan was made; re-plan")
    if seen.version is None or action.kind in (Kind.PROTECT, Kind.DROP_TTL):
        return
    dataset = open_dataset(context, found)
    if int(dataset.version) < seen.version:
        raise MovedError(
            f"{what} was re-created after the plan was made: it is at version {dataset.version} "
            f"and was at {seen.version}; re-plan"
        )
    if action.kind is Kind.DELETE_ROWS:
        with lance_errors(what, context.lance_options()):
            _check_rows(what, dataset, seen.version)


def _check_dropped(context: Context, action: Action, seen: Seen) -> None:
    """Check that the generation was not brought back; one that is gone already needs no purge."""
    if not is_gone(context, action):
        return
    state = state_of_name(context, table_id_of(context, action.table))
    home = state.home
    undid = home.marked.control.undid if home is not None and home.marked is not None and home.is_live else ""
    rows = [] if context.manifest is None else context.manifest.latest().sharing([seen.directory])
    back = any(
        row.is_visible and not row.is_home and row.normalized_location == seen.directory for row in rows
    )
    if back or (undid and undid == action.settings["deletion_id"]):
        name = "$".join(action.table)
        raise MovedError(f"table id '{name}' was undropped after the plan was made; re-plan")


def _check_rows(what: str, dataset: lance.LanceDataset, planned: int) -> None:
    latest = int(dataset.version)
    if latest - planned > MOST_VERSIONS:
        more = f"{latest - planned} more versions than when the plan was made"
        raise MovedError(f"{what} has {more}, too many to check; re-plan")
    for version in range(planned + 1, latest + 1):
        operation = _operation(dataset, version)
        if not isinstance(operation, _HARMLESS) and not _same_rows(dataset, version):
            name = "an unknown change" if operation is None else type(operation).__name__
            raise MovedError(
                f"{what} was changed after the plan was made (version {version}: {name}), "
                "so different rows may match now; re-plan"
            )


def _same_rows(dataset: lance.LanceDataset, version: int) -> bool:
    """Tell whether a version has the fragments of the one before it: some changes pylance does not name."""
    try:
        before, after = (dataset.checkout_version(each) for each in (version - 1, version))
        return pieces_of(before) == pieces_of(after) and before.schema == after.schema
    except (OSError, ValueError):
        return False  # cleaned up meanwhile: nobody can tell


def _operation(dataset: lance.LanceDataset, version: int) -> object | None:
    try:
        transaction = transaction_at(dataset, version)
    except (OSError, ValueError, RelanceError):
        return None  # cleaned up meanwhile: nobody can tell
    return None if transaction is None else transaction.operation


def is_gone(context: Context, action: Action) -> bool:
    """Tell whether the generation that a purge is for is not there any more."""
    deletion = action.settings.get("deletion_id")
    state = state_of_name(context, table_id_of(context, action.table))
    left = [*state.dropped, *([state.abandoned] if state.abandoned is not None else [])]
    return all(generation.deletion_id != deletion for generation in left)
