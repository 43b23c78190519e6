"""What calls of the lifecycle promise, as a sequential model of one name, and a check of a history.

A history is right when some order of its calls, one that respects which had ended before which
began, explains every answer and what the store now shows. Calls that crashed, are under way or were
answered with "try again" may count as done or as not done.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any


class Kind(StrEnum):
    """What a name is, seen from outside."""

    NONE = "none"
    """Nothing there: never created, or purged."""
    LIVE = "live"
    DECLARED = "declared"
    DROPPED = "dropped"


@dataclass(frozen=True, slots=True)
class Name:
    """The state of one name: its kind and the data that is visible or hidden."""

    kind: Kind
    data: Any = None


NOTHING = Name(Kind.NONE)
PURGED = Name(Kind.NONE, "purged")
"""Looks like nothing, but a declare may be refused for a while."""


class Verb(StrEnum):
    """The calls that the model knows."""

    CREATE = "create"
    OVERWRITE = "overwrite"
    DECLARE = "declare"
    DROP = "drop"
    UNDROP = "undrop"
    PURGE = "purge"
    OTHER = "other"
    """Changes nothing that can be seen."""


@dataclass(frozen=True, slots=True)
class Call:
    """One call of a history; `answer` is "ok", the name of the error, or None when there was none."""

    verb: Verb
    data: Any
    started: int
    ended: int | None
    answer: str | None


_SETTLED_ERRORS = frozenset({"TableNotFoundError", "TableAlreadyExistsError", "InvalidTableStateError"})
"""Answers that promise: nothing was changed, and the state was so."""

_REFUSED_IN: dict[tuple[Verb, str], frozenset[Kind]] = {
    (Verb.CREATE, "TableAlreadyExistsError"): frozenset({Kind.LIVE}),
    (Verb.DECLARE, "TableAlreadyExistsError"): frozenset({Kind.LIVE, Kind.DECLARED, Kind.DROPPED}),
    (Verb.DROP, "TableNotFoundError"): frozenset({Kind.NONE, Kind.DROPPED}),
    (Verb.UNDROP, "TableNotFoundError"): frozenset({Kind.NONE}),
    (Verb.UNDROP, "TableAlreadyExistsError"): frozenset({Kind.LIVE, Kind.DECLARED}),
    (Verb.PURGE, "TableNotFoundError"): frozenset({Kind.NONE}),
    (Verb.PURGE, "InvalidTableStateError"): frozenset({Kind.LIVE, Kind.DECLARED}),
}


def _effect(call: Call, name: Name) -> Name | None:
    """Return the state after the call took effect, or None when it cannot in this state."""
    match call.verb, name.kind:
        case (Verb.CREATE, Kind.NONE | Kind.DROPPED | Kind.DECLARED) | (Verb.OVERWRITE, _):
            return Name(Kind.LIVE, call.data)
        case Verb.DECLARE, Kind.NONE:
            return Name(Kind.DECLARED)
        case Verb.DROP, Kind.LIVE | Kind.DECLARED:
            return Name(Kind.DROPPED, name)
        case Verb.UNDROP, Kind.DROPPED:
            assert isinstance(name.data, Name)
            return name.data
        case Verb.PURGE, Kind.DROPPED | Kind.NONE:
            return PURGED  # from none: left-overs below a tombstone
        case Verb.OTHER, _:
            return name
    return None


def _after(call: Call, name: Name) -> Iterator[Name]:
    """Yield the states that the call and its answer allow."""
    done = _effect(call, name)
    if call.answer == "ok":
        if done is not None:
            yield done
    elif call.answer in _SETTLED_ERRORS:
        refused_in = _REFUSED_IN.get((call.verb, call.answer or ""), frozenset(Kind))
        if name.kind in refused_in or (call.verb is Verb.DECLARE and name == PURGED):
            yield name
    else:
        yield name
        if done is not None:
            yield done


def is_explained(calls: Sequence[Call], start: Name, seen: Name) -> bool:
    """Tell whether some order of the calls leads from `start` to what is `seen`."""
    return _search(frozenset(range(len(calls))), calls, start, seen)


def _search(left: frozenset[int], calls: Sequence[Call], name: Name, seen: Name) -> bool:
    if all(calls[index].ended is None for index in left) and _looks_like(name, seen):
        return True  # what is still under way may count as not done
    for index in left:
        begun_after = (
            other for other in left if (end := calls[other].ended) is not None and end <= calls[index].started
        )
        if any(True for _ in begun_after):
            continue
        if any(_search(left - {index}, calls, after, seen) for after in _after(calls[index], name)):
            return True
    return False


def _looks_like(name: Name, seen: Name) -> bool:
    return name == seen or (name.kind is Kind.NONE and seen.kind is Kind.NONE)
