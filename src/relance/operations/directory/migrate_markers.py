"""Copy state that other clients keep inside tables to the root, where one listing shows it."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass

from relance.errors import KeyExistsError
from relance.lifecycle import moves
from relance.lifecycle.marker_store import new_nonce, put_marker
from relance.listing.layout import flag_root
from relance.listing.root_view import view_root
from relance.listing.signs import sign_declared
from relance.locations import (
    DECLARED_SUFFIX,
    DEREGISTERED_FILE,
    RESERVED_FILE,
    VERSIONS_DIRECTORY,
    table_file,
)
from relance.operations.context import Context
from relance.storage.probe import require_create_only


@dataclass(frozen=True, slots=True)
class MarkerMigration:
    """Tables whose state was copied to the root, or would be in a dry run."""

    deregistered: tuple[str, ...]
    """Tables that got a marker; the file inside stays for clients that read only that."""
    declared: tuple[str, ...]
    """Tables that got the sign of a declared table."""
    settled: tuple[str, ...]
    """Tables that lost that sign because they contain data now."""
    already_migrated: bool
    dry_run: bool


def migrate_markers(context: Context, *, dry_run: bool) -> MarkerMigration:
    """Write markers and signs for what lies inside tables, then the flag; safe to repeat at any time."""
    storage = context.storage
    view = view_root(storage.list_level(""))
    names = sorted(view.directories)
    inside = {
        sign: {name: table_file(name, sign) for name in names}
        for sign in (DEREGISTERED_FILE, RESERVED_FILE, f"{VERSIONS_DIRECTORY}/")
    }
    found = storage.which_exist([path for paths in inside.values() for path in paths.values()])
    has = {sign: {name for name, path in paths.items() if path in found} for sign, paths in inside.items()}
    with_data = has[f"{VERSIONS_DIRECTORY}/"]
    plan = MarkerMigration(
        deregistered=tuple(sorted(has[DEREGISTERED_FILE] - set(view.markers))),
        declared=tuple(sorted(has[RESERVED_FILE] - with_data - view.declared)),
        settled=tuple(sorted(with_data & view.declared)),
        already_migrated=view.migrated,
        dry_run=dry_run,
    )
    if not dry_run:
        _carry_out(context, plan)
    return plan


def _carry_out(context: Context, plan: MarkerMigration) -> None:
    storage = context.storage
    require_create_only(storage, to_do="migrating markers")
    for name in plan.deregistered:
        marker = moves.deregister(None, new_nonce(), at=context.clock.now())
        with suppress(KeyExistsError):  # a marker came up meanwhile and is right
            put_marker(storage, name, marker, over=None)
    for name in plan.declared:
        sign_declared(storage, name)
    storage.delete_many(name + DECLARED_SUFFIX for name in plan.settled)
    flag_root(storage)
