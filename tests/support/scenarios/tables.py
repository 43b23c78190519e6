"""Scenarios for the explorer with two table ids: tables in hash directories, and renames of root tables.

What is there is a set of visible tables and one of dropped ones; scenarios of one root name beside other
implementations are in lifecycle.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import combinations
from typing import Any

from tests.support.scenarios.lifecycle import OPTIONS, SKEWS, answer_of, context_on

from relance.catalog.context import Context
from relance.catalog.create import create
from relance.catalog.drop import drop, undrop
from relance.catalog.layout import read_control
from relance.catalog.manifest.row import ObjectType, Row
from relance.catalog.manifest.store import Change, ManifestConflictError
from relance.catalog.purge import PurgeOptions, purge_table
from relance.catalog.rename import rename
from relance.catalog.resolve import all_generations, find_table, insert_row
from relance.catalog.states import State
from relance.errors import TableNotFoundError
from relance.identifiers import TableId
from relance.lance_io import CreateMode, NewTable
from relance.locations import CONTROL_SUFFIX, MARKER_SUFFIX, table_directory
from relance.storage.protocol import CLOCK_KEY
from relance.testing.clock import SteppedClock
from relance.testing.explorer import (
    BEGINNING,
    DOUBT,
    TICK,
    Budget,
    Client,
    Program,
    Rest,
    Scenario,
    StampedStorage,
    Store,
    StoreClock,
    unexplored,
)
from relance.testing.lifecycle_model import REFUSED, versions_in
from relance.testing.model_rows import MODEL_KEY, ModelManifest
from relance.testing.model_tables import missing_files
from relance.testing.requests import Request

NAMESPACED, V2_ONLY, ROOT = "namespace", "V2", "root"
"""Tables in a namespace, root tables of a catalog that has the manifest alone, and ones that have a home."""

LIVE: tuple[str, ...] = ("create t a",)
DROPPED: tuple[str, ...] = (*LIVE, "drop t")
MOVED: tuple[str, ...] = (*LIVE, "rename t u")

ELSEWHERE = "elsewhere"
"""Where a row leads that another client inserted; there are no files."""

Table = tuple[str, Any, bool]
"""A name, its data, and whether that is in the home directory of the name."""
Statuses = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Tables:
    """What there is."""

    live: frozenset[Table] = frozenset()
    dropped: frozenset[Table] = frozenset()

    def table(self, name: str) -> Table | None:
        return next((table for table in self.live if table[0] == name), None)

    def dropped_as(self, name: str) -> list[Table]:
        return [table for table in sorted(self.dropped) if table[0] == name]

    def shown(self, table: Table) -> Tables:
        """Return the same with a table, in place of one of that name."""
        return replace(self, live=frozenset(each for each in self.live if each[0] != table[0]) | {table})

    def hidden(self, table: Table, *, is_kept: bool = True) -> Tables:
        """Return the same without a table, which may be kept as a dropped one."""
        return Tables(self.live - {table}, self.dropped | ({table} if is_kept else set()))

    def forgotten(self, *tables: Table) -> Tables:
        """Return the same without dropped tables."""
        return replace(self, dropped=self.dropped - set(tables))


@dataclass(frozen=True, slots=True)
class Act:
    """One call: a verb, the name of a table, and a new name or data."""

    verb: str
    name: str
    more: str = ""

    def __str__(self) -> str:
        return " ".join(part for part in (self.verb, self.name, self.more) if part)


def _acts(texts: Sequence[str]) -> tuple[Act, ...]:
    return tuple(Act(*text.split()) for text in texts)


def moves(act: Act, status: Any, before: Tables, kind: str) -> Iterator[tuple[Any, Tables]]:
    """Yield what a call may do next: its new status, and what there is then."""
    name, more = act.name, act.more
    table, dropped = before.table(name), before.dropped_as(name)
    if status == "moving":
        yield from _moves_of_rename(act, before)
        return
    if isinstance(status, tuple):  # an undrop whose name was taken meanwhile
        yield "open", replace(before, dropped=before.dropped | {status})
        return
    match act.verb:
        case "create" | "overwrite":
            yield from _moves_of_create(act, before, kind)
        case "drop" | "ndrop":
            if table is None:
                yield "notfound", before
            else:
                yield "ok", before.hidden(table, is_kept=act.verb == "drop")
        case "undrop":
            if before.table(more or name) is not None:
                yield "exists", before
                for each in dropped:
                    if each[2] and not more:  # it is shown for a moment, behind the table that has the name
                        yield each, before.forgotten(each)
            elif not dropped:
                yield ("notfound" if table is None else "exists"), before
            for each in dropped if before.table(more or name) is None else ():
                if each[2] and more:  # a copy, and the drop stays
                    yield "ok", before.shown((more, each[1], False))
                else:
                    yield "ok", before.forgotten(each).shown((more or name, *each[1:]))
        case "purge":
            if not dropped:
                yield "none", before
            for count in range(1, len(dropped) + 1):
                for gone in combinations(dropped, count):
                    yield "ok", before.forgotten(*gone)
        case "rename":
            if table is None:
                yield "notfound", before
            elif before.table(more) is not None:
                yield "exists", before
            elif table[2]:
                yield "moving", before.hidden(table)
            else:
                yield "ok", before.hidden(table, is_kept=False).shown((more, table[1], False))
        case "insert":
            if table is None:
                yield "ok", before.shown((name, ELSEWHERE, False))
            yield "exists", before  # also while a create has the name
        case _:
            raise AssertionError(act)


def _moves_of_create(act: Act, before: Tables, kind: str) -> Iterator[tuple[Any, Tables]]:
    table = before.table(act.name)
    fresh = (act.name, act.more, kind == ROOT)
    if table is None:
        yield "ok", before.shown(fresh)  # also beside what a purge has claimed
        for each in before.dropped_as(act.name):
            yield "ok", before.forgotten(each).shown((act.name, act.more, each[2]))
            if act.verb == "overwrite" and each[2]:  # after a rename, into what that left
                yield "beaten", before.forgotten(each).hidden((act.name, act.more, True))
        return
    written = before.shown((act.name, act.more, table[2]))
    if act.verb == "overwrite" or table[1] == ELSEWHERE:  # what another client inserted is declared
        yield "ok", written
    if act.verb == "create":
        yield "exists", before
    if kind == ROOT:  # the name was taken when it was written: its table is dropped again
        yield "beaten", replace(before, dropped=before.dropped | {fresh})


def _moves_of_rename(act: Act, before: Tables) -> Iterator[tuple[Any, Tables]]:
    """Yield what follows once the old name of a root table is dropped and its copy has no name yet."""
    dropped = [each for each in before.dropped_as(act.name) if each[2]]
    for each in dropped:
        if before.table(act.more) is None:
            yield "ok", before.shown((act.more, each[1], False))
        if before.table(act.name) is None:
            yield "open", before.forgotten(each).shown(each)
    if not dropped:
        yield "open", before  # another client undid the drop


Orders = frozenset[tuple[Tables, Statuses]]


# The real code.


def _id(kind: str, name: str) -> TableId:
    return TableId(("n",), name) if kind == NAMESPACED else TableId((), name)


def _mode(kind: str) -> str:
    return "2" if kind == V2_ONLY else "c"


def _do(context: Context, act: Act, kind: str) -> str:
    table_id = _id(kind, act.name)
    match act.verb:
        case "create" | "overwrite":
            mode = CreateMode.CREATE if act.verb == "create" else CreateMode.OVERWRITE
            create(context, NewTable(table_id, act.more, OPTIONS), mode)
        case "drop":
            drop(context, table_id, None)
        case "undrop":
            undrop(context, table_id, target=_id(kind, act.more) if act.more else None)
        case "purge":
            for result in purge_table(context, table_id, PurgeOptions(force=True)):
                if result.error is not None:
                    raise result.error
        case "rename":
            rename(context, table_id, _id(kind, act.more))
        case _:
            raise AssertionError(act)
    return "ok"


def _foreign(client: Client, act: Act, kind: str) -> str:
    manifest, object_id = ModelManifest(client.storage), str(_id(kind, act.name))
    if act.verb == "insert":  # a literal merge_insert on object_id
        added = manifest.foreign_insert(Row(object_id, ObjectType.TABLE, ELSEWHERE))
        return "ok" if added else "exists"
    snapshot = manifest.latest()
    row = snapshot.get([object_id]).get(object_id)
    if row is None or not row.is_visible:
        return "notfound"
    try:
        manifest.commit(snapshot, Change(removed=(object_id,)))
    except ManifestConflictError:
        return DOUBT
    files = client.storage.list_recursive(row.location or "")
    client.storage.delete_many([info.key for info in files])
    return "ok"


FOREIGN = frozenset({"insert", "ndrop"})


def _program(index: int, act: Act, kind: str) -> Program:
    def run(client: Client) -> Hashable:
        if act.verb in FOREIGN:
            return _foreign(client, act, kind)
        context = context_on(client.storage, client.clock, _mode(kind))
        return answer_of(lambda: _do(context, act, kind), act.verb)

    return Program(str(act), run, ours=act.verb not in FOREIGN, skew=SKEWS[index % len(SKEWS)])


@dataclass(frozen=True, slots=True)
class Look:
    """What a new client finds."""

    live: frozenset[Table]
    dropped: frozenset[Table] | None
    """None while something is claimed or doubled: what that is then called is open."""
    purging: bool
    doubled: bool
    """A commit of ours came after another client's insert; it is withdrawn, by scrub if the client died."""
    wrong: str | None = None


