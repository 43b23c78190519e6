"""A table's own drop TTL: how long a drop can be undone. It is kept in its row, or in Lance's config."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from relance.catalog.context import Context, table_id_of
from relance.catalog.drop import TTL_CONFIG, TTL_PROPERTY
from relance.catalog.manifest.row import ObjectType
from relance.catalog.manifest.store import Change, Manifest, Snapshot, transact
from relance.catalog.register import require_home_row
from relance.catalog.resolve import NameState, not_found
from relance.identifiers import TableId
from relance.operations.table.opening import changing
from relance.units import parse_duration


def own_ttl(properties: Mapping[str, str], config: Mapping[str, str], *, at_home: bool) -> str | None:
    """Return what a table itself says, as it is written there; config counts in the directory of a name."""
    return properties.get(TTL_PROPERTY) or (config.get(TTL_CONFIG) if at_home else None)


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
            dataset.update_config({TTL_CONFIG: ttl})
        return
    require_home_row(context, table_id.parts)
    _set_property(context, context.manifest, table_id, ttl)


def _set_property(context: Context, manifest: Manifest, table_id: TableId, ttl: str) -> None:
    def plan(snapshot: Snapshot) -> tuple[Change, None]:
        row = snapshot.get([table_id.object_id]).get(table_id.object_id)
        if row is None or row.object_type != ObjectType.TABLE or not row.is_visible:
            raise not_found(context, NameState(table_id, snapshot, row, None, ()))
        if row.properties.get(TTL_PROPERTY) == ttl:
            return Change(), None
        changed = row.with_properties({**row.properties, TTL_PROPERTY: ttl})
        return Change(removed=(row.object_id,), added=(changed,)), None

    transact(manifest, plan)
