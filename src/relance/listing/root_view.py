"""What one listing of the root tells: tables, markers, and which names need a second look. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from relance.identifiers import why_unusable
from relance.lifecycle.marker import is_hidden_size
from relance.locations import CREATING_SUFFIX, DECLARED_SUFFIX, LAYOUT_KEY, MARKER_SUFFIX, TABLE_SUFFIX
from relance.storage.protocol import Level, ObjectInfo


@dataclass(frozen=True, slots=True)
class RootView:
    """Names by what the root's own files say of them."""

    directories: frozenset[str]
    """Tables by directory, whatever their state."""
    hidden: frozenset[str]
    """Names whose marker hides them."""
    markers: dict[str, ObjectInfo]
    """Every marker by name, those that hide nothing too."""
    declared: frozenset[str]
    """Names that were declared and may hold no version yet."""
    creating: frozenset[str]
    """Names where a create began and may not have finished."""
    migrated: bool
    """No table hides behind a marker inside its own directory."""


def view_root(level: Level) -> RootView:
    """Sort the entries of the root's listing; what belongs to none of the kinds is not ours."""
    signs: dict[str, set[str]] = {DECLARED_SUFFIX: set(), CREATING_SUFFIX: set()}
    markers: dict[str, ObjectInfo] = {}
    migrated = False
    for info in level.files:
        stem, dot, ending = info.key.rpartition(".")
        suffix = dot + ending
        if info.key == LAYOUT_KEY:
            migrated = True
        elif why_unusable(stem) is not None:
            continue
        elif suffix in signs:
            signs[suffix].add(stem)
        elif suffix == MARKER_SUFFIX:
            markers[stem] = info
    return RootView(
        directories=frozenset(_table_names(level)),
        hidden=frozenset(name for name, info in markers.items() if is_hidden_size(info.size)),
        markers=markers,
        declared=frozenset(signs[DECLARED_SUFFIX]),
        creating=frozenset(signs[CREATING_SUFFIX]),
        migrated=migrated,
    )


def _table_names(level: Level) -> list[str]:
    stems = (name[: -len(TABLE_SUFFIX)] for name in level.directories if name.endswith(TABLE_SUFFIX))
    # A directory with a name we refuse cannot be addressed either, so it is not shown.
    return [stem for stem in stems if why_unusable(stem) is None]
