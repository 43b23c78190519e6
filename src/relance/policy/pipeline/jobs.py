"""From an action to the maintenance job that does it. Protection and TTLs are jobs too, in catalog_jobs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from datetime import datetime
from typing import Any

from relance.errors import InvalidInputError
from relance.jobs import (
    CleanUp,
    Compact,
    DeleteRows,
    MaintainManifest,
    PurgeDropped,
    RefreshIndexes,
    RemoveOrphans,
)
from relance.jobs.base import Job
from relance.jobs.catalog_settings import SetDropTtl, SetProtection
from relance.operations.cleaning.policy import CleanupPolicy
from relance.policy.actions import Action, AnyKind, Kind


@dataclass(frozen=True, slots=True)
class Around:
    """What holds beside the settings of an action."""

    run: str
    """The same for actions that share what they found out, and for a run that is resumed."""
    version: int | None = None
    """The latest of the table when the action was planned."""


def job_of(action: Action, around: Around) -> Job:
    """Return the job for the table of an action.

    Raises:
        InvalidInputError: the action has settings that its kind does not know.
    """
    try:
        return _JOBS[action.kind](dict(action.settings), around)
    except (TypeError, ValueError, KeyError) as cause:
        table = "$".join(action.table) or "the root"
        raise InvalidInputError(f"invalid settings for {action.kind} of {table}: {cause}") from cause


def _protect(settings: dict[str, Any], around: Around) -> Job:
    return SetProtection(**_known(settings, "on"))


def _drop_ttl(settings: dict[str, Any], around: Around) -> Job:
    return SetDropTtl(**_known(settings, "ttl"))


def _delete_rows(settings: dict[str, Any], around: Around) -> Job:
    return DeleteRows(**_known(settings, "where"))


def _compact(settings: dict[str, Any], around: Around) -> Job:
    return Compact(**_known(settings, *_names(Compact)))


def _refresh_indexes(settings: dict[str, Any], around: Around) -> Job:
    return RefreshIndexes(**_known(settings, *_names(RefreshIndexes)))


def _clean_up(settings: dict[str, Any], around: Around) -> Job:
    known = _known(settings, "before", "retain_versions", "rate_limit", "allow_young", "ignore_clones")
    before = known.get("before")
    policy = CleanupPolicy(
        before_timestamp=None if before is None else datetime.fromisoformat(before),
        retain_versions=known.get("retain_versions"),
        rate_limit=known.get("rate_limit"),
        # Tagged versions stay: that is no error of a night's work.
        error_if_tagged_old_versions=False,
    )
    # Versions that came since the plan, also by this run's own actions, make no older one go in their place.
    return CleanUp(
        policy,
        allow_young=bool(known.get("allow_young", False)),
        look_for_clones=not known.get("ignore_clones", False),
        as_of=around.version,
        # The plan has seen to the minimum age, by the clock of the driver.
        is_pinned=True,
        run=around.run,
    )


def _purge(settings: dict[str, Any], around: Around) -> Job:
    return PurgeDropped(**_known(settings, "deletion_id", "rate_limit"))


def _remove_orphans(settings: dict[str, Any], around: Around) -> Job:
    known = _known(settings, "before", "allow_young", "with_versions", "rate_limit")
    if (before := known.pop("before", None)) is not None:
        known["before"] = datetime.fromisoformat(before)
    return RemoveOrphans(**known)


def _maintain_manifest(settings: dict[str, Any], around: Around) -> Job:
    return MaintainManifest(**_known(settings))


def _names(job: type) -> list[str]:
    return [each.name for each in fields(job) if each.init]


def _known(settings: dict[str, Any], *names: str) -> dict[str, Any]:
    if unknown := sorted(set(settings) - set(names)):
        raise InvalidInputError(f"unknown settings: {', '.join(unknown)}")
    return settings


_JOBS: dict[AnyKind, Callable[[dict[str, Any], Around], Job]] = {
    Kind.PROTECT: _protect,
    Kind.DROP_TTL: _drop_ttl,
    Kind.DELETE_ROWS: _delete_rows,
    Kind.COMPACT: _compact,
    Kind.REFRESH_INDEXES: _refresh_indexes,
    Kind.CLEAN_UP: _clean_up,
    Kind.PURGE: _purge,
    Kind.REMOVE_ORPHANS: _remove_orphans,
    Kind.MAINTAIN_MANIFEST: _maintain_manifest,
}
