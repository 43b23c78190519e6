"""Tests are found where the code is: folders of tests mirror the packages of the source."""

from __future__ import annotations

from tests.support.paths import REPOSITORY

SOURCE = REPOSITORY / "src" / "relance"
TESTS = REPOSITORY / "tests"
OTHER = {"docs", "net", "support"}
"""Folders of `tests` that belong to no package."""


def _folders_with_tests() -> set[str]:
    modules = {str(path.parent.relative_to(TESTS)) for path in TESTS.rglob("test_*.py")}
    return {folder for folder in modules if folder.split("/")[0] not in OTHER}


def test_every_folder_of_tests_mirrors_a_package() -> None:
    packages = {str(path.parent.relative_to(SOURCE)) for path in SOURCE.rglob("__init__.py")}
    assert _folders_with_tests() - packages == set()
