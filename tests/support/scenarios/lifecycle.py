"""Scenarios for the explorer: the real lifecycle, and other implementations beside it, on one root name."""

from __future__ import annotations

import json
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

from tests.support.patches import original

from relance.catalog.context import Context
from relance.catalog.create import create, declare
from relance.catalog.drop import drop, undrop
from relance.catalog.layout import Memory, list_names
from relance.catalog.manifest.row import HEAD_ID, ObjectType, Row
from relance.catalog.manifest.store import Change, ManifestConflictError
from relance.catalog.purge import PurgeOptions, purge_table
from relance.catalog.register import deregister, register
from relance.catalog.rename import rename
from relance.catalog.resolve import find_table, insert_row, new_directory, state_of_name
from relance.catalog.states import State, Timing
from relance.clock import Clock
from relance.config import StorageOptions, parse_properties
from relance.errors import (
    ConcurrentModificationError,
    InvalidTableStateError,
    KeyExistsError,
    KeyNotFoundError,
    OutcomeUnknownError,
    PermissionDeniedError,
    RelanceError,
    TableAlreadyExistsError,
    TableNotFoundError,
)
from relance.identifiers import TableId
from relance.lance_io import CreateMode, NewTable
from relance.locations import (
    CONTROL_SUFFIX,
    DEREGISTERED_SUFFIX,
    MARKER_SUFFIX,
    parse_root,
)
from relance.storage.connect import Connection
from relance.storage.probe import Capabilities
from relance.storage.protocol import CLOCK_KEY, ObjectStorage
from relance.testing.clock import SteppedClock
from relance.testing.explorer import (
    BEGINNING,
    DEAD,
    DOUBT,
    ENDED,
    IN_DOUBT,
    TICK,
    Client,
    Program,
    Rest,
    Scenario,
    StampedStorage,
    Store,
    StoreClock,
    run_until,
    unexplored,
)
from relance.testing.lifecycle_model import (
    ANY,
    FOREIGN,
    REFUSED,
    Call,
    Decided,
    Monitor,
    Name,
    Orders,
    Seen,
    decide,
    may_see,
    versions_in,
)
from relance.testing.model_rows import MODEL_KEY, ModelManifest
from relance.testing.model_tables import (
    ModelTables,
    ModelVersion,
    encode_version,
    key_of_version,
    write_file,
)
from relance.testing.requests import Request

TABLE = "t"
OTHER = "u"
TABLE_ID, OTHER_ID = TableId((), TABLE), TableId((), OTHER)
HOME = f"{TABLE}.lance"
ARBITER, MARKER = TABLE + CONTROL_SUFFIX, TABLE + MARKER_SUFFIX
ROOT = parse_root("memory://explorer")
TIMING = Timing(patience=timedelta(0), drop_ttl=timedelta(hours=1))
OPTIONS = StorageOptions()
SETTINGS = {
    "c": parse_properties({"root": ROOT.uri}),
    "1": parse_properties({"root": ROOT.uri, "manifest_enabled": "false"}),
    "2": parse_properties({"root": ROOT.uri, "dir_listing_enabled": "false"}),
}
SKEWS = (timedelta(hours=-7), timedelta(hours=9), timedelta(hours=3), timedelta(hours=-30))
LONG_AGO = -400
"""Ticks before the beginning, when the setups of scenarios begin."""

original("probe.seen")["explorer"] = Capabilities(create_only=True, replace=True)


def context_on(storage: ObjectStorage, clock: Clock, mode: str) -> Context:
    """Return a context over the models of Lance and of the manifest."""
    return Context(
        settings=SETTINGS[mode],
        root=ROOT,
        connection=Connection(storage, "memory-model", OPTIONS),
        clock=clock,
        tables=ModelTables(storage, clock),
        timing=TIMING,
        manifest=None if mode == "1" else ModelManifest(storage),
        memory=Memory(format_checked=True, flagged=True),
    )


# Relance's verbs.


def _create(context: Context, data: Any, mode: CreateMode) -> str:
    create(context, NewTable(TABLE_ID, data, OPTIONS), mode)
    return "ok"


def _purge(context: Context, *, force: bool) -> str:
    results = purge_table(context, TABLE_ID, PurgeOptions(force=force))
    for result in results:
        if result.error is not None:
            raise result.error
    return "ok"


