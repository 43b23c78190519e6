"""Which sentence of the specification a test holds, for the page docs/reference/conformance.md.

`holds` marks a test of a sentence that holds. `deviates` marks a test of what Relance does instead, with
the reason. The pages of the specification are named by the title that readers know.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, TypeVar

Test = TypeVar("Test", bound=Callable[..., Any])


class Page(StrEnum):
    """A page of the specification; the order is that of the conformance page."""

    SOFT_DELETE = "Soft delete for the directory namespace"
    IMPLEMENTATION = "Directory namespace implementation"
    CATALOG = "Directory namespace catalog"
    ROW_DELETES = "Deleting rows"
    CLEANUP = "Cleaning up old versions"


@dataclass(frozen=True, slots=True)
class Sentence:
    """One testable sentence of the specification, as far as a test covers it."""

    page: Page
    text: str
    reason: str = ""
    """Why Relance deviates; empty for a sentence that holds."""


def holds(page: Page, text: str) -> Callable[[Test], Test]:
    """Mark the test of a sentence that holds."""
    return _mark(Sentence(page, text))


def deviates(page: Page, text: str, *, because: str) -> Callable[[Test], Test]:
    """Mark the test of what Relance does instead of what a sentence says."""
    return _mark(Sentence(page, text, because))


def sentences_of(test: object) -> tuple[Sentence, ...]:
    """Return the sentences that a test covers, in the order in which they were written."""
    return getattr(test, "sentences", ())


def _mark(sentence: Sentence) -> Callable[[Test], Test]:
    def mark(test: Test) -> Test:
        test.sentences = (sentence, *sentences_of(test))  # type: ignore[attr-defined]  # read back above
        return test

    return mark
