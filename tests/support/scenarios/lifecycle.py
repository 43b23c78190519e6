"""Scenarios for the explorer: real operations of the lifecycle over the model of Lance."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

from lance_namespace import DeclareTableRequest

from relance.config import StorageOptions, parse_properties
from relance.errors import ConcurrentModificationError, RelanceError, TableAlreadyExistsError
from relance.identifiers import TableId
from relance.lifecycle.marker_store import new_nonce, read_marker
from relance.lifecycle.retention import Timing
from relance.listing.layout import flag_new_root
from relance.listing.signs import sign_creating
from relance.locations import CREATING_SUFFIX, DECLARED_SUFFIX, parse_root
from relance.operations.context import Context
from relance.operations.create import create
from relance.operations.declare import declare_table
from relance.operations.deletion import PurgeOptions
from relance.operations.directory.sweep import sweep_markers
from relance.operations.drop import drop, undrop_table
from relance.operations.new_table import CreateMode, NewTable, WrittenData
from relance.operations.purge import purge_table
from relance.operations.scrub import scrub as run_scrub
from relance.storage.connect import Connection
from relance.storage.probe import capabilities
from relance.storage.protocol import ObjectStorage
from relance.testing.clock import ManualClock
from relance.testing.explorer import Actor, Run, Scenario, Start
from relance.testing.lifecycle_model import Call, Kind, Name, Verb, is_explained, observe
from relance.testing.model_tables import ModelTables

ROOT = parse_root("memory://explorer")
SETTINGS = parse_properties({"root": ROOT.uri, "manifest_enabled": "false"})
TABLE = "t"
TABLE_ID = TableId((), TABLE)
TIMING = Timing()
TICK = TIMING.lease + TIMING.clock_skew + TIMING.request_age + timedelta(minutes=5)
LONG = TIMING.quarantine + timedelta(days=1)

Step = tuple[str, Callable[[Context], Any]]


def context_on(storage: ObjectStorage, clock: ManualClock) -> Context:
    """Return a context over the model of Lance."""
    return Context(
        settings=SETTINGS,
        root=ROOT,
        connection=Connection(storage, "memory-model", StorageOptions()),
        clock=clock,
        tables=ModelTables(storage, clock),
        timing=TIMING,
    )


def _new(data: str) -> NewTable:
    return NewTable(TABLE_ID, data, StorageOptions())  # the model takes any JSON value for data


def creates(data: str) -> Step:
    return f"{Verb.CREATE}:{data}", lambda context: create(context, _new(data), CreateMode.CREATE)


def overwrites(data: str) -> Step:
    return f"{Verb.OVERWRITE}:{data}", lambda context: create(context, _new(data), CreateMode.OVERWRITE)


def _written(context: Context, data: str, mode: CreateMode) -> Any:
    """Do what a distributed write does: the files first, by others, and the table's state afterwards."""
    seen = read_marker(context.storage, TABLE)
    hidden = seen.marker.nonce if seen is not None and seen.marker.hides else None
    sign_creating(context.storage, TABLE)
    file = f"{new_nonce()}.lance"
    context.storage.create(f"{TABLE}.lance/data/{file}", json.dumps(data).encode())
    written = WrittenData(f"{TABLE}.lance", data, (), frozenset({file}), marker=hidden)
    return create(context, NewTable(TABLE_ID, written, StorageOptions()), mode)


def creates_of_files(data: str) -> Step:
    return f"{Verb.CREATE}:{data}", lambda context: _written(context, data, CreateMode.CREATE)


def overwrites_of_files(data: str) -> Step:
    return f"{Verb.OVERWRITE}:{data}", lambda context: _written(context, data, CreateMode.OVERWRITE)


def declares() -> Step:
    return (
        Verb.DECLARE.value,
        lambda context: declare_table(context, DeclareTableRequest(id=[TABLE])).location,
    )


