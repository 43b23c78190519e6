"""A table with many versions, for tests that clean them up."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import lance
import pyarrow as pa
from tests.support.jobs.lakes import JobLake
from tests.support.modes import MODES

from relance import DirectoryNamespace

CLEANING_MODES = {**MODES, "managed versions": {"table_version_management": "true"}}

ID = ["t"]


@dataclass(frozen=True, slots=True)
class VersionedTable:
    """The table `t` of a lake, its versions and its files."""

    lake: JobLake

    @property
    def catalog(self) -> DirectoryNamespace:
        return self.lake.catalog

    @property
    def uri(self) -> str:
        return self.lake.location(*ID)

    def make(self, values: list[int]) -> None:
        self.lake.make("t", *values)

    def dataset(self, version: int | str | None = None) -> lance.LanceDataset:
        return self.lake.dataset(*ID, version=version)

    def append(self, *values: int) -> None:
        self.lake.append("t", *values)

    def overwrite(self, *values: int) -> None:
        self.lake.write(pa.table({"a": list(values)}), *ID, mode="overwrite")

    def values(self, version: int | str | None = None) -> list[int]:
        return self.lake.values("t", version)

    def versions(self) -> list[int]:
        return [each.version for each in self.catalog.list_table_versions({"id": ID}).versions]

    def files(self) -> set[str]:
        """Return the table's files, without the hint that Lance keeps of its latest version."""
        folder = Path(self.uri)
        found = {str(each.relative_to(folder)) for each in folder.rglob("*") if each.is_file()}
        return {each for each in found if not each.endswith("latest_version_hint.json")}

    def needed(self) -> set[str]:
        """Return the files that some version names, by Lance itself."""
        return {row["path"] for row in self.dataset().tracked_files().read_all().to_pylist()}


def with_versions(table: VersionedTable) -> VersionedTable:
    """Create six versions: 1, 3 and 5 overwrite the table, 2, 4 and 6 append to it."""
    table.make([1])
    table.append(2)
    table.overwrite(3)
    table.append(4)
    table.overwrite(5)
    table.append(6)
    return table
