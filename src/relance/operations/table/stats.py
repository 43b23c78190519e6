"""How big a table is, in rows, bytes and fragments."""

from __future__ import annotations

from collections.abc import Sequence

from lance_namespace import GetTableStatsRequest, GetTableStatsResponse
from lance_namespace_urllib3_client.models.fragment_stats import FragmentStats
from lance_namespace_urllib3_client.models.fragment_summary import FragmentSummary

from relance.catalog.context import Context
from relance.operations.table.opening import reading


def get_table_stats(context: Context, request: GetTableStatsRequest) -> GetTableStatsResponse:
    """Return the live rows, the bytes of the columns, the indexes, and how rows spread over fragments.

    Raises:
        TableNotFoundError, TableBranchNotFoundError
    """
    with reading(context, request.id, branch=request.branch) as dataset:
        lengths = sorted(each.metadata.num_rows for each in dataset.get_fragments())
        return GetTableStatsResponse(
            total_bytes=sum(each.bytes_on_disk for each in dataset.stats.data_stats().fields),
            num_rows=sum(lengths),
            num_indices=len({each.name for each in dataset.describe_indices()}),
            fragment_stats=FragmentStats(
                num_fragments=len(lengths),
                num_small_fragments=dataset.stats.dataset_stats()["num_small_files"],
                lengths=summarise(lengths),
            ),
        )


def summarise(lengths: Sequence[int]) -> FragmentSummary:
    """Return how sorted lengths spread; all zero if there are none."""
    if not lengths:
        return FragmentSummary(min=0, max=0, mean=0, p25=0, p50=0, p75=0, p99=0)
    return FragmentSummary(
        min=lengths[0],
        max=lengths[-1],
        mean=sum(lengths) // len(lengths),
        p25=_percentile(lengths, 25),
        p50=_percentile(lengths, 50),
        p75=_percentile(lengths, 75),
        p99=_percentile(lengths, 99),
    )


def _percentile(lengths: Sequence[int], percent: int) -> int:
    """Return the length at this part of the way from the shortest to the longest."""
    return lengths[(len(lengths) - 1) * percent // 100]
