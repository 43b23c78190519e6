"""Maintain manifest: small files merged, indexes brought up to date, old versions removed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from relance.errors import InvalidInputError
from relance.jobs.base import Effect, Estimate, Expected, Job, Name, Scope, TablePlan, Task

if TYPE_CHECKING:
    from relance.catalog.manifest.upkeep import UpkeepReport
    from relance.jobs.base import Context


class MaintainManifest(Job):
    """Keep the catalog's manifest compact, indexed and free of old versions."""

    kind, label, command, order = "maintain_manifest", "maintain manifest", "maintain-manifest", 90
    scope = Scope.ROOT
    frees_bytes = True
    changes = "manifest"

    def plan(self, context: Context, table: Name, expect: Expected | None = None) -> TablePlan | None:
        from relance.catalog.manifest.upkeep import UpkeepReport
        from relance.operations.upkeep import plan_manifest

        if table:
            name = "$".join(table)
            raise InvalidInputError(f"maintain manifest works on the whole catalog: leave out table '{name}'")
        due = plan_manifest(context)
        return None if due == UpkeepReport() else ManifestPlan(due)


@dataclass(frozen=True, slots=True)
class ManifestPlan(TablePlan):
    """What is due."""

    due: UpkeepReport
    tasks: tuple[Task, ...] = ()

    @property
    def estimate(self) -> Estimate:
        """Files to merge, rows to index, and versions and bytes to remove."""
        due = self.due
        return Estimate(
            due.rows_indexed, due.files_merged, due.bytes_removed, due.versions_removed, _note(due)
        )

    def finish(self, context: Context, values: Sequence[Any]) -> Effect:
        """Do a round; what a commit gets in the way of is left for the next one."""
        from relance.operations.upkeep import maintain_manifest

        done = maintain_manifest(context)
        return Effect(
            rows=done.rows_indexed, files=done.files_merged, bytes=done.bytes_removed, note=_note(done)
        )


def _note(report: UpkeepReport) -> str:
    built = f", indexes built: {', '.join(report.indexes_built)}" if report.indexes_built else ""
    return (
        f"{report.files_merged} files merged, {report.rows_indexed} rows indexed, "
        f"{report.versions_removed} versions removed{built}"
    )
