"""Roots with a manifest, in both modes."""

from tests.support.manifest_fixtures import any_lake, catalog, clock, compatible, lake, v2

__all__ = ["any_lake", "catalog", "clock", "compatible", "lake", "v2"]
