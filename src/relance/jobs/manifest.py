"""Manifest upkeep as a job: small files merged, indexes brought up to date, old versions removed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from relance.catalog.context import Context
from relance.catalog.manifest.upkeep import UpkeepReport
from relance.errors import InvalidInputError
from relance.jobs.base import Effect, Estimate, Task
from relance.operations.upkeep import maintain_manifest, plan_manifest


@dataclass(frozen=True, slots=True)
class MaintainManifest:
    """Keeps the manifest of a catalog in shape; it works on the root, and no table is named."""

    name: ClassVar[str] = "maintain manifest"

    def targets(self, context: Context) -> Sequence[tuple[str, ...]]:
        """Return the root."""
        return [()]

    def plan(self, context: Context, table: tuple[str, ...]) -> ManifestPlan | None:
        """Return what is due; None when nothing is.

        Raises:
            InvalidInputError: a table is named.
            UnsupportedOperationError: the catalog is opened without a manifest.
        """
        if table:
            name = "$".join(table)
            raise InvalidInputError(f"maintain manifest works on the whole catalog: leave out table '{name}'")
        due = plan_manifest(context)
        return None if due == UpkeepReport() else ManifestPlan(due)


@dataclass(frozen=True, slots=True)
class ManifestPlan:
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
