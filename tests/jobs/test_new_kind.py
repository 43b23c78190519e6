"""A kind of job is one class in one module: policies, commands, plans, history, report and docs have it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest
from tests.support.cli import run
from tests.support.paths import REPOSITORY
from tests.support.policy.lakes import PolicyLake, the_policy
from tests.support.policy.schemas import complaints

from relance.jobs.base import Job, forget
from relance.jobs.reference import page, policy_table
from relance.policy import history, plan, run_record
from relance.policy.problems import PolicyError
from relance.policy.report import summary
from relance.policy.schema import policy_schema

MODULE = "tests.support.jobs.stamp"
RULES = '[defaults]\nstamp = { text = "kept", quiet_for = "0s" }\n'


@pytest.fixture(autouse=True)
def kind() -> Iterator[type[Job]]:
    """The kind, which only these tests know."""
    sys.modules.pop(MODULE, None)
    found: type[Job] = import_module(MODULE).Stamp
    yield found
    forget(found)


@pytest.fixture
def lake(tmp_path: Path) -> PolicyLake:
    lake = PolicyLake(str(tmp_path / "lake"))
    lake.make("readings")
    lake.make("events")
    return lake


@pytest.fixture
def file(tmp_path: Path) -> str:
    (tmp_path / "policy.toml").write_text(RULES)
    return str(tmp_path / "policy.toml")


def _stamps(lake: PolicyLake) -> dict[str, str | None]:
    return {name: lake.dataset(name).config().get("stamp") for name in ("events", "readings")}


def test_kind_is_one_short_module() -> None:
    source = (REPOSITORY / (MODULE.replace(".", "/") + ".py")).read_text()
    assert source.count("\n") < 80


def test_policy_has_its_settings_with_complaints_and_schema() -> None:
    assert the_policy(RULES).rules[0].jobs["stamp"]
    with pytest.raises(PolicyError) as raised:
        the_policy("[defaults]\nstamp = { tekst = 'x', quiet_for = 3 }\nstmp = true\ntext = 'y'\n")
    assert [str(each) for each in raised.value.problems] == [
        "policy.toml:2: defaults.stamp.tekst: unknown key; did you mean 'text'?",
        "policy.toml:2: defaults.stamp.quiet_for: must be a duration like 7d, 12h or 1d 6h, got 3",
        "policy.toml:3: defaults.stmp: unknown key; did you mean 'stamp'?",
        "policy.toml:4: defaults.text: unknown key; did you mean stamp = { text = … }?",
    ]
    schema = policy_schema()
    assert list(complaints(schema, {"defaults": {"stamp": {"text": "x"}}}, schema)) == []
    assert list(complaints(schema, {"defaults": {"stamp": {"tekst": "x"}}}, schema)) != []


def test_explain_and_plan_show_it_and_a_run_does_it(lake: PolicyLake, file: str) -> None:
    shown = run("--root", lake.uri, "policy", "explain", "events", "--policy", file, "--json").document
    (decision,) = (
        each for each in shown["result"]["explanations"][0]["decisions"] if each["kind"] == "stamp"
    )
    assert (decision["acts"], decision["settings"]) == (True, {"text": "kept"})
    made = plan(lake.catalog, the_policy(RULES))
    assert [each.planned.note for each in made.steps if each.planned] == ["stamped with 'kept'"] * 2

    ran = run("--root", lake.uri, "run", file, "--yes", "--kind", "stamp", "--json")
    assert ran.exit_code == 0, ran
    assert _stamps(lake) == {"events": "kept", "readings": "kept"}
    assert {each.record.action.table for each in history(lake.catalog, kind="stamp")} == {
        ("events",),
        ("readings",),
    }
    listed = run("--root", lake.uri, "history", "--kind", "stamp", "--json").document["result"]["actions"]
    assert [each["kind"] for each in listed] == ["stamp", "stamp"]
    record = run_record(lake.catalog)
    assert record is not None
    assert [(each.kind, each.done) for each in summary(record).kinds] == [("stamp", 2)]


def test_command_has_its_settings_as_options(lake: PolicyLake) -> None:
    told = run("stamp", "--help").out
    assert "Write a text into the configuration of tables." in told
    assert "--text TEXT" in told
    assert "--quiet-for" not in told, "it is for policies"
    ran = run("--root", lake.uri, "stamp", "events", "--text", "now", "--json")
    assert ran.exit_code == 0, ran
    assert ran.document["result"]["job"] == "stamp"
    assert _stamps(lake) == {"events": "now", "readings": None}
    assert run("--root", lake.uri, "stamp", "--text", "").exit_code == 2


def test_docs_describe_it() -> None:
    assert "| | `quiet_for` | a duration like 7d, 12h or 1d 6h |  | Stamp only tables" in policy_table()
    section = page().partition("## stamp\n")[2].partition("\n## ")[0]
    assert "On the command line: [`relance stamp`](cli.md)." in section
    assert "| `text` | a string | `seen` |  | Text to write. |" in section
