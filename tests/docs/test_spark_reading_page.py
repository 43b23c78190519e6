"""The page about reading names every option with the meaning that the code gives it."""

from __future__ import annotations

import pytest
from tests.support.paths import REPOSITORY

from relance.spark.options import READ_OPTIONS

PAGE = REPOSITORY / "docs" / "spark" / "reading.md"


@pytest.mark.parametrize("option", sorted(READ_OPTIONS))
def test_every_option_of_a_read_is_documented(option: str) -> None:
    assert f"| `{option}` | {READ_OPTIONS[option]} |" in PAGE.read_text()
