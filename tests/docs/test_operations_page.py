"""The page of operations matches what the operations do."""

from __future__ import annotations

from tests.support.operations_page import OPERATIONS, PAGE, page


def test_operations_page_is_up_to_date() -> None:
    assert PAGE.read_text() == page(), "run: python -m tests.support.operations_page"


def test_every_operation_is_on_the_page() -> None:
    assert [operation for operation in OPERATIONS if f"| `{operation}` |" not in PAGE.read_text()] == []
