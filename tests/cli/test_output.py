"""Unwritable output and endless input files give a one-line error, never a traceback."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from tests.support.cli import CommandLake, environment, run, spawn


def _into(target: str, *args: str, lake: CommandLake) -> subprocess.CompletedProcess[str]:
    """Run a command through a shell that sends its output somewhere."""
    command = [sys.executable, "-m", "relance", "--root", str(lake.folder), *args]
    return subprocess.run(
        ["/bin/sh", "-c", f'exec "$@" {target}', "sh", *command],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )


@pytest.mark.deep
def test_characters_outside_the_output_encoding_are_escaped(lake: CommandLake, tmp_path: Path) -> None:
    variables = {"RELANCE_ROOT": str(lake.folder), "PYTHONIOENCODING": "ascii"}
    lake.ok("create-namespace", "größe")
    tree = spawn("ls", "--tree", folder=tmp_path, **variables)
    assert tree.exit_code == 0, tree
    assert "gr\\xf6\\xdfe" in tree.out
    listed = spawn("ls", "--namespaces", "--json", folder=tmp_path, **variables)
    assert {"namespace": "größe"} in listed.result["namespaces"]


@pytest.mark.parametrize("options", [[], ["--json"]])
def test_full_output_device_is_reported_in_two_lines(lake: CommandLake, options: list[str]) -> None:
    ran = _into(">/dev/full", "ls", *options, lake=lake)
    assert ran.returncode == 1
    assert ran.stderr.splitlines() == [
        "error: No space left on device",
        " hint: free up space where the output goes; the command itself completed",
    ]


@pytest.mark.parametrize("options", [[], ["--json"]])
def test_closed_standard_output_is_not_an_error(lake: CommandLake, options: list[str]) -> None:
    ran = _into(">&-", "ls", *options, lake=lake)
    assert (ran.returncode, ran.stderr) == (0, "")


def test_group_without_a_command_prints_one_json_error() -> None:
    ran = run("--json", "policy")
    assert ran.exit_code == 2
    assert ran.document["error"]["message"] == "Missing command."


def test_json_usage_error_names_the_command() -> None:
    for command in ("ls", "policy check"):
        assert run(*command.split(), "--nope", "--json").document["command"] == command


def test_endless_policy_file_is_refused_as_too_large(lake: CommandLake) -> None:
    ran = lake.run("policy", "check", "/dev/zero")
    assert ran.exit_code == 2
    assert "is larger than" in ran.out


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a = " + "[" * 100_000, "is not valid TOML"),
        ("a = " + "9" * 5_000, "is not valid TOML"),
        ('root = "x"\nkey = "hunter2\n', "is not valid TOML (line 2)"),
        ("# a\n" * 300_000, "is larger than 1,048,576 bytes"),
    ],
    ids=["deep", "number", "quote", "large"],
)
def test_pathological_settings_file_is_a_usage_error(tmp_path: Path, text: str, said: str) -> None:
    file = tmp_path / "relance.toml"
    file.write_text(text)
    ran = run("ls", "--json", "--config", str(file))
    assert ran.exit_code == 2
    assert ran.document["error"]["message"] == f"{file} {said}"
    assert "hunter2" not in json.dumps(ran.document)
