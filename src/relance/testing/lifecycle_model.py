"""What the lifecycle promises for one root name: a sequential model, and a monitor of concurrent calls.

The monitor holds all orders of the calls that respect which call ended before another began and that explain
all responses so far. `decide` says from the bodies alone, by the table in docs/format/lifecycle.md, what is
there, independently of the code that is explored.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from relance.locations import CONTROL_SUFFIX, DEREGISTERED_FILE, MARKER_SUFFIX, RESERVED_FILE, table_file
from relance.testing.model_tables import ModelVersion, decode_version, missing_files

Name = tuple[Any, ...]
"""('none',), ('live', data, rowed), ('declared', rowed), ('dropped', what), ('taken', what is at home) or
('hidden', what): deregistered. `rowed` is 0 while no client with a manifest has finished anything with the
table: V2-only may miss it."""

Statuses = tuple[Any, ...]
Orders = frozenset[tuple[Name, Statuses]]
Seen = tuple[str, Any] | str | None
"""('live', data), 'declared', 'taken', or None."""

FOREIGN = frozenset({"sdrop", "sundrop", "spurge", "ncreate", "nappend", "ndrop", "insert"})

DOUBT = "?"
REFUSED = "refused"
"""A definite error: the call had no effect, and has none later."""

ANY = "*"


@dataclass(frozen=True, slots=True)
class Call:
    """One call: the verb, the mode of its client (c both, 1 V1-only, 2 V2-only), and its data."""

    verb: str
    mode: str = "c"
    data: str | None = None

    @property
    def has_manifest(self) -> bool:
        return self.mode in "c2" and self.verb not in FOREIGN

    def __str__(self) -> str:
        return "/".join(part for part in (self.verb, self.mode, self.data) if part)


def published(name: Name) -> Name:
    """Return the name after a client with a manifest has finished something with it."""
    if name[0] == "live":
        return ("live", name[1], 1)
    if name[0] == "declared":
        return ("declared", 1)
    if name[0] == "dropped":
        return (name[0], published(name[1]))
    return name  # the row of a deregistered table is gone


def _hidden(name: Name) -> Name:
    return ("hidden", ("live", name[1], 0) if name[0] == "live" else ("declared", 0))


def _unseen(name: Name) -> bool:
    return bool((name[0] == "live" and name[2] == 0) or (name[0] == "declared" and name[1] == 0))


def moves(call: Call, status: Any, name: Name, undrops: int) -> Iterator[tuple[Any, Name]]:
    """Yield what a call may do next: its new status, and the name."""
    verb, mode, data = call.verb, call.mode, call.data
    if status == "done":
        yield "ok", (published(name) if call.has_manifest and verb != "overwrite" else name)
        return
    if status is not None:
        return
    hidden = name[0] == "hidden" and verb == "drop"
    if mode == "2" and (_unseen(name) or hidden) and verb in {"drop", "undrop", "deregister", "rename"}:
        yield "notfound", name  # no row leads to it yet
    if name[0] == "taken":
        yield from _moves_of_taken(call, name, undrops)
        return
    there = name[0] in {"live", "declared"}
    match verb:
        case "create" | "overwrite":
            if verb == "overwrite" and name[0] == "live":
                yield "done", ("live", data, name[2])
            elif name[0] in {"none", "dropped", "declared"}:
                yield "done", ("live", data, 0)
            if verb == "create" and (there or name[0] == "hidden"):
                yield "exists", name
            if mode == "2" and (name[0] == "none" or _unseen(name) or name[0] == "dropped"):
                yield "done", ("taken", name)  # in a directory of its own
            if mode == "c" and name[0] == "hidden":
                yield "done", ("taken", name)
        case "declare":
            if name[0] == "none":
                yield "done", ("declared", 0)
            if mode in "c2" and name[0] in {"none", "dropped", "hidden"}:
                yield "done", ("taken", name)  # in a directory of its own
            if mode == "2" and _unseen(name):
                yield "done", ("taken", name)
            if name[0] != "none":
                yield "exists", name
            elif mode == "1":
                yield "exists", name  # a tombstone is too young
        case "drop" | "rename":
            if there or (name[0] == "hidden" and verb == "drop"):
                yield "done", ("dropped", name)
            else:
                yield "notfound", name
        case "undrop":
            if name[0] == "dropped":
                yield "done", name[1]
            elif name[0] == "none":
                yield "notfound", name
            else:
                yield "exists", name
                if name[0] == "hidden":
                    yield "notfound", name
                if undrops > 1:
                    yield "done", name  # another client undid the same deletion
        case "purge":
            if name[0] in {"dropped", "none"}:
                yield "done", ("none",)
            if name[0] != "dropped":
                yield "none", name
        case "take":
            if name[0] in {"none", "dropped", "hidden"} or (mode == "2" and _unseen(name)):
                yield "done", ("taken", name)
            if name[0] not in {"none", "dropped", "hidden"}:
                yield "exists", name
        case "deregister":
            if there:
                yield "done", _hidden(name)
            else:
                yield "notfound", name
        case "register":
            if name[0] == "hidden":
                yield "done", name[1]
            elif there:
                yield "exists", name
                if _unseen(name):
                    yield "done", name
            else:
                yield "notfound", name
        case "read":
            for value in may_see(name, mode) - {ANY}:
                yield ("saw", value), name
        case _:
            yield from _moves_of_others(call, name)


def _moves_of_taken(call: Call, name: Name, undrops: int) -> Iterator[tuple[Any, Name]]:
    """What another implementation does at home, or a V1-only client, is not seen behind the row."""
    home = name[1]
    if call.verb in FOREIGN or call.mode == "1" or call.verb == "purge":
        for new, after in moves(call, None, home, undrops):
            yield new, ("taken", after)
    elif call.verb in {"create", "declare", "take", "undrop", "register"}:
        yield "exists", name
        if call.verb == "create":
            yield "done", name  # where the other object is a declared table
    elif call.verb in {"drop", "deregister", "rename"}:
        yield "notfound", name
    elif call.verb == "read":
        yield ("saw", "taken"), name


def _moves_of_others(call: Call, name: Name) -> Iterator[tuple[Any, Name]]:
    there = name[0] in {"live", "declared"}
    match call.verb:
        case "sdrop":
            if there or name[0] == "hidden":
                yield "done", ("dropped", name)
            else:
                yield "done", name
                yield "notfound", name
        case "sundrop":
            yield "done", (name[1] if name[0] == "dropped" else name)
            yield "notfound", name
        case "spurge":
            yield "done", (("none",) if name[0] == "dropped" else name)
            yield "notfound", name
        case "ncreate":
            if name[0] in {"none", "declared"}:
                yield "done", ("live", call.data, 0)
            yield "exists", name
        case "nappend":
            if name[0] == "live":
                yield "done", ("live", call.data, name[2])
            elif name[0] == "dropped" and name[1][0] == "live":
                yield "done", ("dropped", ("live", call.data, name[1][2]))
            yield "notfound", name
        case "ndrop":
            yield "done", ("none",)
            yield "notfound", name
        case "insert":
            yield "done", ("taken", name)
            yield "exists", name


def may_see(name: Name, mode: str) -> set[Seen]:
    """Return what a mode may see of a name; ANY if that is not said."""
    if name[0] == "taken":
        # While somebody makes the home directory visible, clients that list directories see it.
        return {"taken"} if mode == "2" else {"taken", ANY} if mode == "c" else {ANY}
    if name[0] not in {"live", "declared"}:
        return {None}
    value: Seen = ("live", name[1]) if name[0] == "live" else "declared"
    return {value, None} if mode == "2" and _unseen(name) else {value}


class Monitor:
    """All orders of calls that explain the responses so far: names with a status for every call."""

    def __init__(self, calls: Sequence[Call], name: Name) -> None:
        self.calls, self.name = calls, name
        self._undrops = sum(call.verb in {"undrop", "sundrop"} for call in calls)
        self._closed: dict[Orders, Orders] = {}

    def start(self) -> Orders:
        return frozenset({(self.name, ("idle",) * len(self.calls))})

    def begin(self, orders: Orders, call: int) -> Orders:
        return self._close(frozenset((name, _put(each, call, "open")) for name, each in orders))

    def end(self, orders: Orders, call: int, answer: Any) -> Orders:
        if answer == DOUBT:
            return orders  # it may count as done or not, now or later
        if answer == REFUSED:
            return frozenset(
                (name, _put(each, call, "idle")) for name, each in orders if each[call] == "open"
            )
        return frozenset((name, _put(each, call, "idle")) for name, each in orders if each[call] == answer)

    def _close(self, orders: Orders) -> Orders:
        found = self._closed.get(orders)
        if found is None:
            seen, todo = set(orders), list(orders)
            while todo:
                name, statuses = todo.pop()
                for i, status in enumerate(statuses):
                    if status not in ("open", "done"):
                        continue
                    begun = None if status == "open" else status
                    for new, after in moves(self.calls[i], begun, name, self._undrops):
                        order = (after, _put(statuses, i, new))
                        if order not in seen:
                            seen.add(order)
                            todo.append(order)
            found = self._closed[orders] = frozenset(seen)
        return found


def _put(statuses: Statuses, i: int, value: Any) -> Statuses:
    return (*statuses[:i], value, *statuses[i + 1 :])


# What is there, from the bodies alone.


@dataclass(frozen=True, slots=True)
class Decided:
    """What the bodies say of a name."""

    kind: str
    """The arbiter's state, '' if there is none."""
    state: str
    """live, dropped or claimed, wherever there is a table."""
    strict: bool
    holds: bool
    shown: Seen
    missing: tuple[str, ...] = ()
    """Files of the latest version that are gone."""

    @property
    def is_live(self) -> bool:
        return self.shown is not None


