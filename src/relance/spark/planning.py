"""Which splits a read has: all rows, or only the fragments in which an index finds some."""

from __future__ import annotations

import re

import lance
import pyarrow.compute as pc

from relance.spark.options import ReadOptions
from relance.spark.scan import ROW_ADDRESS, Scan
from relance.spark.splits import DEFAULT_BYTES, Fragment, Piece, Split, SplitSize, plan_splits
from relance.spark.widths import row_width

_FEW = 500_000
"""So many matches of a filter are read by one task, and found beforehand within a tenth of a second."""

_REFINED = re.compile(r"refine_filter=(?!--)")


def plan_read(dataset: lance.LanceDataset, scan: Scan, options: ReadOptions) -> list[Split]:
    """Return what each task reads: together every row that is asked for, once.

    Raises:
        OSError, ValueError: Lance cannot use the filter.
    """
    share = _share(dataset, scan)
    fragments = [_measured(each, share) for each in dataset.get_fragments()]
    size = SplitSize(options.split_rows, options.split_bytes, options.parallelism)
    limit = options.limit
    if limit is not None and limit >= sum(each.live for each in fragments):
        limit = None
    if scan.filter is None:
        return plan_splits(fragments, size, by_address=False, limit=limit)
    if limit is not None:
        # Only one task after the other could know how many rows are left to find.
        return [Split(tuple(Piece(each.id) for each in fragments), limit)] if limit else []
    matches = _matches(dataset, scan.filter)
    if matches is not None:
        fragments = [each for each in fragments if each.id in matches]
        if sum(matches.values()) * row_width(scan.schema(dataset)) <= DEFAULT_BYTES:
            return [Split(tuple(Piece(each.id) for each in fragments))] if fragments else []
    return plan_splits(fragments, size, by_address=True)


def bytes_per_row(dataset: lance.LanceDataset, scan: Scan) -> int:
    """Return about how wide a row of the scan is: by its types, or by the files when those say more."""
    summary = dataset.get_version()["metadata"]
    stored = int(summary["total_files_size"]) / max(1, int(summary["total_data_file_rows"]))
    return max(row_width(scan.schema(dataset)), round(stored * _share(dataset, scan)))


def _share(dataset: lance.LanceDataset, scan: Scan) -> float:
    """Return which part of the bytes of a row the scan reads, about."""
    return min(1.0, row_width(scan.schema(dataset)) / row_width(dataset.schema))


def _measured(fragment: lance.LanceFragment, share: float) -> Fragment:
    metadata = fragment.metadata
    size = sum(file.file_size_bytes or 0 for file in metadata.files)
    return Fragment(fragment.fragment_id, metadata.physical_rows, metadata.num_deletions, round(size * share))


def _matches(dataset: lance.LanceDataset, text: str) -> dict[int, int] | None:
    """Return how many rows of which fragments fulfil a filter, if an index alone can tell, and few do."""
    plan = dataset.scanner(columns=[], with_row_address=True, filter=text).explain_plan()
    if "ScalarIndexQuery" not in plan or _REFINED.search(plan) or not _is_indexed(dataset, plan):
        return None
    found = dataset.scanner(columns=[], with_row_address=True, filter=text, limit=_FEW + 1).to_table()
    if found.num_rows > _FEW:
        return None
    counts = pc.value_counts(pc.shift_right(found[ROW_ADDRESS], 32)).to_pylist()
    return {each["values"]: each["counts"] for each in counts}


def _is_indexed(dataset: lance.LanceDataset, plan: str) -> bool:
    """Tell whether the indexes of a plan know every fragment: others would be read to find matches."""
    fragments = {each.fragment_id for each in dataset.get_fragments()}
    used = set(re.findall(r"\]@(.+?)\((?:\w+)\)", plan))
    covered = {
        index.name: {fragment for segment in index.segments for fragment in segment.fragment_ids}
        for index in dataset.describe_indices()
    }
    return bool(used) and all(fragments <= covered.get(name, set()) for name in used)