def _take(context: Context) -> str:
    directory = new_directory(TABLE_ID)
    context.storage.create(key_of_version(directory, 1), encode_version(ModelVersion("other", "other", ())))
    insert_row(context, Row(TABLE, ObjectType.TABLE, directory))
    return "ok"


def _read(context: Context) -> Hashable:
    try:
        found = find_table(context, TABLE_ID, properties=False, versions=True)
    except TableNotFoundError:
        return ("saw", None)
    if found.home is None:
        return ("saw", "taken")
    if found.home.newest is None:
        return ("saw", "declared")
    return ("saw", ("live", json.loads(context.storage.read(found.home.newest.info.key).body)["data"]))


def _do(context: Context, call: Call) -> Hashable:
    match call.verb:
        case "create":
            return _create(context, call.data, CreateMode.CREATE)
        case "overwrite":
            return _create(context, call.data, CreateMode.OVERWRITE)
        case "declare":
            declare(context, TABLE_ID, {})
        case "drop":
            drop(context, TABLE_ID, None)
        case "undrop":
            undrop(context, TABLE_ID)
        case "purge":
            return _purge(context, force=call.data is None)
        case "take":
            return _take(context)
        case "deregister":
            deregister(context, TABLE_ID)
        case "register":
            register(context, TABLE_ID, HOME, {}, overwrite=False)
        case "rename":
            rename(context, TABLE_ID, OTHER_ID)
        case "read":
            return _read(context)
        case _:
            raise AssertionError(call)
    return "ok"


def answer_of(work: Callable[[], Hashable], verb: str) -> Hashable:
    """Return what a call says, in the model's words."""
    try:
        return work()
    except TableNotFoundError:
        return "none" if verb == "purge" else "notfound"
    except TableAlreadyExistsError:
        return "exists"
    except InvalidTableStateError as error:
        text = str(error)
        if verb == "purge" and ("is live" in text or "undropped by another client" in text):
            return "none"
        if verb == "purge" and "can be undropped until" in text:
            return REFUSED
        return ("error", text)
    except (OutcomeUnknownError, KeyNotFoundError):
        return DOUBT
    except (ConcurrentModificationError, PermissionDeniedError):
        return REFUSED


# Other implementations.


def _list_versions(storage: ObjectStorage) -> list[int]:
    files = storage.list_level(f"{HOME}/_versions").files
    return sorted(2**64 - 1 - int(info.key.rpartition("/")[2].partition(".")[0]) for info in files)


def _write_version(client: Client, number: int, data: str) -> str:
    token = f"native{client.index}"
    file = write_file(client.storage, HOME, token, data)
    manifest = encode_version(ModelVersion(token, data, (file,), ours=False))
    try:
        client.storage.create(key_of_version(HOME, number), manifest)
    except KeyExistsError:
        return DOUBT
    return "ok"


def _foreign(client: Client, call: Call) -> Hashable:
    storage = client.storage
    match call.verb:
        case "sdrop":  # seed 000 to the letter
            files = {info.key for info in storage.list_after(f"{TABLE}.c").objects}
            if MARKER in files or not any(key.startswith(f"{HOME}/") for key in files):
                return "notfound"
            try:
                storage.create(
                    MARKER, json.dumps({"deleted_at_ms": 1767225600000, "ttl_ms": 3600000}).encode()
                )
            except KeyExistsError:
                return DOUBT
        case "sundrop":
            try:
                storage.read(MARKER)
            except KeyNotFoundError:
                return "notfound"
            storage.delete(MARKER)
        case "spurge":
            try:
                storage.read(MARKER)
            except KeyNotFoundError:
                return "notfound"
            storage.delete_many([info.key for info in storage.list_recursive(HOME)])
            storage.delete(MARKER)
        case "ncreate":  # pylance: looks at no marker
            if _list_versions(storage):
                return "exists"
            return _write_version(client, 1, str(call.data))
        case "nappend":
            numbers = _list_versions(storage)
            if not numbers:
                return "notfound"
            return _write_version(client, numbers[-1] + 1, str(call.data))
        case "ndrop":
            if call.mode == "c":
                manifest = ModelManifest(storage)
                snapshot = manifest.latest()
                if TABLE not in snapshot.get([TABLE]):
                    return "notfound"
                try:
                    manifest.commit(snapshot, Change(removed=(TABLE,)))
                except ManifestConflictError:
                    return DOUBT
            storage.delete_many([info.key for info in storage.list_recursive(HOME)])
        case "insert":  # a literal merge_insert
            added = ModelManifest(storage).foreign_insert(Row(TABLE, ObjectType.TABLE, "elsewhere"))
            return "ok" if added else "exists"
        case _:
            raise AssertionError(call)
    return "ok"


