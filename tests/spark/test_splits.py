"""Sharing rows out to tasks: every row once, in order, in tasks of about the same size."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from relance.spark.splits import Fragment, Piece, Split, SplitSize, plan_splits


def rows_of(split: Split, fragments: dict[int, Fragment], *, by_address: bool) -> list[tuple[int, int]]:
    """Return every row that a split names, as (fragment, position)."""
    found = []
    for piece in split.pieces:
        fragment = fragments[piece.fragment]
        stop = piece.stop
        if stop is None:
            stop = fragment.rows if by_address else fragment.live
        found += [(piece.fragment, row) for row in range(piece.start, stop)]
    return found if split.limit is None else found[: split.limit]


FRAGMENTS = st.lists(
    st.tuples(st.integers(0, 60), st.integers(0, 60), st.integers(0, 1000)), max_size=12
).map(
    lambda each: [Fragment(i * 3, rows, min(gone, rows), size) for i, (rows, gone, size) in enumerate(each)]
)
SIZES = st.builds(
    SplitSize, rows=st.none() | st.integers(1, 100), bytes=st.none() | st.integers(1, 1000)
) | st.builds(SplitSize, parallelism=st.none() | st.integers(1, 8))


@settings(max_examples=300)
@given(FRAGMENTS, SIZES, st.booleans())
def test_splits_cover_every_row_once_and_in_order(
    fragments: list[Fragment], size: SplitSize, by_address: bool
) -> None:
    splits = plan_splits(fragments, size, by_address=by_address)
    by_id = {each.id: each for each in fragments}
    found = [row for split in splits for row in rows_of(split, by_id, by_address=by_address)]
    expected = [
        (each.id, row)
        for each in fragments
        if each.live
        for row in range(each.rows if by_address else each.live)
    ]
    assert found == expected
    assert all(split.pieces for split in splits)


@settings(max_examples=300)
@given(FRAGMENTS, SIZES, st.integers(0, 300))
def test_split_limit_keeps_the_first_rows(fragments: list[Fragment], size: SplitSize, limit: int) -> None:
    splits = plan_splits(fragments, size, by_address=False, limit=limit)
    by_id = {each.id: each for each in fragments}
    found = [row for split in splits for row in rows_of(split, by_id, by_address=False)]
    assert found == [(each.id, row) for each in fragments for row in range(each.live)][:limit]


def test_many_small_fragments_share_a_few_tasks() -> None:
    small = [Fragment(i, 100, bytes=4_000) for i in range(5_000)]
    assert len(plan_splits(small, SplitSize(), by_address=False)) == 1
    assert len(plan_splits(small, SplitSize(rows=100_000), by_address=False)) == 5


def test_huge_fragment_is_split_into_even_row_ranges() -> None:
    splits = plan_splits([Fragment(7, 10_000_000)], SplitSize(rows=2_500_000), by_address=False)
    assert splits == [
        Split((Piece(7, 0, 2_500_000),)),
        Split((Piece(7, 2_500_000, 5_000_000),)),
        Split((Piece(7, 5_000_000, 7_500_000),)),
        Split((Piece(7, 7_500_000),)),
    ]


def test_splits_prefer_fragment_boundaries() -> None:
    nearly_even = [Fragment(i, 1_048_576, bytes=22 << 20) for i in range(9)] + [Fragment(9, 562_816)]
    splits = plan_splits(nearly_even, SplitSize(parallelism=2), by_address=False)
    assert len(splits) == 2
    assert all(piece.is_whole for split in splits for piece in split.pieces)


def test_number_of_tasks_is_a_multiple_of_the_known_cores() -> None:
    assert SplitSize(parallelism=2).tasks_for(20_000_000, 0) == 4
    assert SplitSize().tasks_for(20_000_000, 0) == 3
    assert SplitSize(parallelism=8).tasks_for(1_000, 4_000) == 1
    assert SplitSize(parallelism=8).tasks_for(2_000_000, 0) == 4


def test_small_limit_needs_only_one_task() -> None:
    huge = [Fragment(i, 10_000_000) for i in range(10)]
    assert plan_splits(huge, SplitSize(parallelism=8), by_address=False, limit=5) == [
        Split((Piece(0),), limit=5)
    ]
