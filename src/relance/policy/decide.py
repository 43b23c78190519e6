"""What one part of a policy makes of the facts of a table: settings for a job, or why none. Pure.

Settings by kind; those in brackets are left out when they are not set:

    protect            on
    drop_ttl           ttl, as the policy writes it
    delete_rows        where, with the time of the plan written into it
    compact            target_rows, deletion_threshold, defer_index_remap, [target_bytes], [partial_progress],
                       [batch_size]: fields of relance.jobs.Compact
    refresh_indexes    max_lag_rows, max_lag_ratio, segment_rows: fields of RefreshIndexes
    clean_up           [before] (ISO, UTC), [retain_versions], [rate_limit], [allow_young], [ignore_clones]
    purge              deletion_id, [rate_limit]
    remove_orphans     before (ISO, UTC), with_versions, [allow_young], [rate_limit]
    maintain_manifest  none
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import singledispatch
from math import ceil

from relance.amounts import plural
from relance.catalog.states import MARGIN, Timing
from relance.config import parse_duration
from relance.errors import InvalidInputError
from relance.jobs.plans.fragments import rows_per_fragment
from relance.policy.actions import Setting
from relance.policy.facts import TableFacts, TableState
from relance.policy.model import (
    FLOOR,
    Compaction,
    DropTtl,
    IndexRefresh,
    ManifestUpkeep,
    OrphanRemoval,
    Part,
    Protection,
    Purge,
    RowRetention,
    VersionRetention,
)
from relance.policy.predicates import pin_time

CLOCK_SKEW = Timing().clock_skew
"""That of a catalog that says nothing else."""
_YOUNG = "older_than is less than 24 hours, which requires allow_young"


@dataclass(frozen=True, slots=True)
class Asked:
    """When a plan is made, and what holds for it beside the part itself."""

    now: datetime
    clock_skew: timedelta
    """How far `now` may be ahead of the store's clock, which decides when a table may be purged."""
    rate_limit: int | None = None
    """That of the rules."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What follows from a part."""

    why: str
    settings: Mapping[str, Setting] | None = None
    """None is that nothing is to be done."""
    refused: bool = False
    """It is asked for, and cannot be done."""


def decide(part: Part, facts: TableFacts, asked: Asked) -> Verdict:
    """Return what a part makes of a table; in the end the job itself sees whether there is work."""
    if isinstance(part, Purge):
        return _purge(part, facts, asked)
    if facts.state is TableState.DROPPED:
        return Verdict("the table is dropped")
    if isinstance(part, Protection):
        return _protect(part, facts)
    if facts.state is TableState.DECLARED:
        return Verdict("the table is only declared and has no data")
    return _of_live(part, facts, asked)


@singledispatch
def _of_live(part: Part, facts: TableFacts, asked: Asked) -> Verdict:
    raise TypeError(f"{type(part).__name__} does not apply to a table")


def _protect(part: Protection, facts: TableFacts) -> Verdict:
    if facts.protected == part.on:
        return Verdict("already protected" if part.on else "not protected")
    return Verdict("not protected yet" if part.on else "protected, but should not be", {"on": part.on})


@_of_live.register
def _drop_ttl(part: DropTtl, facts: TableFacts, asked: Asked) -> Verdict:
    if facts.drop_ttl is None:
        return Verdict("the table sets no drop TTL", {"ttl": part.text})
    try:
        if parse_duration(facts.drop_ttl, what="drop_ttl") == part.ttl:
            return Verdict(f"already {facts.drop_ttl}")
    except InvalidInputError:
        return Verdict(f"{facts.drop_ttl!r} is not a duration", {"ttl": part.text})
    return Verdict(f"is {facts.drop_ttl}, should be {part.text}", {"ttl": part.text})


@_of_live.register
def _delete_rows(part: RowRetention, facts: TableFacts, asked: Asked) -> Verdict:
    if facts.rows == 0:
        return Verdict("the table has no rows")
    if part.time_column is not None:
        holds = dict(facts.columns).get(part.time_column)
        if holds is None:
            return Verdict(f"column {part.time_column!r} does not exist", refused=True)
        if not holds.startswith(("timestamp", "date32", "date64")):
            why = f"column {part.time_column!r} is {holds}, not a timestamp or date"
            return Verdict(why, refused=True)
    try:
        where = pin_time(part.delete_where, asked.now)
    except InvalidInputError as error:
        return Verdict(error.detail, refused=True)
    rows = "" if facts.rows is None else f" (of {facts.rows:,})"
    return Verdict(f"rows matching {part.delete_where}{rows}", {"where": where})