def program_of(index: int, call: Call) -> Program:
    """Return a call as a program."""

    def run(client: Client) -> Hashable:
        if call.verb in FOREIGN:
            return _foreign(client, call)
        context = context_on(client.storage, client.clock, call.mode)
        return answer_of(lambda: _do(context, call), call.verb)

    return Program(str(call), run, ours=call.verb not in FOREIGN, skew=SKEWS[index % len(SKEWS)])


# What is wrong with a state.


def is_timed(key: str) -> bool:
    """Tell whether the time of an object is looked at; signs and the manifest have none that matters."""
    return key.startswith(f"{HOME}/") or key in {ARBITER, MARKER}


@dataclass(frozen=True, slots=True)
class Look:
    """What all modes see in a store, and what its bodies say."""

    seen: Mapping[str, Seen]
    decided: Decided
    marker: bool
    rows: tuple[tuple[str, bool, bool], ...]
    """Of the rows with the name: the id, whether it is a home row, whether it is in the dropped position."""
    wrong: str | None = None


class LifecycleJudge:
    """Looks at each state with the real code in all modes, and asks the monitor whether it is explained."""

    def __init__(
        self,
        calls: Sequence[Call],
        name: Name,
        *,
        kept: int | None = None,
        modes: str = "1c2",
        compares: bool = True,
    ) -> None:
        self.calls = calls
        self.compares = compares
        self.modes = modes
        self.kept = kept
        self._monitor = Monitor(calls, name)
        self._looks: dict[int, tuple[Store, Look]] = {}

    def start(self) -> Orders:
        return self._monitor.start()

    def begin(self, orders: Orders, call: int) -> Orders:
        return self._monitor.begin(orders, call)

    def end(self, orders: Orders, call: int, answer: Hashable) -> Orders:
        if isinstance(answer, tuple) and answer[0] == "error":
            return frozenset()
        return self._monitor.end(orders, call, answer)

    def look(self, store: Store) -> Look:
        found = self._looks.get(id(store))
        if found is None:
            look = look_at(store)
            if not self.compares:
                look = replace(look, wrong=None, decided=replace(look.decided, shown=look.seen["1"]))
            found = self._looks[id(store)] = (store, look)
        return found[1]

    def wrong(self, store: Store, orders: Orders) -> str | None:
        if not orders:
            return "no order of the calls explains the responses"
        look = self.look(store)
        if look.wrong is not None:
            return look.wrong
        return self._unexplained(look, orders)

    def _unexplained(self, look: Look, orders: Orders) -> str | None:
        if sum(home for _, home, _ in look.rows) > 1:
            return "two rows for one table"
        for mode in self.modes:
            seen = look.seen[mode]
            if seen is None and look.decided.kind == State.PURGING:
                continue  # it hides, until it is given back, what was undropped or created meanwhile
            if not any({seen, ANY} & may_see(name, mode) for name, _ in orders):
                return f"mode {mode} sees {seen}, which no order of the calls explains"
            if isinstance(seen, tuple) and look.decided.missing and seen == look.decided.shown:
                return f"mode {mode} sees a table whose files are gone: {look.decided.missing}"
        return None

    def wrong_after(self, store: Store, places: Sequence[int | None]) -> str | None:
        if self.kept is None or places[self.kept] != ENDED:
            return None
        versions = versions_in(_bodies(store.objects), HOME)
        if any(not version.ours for _, version in versions):
            return None
        return "what another client wrote after the drop is gone before the TTL after that write"

    def wrong_at_rest(self, store: Store, orders: Orders, rest: Rest) -> str | None:
        calls = self.calls
        calm = rest.calm and all(call.mode in "c2" and call.verb not in FOREIGN for call in calls)
        unfinished = [calls[i].verb for i, place in enumerate(rest.places) if place in {DEAD, IN_DOUBT}]
        dead_drop = rest.late_mark or bool(
            {"drop", "sdrop", "take", "undrop", "create", "declare", "rename"} & set(unfinished)
        )
        return self._at_rest(store, orders, calm=calm, dead_drop=dead_drop)

    def _at_rest(self, store: Store, orders: Orders, *, calm: bool, dead_drop: bool) -> str | None:
        look = self.look(store)
        decided = look.decided
        if decided.kind == State.PURGING:
            return self._purge_ends(store, orders, dead_drop=dead_drop)
        live = decided.is_live
        if live and look.marker and not dead_drop:
            return "at rest a marker lies beside a visible table: another client's purge would delete it"
        if calm and decided.state == "dropped" and decided.holds and not look.marker and not decided.strict:
            return "at rest a dropped table has no marker: other implementations show it"
        if calm and decided.kind not in {State.REVIVING, State.WRITING} and (what := _misplaced(look)):
            return what
        if live and decided.kind not in {State.REVIVING, State.WRITING}:
            after, answer = run_alone(store, Call("purge", "1"))
            seen = look_at(after)
            if seen.marker or seen.decided.shown != decided.shown or answer != "none":
                return f"a purge run beside a visible table says {answer}; marker: {seen.marker}"
        if any(row == TABLE and not home for row, home, _ in look.rows):
            return None
        for mode in "c1":
            if mode in self.modes and (what := self._next_client(store, mode, dead_drop=dead_drop)):
                return what
        return None

    def _purge_ends(self, store: Store, orders: Orders, *, dead_drop: bool) -> str | None:
        """Only a purge waits for the dead: later another one ends it."""
        later = replace(store, ticks=store.ticks + 1, stamp=0)
        after, answer = run_alone(later, Call("purge", "c"))
        look = look_at(after)
        if look.decided.kind == State.PURGING:
            return f"at rest the next purge says {answer} and ends nothing"
        purged = frozenset((("none",) if name[0] == "dropped" else name, each) for name, each in orders)
        return (
            look.wrong
            or self._unexplained(look, purged)
            or self._at_rest(after, purged, calm=False, dead_drop=dead_drop)
        )

    def _next_client(self, store: Store, mode: str, *, dead_drop: bool) -> str | None:
        after, answer = run_alone(store, Call("create", mode, "next"))
        if answer not in {"ok", "exists"}:
            return f"at rest the next create (mode {mode}) says {answer}"
        if answer != "ok":
            return None
        look = look_at(after)
        if look.wrong is not None:
            return f"after the next create: {look.wrong}"
        if look.seen["c"] == "taken":
            return None  # a deregistered table keeps its directory
        if mode == "c" and {look.seen[each] for each in self.modes} != {("live", "next")}:
            return f"after the next create the modes disagree: {dict(look.seen)}"
        if look.marker and not dead_drop:
            return "after the next create there is a marker"
        after, answer = run_alone(after, Call("drop", mode))
        look = look_at(after)
        if answer != "ok" or not look.marker or look.decided.is_live:
            return f"after that a drop says {answer}; marker: {look.marker}"
        return None


