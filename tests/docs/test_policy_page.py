"""The page about policies has every key with its meaning, the example, and code that runs."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest
from tests.support.paths import REPOSITORY

from relance.jobs.base import Job, policy_kinds
from relance.jobs.reference import in_policy_page, page, rows_of
from relance.policy.model import Limits
from relance.policy.parse import COMMON_KEYS, RULE_KEYS

PAGE = (REPOSITORY / "docs" / "policy.md").read_text()

SIMPLE = {
    **RULE_KEYS,
    **COMMON_KEYS,
    **{name: field.description for name, field in Limits.model_fields.items()},
}


@pytest.mark.parametrize("name", SIMPLE)
def test_policy_page_documents_every_simple_key(name: str) -> None:
    assert f"| `{name}` | {SIMPLE[name]} |" in PAGE


@pytest.mark.parametrize("kind", policy_kinds(), ids=lambda kind: str(kind.kind))
def test_policy_page_documents_every_kind_with_its_keys(kind: type[Job]) -> None:
    assert "\n".join(rows_of(kind)) in PAGE


def test_policy_page_shows_the_example_policy_verbatim() -> None:
    assert f"```toml\n{(REPOSITORY / 'examples' / 'policy.toml').read_text()}```" in PAGE


def test_policy_page_code_runs() -> None:
    (code,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.splitlines()[-1] == "10"


def test_generated_references_are_up_to_date() -> None:
    assert (REPOSITORY / "docs" / "reference" / "jobs.md").read_text() == page()
    assert in_policy_page(PAGE) == PAGE
