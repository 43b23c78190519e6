"""Keep the catalog's own table in shape, when asked."""

from __future__ import annotations

from relance.catalog.context import Context
from relance.catalog.manifest.table import LanceManifest
from relance.catalog.manifest.upkeep import UpkeepReport, keep_up, look_ahead
from relance.config import ENABLE_MANIFEST
from relance.errors import UnsupportedOperationError


def maintain_manifest(context: Context) -> UpkeepReport:
    """Merge, index and clean the manifest table.

    Raises:
        UnsupportedOperationError: the catalog is opened without a manifest.
    """
    return keep_up(_manifest_of(context))


def plan_manifest(context: Context) -> UpkeepReport:
    """Return what maintain_manifest would do now.

    Raises:
        UnsupportedOperationError: the catalog is opened without a manifest.
    """
    return look_ahead(_manifest_of(context))


def _manifest_of(context: Context) -> LanceManifest:
    if not isinstance(context.manifest, LanceManifest):
        raise UnsupportedOperationError(
            "there is no manifest to maintain: open the catalog with manifest_enabled=true",
            hint=ENABLE_MANIFEST,
        )
    return context.manifest
