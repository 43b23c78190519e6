"""Maintenance: jobs that keep tables healthy, as plans, tasks and one commit, on threads or on Spark.

On threads of this process: `maintain(catalog, job)`, and `merge(catalog, table, rows, on)` for Arrow rows.
With a Spark session: `relance.spark.maintain` and `relance.spark.merge`.
"""

from relance.maintenance.compaction import Compact
from relance.maintenance.execute import Progress
from relance.maintenance.expired_drops import PurgeDropped
from relance.maintenance.index_refresh import RefreshIndexes
from relance.maintenance.maintain import Engine, maintain, start
from relance.maintenance.manifest_upkeep import MaintainManifest
from relance.maintenance.merge_rows import merge
from relance.maintenance.merges import MergeResult
from relance.maintenance.old_versions import CleanUp
from relance.maintenance.orphans import RemoveOrphans
from relance.maintenance.progress import Display
from relance.maintenance.row_deletes import DeleteRows
from relance.maintenance.updates import UpdateRows
from relance.maintenance.work import Effect, Estimate, Figures, Report, Result

__all__ = [
    "CleanUp",
    "Compact",
    "DeleteRows",
    "Display",
    "Effect",
    "Engine",
    "Estimate",
    "Figures",
    "MaintainManifest",
    "MergeResult",
    "Progress",
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
