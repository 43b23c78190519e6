"""The manifest as a Lance table: opening its latest version, and committing to it.

A commit removes and adds rows in one Lance transaction that rewrites the head: the small data file
that holds the head row. Two commits that read the same version both rewrite it, and Lance lets only
one of them through, whatever rows they are about. So what was read is still true when it is
committed. design/0004 tells what else was tried.

That holds among clients that do the same, and beside native ones, which overwrite the whole table. But an
append, a merge_insert or a change of the configuration by any other client does not touch the head, and
Lance puts our commit after it. The number of the version shows that. Then what the change relies on is
looked at again, and if it no longer holds the change is withdrawn by a second commit.
"""

from __future__ import annotations

import random
import re
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta

import lance
import pyarrow as pa
from lance.dataset import LanceOperation, Transaction
from lance.fragment import FragmentMetadata, write_fragments

from relance.catalog.layout import NamingScheme, manifest_key
from relance.catalog.manifest.cache import (
    SMALL_ROWS,
    SMALL_ROWS_AFAR,
    FileCache,
    Located,
    data_key,
)
from relance.catalog.manifest.row import HEAD_ID, ObjectType, Row, encode_row, preferred
from relance.catalog.manifest.schema import (
    SCHEMA,
    check_flags,
    check_schema,
    new_values,
    refuses_native_changes,
)
from relance.catalog.manifest.snapshot import LanceSnapshot, RevertedSnapshot, in_reader, manifest_errors
from relance.catalog.manifest.store import (
    Change,
    ManifestConflictError,
    Snapshot,
    require_undisturbed,
)
from relance.catalog.states import new_nonce
from relance.clock import since_boot
from relance.config import StorageOptions
from relance.errors import (
    ConcurrentModificationError,
    InternalError,
    KeyNotFoundError,
    OutcomeUnknownError,
    RelanceError,
    ServiceUnavailableError,
    StorageFullError,
    TableNotFoundError,
    for_python,
)
from relance.lance_io import lance_errors, open_at, transaction_at
from relance.locations import MANIFEST_DIRECTORY, VERSIONS_DIRECTORY
from relance.storage.ballast import written_by_lance
from relance.storage.disk_files import share_table
from relance.storage.links import require_no_links
from relance.storage.protocol import ObjectStorage

HEAD_ROWS = 256
"""The head is begun anew once it holds this many rows; until then each commit writes all of them."""

RECENT_SECONDS = 10.0
"""For so long what is only shown, and decides nothing, need not be read again."""

READ_FOR_SECONDS = 15.0
"""What was read longer ago is not committed on. Lance compares a commit with the versions that came since
it was read, as far as they are still there: a commit that comes after upkeep removed some of them would
go through and leave rows twice, or be written below the latest version and be lost."""
COMMIT_TIMEOUT = timedelta(minutes=1)
"""How long a commit may take. Upkeep leaves versions alone for far longer than both together."""

INDEXES = {
    "object_id": ("BTREE", "object_id_btree"),
    "object_type": ("BITMAP", "object_type_bitmap"),
    "base_objects": ("LABEL_LIST", "base_objects_label_list"),
}
"""Kind and name of the index of a column."""

_KNOWN_FOR_SECONDS = 10.0
"""Far less than the time upkeep leaves old versions alone."""
_COMMIT_SEEN_SECONDS = 2.0
"""A commit makes sure that the root is the same if that was seen longer ago."""
_OPENINGS = 5
"""How often the latest version is looked for when it is removed under our hands."""
_WITHDRAWALS = 100
"""How often a withdrawal is tried while other commits are faster."""

_HEAD = Row(HEAD_ID, ObjectType.NAMESPACE)

_LOOKED_FIRST = re.compile("preempted by|incompatible with", re.IGNORECASE)
"""What Lance says when a version that is there already refuses a commit."""


_Identity = tuple[str | None, int, datetime | None]
"""The tag, size and time of a file."""


