"""The example of the guide runs as it is written."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import relance

GUIDE = Path(__file__).parent.parent.parent / "docs" / "spark.md"


def test_the_example_of_the_guide_runs_in_an_empty_folder(java: None, tmp_path: Path) -> None:
    blocks = re.findall(r"```python\n(.*?)```", GUIDE.read_text(), re.DOTALL)
    assert len(blocks) == 1
    ran = subprocess.run(
        [sys.executable, "-c", blocks[0]], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stderr[-3000:]
    catalog = relance.DirectoryNamespace(root=tmp_path / "lake")
    assert catalog.count_table_rows({"id": ["prod", "readings"]}).count == 101_000
    assert catalog.list_tables({"id": ["prod"]}).tables == ["hot", "readings"]
