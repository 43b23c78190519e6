"""The page about policies has every key with its meaning, the example, and code that runs."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest
from tests.support.paths import REPOSITORY

from relance.policy.actions import Kind
from relance.policy.file.keys import COMMON_KEYS, LIMIT_KEYS, PART_KEYS, RULE_KEYS
from relance.policy.file.schema import MEANINGS

PAGE = (REPOSITORY / "docs" / "policy.md").read_text()

SIMPLE = {**RULE_KEYS, **COMMON_KEYS, **{each.name: each.meaning for each in LIMIT_KEYS}}


@pytest.mark.parametrize("name", SIMPLE)
def test_policy_page_documents_every_simple_key(name: str) -> None:
    assert f"| `{name}` | {SIMPLE[name]} |" in PAGE


@pytest.mark.parametrize("kind", PART_KEYS)
def test_policy_page_documents_every_section_with_its_keys(kind: Kind) -> None:
    rows = PAGE.split(f"\n| `{kind}` |")[1].splitlines()
    keys = []
    for row in rows[1:]:
        if not row.startswith("| | "):
            break
        keys.append(row)
    assert rows[0].endswith(f"| {MEANINGS[kind]} |")
    for key, row in zip(PART_KEYS[kind], keys, strict=True):
        assert row.startswith(f"| | `{key.name}` | {key.holds} | ")
        assert row.endswith(f" | {key.meaning} |")


def test_policy_page_shows_the_example_policy_verbatim() -> None:
    assert f"```toml\n{(REPOSITORY / 'examples' / 'policy.toml').read_text()}```" in PAGE


def test_policy_page_code_runs() -> None:
    (code,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.splitlines()[-1] == "10"