@dataclass(slots=True)
class _Known:
    """A version that was the latest not long ago."""

    dataset: lance.LanceDataset
    asked: float
    """When it was known to be the latest, in the seconds of `since_boot`."""
    seen_at: float
    """When it was last made sure that the version is still the same: someone may replace the whole root."""
    identity: _Identity | None = None
    """Of the version's file; None until it was looked at."""

    @property
    def version(self) -> int:
        return int(self.dataset.version)


class ManifestTable:
    """The table's place, and the version of it that was last seen. Threads may share it.

    Opens the latest version without listing them all. Versions have no gaps: if one was the latest and
    the next is not there, it still is. That holds for as long as no upkeep can have removed the next one,
    so what was known longer ago is not used. To look for one key is far cheaper than to list: there are as
    many versions as were committed in half an hour.

    A root may be restored, rebuilt or moved away under an open client, and the number of a version says
    nothing of that. So the file of the known version is compared: its tag, size and time, and at first
    whether it names the data files that were read.
    """

    def __init__(self, storage: ObjectStorage, uri: str, options: StorageOptions) -> None:
        self.uri = uri
        self.options = options
        self._storage = storage
        self._session = lance.Session()
        self._known: _Known | None = None
        self._has_v2_names = False
        """Whether versions are known to have the names that are looked for; old clients gave them others."""

    @property
    def cheap_lookups(self) -> bool:
        return self._storage.cheap_lookups

    def keep_ballast(self) -> None:
        """Do what `ObjectStorage.keep_ballast` promises."""
        self._storage.keep_ballast()

    def share(self) -> None:
        """Let all users of a local root write to the table whose folders this one has made."""
        if "://" not in self.uri:
            share_table(self.uri)

    def free_ballast(self, count: int) -> bool:
        """Do what `ObjectStorage.free_ballast` promises."""
        return self._storage.free_ballast(count)

    def discard(self, written: Sequence[FragmentMetadata], transaction: str) -> None:
        """Remove the files of a commit that did not land."""
        keys = [f"{MANIFEST_DIRECTORY}/data/{file.path}" for each in written for file in each.files]
        keys.append(f"{MANIFEST_DIRECTORY}/_transactions/{transaction}")
        with suppress(RelanceError):  # upkeep removes what stays
            self._storage.delete_many(keys)

    def open(self) -> lance.LanceDataset | None:
        """Return the latest version, or None when there is no table."""
        known, asked = self._known, since_boot()
        if known is not None and asked < known.asked + _KNOWN_FOR_SECONDS:
            stepped = self._step_on(known, asked)
            if stepped is not None:
                return stepped
        elif known is not None:
            self._is_same(known, asked)
        dataset = self.open_apart()
        if dataset is not None:
            self.note(dataset, asked)
        return dataset

    def is_same_root(self, read: lance.LanceDataset) -> bool:
        """Tell whether the root is still the one that a version was read from, before a commit after it."""
        known, asked = self._known, since_boot()
        if known is None or not read.session().is_same_as(self._session):
            return False
        return asked < known.seen_at + _COMMIT_SEEN_SECONDS or self._is_same(known, asked)

    def open_apart(self) -> lance.LanceDataset | None:
        """Return the latest version as an object that nobody shares: some calls change it in place.

        Raises:
            ConcurrentModificationError: each version was removed before it could be read.
        """
        for _ in range(_OPENINGS):
            try:
                return open_at(self.uri, self.options, MANIFEST_DIRECTORY, session=self._session)
            except TableNotFoundError:
                # Listed as the latest, and removed by upkeep since? An empty catalog would be a wrong answer.
                if not self._storage.which_exist([f"{MANIFEST_DIRECTORY}/{VERSIONS_DIRECTORY}/"]):
                    return None
        raise ConcurrentModificationError("too many concurrent changes to the manifest; retry")

    def require_no_links(self) -> None:
        """Check that a cleanup of the manifest deletes nothing outside the root.

        Raises:
            InvalidTableStateError: there is a link below the manifest's directory.
        """
        require_no_links(self._storage, MANIFEST_DIRECTORY)

    def has_versions_before(self, moment: datetime) -> bool:
        """Tell whether a version is older than this, in one listing."""
        level = self._storage.list_level(f"{MANIFEST_DIRECTORY}/{VERSIONS_DIRECTORY}")
        return any(file.modified is not None and file.modified < moment for file in level.files)

    def note(self, dataset: lance.LanceDataset, asked: float, *, is_first: bool = False) -> None:
        """Remember a version that was the latest at some time after `asked`; the first one was made by us."""
        if is_first:
            self._has_v2_names = True
            self._session = dataset.session()
        self._known = _Known(dataset, asked, asked)

    def _step_on(self, known: _Known, asked: float) -> lance.LanceDataset | None:
        """Return the latest version, starting from one that was; None when that has to be listed."""
        is_latest = not self._is_there(known.version + 1)
        self._has_v2_names = self._has_v2_names or not is_latest
        seen_for = _KNOWN_FOR_SECONDS
        if self.cheap_lookups:
            seen_for = 0.0 if is_latest else _COMMIT_SEEN_SECONDS
        seen = asked < known.seen_at + seen_for and self._has_v2_names
        if not (seen or self._is_same(known, asked)) or not self._has_v2_names:
            return None
        if is_latest:
            known.asked = asked
            return known.dataset
        latest = self._latest_after(known.version + 1)
        with lance_errors("the catalog's manifest", self.options):
            try:
                dataset = known.dataset.checkout_version(latest)
            except (OSError, ValueError) as cause:
                if "not found" in str(cause).lower():
                    return None
                raise
        self.note(dataset, asked)
        return dataset

    def _is_same(self, known: _Known, asked: float) -> bool:
        """Tell whether the file of a version is still the one that was read; if not, forget the old root."""
        identity = self._identify(known, asked)
        if identity is None:
            self._known, self._has_v2_names = None, False
            self._session = lance.Session()
            return False
        known.identity, known.seen_at = identity, asked
        return True

    def _identify(self, known: _Known, asked: float) -> _Identity | None:
        """Return what tells the file of a version from others, None if it is gone or another one."""
        for scheme in (NamingScheme.V2, NamingScheme.V1):
            key = manifest_key(MANIFEST_DIRECTORY, None, known.version, scheme)
            with suppress(KeyNotFoundError):
                identity = self._identity_of(key, known, asked)
                self._has_v2_names = scheme is NamingScheme.V2
                return identity
            if self._has_v2_names:
                break
        return None

    def _identity_of(self, key: str, known: _Known, asked: float) -> _Identity | None:
        just_read = asked < known.seen_at + _COMMIT_SEEN_SECONDS and not self.cheap_lookups
        if known.identity is not None or just_read:
            info = self._storage.head(key)
            identity = (info.e_tag, info.size, info.modified)
            return identity if known.identity in {None, identity} else None
        stored = self._storage.read(key)
        # The last fragment is that of the last change of rows, each of which gives its files new names.
        last = known.dataset.get_fragments()[-1:]
        names = [file.path.encode() for fragment in last for file in fragment.metadata.files]
        if not all(name in stored.body for name in names):
            return None
        return stored.e_tag, len(stored.body), stored.modified

    def _latest_after(self, version: int) -> int:
        """Return the last version of an unbroken row of them that begins at `version`, which is there."""
        step = 1
        while self._is_there(version + step):
            version, step = version + step, step * 2
        while step > 1:
            step //= 2
            if self._is_there(version + step):
                version += step
        return version

    def _is_there(self, version: int) -> bool:
        try:
            self._storage.head(manifest_key(MANIFEST_DIRECTORY, None, version, NamingScheme.V2))
        except KeyNotFoundError:
            return False
        return True


