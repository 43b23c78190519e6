"""Scenarios for the explorer with two root names in compatibility mode: tables move from one to the other."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

from lance_namespace import RenameTableRequest
from tests.support.scenarios.lifecycle import TICK, Step
from tests.support.scenarios.manifest import Mode, context_on

from relance.config import StorageOptions
from relance.errors import RelanceError, TableNotFoundError
from relance.identifiers import TableId
from relance.lifecycle.states import State
from relance.listing.layout import flag_new_root
from relance.locations import CREATING_SUFFIX, DECLARED_SUFFIX, table_directory
from relance.operations.context import Context
from relance.operations.create import create
from relance.operations.drop import drop, undrop_table
from relance.operations.generations import all_generations
from relance.operations.new_table import CreateMode, NewTable
from relance.operations.places import visible_table
from relance.operations.rename import rename_table
from relance.storage.memory import MemoryStorage
from relance.storage.probe import capabilities
from relance.testing.catalog_model import content_of
from relance.testing.explorer import Run, Scenario, Start
from relance.testing.model_manifest import ModelManifest

NAMES = ("t", "u")


def _id(name: str) -> TableId:
    return TableId((), name)


def creates(name: str, data: str) -> Step:
    new = NewTable(_id(name), data, StorageOptions())
    return f"create {name} {data}", lambda context: create(context, new, CreateMode.CREATE).version


def drops(name: str) -> Step:
    return f"drop {name}", lambda context: drop(context, _id(name), timedelta(days=1))[2].deletion_id


def undrops(name: str) -> Step:
    return f"undrop {name} {name}", lambda context: undrop_table(context, _id(name))


def undrops_as(name: str, target: str) -> Step:
    return f"undrop {name} {target}", lambda context: undrop_table(context, _id(name), target=_id(target))


def renames(name: str, target: str) -> Step:
    request = RenameTableRequest(id=[name], new_table_name=target)
    return f"rename {name} {target}", lambda context: rename_table(context, request)


@dataclass(frozen=True, slots=True)
class Catalog:
    """What there is: each table with its name and its data."""

    live: frozenset[tuple[str, Any]] = frozenset()
    dropped: frozenset[tuple[str, Any]] = frozenset()

    def has(self, name: str) -> bool:
        return any(each == name for each, _ in self.live)


def _effects(call: str, before: Catalog) -> Iterator[Catalog]:
    """Yield what follows when the call takes effect."""
    verb, name, *rest = call.split()
    live, dropped = before.live, before.dropped
    match verb:
        case "create" if not before.has(name):
            # Over what is dropped; or beside it, if that is about to leave the directory of the name.
            new = live | {(name, rest[0])}
            yield Catalog(new, dropped)
            yield from (Catalog(new, dropped - {each}) for each in dropped if each[0] == name)
        case "drop":
            yield from (Catalog(live - {each}, dropped | {each}) for each in live if each[0] == name)
        case "undrop" if not before.has(rest[0]):
            for each in dropped:
                if each[0] == name:
                    yield Catalog(live | {(rest[0], each[1])}, dropped - {each})
        case "rename" if not before.has(rest[0]):
            for each in live:
                if each[0] == name:
                    yield Catalog((live - {each}) | {(rest[0], each[1])}, dropped)


_CHANGED_NOTHING = frozenset({"TableNotFoundError", "TableAlreadyExistsError", "InvalidTableStateError"})


@dataclass(frozen=True, slots=True)
class _Call:
    text: str
    started: int
    ended: int | None
    answer: str | None

    def after(self, before: Catalog) -> Iterator[Catalog]:
        if self.answer != "ok":
            yield before
        if self.answer not in _CHANGED_NOTHING:
            yield from _effects(self.text, before)


def _history(run: Run) -> list[_Call]:
    found: list[_Call] = []
    for actor in run.actors:
        for index, started in enumerate(actor.started):
            ended = actor.ended[index] if index < len(actor.ended) else None
            answer = actor.outcomes[index][0] if index < len(actor.outcomes) else None
            found.append(_Call(actor.names[index], started, ended, answer))
    return found


def _is_explained(left: frozenset[_Call], state: Catalog, seen: Catalog) -> bool:
    """Tell whether some order of the calls leads to what is seen."""
    if state == seen and all(each.ended is None for each in left):
        return True
    for each in left:
        if any(other.ended is not None and other.ended <= each.started for other in left):
            continue
        if any(_is_explained(left - {each}, after, seen) for after in each.after(state)):
            return True
    return False


def _look(context: Context) -> Catalog | None:
    """Return what a new client finds; None while a create writes over something dropped.

    What that is then called is open: hidden as before, with the data of the create.
    """
    live: set[tuple[str, Any]] = set()
    for name in NAMES:
        try:
            live.add((name, _data(context, visible_table(context, _id(name)).directory)))
        except TableNotFoundError:
            continue
    dropped = set()
    for each in all_generations(context):
        if each.marker.state is not State.DELETED:
            return None
        home = table_directory(each.table_id.name)
        directory = home if each.entry is None else each.entry.location or ""
        dropped.add((each.table_id.name, _data(context, directory)))
    return Catalog(frozenset(live), frozenset(dropped))


def _look_again(context: Context) -> Catalog:
    found = _look(context)
    assert found is not None  # nobody else is at work
    return found


def _data(context: Context, directory: str) -> Any:
    assert isinstance(context.storage, MemoryStorage)
    data, broken = content_of(context.storage.snapshot(), directory)
    assert broken is None, broken
    return data


def _shared(context: Context) -> list[str]:
    manifest = context.manifest
    assert isinstance(manifest, ModelManifest)
    places = [
        each.location for each in manifest.latest().rows.values() if each.location and not each.moved_to
    ]
    return sorted({each for each in places if places.count(each) > 1})


def make_scenario(actors: Sequence[Sequence[Step]], *, start: Sequence[Step]) -> Scenario:
    """Return a scenario that begins after the `start` steps."""
    begun: list[Catalog] = []
    looks: dict[frozenset[tuple[str, bytes]], tuple[Catalog | None, list[str]]] = {}
    rested: set[frozenset[tuple[str, bytes]]] = set()

    def prepare(beginning: Start) -> None:
        context = context_on(beginning.store, beginning.clock, Mode.BOTH)
        capabilities(beginning.store)
        flag_new_root(beginning.store)
        for _, step in start:
            step(context)
        begun[:] = [_look_again(context)]

    def check(run: Run) -> str | None:
        # Most steps only read: what was seen of the same objects holds.
        content = frozenset(run.store.snapshot().items())
        if content not in looks:
            context = _on_a_copy(run)
            looks[content] = _look(context), _shared(context)
        seen, shared = looks[content]
        if seen is not None and not _is_explained(frozenset(_history(run)), begun[0], seen):
            return f"no order of the calls explains {seen}"
        if shared:
            return f"several rows lead to {shared}"
        if seen is None or any(actor.waiting for actor in run.actors) or content in rested:
            return None
        rested.add(content)
        return _check_not_wedged(run, seen)

    return Scenario(
        actors=actors,
        prepare=prepare,
        context=lambda run: context_on(run.storage, run.clock, Mode.BOTH),
        check=check,
        tick=TICK,
        quiet=lambda key: key.endswith((CREATING_SUFFIX, DECLARED_SUFFIX)),
    )


def _on_a_copy(run: Run) -> Context:
    clock = replace(run.clock)
    return context_on(run.store.copy(clock), clock, Mode.BOTH)


def _check_not_wedged(run: Run, seen: Catalog) -> str | None:
    """At rest, each visible table can be dropped and undropped, at once: nobody waits for the dead."""
    context = _on_a_copy(run)
    for name, data in seen.live:
        try:
            drop(context, _id(name), timedelta(days=1))
        except TableNotFoundError:
            pass  # a drop that was stopped in the middle is finished by this one
        except RelanceError as error:
            return f"'{name}' with {data!r} is wedged: {error}"
        if _look_again(context).has(name):
            return f"'{name}' is there after a drop"
        undrop_table(context, _id(name))
        if (name, data) not in _look_again(context).live:
            return f"'{name}' with {data!r} is gone after a drop and an undrop"
    return None
