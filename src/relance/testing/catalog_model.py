"""What the lifecycle promises where a manifest keeps several generations of a name: a sequential model.

As lifecycle_model, which is for a name with one generation; here a name is a live table, if there is
one, and any number of dropped ones.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any

from relance.lifecycle.marker import decode
from relance.lifecycle.states import State
from relance.locations import MARKER_SUFFIX, RESERVED_FILE, VERSIONS_DIRECTORY, table_directory
from relance.manifest.entry import Entry, ObjectType
from relance.testing.lifecycle_model import Call, Verb
from relance.testing.model_manifest import MODEL_KEY, read_model

DECLARED = "declared, without data"


@dataclass(frozen=True, slots=True)
class Versions:
    """A name: what is visible under it, and what is dropped; contents are data or DECLARED."""

    live: Any = None
    dropped: tuple[Any, ...] = ()
    """In no order: drops of the same moment have none."""


@dataclass(frozen=True, slots=True)
class Seen:
    """What a store shows of a name."""

    live: Any
    dropped: tuple[Any, ...]
    moving: int
    """Generations that a purge or a revival holds: dropped or not, depending on what holds them."""


_SETTLED_ERRORS = frozenset({"TableNotFoundError", "TableAlreadyExistsError", "InvalidTableStateError"})


def _without(dropped: tuple[Any, ...], one: Any) -> tuple[Any, ...]:
    rest = list(dropped)
    rest.remove(one)
    return tuple(sorted(rest))


def _effects(call: Call, name: Versions) -> Iterator[Versions]:
    """Yield the states that follow when the call takes effect; none when it cannot."""
    live, dropped = name.live, name.dropped
    match call.verb:
        case Verb.CREATE | Verb.OVERWRITE:
            if live is None and dropped:
                for each in dropped:
                    yield Versions(call.data, _without(dropped, each))
            elif live is None or live == DECLARED or call.verb is Verb.OVERWRITE:
                yield replace(name, live=call.data)
        case Verb.DECLARE if live is None:
            yield replace(name, live=DECLARED)
        case Verb.DROP if live is not None:
            yield Versions(None, tuple(sorted((*dropped, live))))
        case Verb.UNDROP if live is None:
            for each in dropped:
                yield Versions(each, _without(dropped, each))
        case Verb.PURGE:
            for count in range(1, len(dropped) + 1):
                for gone in combinations(dropped, count):
                    rest = dropped
                    for each in gone:
                        rest = _without(rest, each)
                    yield replace(name, dropped=rest)
        case Verb.OTHER:
            yield name


def _is_refused(call: Call, name: Versions) -> bool:
    """Tell whether the answer, an error that promises nothing was changed, is right in this state."""
    match call.verb, call.answer:
        case ((Verb.CREATE | Verb.DECLARE), "TableAlreadyExistsError"):
            return name.live is not None
        case Verb.DROP, "TableNotFoundError":
            return name.live is None
        case Verb.UNDROP, "TableNotFoundError":
            return not name.dropped and name.live is None
        case Verb.UNDROP, "TableAlreadyExistsError":
            return name.live is not None
        case Verb.PURGE, "TableNotFoundError":
            return not name.dropped and name.live is None
        case Verb.PURGE, "InvalidTableStateError":
            return name.live is not None and not name.dropped
    return False


def _after(call: Call, name: Versions) -> Iterator[Versions]:
    if call.answer == "ok":
        yield from _effects(call, name)
    elif call.answer in _SETTLED_ERRORS:
        if _is_refused(call, name):
            yield name
    else:
        yield name
        yield from _effects(call, name)


def is_explained(calls: Sequence[Call], start: Versions, seen: Seen) -> bool:
    """Tell whether some order of the calls leads from `start` to what is `seen`."""
    return _search(frozenset(range(len(calls))), calls, start, seen)


def _search(left: frozenset[int], calls: Sequence[Call], name: Versions, seen: Seen) -> bool:
    if all(calls[index].ended is None for index in left) and _looks_like(name, seen):
        return True  # what is still under way may count as not done
    for index in left:
        if any((end := calls[other].ended) is not None and end <= calls[index].started for other in left):
            continue
        if any(_search(left - {index}, calls, after, seen) for after in _after(calls[index], name)):
            return True
    return False


def _looks_like(name: Versions, seen: Seen) -> bool:
    if name.live != seen.live:
        return False
    rest = list(name.dropped)
    for each in seen.dropped:
        if each not in rest:
            return False
        rest.remove(each)
    return len(rest) <= seen.moving


def observe(objects: dict[str, bytes], parts: tuple[str, ...]) -> tuple[Seen, str | None]:
    """Return what a store shows of a table of the model, and what is broken about it, if anything."""
    body = objects.get(MODEL_KEY)
    rows = {} if body is None else dict(read_model(body, None).rows)
    row = rows.get("$".join(parts))
    gone = [each for each in rows.values() if each.is_dropped and each.original_parts == parts]
    seen = _Gathered()
    home = table_directory(parts[0]) if len(parts) == 1 else None
    for each in gone:
        if each.location != home:
            seen.add_dropped(objects, each)
    if row is not None and row.object_type == ObjectType.TABLE and row.location != home:
        if row.is_visible:
            seen.live, seen.broken = content_of(objects, row.location or "")
            seen.live = seen.live if seen.live is not None else DECLARED
        else:
            seen.moving += 1
        row_wins = True
    else:
        row_wins = False
    if home is not None:
        seen.add_home(objects, parts[0], home, shadowed=row_wins)
    return Seen(seen.live, tuple(sorted(seen.dropped)), seen.moving), seen.broken


class _Gathered:
    """What was found of a name so far."""

    def __init__(self) -> None:
        self.live: Any = None
        self.dropped: list[Any] = []
        self.moving = 0
        self.broken: str | None = None

    def add_dropped(self, objects: dict[str, bytes], entry: Entry) -> None:
        marker = entry.marker
        if marker is None or marker.state is not State.DELETED:
            self.moving += 1
            return
        self._add(objects, entry.location or "")

    def add_home(self, objects: dict[str, bytes], name: str, home: str, *, shadowed: bool) -> None:
        """Add what the directory of the name holds, as its marker says."""
        body = objects.get(name + MARKER_SUFFIX)
        marker = None if body is None else decode(body, name=name)
        if marker is None or not marker.hides:
            content, broken = content_of(objects, home)
            if content is not None and not shadowed:
                self.live, self.broken = content, broken
        elif marker.state is State.DELETED:
            self._add(objects, home)
        elif marker.state in {State.PURGING, State.REVIVING}:
            self.moving += 1

    def _add(self, objects: dict[str, bytes], directory: str) -> None:
        content, broken = content_of(objects, directory)
        self.dropped.append(DECLARED if content is None else content)
        self.broken = self.broken or broken


def content_of(objects: dict[str, bytes], directory: str) -> tuple[Any, str | None]:
    prefix = f"{directory}/{VERSIONS_DIRECTORY}/"
    manifests = sorted(key for key in objects if key.startswith(prefix))
    if not manifests:
        return (DECLARED if f"{directory}/{RESERVED_FILE}" in objects else None), None
    latest = json.loads(objects[manifests[0]])  # V2 names: the newest sorts first
    missing = [file for file in latest["files"] if file not in objects]
    broken = f"the latest manifest names {missing}, which are gone" if missing else None
    return latest["data"], broken