class TablesJudge:
    """Looks at each state with the real code, and asks whether some order of the calls explains it."""

    def __init__(self, acts: Sequence[Act], begun: Tables, kind: str) -> None:
        self.acts, self.begun, self.kind = acts, begun, kind
        self._closed: dict[Orders, Orders] = {}
        self._looks: dict[int, tuple[Store, Look]] = {}

    def start(self) -> Orders:
        return frozenset({(self.begun, ("idle",) * len(self.acts))})

    def begin(self, orders: Orders, call: int) -> Orders:
        return self._close(frozenset((tables, _put(each, call, "open")) for tables, each in orders))

    def end(self, orders: Orders, call: int, answer: Hashable) -> Orders:
        if answer == DOUBT:
            return orders
        wanted = "open" if answer == REFUSED else answer
        return frozenset(
            (tables, _put(each, call, "idle")) for tables, each in orders if each[call] == wanted
        )

    def _close(self, orders: Orders) -> Orders:
        found = self._closed.get(orders)
        if found is None:
            seen, todo = set(orders), list(orders)
            while todo:
                tables, statuses = todo.pop()
                for i, status in enumerate(statuses):
                    if status not in ("open", "moving") and not isinstance(status, tuple):
                        continue
                    for new, after in moves(self.acts[i], status, tables, self.kind):
                        order = (after, _put(statuses, i, new))
                        if order not in seen:
                            seen.add(order)
                            todo.append(order)
            found = self._closed[orders] = frozenset(seen)
        return found

    def look(self, store: Store) -> Look:
        found = self._looks.get(id(store))
        if found is None:
            found = self._looks[id(store)] = (store, look_at(store, self.kind))
        return found[1]

    def wrong(self, store: Store, orders: Orders) -> str | None:
        if not orders:
            return "no order of the calls explains the responses"
        look = self.look(store)
        if look.wrong is not None or look.doubled:
            return look.wrong
        for tables, _ in orders:
            if tables.live == look.live and look.dropped in {None, tables.dropped}:
                return None
        return f"no order of the calls explains {look}"

    def wrong_after(self, store: Store, places: Sequence[int | None]) -> str | None:
        return None

    def wrong_at_rest(self, store: Store, orders: Orders, rest: Rest) -> str | None:
        """At rest nobody waits for the dead: every table can be dropped and undropped, every name created."""
        look = self.look(store)
        if look.doubled:
            return None
        for name in ("t", "u"):
            table = next((table for table in look.live if table[0] == name), None)
            if table is not None and table[1] == ELSEWHERE:
                continue  # another client's row, with no files
            if table is None:
                after, answer = run_alone(store, Act("create", name, "next"), self.kind)
                if answer == REFUSED and look.purging:
                    continue  # only for a dead purge others have to wait
                shown = {each[1] for each in look_at(after, self.kind).live if each[0] == name}
                # If it exists, this create has ended one of a dead client.
                if not shown or answer not in {"ok", "exists"} or (answer == "ok") != (shown == {"next"}):
                    return f"at rest a create of '{name}' says {answer} and shows {shown}"
                continue
            after, answer = run_alone(store, Act("drop", name), self.kind)
            left = {each for each in look_at(after, self.kind).live if each[0] == name}
            if answer != "ok" or table in left:
                return f"at rest a drop of {table} says {answer}"
            if left and not rest.calm:
                continue  # what a dead create left in the home directory is seen now
            again, answer = run_alone(after, Act("undrop", name), self.kind)
            if answer != "ok" or table not in look_at(again, self.kind).live:
                return f"at rest an undrop of {table} says {answer}"
        return self._purge_ends(store) if look.purging else None

    def _purge_ends(self, store: Store) -> str | None:
        after = replace(store, ticks=store.ticks + 1, stamp=0)
        for name in ("t", "u"):
            after, _ = run_alone(after, Act("purge", name), self.kind)
        look = look_at(after, self.kind)
        return "at rest the next purge ends nothing" if look.purging else look.wrong


