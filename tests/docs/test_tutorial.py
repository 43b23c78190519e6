"""The walk through the demo follows the demo: the same acts, in the same order, and the policy it runs."""

from __future__ import annotations

import re

from tests.support.paths import REPOSITORY

DEMO = REPOSITORY / "examples" / "demo"
TUTORIAL = (REPOSITORY / "docs" / "tutorial.md").read_text()


def test_the_page_has_the_acts_of_the_demo() -> None:
    sources = "\n".join(path.read_text() for path in DEMO.glob("*.py"))
    acts = re.findall(r'heading\("(.+)"\)', sources)
    assert len(acts) == 5
    assert re.findall(r"^## (.+)$", TUTORIAL, re.MULTILINE) == sorted(acts)


def test_the_page_shows_lines_of_the_policy() -> None:
    (shown,) = re.findall(r"```toml\n(.*?)```", TUTORIAL, re.DOTALL)
    lines = [line.partition(" #")[0] for line in (DEMO / "policy.toml").read_text().splitlines()]
    assert [line for line in shown.splitlines() if line not in lines] == []
