"""What a create wants: the data, and what to do when the table exists. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

import pyarrow as pa

from relance.config import StorageOptions
from relance.identifiers import TableId
from relance.locations import table_directory


class CreateMode(StrEnum):
    """What to do when the table exists."""

    CREATE = "create"
    EXIST_OK = "exist_ok"
    OVERWRITE = "overwrite"


@dataclass(frozen=True, slots=True)
class NewTable:
    """What a create wants to write."""

    table_id: TableId
    data: pa.Table
    options: StorageOptions
    properties: dict[str, str] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return self.table_id.name

    @property
    def directory(self) -> str:
        """Where the table lies if its directory has its name."""
        return table_directory(self.name)
