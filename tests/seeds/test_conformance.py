"""The conformance page says what the tests of the specification say."""

from __future__ import annotations

from tests.seeds.conformance import PAGE, covered, render, seed_tests
from tests.seeds.sentences import sentences_of


def test_conformance_page_is_generated_from_the_tests() -> None:
    assert PAGE.read_text() == render(), "run: python -m tests.seeds.conformance"


def test_every_test_of_the_specification_names_its_sentence() -> None:
    assert [name for name, test in seed_tests() if not sentences_of(test)] == []


def test_no_sentence_is_covered_twice() -> None:
    texts = [(sentence.page, sentence.text) for sentence, _ in covered()]
    assert sorted(texts) == sorted(set(texts))