def _put(statuses: Statuses, i: int, value: Any) -> Statuses:
    return (*statuses[:i], value, *statuses[i + 1 :])


def look_at(store: Store, kind: str) -> Look:
    """Look at a store as a new client."""
    return unexplored(lambda: _look_at(store, kind), "look")  # type: ignore[no-any-return]


def _look_at(store: Store, kind: str) -> Look:
    context = _context(store, kind)
    wrong: list[str] = []
    live = set()
    for name in ("t", "u"):
        try:
            found = find_table(context, _id(kind, name), properties=False)
        except TableNotFoundError:
            continue
        live.add(_table(store, name, found.directory, wrong))
    generations = all_generations(context)
    snapshot = context.latest()
    rows = [row.object_id for row in getattr(snapshot, "rows")]  # noqa: B009  # of the model alone
    doubled = len(rows) > len(set(rows))
    claimed = doubled or any(each.control.state is not State.DELETED for each in generations)
    controls = [each.control for each in generations]
    controls += [marked.control for name in ("t", "u") if (marked := read_control(context, name)) is not None]
    purging = any(control.state is State.PURGING for control in controls)
    dropped = None
    if not claimed:
        dropped = frozenset(_table(store, each.table_id.name, each.directory, wrong) for each in generations)
    return Look(frozenset(live), dropped, purging, doubled, wrong[0] if wrong else None)