@_of_live.register
def _compact(part: Compaction, facts: TableFacts, asked: Asked) -> Verdict:
    fragments, ratio = facts.fragments, facts.fragment_deleted_ratio
    deleted = f"{facts.deleted_ratio:.1%} of rows deleted"
    settings = _given(
        target_rows=part.target_rows,
        target_bytes=part.target_bytes,
        deletion_threshold=part.deletion_threshold,
        partial_progress=part.partial_progress,
        defer_index_remap=part.defer_index_remap,
        batch_size=part.batch_size,
    )
    if fragments is None:
        return Verdict("number of fragments unknown", settings)
    if ratio is not None and ratio > part.deletion_threshold:
        return Verdict(
            f"a fragment with {ratio:.1%} of rows deleted, more than {part.deletion_threshold:.1%}", settings
        )
    if fragments < part.min_fragments:
        return Verdict(f"{plural(fragments, 'fragment')}, fewer than {part.min_fragments}, and {deleted}")
    enough = _fewest(part, facts)
    if enough is not None and fragments <= enough:
        return Verdict(f"{plural(fragments, 'fragment')}, no more than its rows need, and {deleted}")
    needed = "" if enough is None else f" where {enough:,} would do"
    return Verdict(f"{plural(fragments, 'fragment')}{needed}, and {deleted}", settings)


def _fewest(part: Compaction, facts: TableFacts) -> int | None:
    """Return how many fragments the rows need."""
    if facts.rows is None:
        return None
    rows = facts.rows + (facts.deleted_rows or 0)
    size = facts.bytes or 0
    return ceil(rows / rows_per_fragment(part.target_rows, part.target_bytes, rows=rows, size=size))


@_of_live.register
def _refresh(part: IndexRefresh, facts: TableFacts, asked: Asked) -> Verdict:
    if facts.unindexed_rows is None:
        return Verdict("the table has no index")
    limit = max(part.max_lag_rows, part.max_lag_ratio * (facts.rows or 0))
    lag = f"{plural(facts.unindexed_rows, 'unindexed row')}, {limit:,.0f} allowed"
    if facts.unindexed_rows <= limit:
        return Verdict(lag if facts.unindexed_rows else "all rows are indexed")
    return Verdict(
        lag,
        _given(
            max_lag_rows=part.max_lag_rows, max_lag_ratio=part.max_lag_ratio, segment_rows=part.segment_rows
        ),
    )


@_of_live.register
def _clean_up(part: VersionRetention, facts: TableFacts, asked: Asked) -> Verdict:
    if part.older_than is not None and part.older_than < FLOOR and not part.allow_young:
        return Verdict(_YOUNG, refused=True)
    before = _cutoff(part, asked.now)
    keep = part.retain_versions or 1
    versions, oldest = facts.versions, facts.oldest_version_at
    if versions is not None and versions <= keep:
        return Verdict(f"{plural(versions, 'version')}, {keep} to keep")
    if before is not None and oldest is not None and oldest >= before:
        return Verdict(f"the oldest version is from {_iso(oldest)}; versions since {_iso(before)} are kept")
    figures = ["number of versions unknown" if versions is None else plural(versions, "version")]
    figures += [f"{keep:,} to keep"] if part.retain_versions else []
    figures += [f"oldest from {_iso(oldest)}"] if oldest else []
    figures += [f"those before {_iso(before)} can be removed"] if before else []
    return Verdict(
        ", ".join(figures),
        _given(
            before=_iso(before) if before else None,
            retain_versions=part.retain_versions,
            rate_limit=part.rate_limit or asked.rate_limit,
            allow_young=part.allow_young or None,
            ignore_clones=part.ignore_clones or None,
        ),
    )


def _cutoff(part: VersionRetention, now: datetime) -> datetime | None:
    """Return before which moment a version may go; None is at any."""
    if part.older_than is None:
        return None if part.allow_young else now - FLOOR
    return now - part.older_than


def _purge(part: Purge, facts: TableFacts, asked: Asked) -> Verdict:
    if facts.state is not TableState.DROPPED:
        return Verdict("the table is not dropped")
    if facts.protected:
        return Verdict("the dropped table is protected: unprotect it first", refused=True)
    if facts.deletion_id is None:
        return Verdict("the drop has no deletion id", refused=True)
    if facts.purge_after is None:
        return Verdict("the dropped table has no purge date")
    # By the store's clock the period ends so much later, and this clock may be ahead of it.
    if asked.now - asked.clock_skew - MARGIN < facts.purge_after:
        return Verdict(f"can be undropped until {_iso(facts.purge_after)}")
    dropped = f"dropped at {_iso(facts.dropped_at)}, " if facts.dropped_at else ""
    return Verdict(
        f"{dropped}expired at {_iso(facts.purge_after)}",
        _given(deletion_id=facts.deletion_id, rate_limit=part.rate_limit or asked.rate_limit),
    )


def decide_root(part: Part, asked: Asked) -> Verdict:
    """Return what a part makes of the lake as a whole."""
    if isinstance(part, ManifestUpkeep):
        return Verdict("the job decides what is due when it runs", {})
    if not isinstance(part, OrphanRemoval):
        raise TypeError(f"{type(part).__name__} does not apply to the whole lake")
    if part.older_than < FLOOR and not part.allow_young:
        return Verdict(_YOUNG, refused=True)
    before = asked.now - part.older_than
    return Verdict(
        f"unreferenced directories from before {_iso(before)}",
        _given(
            before=_iso(before),
            with_versions=part.with_versions,
            allow_young=part.allow_young or None,
            rate_limit=part.rate_limit or asked.rate_limit,
        ),
    )


def _given(**settings: Setting | None) -> dict[str, Setting]:
    return {name: value for name, value in settings.items() if value is not None}


def _iso(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat(timespec="seconds" if not moment.microsecond else "microseconds")
