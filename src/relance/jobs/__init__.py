"""Jobs: kinds of work that keep tables healthy, as plans, tasks and one commit, on threads or on Spark.

On threads of this process: `maintain(catalog, job)`, and `merge(catalog, table, rows, on)` for Arrow rows.
With a Spark session: `relance.spark.maintain` and `relance.spark.merge`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from relance.jobs.base import Effect, Estimate, Figures, Report, Result
from relance.jobs.catalog_settings import DropTtl, Protect
from relance.jobs.cleanup import CleanUp
from relance.jobs.compact import Compact
from relance.jobs.delete_rows import DeleteRows
from relance.jobs.indexes import RefreshIndexes
from relance.jobs.manifest import MaintainManifest
from relance.jobs.orphans import RemoveOrphans
from relance.jobs.purge import PurgeDropped
from relance.jobs.update_rows import UpdateRows

if TYPE_CHECKING:
    from relance.jobs.engine import Progress, maintain, start
    from relance.jobs.merging.merge_rows import merge
    from relance.jobs.merging.merges import MergeResult
    from relance.jobs.progress import Display
    from relance.jobs.runner import Engine

__all__ = [
    "CleanUp",
    "Compact",
    "DeleteRows",
    "Display",
    "DropTtl",
    "Effect",
    "Engine",
    "Estimate",
    "Figures",
    "MaintainManifest",
    "MergeResult",
    "Progress",
    "Protect",
    "PurgeDropped",
    "RefreshIndexes",
    "RemoveOrphans",
    "Report",
    "Result",
    "UpdateRows",
    "maintain",
    "merge",
    "start",
]

_HOMES = {
    "Display": "progress",
    "Engine": "runner",
    "MergeResult": "merging.merges",
    "Progress": "engine",
    "maintain": "engine",
    "merge": "merging.merge_rows",
    "start": "engine",
}


def __getattr__(name: str) -> Any:
    # Only when it is asked for: to check a policy file takes the kinds, and neither Lance nor a store.
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"relance.jobs.{_HOMES[name]}"), name)
