"""The modes a catalog is opened in."""

from __future__ import annotations

V1 = {"manifest_enabled": "false"}
"""Directories alone count."""

V2 = {"dir_listing_enabled": "false"}
"""The manifest alone counts."""

COMPATIBILITY: dict[str, str] = {}
"""Both count, as is the default."""

MODES = {"V1": V1, "V2": V2, "compatibility": COMPATIBILITY}
MANIFEST_MODES = {"V2": V2, "compatibility": COMPATIBILITY}
"""Those with a manifest."""
