"""Maintenance: jobs that keep tables healthy, as plans, tasks and one commit, on threads or on Spark.

On threads of this process: `maintain(catalog, job)`, and `merge(catalog, table, rows, on)` for Arrow rows.
With a Spark session: `relance.spark.maintain` and `relance.spark.merge`.
"""

from relance.maintenance.execute import Progress
from relance.maintenance.layout.compaction import Compact
from relance.maintenance.layout.index_refresh import RefreshIndexes
from relance.maintenance.layout.manifest_upkeep import MaintainManifest
from relance.maintenance.maintain import Engine, maintain, start
from relance.maintenance.merging.merge_rows import merge
from relance.maintenance.merging.merges import MergeResult
from relance.maintenance.progress import Display
from relance.maintenance.removal.expired_drops import PurgeDropped
from relance.maintenance.removal.old_versions import CleanUp
from relance.maintenance.removal.orphans import RemoveOrphans
from relance.maintenance.rows.row_deletes import DeleteRows
from relance.maintenance.rows.updates import UpdateRows
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
