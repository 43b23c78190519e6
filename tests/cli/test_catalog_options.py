"""Which settings file is obeyed: one that is trusted, and for the root in use."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tests.support.cli import RULES, CommandLake, run
from tests.support.patches import substitute

from relance.cli.state import State

STRANGER = 54321


def _settings(folder: Path, text: str = 'root = "lake"\n[catalog]\nmanifest_enabled = false\n') -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "relance.toml").write_text(text)
    return folder / "relance.toml"


def _give_away(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make a file one of another user, as seen from here."""
    if os.geteuid() == 0:
        os.chown(file, STRANGER, -1, follow_symlinks=False)
    else:
        substitute(monkeypatch, "cli.user_id", lambda: STRANGER)


def test_settings_of_another_user_are_ignored_unless_named(
    lake: CommandLake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = _settings(tmp_path)
    _give_away(file, monkeypatch)
    ran = run("ls")
    assert ran.exit_code == 2
    said = f"settings ignored: {file} belongs to another user; to use it, pass --config"
    assert ran.err.startswith(f"error: no catalog specified; {said}\n")
    ran = run("--root", str(lake.folder), "ls", "--json")
    assert ran.result["namespaces"] != []
    assert ran.err == f"warning: {said}\n"
    named = run("--config", str(file), "ls", "--json")
    assert named.result["namespaces"] == []
    assert named.err == ""


def test_own_settings_above_those_of_another_user_are_used(
    lake: CommandLake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _settings(tmp_path, 'root = "lake"\n')
    inner = _settings(tmp_path / "inner", 'root = "s3://evil"\n')
    inner.chmod(0o666)
    monkeypatch.chdir(tmp_path / "inner")
    ran = run("ls", "--json")
    assert ran.result["root"] == str(lake.folder)
    assert ran.err == f"warning: settings ignored: anyone can write to {inner}; to use it, pass --config\n"


@pytest.mark.parametrize("mode", [0o777, 0o1777], ids=["open", "sticky"])
def test_settings_in_a_folder_that_anyone_can_write_to_are_ignored(
    lake: CommandLake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: int
) -> None:
    file = _settings(tmp_path / "shared", 'root = "../lake"\n')
    file.parent.chmod(mode)
    monkeypatch.chdir(file.parent)
    ran = run("ls")
    assert ran.exit_code == 2
    assert f"settings ignored: anyone can write to the folder of {file};" in ran.err
    file.parent.chmod(0o755)
    assert run("ls", "--json").result["root"] == str(lake.folder)


def test_link_of_another_user_to_trusted_settings_is_ignored(
    lake: CommandLake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = _settings(tmp_path / "mine", 'root = "lake"\npolicy = "policy.toml"\n')
    (tmp_path / "theirs").mkdir()
    link = tmp_path / "theirs" / "relance.toml"
    link.symlink_to(real)
    _give_away(link, monkeypatch)
    monkeypatch.chdir(link.parent)
    assert "belongs to another user" in run("ls").err


def test_settings_for_another_root_are_ignored_whole(
    lake: CommandLake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "evil.toml").write_text(RULES)
    text = 'root = "other"\npolicy = "evil.toml"\n[spark]\nmaster = "spark://evil:1"\n[spark.conf]\na = "b"\n'
    file = _settings(tmp_path, text)
    said = f"warning: settings ignored: {file} is for {tmp_path / 'other'}, not {lake.folder}\n"
    for options in ((), ("--config", str(file))):
        ran = lake.run("plan", *options)
        assert ran.exit_code == 2, "there is no policy"
        assert "cannot read policy policy.toml" in ran.err
        assert ran.err.startswith(said)
    monkeypatch.setenv("RELANCE_ROOT", str(lake.folder))
    assert run("ls").err == said
    used = State().lake
    assert (used.master, used.conf, used.policy) == (None, {}, None)


@pytest.mark.parametrize("spelling", ["lake", "lake/", "./lake", "file://{}"])
def test_settings_apply_to_their_root_however_it_is_written(
    lake: CommandLake, tmp_path: Path, spelling: str
) -> None:
    _settings(tmp_path)
    ran = run("--root", spelling.format(lake.folder), "ls", "--json")
    assert ran.result["namespaces"] == []
    assert ran.err == ""


def test_default_policy_of_another_user_is_refused(
    lake: CommandLake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "policy.toml").write_text(RULES)
    assert lake.run("plan").exit_code == 0
    _give_away(tmp_path / "policy.toml", monkeypatch)
    ran = lake.run("plan")
    assert ran.exit_code == 2
    assert "policy.toml belongs to another user" in ran.err
    assert lake.run("plan", "policy.toml").exit_code == 0