def drops() -> Step:
    return Verb.DROP.value, lambda context: drop(context, TABLE_ID, timedelta(days=1))[2].deletion_id


def undrops() -> Step:
    return Verb.UNDROP.value, lambda context: undrop_table(context, TABLE_ID)


def _purge(context: Context) -> int:
    (result,) = purge_table(context, TABLE_ID, PurgeOptions(force=True))
    if result.error is not None:
        raise result.error
    return result.files


def purges() -> Step:
    return Verb.PURGE.value, _purge


def sweeps() -> Step:
    return Verb.OTHER.value, lambda context: tuple(sweep_markers(context, dry_run=False))


def scrubs() -> Step:
    return Verb.OTHER.value, lambda context: len(run_scrub(context, repair=True))


def history(run: Run) -> list[Call]:
    """Return the calls of all actors, as far as they came."""
    return [call for actor in run.actors for call in _calls(actor)]


def _calls(actor: Actor) -> Iterator[Call]:
    for index, started in enumerate(actor.started):
        verb, _, data = actor.names[index].partition(":")
        ended = actor.ended[index] if index < len(actor.ended) else None
        answer = actor.outcomes[index][0] if index < len(actor.outcomes) else None
        yield Call(Verb(verb), data or None, started, ended, answer)


def make_scenario(
    actors: Sequence[Sequence[Step]],
    *,
    start: Sequence[Step] = (),
    age: timedelta | None = None,
    signs_matter: bool = False,
) -> Scenario:
    """Return a scenario that begins after the `start` steps, done one after another and `age` ago."""

    def prepare(beginning: Start) -> None:
        context = context_on(beginning.store, beginning.clock)
        capabilities(beginning.store)
        flag_new_root(beginning.store)
        for _, step in start:
            step(context)
        if age is not None:
            beginning.clock.advance(age)
        begun[:] = [observe(beginning.store.snapshot(), TABLE)[0]]

    begun: list[Name] = []
    rested: set[frozenset[tuple[str, bytes]]] = set()

    def check(run: Run) -> str | None:
        objects = run.store.snapshot()
        seen, broken = observe(objects, TABLE)
        if broken is not None:
            return f"broken table ({seen.kind}): {broken}"
        if not is_explained(history(run), begun[0], seen):
            return f"no order of the calls explains {seen}"
        if not any(actor.waiting for actor in run.actors):
            content = frozenset(objects.items())
            if content not in rested:
                rested.add(content)
                return _check_not_wedged(run)
        return None

    return Scenario(
        actors=actors,
        prepare=prepare,
        context=lambda run: context_on(run.storage, run.clock),
        check=check,
        tick=TICK,
        quiet=lambda key: key.endswith((CREATING_SUFFIX, DECLARED_SUFFIX)) and not signs_matter,
    )


def _check_not_wedged(run: Run) -> str | None:
    """At rest, after a while, the name can be created again, or it is live and can be dropped."""
    clock = replace(run.clock)
    clock.advance(TICK)
    store = run.store.copy(clock)
    context = context_on(store, clock)
    shown, _ = observe(store.snapshot(), TABLE)
    try:
        if shown.kind is Kind.LIVE:
            drop(context, TABLE_ID, timedelta(days=1))
            undrop_table(context, TABLE_ID)
        _create_at_last(context)
    except RelanceError as error:
        return f"wedged: {error}"
    seen, broken = observe(store.snapshot(), TABLE)
    if seen != Name(Kind.LIVE, "last") or broken is not None:
        return f"after a new create the name shows {seen}, {broken}"
    return None


def _create_at_last(context: Context) -> None:
    """Create the table as a user would who reads the errors."""
    try:
        create(context, _new("last"), CreateMode.CREATE)
        return
    except TableAlreadyExistsError:
        drop(context, TABLE_ID, timedelta(days=1))
    except ConcurrentModificationError:
        _purge(context)
    create(context, _new("last"), CreateMode.CREATE)
