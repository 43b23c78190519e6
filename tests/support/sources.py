"""The Python files of tests, benchmarks and examples, parsed once for the tests that check them."""

from __future__ import annotations

import ast
from functools import cache

from tests.support.paths import REPOSITORY

FOLDERS = ("tests", "benchmarks", "examples")


@cache
def programs() -> dict[str, ast.Module]:
    """Return each file's syntax tree by its path in the repository."""
    paths = sorted(path for folder in FOLDERS for path in (REPOSITORY / folder).rglob("*.py"))
    return {path.relative_to(REPOSITORY).as_posix(): ast.parse(path.read_text()) for path in paths}


def others(*names: str) -> dict[str, ast.Module]:
    """Return all files but these."""
    return {name: program for name, program in programs().items() if name not in names}