def _misplaced(look: Look) -> str | None:
    """Say whether the row is not where arbiter and marker want it: native clients see something else."""
    decided = look.decided
    if not (decided.kind or decided.holds):
        return None
    if decided.is_live:
        wanted = {(True, False)}
    elif decided.state != "live" and decided.holds:
        wanted = {(True, True)}
    else:
        return None
    if any(row == TABLE and not home for row, home, _ in look.rows) and decided.is_live:
        return None
    found = {(home, dropped) for _, home, dropped in look.rows if home}
    return None if found == wanted else f"at rest the row is in the wrong place: {look.rows}"


def _bodies(objects: Mapping[str, Any]) -> dict[str, tuple[bytes, datetime]]:
    return {key: (each.body, each.modified) for key, each in objects.items()}


def open_store(store: Store) -> StampedStorage:
    """Return a store of its own with the same content."""
    return StampedStorage(StoreClock(store.ticks, store.stamp), store.objects, is_timed)


def _clock(store: Store) -> SteppedClock:
    return SteppedClock(true=BEGINNING + store.ticks * TICK)


def look_at(store: Store) -> Look:
    """Look at a store with the real code in all modes, and decide from the bodies what is there."""
    return unexplored(lambda: _look_at(store), "look")  # type: ignore[no-any-return]


