"""What runs did, kept in the lake as a Lance table: one row for each action, and rows for each run.

A run has a row when it begins and one when it ends; the last counts. Actions are written many at a time,
so that a run makes few versions, and old versions go when a run ends.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import lance
import pyarrow as pa

from relance.catalog.context import Context
from relance.clock import require_moment
from relance.errors import InvalidTableStateError, RelanceError, StorageFullError, TableNotFoundError
from relance.identifiers import DELIMITER
from relance.jobs.base import CatalogRef, Effect, Estimate, Figures
from relance.jobs.runner import open_catalog
from relance.lance_io import lance_errors, open_at
from relance.locations import POLICY_DIRECTORY
from relance.namespace import DirectoryNamespace
from relance.policy.actions import Action, Unknown, known_or_text
from relance.policy.codec import decode, dumps, encode
from relance.policy.lease import holder_of
from relance.policy.records import (
    ActionRecord,
    MoreDropped,
    Outcome,
    RunRecord,
    RunState,
    TableChange,
    Totals,
)
from relance.storage.ballast import written_by_lance
from relance.storage.links import require_no_links

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


HISTORY_DIRECTORY = f"{POLICY_DIRECTORY}/history"

_WHAT = "the policy run history"
_MANY_FRAGMENTS = 32
_OLD_VERSIONS = timedelta(hours=1)
"""Long enough for whoever is reading one."""


class History:
    """The table, for reading and, while the lease is held, for writing."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._uri = context.location_of(HISTORY_DIRECTORY)
        self._options = context.lance_options()

    def add_actions(self, head: RunHead, records: Iterable[tuple[int, ActionRecord]]) -> None:
        """Append what became of some actions, with their numbers, in one commit."""
        now = self._context.clock.now()
        self._append([action_row(head, number, record, now) for number, record in records])

    def add_run(self, head: RunHead, record: RunRecord) -> None:
        """Append that a run began, or ended."""
        self._append([run_row(head, record, self._context.clock.now())])

    def actions(self, run: str) -> dict[int, ActionRecord]:
        """Return what is written of the actions of a run, by number."""
        rows = self._rows(f"run = '{_quoted(run)}' AND number IS NOT NULL")
        return {row["number"]: record_of(row) for row in rows}

    def runs(self, *, since: datetime | None = None, run: str | None = None) -> list[RunEntry]:
        """Return the runs, newest first."""
        where = ["number IS NULL"]
        where += [] if since is None else [f"started_at >= {_moment(since)}"]
        where += [] if run is None else [f"run = '{_quoted(run)}'"]
        columns = [each for each in SCHEMA.names if each != "detail"]
        rows = sorted(self._rows(" AND ".join(where), columns), key=lambda row: row["at"])
        newest = {row["run"]: row for row in rows}
        found = [run_entry(row) for row in newest.values()]
        return sorted(found, key=lambda each: (each.started_at, each.head.run), reverse=True)

    def entries(
        self,
        *,
        since: datetime | None = None,
        table: Sequence[str] | None = None,
        kind: str | None = None,
        failed: bool = False,
        run: str | None = None,
        limit: int | None = None,
    ) -> list[HistoryEntry]:
        """Return actions, newest first: those to which all that is given applies."""
        where = ["number IS NOT NULL"]
        where += [] if since is None else [f"at >= {_moment(since)}"]
        where += [] if table is None else [f"`table` = '{_quoted(DELIMITER.join(table))}'"]
        where += [] if kind is None else [f"kind = '{_quoted(kind)}'"]
        where += [f"outcome = '{Outcome.FAILED.value}'"] if failed else []
        where += [] if run is None else [f"run = '{_quoted(run)}'"]
        rows = {(row["run"], row["number"]): row for row in self._rows(" AND ".join(where))}
        found = [
            HistoryEntry(head_of(row), row["number"], row["at"].astimezone(UTC), record_of(row))
            for row in rows.values()
        ]
        found.sort(key=lambda each: (each.at, each.head.run, each.number), reverse=True)
        return found if limit is None else found[:limit]

    def running(self) -> str | None:
        """Return the run in progress, None if there is none."""
        holder = holder_of(self._context)
        return None if holder is None else holder.run

    def record(self, run: str, *, root: str) -> RunRecord | None:
        """Return a run as its report shows it; None when nothing is known of it."""
        rows = sorted(self._rows(f"run = '{_quoted(run)}' AND number IS NULL"), key=lambda row: row["at"])
        if not rows:
            return None
        return past_run(rows[-1], self.actions(run), root=root)

    def keep_small(self) -> None:
        """Merge small files and let old versions go; only while the lease is held."""
        dataset = self._open()
        if dataset is None:
            return
        require_no_links(self._context.storage, HISTORY_DIRECTORY)
        # On a full disk a later run does it.
        with suppress(StorageFullError), lance_errors(_WHAT, self._options):
            if len(dataset.get_fragments()) >= _MANY_FRAGMENTS:
                dataset.optimize.compact_files()
            dataset.cleanup_old_versions(older_than=_OLD_VERSIONS)

    def _append(self, rows: list[dict[str, Any]]) -> None:
        if not rows:
            return
        data = pa.Table.from_pylist([{**dict.fromkeys(SCHEMA.names), **row} for row in rows], SCHEMA)
        if self._open() is None:
            try:
                self._write(data, "create")
                return
            except RelanceError:
                if self._open() is None:
                    raise
                # A run that was refused needs no lease, and was faster.
        self._write(data, "append")

    def _write(self, data: pa.Table, mode: str) -> None:
        def write() -> None:
            with lance_errors(_WHAT, self._options):
                lance.write_dataset(data, self._uri, mode=mode, storage_options=dict(self._options) or None)

        written_by_lance(self._context.storage, write)

    def _rows(self, where: str, columns: list[str] | None = None) -> list[dict[str, Any]]:
        dataset = self._open()
        if dataset is None:
            return []
        with lance_errors(_WHAT, self._options):
            rows: list[dict[str, Any]] = dataset.to_table(columns=columns, filter=where).to_pylist()
        return rows

    def _open(self) -> lance.LanceDataset | None:
        try:
            dataset = open_at(self._uri, self._options, HISTORY_DIRECTORY)
        except TableNotFoundError:
            return None
        found = {_text(key): _text(value) for key, value in (dataset.schema.metadata or {}).items()}
        if found.get("relance.history") != FORMAT:
            raise InvalidTableStateError(
                f"{_WHAT} in '{HISTORY_DIRECTORY}' was written by a different release"
            )
        return dataset