def decide(objects: Mapping[str, tuple[bytes, datetime]], name: str, *, late: timedelta) -> Decided:
    """Say what is there, by the table of the specification."""
    arbiter, marker = objects.get(name + CONTROL_SUFFIX), objects.get(name + MARKER_SUFFIX)
    fields: dict[str, Any] = {} if arbiter is None else _arbiter(arbiter[0])
    kind = fields.get("state", "")
    read_as = fields["before"] if kind == "reviving" else fields
    mark = None if marker is None else json.loads(marker[0]).get("relance", {})
    strict = False
    if read_as.get("state") == "deleted":
        began = read_as.get("since_s", None if arbiter is None else int(arbiter[1].timestamp()))
        after = read_as.get("after_s")
        strict = after is not None and began - after < late.total_seconds()
    if read_as.get("state") == "purging":
        state = "claimed"
    elif read_as.get("state") == "deleted":
        # Whatever it names: one that came before the arbiter does not tell of an undrop after it.
        older = marker is not None and arbiter is not None and marker[1] <= arbiter[1]
        state = "dropped" if _counts(read_as, mark) or older or strict else "live"
    elif _counts(read_as, mark):
        state = "dropped"
    else:
        state = "live"
    versions = versions_of(objects, name)
    reserved = table_file(name, RESERVED_FILE) in objects
    holds = bool(versions) or reserved
    shown: Seen = None
    if state == "live" and holds and table_file(name, DEREGISTERED_FILE) not in objects:
        shown = ("live", versions[-1][1].data) if versions else "declared"
        if read_as.get("state") == "purged" and not any(not version.ours for _, version in versions):
            shown = None
    missing = missing_files(objects, f"{name}.lance", versions[-1][1]) if versions else ()
    return Decided(kind, state, strict, holds, shown, missing)


