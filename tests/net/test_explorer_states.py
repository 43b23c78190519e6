"""The cases of the explorer that have a record; each compares its own states when it is explored."""

from __future__ import annotations

import os
import subprocess
import sys

from tests.net import goldens
from tests.support.exploration import GOLDEN
from tests.support.paths import REPOSITORY


def test_no_case_of_the_explorer_is_without_a_record_or_gone() -> None:
    plain = {
        name: value for name, value in os.environ.items() if not name.startswith(("RELANCE_", "PYTEST_"))
    }
    ran = subprocess.run(
        [sys.executable, "-m", "tests.net.record_states"],
        cwd=REPOSITORY,
        env={**plain, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    recorded = set(goldens.read(GOLDEN))
    cases = set(ran.stdout.splitlines())
    assert cases == recorded, f"re-record: {goldens.command(GOLDEN)}"
