"""Evaluation of a policy: which rule decides, what the facts lead to, and that time is fixed within a run."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.policy.policies import DOCUMENTS, KINDS, Document, policy, to_toml

from relance import jobs
from relance.jobs.facts import TableFacts, TableState
from relance.policy.actions import Action
from relance.policy.evaluate import evaluate, evaluate_root, explain, explain_root
from relance.policy.model import Limits

NOW = datetime(2026, 11, 16, 12, tzinfo=UTC)
DAY = timedelta(days=1)
LIVE = TableFacts(
    ("prod", "events"),
    rows=1000,
    deleted_rows=0,
    fragments=1,
    versions=5,
    oldest_version_at=NOW - 30 * DAY,
    unindexed_rows=0,
    columns=(("ts", "timestamp[us, tz=UTC]"), ("day", "date32[day]"), ("id", "int64")),
)
DROPPED = TableFacts(
    ("prod", "old"),
    TableState.DROPPED,
    deletion_id="d1",
    dropped_at=NOW - 8 * DAY,
    purge_after=NOW - DAY,
)


def rule(part: str, *, tables: str = "**", name: str = "a") -> str:
    """Return a rule with some lines of its own."""
    return f'[[rules]]\nname = "{name}"\ntables = "{tables}"\n{part}\n'


def one(part: str, facts: TableFacts = LIVE) -> Action | None:
    """Return the action that a policy of one part makes."""
    actions = evaluate(policy(rule(part)), facts, NOW)
    assert len(actions) <= 1
    return actions[0] if actions else None


def why(part: str, facts: TableFacts = LIVE) -> tuple[str, bool]:
    """Return why there is no action, and whether it was refused."""
    kind = part.split(" ")[0].split(".")[0]
    (decision,) = (each for each in explain(policy(rule(part)), facts, NOW).decisions if each.kind == kind)
    assert decision.action is None
    return decision.why, decision.refused


def _settings(part: str, facts: TableFacts = LIVE) -> dict[str, Any]:
    found = one(part, facts)
    assert found is not None
    json.dumps(dict(found.settings))
    return dict(found.settings)


def test_protection_is_set_and_removed_only_as_the_policy_says() -> None:
    assert _settings("protect = true") == {"on": True}
    assert _settings("protect = { on = false }", replace(LIVE, protected=True)) == {"on": False}
    assert why("protect = false", replace(LIVE, protected=True)) == ("disabled by the rule", False)
    assert why("protect = true", replace(LIVE, protected=True)) == ("already protected", False)


@pytest.mark.parametrize(
    ("now", "then"), [(None, True), ("7d", True), ("720h", False), ("30d", False), ("x", True)]
)
def test_retention_is_set_when_the_table_has_a_different_one(now: str | None, then: bool) -> None:
    found = one('drop_ttl = "30d"', replace(LIVE, drop_ttl=now))
    assert (found is not None) is then
    assert found is None or found.settings == {"ttl": "30d"}


WHERE = 'delete_rows = { delete_where = "ts < now() - interval \'1 day\'", time_column = "ts" }'


def test_rows_are_deleted_up_to_an_instant_fixed_in_the_plan() -> None:
    found = one(WHERE)
    assert found is not None
    assert "2026-11-15T12:00:00.000000Z" in str(found.settings["where"])
    assert "now" not in str(found.settings["where"])
    assert found.why == "rows matching ts < now() - interval '1 day' (of 1,000)"


@pytest.mark.parametrize(
    ("columns", "reason"),
    [
        ((), "column 'ts' does not exist"),
        ((("TS", "timestamp[us]"),), "column 'ts' does not exist"),
        ((("ts", "int64"),), "column 'ts' is int64, not a timestamp or date"),
        ((("ts", "string"),), "column 'ts' is string, not a timestamp or date"),
        ((("ts", "time64[us]"),), "column 'ts' is time64[us], not a timestamp or date"),
    ],
)
def test_row_delete_without_a_usable_time_column_is_refused(
    columns: tuple[tuple[str, str], ...], reason: str
) -> None:
    assert why(WHERE, replace(LIVE, columns=columns)) == (reason, True)
    found = explain(policy(rule(WHERE)), replace(LIVE, columns=columns), NOW)
    assert [(each.kind, each.rule, each.why) for each in found.refused] == [("delete_rows", "a", reason)]


def test_empty_table_has_no_rows_to_delete() -> None:
    assert why(WHERE, replace(LIVE, rows=0)) == ("the table has no rows", False)


@pytest.mark.parametrize(
    ("facts", "follows"),
    [
        ({"fragments": 1}, False),
        ({"fragments": 9}, False),
        ({"fragments": 10}, True),
        ({"fragments": 10, "rows": 10_000_000}, False),
        ({"fragments": 11, "rows": 10_000_000}, True),
        ({"fragments": 1, "deleted_rows": 111, "fragment_deleted_ratio": 0.1}, False),
        ({"fragments": 3, "deleted_rows": 1, "fragment_deleted_ratio": 0.11}, True),
        ({"fragments": None}, True),
        ({"fragments": 10, "rows": None}, True),
    ],
)
def test_table_with_many_fragments_or_deleted_rows_is_compacted(facts: dict[str, Any], follows: bool) -> None:
    part = "compact = { min_fragments = 10, target_rows = 1_000_000 }"
    assert (one(part, replace(LIVE, **facts)) is not None) is follows


def test_target_in_bytes_determines_how_many_fragments_are_enough() -> None:
    facts = replace(LIVE, fragments=10, bytes=10_000_000)
    assert one('compact.target_bytes = "1MB"', facts) is None
    assert one('compact.target_bytes = "1.2MB"', facts) is not None


def test_compaction_settings_are_passed_to_its_job() -> None:
    part = 'compact = { target_bytes = "1MB", batch_size = 7, partial_progress = 3 }'
    found = _settings(part, replace(LIVE, fragments=50))
    assert found == {
        "target_rows": 1024 * 1024,
        "target_bytes": 1_000_000,
        "deletion_threshold": 0.1,
        "partial_progress": 3,
        "defer_index_remap": False,
        "batch_size": 7,
    }
    jobs.Compact(**found)


@pytest.mark.parametrize(
    ("unindexed", "follows"), [(None, False), (0, False), (50, False), (100, False), (101, True)]
)
def test_indexes_are_refreshed_when_they_lag(unindexed: int | None, follows: bool) -> None:
    part = "refresh_indexes = { max_lag_rows = 50, max_lag_ratio = 0.1 }"
    facts = replace(LIVE, unindexed_rows=unindexed)
    assert (one(part, facts) is not None) is follows
    if follows:
        jobs.RefreshIndexes(**_settings(part, facts))


@pytest.mark.parametrize(
    ("part", "found"),
    [
        ('clean_up.older_than = "7d"', {"before": "2026-11-09T12:00:00+00:00"}),
        ("clean_up.retain_versions = 3", {"before": "2026-11-15T12:00:00+00:00", "retain_versions": 3}),
        (
            "clean_up = { retain_versions = 3, allow_young = true, ignore_clones = true }",
            {"retain_versions": 3, "allow_young": True, "ignore_clones": True},
        ),
        (
            'clean_up = { older_than = "1h", allow_young = true, rate_limit = 5 }\nrate_limit = 9',
            {"before": "2026-11-16T11:00:00+00:00", "allow_young": True, "rate_limit": 5},
        ),
        (
            'clean_up.older_than = "7d"\nrate_limit = 9',
            {"before": "2026-11-09T12:00:00+00:00", "rate_limit": 9},
        ),
    ],
)
def test_old_versions_are_removed_before_an_instant_fixed_in_the_plan(
    part: str, found: dict[str, Any]
) -> None:
    unset = {"retain_versions", "rate_limit", "before"} - found.keys()
    settings = _settings(part)
    assert settings.items() >= found.items()
    assert unset.isdisjoint(settings)
    assert settings["skip_tagged"], "tagged versions are no error of a night's work"


@pytest.mark.parametrize(
    ("facts", "reason"),
    [
        ({"versions": 3}, "3 versions, 3 to keep"),
        ({"versions": 1}, "1 version, 3 to keep"),
        (
            {"oldest_version_at": NOW - DAY},
            "the oldest version is from 2026-11-15T12:00:00+00:00; "
            "versions since 2026-11-14T12:00:00+00:00 are kept",
        ),
    ],
)
def test_cleanup_is_skipped_when_no_version_can_be_removed(facts: dict[str, Any], reason: str) -> None:
    part = 'clean_up = { older_than = "2d", retain_versions = 3 }'
    assert why(part, replace(LIVE, **facts)) == (reason, False)


def test_cleanup_with_unknown_versions_is_left_to_the_job() -> None:
    facts = replace(LIVE, versions=None, oldest_version_at=None)
    assert one("clean_up.retain_versions = 3", facts) is not None


def test_expired_dropped_table_is_purged_and_gets_no_other_action() -> None:
    parts = (WHERE, "protect = true", 'drop_ttl = "1d"', "compact = true", "clean_up.retain_versions = 1")
    everything = policy(rule("\n".join((*parts, "purge = true"))))
    (action,) = evaluate(everything, DROPPED, NOW)
    assert (action.kind, action.settings["deletion_id"]) == ("purge", "d1")
    assert action.why == "dropped at 2026-11-08T12:00:00+00:00, expired at 2026-11-15T12:00:00+00:00"
    found = _settings("purge.rate_limit = 5", DROPPED)
    assert found == {"deletion_id": "d1", "rate_limit": 5, "force": False}


@pytest.mark.parametrize(
    ("facts", "refused"),
    [
        ({"purge_after": NOW + DAY}, False),
        ({"purgeable_at": NOW + timedelta(minutes=1)}, False),
        ({"purge_after": None}, False),
        ({"protected": True}, True),
        ({"deletion_id": None}, True),
        ({"state": TableState.LIVE}, False),
    ],
)
def test_purge_waits_until_the_table_is_expired(facts: dict[str, Any], refused: bool) -> None:
    assert why("purge = true", replace(DROPPED, **facts))[1] is refused


@pytest.mark.parametrize(("late", "purges"), [(6, True), (5.9, False)])
def test_purge_waits_as_long_as_clocks_may_differ(late: float, purges: bool) -> None:
    facts = replace(DROPPED, purge_after=NOW - timedelta(minutes=late))
    assert facts.purge_after is not None
    facts = replace(facts, purgeable_at=facts.purge_after + timedelta(minutes=6))
    assert bool(evaluate(policy(rule("purge = true")), facts, NOW)) is purges, "or the purge would refuse it"


def test_declared_table_is_only_protected() -> None:
    everything = policy(rule('protect = true\ndrop_ttl = "1d"\ncompact = true\nclean_up.retain_versions = 1'))
    declared = TableFacts(("a",), TableState.DECLARED)
    assert [each.kind for each in evaluate(everything, declared, NOW)] == ["protect"]


def test_unreadable_table_is_left_alone_with_an_error() -> None:
    broken = TableFacts(("a",), error="no such file")
    found = explain(policy(rule("protect = true")), broken, NOW)
    assert found.actions == []
    assert found.error == "the table cannot be read: no such file"


def test_last_matching_rule_overrides_a_setting_completely() -> None:
    found = explain(
        policy(
            "[defaults]\nclean_up = { older_than = '9d', retain_versions = 2 }\n"
            + rule("clean_up.retain_versions = 3", name="first")
            + rule("clean_up.retain_versions = 4", tables="other.*", name="elsewhere")
            + rule('clean_up.older_than = "2d"\nprotect = true', tables="prod.*", name="last")
            + rule("protect = false", name="not so")
        ),
        LIVE,
        NOW,
    )
    (action,) = found.actions
    assert (action.rule, action.settings["before"]) == ("last", "2026-11-14T12:00:00+00:00")
    assert "retain_versions" not in action.settings
    decided = {each.kind: (each.rule, each.overrides, each.why) for each in found.decisions}
    assert decided["clean_up"][:2] == ("last", ("first", "defaults"))
    assert decided["protect"] == ("not so", ("last",), "disabled by the rule")
    assert decided["compact"] == (None, (), "no rule sets it")
    assert [(each.rule, each.matches) for each in found.matches] == [
        ("defaults", True),
        ("first", True),
        ("elsewhere", False),
        ("last", True),
        ("not so", True),
    ]
    assert found.matches[2].why == "no match for other.*"
    assert [each.kind for each in found.decisions] == [
        each for each in KINDS if each not in ("remove_orphans", "maintain_manifest")
    ]


@pytest.mark.parametrize(
    ("condition", "holds"),
    [
        ('tier = "gold"', True),
        ('tier = "g*d"', True),
        ('tier = "*"', True),
        ("tier = true", True),
        ("tier = false", False),
        ('tier = "silver"', False),
        ('other = "*"', False),
        ("other = false", True),
        ('tier = "gold", other = true', False),
    ],
)
def test_rule_can_require_table_properties(condition: str, holds: bool) -> None:
    facts = replace(LIVE, properties=(("tier", "gold"), ("owner", "x")))
    found = one(f"protect = true\nproperties = {{ {condition} }}", facts)
    assert (found is not None) is holds


def test_closed_window_allows_no_actions_and_says_when_it_opens() -> None:
    text = "[defaults]\nwindow = '22:00-06:00'\ntimezone = 'Europe/Berlin'\n" + rule("protect = true")
    found = explain(policy(text), LIVE, NOW)
    assert found.actions == []
    assert found.decisions[0].why == (
        "not protected yet, but the window 22:00-06:00 Europe/Berlin opens at 2026-11-16T22:00:00+01:00"
    )
    assert "set by rule 'defaults'" in found.window
    assert len(evaluate(policy(text), LIVE, NOW.replace(hour=23))) == 1
    assert len(evaluate(policy(text + rule("window = false", name="b")), LIVE, NOW)) == 1
    assert explain(policy(text + rule("window = false", name="b")), LIVE, NOW).window == (
        "none: disabled by rule 'b'"
    )


def test_rule_can_lift_the_rate_limit() -> None:
    text = "[defaults]\nrate_limit = 5\nclean_up.retain_versions = 1\n"
    assert evaluate(policy(text), LIVE, NOW)[0].settings["rate_limit"] == 5
    lifted = policy(text + rule("rate_limit = false"))
    assert "rate_limit" not in evaluate(lifted, LIVE, NOW)[0].settings


def test_last_rule_for_all_tables_decides_the_root_actions() -> None:
    text = "[defaults]\nremove_orphans = true\nmaintain_manifest = true\nrate_limit = 7\n"
    orphans, manifest = evaluate_root(policy(text), NOW)
    assert (orphans.kind, orphans.table) == ("remove_orphans", ())
    assert dict(orphans.settings) == {
        "before": "2026-11-15T12:00:00+00:00",
        "allow_young": False,
        "with_versions": False,
        "rate_limit": 7,
    }
    assert (manifest.kind, dict(manifest.settings)) == ("maintain_manifest", {})
    off = policy(
        text + rule("remove_orphans = false") + rule("window = '01:00-02:00'", tables="x.*", name="b")
    )
    assert [each.kind for each in evaluate_root(off, NOW)] == ["maintain_manifest"]
    assert [each.matches for each in explain_root(off, NOW).matches] == [True, True, False]


def test_exceeded_limit_is_named_with_planned_and_allowed_values() -> None:
    limits = Limits(max_tables=5, max_bytes_deleted=1000)
    assert limits.why_exceeded(tables=5, bytes_deleted=1000, rows_deleted=10**9) is None
    assert limits.why_exceeded(tables=6, bytes_deleted=0, rows_deleted=0) == (
        "the run would exceed limits.max_tables: 6 planned, 5 allowed"
    )
    assert limits.why_exceeded(tables=0, bytes_deleted=1001, rows_deleted=0) == (
        "the run would exceed limits.max_bytes_deleted: 1,001 planned, 1,000 allowed"
    )


FACTS = st.sampled_from(
    [
        LIVE,
        DROPPED,
        replace(LIVE, table=("events_1",), fragments=99, unindexed_rows=500, properties=(("a", "b"),)),
        replace(LIVE, table=("prod", "x", "events_2"), versions=None, rows=None, columns=()),
        TableFacts(("a", "b"), TableState.DECLARED),
        TableFacts(("a", "b"), error="broken"),
    ]
)


@settings(max_examples=100)
@given(DOCUMENTS, FACTS)
def test_overlapping_rules_are_decided_deterministically(document: Document, facts: TableFacts) -> None:
    text = to_toml(document)
    found = explain(policy(text), facts, NOW)
    assert found == explain(policy(text), facts, NOW)
    assert evaluate(policy(text), facts, NOW) == found.actions
    kinds = [KINDS.index(each.kind) for each in found.actions]
    assert kinds == sorted(set(kinds))
    matching = [each.rule for each in found.matches if each.matches]
    properties = dict(facts.properties)
    assert matching == [each.name for each in policy(text).rules if each.applies(facts.table, properties)]
    parsed = {each.name: each for each in policy(text).rules}
    for each in found.decisions:
        having = [name for name in matching if each.kind in parsed[name].jobs]
        assert each.rule == (having[-1] if having else None)
        assert list(each.overrides) == having[-2::-1]
        json.dumps(dict(each.action.settings) if each.action else {})


@settings(max_examples=60)
@given(DOCUMENTS, FACTS)
def test_rules_that_do_not_match_have_no_effect(document: Document, facts: TableFacts) -> None:
    whole = policy(to_toml(document))
    found = explain(whole, facts, NOW)
    matching = {each.rule for each in found.matches if each.matches}
    fewer = replace(whole, rules=tuple(each for each in whole.rules if each.name in matching))
    assert explain(fewer, facts, NOW).decisions == found.decisions
