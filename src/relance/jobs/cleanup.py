"""Clean up: remove old versions, with the files that only they need."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Self

from pydantic import PrivateAttr, model_validator

from relance.errors import InvalidInputError
from relance.jobs.base import Effect, Estimate, Expected, Job, Name, TablePlan, Verdict, setting
from relance.jobs.settings import Amount, Count, Duration, Flag, Moment, SettingError, moment_text
from relance.units import plural

if TYPE_CHECKING:
    from relance.jobs.base import Context
    from relance.jobs.facts import TableFacts

FLOOR = timedelta(hours=24)
"""What is younger stays unless it is said by name that it may go."""

TOO_YOUNG = "is less than 24 hours, which requires allow_young = true"

_DEFAULT_AGE = timedelta(days=14)
"""Without any rule, versions younger than this are kept, as in Lance itself."""

_OLDER = "choose older versions, or pass --allow-young if no job uses them"


class CleanUp(Job):
    """Remove old versions; tagged versions are kept."""

    kind, label, command, order = "clean_up", "clean up", "cleanup", 60
    title = "clean up versions"
    irreversible = frees_bytes = True
    one_of = (("older_than",), ("retain_versions",))
    concurrency = 4

    older_than: Duration | None = setting(None)
    """Remove only versions older than this."""
    retain_versions: Count | None = setting(None)
    """Keep at least this many of the latest versions."""
    before_version: Count | None = setting(None, only="direct")
    """Remove only versions before this one."""
    before: Moment | None = setting(None, only="plan")
    """Remove only versions older than this moment."""
    as_of: Count | None = setting(None, only="plan")
    """Count versions as if this one were the latest: newer ones stay, and no older one goes for them."""
    skip_tagged: Flag = setting(False, only="direct")
    """Skip tagged versions instead of failing."""
    delete_unverified: Flag = setting(False, only="direct")
    """Also remove unreferenced files less than seven days old; only safe while nothing is written."""
    allow_young: Flag = setting(False)
    """Allow removing versions younger than 24 hours."""
    ignore_clones: Flag = setting(False)
    """Skip the search for shallow clones; only for a lake without any."""
    rate_limit: Count | None = setting(None)
    """Maximum files deleted per second per process."""

    split_files: Amount = setting(20_000, only="plan")
    """From about this many files on they are deleted in tasks; below, by Lance in one call."""

    _run: str = PrivateAttr(default="")
    """Tells one run from another: shallow clones are looked for once in each."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.allow_young:
            return self
        if self.older_than is not None and self.older_than < FLOOR:
            raise SettingError(TOO_YOUNG, key="older_than")
        if self.delete_unverified:
            told = "removes files of jobs in progress: set allow_young if there are none"
            raise SettingError(told, key="delete_unverified")
        return self

    def check_rule(self) -> None:
        if self.older_than is None and self.retain_versions is None:
            raise SettingError("needs older_than, retain_versions or both")

    def due(self, facts: TableFacts, now: datetime) -> Verdict:
        before = self._cutoff(now)
        keep = self.retain_versions or 1
        versions, oldest = facts.versions, facts.oldest_version_at
        if versions is not None and versions <= keep:
            return Verdict(False, f"{plural(versions, 'version')}, {keep} to keep")
        if before is not None and oldest is not None and oldest >= before:
            since = f"versions since {moment_text(before)} are kept"
            return Verdict(False, f"the oldest version is from {moment_text(oldest)}; {since}")
        figures = ["number of versions unknown" if versions is None else plural(versions, "version")]
        figures += [f"{keep:,} to keep"] if self.retain_versions else []
        figures += [f"oldest from {moment_text(oldest)}"] if oldest else []
        figures += [f"those before {moment_text(before)} can be removed"] if before else []
        return Verdict(True, ", ".join(figures))

    def pin(self, now: datetime, facts: TableFacts | None = None) -> Self:
        pinned: dict[str, Any] = {"before": self._cutoff(now), "older_than": None}
        if facts is not None:
            # Tagged versions stay: that is no error of a night's work. Versions that come after the plan,
            # also by other actions of the run, make no older one go in their place.
            pinned |= {"skip_tagged": True, "as_of": facts.version}
        return self.model_copy(update=pinned)

    def _cutoff(self, now: datetime) -> datetime | None:
        """Return before which moment a version may go; None is at any.

        Raises:
            InvalidInputError: the moment that was given is less than a day ago, which was not allowed.
        """
        before = self.before if self.older_than is None else now - self.older_than
        if before is None and self.before_version is None and self.retain_versions is None:
            before = now - _DEFAULT_AGE
        if self.allow_young:
            return before
        if before is not None and before > now - FLOOR:
            raise InvalidInputError(
                "the policy removes versions younger than 24 hours, which jobs may still use: "
                "choose an earlier time or set allow_young",
                hint=_OLDER,
            )
        return now - FLOOR if before is None else before

    def for_run(self, run: str) -> Self:
        job = self.model_copy()
        job._run = run
        return job

    def plan(self, context: Context, table: Name, expect: Expected | None = None) -> TablePlan | None:
        from relance.jobs.plans.old_versions import plan_cleanup

        is_pinned = self.older_than is None and (self.before is not None or self.allow_young)
        job = self if is_pinned and self._has_rule else self.pin(self.now(context))
        return plan_cleanup(job, self._run, context, table, expect)

    @property
    def _has_rule(self) -> bool:
        return any(each is not None for each in (self.before, self.before_version, self.retain_versions))

    def is_nothing(self, found: Estimate | Effect) -> bool:
        return not found.files and not (isinstance(found, Estimate) and found.versions)
