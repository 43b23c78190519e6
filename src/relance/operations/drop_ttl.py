"""A table's own drop TTL: how long a drop can be undone. It is kept in its row, or in Lance's config."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from relance.config import parse_duration
from relance.identifiers import TableId
from relance.manifest.store import Change, Manifest, Snapshot, transact
from relance.operations.announcing import finishing
from relance.operations.context import Context
from relance.operations.directory.drop import TTL_PROPERTY as IN_CONFIG
from relance.operations.in_step import follow_marker
from relance.operations.pending import PendingChangeError
from relance.operations.places import table_id_of
from relance.operations.rows.drop import TTL_PROPERTY as IN_PROPERTIES
from relance.operations.rows.lookups import live_table
from relance.operations.table.opening import changing


def own_ttl(properties: Mapping[str, str], config: Mapping[str, str], *, at_home: bool) -> str | None:
    """Return what a table itself says, as it is written there; config counts in the directory of a name."""
    return properties.get(IN_PROPERTIES) or (config.get(IN_CONFIG) if at_home else None)


@finishing
def set_drop_ttl(context: Context, parts: Sequence[str], ttl: str) -> None:
    """Have drops of this table be undone for so long: a property, or without a manifest Lance's config.

    Raises:
        InvalidInputError: it is not a duration.
        TableNotFoundError: there is no such table.
    """
    parse_duration(ttl, what="the drop TTL")
    table_id = table_id_of(context, parts)
    if context.manifest is None:
        with changing(context, parts) as dataset:
            dataset.update_config({IN_CONFIG: ttl})
        return
    if not table_id.namespace and context.settings.dir_listing:
        follow_marker(context, table_id)  # a table without a row gets one
    _set_property(context.manifest, table_id, ttl)


def _set_property(manifest: Manifest, table_id: TableId, ttl: str) -> None:
    def plan(snapshot: Snapshot) -> tuple[Change, None]:
        entry = live_table(snapshot, table_id)
        if entry.announced is not None:
            raise PendingChangeError(str(table_id))
        if entry.properties.get(IN_PROPERTIES) == ttl:
            return Change(), None
        changed = entry.with_properties({**entry.properties, IN_PROPERTIES: ttl})
        return Change(removed=(entry.object_id,), added=(changed,)), None

    transact(manifest, plan)
