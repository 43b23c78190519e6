"""What the next micro-batch of a stream reads. The rows themselves are read in source."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC

from relance.errors import InvalidTableStateError, TableVersionNotFoundError, UnsupportedOperationError
from relance.lance_io import checkout, lance_errors
from relance.spark.options import Changes, StreamOptions
from relance.spark.streaming.columns import Column, columns_at
from relance.spark.streaming.history import Change, History, Piece, gone, pieces_of
from relance.spark.streaming.offsets import Position
from relance.spark.streaming.tables import OpenTable, open_table

ROWS_PER_TASK = 1_000_000
"""Small fragments, of several versions too, are read by one task up to so many rows."""


@dataclass(frozen=True, slots=True)
class Reading:
    """Fragments of one version that are read alike."""

    version: int
    columns: tuple[Column, ...]
    pieces: tuple[Piece, ...]
    shape: int
    """Readings of one planner with the same number are of versions with the same schema."""
    updated_after: int | None = None
    """Of these fragments only rows that are of a later version than this; None: all are new."""

    @property
    def rows(self) -> int:
        return sum(each.rows for each in self.pieces)


class StreamPlanner:
    """Finds out how far a stream may go, and what to read for it."""

    def __init__(self, options: StreamOptions, names: Sequence[str]) -> None:
        self._options = options
        self._names = tuple(names)
        self._seen: dict[int, Change] = {}
        self._shapes: dict[str, int] = {}
        self._last: int | None = None

    def stop_at_latest(self) -> None:
        """Take no version into account that is committed from now on."""
        self._last = self._open().version

    def advance(self, start: Position | None, *, limited: bool) -> Position:
        """Return how far the next batch goes; the start itself when there is nothing new.

        Raises:
            TableNotFoundError: the table is gone.
            TableVersionNotFoundError: versions that are not read yet were cleaned up.
            InvalidTableStateError: the next version changed or removed rows, or the table is another one.
        """
        table = self._open()
        last = table.version if self._last is None else self._last
        with lance_errors(table.name, table.options):
            if start is None:
                return self._begin(table, last, limited=limited)
            history = self._history_of(table)
            _require_same(table, history, start)
            if start.fragments is not None:
                return self._more_of_first_state(table, start, limited=limited)
            for each in [each for each in self._seen if each <= start.version]:
                del self._seen[each]
            return self._over_versions(table, history, start, last, limited=limited)

    def readings(self, start: Position | None, end: Position | None) -> list[Reading]:
        """Return what is to be read between two positions.

        Raises:
            TableVersionNotFoundError, InvalidTableStateError, TableColumnNotFoundError: as `advance` says.
        """
        if end is None or start == end:
            return []
        table = self._open()
        with lance_errors(table.name, table.options):
            history = self._history_of(table)
            _require_same(table, history, end)
            if start is None and not self._starts_with_all:
                return []  # the first batch only settles where the stream begins
            if start is None or start.fragments is not None:
                return self._first_state(table, start, end)
            changes = [history.change(each) for each in range(start.version + 1, end.version + 1)]
            return [each for change in changes for each in self._readings_of(table, change)]

    def table(self) -> OpenTable:
        """Return the table as it is now."""
        return self._open()

    @property
    def _starts_with_all(self) -> bool:
        return self._options.starting_version is None and self._options.starting_timestamp is None

    def _open(self) -> OpenTable:
        table = open_table(self._options.read.address)
        if self._options.changes is Changes.ROWS and not table.dataset.has_stable_row_ids:
            raise UnsupportedOperationError(
                f"changes=rows needs stable row ids, which {table.name} does not have: stream "
                "changes=appends, or re-create the table with stable_row_ids=true"
            )
        return table

    def _history_of(self, table: OpenTable) -> History:
        options = self._options
        find_removed = options.changes is Changes.ROWS and not options.skip_changes
        return History(table.dataset, table.name, self._seen, find_removed=find_removed)

    def _begin(self, table: OpenTable, last: int, *, limited: bool) -> Position:
        if self._starts_with_all:
            first = Position(table.location, last, self._transaction_of(table, last), fragments=0)
            return self._more_of_first_state(table, first, limited=limited)
        version = self._starting_version(table, last)
        if version > table.version:
            raise TableVersionNotFoundError(
                f"starting_version={version} of {table.name}: the latest is {table.version}"
            )
        return Position(table.location, version, self._transaction_of(table, version))

    def _starting_version(self, table: OpenTable, last: int) -> int:
        options = self._options
        if options.starting_timestamp is None:
            assert options.starting_version is not None
            return last if options.starting_version == "latest" else options.starting_version
        known = [(each["version"], each["timestamp"].astimezone(UTC)) for each in table.dataset.versions()]
        before = [version for version, moment in known if moment <= options.starting_timestamp]
        first = min(version for version, _ in known)
        if not before and first > 1:
            raise TableVersionNotFoundError(
                f"{table.name} at {options.starting_timestamp.isoformat()}: the oldest remaining version, "
                f"{first}, is newer; start with starting_version={first} or leave out both options"
            )
        return max(before, default=0)

    def _transaction_of(self, table: OpenTable, version: int) -> str:
        return (self._history_of(table).transaction_id(version) or "") if version else ""

    def _more_of_first_state(self, table: OpenTable, start: Position, *, limited: bool) -> Position:
        pieces = self._pieces_at(table, start.version)
        done, rows = start.fragments or 0, 0
        limit = self._options.max_rows_per_batch if limited else None
        for piece in pieces[done:]:
            if limit is not None and rows and rows + piece.rows > limit:
                return replace(start, fragments=done)
            done, rows = done + 1, rows + piece.rows
        return start.whole()

    def _over_versions(
        self, table: OpenTable, history: History, start: Position, last: int, *, limited: bool
    ) -> Position:
        end, rows = start, 0
        options = self._options
        for version in range(start.version + 1, last + 1):
            if limited and version - start.version > (options.max_versions_per_batch or version):
                break
            change = history.change(version)
            if self._is_refused(change):
                if end == start:
                    raise _refused(table, change, options.changes)
                break  # first what came before it
            rows += change.rows
            if limited and rows > (options.max_rows_per_batch or rows) and end != start:
                break
            end = Position(table.location, version, change.transaction)
        return end

    def _is_refused(self, change: Change) -> bool:
        if self._options.skip_changes:
            return False
        return change.loses_rows or (self._options.changes is Changes.APPENDS and bool(change.touched))

    def _first_state(self, table: OpenTable, start: Position | None, end: Position) -> list[Reading]:
        begin = 0 if start is None else start.fragments
        pieces = self._pieces_at(table, end.version)[begin : end.fragments]
        return [self._reading(table, end.version, pieces)] if pieces else []

    def _pieces_at(self, table: OpenTable, version: int) -> tuple[Piece, ...]:
        dataset = table.dataset
        if version != table.version:
            try:
                dataset = checkout(dataset, version, f"version {version} of {table.name}")
            except TableVersionNotFoundError as cause:
                raise gone(table.dataset, version, table.name) from cause
        return pieces_of(each.metadata for each in dataset.get_fragments())

    def _readings_of(self, table: OpenTable, change: Change) -> list[Reading]:
        if self._is_refused(change):
            raise _refused(table, change, self._options.changes)
        touched = change.touched if self._options.changes is Changes.ROWS else ()
        if not change.inserted and not touched:
            return []
        reading = self._reading(table, change.version, change.inserted)
        updated = replace(reading, pieces=touched, updated_after=change.read_version)
        return [each for each in (reading, updated) if each.pieces]

    def _reading(self, table: OpenTable, version: int, pieces: tuple[Piece, ...]) -> Reading:
        dataset = checkout(table.dataset, version, f"version {version} of {table.name}")
        columns = columns_at(dataset, table.dataset, self._names, table.name)
        shape = self._shapes.setdefault(str(dataset.schema), len(self._shapes))
        return Reading(version, columns, pieces, shape)


def tasks_of(readings: Iterable[Reading], *, rows_per_task: int = ROWS_PER_TASK) -> list[tuple[Reading, ...]]:
    """Return the readings as tasks of about so many rows; a fragment is not split."""
    tasks: list[tuple[Reading, ...]] = []
    task: list[Reading] = []
    rows = 0
    for reading in readings:
        for piece in reading.pieces:
            if task and rows + piece.rows > rows_per_task:
                tasks.append(tuple(task))
                task, rows = [], 0
            if task and task[-1].version == reading.version and _alike(task[-1], reading):
                task[-1] = replace(task[-1], pieces=(*task[-1].pieces, piece))
            else:
                task.append(replace(reading, pieces=(piece,)))
            rows += piece.rows
    return [*tasks, tuple(task)] if task else tasks


def _alike(one: Reading, other: Reading) -> bool:
    return replace(one, pieces=()) == replace(other, pieces=())


def _require_same(table: OpenTable, history: History, position: Position) -> None:
    """Check that the table is the one that the stream has read so far."""
    if position.location == table.location and position.version <= table.version:
        known = history.transaction_id(position.version) if position.version else None
        if known is None or known == position.transaction:  # None: cleaned up, so that nobody can tell
            return
    raise InvalidTableStateError(
        f"{table.name} was replaced after the stream read version {position.version}; "
        "start with a new checkpoint"
    )


def _refused(table: OpenTable, change: Change, changes: Changes) -> InvalidTableStateError:
    what = f"version {change.version} of {table.name} changed rows ({change.operation})"
    if change.touched and changes is Changes.APPENDS and table.dataset.has_stable_row_ids:
        hint = "set changes=rows to stream updated rows, or skip_changes=true to continue without them"
    elif changes is Changes.ROWS:
        hint = "Lance cannot stream removed rows; set skip_changes=true to continue without them"
    else:
        hint = "the stream has only appended rows; set skip_changes=true to continue without the changes"
    return InvalidTableStateError(
        f"{what}: {hint}, or start with a new checkpoint to read the whole table again"
    )
