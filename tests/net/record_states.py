"""Explores every case again and records how many states and runs it takes."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.net import goldens
from tests.support.exploration import GOLDEN, RECORD_TO, assert_states_as_recorded
from tests.support.paths import REPOSITORY

_HOOK = assert_states_as_recorded.__name__


class _OnlyExplorations:
    """A plugin that selects the tests that compare states."""

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        items[:] = [each for each in items if _compares_states(each)]


def _compares_states(item: pytest.Item) -> bool:
    return isinstance(item, pytest.Function) and _HOOK in item.function.__code__.co_names


def record_states(options: Sequence[str]) -> dict[str, Any]:
    """Run the cases, all or those that pytest's options select, and return the record of all.

    Raises:
        RuntimeError: a case failed.
    """
    paths = [str(each) for each in (REPOSITORY / "tests").rglob("test_*.py") if _HOOK in each.read_text()]
    with tempfile.TemporaryDirectory() as folder:
        lines = Path(folder, "states.jsonl")
        lines.touch()
        os.environ[RECORD_TO] = str(lines)
        try:
            code = pytest.main([*sorted(paths), "-q", *options], plugins=[_OnlyExplorations()])
        finally:
            del os.environ[RECORD_TO]
        if code != pytest.ExitCode.OK:
            raise RuntimeError(f"pytest ended with {code!r}: nothing was recorded")
        found = {key: value for line in lines.read_text().splitlines() for key, value in _record(line)}
    return {**goldens.read(GOLDEN), **found} if options else found


def _record(line: str) -> list[tuple[str, Any]]:
    return list(json.loads(line).items())
