"""What the fragments of a table hold: rows, files and bytes, as the manifest tells them."""

from __future__ import annotations

from collections.abc import Iterable

import lance
from lance.fragment import FragmentMetadata

from relance.jobs.base import Figures


def figures_of(dataset: lance.LanceDataset) -> Figures:
    """Return what the fragments of a dataset hold; nothing is read for it."""
    return figures_of_fragments([each.metadata for each in dataset.get_fragments()])


def figures_of_fragments(fragments: Iterable[FragmentMetadata]) -> Figures:
    """Return what these fragments hold; bytes are those of their data files."""
    chosen = list(fragments)
    return Figures(
        rows=sum(each.num_rows for each in chosen),
        deleted_rows=sum(each.num_deletions for each in chosen),
        fragments=len(chosen),
        files=sum(len(each.files) + (each.deletion_file is not None) for each in chosen),
        bytes=sum(map(bytes_of, chosen)),
    )


def deleted_share(fragment: FragmentMetadata) -> float:
    """Return which share of the rows in a fragment's files is deleted: above a threshold it is rewritten."""
    return fragment.num_deletions / fragment.physical_rows if fragment.physical_rows else 0.0


def bytes_of(fragment: FragmentMetadata) -> int:
    """Return the size of a fragment's data files; old writers did not note it, so it may be too small."""
    return sum(each.file_size_bytes or 0 for each in fragment.files)
