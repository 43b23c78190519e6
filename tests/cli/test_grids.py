"""Tables as lines: what fits, what is left out, and that nothing is cut."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from relance.cli.grids import GAP, Grid, lay_out, vertical
from relance.cli.words import printable

NUMBERS = [[f"{number + column / 7:.6f}" for column in range(40)] for number in range(3)]
WIDE = Grid(
    [f"c{n:02}" for n in range(40)], NUMBERS, frozenset(f"c{n:02}" for n in range(40)), can_choose=True
)


def test_middle_columns_are_left_out_and_counted() -> None:
    found = lay_out(WIDE, 80)
    assert found.lines[0].split() == ["c00", "c01", "c02", "c03", GAP, "c37", "c38", "c39"]
    assert found.note == "40 columns, 7 shown: choose with --columns, or see all with --vertical"
    for line, row in zip(found.lines[1:], NUMBERS, strict=True):
        assert line.split() == [*row[:4], GAP, *row[-3:]]
        assert len(line) <= 80


def test_table_that_fits_is_shown_whole() -> None:
    found = lay_out(Grid(["ID", "N"], [["a", "1"], ["bb", "10"]], frozenset({"N"})), 80)
    assert found.lines == ["ID   N", "a    1", "bb  10"]
    assert not found.note
    assert lay_out(WIDE, None).lines[0].split() == list(WIDE.headings)


def test_columns_to_keep_stay_when_others_are_left_out() -> None:
    grid = Grid(["A", "B", "KEY", "C", "D"], [["a" * 20, "b" * 30, "k" * 12, "c" * 30, "d" * 20]])
    kept = lay_out(Grid(grid.headings, grid.rows, keep=frozenset({"KEY"})), 70)
    assert kept.lines[0].split() == ["A", GAP, "KEY", GAP, "D"]
    assert lay_out(grid, 78).lines[0].split() == ["A", "B", GAP, "D"]


def test_prose_is_wrapped_between_words_and_left_out_when_empty() -> None:
    said = "the oldest version is from June and none of the later ones may go"
    grid = Grid(["ID", "WHY", "NOTE"], [["x" * 30, said, ""]], prose=frozenset({"WHY", "NOTE"}))
    found = lay_out(grid, 60)
    assert found.lines[0].split() == ["ID", "WHY"]
    assert all(len(line) <= 60 for line in found.lines)
    assert " ".join(line[32:] for line in found.lines[1:]) == said
    assert not found.note


def test_value_wider_than_the_terminal_is_whole() -> None:
    found = lay_out(Grid(["ID", "N"], [["x" * 100, "1"]], frozenset({"N"})), 80)
    assert found.lines[1].split() == ["x" * 100, GAP]
    path = "s3://bucket/" + "y" * 90
    shown = lay_out(Grid(["K", "V"], [["at", path]], prose=frozenset({"V"}), header=False), 80).lines
    assert shown == [f"at  {path}"]


def test_vertical_shows_every_value_of_every_column() -> None:
    lines = list(vertical(WIDE))
    assert lines[:3] == ["row 1", f"  c00  {NUMBERS[0][0]}", f"  c01  {NUMBERS[0][1]}"]
    assert len(lines) == 3 * 41


_CELL = st.text(st.characters(codec="utf-8"), max_size=30)


@given(
    rows=st.integers(1, 9).flatmap(
        lambda n: st.lists(st.lists(_CELL, min_size=n, max_size=n), min_size=1, max_size=4)
    ),
    width=st.integers(1, 120),
    prose=st.sets(st.integers(0, 8)),
)
def test_no_word_is_ever_cut_and_lines_fit(rows: list[list[str]], width: int, prose: set[int]) -> None:
    headings = [f"h{n}" for n in range(len(rows[0]))]
    grid = Grid(headings, rows, prose=frozenset(f"h{n}" for n in prose))
    found = lay_out(grid, width)
    text = " ".join(found.lines)
    kept = [n for n, heading in enumerate(headings) if re.search(rf"\b{heading}\b", found.lines[0])]
    assert 0 in kept or not any(row[0] for row in rows)
    for row in rows:
        for n in kept:
            assert all(word in text for word in printable(row[n]).split())
    if not prose and len(kept) > 1:
        assert max(map(cell_len, found.lines)) <= width


@pytest.mark.parametrize("width", [20, 40, 80, 200])
def test_note_counts_what_is_shown(width: int) -> None:
    found = lay_out(WIDE, width)
    columns = [each for each in found.lines[0].split() if each != GAP]
    assert found.note.startswith(f"40 columns, {len(columns)} shown")
