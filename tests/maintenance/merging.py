"""The smallest engine of merges: everything in this process, with Arrow and dictionaries."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from relance.maintenance.merge_commit import Work
from relance.maintenance.merge_plan import Clauses, MergePlan, MergeRequest
from relance.maintenance.merge_tasks import NewRows, delete_offsets, offsets_of, write_rows
from relance.maintenance.merges import Counts, MergeResult, run_merge
from relance.operations.context import Context

Key = tuple[Any, ...]


def merge_here(
    context: Context,
    name: str,
    rows: pa.Table,
    on: tuple[str, ...] = ("k",),
    clauses: Clauses | None = None,
    *,
    before_commit: Callable[[], None] = lambda: None,
    dry_run: bool = False,
) -> MergeResult:
    """Merge rows that have all columns of the table."""
    request = MergeRequest((name,), on, clauses or Clauses(), lambda schema: None)
    return run_merge(context, request, LocalEngine(rows, before_commit), dry_run=dry_run)


@dataclass(frozen=True)
class LocalEngine:
    rows: pa.Table
    before_commit: Callable[[], None] = lambda: None

    def count(self, plan: MergePlan) -> Counts:
        pairs, deleted = self._matches(plan)
        matched = sum(address is not None for _, address, _ in pairs)
        return Counts(matched, len(pairs) - matched, len(deleted))

    def work(self, plan: MergePlan) -> Work:
        pairs, deleted = self._matches(plan)
        written = write_rows(plan, self._new_rows(plan, pairs))
        addresses = [address for _, address, _ in pairs if address is not None] + deleted
        touched = tuple(
            delete_offsets(plan, plan.table.open(), fragment, offsets)
            for fragment, offsets in offsets_of(np.array(addresses, np.int64)).items()
        )
        self.before_commit()
        return Work(written.fragments, touched, written.updated, written.inserted, len(deleted))

    def count_same_keys(self, plan: MergePlan, version: int) -> int:
        keys = set(self._keys(plan))
        later = plan.table.at(version).open()
        first = (plan.last_fragment + 1) << 32
        found = later.scanner(columns=list(plan.on), with_row_address=True, filter=f"_rowaddr >= {first}")
        return sum(_key(row, plan) in keys for row in found.to_table().to_pylist())

    def _matches(self, plan: MergePlan) -> tuple[list[tuple[int, int | None, int | None]], list[int]]:
        """Return numbers of new rows, each with address and id of the old one; and what is deleted."""
        there: dict[Key, list[tuple[int, int]]] = {}
        scan = plan.table.open().scanner(columns=list(plan.on), with_row_address=True, with_row_id=True)
        for row in scan.to_table().to_pylist():
            there.setdefault(_key(row, plan), []).append((row["_rowaddr"], row["_rowid"]))
        keys = list(self._keys(plan))
        updated = [(n, *place) for n, key in enumerate(keys) for place in _found(there, key)]
        inserted = [(n, None, None) for n, key in enumerate(keys) if not _found(there, key)]
        left = [p for key, places in there.items() if None in key or key not in set(keys) for p, _ in places]
        clauses = plan.clauses
        pairs = [*(updated if clauses.update else []), *(inserted if clauses.insert else [])]
        return pairs, left if clauses.delete else []

    def _keys(self, plan: MergePlan) -> Iterator[Key]:
        for row in self.rows.select(list(plan.on)).to_pylist():
            yield _key(row, plan)

    def _new_rows(self, plan: MergePlan, pairs: list[Any]) -> Iterator[NewRows]:
        if not pairs:
            return
        chosen = self.rows.select(plan.write.schema.names).cast(plan.write.schema)
        batch = chosen.take([pair[0] for pair in pairs]).combine_chunks().to_batches()[0]
        addresses = pa.array([pair[1] for pair in pairs], pa.int64())
        row_ids = pa.array([pair[2] for pair in pairs], pa.int64()) if plan.stable_row_ids else None
        half = len(pairs) // 2  # in two batches, as they come from an engine
        for start, stop in ((0, half), (half, len(pairs))):
            if stop > start:
                ids = None if row_ids is None else row_ids.slice(start, stop - start)
                yield NewRows(batch.slice(start, stop - start), addresses.slice(start, stop - start), ids)


def _key(row: dict[str, Any], plan: MergePlan) -> Key:
    return tuple(row[name] for name in plan.on)


def _found(there: dict[Key, list[tuple[int, int]]], key: Key) -> list[tuple[int, int]]:
    return [] if None in key else there.get(key, [])
