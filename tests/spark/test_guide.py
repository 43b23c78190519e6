"""The examples of the guide run as they are written, and print what they say they do."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from tests.support.paths import REPOSITORY

import relance

pytestmark = pytest.mark.deep

DOCS = REPOSITORY / "docs"
PRINTED = re.compile(r"^print\(.*\)  # (.+)$", re.MULTILINE)


def test_guide_examples_run_in_order_and_print_what_they_say(java: None, tmp_path: Path) -> None:
    pages = [(DOCS / page).read_text() for page in ("spark.md", "spark/streaming.md")]
    text = "\n".join(block for page in pages for block in re.findall(r"```python\n(.*?)```", page, re.DOTALL))
    ran = subprocess.run(
        [sys.executable, "-c", text], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stderr[-3000:]
    expected = PRINTED.findall(text)
    assert expected
    assert [line for line in ran.stdout.splitlines() if line in expected] == expected
    catalog = relance.DirectoryNamespace(root=tmp_path / "lake")
    assert catalog.count_table_rows({"id": ["prod", "readings"]}).count == 101_000
    assert {"hot", "readings"} <= set(catalog.list_tables({"id": ["prod"]}).tables)
