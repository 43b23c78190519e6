"""Only tests.support.internals touches a catalog's private context."""

from __future__ import annotations

import ast

from tests.support.sources import others, programs

OWNER = "tests/support/internals.py"
SELF = "tests/support/test_internals.py"


def _uses(program: ast.Module) -> list[int]:
    """Return the lines that read, write or name the attribute; a string names it for getattr."""
    attributes = [node for node in ast.walk(program) if isinstance(node, ast.Attribute)]
    texts = [node for node in ast.walk(program) if isinstance(node, ast.Constant)]
    return sorted(
        [node.lineno for node in attributes if node.attr == "_context"]
        + [node.lineno for node in texts if node.value == "_context"]
    )


def test_the_private_context_is_used_in_one_module_only() -> None:
    found = {name: lines for name, program in others(OWNER, SELF).items() if (lines := _uses(program))}
    assert found == {}, "use tests.support.internals.context_of(catalog) instead of catalog._context"


def test_every_use_of_the_private_context_is_found() -> None:
    source = "catalog._context\nopen()._context = 1\ngetattr(catalog, '_context')\ncatalog.context\n"
    assert _uses(ast.parse(source)) == [1, 2, 3]
    assert _uses(programs()[OWNER])
