"""Rows of the history: what an action or a run looks like there, and back. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa

from relance.identifiers import DELIMITER
from relance.jobs.base import Effect, Estimate, Figures
from relance.policy.actions import Action, Unknown, known_or_text
from relance.policy.codec import decode, dumps, encode
from relance.policy.records import (
    ActionRecord,
    MoreDropped,
    Outcome,
    RunRecord,
    RunState,
    TableChange,
    Totals,
)

FORMAT = "1"

_FIGURES = ("rows", "deleted_rows", "fragments", "files", "bytes", "versions")
_COUNTS = ("rows", "files", "bytes")

SCHEMA = pa.schema(
    [
        ("run", pa.string()),
        ("number", pa.int32()),  # of an action in its run; null in the rows of a run
        ("at", pa.timestamp("us", "UTC")),
        ("actor", pa.string()),
        ("policy", pa.string()),
        ("policy_hash", pa.string()),
        ("engine", pa.string()),
        ("state", pa.string()),
        ("table", pa.string()),
        ("kind", pa.string()),
        ("rule", pa.string()),
        ("why", pa.string()),
        ("settings", pa.string()),
        ("outcome", pa.string()),
        *((f"planned_{name}", pa.int64()) for name in (*_COUNTS, "versions")),
        ("version", pa.int64()),
        *((name, pa.int64()) for name in _COUNTS),
        *((f"before_{name}", pa.int64()) for name in _FIGURES),
        *((f"after_{name}", pa.int64()) for name in _FIGURES),
        ("note", pa.string()),
        ("error", pa.string()),
        ("started_at", pa.timestamp("us", "UTC")),
        ("ended_at", pa.timestamp("us", "UTC")),
        ("duration_us", pa.int64()),
        ("detail", pa.large_string()),  # of a run that ended: totals and tables, as JSON
    ],
    metadata={"relance.history": FORMAT},
)


@dataclass(frozen=True, slots=True)
class RunHead:
    """What all rows of a run say."""

    run: str
    actor: str
    policy: str
    policy_hash: str
    engine: str


@dataclass(frozen=True, slots=True)
class HistoryEntry:
    """One action of the past, with its run."""

    head: RunHead
    number: int
    at: datetime
    record: ActionRecord


@dataclass(frozen=True, slots=True)
class RunEntry:
    """One run of the past."""

    head: RunHead
    state: RunState | Unknown
    started_at: datetime
    ended_at: datetime | None
    message: str = ""


def head_row(head: RunHead, now: datetime) -> dict[str, Any]:
    """Return what all rows of a run say."""
    return {
        "run": head.run,
        "at": now,
        "actor": head.actor,
        "policy": head.policy,
        "policy_hash": head.policy_hash,
        "engine": head.engine,
    }


def head_of(row: Mapping[str, Any]) -> RunHead:
    """Return the same from a row."""
    return RunHead(row["run"], row["actor"], row["policy"], row["policy_hash"], row["engine"])


def action_row(head: RunHead, number: int, record: ActionRecord, now: datetime) -> dict[str, Any]:
    """Return the row of an action."""
    action, planned, effect = record.action, record.planned, record.effect
    row = head_row(head, now) | {
        "number": number,
        "table": DELIMITER.join(action.table),
        "kind": action.kind,
        "rule": action.rule,
        "why": action.why,
        "settings": dumps(dict(action.settings)),
        "outcome": record.outcome.value,
        "error": record.error,
        "started_at": record.started_at,
        "duration_us": record.duration // timedelta(microseconds=1),
        "detail": None if planned is None else planned.note or None,
    }
    if planned is not None:
        row |= {f"planned_{name}": getattr(planned, name) for name in (*_COUNTS, "versions")}
    if effect is not None:
        row |= {name: getattr(effect, name) for name in (*_COUNTS, "version", "note")}
        row |= {f"before_{name}": getattr(effect.before, name) for name in _FIGURES}
        row |= {f"after_{name}": getattr(effect.after, name) for name in _FIGURES}
    return row


def record_of(row: Mapping[str, Any]) -> ActionRecord:
    """Return the action of a row."""
    action = Action(
        kind=row["kind"],
        table=tuple(row["table"].split(DELIMITER)) if row["table"] else (),
        rule=row["rule"],
        why=row["why"],
        settings=json.loads(row["settings"]),
    )
    planned = None
    if row["planned_rows"] is not None:
        counts = {name: row[f"planned_{name}"] for name in (*_COUNTS, "versions")}
        planned = Estimate(**counts, note=row["detail"] or "")
    effect = None
    if row["rows"] is not None:
        effect = Effect(
            **{name: row[name] for name in (*_COUNTS, "version")},
            before=Figures(**{name: row[f"before_{name}"] for name in _FIGURES}),
            after=Figures(**{name: row[f"after_{name}"] for name in _FIGURES}),
            note=row["note"] or "",
        )
    return ActionRecord(
        action,
        known_or_text(Outcome, row["outcome"]),
        planned,
        effect,
        row["error"],
        None if row["started_at"] is None else row["started_at"].astimezone(UTC),
        timedelta(microseconds=row["duration_us"]),
    )


def run_entry(row: Mapping[str, Any]) -> RunEntry:
    """Return the run of a row."""
    return RunEntry(
        head_of(row),
        known_or_text(RunState, row["state"]),
        row["started_at"].astimezone(UTC),
        None if row["ended_at"] is None else row["ended_at"].astimezone(UTC),
        row["error"] or "",
    )


def run_row(head: RunHead, record: RunRecord, now: datetime) -> dict[str, Any]:
    """Return the row of a run that began, or ended."""
    return head_row(head, now) | {
        "state": record.state.value,
        "started_at": record.started_at,
        "ended_at": record.ended_at,
        "error": record.message or None,
        "detail": None if record.state is RunState.RUNNING else _detail(record),
    }


def past_run(row: Mapping[str, Any], actions: Mapping[int, ActionRecord], *, root: str) -> RunRecord:
    """Return a run as its report shows it, from its last row and its actions."""
    entry, detail = run_entry(row), json.loads(row["detail"] or "{}")
    return RunRecord(
        run=entry.head.run,
        root=root,
        policy=entry.head.policy,
        actor=entry.head.actor,
        state=entry.state,
        engine=entry.head.engine,
        started_at=entry.started_at,
        ended_at=entry.ended_at,
        before=decode(Totals, detail.get("before", {}), "before"),
        after=decode(Totals, detail["after"], "after") if detail.get("after") is not None else None,
        actions=tuple(actions[number] for number in sorted(actions)),
        changes=tuple(decode(TableChange, each, "changes") for each in detail.get("changes", ())),
        message=entry.message,
        more_dropped=decode(MoreDropped, detail.get("more_dropped", {}), "more_dropped"),
    )


def _detail(record: RunRecord) -> str:
    after = None if record.after is None else encode(record.after)
    return dumps(
        {
            "before": encode(record.before),
            "after": after,
            "changes": encode(record.changes),
            "more_dropped": encode(record.more_dropped),
        }
    )
