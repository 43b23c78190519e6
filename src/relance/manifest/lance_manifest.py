"""The manifest as a Lance table.

A commit removes and adds rows in one Lance transaction that rewrites the head: the small data file
that holds the head row. Two commits that read the same version both rewrite it, and Lance lets only
one of them through, whatever rows they are about. So what was read is still true when it is
committed. design/0004 tells what else was tried.
"""

from __future__ import annotations

import random
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, TypeVar

import lance
import pyarrow as pa
import pyarrow.compute as pc
from lance.dataset import LanceOperation, Transaction
from lance.fragment import FragmentMetadata, write_fragments

from relance.clock import since_boot
from relance.config import StorageOptions
from relance.errors import (
    ConcurrentModificationError,
    InternalError,
    OutcomeUnknownError,
    RelanceError,
    ServiceUnavailableError,
)
from relance.lance_errors import transaction_at
from relance.lifecycle.marker_store import new_nonce
from relance.manifest.data_files import SMALL_ROWS, SMALL_ROWS_AFAR, FileCache, Located
from relance.manifest.entry import HEAD_ID, Entry, ObjectType, encode_row
from relance.manifest.lance_snapshot import (
    LanceSnapshot,
    in_reader,
    manifest_errors,
)
from relance.manifest.opening import ManifestTable
from relance.manifest.schema import SCHEMA, check_flags, check_schema
from relance.manifest.store import Change, ManifestConflictError, Snapshot

_T = TypeVar("_T")

HEAD_ROWS = 256
"""The head is begun anew once it holds this many rows; until then each commit writes all of them."""

READ_FOR_SECONDS = 15.0
"""What was read longer ago is not committed on. Lance compares a commit with the versions that came since
it was read, as far as they are still there: a commit that comes after upkeep removed some of them would
go through and leave rows twice, or be written below the latest version and be lost."""
COMMIT_TIMEOUT = timedelta(minutes=1)
"""How long a commit may take. Upkeep leaves versions alone for far longer than both together."""

_LOOKED_FIRST = re.compile("preempted by|incompatible with", re.IGNORECASE)
"""What Lance says when a version that is there already refuses a commit."""


_PATIENCE = 16
"""How often it is looked whether another client has done its own, within about half a second."""


