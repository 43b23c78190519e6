"""What the tasks of a merge do: write new rows, and delete the old ones of a fragment.

Both leave only files that no version mentions. An address is a number of Lance: the fragment in its upper
half, the row's place in the fragment in its lower one.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

import lance
import numpy as np
import numpy.typing as npt
import pyarrow as pa
from lance.fragment import FragmentMetadata, RowIdSequence

from relance.errors import InternalError
from relance.jobs.merging.merge_plan import MergePlan
from relance.operations.data_errors import data_errors
from relance.operations.staging.tasks import write_batches

Offsets = npt.NDArray[np.uint32]


@dataclass(frozen=True, slots=True)
class NewRows:
    """Whole rows to be written, and which rows of the table they take the place of."""

    batch: pa.RecordBatch
    addresses: pa.Array
    """Of the rows that are replaced; null for rows that are inserted."""
    row_ids: pa.Array | None = None
    """The ids that replaced rows keep; None when ids are not stable."""


@dataclass(frozen=True, slots=True)
class Written:
    """What one task wrote."""

    fragments: tuple[str, ...]
    """As JSON."""
    updated: int
    inserted: int
    replaced: Mapping[int, Offsets] = field(default_factory=dict)
    """Which rows of which fragments are to be deleted."""


@dataclass(frozen=True, slots=True)
class Touched:
    """A fragment of which rows were deleted."""

    fragment: int
    rows: int
    """How many were deleted now."""
    metadata: str | None
    """As JSON; None when no row is left."""


def write_rows(plan: MergePlan, rows: Iterable[NewRows]) -> Written:
    """Write the rows; where ids are stable, all that replace others come first.

    Raises:
        TableSchemaValidationError: a value does not fit its column.
        InternalError: a row that replaces another one comes after an inserted one, and its id would be lost.
    """
    addresses: list[npt.NDArray[np.int64]] = []
    row_ids: list[npt.NDArray[np.int64]] = []
    inserted = 0

    def taken() -> Iterator[pa.RecordBatch]:
        nonlocal inserted
        for each in rows:
            old = each.addresses.drop_null()
            if plan.stable_row_ids and len(old):
                if inserted or each.addresses.slice(0, len(old)).null_count or each.row_ids is None:
                    raise InternalError("updated rows must come before inserted rows")
                row_ids.append(each.row_ids.slice(0, len(old)).to_numpy(zero_copy_only=False))
            addresses.append(old.to_numpy(zero_copy_only=False).astype(np.int64))
            inserted += len(each.addresses) - len(old)
            yield each.batch

    fragments = write_batches(plan.write, taken())
    kept = np.concatenate(row_ids) if row_ids else None
    replaced = offsets_of(np.concatenate(addresses)) if addresses else {}
    return Written(
        fragments=fragments if kept is None else _with_ids(fragments, kept),
        updated=sum(map(len, addresses)),
        inserted=inserted,
        replaced=replaced,
    )


def offsets_of(addresses: npt.NDArray[np.int64]) -> dict[int, Offsets]:
    """Return the rows that addresses mean, by fragment."""
    ordered = np.sort(addresses, kind="stable")  # which takes no time for what a scan found in order
    numbers, starts = np.unique(ordered >> 32, return_index=True)
    parts = np.split((ordered & 0xFFFFFFFF).astype(np.uint32), starts[1:])
    return {int(number): part for number, part in zip(numbers, parts, strict=True)} if len(numbers) else {}


def delete_offsets(plan: MergePlan, dataset: lance.LanceDataset, fragment: int, offsets: Offsets) -> Touched:
    """Delete rows of a fragment of the planned version, in a new deletion file beside those that are there.

    Raises:
        InternalError: the version has no such fragment.
    """
    chosen = offsets if (offsets[1:] > offsets[:-1]).all() else np.unique(offsets)
    with data_errors(f"table id '{plan.table.id}'", dict(plan.table.storage_options)):
        found = dataset.get_fragment(fragment)
        if found is None:
            raise InternalError(f"table id '{plan.table.id}' has no fragment {fragment}")
        left = found.delete_rows(chosen.tolist())
    return Touched(fragment, len(chosen), None if left is None else json.dumps(left.to_json()))


def _with_ids(fragments: Iterable[str], row_ids: npt.NDArray[np.int64]) -> tuple[str, ...]:
    """Return the fragments with the ids of their first rows; Lance gives new ones to the others."""
    answer = []
    for text in fragments:
        metadata = FragmentMetadata.from_json(text)
        ids, row_ids = row_ids[: metadata.physical_rows], row_ids[metadata.physical_rows :]
        if len(ids):
            kept = RowIdSequence(ids.tolist()).to_inline_metadata()
            text = json.dumps(replace(metadata, row_id_meta=kept).to_json())
        answer.append(text)
    return tuple(answer)
