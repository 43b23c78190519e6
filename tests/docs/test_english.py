"""Pages, help and messages contain no phrase that reads like a word-by-word translation."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.english import objections_to_page, objections_to_program, pages, programs
from tests.support.paths import REPOSITORY


def _name(path: Path) -> str:
    return str(path.relative_to(REPOSITORY))


@pytest.mark.parametrize("page", pages(), ids=_name)
def test_a_page_is_in_plain_english(page: Path) -> None:
    assert objections_to_page(page) == [], "see tests/support/english.py"


@pytest.mark.parametrize("source", programs(), ids=_name)
def test_the_texts_of_a_module_are_in_plain_english(source: Path) -> None:
    assert objections_to_program(source) == [], "see tests/support/english.py"
