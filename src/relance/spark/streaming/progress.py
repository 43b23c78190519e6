"""Which micro-batch of a query a table has taken last: a small file in the table's directory.

A query that is killed runs its last micro-batch again. The file tells whether that is in the table:

    no file, or an earlier batch   put the file as pending, commit, put it as done
    this batch, pending            look for it in the versions since: it is there, or it is committed now
    this batch, done; a later one  it is there: remove what was written for it this time

The version in a pending file is the table's latest before the commit, so only later ones are looked at.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from relance.catalog.context import Context
from relance.catalog.states import new_nonce
from relance.errors import (
    InvalidInputError,
    InvalidTableStateError,
    KeyNotFoundError,
    TableVersionNotFoundError,
)
from relance.operations.staging.commit import abort_write, commit_write, find_marked
from relance.operations.staging.plan import WritePlan
from relance.storage.protocol import ObjectStorage, Version

QUERY_MARK = "relance.stream.query"
BATCH_MARK = "relance.stream.batch"

_FORMAT = 1
_QUERY = re.compile(r"[A-Za-z0-9_-]{1,100}")


class State(StrEnum):
    """How far a micro-batch has come."""

    PENDING = "pending"
    """Its commit is tried; whether it landed is in the table's versions."""
    DONE = "done"


@dataclass(frozen=True, slots=True)
class Progress:
    """The last micro-batch of a query, as its file tells."""

    batch: int
    state: State
    version: int
    """The version that it became, or the latest one before it."""


@dataclass(frozen=True, slots=True)
class Kept:
    """The progress that was read, and which bytes said so."""

    progress: Progress
    stored: Version


class Verdict(StrEnum):
    """What becomes of a micro-batch."""

    COMMIT = "commit"
    LOOK = "look"
    """Its commit was tried before."""
    SKIP = "skip"


def judge(progress: Progress | None, batch: int) -> Verdict:
    """Return what is to be done with a micro-batch."""
    if progress is None or progress.batch < batch:
        return Verdict.COMMIT
    if progress.batch == batch and progress.state is State.PENDING:
        return Verdict.LOOK
    return Verdict.SKIP


def progress_key(directory: str, query: str) -> str:
    """Return the key of the file.

    Raises:
        InvalidInputError: the id of the query cannot be part of a file's name.
    """
    if not _QUERY.fullmatch(query):
        raise InvalidInputError(f"invalid streaming query id {query!r}")
    return f"{directory}/_relance/streams/{query}.json"


def read_progress(storage: ObjectStorage, key: str) -> Kept | None:
    """Return what the file says, None if there is none.

    Raises:
        InvalidTableStateError: it was written by a newer client, or is damaged.
    """
    try:
        found = storage.read(key)
    except KeyNotFoundError:
        return None
    try:
        body = json.loads(found.body)
        if body["format"] != _FORMAT:
            raise ValueError(f"format {body['format']}")
        progress = Progress(int(body["batch"]), State(body["state"]), int(body["version"]))
    except (ValueError, KeyError, TypeError) as cause:
        raise InvalidTableStateError(
            f"cannot read the query progress in '{key}' ({cause}): corrupt or written by a newer client"
        ) from cause
    return Kept(progress, found.version)


def put_progress(storage: ObjectStorage, key: str, progress: Progress, *, over: Kept | None) -> Kept:
    """Write the file, only if nobody else did since it was read.

    Raises:
        ConcurrentModificationError: somebody did: the same query runs twice.
        OutcomeUnknownError: no answer came.
    """
    body = {
        "format": _FORMAT,
        "batch": progress.batch,
        "state": progress.state.value,
        "version": progress.version,
        "nonce": new_nonce(),
    }
    text = json.dumps(body).encode()
    if over is None:
        return Kept(progress, storage.create(key, text))
    return Kept(progress, storage.replace(key, text, expected=over.stored))


def commit_once(
    context: Context, plan: WritePlan, fragments: Sequence[str], *, query: str, batch: int
) -> int | None:
    """Commit a micro-batch, unless it is in the table already; None means that there was nothing to do.

    Raises:
        InvalidTableStateError: nobody can tell whether an earlier try landed.
        ConcurrentModificationError: another client changed the table, or runs the same query.
        OutcomeUnknownError: the store gave no answer; the query can be started again.
    """
    if not fragments and plan.fields is not None:
        return None  # no rows for a table that is there
    storage = context.storage
    key = progress_key(plan.directory, query)
    kept = read_progress(storage, key)
    verdict = judge(kept.progress if kept else None, batch)
    if kept is not None and verdict is Verdict.LOOK:
        landed = _landed(context, plan, kept.progress, query=query, key=key)
        if landed is not None:
            put_progress(storage, key, Progress(batch, State.DONE, landed), over=kept)
            verdict = Verdict.SKIP
    if verdict is Verdict.SKIP:
        abort_write(context, plan, fragments)
        return None
    if kept is None or verdict is Verdict.COMMIT:
        head = context.tables.head(plan.directory)
        before = 0 if head is None else head.version
        kept = put_progress(storage, key, Progress(batch, State.PENDING, before), over=kept)
    version = commit_write(context, plan, fragments, marks=_marks(query, batch))
    put_progress(storage, key, Progress(batch, State.DONE, version), over=kept)
    return version


def abort_once(
    context: Context, plan: WritePlan, fragments: Sequence[str], *, query: str, batch: int
) -> None:
    """Remove what was written for a micro-batch, unless its commit was tried: then it may be in the table."""
    kept = read_progress(context.storage, progress_key(plan.directory, query))
    if judge(kept.progress if kept else None, batch) is Verdict.COMMIT:
        abort_write(context, plan, fragments)


def _marks(query: str, batch: int) -> dict[str, str]:
    return {QUERY_MARK: query, BATCH_MARK: str(batch)}


def _landed(context: Context, plan: WritePlan, progress: Progress, *, query: str, key: str) -> int | None:
    try:
        marks = _marks(query, progress.batch)
        return find_marked(context, plan.directory, marks, after=progress.version)
    except TableVersionNotFoundError as cause:
        raise InvalidTableStateError(
            f"batch {progress.batch} of query {query} was being committed to table id '{plan.table_id}' when "
            f"the query ended, and versions after {progress.version} were cleaned up since, so it is unknown "
            f"whether it is in the table. If it is, set the state in '{key}' to \"done\"; otherwise delete "
            "that file. Then restart the query"
        ) from cause