def _arbiter(body: bytes) -> dict[str, Any]:
    if len(body) > 64:
        fields: dict[str, Any] = json.loads(body)
        return fields
    letter, nonce, undid, _, _ = body.decode().split(" ")
    return {
        "state": {"c": "cleared", "w": "writing"}[letter],
        "nonce": nonce,
        "undid": "" if undid == "-" else undid,
    }


def _counts(arbiter: Mapping[str, Any], mark: Mapping[str, Any] | None) -> bool:
    if not mark:
        return mark is not None
    if arbiter.get("state") == "deleted":
        return bool(mark["id"] == arbiter["id"])
    undid = arbiter.get("id", "") if arbiter.get("state") == "purged" else arbiter.get("undid", "")
    return bool(mark["after"] == undid)


def versions_of(objects: Mapping[str, tuple[bytes, datetime]], name: str) -> list[tuple[str, ModelVersion]]:
    """Return the versions in a name's home directory, oldest first."""
    return versions_in(objects, f"{name}.lance")


def versions_in(
    objects: Mapping[str, tuple[bytes, datetime]], directory: str
) -> list[tuple[str, ModelVersion]]:
    """Return the versions in a directory, oldest first."""
    prefix = f"{directory}/_versions/"
    keys = sorted((key for key in objects if key.startswith(prefix)), reverse=True)  # the newest sorts first
    return [(key, decode_version(objects[key][0])) for key in keys]