def _table(store: Store, name: str, directory: str, wrong: list[str]) -> Table:
    return name, _data(store, directory, wrong), directory == table_directory(name)


def _data(store: Store, directory: str, wrong: list[str]) -> Any:
    bodies = {key: (each.body, each.modified) for key, each in store.objects.items()}
    versions = [version for _, version in versions_in(bodies, directory)]
    if not versions:
        if directory != ELSEWHERE:
            wrong.append(f"a row leads to '{directory}', where no version is")
        return ELSEWHERE
    missing = missing_files(bodies, directory, versions[-1])
    if missing:
        wrong.append(f"files of a table are gone: {missing}")
    return versions[-1].data


def _context(store: Store, kind: str) -> Context:
    storage = StampedStorage(StoreClock(store.ticks, store.stamp), store.objects, is_timed)
    return context_on(storage, SteppedClock(true=BEGINNING + store.ticks * TICK), _mode(kind))


def run_alone(store: Store, act: Act, kind: str) -> tuple[Store, Hashable]:
    """Run one call to its end, with nobody else at work."""
    context = _context(store, kind)
    storage = context.storage
    assert isinstance(storage, StampedStorage)  # it was just opened
    answer = unexplored(lambda: answer_of(lambda: _do(context, act, kind), act.verb), "alone")
    return Store(storage.objects, storage.stamps.stamp, store.ticks), answer


