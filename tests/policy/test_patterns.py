"""Patterns match the ids they mean, and no pattern takes long."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from relance.errors import InvalidInputError
from relance.policy.patterns import parse_pattern


@pytest.mark.parametrize(
    ("pattern", "table"),
    [
        ("prod.users", ("prod", "users")),
        ("prod.*", ("prod", "users")),
        ("prod.*", ("prod", "with.dot")),
        ("**", ("users",)),
        ("**", ("a", "b", "c")),
        ("**.events_*", ("events_web",)),
        ("**.events_*", ("prod", "eu", "events_web")),
        ("**.events_*", ("prod", "events_")),
        ("prod.**", ("prod",)),
        ("prod.**.x", ("prod", "x")),
        ("prod.**.x", ("prod", "a", "b", "x")),
        ("*a*b*", ("xaxbx",)),
        ("prod.`my.table*`", ("prod", "my.table2")),
        ("**.a.**.b.**", ("x", "a", "y", "b")),
        ("größe.表*", ("größe", "表1")),
    ],
)
def test_pattern_matches_the_table_id(pattern: str, table: tuple[str, ...]) -> None:
    assert parse_pattern(pattern).matches(table)


@pytest.mark.parametrize(
    ("pattern", "table"),
    [
        ("prod.*", ("prod",)),
        ("prod.*", ("prod", "a", "b")),
        ("prod.*", ("Prod", "a")),
        ("*", ("a", "b")),
        ("**.events_*", ("events",)),
        ("**.events_*", ("events_web", "daily")),
        ("prod.**", ("production", "a")),
        ("ab*ba", ("aba",)),
        ("prod.`my.table`", ("prod", "my", "table")),
        ("**.a.**.b.**", ("b", "a")),
        ("a+", ("aa",)),
        ("*ab*b", ("ab",)),
        ("a.**.b.**.b", ("a", "b")),
    ],
)
def test_pattern_does_not_match_the_table_id(pattern: str, table: tuple[str, ...]) -> None:
    assert not parse_pattern(pattern).matches(table)


@pytest.mark.parametrize(
    "text", ["", ".", "a..b", "a.", "`a", "`a`b", "***", "a**", "a.**b", "a$b", "[[[[", '["a"]', "x" * 1001]
)
def test_malformed_pattern_is_refused(text: str) -> None:
    with pytest.raises(InvalidInputError, match="pattern"):
        parse_pattern(text)


PARTS = st.text("ab*", min_size=1, max_size=5).filter(lambda part: "**" not in part) | st.just("**")
NAMES = st.text("ab", min_size=1, max_size=5)


def _matches_naively(pattern: tuple[str, ...], table: tuple[str, ...]) -> bool:
    if not pattern:
        return not table
    if pattern[0] == "**":
        return any(_matches_naively(pattern[1:], table[skipped:]) for skipped in range(len(table) + 1))
    if not table:
        return False
    expression = ".*".join(map(re.escape, pattern[0].split("*")))
    return re.fullmatch(expression, table[0]) is not None and _matches_naively(pattern[1:], table[1:])


@settings(max_examples=250)
@given(st.lists(PARTS, min_size=1, max_size=5), st.lists(NAMES, min_size=1, max_size=6))
def test_matching_agrees_with_an_exhaustive_search(pattern: list[str], table: list[str]) -> None:
    found = parse_pattern(".".join(pattern)).matches(tuple(table))
    assert found == _matches_naively(tuple(pattern), tuple(table))


@pytest.mark.timeout(60)  # a matcher that backtracks takes years
def test_hostile_patterns_are_matched_quickly() -> None:
    many = parse_pattern("*a" * 450 + "*b*")
    deep = parse_pattern("**.*a*.**.a." * 70 + "**.b")
    assert not many.matches(("a" * 5000,))
    assert not deep.matches(("a",) * 2000)
