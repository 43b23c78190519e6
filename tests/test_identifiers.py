"""Names: what is refused, and why."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relance.errors import InvalidInputError
from relance.identifiers import MAX_NAME_BYTES, parse_namespace_id, parse_table_id, why_unusable


@pytest.mark.parametrize(
    "name",
    [
        "",
        ".",
        "..",
        "a$b",
        "a/b",
        "a\\b",
        "a\0b",
        "a\nb",
        "a%b",
        "a#b",
        "a?b",
        "a*b",
        'a"b',
        " a",
        "a ",
    ],
)
def test_invalid_names_are_refused_with_the_reason(name: str) -> None:
    with pytest.raises(InvalidInputError) as caught:
        parse_table_id([name])
    assert caught.value.code == 13
    assert str(why_unusable(name)) in str(caught.value)


@pytest.mark.parametrize("name", ["__manifest", "__dropped"])
def test_reserved_name_is_that_of_an_existing_object_at_most(name: str) -> None:
    for parse in (parse_table_id, parse_namespace_id):
        with pytest.raises(InvalidInputError, match="reserved"):
            parse([name])
    assert parse_table_id([name, "t"], existing=True).parts == [name, "t"]
    assert parse_namespace_id([name], existing=True) == (name,)


@pytest.mark.parametrize(
    "name", ["a", "tablé", "a b", "it's", "日本", "x.lance", ".hidden", "a+b:c&d", "x" * 220]
)
def test_valid_names_are_accepted_unchanged(name: str) -> None:
    assert parse_table_id([name]).name == name


def test_name_length_is_measured_in_bytes() -> None:
    assert why_unusable("é" * (MAX_NAME_BYTES // 2)) is None
    assert "longer" in str(why_unusable("é" * (MAX_NAME_BYTES // 2 + 1)))


def test_names_with_ambiguous_or_invisible_characters_are_refused() -> None:
    assert why_unusable("e\u0301") is not None  # decomposed
    assert why_unusable("\u00e9") is None
    assert why_unusable("\ud800") is not None  # a lone surrogate has no bytes
    assert why_unusable("a\u200bb") is not None  # invisible


@given(st.text(max_size=30))
def test_any_accepted_name_is_safe_to_store(name: str) -> None:
    if why_unusable(name) is None:
        assert name.encode().decode() == name
        assert not set(name) & set('/\\$%#?*"\0')
        assert name.strip() == name


def test_missing_and_malformed_ids_are_refused() -> None:
    with pytest.raises(InvalidInputError):
        parse_table_id(None)
    with pytest.raises(InvalidInputError):
        parse_table_id([])
    with pytest.raises(InvalidInputError):
        parse_table_id("abc")  # a string is a sequence of strings too
    with pytest.raises(InvalidInputError):
        parse_namespace_id(None)
    assert parse_namespace_id([]) == ()
    assert str(parse_table_id(["a", "b"])) == "a$b"
