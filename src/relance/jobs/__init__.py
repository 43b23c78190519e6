"""Maintenance: jobs that keep tables healthy, as plans, tasks and one commit, on threads or on Spark.

On threads of this process: `maintain(catalog, job)`, and `merge(catalog, table, rows, on)` for Arrow rows.
With a Spark session: `relance.spark.maintain` and `relance.spark.merge`.
"""

from relance.jobs.base import Effect, Estimate, Figures, Report, Result
from relance.jobs.engine import Progress
from relance.jobs.maintain import Engine, maintain, start
from relance.jobs.manifest import MaintainManifest
from relance.jobs.merging.merge_rows import merge
from relance.jobs.merging.merges import MergeResult
from relance.jobs.plans.compaction import Compact
from relance.jobs.plans.expired_drops import PurgeDropped
from relance.jobs.plans.index_refresh import RefreshIndexes
from relance.jobs.plans.old_versions import CleanUp
from relance.jobs.plans.orphans import RemoveOrphans
from relance.jobs.plans.row_deletes import DeleteRows
from relance.jobs.plans.row_updates import UpdateRows
from relance.jobs.progress import Display

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
