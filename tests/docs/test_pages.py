"""The docs are true: examples run, and every setting, option and error is documented."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from tests.support.paths import REPOSITORY

from relance import errors
from relance.config import SETTINGS
from relance.locations import Scheme
from relance.storage.options import known_keys

DOCUMENTS = [REPOSITORY / "README.md", *sorted((REPOSITORY / "docs").rglob("*.md"))]


def test_the_readme_example_runs_twice_in_a_row_as_pasted(tmp_path: Path) -> None:
    blocks = re.findall(r"```python\n(.*?)```", (REPOSITORY / "README.md").read_text(), re.DOTALL)
    assert len([line for line in blocks[0].splitlines() if line.strip()]) <= 10
    for _ in range(2):
        ran = subprocess.run(
            [sys.executable, "-c", blocks[0]], cwd=tmp_path, capture_output=True, text=True, check=False
        )
        assert ran.returncode == 0, ran.stderr
        status, rows = ran.stdout.splitlines()
        assert "SoftDeleted(id=('readings',)" in status
        assert "Exists(id=('readings',))" in status
        assert rows == "[{'sensor': 'a', 'value': 20.5}, {'sensor': 'b', 'value': 21.0}]"


def test_tables_page_examples_print_what_the_page_says(tmp_path: Path) -> None:
    text = (REPOSITORY / "docs/tables.md").read_text()
    code = "\n".join(re.findall(r"```python\n(.*?)```", text, re.DOTALL))
    ran = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stderr
    said = re.findall(r"^print\(.*\)  # ([^,\n]+|\[.*\])", code, re.MULTILINE)
    assert [line.split(",")[0] for line in ran.stdout.splitlines()] == [line.split(",")[0] for line in said]


def test_readme_is_short_and_starts_with_the_two_commands() -> None:
    text = (REPOSITORY / "README.md").read_text()
    assert len(text.splitlines()) <= 70
    assert text.index("make demo") < text.index("make test") < text.index("```python")


@pytest.mark.parametrize("setting", sorted(SETTINGS))
def test_every_setting_is_documented(setting: str) -> None:
    assert f"`{setting}` | {SETTINGS[setting]}" in (REPOSITORY / "docs/reference/settings.md").read_text()


@pytest.mark.parametrize("scheme", list(Scheme))
def test_every_storage_option_is_documented(scheme: Scheme) -> None:
    page = (REPOSITORY / "docs/reference/settings.md").read_text()
    assert [key for key in known_keys(scheme) if f"`{key}`" not in page] == []


def test_every_error_is_documented_with_its_code() -> None:
    page = (REPOSITORY / "docs/reference/errors.md").read_text()
    for name, error in vars(errors).items():
        if isinstance(error, type) and issubclass(error, errors.RelanceError) and name != "RelanceError":
            assert f"| {int(error.code)} | `{name}` | `{error.prefix.strip()}` |" in page


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_links_between_documents_resolve(document: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", document.read_text()):
        if "://" not in target:
            assert (document.parent / target).exists(), f"{document.name} links to {target}"


@pytest.mark.parametrize(
    "document", [*DOCUMENTS, *sorted((REPOSITORY / "design").glob("*.md"))], ids=lambda path: path.name
)
def test_modules_that_a_page_names_exist(document: Path) -> None:
    named = re.findall(r"(?:\b\w+/)*\w+\.py\b", document.read_text())
    paths = [path.as_posix() for folder in ("src", "tests") for path in (REPOSITORY / folder).rglob("*.py")]
    ours = [name for name in named if name.startswith(("src/", "tests/", "relance/", "test_"))]
    assert [name for name in ours if not any(path.endswith(f"/{name}") for path in paths)] == []
