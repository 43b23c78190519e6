"""The table of patched names is right, complete and free of leftovers."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from textwrap import dedent

import pytest
from tests.support.patches import PATCHED, original
from tests.support.sources import others

SELF = ("tests/support/patches.py", "tests/support/test_patches.py")

HELPERS = {"original", "substitute", "substitute_for_good", "substituted", "target"}
MONKEYPATCH = {"setattr", "delattr", "setitem", "delitem"}
"""Methods of pytest's monkeypatch; the first two are functions of Python as well."""


def _dotted(node: ast.expr) -> list[str]:
    """Return the parts of `a.b.c`, or nothing for any other expression."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    return [node.id, *reversed(parts)] if isinstance(node, ast.Name) else []


def _is_type_of(node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and _dotted(node.func) == ["type"]


class _DirectPatches(ast.NodeVisitor):
    """Collects the lines that patch the product, or that may: whatever comes from no other library counts."""

    def __init__(self) -> None:
        self.lines: list[int] = []
        self._imported: dict[str, str] = {}
        self._called: set[ast.expr] = set()

    def visit_Import(self, node: ast.Import) -> None:  # named by ast
        for alias in node.names:
            self._imported[alias.asname or alias.name.partition(".")[0]] = alias.name

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        for alias in node.names:
            self._imported[alias.asname or alias.name] = f"{node.module}.{alias.name}"

    def visit_Call(self, node: ast.Call) -> None:
        self._called.add(node.func)
        if self._is_patch(node.func) and not self._is_foreign(node.args[0] if node.args else None):
            self.lines.append(node.lineno)
        self.generic_visit(node)

    def visit_Name(self, node: ast.Name) -> None:
        self._look_for_alias(node)

    def visit_Attribute(self, node: ast.Attribute) -> None:
        stored = isinstance(node.ctx, (ast.Store, ast.Del))
        if stored and (self._is_product(node.value) or _is_type_of(node.value)):
            self.lines.append(node.lineno)
        self._look_for_alias(node)
        self.generic_visit(node)

    def visit_Subscript(self, node: ast.Subscript) -> None:
        if isinstance(node.ctx, (ast.Store, ast.Del)) and self._is_product(node.value):
            self.lines.append(node.lineno)
        self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> None:
        """Look into a program that is kept as a text."""
        if isinstance(node.value, str) and "import" in node.value and "relance" in node.value:
            try:
                program = ast.parse(dedent(node.value))
            except SyntaxError:
                return
            self.lines += [node.lineno for _ in direct_patches(program)]

    def _look_for_alias(self, node: ast.expr) -> None:
        """Find `setattr` handed on as a value: its calls would not be seen."""
        if node not in self._called and _dotted(node)[-1:] in (["setattr"], ["delattr"]):
            self.lines.append(node.lineno)

    def _is_patch(self, function: ast.expr) -> bool:
        name = _dotted(function)
        if not name:
            return isinstance(function, ast.Attribute) and function.attr in MONKEYPATCH
        origin = [*self._imported.get(name[0], name[0]).split("."), *name[1:]]
        return origin[-1] in MONKEYPATCH or origin[:3] == ["unittest", "mock", "patch"]

    def _is_product(self, node: ast.expr) -> bool:
        name = _dotted(node)
        return bool(name) and self._imported.get(name[0], "").partition(".")[0] == "relance"

    def _is_foreign(self, node: ast.expr | None) -> bool:
        """Return whether something certainly belongs to another library."""
        if isinstance(node, ast.Constant):
            return isinstance(node.value, str) and node.value.partition(".")[0] not in {"relance", "tests"}
        name = _dotted(node) if node is not None else []
        origin = self._imported.get(name[0], "relance") if name else "relance"
        return origin.partition(".")[0] not in {"relance", "tests"}


def direct_patches(program: ast.Module) -> list[int]:
    """Return the lines of a program that patch the product without the table."""
    visitor = _DirectPatches()
    for node in ast.walk(program):  # imports first: some stand in functions, behind their use
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            visitor.visit(node)
    visitor.visit(program)
    return sorted(visitor.lines)


def test_every_name_is_there() -> None:
    missing = []
    for key, place in PATCHED.items():
        try:
            original(key)
        except (ImportError, AttributeError) as error:
            missing.append(f"{key}: {place} ({error})")
    assert missing == [], "renamed in src? Change the table in tests/support/patches.py"


def test_every_name_has_one_key() -> None:
    assert [place for place, count in Counter(PATCHED.values()).items() if count > 1] == []


def _imports_helpers(node: ast.stmt) -> bool:
    return isinstance(node, ast.ImportFrom) and node.module == "tests.support.patches"


def _keys(program: ast.Module) -> Iterator[str]:
    """Yield the keys that are written out in calls of the helpers."""
    for node in ast.walk(program):
        if isinstance(node, ast.Call) and _dotted(node.func)[-1:] and _dotted(node.func)[-1] in HELPERS:
            position = 1 if _dotted(node.func)[-1] == "substitute" else 0
            for argument in node.args[position : position + 1]:
                if isinstance(argument, ast.Constant) and isinstance(argument.value, str):
                    yield argument.value


def test_every_key_is_used_and_every_used_key_is_there() -> None:
    texts: set[str] = set()
    unknown: dict[str, str] = {}
    for name, program in others(*SELF).items():
        nodes = (node for node in ast.walk(program) if isinstance(node, ast.Constant))
        texts |= {node.value for node in nodes if isinstance(node.value, str)}
        if any(_imports_helpers(node) for node in program.body):
            unknown |= {key: name for key in _keys(program) if key not in PATCHED}
    assert unknown == {}
    assert sorted(set(PATCHED) - texts) == [], "no test uses these"


def test_only_the_table_names_what_is_patched() -> None:
    found = {name: lines for name, program in others(*SELF).items() if (lines := direct_patches(program))}
    assert found == {}, "use a key of tests.support.patches with substitute() or substituted()"


@pytest.mark.parametrize(
    "line",
    [
        'monkeypatch.setattr("relance.clock.now", 1)',
        'monkeypatch.setattr(f"relance.{name}", 1)',
        "monkeypatch.setattr(text, 1)",
        'monkeypatch.setattr(clock, "now", 1)',
        'monkeypatch.setattr(clock.SystemClock, "now", 1)',
        'monkeypatch.setattr(relance.clock, "now", 1)',
        'monkeypatch.setattr(storage, "create", 1)',
        'monkeypatch.setattr(type(storage), "create", 1)',
        'monkeypatch.delattr(clock, "now")',
        'monkeypatch.setitem(clock.KNOWN, "now", 1)',
        'pytest.MonkeyPatch().setattr(clock, "now", 1)',
        'setattr(clock, "now", 1)',
        'delattr(clock, "now")',
        'mock.patch("relance.clock.now", 1)',
        'mock.patch.object(clock, "now", 1)',
        "mock.patch.multiple(clock, now=1)",
        "mock.patch.dict(clock.KNOWN, now=1)",
        'patch("relance.clock.now", 1)',
        'patch.object(clock, "now", 1)',
        'replace.object(clock, "now", 1)',
        "with_points(monkeypatch.setattr)",
        "change = setattr",
        "clock.now = 1",
        "clock.SystemClock.now = 1",
        "clock.SECONDS += 1",
        'clock.KNOWN["now"] = 1',
        "type(storage).create = 1",
        "del clock.now",
        'SCRIPT = "from relance import clock\\nclock.now = 1\\n"',
    ],
)
def test_a_direct_patch_is_found(line: str) -> None:
    source = f"""
        import pytest
        from unittest import mock
        from unittest.mock import patch
        from unittest.mock import patch as replace
        {line}
        import relance.clock
        from relance import clock
    """
    assert direct_patches(ast.parse(dedent(source))) == [6]


@pytest.mark.parametrize(
    "line",
    [
        'monkeypatch.setattr("pyspark.version.__version__", "4")',
        'monkeypatch.setattr(os, "fsync", 1)',
        'monkeypatch.setattr(lance.LanceDataset, "commit", 1)',
        'monkeypatch.setitem(sys.modules, "pyspark", None)',
        'monkeypatch.setenv("RELANCE_ROOT", "x")',
        "mock.patch.dict(os.environ, x=1)",
        'mock.patch.object(lance.LanceDataset, "commit", 1)',
        'substitute(monkeypatch, "clock.now", 1)',
        "self.clock = clock",
        'TEXT = "relance has an important place"',
    ],
)
def test_a_patch_of_another_library_is_fine(line: str) -> None:
    source = f"import os, sys, lance\nfrom unittest import mock\nfrom relance import clock\n{line}\n"
    assert direct_patches(ast.parse(source)) == []
