"""Clients that do what the specification says and have never heard of Relance."""

from __future__ import annotations

import json
import secrets
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa

from relance.clock import to_millis

WEEK = timedelta(days=7)


@dataclass(frozen=True, slots=True)
class DirectoryClient:
    """A V1 client on a local disk: directories `n.lance`, and the marker `n.deleted` of a dropped table."""

    root: Path

    def directory(self, name: str) -> Path:
        return self.root / f"{name}.lance"

    def marker(self, name: str) -> Path:
        return self.root / f"{name}.deleted"

    def is_dropped(self, name: str) -> bool:
        return self.marker(name).exists()

    def create(self, name: str, rows: pa.Table) -> None:
        mode = "overwrite" if self.is_dropped(name) else "create"
        lance.write_dataset(rows, self.directory(name), mode=mode)
        self.marker(name).unlink(missing_ok=True)

    def tables(self) -> list[str]:
        """List the root once and filter in memory."""
        entries = {path.name for path in self.root.iterdir()}
        names = {entry.removesuffix(".lance") for entry in entries if entry.endswith(".lance")}
        return sorted(name for name in names if f"{name}.deleted" not in entries)

    def rows(self, name: str) -> list[dict[str, Any]]:
        if self.is_dropped(name):
            raise FileNotFoundError(name)
        rows: list[dict[str, Any]] = lance.dataset(self.directory(name)).to_table().to_pylist()
        return rows

    def drop(self, name: str, ttl: timedelta = WEEK, *, at: datetime | None = None) -> None:
        """Create the marker, unless there is one."""
        at = at or datetime.now(UTC)
        body = {"deleted_at_ms": to_millis(at), "ttl_ms": ttl // timedelta(milliseconds=1)}
        with self.marker(name).open("x") as file:
            json.dump(body, file)

    def undrop(self, name: str) -> None:
        self.marker(name).unlink()

    def purgable(self, now: datetime) -> list[str]:
        names = [path.name.removesuffix(".deleted") for path in self.root.glob("*.deleted")]
        return sorted(name for name in names if self._is_due(name, now))

    def purge(self, name: str, now: datetime) -> None:
        if not self._is_due(name, now):
            raise ValueError(f"{name} is not due")
        shutil.rmtree(self.directory(name))
        self.marker(name).unlink()

    def _is_due(self, name: str, now: datetime) -> bool:
        fields = json.loads(self.marker(name).read_text())
        return bool(fields["deleted_at_ms"] + fields["ttl_ms"] <= to_millis(now))


MANIFEST_SCHEMA = pa.schema(
    [
        pa.field("object_id", pa.string(), False, {"lance-schema:unenforced-primary-key": "true"}),
        pa.field("object_type", pa.string(), False),
        pa.field("location", pa.string()),
        pa.field("metadata", pa.string()),
        pa.field("base_objects", pa.list_(pa.field("object_id", pa.string()))),
    ]
)


@dataclass(frozen=True, slots=True)
class ManifestClient:
    """A V2 client that knows the table `__manifest` and merge-inserts its rows on `object_id`."""

    root: str
    storage_options: Mapping[str, str] | None = None

    @property
    def uri(self) -> str:
        return f"{self.root}/__manifest"

    def rows(self) -> dict[str, dict[str, Any]]:
        """Return every row by its id."""
        dataset = lance.dataset(self.uri, storage_options=self.storage_options)
        return {row["object_id"]: row for row in dataset.to_table().to_pylist()}

    def insert(
        self,
        object_id: str,
        object_type: str,
        location: str | None = None,
        metadata: object = None,
        base_objects: list[str] | None = None,
    ) -> bool:
        """Merge-insert a row; False: there is one of this id. `metadata` is any JSON value or its text."""
        dataset = lance.dataset(self.uri, storage_options=self.storage_options)
        row: dict[str, object] = {
            "object_id": object_id,
            "object_type": object_type,
            "location": location,
            "metadata": metadata if metadata is None or isinstance(metadata, str) else json.dumps(metadata),
            "base_objects": base_objects,
        }
        if "created_at" in dataset.schema.names and not dataset.schema.field("created_at").nullable:
            row["created_at"] = datetime.now(UTC)
        known = {name: [row.get(name)] for name in dataset.schema.names}
        # Through an index, Lance does not see rows that were committed since it read the table.
        merge = dataset.merge_insert("object_id").when_not_matched_insert_all().use_index(False)
        inserted: int = merge.execute(pa.table(known, dataset.schema))["num_inserted_rows"]
        return inserted == 1

    def create_table(self, object_id: str, rows: pa.Table, location: str | None = None) -> str:
        """Write a table into `<hash>_<object_id>`, or another location, and insert its row."""
        location = location or f"{secrets.token_hex(4)}_{object_id}"
        lance.write_dataset(rows, f"{self.root}/{location}", storage_options=self.storage_options)
        assert self.insert(object_id, "table", location)
        return location

    def table(self, object_id: str) -> list[dict[str, Any]]:
        """Return the rows of a table, found by its location."""
        location = self.rows()[object_id]["location"]
        dataset = lance.dataset(f"{self.root}/{location}", storage_options=self.storage_options)
        rows: list[dict[str, Any]] = dataset.to_table().to_pylist()
        return rows

    def delete(self, object_id: str) -> None:
        dataset = lance.dataset(self.uri, storage_options=self.storage_options)
        dataset.delete(f"object_id = '{object_id}'")

    def create_namespace(self, object_id: str, **properties: Any) -> bool:
        return self.insert(object_id, "namespace", None, properties)

    def tables(self, namespace: str = "") -> list[str]:
        """Return the names of a namespace's tables, as the specification queries them."""
        prefix = f"{namespace}$" if namespace else ""
        ids = [
            key
            for key, row in self.rows().items()
            if row["object_type"] == "table" and key.startswith(prefix)
        ]
        return sorted(key.removeprefix(prefix) for key in ids if "$" not in key.removeprefix(prefix))
