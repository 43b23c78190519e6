"""Import order of the packages, the owner of each heavy library, and the pure modules."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "src" / "relance"
MODULES = sorted(PACKAGE.rglob("*.py"))

ORDER = [
    "exits",
    "spec_errors",
    "errors",
    "forks",
    "clock",
    "units",
    "foreign_json",
    "identifiers",
    "locations",
    "config",
    "storage",
    "lance_io",
    "catalog",
    "operations",
    "namespace",
    "jobs",
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
    "jinja2": {"policy"},
    "click": {"cli"},
    "rich": {"cli"},
    "pytest": {"testing"},
    "hypothesis": {"testing"},
    "greenlet": {"testing"},
}

PURE = {
    "exits",
    "units",
    "catalog.manifest.row",
    "catalog.manifest.schema",
    "catalog.states",
    "config",
    "foreign_json",
    "identifiers",
    "jobs.base",
    "jobs.catalog_settings",
    "jobs.cleanup",
    "jobs.compact",
    "jobs.delete_rows",
    "jobs.facts",
    "jobs.indexes",
    "jobs.manifest",
    "jobs.orphans",
    "jobs.predicates",
    "jobs.purge",
    "jobs.reference",
    "jobs.settings",
    "jobs.update_rows",
    "locations",
    "operations.arrow_json",
    "operations.paging",
    "operations.table.data_types",
    "operations.table.index_types",
    "operations.table.refs",
    "operations.transfer.json_rows",
    "policy.actions",
    "policy.codec",
    "policy.evaluate",
    "policy.lines",
    "policy.model",
    "policy.parse",
    "policy.patterns",
    "policy.problems",
    "policy.records",
    "policy.report",
    "policy.schema",
    "policy.windows",
    "spark.address",
    "spark.option_values",
    "spark.options",
    "spark.splits",
    "spark.widths",
    "storage.failures",
    "storage.options",
}
IMPURE = {
    "exits",
    "lance",
    "obstore",
    "time",
    "subprocess",
    "threading",
    "relance.storage.connect",
    "relance.clock.SystemClock",
}


ABOVE_THE_SEAM = {"jobs", "policy", "spark", "cli", "server", "console"}
BELOW_THE_SEAM = ("relance.catalog", "relance.operations", "relance.lance_io")
SEAM = {"relance.catalog.Catalog", "relance.lance_io.TableRef"}

OFFENDERS = {
    "cli.lifecycle",
    "cli.looking",
    "cli.progress",
    "cli.roots",
    "cli.rows",
    "cli.runs",
    "jobs.base",
    "jobs.catalog_settings",
    "jobs.engine",
    "jobs.gather",
    "jobs.manifest",
    "jobs.merging.merge_commit",
    "jobs.merging.merge_here",
    "jobs.merging.merge_plan",
    "jobs.merging.merge_tasks",
    "jobs.merging.merges",
    "jobs.plans.compaction",
    "jobs.plans.expired_drops",
    "jobs.plans.index_refresh",
    "jobs.plans.old_versions",
    "jobs.plans.orphans",
    "jobs.plans.row_changes",
    "jobs.plans.row_deletes",
    "jobs.plans.row_updates",
    "jobs.plans.tables",
    "jobs.runner",
    "policy.lease",
    "policy.past_runs",
    "policy.planning",
    "policy.running",
    "spark.merge",
    "spark.merge_few",
    "spark.reader",
    "spark.save",
    "spark.scan",
    "spark.streaming.history",
    "spark.streaming.planning",
    "spark.streaming.progress",
    "spark.streaming.rows",
    "spark.streaming.sink",
    "spark.streaming.tables",
    "spark.writer",
}
"""Modules above the seam that still import below it. The list only gets shorter."""


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


def _reaches_through(module: Path) -> bool:
    imported = [each for each in _imports(module) if each.startswith(BELOW_THE_SEAM)]
    return any(each not in SEAM for each in imported)


def test_only_listed_modules_import_below_the_seam() -> None:
    above = [module for module in MODULES if _name(module).partition(".")[0] in ABOVE_THE_SEAM]
    reaching = {_name(module) for module in above if _reaches_through(module)}
    assert reaching <= OFFENDERS, f"import relance.catalog.Catalog instead: {sorted(reaching - OFFENDERS)}"
    assert reaching == OFFENDERS, f"take these off the list: {sorted(OFFENDERS - reaching)}"
