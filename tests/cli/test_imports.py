"""Which libraries a command imports: what it does not use costs more time than its work."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from tests.support.cli import CommandLake, environment

CLIENT = {"lance_namespace", "lance_namespace_urllib3_client", "pydantic", "urllib3"}
"""Of the namespace spec: a model for every request, and the means to send it."""

DATA = {"lance", "pyarrow", "numpy", "pandas", "obstore"}
SPARK = {"pyspark", "py4j"}

PROGRAM = """
import sys
from relance.cli import main
try:
    main()
finally:
    print("loaded", *sorted({each.partition(".")[0] for each in sys.modules}), file=sys.stderr)
"""

POLICY = '[[rules]]\nname = "a"\ntables = "**"\ndrop_ttl = "30d"\ncompact = { target_bytes = "128MiB" }\n'


def loaded(
    arguments: Sequence[str], *, exit_code: int = 0, more: Mapping[str, str] | None = None, cwd: Path
) -> tuple[set[str], str]:
    """Run a command in a process of its own, and return what it imported, and printed."""
    ran = subprocess.run(
        [sys.executable, "-c", PROGRAM, *arguments],
        env={**environment(), **(more or {})},
        capture_output=True,
        text=True,
        check=False,
        cwd=cwd,
    )
    assert ran.returncode == exit_code, ran.stderr
    (line,) = [each for each in ran.stderr.splitlines() if each.startswith("loaded ")]
    return set(line.split()[1:]), ran.stdout


def completing(line: str) -> dict[str, str]:
    return {
        "_RELANCE_COMPLETE": "bash_complete",
        "COMP_WORDS": line,
        "COMP_CWORD": str(len(line.split(" ")) - 1),
    }


@pytest.mark.parametrize(
    ("arguments", "exit_code"),
    [
        (["--help"], 0),
        (["--version"], 0),
        (["compact", "--help"], 0),
        (["completion", "bash"], 0),
        (["frob"], 2),
        (["ls", "--frob"], 2),
        (["cleanup", "--older-than", "30", "prod.users"], 2),
        (["--json", "drop", "--ttl", "soon", "prod.users"], 2),
        (["show", "prod..users"], 2),
        (["policy", "check", "good.toml"], 0),
        (["policy", "check", "bad.toml"], 2),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else str(value),
)
def test_command_that_opens_no_catalog_imports_no_lance_arrow_store_or_client(
    tmp_path: Path, arguments: list[str], exit_code: int
) -> None:
    (tmp_path / "good.toml").write_text(POLICY)
    (tmp_path / "bad.toml").write_text(POLICY.replace("128MiB", "128"))
    names, _ = loaded(arguments, exit_code=exit_code, cwd=tmp_path)
    # The classes of jobs are models, and say what a policy may hold.
    client = CLIENT - {"pydantic"} if arguments[0] == "policy" else CLIENT
    assert not names & (client | DATA | SPARK)


@pytest.mark.parametrize(("line", "word"), [("relance und", "undrop"), ("relance drop --pu", "--purge")])
def test_completing_a_command_or_an_option_imports_none_of_them_either(
    tmp_path: Path, line: str, word: str
) -> None:
    names, printed = loaded([], more=completing(line), cwd=tmp_path)
    assert word in printed
    assert not names & (CLIENT | DATA | SPARK)


@pytest.mark.parametrize(
    ("arguments", "exit_code"),
    [
        (["ls"], 0),
        (["ls", "prod", "--sizes"], 0),
        (["ls", "--tree"], 0),
        (["ls", "--dropped"], 0),
        (["show", "prod.users"], 0),
        (["show", "prod"], 0),
        (["--json", "show", "prod.gone"], 3),
        (["status", "prod.users"], 0),
        (["status", "prod.gone"], 3),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else str(value),
)
def test_command_that_only_looks_imports_lance_and_the_store_alone(
    lake: CommandLake, tmp_path: Path, arguments: list[str], exit_code: int
) -> None:
    names, _ = loaded(["--root", lake.uri, *arguments], exit_code=exit_code, cwd=tmp_path)
    assert {"lance", "pyarrow", "obstore"} <= names
    assert not names & (CLIENT | SPARK | {"pandas"})


def test_completing_a_table_imports_lance_and_the_store_alone(lake: CommandLake, tmp_path: Path) -> None:
    more = {"RELANCE_ROOT": lake.uri, **completing("relance show prod.u")}
    names, printed = loaded([], more=more, cwd=tmp_path)
    assert "prod.users" in printed
    assert not names & (CLIENT | SPARK | {"pandas"})


def test_pandas_can_be_imported_afterwards() -> None:
    code = (
        "import json, sys\n"
        "from relance.cli.imports import import_lance_alone\n"
        "import_lance_alone()\n"
        "assert 'lance' in sys.modules and 'pandas' not in sys.modules\n"
        "import pandas\n"
        "print(json.dumps(pandas.DataFrame({'a': [1]}).a.tolist()))\n"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert json.loads(ran.stdout) == [1]
