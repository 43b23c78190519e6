"""What a create wants: the data, and what to do when the table exists. Pure."""

from __future__ import annotations

from collections.abc import Mapping
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
class WrittenData:
    """Data files that tasks have written into the table's directory, and no version mentions yet.

    Whoever had them written removes them when no version comes of it; a create does not.
    """

    directory: str
    schema: pa.Schema
    fragments: tuple[str, ...]
    """As JSON of Lance's fragment metadata."""
    files: frozenset[str]
    """Their names below the directory's data folder."""
    is_private: bool = False
    """The directory was made up for these files: nobody else knows it."""
    marker: str | None = None
    """The nonce of the marker that hid the table when the job began; only over that one is it revived."""
    marks: Mapping[str, str] = field(default_factory=dict)
    """Properties of the transaction, by which its version is found again."""
    stable_row_ids: bool | None = None


@dataclass(frozen=True, slots=True)
class NewTable:
    """What a create wants to write."""

    table_id: TableId
    data: pa.Table | WrittenData
    options: StorageOptions
    properties: dict[str, str] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return self.table_id.name

    @property
    def directory(self) -> str:
        """Where the table lies if its directory has its name."""
        return table_directory(self.name)
