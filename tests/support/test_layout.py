"""Tests are found where the code is: folders of tests mirror the packages of the source."""

from __future__ import annotations

from tests.support.paths import REPOSITORY

SOURCE = REPOSITORY / "src" / "relance"
TESTS = REPOSITORY / "tests"
OTHER = {"docs", "lifecycle", "net", "operations/rows", "seeds", "support"}
"""Folders of `tests` that belong to no package: the lifecycle of tables goes through several, and so does the
specification."""


def _folders_with_tests() -> set[str]:
    folders = {path.parent.relative_to(TESTS) for path in TESTS.rglob("test_*.py")}
    return {str(folder) for folder in folders if OTHER.isdisjoint(map(str, [folder, *folder.parents]))}


def test_every_folder_of_tests_mirrors_a_package() -> None:
    packages = {str(path.parent.relative_to(SOURCE)) for path in SOURCE.rglob("__init__.py")}
    assert _folders_with_tests() - packages == set()
