"""policy check, policy explain, plan, run, history, report."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from tests.support.cli import RULES, CommandLake, environment, run
from tests.support.patches import original, substitute

from relance.cli.app import app
from relance.cli.policies import KINDS
from relance.cli.shapes import SHAPES
from relance.jobs.base import policy_kinds
from relance.jobs.runner import open_catalog
from relance.policy import parse_policy, plan
from relance.policy.planning import begin, ref_of

POLICY = f"[limits]\nmax_tables = 100\n{RULES}"


@pytest.fixture
def file(tmp_path: Path) -> str:
    """Return the name of a policy file."""
    (tmp_path / "lake.toml").write_text(POLICY)
    return str(tmp_path / "lake.toml")


def _actions(found: dict[str, object]) -> set[tuple[str, str]]:
    record = found["record"]
    assert isinstance(record, dict)
    return {(each["action"]["kind"], ".".join(each["action"]["table"])) for each in record["actions"]}


def test_command_line_kinds_match_the_policy_kinds() -> None:
    assert list(KINDS) == [kind.kind for kind in policy_kinds()]


def test_policy_check_lists_the_rules_without_a_catalog(file: str) -> None:
    found = run("policy", "check", file, "--json").result
    assert [each["name"] for each in found["rules"]] == ["defaults", "production", "old readings"]
    assert found["limits"] == {"max_tables": 100}
    assert "production" in run("policy", "check", file).out


def test_policy_check_reports_problems_with_line_and_key(tmp_path: Path) -> None:
    bad = tmp_path / "bad.toml"
    bad.write_text('[[rules]]\nname = "x"\ntables = "**"\ncompact = { min_fragmens = 2 }\n')
    ran = run("policy", "check", str(bad), "--json")
    assert ran.exit_code == 2
    assert set(ran.document["result"]) == set(SHAPES["policy check"]), "as for a good one"
    (problem,) = ran.document["result"]["problems"]
    assert problem["line"] == 4
    assert "min_fragmens" in problem["key"]
    assert "bad.toml:4:" in run("policy", "check", str(bad)).out
    planned = run("--root", str(tmp_path), "plan", str(bad))
    assert planned.exit_code == 2
    assert "relance policy check" in planned.err


def test_policy_check_of_a_missing_file_is_a_usage_error() -> None:
    assert run("policy", "check", "nowhere.toml").exit_code == 2


def test_relance_toml_can_name_the_policy(lake: CommandLake, file: str, tmp_path: Path) -> None:
    (tmp_path / "relance.toml").write_text('root = "lake"\npolicy = "lake.toml"\n')
    assert run("policy", "check", "--json").result["file"] == file
    assert run("plan", "--json").result["record"]["policy"] == file


def test_policy_explain_shows_which_rule_decides(lake: CommandLake, file: str) -> None:
    (found,) = lake.json("policy", "explain", "prod.users", "--policy", file)["explanations"]
    decided = {each["kind"]: each for each in found["decisions"]}
    assert decided["protect"]["rule"] == "production"
    assert decided["protect"]["acts"] is True
    assert decided["compact"]["rule"] == "defaults"
    assert [each["matches"] for each in found["rules"]] == [True, True, False]
    text = lake.ok("policy", "explain", "prod.users", "--policy", file)
    assert "not protected yet" in text


def test_policy_explain_covers_the_root_and_dropped_tables(lake: CommandLake, file: str) -> None:
    assert lake.json("policy", "explain", "--policy", file)["explanations"][0]["table"] == "(root)"
    assert lake.run("policy", "explain", "nothing", "--policy", file).exit_code == 3
    assert lake.run("policy", "explain", "gone", "--policy", file).exit_code == 0


def test_plan_lists_actions_and_changes_nothing(lake: CommandLake, file: str) -> None:
    found = lake.json("plan", file)
    assert _actions(found) == {
        ("protect", "prod.users"),
        ("protect", "prod.raw.odd.name"),
        ("delete_rows", "readings"),
        ("compact", "prod.users"),
    }
    assert lake.json("show", "prod.users")["protected"] is False
    text = lake.ok("plan", file, "--only", "prod.users", "--kind", "protect")
    assert text.startswith("Dry run: 1 action on 1 table")
    assert "not protected yet" in text


def test_run_requires_confirmation_and_executes_the_plan(lake: CommandLake, file: str) -> None:
    refused = lake.run("run", file)
    assert refused.exit_code == 5
    assert "relance plan" in refused.err
    assert lake.ok("query", "readings", "--count") == "3\n"
    planned = lake.json("plan", file)
    done = lake.json("run", file, "--yes")
    assert _actions(done) == _actions(planned)
    assert done["record"]["state"] == "done"
    assert lake.ok("query", "readings", "--count") == "2\n"
    assert lake.json("show", "prod.users")["protected"] is True
    assert "Nothing to do" in lake.ok("run", file, "--kind", "protect")


def test_run_without_irreversible_actions_needs_no_confirmation(lake: CommandLake, file: str) -> None:
    assert lake.run("run", file, "--kind", "compact").exit_code == 0
    assert lake.json("show", "prod.users")["fragments"] == 1


def test_saved_plan_is_executed_by_run(lake: CommandLake, file: str, tmp_path: Path) -> None:
    saved = str(tmp_path / "plan.json")
    assert lake.json("plan", file, "--save", saved)["saved"] == saved
    assert lake.run("run", file, "--plan", saved).exit_code == 2
    assert lake.run("run", "--plan", saved).exit_code == 5
    done = lake.json("run", "--plan", saved, "--yes", "--actor", "me")["record"]
    assert (done["state"], done["actor"]) == ("done", "me")
    assert lake.ok("query", "readings", "--count") == "2\n"


def test_saved_plan_is_refused_after_a_table_changed(lake: CommandLake, file: str, tmp_path: Path) -> None:
    saved = str(tmp_path / "plan.json")
    lake.ok("plan", file, "--save", saved)
    lake.ok("drop", "readings")
    ran = lake.run("run", "--plan", saved, "--yes", "--json")
    assert ran.exit_code == 5
    assert ran.document["error"]["type"] == "Refused"
    assert "readings" in ran.document["error"]["message"]


def test_run_over_a_policy_limit_does_nothing(lake: CommandLake, tmp_path: Path) -> None:
    strict = tmp_path / "strict.toml"
    strict.write_text(POLICY.replace("max_tables = 100", "max_tables = 1"))
    assert lake.run("plan", str(strict)).exit_code == 5
    ran = lake.run("run", str(strict), "--yes")
    assert ran.exit_code == 5
    assert "max_tables" in ran.err
    assert lake.json("show", "prod.users")["protected"] is False


def test_conflicting_run_options_are_refused(lake: CommandLake, file: str) -> None:
    assert lake.run("run", "--resume", file).exit_code == 2
    assert lake.run("run", "--resume", "--plan", "x.json").exit_code == 2
    assert lake.run("run", file, "--run", "x").exit_code == 2
    assert lake.run("run", file, "--every", "1h").exit_code == 5
    assert lake.run("run", "--resume").exit_code == 3


def test_resume_requires_confirmation_of_irreversible_actions(
    lake: CommandLake, file: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = plan(lake.catalog, parse_policy(POLICY, file=file))
    begin(open_catalog(ref_of(lake.catalog)), made)  # and its process was stopped
    ran = lake.run("run", "--resume")
    assert ran.exit_code == 5
    assert "1 action of this run cannot be undone" in ran.err
    assert lake.json("query", "readings", "--count")["rows"] == 3
    substitute(monkeypatch, "cli.is_somebody_there", lambda: True)
    asked = CliRunner().invoke(app, ["--root", str(lake.folder), "run", "--resume"], input="n\n")
    assert asked.exit_code == 5
    assert "delete_rows readings: 1 row" in asked.stderr
    monkeypatch.undo()
    assert lake.json("run", "--resume", "--yes")["record"]["run"] == made.run
    assert lake.json("query", "readings", "--count")["rows"] == 2
    assert lake.run("run", "--resume", "--run", made.run).exit_code == 3


def test_only_option_with_an_unknown_table_is_not_found(lake: CommandLake, file: str) -> None:
    for command in (["plan", file], ["run", file, "--yes"], ["run", file, "--yes", "--every", "1h"]):
        ran = lake.run(*command, "--only", "readngs")
        assert ran.exit_code == 3, ran
        assert "error: table readngs not found" in ran.err
    assert lake.run("plan", file, "--only", "readings").exit_code == 0


def test_history_and_report_show_a_finished_run(lake: CommandLake, file: str, tmp_path: Path) -> None:
    assert lake.ok("history") == "no policy runs yet\n"
    assert lake.run("report").exit_code == 3
    done = lake.json("run", file, "--yes", "--actor", "night shift")["record"]
    (entry,) = lake.json("history")["runs"]
    assert (entry["run"], entry["actor"], entry["state"]) == (done["run"], "night shift", "done")
    actions = lake.json("history", "--table", "readings")["actions"]
    assert [(each["kind"], each["rows"]) for each in actions] == [("delete_rows", 1)]
    assert lake.json("history", "--failed")["actions"] == []
    assert "night shift" in lake.ok("history", "--actions")
    page = tmp_path / "report.html"
    assert lake.json("report", "--html", str(page))["record"] == done
    assert "<html" in page.read_text()
    assert done["run"] in lake.ok("report", done["run"])
    assert lake.run("report", "nothing").exit_code == 3


@pytest.mark.parametrize("outcomes", [["failed", "failed"], ["failed", "done"], ["done", "failed"]])
def test_failed_repetition_does_not_end_the_later_runs(
    lake: CommandLake, file: str, monkeypatch: pytest.MonkeyPatch, outcomes: list[str]
) -> None:
    wanted, real = iter(outcomes), original("policy.run_policy")

    def sometimes(*arguments: Any, **options: Any) -> object:
        if next(wanted) == "failed":
            raise OSError("an executor was lost")
        return real(*arguments, **options)

    def twice(every: timedelta, work: Callable[[], None], **options: object) -> None:
        work()
        work()

    substitute(monkeypatch, "policy.run_policy", sometimes)
    substitute(monkeypatch, "policy.repeat", twice)
    done = lake.run("run", file, "--every", "1h", "--yes", "--json")
    found = done.document["result"]["runs"]
    assert [each["state"] for each in found] == outcomes
    failed = found[outcomes.index("failed")]["error"]["message"]
    assert "an executor was lost" in failed
    assert done.exit_code == (0 if outcomes[-1] == "done" else 1)


@pytest.mark.deep
def test_run_every_repeats_until_it_is_stopped(lake: CommandLake, file: str, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "relance", "--root", str(lake.folder)]
    command += ["run", file, "--every", "1s", "--yes", "--json"]
    process = subprocess.Popen(
        command, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=tmp_path
    )
    try:
        assert process.stderr is not None
        seen = ""
        while seen.count("next run") < 2:
            line = process.stderr.readline()
            assert line, seen
            seen += line
        os.kill(process.pid, signal.SIGTERM)
        out, _ = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 0
    assert [each["state"] for each in json.loads(out)["result"]["runs"]][:2] == ["done", "done"]
    assert len(lake.json("history")["runs"]) >= 2
