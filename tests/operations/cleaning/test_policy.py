"""Which versions a cleanup selects."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from relance import CleanupPolicy, CleanupPolicyBuilder
from relance.errors import InvalidInputError, InvalidTableStateError
from relance.operations.cleaning.policy import Version

START = datetime(2026, 1, 1, tzinfo=UTC)
FIVE = [Version(number, START + timedelta(days=number)) for number in range(1, 6)]
FAR = START + timedelta(days=100)


@pytest.mark.parametrize(
    ("policy", "gone"),
    [
        (CleanupPolicy(before_timestamp=START), []),
        (CleanupPolicy(before_timestamp=START + timedelta(days=3)), [1, 2]),
        (CleanupPolicy(before_timestamp=FAR), [1, 2, 3, 4]),
        (CleanupPolicy(before_version=3), [1, 2]),
        (CleanupPolicy(before_version=99), [1, 2, 3, 4]),
        (CleanupPolicy(retain_versions=1), [1, 2, 3, 4]),
        (CleanupPolicy(retain_versions=4), [1]),
        (CleanupPolicy(retain_versions=9), []),
        (CleanupPolicy(before_version=4, retain_versions=4), [1]),
        (CleanupPolicy(before_version=2, retain_versions=1), [1]),
        (CleanupPolicy(before_timestamp=FAR, before_version=3, retain_versions=4), [1]),
    ],
)
def test_version_is_removed_only_when_every_rule_allows_it(policy: CleanupPolicy, gone: list[int]) -> None:
    assert policy.choose(FIVE, {}) == gone


def test_latest_version_is_always_kept() -> None:
    assert CleanupPolicy(before_timestamp=FAR).choose(FIVE[:1], {}) == []
    assert CleanupPolicy(before_timestamp=FAR).choose([], {}) == []


def test_tag_in_the_window_raises_an_error_that_names_it() -> None:
    with pytest.raises(InvalidTableStateError, match=r"'keep' \(version 2\)"):
        CleanupPolicy(before_version=4).choose(FIVE, {"keep": 2, "late": 5})


def test_tagged_versions_are_kept_when_tags_are_no_error() -> None:
    policy = CleanupPolicy(before_version=5, error_if_tagged_old_versions=False)
    assert policy.choose(FIVE, {"keep": 2, "again": 2, "gone": 77}) == [1, 3, 4]


def test_policy_builder_sets_every_rule() -> None:
    built = (
        CleanupPolicyBuilder()
        .before_timestamp(FAR)
        .before_version(7)
        .delete_unverified(True)
        .error_if_tagged_old_versions(False)
        .rate_limit(10)
        .build()
    )
    assert built == CleanupPolicy(FAR, 7, None, True, False, 10)


@pytest.mark.parametrize(
    "rules",
    [
        {"before_version": 0},
        {"retain_versions": 0},
        {"retain_versions": -1},
        {"rate_limit": 0},
        {"before_timestamp": datetime(2026, 1, 1)},  # noqa: DTZ001  # that is the mistake
    ],
)
def test_invalid_policy_rules_are_refused(rules: dict[str, object]) -> None:
    with pytest.raises(InvalidInputError):
        CleanupPolicy(**rules)  # type: ignore[arg-type]
