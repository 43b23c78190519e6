"""Explores every case again and records how many states and runs it takes.

As a program it prints the names of all cases, one per line, and explores nothing.
"""

from __future__ import annotations

import io
import json
import os
import sys
import tempfile
from collections.abc import Sequence
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import pytest
from tests.net import goldens
from tests.support.exploration import GOLDEN, RECORD_TO, assert_states_as_recorded, case_of
from tests.support.paths import REPOSITORY

_EVERY_TIER = ("-m", "")
_HOOK = assert_states_as_recorded.__name__


class _OnlyExplorations:
    """A plugin that selects the tests that compare states, and keeps the names of their cases."""

    def __init__(self) -> None:
        self.cases: list[str] = []

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        items[:] = [each for each in items if _compares_states(each)]
        self.cases = [case_of(each) for each in items]


def _compares_states(item: pytest.Item) -> bool:
    return isinstance(item, pytest.Function) and _HOOK in item.function.__code__.co_names


def record_states(options: Sequence[str]) -> dict[str, Any]:
    """Run the cases, all or those that pytest's options select, and return the record of all.

    Raises:
        RuntimeError: a case failed.
    """
    with tempfile.TemporaryDirectory() as folder:
        lines = Path(folder, "states.jsonl")
        lines.touch()
        os.environ[RECORD_TO] = str(lines)
        try:
            code = pytest.main([*_paths(), *_EVERY_TIER, "-q", *options], plugins=[_OnlyExplorations()])
        finally:
            del os.environ[RECORD_TO]
        if code != pytest.ExitCode.OK:
            raise RuntimeError(f"pytest ended with {code!r}: nothing was recorded")
        found = {key: value for line in lines.read_text().splitlines() for key, value in _record(line)}
    return {**goldens.read(GOLDEN), **found} if options else found


def cases() -> list[str]:
    """Return the names of all cases of the normal profile."""
    found = _OnlyExplorations()
    with redirect_stdout(io.StringIO()) as output:
        code = pytest.main([*_paths(), *_EVERY_TIER, "--collect-only", "-q"], plugins=[found])
    if code != pytest.ExitCode.OK:
        raise RuntimeError(f"pytest ended with {code!r}: {output.getvalue()}")
    return found.cases


def _paths() -> list[str]:
    tests = (REPOSITORY / "tests").rglob("test_*.py")
    return sorted(str(each) for each in tests if _HOOK in each.read_text())


def _record(line: str) -> list[tuple[str, Any]]:
    return list(json.loads(line).items())


if __name__ == "__main__":
    sys.stdout.write("".join(f"{each}\n" for each in cases()))
