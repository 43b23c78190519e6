"""The conformance page says what the tests of the specification say."""

from __future__ import annotations

import re

from tests.seeds.conformance import HERE, PAGE, covered, render, seed_tests
from tests.seeds.sentences import sentences_of


def test_conformance_page_is_generated_from_the_tests() -> None:
    assert PAGE.read_text() == render(), "run: python -m tests.seeds.conformance"


def test_every_test_of_the_specification_names_its_sentence() -> None:
    assert [name for name, test in seed_tests() if not sentences_of(test)] == []


def test_no_sentence_is_covered_twice() -> None:
    texts = [(sentence.page, sentence.text) for sentence, _ in covered()]
    assert sorted(texts) == sorted(set(texts))


PUBLIC = {"relance", "relance.clock", "relance.config", "relance.errors", "relance.jobs"}
"""What the documentation tells users to import; relance.testing is for their tests."""


def test_tests_of_the_specification_use_only_the_public_api() -> None:
    for path in HERE.glob("*.py"):
        modules = re.findall(r"^ *(?:from|import) (relance[\w.]*)", path.read_text(), re.MULTILINE)
        assert {each for each in modules if not each.startswith("relance.testing")} <= PUBLIC, path.name
