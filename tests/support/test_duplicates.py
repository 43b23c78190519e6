"""A helper is written once: no two of them have the same body.

Names of arguments and variables, annotations and docstrings do not count. Small helpers may look alike.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator

from tests.support.sources import programs

SMALLEST = 4
"""Statements, those within others too."""

Function = ast.FunctionDef | ast.AsyncFunctionDef


def _body(function: Function) -> list[ast.stmt]:
    """Return the statements without the docstring."""
    has_text = ast.get_docstring(function, clean=False) is not None
    return function.body[1:] if has_text else function.body


def _size(function: Function) -> int:
    nodes = (node for statement in _body(function) for node in ast.walk(statement))
    return sum(isinstance(node, ast.stmt) for node in nodes)


class _Normal:
    """Writes a body down with its own names numbered in the order of their appearance."""

    def __init__(self, function: Function) -> None:
        self._numbers: dict[str, int] = {}
        self._own: set[str] = set()
        for node in ast.walk(function):
            if isinstance(node, ast.arg):
                self._own.add(node.arg)
            elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                self._own.add(node.id)
            elif isinstance(node, Function) and node is not function:
                self._own.add(node.name)

    def text(self, node: object) -> str:
        if isinstance(node, list):
            return f"[{','.join(self.text(each) for each in node)}]"
        if isinstance(node, ast.AnnAssign):
            # An annotation is no difference.
            return self.text(ast.Assign([node.target], node.value or ast.Constant(None)))
        if isinstance(node, Function):
            parts = (node.args, _body(node), node.decorator_list)
            return f"{self._name(node.name)}{''.join(self.text(part) for part in parts)}"
        if isinstance(node, ast.arg):
            return self._name(node.arg)
        if isinstance(node, ast.Name):
            return self._name(node.id)
        if isinstance(node, ast.AST):
            fields = (self.text(value) for name, value in ast.iter_fields(node) if name != "type_comment")
            return f"{type(node).__name__}({','.join(fields)})"
        return repr(node)

    def _name(self, name: str) -> str:
        return f"#{self._numbers.setdefault(name, len(self._numbers))}" if name in self._own else name


def _helpers(program: ast.Module) -> Iterator[Function]:
    """Yield the functions that are no tests, wherever they are defined."""
    for node in ast.walk(program):
        if isinstance(node, Function) and not node.name.startswith("test_"):
            yield node


def duplicates(sources: dict[str, ast.Module]) -> list[list[str]]:
    """Return the groups of helpers with the same body, by their places."""
    places = defaultdict(list)
    for path, program in sources.items():
        for function in _helpers(program):
            if _size(function) >= SMALLEST:
                normal = _Normal(function)
                body = normal.text(function.args) + normal.text(_body(function))
                places[body].append(f"{path}:{function.lineno} {function.name}")
    return [group for group in places.values() if len(group) > 1]


def test_no_two_helpers_have_the_same_body() -> None:
    tests = {path: program for path, program in programs().items() if path.startswith("tests/")}
    assert duplicates(tests) == [], "define it once in tests/support"


ONE = '''
def total(values: list[int]) -> int:
    """Add numbers."""
    found: int = 0
    for each in values:
        found += each
    return found
'''


def _places(*sources: str) -> list[list[str]]:
    return duplicates({str(number): ast.parse(source) for number, source in enumerate(sources)})


def test_the_same_body_with_other_names_is_found() -> None:
    other = ONE.replace("total", "add").replace("values", "items").replace("found: int", "result")
    other = other.replace("found", "result").replace('    """Add numbers."""\n', "")
    assert _places(ONE, other) == [["0:2 total", "1:2 add"]]
    assert _places(ONE, ONE, other) == [["0:2 total", "1:2 total", "2:2 add"]]


def test_another_body_or_a_test_or_something_small_is_not_found() -> None:
    assert _places(ONE, ONE.replace("+=", "-=")) == []
    assert _places(ONE, ONE.replace("= 0", "= 1")) == []
    assert _places(ONE, ONE.replace("total", "test_total")) == []
    assert _places(ONE, ONE.replace("values: list[int]", "values: list[int], *more: int")) == []
    assert _places("def f(a):\n  b = a\n  return b\n", "def g(a):\n  b = a\n  return b\n") == []
