"""Only tests.support.internals touches a catalog's private context."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from tests.support.paths import REPOSITORY

OWNER = REPOSITORY / "tests" / "support" / "internals.py"
FOLDERS = ("tests", "benchmarks", "examples")


def _uses(source: str) -> Iterator[int]:
    """Yield the lines that read, write or name the attribute."""
    for node in ast.walk(ast.parse(source)):
        name = node.attr if isinstance(node, ast.Attribute) else getattr(node, "value", None)
        if name == "_context":  # a string names it for getattr and setattr
            yield node.lineno  # type: ignore[attr-defined]  # an expression has a line


def _modules() -> list[Path]:
    found = (path for folder in FOLDERS for path in (REPOSITORY / folder).rglob("*.py"))
    return sorted(path for path in found if path not in (OWNER, Path(__file__)))


def test_the_private_context_is_used_in_one_module_only() -> None:
    uses = {
        str(path.relative_to(REPOSITORY)): lines
        for path in _modules()
        if "_context" in (text := path.read_text()) and (lines := sorted(_uses(text)))
    }
    assert uses == {}, "use tests.support.internals.context_of(catalog) instead of catalog._context"


def test_every_way_to_use_the_private_context_is_found() -> None:
    source = "catalog._context\nopen()._context = 1\ngetattr(catalog, '_context')\ncatalog.context\n"
    assert sorted(_uses(source)) == [1, 2, 3]
    assert list(_uses(OWNER.read_text()))