@dataclass(frozen=True, slots=True)
class _Landed:
    """A commit of ours that is in the table."""

    dataset: lance.LanceDataset
    """The latest version then."""
    version: int
    """The one that the commit made."""
    written: Sequence[FragmentMetadata] = ()


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

    def recent(self) -> LanceSnapshot:
        last = self._last
        if last is not None and since_boot() < last.seen_at + RECENT_SECONDS:
            return last
        return self.latest()

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
        if read.dataset is not None and not self.table.is_same_root(read.dataset):
            raise ManifestConflictError("the root was replaced by another one")
        asked, self._last = since_boot(), None
        if read.dataset is None:
            landed = self._written(lambda: self._create(change))
        else:
            landed = self._written(lambda: self._update(read, change))
        # What this client wrote it reads at once, also from `recent`.
        self._last = LanceSnapshot(landed.dataset, self._files, self.options, self._is_superseded)
        self._last.seen_at = asked
        self.table.keep_ballast()
        self.table.share()
        if self.on_commit is not None:
            self.on_commit(self, landed.dataset)

    def remove_duplicates(self, object_id: str) -> None:
        read = self.latest()
        rows = read.find([HEAD_ID, object_id])
        heads = [located for located in rows if located.row.object_id == HEAD_ID]
        same = [located for located in rows if located.row.object_id == object_id]
        if len(same) > 1 and heads:
            visible = preferred([located.row for located in same])
            others = [located for located in same if located.row is not visible]
            self._written(lambda: self._rewrite(read, [*heads, *others], ()))

    def _written(self, write: Callable[[], _Landed]) -> _Landed:
        """Write a change, and again with freed space if the disk was full: then the change is not there."""
        return written_by_lance(self.table, lambda: in_reader(write))

    def back_off(self, attempt: int) -> None:
        time.sleep(random.uniform(0, min(0.002 * 2**attempt, 0.1)))

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

    def _create(self, change: Change) -> _Landed:
        rows = _as_table([_HEAD, *change.added], SCHEMA, {})
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
        landed = self._commit(self.table.uri, Transaction(0, operation, uuid=new_nonce()))
        return replace(landed, dataset=self._indexed(landed.dataset))

    def _indexed(self, dataset: lance.LanceDataset) -> lance.LanceDataset:
        """Return the version of a new manifest that has its indexes; all of them come with one commit."""
        asked = since_boot()
        try:
            with manifest_errors(self.options):
                # Building borrows the object from Lance's side, and other threads read from the shared one.
                own = dataset.checkout_version(dataset.version)
                fragments = [fragment.fragment_id for fragment in own.get_fragments()]
                new = [
                    own.create_index_uncommitted(column, kind, name=name, fragment_ids=fragments)
                    for column, (kind, name) in INDEXES.items()
                ]
                operation = LanceOperation.CreateIndex(new_indices=new, removed_indices=[])
                indexed = lance.LanceDataset.commit(
                    own,
                    operation,
                    read_version=int(own.version),
                    max_retries=0,
                    storage_options=self._lance_options,
                    commit_timeout=COMMIT_TIMEOUT,
                )
        except RelanceError:
            return dataset  # lookups are right without them, and upkeep builds what is missing
        self.table.note(indexed, asked)
        return indexed

    def _update(self, read: LanceSnapshot, change: Change) -> _Landed:
        rows = read.find({HEAD_ID, *change.removed, *(row.object_id for row in change.added)})
        heads = [located for located in rows if located.row.object_id == HEAD_ID]
        if not heads:
            # Another client made this manifest: give it a head, and look again.
            self._add_head()
            raise ManifestConflictError("the manifest's head row was created by another client")
        removed = _intended(rows, change)
        landed = self._rewrite(read, [*heads, *removed], change.added)
        if landed.version != read.version + 1:
            left = Counter(located.row.object_id for located in rows if located not in removed)
            self._check(read, landed, change, [located.row for located in removed], left)
        return landed

    def _rewrite(self, read: LanceSnapshot, gone: Sequence[Located], added: Sequence[Row]) -> _Landed:
        """Commit the removal of rows, a head row among them, and the addition of others."""
        dataset = read.dataset
        assert dataset is not None  # it has rows
        by_fragment: dict[int, list[int]] = {}
        for located in gone:
            by_fragment.setdefault(located.fragment, []).append(located.offset)
        head = next(located.fragment for located in gone if located.row.object_id == HEAD_ID)
        rows = _as_table([_HEAD, *added], dataset.schema, read.metadata)
        removed: list[int] = []
        old = read.small_file(head)
        if old is not None and len(old.rows) <= HEAD_ROWS:
            kept = old.rows_without(by_fragment.pop(head))
            rows = pa.concat_tables([rows, kept.cast(dataset.schema)]).combine_chunks()
            removed.append(head)
        with manifest_errors(self.options):
            # Writing borrows the object from Lance's side, and other threads read from the shared one.
            own = dataset.checkout_version(read.version)
            written = write_fragments(rows, own, mode="append")
        token = new_nonce()
        try:
            with manifest_errors(self.options):
                operation = _build(own, removed, by_fragment, written)
            landed = self._commit(own, Transaction(read.version, operation, uuid=token))
        except StorageFullError:
            # The next attempt needs the space.
            self.table.discard(written, f"{read.version}-{token}.txn")
            raise
        self._files.note(written, rows)
        for left in operation.updated_fragments:
            file = read.small_file(left.id)
            if file is not None:
                self._files.note_deleted(file, left, by_fragment[left.id])
        return _Landed(landed.dataset, landed.version, written)

    def _check(
        self,
        read: LanceSnapshot,
        landed: _Landed,
        change: Change,
        removed: Sequence[Row],
        left: Mapping[str, int],
    ) -> None:
        """Check a change that came after another client's commit, and withdraw it if it must not stay.

        `left` counts the rows that kept an id of the change although it removed one with that id.

        Raises:
            ManifestConflictError: it was withdrawn.
            OutcomeUnknownError: it should be, and that failed.
        """
        try:
            with manifest_errors(self.options):
                dataset = landed.dataset.checkout_version(landed.version)
            snapshot = LanceSnapshot(dataset, self._files, self.options, self._is_superseded)
            written = {data_key(meta) for meta in landed.written}
            fragments = {
                fragment.fragment_id
                for fragment in dataset.get_fragments()
                if data_key(fragment.metadata) in written
            }
            rows = snapshot.find(row.object_id for row in change.added)
            ours = [located for located in rows if located.fragment in fragments]
            others = Counter(located.row.object_id for located in rows if located not in ours)
            require_undisturbed(
                RevertedSnapshot(snapshot, ours, removed), read.metadata, change, others, left
            )
        except RelanceError as failure:
            try:
                withdrawn = self._withdraw(change, removed, left)
            except RelanceError as cause:
                raise for_python(
                    OutcomeUnknownError(
                        f"{failure.detail}, and the change could not be withdrawn: {cause.detail}",
                        hint="list repair options: relance scrub",
                    ),
                    "; run scrub()",
                ) from cause
            if withdrawn:
                raise ManifestConflictError(failure.detail) from failure

    def _withdraw(self, change: Change, removed: Sequence[Row], left: Mapping[str, int]) -> bool:
        """Undo a change; tell whether that was possible, for others may have built on it already."""
        for attempt in range(_WITHDRAWALS):
            try:
                read = self.latest()
                rows = read.find({HEAD_ID, *(row.object_id for row in (*change.added, *removed))})
                heads = [located for located in rows if located.row.object_id == HEAD_ID]
                ours = [_exact(rows, row) for row in change.added]
                exact = [located for located in ours if located is not None]
                others = Counter(located.row.object_id for located in rows if located not in exact)
                taken = any(others[row.object_id] > left.get(row.object_id, 0) for row in removed)
                if not heads or len(exact) < len(ours) or taken:
                    return False
                self._rewrite(read, [*heads, *exact], removed)
            except ManifestConflictError:
                self.back_off(attempt)
            else:
                return True
        raise ConcurrentModificationError("too many concurrent changes to the manifest")

    def _commit(self, target: str | lance.LanceDataset, transaction: Transaction) -> _Landed:
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
            return self._resolve_outcome(transaction, failure)
        self.table.note(committed, asked, is_first=transaction.read_version == 0)
        return _Landed(committed, int(committed.version))

    def _resolve_outcome(self, transaction: Transaction, failure: RelanceError) -> _Landed:
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
                    other = transaction_at(dataset, version)
            except InternalError as cause:
                # Most likely removed by upkeep: then it cannot be told any more whose it was.
                raise OutcomeUnknownError(cause.detail) from failure
            if other is not None and other.uuid == transaction.uuid:
                return _Landed(dataset, version)
        if isinstance(failure, ServiceUnavailableError):
            raise OutcomeUnknownError(failure.detail) from failure
        if latest > transaction.read_version:
            raise ManifestConflictError(failure.detail) from failure
        raise failure

    def _add_head(self) -> None:
        """Add the head row; Lance's own check of the primary key lets only one client do so."""
        dataset = self.table.open_apart()
        assert dataset is not None  # rows were just read from it
        row = _as_table([_HEAD], dataset.schema, dataset.metadata)
        with manifest_errors(self.options):
            # Through the index Lance 14 was seen to write duplicates: never use it here.
            dataset.merge_insert("object_id").when_not_matched_insert_all().use_index(False).execute(row)

    @property
    def _lance_options(self) -> dict[str, str] | None:
        return dict(self.options) or None


