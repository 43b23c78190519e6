"""Files that an earlier tree wrote are still read, and policy files are still checked as before."""

from __future__ import annotations

import pytest
from tests.net import goldens, kept_files

NAME = "kept_files"


@pytest.mark.parametrize(
    "part",
    [
        pytest.param("saved plan", id="a saved plan is loaded"),
        pytest.param("tables", id="tables are listed"),
        pytest.param("runs", id="runs are listed"),
        pytest.param("actions", id="actions are listed"),
        pytest.param("ended run", id="a run that ended is reported"),
        pytest.param("resumed run", id="an interrupted run is resumed"),
    ],
)
def test_kept_files_are_read_as_recorded(part: str) -> None:
    goldens.assert_as_recorded(NAME, {part: kept_files.read(part)}, {part: goldens.read(NAME)[part]})


def test_a_run_resumes_after_the_actions_that_its_history_has() -> None:
    before = {each["run"]: each for each in kept_files.read("actions")["actions"]}
    assert before[kept_files.INTERRUPTED]["kind"] == "delete_rows"
    events, readings = kept_files.read("resumed run")["tables"]
    assert events == {"version": 4, "rows": 6, "fragments": 1}
    assert readings == {"version": 6, "rows": 4, "fragments": 1}


def test_the_schema_of_policy_files_is_as_recorded_apart_from_its_texts() -> None:
    name = "policy_schema"
    goldens.assert_as_recorded(name, kept_files.policy_schema_without_texts(), goldens.read(name))
