"""A run's record as JSON: complete, stable in form, and invalid documents are refused."""

from __future__ import annotations

import copy
import json
from datetime import UTC, timedelta
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.support.policy.runs import HOSTILE_NAMES, a_run, every_run, night

from relance.errors import InvalidInputError
from relance.jobs.base import Effect, Estimate, Figures
from relance.jobs.facts import TableFacts
from relance.policy.actions import Action
from relance.policy.records import (
    ActionRecord,
    MoreDropped,
    Outcome,
    RunRecord,
    RunState,
    TableChange,
    Totals,
)
from relance.policy.report import FORMAT, from_json, to_json

names = st.lists(st.text(max_size=8) | st.sampled_from(HOSTILE_NAMES), max_size=3).map(tuple)
moments = st.datetimes(timezones=st.just(UTC))
durations = st.timedeltas()
pairs = st.lists(st.tuples(st.text(max_size=4), st.text(max_size=4)), max_size=2).map(tuple)
setting_values = (
    st.text(max_size=4) | st.integers() | st.booleans() | st.floats(allow_nan=False, allow_infinity=False)
)
facts = st.builds(
    TableFacts,
    names,
    oldest_version_at=st.none() | moments,
    last_write=st.none() | moments,
    properties=pairs,
    columns=pairs,
    dropped_at=st.none() | moments,
    purge_after=st.none() | moments,
)
effects = st.builds(Effect, before=st.builds(Figures), after=st.builds(Figures))
actions = st.builds(
    Action, table=names, settings=st.dictionaries(st.text(max_size=4), setting_values, max_size=3)
)
action_records = st.builds(
    ActionRecord,
    actions,
    planned=st.none() | st.builds(Estimate),
    effect=st.none() | effects,
    started_at=st.none() | moments,
    duration=durations,
)
records = st.builds(
    RunRecord,
    started_at=moments,
    ended_at=st.none() | moments,
    before=st.builds(Totals),
    after=st.none() | st.builds(Totals),
    actions=st.lists(action_records, max_size=3).map(tuple),
    changes=st.lists(st.builds(TableChange, facts, st.none() | facts), max_size=3).map(tuple),
)


@settings(max_examples=150, suppress_health_check=[HealthCheck.too_slow])
@given(records)
def test_any_record_round_trips_through_json(record: RunRecord) -> None:
    assert from_json(json.loads(json.dumps(to_json(record)))) == record


@pytest.mark.parametrize("name", list(every_run()))
def test_record_of_every_kind_of_run_round_trips_through_json(name: str) -> None:
    record = every_run()[name]
    assert from_json(json.loads(json.dumps(to_json(record)))) == record


def test_json_format_of_a_record_is_stable() -> None:
    action = Action("clean_up", ("prod", "events"), "prod", "30 versions", {"retain": 5, "tags": True})
    record = ActionRecord(
        action,
        Outcome.DONE,
        Estimate(files=3, bytes=1000, versions=2),
        Effect(files=3, bytes=1000, before=Figures(versions=7), after=Figures(versions=5)),
        started_at=a_run().started_at,
        duration=timedelta(seconds=1.5),
    )
    document = to_json(
        a_run([record], [TableChange(TableFacts(("prod", "events"), rows=4))], state=RunState.RUNNING)
    )
    assert document == {
        "format": 1,
        "run": "20260301T020000-7f3a",
        "root": "s3://lake/prod",
        "policy": "policy.toml",
        "actor": "ops@nightly",
        "state": "running",
        "engine": "spark: 40 tables on 64 slots",
        "started_at": "2026-03-01T02:00:00+00:00",
        "ended_at": None,
        "before": {
            "tables": 1,
            "dropped": 0,
            "unreadable": 0,
            "rows": 4,
            "deleted_rows": 0,
            "fragments": 0,
            "bytes": 0,
            "versions": 0,
        },
        "after": None,
        "actions": [
            {
                "action": {
                    "kind": "clean_up",
                    "table": ["prod", "events"],
                    "rule": "prod",
                    "why": "30 versions",
                    "settings": {"retain": 5, "tags": True},
                },
                "outcome": "done",
                "planned": {"rows": 0, "files": 3, "bytes": 1000, "versions": 2, "note": ""},
                "effect": {
                    "version": None,
                    "rows": 0,
                    "files": 3,
                    "bytes": 1000,
                    "before": _figures(7),
                    "after": _figures(5),
                    "note": "",
                },
                "error": None,
                "started_at": "2026-03-01T02:00:00+00:00",
                "duration": 1_500_000,
            }
        ],
        "changes": [{"before": _facts(), "after": None}],
        "message": "",
        "more_dropped": {"tables": 0, "due": 0},
    }


def test_records_of_older_and_newer_writers_are_read() -> None:
    document = to_json(night(2))
    del document["message"], document["more_dropped"], document["changes"][0]["before"]["unindexed_rows"]
    document["added_later"] = 1
    document["actions"][0]["action"]["added_later"] = [1]
    record = from_json(document)
    assert record.message == ""
    assert record.more_dropped == MoreDropped()
    assert record.changes[0].before.unindexed_rows is None


@pytest.mark.parametrize("document", [None, [], "x", 3, {}, {"run": "x"}])
def test_document_that_is_no_record_is_refused(document: Any) -> None:
    with pytest.raises(InvalidInputError, match="not a run record"):
        from_json(document)


@pytest.mark.parametrize("version", [0, 2, "1", None])
def test_record_in_another_format_is_refused_with_advice(version: Any) -> None:
    with pytest.raises(InvalidInputError, match=rf"this release reads {FORMAT}"):
        from_json({**to_json(a_run()), "format": version})


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (["state"], 3),
        (["started_at"], "2026-03-01T02:00:00"),
        (["started_at"], 5),
        (["before"], None),
        (["before", "rows"], "4"),
        (["before", "rows"], True),
        (["actions"], {}),
        (["actions", 0, "duration"], 10**30),
        (["actions", 0, "action", "table"], [1]),
        (["actions", 0, "action", "settings"], {"x": None}),
        (["actions", 0, "action", "kind"], ["explode"]),
        (["changes", 0, "before", "properties"], [["a"]]),
        (["changes", 0, "before", "protected"], 1),
    ],
)
def test_invalid_value_in_a_record_is_refused_with_its_path(path: list[Any], value: Any) -> None:
    document = copy.deepcopy(to_json(night(2)))
    place: Any = document
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = value
    with pytest.raises(InvalidInputError) as refused:
        from_json(document)
    assert str(path[-1]) in str(refused.value) or path[-1] == "settings"


def test_missing_value_in_a_record_is_named() -> None:
    document = to_json(night(2))
    del document["actions"][1]["action"]["rule"]
    with pytest.raises(InvalidInputError, match=r"record\.actions\[1\]\.action\.rule"):
        from_json(document)


def _figures(versions: int) -> dict[str, int | None]:
    return {
        "rows": None,
        "deleted_rows": None,
        "fragments": None,
        "files": None,
        "bytes": None,
        "versions": versions,
    }


def _facts() -> dict[str, Any]:
    unknown = (
        "version",
        "deleted_rows",
        "fragments",
        "fragment_deleted_ratio",
        "bytes",
        "versions",
        "oldest_version_at",
        "last_write",
        "unindexed_rows",
        "drop_ttl",
        "deletion_id",
        "dropped_at",
        "purge_after",
        "error",
    )
    known = {
        "table": ["prod", "events"],
        "state": "live",
        "rows": 4,
        "protected": False,
        "properties": [],
        "columns": [],
    }
    return {**dict.fromkeys(unknown), **known}
