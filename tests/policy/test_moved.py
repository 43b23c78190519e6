"""A saved plan runs exactly as saved, or is refused if the lake has changed in a way that matters."""

from __future__ import annotations

import json
import os
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import lance
import pytest
from tests.support.patches import original, substitute
from tests.support.policy.lakes import OLD_ROWS, ROWS, PolicyLake, outcomes, rows_of_days, the_policy
from tests.support.roots import ipc

from relance.errors import InvalidInputError
from relance.policy import load_plan, plan, run, run_policy, runs, save_plan
from relance.policy.records import Outcome, RunRecord, RunState


def _saved(lake: PolicyLake, tmp_path: Path) -> Path:
    file = tmp_path / "plan.json"
    save_plan(plan(lake.catalog, the_policy()), file)
    return file


def _refused(lake: PolicyLake, file: Path) -> RunRecord:
    before = lake.state()
    record = run(lake.catalog, load_plan(file, root=lake.uri))
    assert record.state is RunState.REFUSED
    assert "re-plan" in record.message
    assert lake.state() == before, "nothing was done"
    return record


def test_saved_plan_round_trips_and_runs(lake: PolicyLake, tmp_path: Path) -> None:
    made = plan(lake.catalog, the_policy())
    save_plan(made, tmp_path / "plan.json")
    assert load_plan(tmp_path / "plan.json") == made
    assert run(lake.catalog, load_plan(tmp_path / "plan.json")).state is RunState.DONE


def test_plan_can_be_saved_to_a_pipe_and_through_a_symlink(lake: PolicyLake, tmp_path: Path) -> None:
    made = plan(lake.catalog, the_policy(), only=[["readings"]])
    link, pipe = tmp_path / "link.json", tmp_path / "pipe"
    link.symlink_to(tmp_path / "plan.json")
    save_plan(made, link)
    assert link.is_symlink()
    assert load_plan(tmp_path / "plan.json") == made
    os.mkfifo(pipe)
    with ThreadPoolExecutor(1) as reader:
        read = reader.submit(pipe.read_bytes)
        save_plan(made, pipe)
        assert read.result(timeout=30) == (tmp_path / "plan.json").read_bytes()
    assert pipe.is_fifo()


def test_run_starts_when_it_is_executed_not_when_it_was_planned(lake: PolicyLake, tmp_path: Path) -> None:
    file = _saved(lake, tmp_path)
    made = load_plan(file)
    begun = made.made_at + timedelta(seconds=1)
    while datetime.now(UTC) < begun:
        time.sleep(0.1)
    record = run(lake.catalog, made)
    assert record.started_at > begun
    assert [each.head.run for each in runs(lake.catalog, since=begun)] == [made.run]


def test_edited_plan_is_refused(lake: PolicyLake, tmp_path: Path) -> None:
    file = _saved(lake, tmp_path)
    file.write_text(file.read_text().replace('"readings"', '"r"', 1))
    with pytest.raises(InvalidInputError, match="was modified after it was saved"):
        load_plan(file)


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("{", "is not a plan"),
        ("[]", "is not a plan"),
        ('{"relance_plan": 99}', "format 99"),
        ('{"relance_plan": 1, "hash": "x", "plan": {}}', "was modified"),
    ],
)
def test_file_that_is_no_plan_is_refused(tmp_path: Path, text: str, match: str) -> None:
    (tmp_path / "plan.json").write_text(text)
    with pytest.raises(InvalidInputError, match=match):
        load_plan(tmp_path / "plan.json")


def test_plan_with_a_valid_hash_but_invalid_content_is_refused(tmp_path: Path) -> None:
    from relance.policy.codec import digest, dumps

    body = {"run": 5}
    whole = {"relance_plan": 1, "hash": digest(dumps(body)), "plan": body}
    (tmp_path / "plan.json").write_text(json.dumps(whole))
    with pytest.raises(InvalidInputError, match=r"invalid plan\.run: '5'"):
        load_plan(tmp_path / "plan.json")


def test_plan_for_another_lake_is_refused(lake: PolicyLake, tmp_path: Path) -> None:
    file = _saved(lake, tmp_path)
    other = PolicyLake(str(tmp_path / "other"))
    with pytest.raises(InvalidInputError, match="is for"):
        load_plan(file, root=other.uri)
    with pytest.raises(InvalidInputError, match="is for"):
        run(other.catalog, load_plan(file))


