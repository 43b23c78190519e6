"""Commit parts of an index that tasks have built. Planning them is in index_refresh."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from relance.catalog.context import Context
from relance.errors import ConcurrentModificationError, RelanceError
from relance.maintenance.planned import Place, open_planned, open_version
from relance.operations.targets import Target, after_write


@dataclass(frozen=True, slots=True)
class Segments:
    """Parts of one index, which no version names yet."""

    index: str
    column: str
    parts: tuple[Any, ...]
    is_whole: bool
    """False when a task failed: then nothing is committed."""


def commit_segments(context: Context, place: Place, segments: Segments) -> None:
    """Merge the parts into one and add it to the index; parts that are not used are removed.

    The commit is based on the planned version, so that Lance refuses it when the fragments were rewritten
    or the index was changed or dropped since.

    Raises:
        ConcurrentModificationError: that happened.
        TableNotFoundError: the table was dropped or renamed.
    """
    if not segments.is_whole:
        _remove(context, place, segments.parts)
        return
    try:
        target = open_planned(context, place)
    except RelanceError:
        _remove(context, place, segments.parts)
        raise
    merged = _merge(context, place, target, segments)
    try:
        with target.errors():
            dataset = open_version(context, place)
            dataset.commit_existing_index_segments(segments.index, segments.column, [merged])
    except ConcurrentModificationError:
        # A store that lost the first answer reports a conflict with this very commit.
        if not _is_in_table(context, place, segments.index, merged):
            _remove(context, place, [merged])
            raise
    after_write(context, target.found, None)


def _merge(context: Context, place: Place, target: Target, segments: Segments) -> Any:
    """Return one part of all: a query looks into each part of an index."""
    if len(segments.parts) == 1:
        return segments.parts[0]
    try:
        with target.errors():
            return open_version(context, place).merge_existing_index_segments(list(segments.parts))
    finally:
        _remove(context, place, segments.parts)


def _is_in_table(context: Context, place: Place, index: str, part: Any) -> bool:
    target = open_planned(context, place)
    with target.errors():
        found = [each for each in target.dataset.describe_indices() if each.name == index]
    return any(str(segment.uuid) == str(part.uuid) for each in found for segment in each.segments)


def _remove(context: Context, place: Place, parts: Iterable[Any]) -> None:
    keys = [f"{place.directory}/_indices/{each.uuid}/{file.path}" for each in parts for file in each.files]
    with suppress(RelanceError):  # they are in nobody's way
        context.storage.delete_many(keys)