@dataclass(slots=True)
class LanceManifest:
    """The `__manifest` table of one root."""

    table: ManifestTable
    on_commit: Callable[[LanceManifest, lance.LanceDataset], None] | None = None
    """Told of each commit with the new version, to keep the table in shape off the request's path."""
    _files: FileCache = field(init=False)
    _last: LanceSnapshot | None = None

    def __post_init__(self) -> None:
        self._files = FileCache(SMALL_ROWS if self.table.cheap_lookups else SMALL_ROWS_AFAR)

    @property
    def options(self) -> StorageOptions:
        return self.table.options

    def latest(self) -> LanceSnapshot:
        asked = since_boot()
        dataset, last = self.open(), self._last
        if last is None or last.dataset is not dataset:  # else with all that was looked up in it
            if dataset is not None:
                check_schema(dataset.schema)
                check_flags(dataset.metadata, writing=False)
            last = self._last = LanceSnapshot(dataset, self._files, self.options, self._is_superseded)
        last.seen_at = asked
        return last

    def _is_superseded(self, version: int) -> bool:
        dataset = self.table.open_apart()
        return dataset is not None and int(dataset.version) > version

    def open(self) -> lance.LanceDataset | None:
        """Return the table's latest version, or None when there is none."""
        return self.table.open()

    def commit(self, read: Snapshot, change: Change) -> None:
        assert isinstance(read, LanceSnapshot)  # ours, from latest()
        check_flags(read.metadata, writing=True)
        if since_boot() > read.seen_at + READ_FOR_SECONDS:
            raise ManifestConflictError("the snapshot of the manifest is too old")
        if read.dataset is None:
            committed = in_reader(lambda: self._create(change))
        else:
            committed = in_reader(lambda: self._update(read, change))
        if self.on_commit is not None:
            self.on_commit(self, committed)

    def back_off(self, attempt: int) -> None:
        time.sleep(random.uniform(0, min(0.002 * 2**attempt, 0.1)))

    def wait_until(self, over: Callable[[], bool]) -> bool:
        for attempt in range(_PATIENCE):
            if over():
                return True
            self.back_off(attempt)
        return over()

    def set_metadata(self, values: Mapping[str, str]) -> None:
        dataset = self.table.open_apart()
        if dataset is None:
            in_reader(lambda: self._create(Change()))
            dataset = self.table.open_apart()
        assert dataset is not None  # just created, or by somebody else
        check_schema(dataset.schema)
        check_flags(dataset.metadata, writing=True)
        with manifest_errors(self.options):
            dataset.update_metadata(dict(values))

    def _create(self, change: Change) -> lance.LanceDataset:
        rows = pa.Table.from_pylist([_head_row(), *map(encode_row, change.added)], schema=SCHEMA)
        try:
            with manifest_errors(self.options):
                fragments = write_fragments(
                    rows, self.table.uri, mode="create", storage_options=self._lance_options
                )
        except InternalError as failure:
            if self.open() is None:
                raise
            raise ManifestConflictError("the manifest was created by another client") from failure
        operation = LanceOperation.Overwrite(SCHEMA, fragments)
        # As the first version: if two clients create the manifest at once, one of them does.
        return self._commit(self.table.uri, Transaction(0, operation, uuid=new_nonce()))

    def _update(self, read: LanceSnapshot, change: Change) -> lance.LanceDataset:
        dataset = read.dataset
        assert dataset is not None  # the caller looked
        gone = {HEAD_ID, *change.removed, *(each.object_id for each in change.added)}
        found = read.find(gone)
        head = next((each.fragment for each in found if each.entry.object_id == HEAD_ID), None)
        if head is None:
            # Another client made this manifest: give it a head, and look again.
            self._add_head()
            raise ManifestConflictError("the manifest's head row was created by another client")
        _check_free(found, change)
        by_fragment: dict[int, list[int]] = {}
        for each in found:
            by_fragment.setdefault(each.fragment, []).append(each.offset)
        rows = pa.Table.from_pylist([_head_row(), *map(encode_row, change.added)], schema=dataset.schema)
        removed: list[int] = []
        old = read.small_file(head)
        if old is not None and len(old.rows) <= HEAD_ROWS:
            kept = old.rows.filter(pc.invert(pc.is_in(old.rows["object_id"], pa.array(gone))))
            rows = pa.concat_tables([rows, kept.cast(dataset.schema)]).combine_chunks()
            removed.append(head)
            del by_fragment[head]
        with manifest_errors(self.options):
            # Writing borrows the object from Lance's side, and other threads read from the shared one.
            own = dataset.checkout_version(read.version)
            written = write_fragments(rows, own, mode="append")
            operation = _build(own, removed, by_fragment, written)
        committed = self._commit(own, Transaction(read.version, operation, uuid=new_nonce()))
        self._files.note(written, rows)
        for left in operation.updated_fragments:
            file = read.small_file(left.id)
            if file is not None:
                self._files.note_deleted(file, left, by_fragment[left.id])
        return committed

    def _commit(self, target: str | lance.LanceDataset, transaction: Transaction) -> lance.LanceDataset:
        try:
            with manifest_errors(self.options):
                asked = since_boot()
                committed = lance.LanceDataset.commit(
                    target,
                    transaction,
                    max_retries=0,
                    storage_options=self._lance_options,
                    commit_timeout=COMMIT_TIMEOUT,
                )
        except (ConcurrentModificationError, ServiceUnavailableError, InternalError) as failure:
            return self._settle(transaction, failure)
        self.table.note(committed, asked)
        return committed

    def _settle(self, transaction: Transaction, failure: RelanceError) -> lance.LanceDataset:
        """Find out whether a commit that failed has landed all the same: its answer may have been lost.

        Raises:
            ManifestConflictError: it has not, and another commit has.
            OutcomeUnknownError: nobody can tell.
        """
        if _LOOKED_FIRST.search(failure.detail):
            raise ManifestConflictError(failure.detail) from failure  # nothing was written
        dataset = self.table.open_apart()  # to read a transaction borrows the object, too
        latest = 0 if dataset is None else int(dataset.version)
        for version in range(latest, transaction.read_version, -1):
            assert dataset is not None  # it has versions
            try:
                with manifest_errors(self.options):
                    landed = transaction_at(dataset, version)
            except InternalError as cause:
                # Most likely removed by upkeep: then it cannot be told any more whose it was.
                raise OutcomeUnknownError(cause.detail) from failure
            if landed is not None and landed.uuid == transaction.uuid:
                return dataset
        if isinstance(failure, ServiceUnavailableError):
            raise OutcomeUnknownError(failure.detail) from failure
        if latest > transaction.read_version:
            raise ManifestConflictError(failure.detail) from failure
        raise failure

    def _add_head(self) -> None:
        """Add the head row; Lance's own check of the primary key lets only one client do so."""
        dataset = self.table.open_apart()
        assert dataset is not None  # rows were just read from it
        row = pa.Table.from_pylist([_head_row()], schema=dataset.schema)
        with manifest_errors(self.options):
            # Through the index Lance 14 was seen to write duplicates: never use it here.
            dataset.merge_insert("object_id").when_not_matched_insert_all().use_index(False).execute(row)

    @property
    def _lance_options(self) -> dict[str, str] | None:
        return dict(self.options) or None


def _head_row() -> dict[str, Any]:
    return encode_row(Entry(HEAD_ID, ObjectType.NAMESPACE))


def _check_free(found: Sequence[Located], change: Change) -> None:
    """Check that what is added replaces nothing but what the change says."""
    taken = {each.entry.object_id for each in found} - set(change.removed)
    for each in change.added:
        if each.object_id in taken:
            raise InternalError(f"the manifest already contains '{each.object_id}'")


def _build(
    dataset: lance.LanceDataset,
    removed: Sequence[int],
    by_fragment: Mapping[int, Sequence[int]],
    written: Sequence[FragmentMetadata],
) -> LanceOperation.Update:
    """Return the transaction that deletes rows where they are and adds the new head."""
    gone, updated = list(removed), []
    for number, offsets in by_fragment.items():
        holder = dataset.get_fragment(number)
        assert holder is not None  # rows were just found there
        left = holder.delete_rows(list(offsets))
        if left is None:
            gone.append(number)
        else:
            updated.append(left)
    return LanceOperation.Update(
        removed_fragment_ids=gone, updated_fragments=updated, new_fragments=list(written)
    )