def history_of(catalog: DirectoryNamespace | CatalogRef) -> History:
    """Return the history of a catalog's lake."""
    reference = catalog if isinstance(catalog, CatalogRef) else CatalogRef(catalog.properties)
    return History(open_catalog(reference))


def history(
    catalog: DirectoryNamespace | CatalogRef,
    *,
    since: datetime | None = None,
    table: Sequence[str] | None = None,
    kind: str | None = None,
    failed: bool = False,
    run: str | None = None,
    limit: int | None = None,
) -> list[HistoryEntry]:
    """Return what runs did to a lake, newest first: the actions to which all that is given applies."""
    return history_of(catalog).entries(
        since=since, table=table, kind=kind, failed=failed, run=run, limit=limit
    )


def runs(catalog: DirectoryNamespace | CatalogRef, *, since: datetime | None = None) -> list[RunEntry]:
    """Return the runs of policies over a lake, newest first; those whose process ended are interrupted."""
    kept = history_of(catalog)
    found = kept.runs(since=since)
    if all(each.state is not RunState.RUNNING for each in found):
        return found
    running = kept.running()
    return [
        replace(each, state=RunState.INTERRUPTED)
        if each.state is RunState.RUNNING and each.head.run != running
        else each
        for each in found
    ]


def run_record(catalog: DirectoryNamespace | CatalogRef, run: str | None = None) -> RunRecord | None:
    """Return a run of the past as its report shows it, the newest when none is named; None without one."""
    reference = catalog if isinstance(catalog, CatalogRef) else CatalogRef(catalog.properties)
    context = open_catalog(reference)
    kept = History(context)
    if run is None:
        known = kept.runs()
        if not known:
            return None
        run = known[0].head.run
    found = kept.record(run, root=context.root.uri)
    if found is not None and found.state is RunState.RUNNING and kept.running() != run:
        return replace(found, state=RunState.INTERRUPTED)
    return found


def _quoted(text: str) -> str:
    return text.replace("'", "''")


def _moment(moment: datetime) -> str:
    return f"timestamp '{require_moment(moment, what='since'):%Y-%m-%d %H:%M:%S.%f}'"


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value
