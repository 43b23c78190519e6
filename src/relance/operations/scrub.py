"""Find what does not fit together in a root, say what would mend it, and mend it when asked."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from relance.errors import InvalidTableStateError, RelanceError
from relance.identifiers import TableId
from relance.lifecycle.marker import Marker
from relance.lifecycle.marker_store import StoredMarker, read_marker
from relance.lifecycle.retention import holder_is_gone
from relance.lifecycle.states import State
from relance.listing.root_view import RootView, view_root
from relance.listing.signs import sign_creating
from relance.locations import (
    CREATING_SUFFIX,
    DECLARED_SUFFIX,
    MARKER_SUFFIX,
    RESERVED_FILE,
    VERSIONS_DIRECTORY,
    table_directory,
    table_file,
)
from relance.operations.context import Context
from relance.operations.deletion import PurgeOptions
from relance.operations.directory.claims import recover
from relance.operations.directory.purge import purge_name
from relance.operations.findings import Finding, Problem
from relance.operations.scrub_manifest import look_at_manifest

_Mend = Callable[[Context, str], None]


def scrub(context: Context, *, repair: bool) -> list[Finding]:
    """Return every problem in the root; with `repair`, mend those that can be mended safely."""
    problems = list(_look(context, view_root(context.storage.list_level(""))))
    if context.manifest is not None:
        problems += look_at_manifest(context, context.manifest)
    found = sorted(problems, key=lambda each: (each[0].name, each[0].problem))
    if not repair:
        return [finding for finding, _ in found]
    return [_mend(context, finding, mend) for finding, mend in found]


def _mend(context: Context, finding: Finding, mend: _Mend | None) -> Finding:
    if mend is None:
        return finding
    try:
        mend(context, finding.name)
    except RelanceError as error:
        return replace(finding, error=error)
    return replace(finding, repaired=True)


def _look(context: Context, view: RootView) -> Iterator[tuple[Finding, _Mend | None]]:
    doubtful = view.directories | view.creating | view.declared
    versions = {name: table_file(name, f"{VERSIONS_DIRECTORY}/") for name in doubtful}
    reserved = {name: table_file(name, RESERVED_FILE) for name in doubtful}
    present = context.storage.which_exist([*versions.values(), *reserved.values()])
    with_versions = {name for name, path in versions.items() if path in present}
    with_table = with_versions | {name for name, path in reserved.items() if path in present}
    with_files = context.storage.which_exist([f"{table_directory(name)}/" for name in view.markers])
    for name in sorted(view.markers):
        yield from _look_at_marker(context, name, has_data=f"{table_directory(name)}/" in with_files)
    for name in sorted(view.directories - with_table - view.creating - view.hidden):
        yield (
            Finding(
                name, Problem.DATA_WITHOUT_TABLE, "mark it as an unfinished create so that it is not listed"
            ),
            _cover,
        )
    stale = {name + CREATING_SUFFIX for name in view.creating if name in with_versions}
    stale |= {
        name + DECLARED_SUFFIX for name in view.declared if name in with_versions or name not in with_table
    }
    for sign in sorted(stale):
        yield Finding(sign, Problem.STALE_SIGN, f"delete {sign!r}"), _delete


def _look_at_marker(context: Context, name: str, *, has_data: bool) -> Iterator[tuple[Finding, _Mend | None]]:
    try:
        stored = read_marker(context.storage, name)
    except InvalidTableStateError as error:
        remedy = (
            f"inspect '{name}{MARKER_SUFFIX}': to keep the table, delete that file; otherwise "
            "replace it with the marker of another dropped table"
        )
        yield Finding(name, Problem.DAMAGED_MARKER, remedy, error=error), None
        return
    if stored is None:
        return
    marker = stored.marker
    gone = holder_is_gone(marker, now=context.clock.now(), timing=context.timing)
    if marker.state in {State.DELETED, State.DEREGISTERED} and not has_data:
        yield Finding(name, Problem.MARKER_WITHOUT_DATA, "turn the marker into a tombstone"), _purge
    elif marker.state is State.PURGED and has_data:
        yield Finding(name, Problem.DATA_BELOW_TOMBSTONE, "purge the table again"), _purge
    elif marker.state is State.PURGING and gone:
        yield Finding(name, Problem.STALE_PURGE, "take over the purge and finish it"), _purge
    elif marker.state is State.REVIVING and gone:
        yield Finding(name, Problem.STALE_REVIVAL, _revival_remedy(marker)), _recover
    elif marker.state is State.WRITING and gone:
        yield Finding(name, Problem.STALE_WRITE, "release its claim"), _recover
    elif marker.state is State.SWEEPING and gone:
        yield Finding(name, Problem.STALE_SWEEP, "release its claim"), _recover


def _revival_remedy(marker: Marker) -> str:
    before = marker.before.value if marker.before else State.DELETED.value
    return f"finish it if its data was committed, otherwise return to {before!r}"


def _purge(context: Context, name: str) -> None:
    result = purge_name(context, TableId((), name), PurgeOptions(force=True))
    if result.error is not None:
        raise result.error


def _recover(context: Context, name: str) -> None:
    stored: StoredMarker | None = read_marker(context.storage, name)
    if stored is not None and holder_is_gone(stored.marker, now=context.clock.now(), timing=context.timing):
        recover(context, name, stored)


def _cover(context: Context, name: str) -> None:
    sign_creating(context.storage, name)


def _delete(context: Context, key: str) -> None:
    context.storage.delete(key)
