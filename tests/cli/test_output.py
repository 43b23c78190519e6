"""Unwritable output and endless input files give a one-line error, never a traceback."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from pathlib import Path
from typing import BinaryIO, cast

import pyarrow as pa
import pytest
from tests.support.cli import CommandLake, environment, run, spawn
from tests.support.roots import ipc

from relance.cli.grids import Grid
from relance.cli.output import Answer, Branch, TerminalSink, print_answer
from relance.operations.transfer.exporting import write_rows
from relance.operations.transfer.formats import Format


def _into(target: str, *args: str, lake: CommandLake) -> subprocess.CompletedProcess[str]:
    """Run a command through a shell that sends its output somewhere."""
    command = [sys.executable, "-m", "relance", "--root", str(lake.folder), *args]
    return subprocess.run(
        ["/bin/sh", "-c", f'exec "$@" {target}', "sh", *command],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=240,
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


EVIL = "a\x1b]0;title\x07\x9b31m\u202eb"
HARMLESS = "a\\u{1B}]0;title\\u{7}\\u{9B}31m\\u{202E}b"


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("stream", [io.StringIO, _Terminal], ids=["pipe", "terminal"])
def test_control_characters_are_escaped_wherever_they_are(
    stream: type[io.StringIO], monkeypatch: pytest.MonkeyPatch
) -> None:
    parts = (
        Grid([EVIL, "b"], [["1", "2"]]),
        Grid([EVIL, "b"], [["1", EVIL]], frozenset({EVIL})),
        Grid(["a"], [], empty=EVIL),
        Grid(["a"], [[EVIL]] * 3000),
        Branch(EVIL, [Branch(EVIL)]),
        EVIL,
    )
    for part in parts:
        shown = stream()
        monkeypatch.setenv("COLUMNS", "200")
        monkeypatch.setenv("NO_COLOR", "1")
        monkeypatch.setattr(sys, "stdout", shown)
        print_answer(Answer({}, [part]), command="ls", as_json=False)
        text = shown.getvalue()
        assert HARMLESS in text, part
        assert not {"\x1b", "\x07", "\x9b", "\u202e"} & set(text), part


def test_column_names_cannot_control_the_terminal(lake: CommandLake) -> None:
    lake.catalog.create_table({"id": ["odd"]}, ipc(pa.table({EVIL: [1]})))
    for command in (["query", "odd"], ["show", "odd"]):
        assert HARMLESS in lake.ok(*command)
        assert "\x1b" not in lake.ok(*command)
    failed = lake.run("query", "odd", "--where", f"`{EVIL}x` = 1", "--debug")
    assert "Traceback" in failed.err
    assert not {"\x1b", "\x07", "\x9b", "\u202e"} & set(failed.err)


@pytest.mark.parametrize("file_format", ["csv", "json"])
def test_rows_in_text_formats_cannot_control_a_terminal(lake: CommandLake, file_format: str) -> None:
    lake.catalog.create_table({"id": ["odd"]}, ipc(pa.table({"a": [f"{EVIL}\n1,2\tü"]})))
    plain = lake.ok("query", "odd", "--format", file_format)
    assert "\x9b" in plain or file_format == "json", "a pipe gets what is there"
    terminal = _Terminal()
    with TerminalSink(terminal) as sink:
        write_rows(lake.catalog.scan_table(["odd"]), cast("BinaryIO", sink), Format(file_format))
    shown = terminal.getvalue()
    assert not {"\x1b", "\x07", "\x9b", "\u202e"} & set(shown)
    assert "ü" in shown
    assert shown.count("\n") == plain.count("\n")


def test_terminal_sink_joins_characters_that_are_written_in_parts() -> None:
    terminal = _Terminal()
    with TerminalSink(terminal) as sink:
        for byte in "ä\tb\x1b\n".encode():
            assert sink.write(bytes([byte])) == 1
    assert terminal.getvalue() == "ä\tb\\u{1B}\n"


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
