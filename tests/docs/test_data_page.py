"""The example on the page about rows runs as it stands."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from tests.support.paths import REPOSITORY

PAGE = REPOSITORY / "docs" / "data.md"


def test_data_page_example_prints_what_the_page_says(tmp_path: Path) -> None:
    (example,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    ran = subprocess.run(
        [sys.executable, "-c", example], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stderr
    found, deleted, left, before = ran.stdout.splitlines()
    assert (found, left, before) == ("[3, 4]", "3", "6")
    assert "'rows_deleted': '3'" in deleted
    assert "'fragments_removed': '1'" in deleted
    assert "'fragments_with_deletion_file': '0'" in deleted
    assert "'version': '5'" in deleted
