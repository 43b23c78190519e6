"""Which versions of a table go. Pure: what Lance removes with them is in cleanup."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from relance.errors import InvalidInputError, InvalidTableStateError

DEFAULT_AGE = timedelta(days=14)
"""Versions younger than this stay when nothing else is asked for, as in Lance itself."""


@dataclass(frozen=True, slots=True)
class Version:
    """A version, and when it was committed."""

    number: int
    at: datetime


@dataclass(frozen=True, slots=True)
class CleanupPolicy:
    """What may be removed. A version goes only if every rule that is set lets it go.

    The latest version and tagged ones never do.
    """

    before_timestamp: datetime | None = None
    before_version: int | None = None
    retain_versions: int | None = None
    delete_unverified: bool = False
    """Also remove files that no version names and that are younger than seven days.

    They may belong to a write that is under way: only when nobody writes.
    """
    error_if_tagged_old_versions: bool = True
    rate_limit: int | None = None
    """Deletes per second at the most."""

    def __post_init__(self) -> None:
        for what, value in (
            ("before_version", self.before_version),
            ("retain_versions", self.retain_versions),
            ("rate_limit", self.rate_limit),
        ):
            if value is not None and value < 1:
                raise InvalidInputError(f"{what} must be at least 1, got {value}")
        if self.before_timestamp is not None and self.before_timestamp.tzinfo is None:
            raise InvalidInputError(
                f"before_timestamp {self.before_timestamp} has no time zone: "
                "use datetime.now(UTC) or .astimezone()"
            )

    @property
    def has_rule(self) -> bool:
        rules = (self.before_timestamp, self.before_version, self.retain_versions)
        return any(each is not None for each in rules)

    def choose(self, versions: Sequence[Version], tags: Mapping[str, int]) -> list[int]:
        """Return the versions that go, oldest first.

        Raises:
            InvalidTableStateError: a tagged one is among them, and that is not to be passed over.
        """
        numbers = sorted(each.number for each in versions)
        kept = set(numbers[-max(self.retain_versions or 1, 1) :])
        old = [each.number for each in versions if each.number not in kept and self._lets_go(each)]
        tagged = {tag: version for tag, version in sorted(tags.items()) if version in old}
        if tagged and self.error_if_tagged_old_versions:
            named = ", ".join(f"'{tag}' (version {version})" for tag, version in tagged.items())
            raise InvalidTableStateError(
                f"some of the versions to remove are tagged: {named}; delete the tags, keep more "
                "versions, or pass error_if_tagged_old_versions=False to keep the tagged ones"
            )
        return sorted(set(old) - set(tagged.values()))

    def _lets_go(self, version: Version) -> bool:
        if self.before_timestamp is not None and version.at >= self.before_timestamp:
            return False
        return self.before_version is None or version.number < self.before_version


@dataclass(frozen=True, slots=True)
class CleanupPolicyBuilder:
    """Builds a policy rule by rule; each call returns a new builder."""

    policy: CleanupPolicy = CleanupPolicy()

    def before_timestamp(self, moment: datetime) -> CleanupPolicyBuilder:
        return CleanupPolicyBuilder(replace(self.policy, before_timestamp=moment))

    def before_version(self, version: int) -> CleanupPolicyBuilder:
        return CleanupPolicyBuilder(replace(self.policy, before_version=version))

    def retain_n_versions(self, count: int) -> CleanupPolicyBuilder:
        return CleanupPolicyBuilder(replace(self.policy, retain_versions=count))

    def delete_unverified(self, on: bool = True) -> CleanupPolicyBuilder:
        return CleanupPolicyBuilder(replace(self.policy, delete_unverified=on))

    def error_if_tagged_old_versions(self, on: bool = True) -> CleanupPolicyBuilder:
        return CleanupPolicyBuilder(replace(self.policy, error_if_tagged_old_versions=on))

    def rate_limit(self, deletes_per_second: int) -> CleanupPolicyBuilder:
        return CleanupPolicyBuilder(replace(self.policy, rate_limit=deletes_per_second))

    def build(self) -> CleanupPolicy:
        return self.policy
