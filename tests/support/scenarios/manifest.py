"""Scenarios for the explorer where a manifest decides: in rows alone, and beside directories."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import timedelta
from enum import StrEnum
from typing import Any

from lance_namespace import DeclareTableRequest
from tests.support.scenarios.lifecycle import ROOT, TICK, TIMING, Step, history

from relance.config import StorageOptions, parse_properties
from relance.errors import ConcurrentModificationError, RelanceError, TableAlreadyExistsError
from relance.identifiers import TableId
from relance.listing.layout import flag_new_root
from relance.locations import CREATING_SUFFIX, DECLARED_SUFFIX
from relance.manifest.entry import Entry, ObjectType
from relance.manifest.store import Change, transact
from relance.operations.context import Context
from relance.operations.create import create
from relance.operations.declare import declare_table
from relance.operations.deletion import PurgeOptions
from relance.operations.drop import drop, undrop_table
from relance.operations.new_table import CreateMode, NewTable
from relance.operations.purge import purge_table
from relance.storage.connect import Connection
from relance.storage.probe import capabilities
from relance.storage.protocol import ObjectStorage
from relance.testing.catalog_model import Versions, is_explained, observe
from relance.testing.clock import ManualClock
from relance.testing.explorer import Run, Scenario, Start
from relance.testing.lifecycle_model import Verb
from relance.testing.model_manifest import ModelManifest
from relance.testing.model_tables import ModelTables


class Mode(StrEnum):
    """Who decides about the table."""

    ROWS = "rows"
    BOTH = "compatibility"


SETTINGS = {
    mode: parse_properties({"root": ROOT.uri, "dir_listing_enabled": str(mode is Mode.BOTH).lower()})
    for mode in Mode
}
TABLES = {Mode.ROWS: TableId(("n",), "t"), Mode.BOTH: TableId((), "t")}


def context_on(storage: ObjectStorage, clock: ManualClock, mode: Mode) -> Context:
    """Return a context over the models of Lance and of the manifest."""
    return Context(
        settings=SETTINGS[mode],
        root=ROOT,
        connection=Connection(storage, "memory-model", StorageOptions()),
        clock=clock,
        tables=ModelTables(storage, clock),
        timing=TIMING,
        manifest=ModelManifest(storage),
    )


def _table(context: Context) -> TableId:
    return TABLES[Mode.BOTH if context.settings.dir_listing else Mode.ROWS]


def _create(context: Context, data: str, mode: CreateMode) -> int:
    return create(context, NewTable(_table(context), data, StorageOptions()), mode).version


def creates(data: str) -> Step:
    return f"{Verb.CREATE}:{data}", lambda context: _create(context, data, CreateMode.CREATE)


def overwrites(data: str) -> Step:
    return f"{Verb.OVERWRITE}:{data}", lambda context: _create(context, data, CreateMode.OVERWRITE)


def declares() -> Step:
    def declare(context: Context) -> Any:
        return declare_table(context, DeclareTableRequest(id=_table(context).parts)).location

    return Verb.DECLARE.value, declare


def drops() -> Step:
    return Verb.DROP.value, lambda context: drop(context, _table(context), timedelta(days=1))[2].deletion_id


def undrops() -> Step:
    return Verb.UNDROP.value, lambda context: undrop_table(context, _table(context))


def _purge(context: Context) -> int:
    results = purge_table(context, _table(context), PurgeOptions(force=True))
    for each in results:
        if each.error is not None:
            raise each.error
    return sum(each.files for each in results)


def purges() -> Step:
    return Verb.PURGE.value, _purge


def make_scenario(
    actors: Sequence[Sequence[Step]],
    *,
    mode: Mode,
    start: Sequence[Step] = (),
    age: timedelta | None = None,
) -> Scenario:
    """Return a scenario that begins after the `start` steps, done one after another and `age` ago."""
    parts = tuple(TABLES[mode].parts)

    def prepare(beginning: Start) -> None:
        context = context_on(beginning.store, beginning.clock, mode)
        capabilities(beginning.store)
        flag_new_root(beginning.store)
        assert context.manifest is not None
        transact(context.manifest, lambda _: (Change(added=(Entry("n", ObjectType.NAMESPACE),)), None))
        for _, step in start:
            step(context)
        if age is not None:
            beginning.clock.advance(age)
        seen, _ = observe(beginning.store.snapshot(), parts)
        begun[:] = [Versions(seen.live, seen.dropped)]

    begun: list[Versions] = []
    rested: set[frozenset[tuple[str, bytes]]] = set()

    def check(run: Run) -> str | None:
        objects = run.store.snapshot()
        seen, broken = observe(objects, parts)
        if broken is not None:
            return f"broken table: {broken}"
        if not is_explained(history(run), begun[0], seen):
            return f"no order of the calls explains {seen}"
        if not any(actor.waiting for actor in run.actors):
            content = frozenset(objects.items())
            if content not in rested:
                rested.add(content)
                return _check_not_wedged(run, mode)
        return None

    return Scenario(
        actors=actors,
        prepare=prepare,
        context=lambda run: context_on(run.storage, run.clock, mode),
        check=check,
        tick=TICK,
        quiet=lambda key: key.endswith((CREATING_SUFFIX, DECLARED_SUFFIX)),
    )


def _check_not_wedged(run: Run, mode: Mode) -> str | None:
    """At rest, after a while, the name can be created again and reads as it was written."""
    clock = replace(run.clock)
    clock.advance(TICK)
    store = run.store.copy(clock)
    context = context_on(store, clock, mode)
    try:
        _create_at_last(context)
    except RelanceError as error:
        return f"wedged: {error}"
    seen, broken = observe(store.snapshot(), tuple(TABLES[mode].parts))
    if seen.live != "last" or broken is not None:
        return f"after a new create the name shows {seen}, {broken}"
    return None


def _create_at_last(context: Context) -> None:
    """Create the table as a user would who reads the errors."""
    attempts: list[Callable[[Context], Any]] = [lambda _: None]
    for _ in range(4):
        try:
            attempts[-1](context)
            _create(context, "last", CreateMode.CREATE)
            return
        except TableAlreadyExistsError:
            attempts.append(lambda each: drop(each, _table(each), timedelta(days=1)))
        except ConcurrentModificationError:
            attempts.append(_purge)
    raise ConcurrentModificationError("neither a drop nor a purge helped")
