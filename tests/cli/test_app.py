"""The program as a whole: options, settings, errors, secrets, terminals and pipes."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import subprocess
import sys
import time
from pathlib import Path

import click
import pyarrow as pa
import pyarrow.parquet
import pytest
from click.shell_completion import BashComplete
from click.testing import CliRunner
from tests.support.cli import SECRET, CommandLake, environment, run, spawn
from tests.support.failures import deny
from tests.support.patches import substitute
from tests.support.ports import free_port

from relance.cli.app import SECTIONS, app
from relance.cli.exits import MEANINGS, Exit
from relance.cli.params import DURATION


@pytest.mark.parametrize(
    "command", [each for group in SECTIONS.values() for each in group], ids=lambda each: each.name
)
def test_every_command_has_help_and_the_shared_options(command: click.Command) -> None:
    ran = run(str(command.name), "--help")
    assert ran.exit_code == 0
    if not isinstance(command, click.Group):
        assert "--json" in ran.out
        assert "--root" in ran.out
    assert command.help


def test_every_command_belongs_to_a_help_section() -> None:
    assert {each.name for group in SECTIONS.values() for each in group} == set(app.commands)


def test_every_exit_code_has_a_description() -> None:
    assert set(MEANINGS) == set(Exit)


def test_global_options_are_accepted_before_and_after_the_command(lake: CommandLake) -> None:
    before = run("--root", str(lake.folder), "--json", "ls")
    after = run("ls", "--json", "--root", str(lake.folder))
    assert before.out == after.out
    assert before.document["ok"] is True


def test_suggested_commands_are_quoted_for_the_shell(lake: CommandLake) -> None:
    odd = "prod.raw.`odd.name`"
    assert f"relance undrop '{odd}'" in lake.ok("drop", odd)
    assert f"relance undrop '{odd}'" in lake.ok("status", odd)
    assert f"relance undrop '{odd}'" in lake.run("show", odd).err


def test_running_without_a_command_prints_help() -> None:
    for command in ((), ("policy",)):
        ran = run(*command)
        assert ran.exit_code == 0
        assert ran.out.startswith("Usage: relance")
        assert ran.err == ""


def test_version_option_prints_the_version(lake: CommandLake) -> None:
    assert run("--version").out.startswith("relance, version ")


def test_missing_catalog_error_says_how_to_name_one() -> None:
    ran = run("ls")
    assert ran.exit_code == 2
    what, to_do = ran.err.splitlines()
    assert what == "error: no catalog specified"
    assert "--root" in to_do
    assert "RELANCE_ROOT" in to_do
    assert "relance.toml" in to_do


def test_missing_root_folder_is_reported_as_not_found(tmp_path: Path) -> None:
    ran = run("--root", str(tmp_path / "typo"), "ls", "--json")
    assert ran.exit_code == 3
    assert ran.document["error"]["type"] == "NotFound"
    assert not (tmp_path / "typo").exists()


def test_environment_variables_select_the_catalog_and_its_settings(
    lake: CommandLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RELANCE_ROOT", str(lake.folder))
    assert run("ls", "--json").result["root"] == str(lake.folder)
    monkeypatch.setenv("RELANCE_MANIFEST_ENABLED", "false")
    assert run("ls", "--json").result["namespaces"] == []


def test_nearest_relance_toml_selects_the_catalog(
    lake: CommandLake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "relance.toml").write_text('root = "lake"\n[catalog]\nmanifest_enabled = false\n')
    (tmp_path / "a" / "b").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "a" / "b")
    found = run("ls", "--json").result
    assert found["root"] == str(lake.folder)
    assert found["namespaces"] == []
    # Another root has nothing to do with what the file says of its own.
    (tmp_path / "other").symlink_to(lake.folder)
    assert run("--root", str(tmp_path / "other"), "ls", "--json").result["namespaces"] != []


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("root = ", "is not valid TOML"),
        ('rot = "x"', "unknown key 'rot'"),
        ('storage = "x"', "'storage' must be a table"),
        ('root = ["x"]', "'root' must be a string"),
        ("[storage]\nregion = 'x'", "no catalog specified: "),
        ('root = "x"\n[catalog]\ndrop_tll = "7d"', "drop_tll"),
    ],
)
def test_invalid_relance_toml_is_a_usage_error_without_secret_values(
    tmp_path: Path, text: str, said: str
) -> None:
    (tmp_path / "relance.toml").write_text(text)
    ran = run("ls", "--debug")
    assert ran.exit_code == 2
    assert said in ran.err
    assert SECRET not in ran.err
    assert "did you mean" in ran.err or "rot" not in said


def test_misspelt_storage_option_is_a_warning_without_its_value(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    options = {
        "acces_key_id": SECRET,
        "access_key_id": "some",
        "secret_access_key": "other",
        "region": "eu-west-1",
        "endpoint": f"http://127.0.0.1:{free_port()}",
        "allow_http": "true",
        "client_max_retries": "0",
    }
    storage = "".join(f'{key} = "{value}"\n' for key, value in options.items())
    (tmp_path / "relance.toml").write_text(f'root = "s3://b"\n[storage]\n{storage}')
    ran = run("ls")
    assert ran.exit_code != 0, "nobody listens there"
    assert ran.err.startswith("warning: storage option 'acces_key_id' is unknown for s3")
    assert "did you mean 'access_key_id'" in ran.err
    assert SECRET not in ran.err


def test_missing_config_file_is_a_usage_error() -> None:
    assert run("--config", "nowhere.toml", "ls").exit_code == 2


def test_invalid_table_id_is_a_usage_error(lake: CommandLake) -> None:
    for bad in ("a..b", "`a", "a/b", "../x", ""):
        ran = lake.run("show", bad)
        assert ran.exit_code == 2, bad
        assert len(ran.err.splitlines()) == 2


def test_unknown_command_or_option_is_a_usage_error_also_in_json(lake: CommandLake) -> None:
    ran = run("lss", "--json")
    assert ran.exit_code == 2
    assert ran.document["error"]["type"] == "Usage"
    assert run("ls", "--nonsense").exit_code == 2
    assert "relance ls --help" in run("ls", "--nonsense").err


def test_traceback_is_printed_only_with_debug(lake: CommandLake) -> None:
    assert "Traceback" not in lake.run("show", "nothing").err
    assert "Traceback" in lake.run("show", "nothing", "--debug").err
    assert "Traceback" in lake.run("compact", "nothing", "readings", "--debug").err


def test_errors_quote_table_ids_in_command_line_syntax(lake: CommandLake) -> None:
    assert "'prod.nothing'" in lake.run("query", "prod.nothing").err


def test_duration_without_a_unit_is_refused(lake: CommandLake) -> None:
    ran = lake.run("drop", "readings", "--ttl", "30")
    assert ran.exit_code == 2
    assert "has no unit" in ran.err
    assert lake.ok("status", "readings") == "readings exists\n"


def _options_with_numbers() -> list[tuple[str, str]]:
    context = click.Context(app)
    commands = [(name, app.get_command(context, name)) for name in app.list_commands(context)]
    return [
        (name, option.opts[-1])
        for name, command in commands
        for option in (command.params if command is not None else [])
        if isinstance(option, click.Option) and isinstance(option.type, type(DURATION) | click.IntRange)
    ]


@pytest.mark.parametrize("value", ["9" * 5000, "9" * 5000 + "d", "٣", "1e400", "nan", "-1d", ""])
@pytest.mark.parametrize(("command", "option"), _options_with_numbers())
def test_absurd_number_is_a_usage_error(command: str, option: str, value: str) -> None:
    ran = run(command, f"{option}={value}")
    assert ran.exit_code == 2, ran.err
    assert "bug" not in ran.err
    assert "Traceback" not in ran.err


def test_numbers_are_expected_by_the_options_that_take_durations() -> None:
    taken = {option for _, option in _options_with_numbers()}
    assert {"--ttl", "--older-than", "--wait", "--every"} <= taken


@pytest.mark.parametrize("root", ["x" * 300, "y/" * 3000], ids=["name", "path"])
def test_too_long_a_root_is_a_usage_error(tmp_path: Path, root: str) -> None:
    ran = run("ls", "--root", f"{tmp_path}/{root}")
    assert ran.exit_code == 2
    assert "choose a shorter root" in ran.err


def test_errors_have_an_exit_code_and_suggest_the_next_command(lake: CommandLake, tmp_path: Path) -> None:
    (tmp_path / "there.csv").write_text("")
    lake.ok("import", "prod.`odd name`", _parquet(tmp_path))
    lake.ok("protect", "prod.users")
    lake.ok("drop", "prod.`odd name`")
    for command, code, said in (
        (["query", "readings", "--columns", "nope"], 2, "relance show readings"),
        (["query", "readings", "-o", str(tmp_path / "no" / "x.csv")], 2, "create the folder first"),
        (["query", "readings", "-o", str(tmp_path / "there.csv")], 2, "pass --overwrite"),
        (["drop", "prod.users"], 4, "relance unprotect prod.users"),
        (["run", "--resume", "--run", "x"], 3, "relance history"),
        (["show", "prod.`odd name`"], 3, "table 'prod.`odd name`' was dropped"),
    ):
        ran = lake.run(*command)
        assert (ran.exit_code, said in ran.err) == (code, True), (command, ran)
        assert "(['" not in ran.err


def _parquet(folder: Path) -> str:
    pa.parquet.write_table(pa.table({"x": [1]}), folder / "x.parquet")
    return str(folder / "x.parquet")


def test_permission_denied_by_the_store_exits_with_code_6(
    lake: CommandLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    substitute(monkeypatch, "disk.list_level", deny)
    ran = lake.run("ls")
    assert ran.exit_code == 6
    assert "relance doctor" in ran.err


def _endpoint(**more: str) -> dict[str, str]:
    return {
        "RELANCE_STORAGE_ENDPOINT": f"http://user:{SECRET}@127.0.0.1:9",
        "RELANCE_STORAGE_ALLOW_HTTP": "true",
        "RELANCE_STORAGE_ACCESS_KEY_ID": "AKIA" + SECRET,
        "RELANCE_STORAGE_SECRET_ACCESS_KEY": SECRET,
        "RELANCE_STORAGE_REGION": "eu",
        "RELANCE_STORAGE_CLIENT_MAX_RETRIES": "0",
        "RELANCE_STORAGE_CLIENT_RETRY_TIMEOUT": "1",
        "RELANCE_STORAGE_TIMEOUT": "2s",
        **more,
    }


@pytest.mark.parametrize("command", ["ls", "doctor", "scrub", "migrate"])
def test_secrets_from_the_environment_are_never_printed(
    command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in _endpoint().items():
        monkeypatch.setenv(name, value)
    for more in ((), ("--json",)):
        ran = run("--root", "s3://bucket/lake", command, "--debug", *more)
        assert ran.exit_code in {1, 6}, ran
        assert SECRET not in ran.out + ran.err


def test_secrets_in_foreign_exceptions_are_redacted(
    lake: CommandLake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "relance.toml").write_text(
        f'root = "s3://bucket/lake"\n[storage]\naccess_key_id = "me"\nsecret_access_key = "{SECRET}"\n'
    )

    def leak(*_: object) -> None:
        raise RuntimeError(f"request with key {SECRET} failed")

    substitute(monkeypatch, "catalog.check_format", leak)
    for more in ((), ("--json",), ("--debug",)):
        ran = run("ls", *more)
        assert ran.exit_code == 1
        assert "request with key *** failed" in ran.out + ran.err
        assert SECRET not in ran.out + ran.err


def test_colours_are_used_only_on_a_terminal(lake: CommandLake) -> None:
    assert "\x1b[" not in run("ls", "--nonsense").err
    assert "\x1b[" in _on_terminal(["ls", "--nonsense"], lake)[1]
    assert "\x1b[" not in _on_terminal(["ls", "--nonsense"], lake, NO_COLOR="1")[1]


def test_purge_answered_with_no_deletes_nothing(lake: CommandLake, monkeypatch: pytest.MonkeyPatch) -> None:
    substitute(monkeypatch, "cli.is_somebody_there", lambda: True)
    command = ["--root", str(lake.folder), "purge", "gone", "--force"]
    ran = CliRunner().invoke(app, command, input="n\n")
    assert ran.exit_code == 5
    assert "cancelled: nothing was changed" in ran.stderr
    assert (lake.folder / "gone.lance").exists()


def test_purge_prompt_names_the_tables_to_be_deleted(lake: CommandLake) -> None:
    code, text = _on_terminal(["purge", "gone", "--force"], lake, answer="y\n")
    assert code == 0, text
    assert "purging 1 table cannot be undone" in text
    assert "gone: " in text
    assert "100%" in text  # the bar
    assert not (lake.folder / "gone.lance").exists()


def test_closed_pipe_causes_no_error_output(lake: CommandLake, tmp_path: Path) -> None:
    command = f"{sys.executable} -m relance completion bash | head -n 1; echo ${{PIPESTATUS[0]}}"
    ran = subprocess.run(
        ["bash", "-c", command], env=environment(), capture_output=True, text=True, check=False, cwd=tmp_path
    )
    assert ran.stderr == ""
    assert ran.stdout.splitlines()[-1] in {"0", "141"}
    closed = f"{sys.executable} -m relance completion bash >&-; echo $?"
    assert "Traceback" not in subprocess.run(
        ["bash", "-c", closed], env=environment(), capture_output=True, text=True, check=False, cwd=tmp_path
    ).stderr  # fmt: skip


def test_ctrl_c_exits_with_130_and_no_traceback(lake: CommandLake) -> None:
    code, text = _on_terminal(["purge", "gone", "--force"], lake, answer="\x03")
    assert code == 130, text
    assert "Traceback" not in text


_ON_ITS_TERMINAL = """
import fcntl, runpy, signal, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
signal.signal(signal.SIGINT, signal.default_int_handler)
sys.argv[0] = "relance"
runpy.run_module("relance", run_name="__main__")
"""
"""Has the terminal send its signals here, also if the tests were started in the background, without them."""


def _on_terminal(args: list[str], lake: CommandLake, answer: str = "", **variables: str) -> tuple[int, str]:
    """Run a command on a terminal of its own, answer its prompt, and return what the terminal shows."""
    terminal, other_end = pty.openpty()
    command = [sys.executable, "-c", _ON_ITS_TERMINAL, "--root", str(lake.folder), *args]
    child = subprocess.Popen(
        command,
        stdin=other_end,
        stdout=other_end,
        stderr=other_end,
        env=environment(TERM="xterm-256color", COLUMNS="100", **variables),
        start_new_session=True,
    )
    os.close(other_end)
    shown, ended = b"", time.monotonic() + 60
    asked = not answer
    while time.monotonic() < ended:
        if not select.select([terminal], [], [], 3)[0]:
            if asked and answer == "\x03":
                os.write(terminal, b"\x03")  # the first came before Python waited for an answer
            continue
        try:
            more = os.read(terminal, 65536)
        except OSError:  # the other end is closed
            break
        if not more:
            break
        shown += more
        if not asked and b"[y/N]" in shown:
            time.sleep(0.3)
            os.write(terminal, answer.encode())
            asked = True
    else:
        child.kill()
    code = child.wait()
    os.close(terminal)
    return code, shown.decode()


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_script_is_printed_for_every_shell(shell: str) -> None:
    ran = run("completion", shell)
    assert ran.exit_code == 0, ran
    assert "_RELANCE_COMPLETE" in ran.out
    assert run("completion", shell, "--json").result["script"] in ran.out


def test_shell_completes_command_names(tmp_path: Path) -> None:
    words = {"_RELANCE_COMPLETE": "bash_complete", "COMP_WORDS": "relance und", "COMP_CWORD": "1"}
    assert spawn(folder=tmp_path, **words).out.splitlines() == ["plain,undrop"]


def test_shell_completes_names_from_the_catalog(lake: CommandLake, monkeypatch: pytest.MonkeyPatch) -> None:
    shell = BashComplete(app, {}, "relance", "_RELANCE_COMPLETE")

    def completed(*words: str) -> list[str]:
        return [each.value for each in shell.get_completions(list(words[:-1]), words[-1])]

    assert completed("--root", str(lake.folder), "undrop", "") == ["gone"]
    monkeypatch.setenv("RELANCE_ROOT", str(lake.folder))
    # Not prod.raw.`odd.name`: a shell would run what is between backticks.
    assert completed("show", "prod.") == ["prod.raw", "prod.users"]
    assert completed("compact", "readings", "prod.u") == ["prod.users"]
    monkeypatch.setenv("RELANCE_ROOT", "nonsense://x")
    assert completed("show", "") == []


def test_json_output_is_one_document_with_stable_top_level_keys(lake: CommandLake) -> None:
    good = json.loads(lake.run("ls", "--json").out)
    assert list(good) == ["ok", "command", "result"]
    assert good["command"] == "ls"
    bad = json.loads(lake.run("show", "nothing", "--json").out)
    assert list(bad) == ["ok", "command", "error"]
    assert sorted(bad["error"]) == ["code", "hint", "message", "type"]
    assert re.match(r"show$", bad["command"])