def test_plan_for_a_table_dropped_since_is_refused(lake: PolicyLake, tmp_path: Path) -> None:
    file = _saved(lake, tmp_path)
    lake.catalog.drop_table({"id": ["readings"]})
    assert "readings" in _refused(lake, file).message


def test_plan_for_a_table_replaced_since_is_refused(lake: PolicyLake, tmp_path: Path) -> None:
    file = _saved(lake, tmp_path)
    lake.catalog.drop_table({"id": ["readings"], "context": {"purge": "true"}})
    lake.make("readings")
    assert "readings" in _refused(lake, file).message


def test_plan_for_a_table_overwritten_since_is_refused(lake: PolicyLake, tmp_path: Path) -> None:
    file = _saved(lake, tmp_path)
    lance.write_dataset(rows_of_days(), lake.location("readings"), mode="overwrite")
    assert "Overwrite" in _refused(lake, file).message


def test_plan_for_a_table_with_changed_rows_is_refused(lake: PolicyLake, tmp_path: Path) -> None:
    file = _saved(lake, tmp_path)
    lake.dataset("readings").update({"v": "v + 1"}, where="v = 3")
    assert "Update" in _refused(lake, file).message


def test_plan_to_purge_a_table_undropped_since_is_refused(lake: PolicyLake, tmp_path: Path) -> None:
    file = _saved(lake, tmp_path)
    lake.catalog.undrop_table(["prod", "old"])
    assert "prod$old" in _refused(lake, file).message


def test_plan_to_purge_a_root_table_undropped_since_is_refused(lake: PolicyLake, tmp_path: Path) -> None:
    file = _saved(lake, tmp_path)
    lake.catalog.undrop_table(["gone"])
    assert "gone" in _refused(lake, file).message


def test_harmless_changes_do_not_invalidate_a_plan(lake: PolicyLake, tmp_path: Path) -> None:
    file = _saved(lake, tmp_path)
    lake.append("readings")
    lake.dataset("readings").optimize.compact_files()
    lake.dataset("readings").create_scalar_index("v", "BTREE")
    lake.dataset("readings").delete("v = 3")
    lake.catalog.create_table({"id": ["new"]}, ipc(rows_of_days()))
    lake.catalog.purge_table(["gone"], force=True)
    record = run(lake.catalog, load_plan(file))
    assert record.state is RunState.DONE, [each.error for each in record.actions if each.error]
    assert lake.dataset("readings").count_rows() == 5 * (ROWS - OLD_ROWS - 1)
    purged = {key[1]: outcome for key, outcome in outcomes(record).items() if key[0] == "purge"}
    assert purged == {("gone",): Outcome.NOTHING, ("prod", "old"): Outcome.DONE}


def test_table_that_changes_during_the_run_fails_alone(
    lake: PolicyLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    planned = original("step.plan")

    def moving(step: Any, *arguments: object) -> object:
        is_checked = step.job.kind == "compact" and step.expect is not None
        if is_checked and "readings" in lake.catalog.list_tables({"id": []}).tables:
            lake.catalog.drop_table({"id": ["readings"]})
        return planned(step, *arguments)

    substitute(monkeypatch, "step.plan", moving)
    record = run_policy(lake.catalog, the_policy())
    found = outcomes(record)
    assert found["delete_rows", ("readings",), ""] is Outcome.DONE
    assert found["compact", ("readings",), ""] is Outcome.FAILED
    assert found["clean_up", ("readings",), ""] is Outcome.SKIPPED
    assert found["compact", ("prod", "orders"), ""] is Outcome.DONE
    assert next(each.error for each in record.actions if each.outcome is Outcome.FAILED)


def test_saved_plan_keeps_its_retained_versions_however_many_follow(lake: PolicyLake, tmp_path: Path) -> None:
    text = "[defaults]\nclean_up = { retain_versions = 2, allow_young = true }\n"
    file = tmp_path / "plan.json"
    save_plan(plan(lake.catalog, the_policy(text), only=[["readings"]]), file)
    planned = [each["version"] for each in lake.dataset("readings").versions()]
    for _ in range(3):
        lance.write_dataset(rows_of_days(), lake.location("readings"), mode="overwrite")

    record = run(lake.catalog, load_plan(file, root=lake.uri))

    assert record.state is RunState.DONE
    left = [each["version"] for each in lake.dataset("readings").versions()]
    assert left == [*planned[-2:], *(planned[-1] + more for more in (1, 2, 3))]
