"""Which versions of a table to remove. The removal itself is in cleanup."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

import lance

from relance.clock import require_moment
from relance.errors import (
    InvalidInputError,
    InvalidTableStateError,
    for_python,
)
from relance.lance_io import lance_errors

DEFAULT_AGE = timedelta(days=14)
"""Without any rule, versions younger than this are kept, as in Lance itself."""


@dataclass(frozen=True, slots=True)
class Version:
    """A version and its commit time."""

    number: int
    at: datetime


@dataclass(frozen=True, slots=True)
class CleanupPolicy:
    """Which versions may be removed: those that every rule allows.

    The latest version and tagged versions are never removed.
    """

    before_timestamp: datetime | None = None
    before_version: int | None = None
    retain_versions: int | None = None
    delete_unverified: bool = False
    """Also remove unreferenced files that are less than seven days old.

    They may belong to a write in progress: use this only while there are no writers.
    """
    error_if_tagged_old_versions: bool = True
    rate_limit: int | None = None
    """Maximum number of deletes per second."""

    def __post_init__(self) -> None:
        for what, value in (
            ("before_version", self.before_version),
            ("retain_versions", self.retain_versions),
            ("rate_limit", self.rate_limit),
        ):
            if value is not None and value < 1:
                raise InvalidInputError(f"{what} must be at least 1, got {value}")
        if self.before_timestamp is not None:
            require_moment(self.before_timestamp, what="before_timestamp")

    @property
    def has_rule(self) -> bool:
        rules = (self.before_timestamp, self.before_version, self.retain_versions)
        return any(each is not None for each in rules)

    def choose(self, versions: Sequence[Version], tags: Mapping[str, int]) -> list[int]:
        """Return the versions to remove, oldest first.

        Raises:
            InvalidTableStateError: one of them is tagged and `error_if_tagged_old_versions` is set.
        """
        numbers = sorted(each.number for each in versions)
        kept = set(numbers[-max(self.retain_versions or 1, 1) :])
        old = [each.number for each in versions if each.number not in kept and self._lets_go(each)]
        tagged = {tag: version for tag, version in sorted(tags.items()) if version in old}
        if tagged and self.error_if_tagged_old_versions:
            named = ", ".join(f"'{tag}' (version {version})" for tag, version in tagged.items())
            raise for_python(
                InvalidTableStateError(
                    f"some of the versions to remove are tagged: {named}",
                    hint="delete the tags, keep more versions, or pass --skip-tagged to keep the tagged ones",
                ),
                "; delete the tags, keep more versions, or pass "
                "error_if_tagged_old_versions=False to keep the tagged ones",
            )
        return sorted(set(old) - set(tagged.values()))

    def _lets_go(self, version: Version) -> bool:
        if self.before_timestamp is not None and version.at >= self.before_timestamp:
            return False
        return self.before_version is None or version.number < self.before_version


@dataclass(frozen=True, slots=True)
class CleanupPolicyBuilder:
    """Builds a policy rule by rule; every call returns a new builder."""

    policy: CleanupPolicy = CleanupPolicy()

    def before_timestamp(self, moment: datetime) -> CleanupPolicyBuilder:
        return CleanupPolicyBuilder(replace(self.policy, before_timestamp=moment))

    def before_version(self, version: int) -> CleanupPolicyBuilder:
        return CleanupPolicyBuilder(replace(self.policy, before_version=version))

    def retain_n_versions(self, dataset: lance.LanceDataset, n: int) -> CleanupPolicyBuilder:
        """Keep the latest `n` versions that the dataset has now, and those that are still to come.

        `CleanupPolicy(retain_versions=n)` counts when the cleanup runs instead, on any table.
        """
        if n < 1:
            raise InvalidInputError(f"retain_n_versions must keep at least 1 version, got {n}")
        with lance_errors("the versions of the dataset", {}):
            numbers = sorted(int(each["version"]) for each in dataset.versions())
        return self.before_version(numbers[-min(n, len(numbers))])

    def delete_unverified(self, on: bool) -> CleanupPolicyBuilder:
        return CleanupPolicyBuilder(replace(self.policy, delete_unverified=on))

    def error_if_tagged_old_versions(self, on: bool) -> CleanupPolicyBuilder:
        return CleanupPolicyBuilder(replace(self.policy, error_if_tagged_old_versions=on))

    def rate_limit(self, deletes_per_second: int) -> CleanupPolicyBuilder:
        return CleanupPolicyBuilder(replace(self.policy, rate_limit=deletes_per_second))

    def build(self) -> CleanupPolicy:
        return self.policy