def _as_table(rows: Iterable[Row], schema: pa.Schema, metadata: Mapping[str, str]) -> pa.Table:
    """Return the rows as the manifest's columns; its time of creation is kept in a row that was read."""
    new, own_types = new_values(schema, datetime.now(UTC)), refuses_native_changes(metadata)
    encoded = (encode_row(row, own_types=own_types) for row in rows)
    return pa.Table.from_pylist([{**new, **columns} for columns in encoded], schema=schema)


def _intended(rows: Iterable[Located], change: Change) -> list[Located]:
    """Return the rows that the change removes: of several with one id, the one that readers see.

    Raises:
        InternalError: what is added would replace a row that the change does not remove.
    """
    by_id: dict[str, list[Located]] = {}
    for located in rows:
        if located.row.object_id != HEAD_ID:
            by_id.setdefault(located.row.object_id, []).append(located)
    for row in change.added:
        if row.object_id in by_id and row.object_id not in change.removed:
            raise InternalError(f"the manifest already contains '{row.object_id}'")
    intended = []
    for same in by_id.values():
        visible = preferred([located.row for located in same])
        intended.append(next(located for located in same if located.row is visible))
    return intended


def _exact(rows: Iterable[Located], row: Row) -> Located | None:
    """Return the row of the table that is exactly the one that was written."""
    columns = encode_row(row)

    def is_same(found: Row) -> bool:
        # The type is compared as it is meant: in the table, a dropped row may have one of its own.
        read = {**found.columns, "object_type": found.object_type}
        return all(read.get(name) == value for name, value in columns.items())

    return next((located for located in rows if is_same(located.row)), None)


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
        assert holder is not None  # it just had rows
        left = holder.delete_rows(list(offsets))
        if left is None:
            gone.append(number)
        else:
            updated.append(left)
    return LanceOperation.Update(
        removed_fragment_ids=gone, updated_fragments=updated, new_fragments=list(written)
    )
