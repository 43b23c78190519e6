"""What the tests of cleaning share: a table with versions, and a look at its files."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
from tests.support.roots import ipc

from relance import DirectoryNamespace

MODES: dict[str, dict[str, Any]] = {
    "V1": {"manifest_enabled": "false"},
    "V2": {"dir_listing_enabled": "false"},
    "compatibility": {},
    "managed versions": {"table_version_management": "true"},
}

ID = ["t"]


@dataclass(slots=True)
class Lake:
    """A root with a catalog on it."""

    root: Path
    mode: dict[str, Any]
    catalog: DirectoryNamespace = field(init=False)

    def __post_init__(self) -> None:
        self.catalog = DirectoryNamespace(root=str(self.root), **self.mode)

    def make(self, values: list[int]) -> None:
        self.catalog.create_table({"id": ID}, ipc(pa.table({"a": values})))

    @property
    def uri(self) -> str:
        location = self.catalog.describe_table({"id": ID}).location
        assert location is not None
        return location.removeprefix("file://")

    def dataset(self, version: int | str | None = None) -> lance.LanceDataset:
        return lance.dataset(self.uri, version=version)

    def append(self, *values: int) -> None:
        lance.write_dataset(pa.table({"a": list(values)}), self.uri, mode="append")

    def overwrite(self, *values: int) -> None:
        lance.write_dataset(pa.table({"a": list(values)}), self.uri, mode="overwrite")

    def values(self, version: int | str | None = None) -> list[int]:
        return sorted(self.dataset(version).to_table()["a"].to_pylist())

    def versions(self) -> list[int]:
        return [each.version for each in self.catalog.list_table_versions({"id": ID}).versions]

    def files(self) -> set[str]:
        """The table's files, without the hint that Lance keeps of its latest version."""
        folder = Path(self.uri)
        found = {str(each.relative_to(folder)) for each in folder.rglob("*") if each.is_file()}
        return {each for each in found if not each.endswith("latest_version_hint.json")}

    def needed(self) -> set[str]:
        """What some version names, by Lance itself."""
        return {row["path"] for row in self.dataset().tracked_files().read_all().to_pylist()}


def with_versions(lake: Lake) -> Lake:
    """Give the lake a table of six versions: 1, 3 and 5 begin it anew, 2, 4 and 6 add to it."""
    lake.make([1])
    lake.append(2)
    lake.overwrite(3)
    lake.append(4)
    lake.overwrite(5)
    lake.append(6)
    return lake
