"""Doctor: check the store and the local environment."""

from __future__ import annotations

import platform
from importlib.metadata import version
from typing import TYPE_CHECKING

import click

from relance.cli.base import Command
from relance.cli.exits import Exit
from relance.cli.failures import Failure
from relance.cli.grids import Grid
from relance.cli.output import Answer
from relance.cli.state import State, pass_state
from relance.units import plural

if TYPE_CHECKING:
    from relance.storage.checkup import Check

_LIBRARIES = ("relance", "pylance", "lance-namespace", "obstore", "pyarrow")


@click.command(cls=Command)
@pass_state
def doctor(state: State) -> Answer:
    """Check the store and the local environment.

    Checks permissions, conditional writes, listings and the clock of the store, and the versions of
    Python, the libraries, Java and Spark. Writes a few small objects under the root and deletes them.
    """
    from relance.errors import RelanceError
    from relance.storage.checkup import Check, Verdict

    catalog = state.catalog
    unusable: Failure | None = None
    try:
        store = catalog.check_store()
    except RelanceError as error:
        unusable = state.failure(error)
        store = [Check("store", Verdict.BAD, unusable.what, unusable.to_do)]
    checks = [*_machine(), *store, *_spark()]
    bad = [each for each in checks if each.verdict is Verdict.BAD]
    rows = [
        [
            each.name,
            each.verdict.value,
            state.redact(each.detail + (f"; {each.remedy}" if each.remedy else "")),
        ]
        for each in checks
    ]
    result = {
        "root": catalog.root_uri,
        "named_by": state.lake.named_by,
        "checks": [
            {
                "name": each.name,
                "verdict": each.verdict.value,
                "detail": state.redact(each.detail),
                "remedy": each.remedy,
            }
            for each in checks
        ],
    }
    problem = unusable
    if bad and problem is None:
        names = ", ".join(each.name for each in bad)
        what = f"{plural(len(bad), 'check')} failed: {names}"
        problem = Failure("Doctor", what, bad[0].remedy or "see the checks above", Exit.FAILED)
    where = f"{catalog.root_uri} (set by {state.lake.named_by})"
    return Answer(
        result, [where, "", Grid(["CHECK", "RESULT", "DETAIL"], rows, prose=frozenset({"DETAIL"}))], problem
    )


def _machine() -> list[Check]:
    from relance.storage.checkup import Check, Verdict

    found = [Check("python", Verdict.GOOD, platform.python_version())]
    return found + [Check(each, Verdict.GOOD, _version(each)) for each in _LIBRARIES]


def _version(library: str) -> str:
    from importlib.metadata import PackageNotFoundError

    from relance import __version__

    try:
        return version(library)
    except PackageNotFoundError:
        return __version__ if library == "relance" else "unknown"


def _spark() -> list[Check]:
    """Check whether Spark is available; the catalog works without it."""
    from relance.errors import UnsupportedOperationError
    from relance.storage.checkup import Check, Verdict

    try:
        from relance.spark.requirements import check_java, found_versions
    except UnsupportedOperationError as error:
        return [
            Check("pyspark", Verdict.UNKNOWN, error.detail),
            Check("java", Verdict.UNKNOWN, "not checked"),
        ]
    pyspark, java = found_versions()
    checks = [Check("pyspark", Verdict.GOOD, str(pyspark))]
    try:
        check_java()
    except UnsupportedOperationError as error:
        return [*checks, Check("java", Verdict.UNKNOWN, error.detail)]
    return [*checks, Check("java", Verdict.GOOD, str(java))]