def _look_at(store: Store) -> Look:
    bodies = _bodies(store.objects)
    decided = decide(bodies, TABLE, late=TIMING.late)
    wrong = None
    seen: dict[str, Seen] = {}
    rows: tuple[tuple[str, bool, bool], ...] = ()
    for mode in "1c2":
        context = context_on(open_store(store), _clock(store), mode)
        seen[mode] = _seen(context, bodies)
        state = state_of_name(context, TABLE_ID)
        if mode != "2" and state.visible != (seen[mode] is not None) and seen[mode] != "taken":
            wrong = f"mode {mode} finds {seen[mode]}, but its state says visible: {state.visible}"
        if mode == "1":
            listed = TABLE in list_names(context, include_declared=True)
            # Without a sign a listing takes another client's first data file for a table.
            if listed != (seen[mode] is not None) and (decided.holds or not listed):
                wrong = f"a listing shows the table: {listed}, but a look at it says {seen[mode]}"
            hidden = any(each.row is None for each in state.dropped)
            if hidden != (decided.state == "dropped" and decided.holds) and decided.state != "claimed":
                wrong = f"its state says dropped: {hidden}, the bodies say {decided}"
        if mode == "c":
            snapshot = context.latest()
            assert snapshot is not None  # this mode has a manifest
            named = [row for row in getattr(snapshot, "rows") if row.original_id == TABLE]  # noqa: B009
            rows = tuple(
                (row.object_id, row.is_home, row.is_dropped) for row in named if row.object_id != HEAD_ID
            )
    if seen["1"] != decided.shown:
        wrong = f"the code finds {seen['1']}, the bodies say {decided}"
    return Look(seen, decided, MARKER in bodies, rows, wrong)


def _seen(context: Context, bodies: Mapping[str, tuple[bytes, datetime]]) -> Seen:
    try:
        found = find_table(context, TABLE_ID, properties=False)
    except TableNotFoundError:
        return None
    if found.home is None:
        return "taken"
    versions = versions_in(bodies, found.directory)
    return ("live", versions[-1][1].data) if versions else "declared"


def run_alone(store: Store, call: Call) -> tuple[Store, Hashable]:
    """Run one call to its end, with nobody else at work."""
    storage = open_store(store)
    context = context_on(storage, _clock(store), call.mode)
    answer = unexplored(lambda: answer_of(lambda: _do(context, call), call.verb), "alone")
    return Store(storage.objects, storage.stamps.stamp, store.ticks), answer


# Beginnings.


@dataclass(frozen=True, slots=True)
class Start:
    """What was there before."""

    objects: Mapping[str, Any]
    name: Name
    dead: tuple[Call, Request] | None = None


class _Setup:
    """Makes a start, step by step."""

    def __init__(self) -> None:
        self.ticks = LONG_AGO
        self.storage = StampedStorage(StoreClock(self.ticks, 0), {}, is_timed)
        self.storage.create(".relance-root", b'{"format": 2, "nested_markers": "none"}')
        self.count = 0

    def wait(self) -> None:
        """Let so much time pass that nothing is late any more."""
        self._to(self.ticks + 20)

    def _to(self, ticks: int) -> None:
        self.ticks = ticks
        self.storage = StampedStorage(StoreClock(ticks, 0), self.storage.objects, is_timed)

    def call(self, verb: str, mode: str = "c", data: str | None = None) -> None:
        self.count += 1
        call = Call(verb, mode, data)
        clock = SteppedClock(true=BEGINNING + self.ticks * TICK)
        if call.verb in FOREIGN:
            client = Client(90 + self.count, self.storage, clock)  # type: ignore[arg-type]  # any storage will do
            answer = _foreign(client, call)
        else:
            context = context_on(self.storage, clock, mode)
            answer = unexplored(lambda: answer_of(lambda: _do(context, call), verb), f"s{self.count}x")
        assert answer == "ok", (call, answer)
        self.wait()

    def die(self, call: Call, stop: Callable[[Request], bool]) -> tuple[Call, Request]:
        """Let a client die just now, with the request that `stop` names under way."""
        self._to(0)
        request = run_until(program_of(99, call), self.storage, stop, 99)
        assert request is not None, call
        return call, request


def _is_version(request: Request) -> bool:
    return request.verb == "create" and "/_versions/" in request.key


