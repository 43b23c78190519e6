"""The examples of the guide run as they are written, and print what they say they do."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

import relance

DOCS = Path(__file__).parent.parent.parent / "docs"
PRINTED = re.compile(r"^print\(.*\)  # (.+)$", re.MULTILINE)


def _run(page: str, folder: Path) -> None:
    """Run all blocks of a page as one script, and compare what it prints with the comments behind print."""
    text = "\n".join(re.findall(r"```python\n(.*?)```", (DOCS / page).read_text(), re.DOTALL))
    ran = subprocess.run(
        [sys.executable, "-c", text], cwd=folder, capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stderr[-3000:]
    expected = PRINTED.findall(text)
    assert [line for line in ran.stdout.splitlines() if line in expected] == expected


def test_the_example_of_the_guide_runs_in_an_empty_folder(java: None, tmp_path: Path) -> None:
    _run("spark.md", tmp_path)
    catalog = relance.DirectoryNamespace(root=tmp_path / "lake")
    assert catalog.count_table_rows({"id": ["prod", "readings"]}).count == 101_000
    assert catalog.list_tables({"id": ["prod"]}).tables == ["hot", "readings"]


@pytest.mark.timeout(600)
def test_the_examples_of_the_page_about_streams_run_one_after_the_other(java: None, tmp_path: Path) -> None:
    _run("spark/streaming.md", tmp_path)