# Scenarios.


@dataclass(frozen=True)
class Case:
    """What was before, what runs at once, how much may go wrong."""

    kind: str
    start: tuple[str, ...]
    acts: tuple[str, ...]
    budget: Budget
    after: tuple[tuple[int, int], ...] = ()

    @property
    def name(self) -> str:
        after = "".join(f" {i}>{j}" for i, j in self.after)
        faults = f"{self.budget.crashes}c {self.budget.lost}l {self.budget.ticks}t {self.budget.refused}r"
        return f"{self.kind}: {', '.join(self.start)}: {' | '.join(self.acts)}{after} ({faults})"

    @property
    def without_faults(self) -> Case:
        return replace(self, budget=Budget())

    def scenario(self) -> Scenario:
        objects, begun = _begin(self.kind, self.start)
        acts = _acts(self.acts)
        return Scenario(
            programs=[_program(index, act, self.kind) for index, act in enumerate(acts)],
            objects=objects,
            judge=TablesJudge(acts, begun, self.kind),
            after=self.after,
            quiet=_is_quiet,
            is_timed=is_timed,
            is_mark=lambda key: key.endswith(MARKER_SUFFIX),
        )


def is_timed(key: str) -> bool:
    """Tell whether the time of an object is looked at."""
    return "/_versions/" in key or key.endswith((CONTROL_SUFFIX, MARKER_SUFFIX))


PAIR = Budget(crashes=1, lost=1)
EVERYTHING = Budget(crashes=1, lost=1, ticks=1)
CRASH = Budget(crashes=1)
LATER = Budget(crashes=1, ticks=1)
REFUSAL = Budget(refused=1)


def _rows(kind: str) -> list[Case]:
    """Tables that their rows decide about."""
    found = [Case(kind, LIVE, ("drop t", other), EVERYTHING) for other in ("drop t", "undrop t")]
    for start, acts in (
        (DROPPED, ("undrop t", "purge t", "create t b", "undrop t u")),
        (LIVE, ("overwrite t b", "rename t u")),
    ):
        for act in acts:
            others = ("undrop t", "purge t") if start is DROPPED else ("drop t", "create u c", "rename t u")
            found += [Case(kind, start, (act, other), EVERYTHING) for other in others]
            found.append(Case(kind, start, (act, others[0]), REFUSAL))
    return [
        *found,
        Case(kind, (), ("create t b", "create t c"), EVERYTHING),
        Case(kind, (), ("create t b", "insert t"), EVERYTHING),
        Case(kind, DROPPED, ("create t b", "create t c"), EVERYTHING),
        Case(kind, DROPPED, ("create t b", "insert t"), EVERYTHING),
        Case(kind, DROPPED, ("undrop t", "insert t"), EVERYTHING),
        Case(kind, DROPPED, ("undrop t u", "create u b"), EVERYTHING),
        Case(kind, LIVE, ("overwrite t b", "drop t", "purge t"), PAIR, ((2, 1),)),
        Case(kind, LIVE, ("rename t u", "create t b"), EVERYTHING),
        Case(kind, LIVE, ("rename t u", "rename u t"), EVERYTHING, ((1, 0),)),
        Case(kind, LIVE, ("drop t", "ndrop t", "undrop t"), PAIR, ((2, 0),)),
        Case(kind, LIVE, ("drop t", "undrop t", "purge t"), CRASH),
        Case(kind, DROPPED, ("undrop t", "create t b", "purge t"), CRASH),
        Case(kind, DROPPED, ("purge t", "purge t", "create t b"), EVERYTHING, ((2, 1),)),
    ]