def _make_start(kind: str) -> Start:
    setup, dead = _Setup(), None
    name: Name = ("none",)
    live: Name = ("live", "a", 1)
    match kind:
        case "nothing":
            pass
        case "live":
            setup.call("create", "c", "a")
            name = live
        case "cleared":
            setup.call("create", "c", "a")
            setup.call("drop")
            setup.call("undrop")
            name = live
        case "v1-made":
            setup.call("create", "1", "a")
            name = ("live", "a", 0)
        case "dropped":
            setup.call("create", "c", "a")
            setup.call("drop")
            name = ("dropped", live)
        case "v1-dropped":
            setup.call("create", "c", "a")
            setup.call("drop", "1")
            name = ("dropped", live)
        case "seed-dropped":
            setup.call("create", "c", "a")
            setup.call("sdrop", "s")
            name = ("dropped", live)
        case "seed-undropped":
            setup.call("create", "c", "a")
            setup.call("drop")
            setup.call("sundrop", "s")
            name = ("live", "a", 0)
        case "late M":
            setup.call("create", "c", "a")
            dead_drop = run_until(
                program_of(98, Call("drop")), setup.storage, lambda request: request.key == MARKER, 98
            )
            setup.call("drop")
            setup.call("undrop")
            assert dead_drop is not None
            setup.storage.create(MARKER, dead_drop.arguments[0])
            name = live
        case "deregistered":
            setup.call("create", "c", "a")
            setup.call("deregister")
            name = ("hidden", ("live", "a", 0))
        case "declared":
            setup.call("declare")
            name = ("declared", 1)
        case "purged":
            setup.call("create", "c", "a")
            setup.call("drop")
            setup.call("purge")
        case "native over purged":
            setup.call("create", "c", "b")
            setup.call("drop")
            setup.call("purge")
            setup.call("ncreate", "n", "a")
            name = ("live", "a", 0)
        case "dead create":
            setup.call("create", "c", "a")
            setup.call("drop")
            dead = setup.die(Call("create", "c", "g"), _is_version)
            name = ("dropped", live)
        case "dead create over purged":
            setup.call("create", "c", "a")
            setup.call("drop")
            setup.call("purge")
            dead = setup.die(Call("create", "c", "g"), _is_version)
        case "dead purge":
            setup.call("create", "c", "a")
            setup.call("drop")
            dead = setup.die(Call("purge"), lambda request: request.verb == "delete_many")
            name = ("dropped", live)
        case "dead undrop":
            setup.call("create", "c", "a")
            setup.call("drop")
            dead = setup.die(Call("undrop"), lambda request: request.verb == "delete_many")
            name = ("dropped", live)
        case "dead drop":
            setup.call("create", "c", "a")
            dead = setup.die(Call("drop"), lambda request: request.verb == "create" and request.key == MARKER)
            name = live
        case _:
            raise AssertionError(kind)
    return Start(dict(setup.storage.objects), name, dead)


_starts: dict[str, Start] = {}


def start_of(kind: str) -> Start:
    """Return a beginning; it is made once."""
    if kind not in _starts:
        _starts[kind] = _make_start(kind)
    return _starts[kind]


_DELETERS = frozenset({"purge", "spurge", "ndrop"})


def make_scenario(
    start: str,
    calls: Sequence[Call],
    *,
    after: Sequence[tuple[int, int]] = (),
    kept: int | None = None,
    coarse: bool = False,
    modes: str = "1c2",
    compares: bool = True,
    stalled: Mapping[int, Callable[[Request], bool]] | None = None,
) -> Scenario:
    """Return a scenario that begins with one of the named starts.

    `compares`: what the code finds is compared with what the bodies say.
    """
    begun = start_of(start)
    programs = [program_of(index, call) for index, call in enumerate(calls)]
    dead: dict[int, Request] = {}
    if begun.dead is not None:
        dead[len(calls)] = begun.dead[1]
        programs.append(program_of(99, begun.dead[0]))
        calls = (*calls, begun.dead[0])
    deletes = any(call.verb in _DELETERS for call in calls)

    def is_private(key: str) -> bool:
        if key in {ARBITER, MARKER, MODEL_KEY}:
            return False
        return not key.startswith(HOME) or ("/data/" in key and not deletes)

    def quiet(request: Request) -> bool:
        if request.verb == "now":
            return True
        if request.verb == "read":
            return "/_versions/" in request.key
        if request.verb in {"create", "delete_many", "copy"}:
            return all(is_private(key) for key in request.keys)
        return request.key == CLOCK_KEY

    return Scenario(
        programs=programs,
        objects=begun.objects,
        judge=LifecycleJudge(calls, begun.name, kept=kept, modes=modes, compares=compares),
        after=after,
        dead=dead,
        stalled=stalled or {},
        quiet=quiet,
        is_timed=is_timed,
        is_mark=lambda key: key == MARKER,
        coarse=coarse,
        calm=start != "seed-undropped",
    )


__all__ = [
    "DEREGISTERED_SUFFIX",
    "MODEL_KEY",
    "RelanceError",
    "Start",
    "field",
    "make_scenario",
]
