"""What a merge is going to do, fixed before any task runs. Doing it is in merges."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

import lance
import pyarrow as pa

from relance.catalog.context import Context
from relance.errors import ConcurrentModificationError, InvalidInputError, TableColumnNotFoundError
from relance.lance_io import TableRef
from relance.operations.pinned import Moment, pin_table
from relance.operations.requests import parse_mode
from relance.operations.staging.plan import WriteMode, WritePlan, WriteRequest, plan_write
from relance.operations.targets import open_for_writing


class WhenMatched(StrEnum):
    """What becomes of a row of the table that has the key of a new one."""

    UPDATE_ALL = "update_all"


class WhenNotMatched(StrEnum):
    """What becomes of a new row whose key is not in the table."""

    INSERT_ALL = "insert_all"


class WhenNotMatchedBySource(StrEnum):
    """What becomes of a row of the table whose key no new row has."""

    DELETE = "delete"


@dataclass(frozen=True, slots=True)
class Clauses:
    """What a merge does with which rows."""

    update: bool = True
    insert: bool = True
    delete: bool = False
    update_if: str | None = None
    """Which matches are updated, as the engine writes conditions on `source` and `target`."""
    delete_if: str | None = None
    """Which of the rows that no new row matches are deleted, as a predicate of Lance."""


def parse_clauses(
    when_matched: str | None,
    when_not_matched: str | None,
    when_not_matched_by_source: str | None,
    *,
    update_if: str | None = None,
    delete_if: str | None = None,
) -> Clauses:
    """Return what is asked for.

    Raises:
        InvalidInputError: a clause is unknown, there is none, or a condition has no clause.
    """
    clauses = Clauses(
        update=when_matched is not None
        and bool(parse_mode(when_matched, WhenMatched, default=WhenMatched.UPDATE_ALL)),
        insert=when_not_matched is not None
        and bool(parse_mode(when_not_matched, WhenNotMatched, default=WhenNotMatched.INSERT_ALL)),
        delete=when_not_matched_by_source is not None
        and bool(
            parse_mode(
                when_not_matched_by_source, WhenNotMatchedBySource, default=WhenNotMatchedBySource.DELETE
            )
        ),
        update_if=update_if,
        delete_if=delete_if,
    )
    if not (clauses.update or clauses.insert or clauses.delete):
        raise InvalidInputError("the merge has nothing to do: set at least one clause")
    if update_if is not None and not clauses.update:
        raise InvalidInputError("update_if requires when_matched='update_all'")
    if delete_if is not None and not clauses.delete:
        raise InvalidInputError("delete_if requires when_not_matched_by_source='delete'")
    return clauses


@dataclass(frozen=True, slots=True)
class MergeRequest:
    """What is to be merged into which table."""

    parts: tuple[str, ...]
    on: tuple[str, ...]
    """The columns that make the key."""
    clauses: Clauses
    check: Callable[[pa.Schema], None]
    """Refuses new rows that do not fit the schema of the table."""


@dataclass(frozen=True, slots=True)
class MergePlan:
    """What tasks and the commit need to know. It can be pickled."""

    table: TableRef
    """The version that is read and that the commit is based on."""
    on: tuple[str, ...]
    clauses: Clauses
    write: WritePlan
    last_fragment: int
    """The highest number of a fragment, -1 when there is none: rows that others add have higher ones."""
    fragments: int
    rows: int
    stable_row_ids: bool
    fields: tuple[int, ...]
    """Lance's numbers of all columns, also of nested ones."""


def plan_merge(context: Context, request: MergeRequest) -> MergePlan:
    """Return the plan of a merge into the table as it is now.

    Raises:
        TableNotFoundError: there is no such table, or it is only declared.
        TableColumnNotFoundError: the table has no such key.
        TableSchemaValidationError: the rows do not fit.
        ConcurrentModificationError: the table changed its place while it was looked at.
    """
    # Planning a write would prepare to create what is not there.
    found = open_for_writing(context, request.parts).found
    write = plan_write(context, WriteRequest(request.parts, WriteMode.APPEND, _checked(request)))
    if write.fields is None or write.directory != found.directory:
        raise ConcurrentModificationError(
            f"table id '{write.table_id}' was replaced during the merge; retry the merge"
        )
    table = pin_table(context, request.parts, Moment(version=write.seen_version))
    dataset = table.open()
    numbers = [fragment.fragment_id for fragment in dataset.get_fragments()]
    return MergePlan(
        table=table,
        on=request.on,
        clauses=request.clauses,
        write=write,
        last_fragment=max(numbers, default=-1),
        fragments=len(numbers),
        rows=dataset.count_rows(),
        stable_row_ids=dataset.has_stable_row_ids,
        fields=tuple(_numbers(dataset.lance_schema.fields())),
    )


def _checked(request: MergeRequest) -> Callable[[pa.Schema | None], pa.Schema]:
    def schema_for(existing: pa.Schema | None) -> pa.Schema:
        if existing is None:
            raise ConcurrentModificationError("the table was removed during the merge; retry the merge")
        missing = [name for name in request.on if name not in existing.names]
        if missing:
            raise TableColumnNotFoundError(
                f"key column '{missing[0]}' is not in the table; its columns are: {', '.join(existing.names)}"
            )
        request.check(existing)
        return existing

    return schema_for


def _numbers(fields: Sequence[lance.schema.LanceField]) -> Iterator[int]:
    for each in fields:
        yield each.id()
        yield from _numbers(each.children())