def _copies() -> list[Case]:
    """Root tables, which a rename and an undrop under another name copy."""
    others = ("drop t", "undrop t", "create u b", "create t b", "overwrite t b", "rename t u", "insert u")
    found = [Case(ROOT, LIVE, ("rename t u", other), PAIR) for other in others]
    return [
        *found,
        Case(ROOT, LIVE, ("rename t u", "purge t"), LATER),
        Case(ROOT, LIVE, ("rename t u", "drop u"), PAIR, ((1, 0),)),
        Case(ROOT, LIVE, ("rename t u", "rename u t"), PAIR, ((1, 0),)),
        Case(ROOT, LIVE, ("rename t u", "drop t", "undrop t"), CRASH, ((2, 1),)),
        Case(ROOT, LIVE, ("rename t u", "undrop t", "purge t"), CRASH),
        Case(ROOT, LIVE, ("rename t u", "drop t"), REFUSAL),
        Case(ROOT, LIVE, ("rename t u", "undrop t"), REFUSAL),
        Case(ROOT, (*DROPPED, "undrop t"), ("rename t u", "drop t"), CRASH),
        Case(ROOT, DROPPED, ("undrop t u", "undrop t"), PAIR),
        Case(ROOT, DROPPED, ("undrop t u", "purge t"), LATER),
        Case(ROOT, DROPPED, ("undrop t u", "create t b"), PAIR),
        Case(ROOT, DROPPED, ("undrop t u", "create u b"), PAIR),
        Case(ROOT, DROPPED, ("undrop t u", "drop u"), PAIR, ((1, 0),)),
        Case(ROOT, MOVED, ("rename u t", "undrop t"), PAIR),
        Case(ROOT, MOVED, ("rename u t", "drop u"), PAIR),
        Case(ROOT, MOVED, ("create t b", "undrop t"), PAIR),
    ]


def all_cases() -> tuple[Case, ...]:
    """Return all cases."""
    return (*_rows(NAMESPACED), *_rows(V2_ONLY), *_copies())


def _is_quiet(request: Request) -> bool:
    """Tell whether nothing depends on when a request is carried out."""
    if request.verb in {"now", "copy"} or request.key == CLOCK_KEY:
        return True  # a copy goes into a directory that nobody else knows
    if request.verb == "read":
        return "/_versions/" in request.key
    return request.verb == "create" and not is_timed(request.key) and request.key != MODEL_KEY


@cache
def _begin(kind: str, texts: tuple[str, ...]) -> tuple[Mapping[str, Any], Tables]:
    """Return the objects and what there is after some calls, long before the beginning."""
    ticks = -400
    storage = StampedStorage(StoreClock(ticks, 0), {}, is_timed)
    storage.create(".relance-root", b'{"format": 2, "nested_markers": "none"}')
    tables = Tables()

    def step(work: Callable[[Context], object]) -> None:
        clock = SteppedClock(true=BEGINNING + ticks * TICK)
        unexplored(lambda: work(context_on(storage, clock, _mode(kind))), f"s{ticks}x")

    if kind == NAMESPACED:
        step(lambda context: insert_row(context, Row("n", ObjectType.NAMESPACE)))
    for act in _acts(texts):
        ticks += 20
        storage = StampedStorage(StoreClock(ticks, 0), storage.objects, is_timed)
        step(lambda context, act=act: _do(context, act, kind))  # type: ignore[misc]  # bound now
        status: Any = "open"
        while status != "ok":
            status, tables = list(moves(act, status, tables, kind))[0 if status == "moving" else -1]
    return dict(storage.objects), tables
