"""Import order of the packages, the owner of each heavy library, and the pure modules."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "src" / "relance"
MODULES = sorted(PACKAGE.rglob("*.py"))

ORDER = [
    "errors",
    "clock",
    "amounts",
    "identifiers",
    "locations",
    "config",
    "storage",
    "lance_errors",
    "lifecycle",
    "listing",
    "manifest",
    "version_store",
    "resolution",
    "operations",
    "namespace",
    "maintenance",
    "policy",
    "spark",
    "console",
    "server",
    "cli",
    "__main__",
    "testing",
]

OWNERS = {
    "obstore": {"storage"},
    "pyspark": {"spark"},
    "starlette": {"server", "console"},
    "uvicorn": {"server"},
    "click": {"cli"},
    "rich": {"cli"},
    "pytest": {"testing"},
    "hypothesis": {"testing"},
    "greenlet": {"testing"},
}

PURE = {
    "amounts",
    "identifiers",
    "locations",
    "config",
    "storage.options",
    "storage.failures",
    "lifecycle.states",
    "lifecycle.marker",
    "lifecycle.moves",
    "lifecycle.retention",
    "lifecycle.status",
    "listing.root_view",
    "operations.paging",
    "operations.transfer.json_rows",
    "operations.table.data_types",
    "operations.table.index_types",
    "operations.table.refs",
    "operations.arrow_json",
    "policy.actions",
    "policy.codec",
    "policy.decide",
    "policy.evaluate",
    "policy.facts",
    "policy.pipeline.history_rows",
    "policy.file.keys",
    "policy.file.lines",
    "policy.model",
    "policy.file.parse",
    "policy.patterns",
    "policy.predicates",
    "policy.file.problems",
    "policy.records",
    "policy.report.figures",
    "policy.report.markup",
    "policy.report.page",
    "policy.report.plots",
    "policy.report.record_json",
    "policy.report.run_summary",
    "policy.report.selection",
    "policy.report.style",
    "policy.report.tables",
    "policy.file.rules",
    "policy.file.schema",
    "policy.file.tables",
    "policy.file.values",
    "policy.windows",
    "spark.address",
    "spark.option_values",
    "spark.options",
    "spark.splits",
    "spark.widths",
}
IMPURE = {
    "lance",
    "obstore",
    "time",
    "subprocess",
    "threading",
    "relance.storage.connect",
    "relance.clock.SystemClock",
}


def _imports(module: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(module.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module}: relative import"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def _name(module: Path) -> str:
    parts = module.relative_to(PACKAGE).with_suffix("").parts
    return ".".join(part for part in parts if part != "__init__")


@pytest.mark.parametrize("module", MODULES, ids=_name)
def test_unit_imports_only_units_before_it(module: Path) -> None:
    unit = _name(module).partition(".")[0]
    if not unit:
        return  # the package itself gathers the public names
    assert unit in ORDER, f"{unit} is missing from the order"
    for imported in _imports(module):
        top, _, rest = imported.partition(".")
        if top == "relance" and rest.partition(".")[0] in ORDER:
            assert ORDER.index(rest.partition(".")[0]) <= ORDER.index(unit), f"{unit} imports {imported}"
        assert unit in OWNERS.get(top, {unit}), f"{top} belongs to {OWNERS.get(top)}, not to {unit}"


@pytest.mark.parametrize("name", sorted(PURE))
def test_pure_module_imports_no_store_clock_or_lance(name: str) -> None:
    module = PACKAGE.joinpath(*name.split(".")).with_suffix(".py")
    for imported in _imports(module):
        hit = [each for each in IMPURE if imported == each or imported.startswith(f"{each}.")]
        assert not hit, f"{name} is pure but imports {imported}"
