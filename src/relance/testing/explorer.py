"""Runs real code of several clients over one store, in every order of their storage requests.

What a client does next depends on nothing but the answers it was given, so each program is turned into an
automaton, by running it once for every sequence of answers that it ever gets. The explorer then walks
through the states of all automata together, without running any code again: who goes on, who dies, whose
answer is lost, which request comes late or twice, and when time passes.
"""

from __future__ import annotations

import sys
from collections import OrderedDict, deque
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Protocol
from unittest import mock

from greenlet import GreenletExit, getcurrent, greenlet

from relance.errors import OutcomeUnknownError, PermissionDeniedError, RelanceError
from relance.storage.memory import MemoryStorage
from relance.storage.protocol import Page, Version
from relance.testing.clock import SteppedClock
from relance.testing.requests import Failure, Request, RequestStorage, carry_out

BEGINNING = datetime(2026, 1, 1, tzinfo=UTC)
TICK = timedelta(hours=2)
"""So much time passes at once: more than all periods of the lifecycle but the retention."""

DEAD, ENDED, IN_DOUBT = -1, -2, -3
"""Instead of a place in its program: where a client is."""

DOUBT = "?"
"""What a program returns if it cannot tell whether it did anything."""

_CHECKS_OF_TIME = frozenset({"has_ended", "left", "_put"})
"""Functions that look at the time just before a request is sent: it is not sent long after that."""

_MOST_PARKED = 3000


# The store.


@dataclass(slots=True)
class StoreClock:
    """The store's own clock: every write that matters comes a second after the one before."""

    ticks: int
    stamp: int
    coarse: bool = False

    def now(self) -> datetime:
        """Return the time now, which is not before any write so far."""
        return self.began + timedelta(seconds=600)

    @property
    def began(self) -> datetime:
        return BEGINNING + self.ticks * TICK

    @property
    def next_write(self) -> datetime:
        return self.began + timedelta(seconds=0 if self.coarse else self.stamp + 1)

    def monotonic(self) -> float:
        raise NotImplementedError

    def sleep(self, seconds: float) -> None:
        raise NotImplementedError

    def at_store(self, moment: datetime) -> datetime:
        return moment


class StampedStorage(MemoryStorage):
    """A memory store that stamps its objects by the explorer's time."""

    def __init__(
        self, clock: StoreClock, objects: Mapping[str, Any], is_timed: Callable[[str], bool]
    ) -> None:
        super().__init__("explorer", clock)
        self.stamps = clock
        self._objects = dict(objects)
        self._is_timed = is_timed

    @property
    def objects(self) -> dict[str, Any]:
        return self._objects

    def _put(self, key: str, body: bytes) -> Version:
        version = super()._put(key, body)
        moment = self.stamps.next_write if self._is_timed(key) else BEGINNING
        made = self._objects[key]
        self._objects[key] = type(made)(made.body, moment, made.version)
        if self._is_timed(key) and "/data/" not in key and not self.stamps.coarse:
            self.stamps.stamp += 1
        return version

    def list_after(self, key: str) -> Page:
        """Return a page that ends with the first data file: what follows decides nothing."""
        page = super().list_after(key)
        for number, info in enumerate(page.objects):
            if "/data/" in info.key:
                return Page(page.objects[: number + 1], is_last=False)
        return page


@dataclass(frozen=True, slots=True)
class Store:
    """The content of the store at one moment."""

    objects: Mapping[str, Any]
    stamp: int
    ticks: int


# Programs.


@dataclass(slots=True)
class Client:
    """What a program is given."""

    index: int
    storage: RequestStorage
    clock: SteppedClock


@dataclass(frozen=True, slots=True)
class Program:
    """One call by one client, told from the beginning to its response."""

    name: str
    run: Callable[[Client], Hashable]
    ours: bool = True
    """Relance's own code, whose requests may fail; other implementations are taken as they are."""
    skew: timedelta = timedelta()
    """By how much the wall clock of its client is wrong."""


class _WatchedClock(SteppedClock):
    """Notes whether the time was looked at, and whether that was just before a request was sent."""

    checked = False
    looked = False

    def now(self) -> datetime:
        self.looked = True
        return SteppedClock.now(self)

    def monotonic(self) -> float:
        self.looked = True
        if sys._getframe(1).f_code.co_name in _CHECKS_OF_TIME:
            self.checked = True
        return SteppedClock.monotonic(self)


class _Life:
    """One execution of a program, which stops before each request."""

    def __init__(self, program: Program, index: int) -> None:
        self.index = index
        self.nonces = 0
        self.request: Request | None = None
        self.outcome: Hashable = None
        self.checked = False
        self.looked = False
        self._over = False
        self._clock = _WatchedClock(skew=program.skew)
        client = Client(index, RequestStorage(self._ask), self._clock)
        self._greenlet = greenlet(lambda: self._live(program, client))
        self._scheduler = getcurrent()

    def nonce(self) -> str:
        self.nonces += 1
        return f"c{self.index}n{self.nonces}"

    def _live(self, program: Program, client: Client) -> None:
        try:
            self.outcome = program.run(client)
        except GreenletExit:
            return
        except Exception as error:  # noqa: BLE001  # whatever it is, it is told
            self.outcome = ("error", f"{type(error).__name__}: {error}")
        self.request = None

    def _ask(self, request: Request) -> Any:
        if self._over:
            raise GreenletExit
        self.request, self.checked = request, self._clock.checked
        answer = self._scheduler.switch()
        if self._over:
            raise GreenletExit
        self._clock.checked = False
        if isinstance(answer, Failure):
            raise answer.error()
        return answer

    def go_on(self, answer: object, ticks: int) -> None:
        self._clock.true, self._clock.looked = BEGINNING + ticks * TICK, False
        _nonces.source = self
        self._greenlet.switch() if answer is _BEGIN else self._greenlet.switch(answer)
        self.looked = self._clock.looked

    def close(self) -> None:
        self._over = True
        if self._greenlet and not self._greenlet.dead:
            with Setup("over"):  # what it still does takes no other client's nonces
                self._greenlet.throw()


_BEGIN = object()


class _Nonces:
    """Stands in for `secrets.token_hex`: gives the nonces of who is at work, in a replay the same ones."""

    source: Any = None

    def __call__(self, size: int = 8) -> str:
        return str(self.source.nonce())


_nonces = _Nonces()


class Setup:
    """Gives nonces outside of programs."""

    def __init__(self, prefix: str) -> None:
        self.prefix = prefix
        self.count = 0

    def nonce(self) -> str:
        self.count += 1
        return f"{self.prefix}{self.count}"

    def __enter__(self) -> None:
        self._before = _nonces.source
        _nonces.source = self

    def __exit__(self, *_: object) -> None:
        _nonces.source = self._before


@dataclass(slots=True)
class _Node:
    """A place in a program: the answers that lead to it, and what it asks then."""

    program: int
    parent: int
    answer: object
    ticks: int
    request: int
    """The number of the request; -1 at the end."""
    checked: bool
    outcome: Hashable = None


class _Table:
    """Numbers for values."""

    def __init__(self) -> None:
        self.values: list[Any] = []
        self.numbers: dict[Any, int] = {}

    def number(self, value: Hashable) -> int:
        found = self.numbers.get(value)
        if found is None:
            found = self.numbers[value] = len(self.values)
            self.values.append(value)
        return found


class _Automata:
    """Programs as automata, which grow as far as they are walked."""

    def __init__(self, programs: Sequence[Program], requests: _Table) -> None:
        self.programs = programs
        self.requests = requests
        self.nodes: list[_Node] = []
        self.replays = 0
        self._next: dict[Any, int] = {}
        """By place and answer where the time does not matter, else by place, answer and time."""
        self._parked: OrderedDict[int, _Life] = OrderedDict()

    def begin(self, program: int, ticks: int) -> int:
        return self._go_on((-1 - program, None), ticks, lambda: _Life(self.programs[program], program))

    def step(self, node: int, answer: object, ticks: int) -> int:
        return self._go_on((node, answer), ticks, lambda: self._parked.pop(node, None) or self._replay(node))

    def _go_on(self, step: tuple[int, object], ticks: int, reach: Callable[[], _Life]) -> int:
        found = self._next.get(step)
        if found is None:
            found = self._next.get((step, ticks))
        if found is None:
            life = reach()
            node, answer = step
            life.go_on(_BEGIN if node < 0 else answer, ticks)
            program = -1 - node if node < 0 else self.nodes[node].program
            found = self._add(program, max(node, -1), answer, ticks, life)
            self._next[(step, ticks) if life.looked else step] = found
        return found

    def _replay(self, node: int) -> _Life:
        self.replays += 1
        path = []
        while node >= 0:
            path.append(self.nodes[node])
            node = path[-1].parent
        path.reverse()
        life = _Life(self.programs[path[0].program], path[0].program)
        for place in path:
            life.go_on(_BEGIN if place.parent < 0 else place.answer, place.ticks)
            expected = None if place.request < 0 else self.requests.values[place.request]
            if life.request != expected:
                raise AssertionError(f"a replay asks {life.request} instead of {expected}")
        return life

    def _add(self, program: int, parent: int, answer: object, ticks: int, life: _Life) -> int:
        number = len(self.nodes)
        request = -1 if life.request is None else self.requests.number(life.request)
        self.nodes.append(_Node(program, parent, answer, ticks, request, life.checked, life.outcome))
        if request >= 0:
            self._parked[number] = life
            if len(self._parked) > _MOST_PARKED:
                self._parked.popitem(last=False)[1].close()
        return number

    def close(self) -> None:
        for life in self._parked.values():
            life.close()
        self._parked.clear()


# What is explored.


@dataclass(frozen=True, slots=True)
class Budget:
    """How much may go wrong in one run."""

    crashes: int = 0
    lost: int = 0
    """Answers that do not arrive, or not before the request was sent again."""
    ticks: int = 0
    repeated: int = 0
    """Requests that a client library sends again while the first one is under way, without telling."""
    refused: int = 0
    """Writes that the store refuses with a definite error."""

    def spend(self, **what: int) -> Budget:
        names = ("crashes", "lost", "ticks", "repeated", "refused")
        return Budget(**{name: getattr(self, name) - what.get(name, 0) for name in names})


@dataclass(frozen=True, slots=True)
class Rest:
    """Who is left when nobody is at work any more."""

    places: tuple[int | None, ...]
    calm: bool
    """Nothing went wrong."""
    late_mark: bool
    """A request to put a marker was lost, repeated or left by a dead client."""


class Judge(Protocol):
    """Says what is wrong."""

    def start(self) -> Hashable:
        """Return the orders of calls that explain the beginning: none yet."""

    def begin(self, orders: Any, call: int) -> Hashable:
        """Return the orders after a call began."""

    def end(self, orders: Any, call: int, answer: Hashable) -> Hashable:
        """Return the orders that explain an answer, too."""

    def wrong(self, store: Store, orders: Any) -> str | None:
        """Say what is wrong with a state, or None."""

    def wrong_at_rest(self, store: Store, orders: Any, rest: Rest) -> str | None:
        """Say what is wrong with a state in which nobody is at work, or None."""

    def wrong_after(self, store: Store, places: Sequence[int | None]) -> str | None:
        """Say what is wrong with a state given who has ended, or None."""


@dataclass(frozen=True, slots=True)
class Scenario:
    """What to explore."""

    programs: Sequence[Program]
    objects: Mapping[str, Any]
    """What is in the store."""
    judge: Judge
    after: Sequence[tuple[int, int]] = ()
    """Pairs (i, j): program i begins when j has ended well."""
    dead: Mapping[int, Request] = field(default_factory=dict)
    """Clients that are dead already, each with a request that may still arrive."""
    stalled: Mapping[int, Callable[[Request], bool]] = field(default_factory=dict)
    """Programs that have come, alone, as far as to a request, where they wait in the beginning."""
    quiet: Callable[[Request], bool] = lambda request: False
    """Requests that nothing in the scenario depends on: they do not wait."""
    is_timed: Callable[[str], bool] = lambda key: True
    """Keys whose time is looked at."""
    is_mark: Callable[[str], bool] = lambda key: False
    coarse: bool = False
    """All that is written between two ticks has the same time."""
    calm: bool = True


@dataclass(frozen=True, slots=True)
class Violation:
    """A schedule that breaks the rules."""

    what: str
    trace: tuple[str, ...]

    def __str__(self) -> str:
        return self.what + "\n  " + "\n  ".join(self.trace)


@dataclass(slots=True)
class Exploration:
    """What was explored and what was found."""

    states: int = 0
    nodes: int = 0
    replays: int = 0
    violation: Violation | None = None


_State = tuple[int, tuple[Any, ...], frozenset[tuple[int, int]], Budget, int, bool, bool]


class Explorer:
    """Walks through all states of a scenario."""

    def __init__(self, scenario: Scenario, budget: Budget) -> None:
        self.scenario = scenario
        self._requests, self._stores, self._orders = _Table(), _Table(), _Table()
        self._contents: list[Store] = []
        self._automata = _Automata(scenario.programs, self._requests)
        self._applied: dict[tuple[int, int], tuple[int, object]] = {}
        self._quiet: dict[int, bool] = {}
        self._judged: dict[tuple[int, int], str | None] = {}
        self._rested: dict[Any, str | None] = {}
        store = self._store(Store(scenario.objects, 0, 0))
        orders = scenario.judge.start()
        places: list[int | None] = [None] * len(scenario.programs)
        ghosts = set()
        for program, request in scenario.dead.items():
            places[program] = DEAD
            ghosts.add((program, self._requests.number(request)))
            orders = scenario.judge.begin(orders, program)
        mark = any(scenario.is_mark(request.key) for request in scenario.dead.values())
        self._first: _State = (
            store,
            tuple(places),
            frozenset(ghosts),
            budget,
            self._orders.number(orders),
            scenario.calm and not scenario.dead,
            mark,
        )
        for program, stop in scenario.stalled.items():
            self._first = self._stall(self._first, program, stop)

    def _stall(self, state: _State, i: int, stop: Callable[[Request], bool]) -> _State:
        store, places, ghosts, budget, orders, calm, mark = state
        begun = self._orders.number(self.scenario.judge.begin(self._orders.values[orders], i))
        state = (store, places, ghosts, budget, begun, calm, mark)
        node = self._automata.begin(i, self._contents[store].ticks)
        _, state = self._arrive("", state, i, -1, None, node)
        while True:
            place = state[1][i]
            assert place is not None  # it has begun
            assert place >= 0, "the program ended before that request"
            request = self._automata.nodes[place >> 1].request
            if stop(self._requests.values[request]):
                return state
            done, answer = self._apply(state[0], request)
            _, state = self._tell("", state, i, done, answer)

    def _store(self, store: Store) -> int:
        key = (frozenset(store.objects.items()), store.stamp, store.ticks)
        number = self._stores.number(key)
        if number == len(self._contents):
            self._contents.append(store)
        return number

    def open(self, store: Store) -> StampedStorage:
        clock = StoreClock(store.ticks, store.stamp, self.scenario.coarse)
        return StampedStorage(clock, store.objects, self.scenario.is_timed)

    def _apply(self, store: int, request: int) -> tuple[int, object]:
        found = self._applied.get((store, request))
        if found is None:
            before = self._contents[store]
            storage = self.open(before)
            answer = carry_out(storage, self._requests.values[request])
            stamp = storage.stamps.stamp
            after = (
                store
                if storage.objects == before.objects
                else self._store(Store(storage.objects, stamp, before.ticks))
            )
            found = self._applied[store, request] = (after, answer)
        return found

    def run(self, most_states: int | None = None) -> Exploration:
        """Explore until there is nothing left, a violation was found, or `most_states` were seen."""
        result = Exploration()
        parents: dict[_State, tuple[str, Any, _State] | None] = {self._first: None}
        queue = deque([self._first])
        try:
            while queue and (most_states is None or len(parents) < most_states):
                state = queue.popleft()
                what = self._wrong(state)
                if what is not None:
                    result.violation = Violation(what, self._trace(parents, state))
                    break
                for label, new in self._nexts(state):
                    if new not in parents:
                        parents[new] = (*label, state)
                        queue.append(new)
        finally:
            self._automata.close()
        result.states, result.nodes = len(parents), len(self._automata.nodes)
        result.replays = self._automata.replays
        return result

    def _trace(self, parents: Mapping[_State, Any], state: _State) -> tuple[str, ...]:
        lines: list[str] = []
        while (step := parents[state]) is not None:
            what, details, state = step
            text = details if isinstance(details, str) else self._describe(*details)
            lines.append(f"{what}: {text}")
        return tuple(reversed(lines))

    def _describe(self, program: int, request: int, answer: object, outcome: object) -> str:
        text = f"{program} {self.scenario.programs[program].name}"
        if request >= 0:
            text += f": {self._requests.values[request]}"
        if isinstance(answer, Failure):
            text += f" -> {answer.kind.__name__}"
        return text if outcome is None else f"{text} => {outcome}"

    def _nexts(self, state: _State) -> Iterator[tuple[tuple[str, Any], _State]]:
        store, places, ghosts, budget, orders, calm, mark = state
        nodes, programs = self._automata.nodes, self.scenario.programs
        ticks = self._contents[store].ticks
        for i, place in enumerate(places):
            if place is None:
                if all(places[j] == ENDED for a, j in self.scenario.after if a == i):
                    begun = self._orders.number(self.scenario.judge.begin(self._orders.values[orders], i))
                    yield self._arrive(
                        "begins",
                        (store, places, ghosts, budget, begun, calm, mark),
                        i,
                        -1,
                        None,
                        self._automata.begin(i, ticks),
                    )
                continue
            if place < 0:
                continue
            node = nodes[place >> 1]
            request = node.request
            asked: Request = self._requests.values[request]
            writes, ours = asked.writes, programs[i].ours
            marks = mark or (asked.verb == "create" and self.scenario.is_mark(asked.key))
            if place & 1:
                yield self._tell("too late", state, i, store, _TOO_OLD)
                continue
            done, answer = self._apply(store, request)
            yield self._tell("step", state, i, done, answer)
            if budget.crashes and (writes or node.parent >= 0):
                late = ghosts | {(i, request)} if writes else ghosts
                dead = (*places[:i], DEAD, *places[i + 1 :])
                less = budget.spend(crashes=1)
                yield (
                    ("dies", (i, request, None, None)),
                    (store, dead, late, less, orders, False, marks if writes else mark),
                )
            if budget.lost and writes and ours:
                less = budget.spend(lost=1)
                base = (store, places, ghosts, less, orders, False, marks)
                waiting = (store, places, ghosts | {(i, request)}, less, orders, False, marks)
                yield self._tell("done, answer lost", base, i, done, _LOST)
                yield self._tell("under way, answer lost", waiting, i, store, _LOST)
                twice, second = self._apply(done, request)
                if second != answer or twice != done:
                    yield self._tell("done twice", base, i, twice, second)
            if budget.refused and writes and ours:
                base = (store, places, ghosts, budget.spend(refused=1), orders, False, marks)
                yield self._tell("refused", base, i, store, _REFUSED)
            if budget.repeated and ours and asked.verb in {"create", "delete_many"}:
                less = budget.spend(repeated=1)
                waiting = (store, places, ghosts | {(i, request)}, less, orders, False, marks)
                yield self._tell("done, and sent again", waiting, i, done, answer)
        for ghost in ghosts:
            done, _ = self._apply(store, ghost[1])
            if done != store:
                yield (
                    ("late", (*ghost, None, None)),
                    (done, places, ghosts - {ghost}, budget, orders, calm, mark),
                )
        if budget.ticks and any(place is not None for place in places):
            old = self._contents[store]
            later = self._store(Store(old.objects, 0, old.ticks + 1))
            waiting = tuple(
                place | 1 if place is not None and place >= 0 and self._expires(place) else place
                for place in places
            )
            yield (
                ("time passes", ""),
                (later, waiting, frozenset(), budget.spend(ticks=1), orders, calm, mark),
            )

    def _expires(self, place: int) -> bool:
        """Tell whether a waiting request is not sent long after now: its client just looked at the time."""
        node = self._automata.nodes[place >> 1]
        writes: bool = self._requests.values[node.request].writes
        return writes and node.checked and self.scenario.programs[node.program].ours

    def _tell(
        self, what: str, state: _State, i: int, store: int, answer: object
    ) -> tuple[tuple[str, Any], _State]:
        """Return the state after a client got an answer."""
        place = state[1][i] >> 1
        ticks = self._contents[store].ticks
        request = self._automata.nodes[place].request
        after = self._automata.step(place, answer, ticks)
        return self._arrive(what, (store, *state[1:]), i, request, answer, after)

    def _arrive(
        self, what: str, state: _State, i: int, request: int, answer: object, place: int
    ) -> tuple[tuple[str, Any], _State]:
        """Carry out the quiet requests that follow, and note the outcome if there is one."""
        store, places, ghosts, budget, orders, calm, mark = state
        ticks = self._contents[store].ticks
        nodes = self._automata.nodes
        while (asked := nodes[place].request) >= 0 and self._is_quiet(asked):
            store, told = self._apply(store, asked)
            place = self._automata.step(place, told, ticks)
        node, at, outcome = nodes[place], place << 1, None
        if node.request < 0:
            outcome = node.outcome
            at = IN_DOUBT if outcome == DOUBT else ENDED
            orders = self._orders.number(self.scenario.judge.end(self._orders.values[orders], i, outcome))
        placed = (*places[:i], at, *places[i + 1 :])
        return (what, (i, request, answer, outcome)), (store, placed, ghosts, budget, orders, calm, mark)

    def _is_quiet(self, request: int) -> bool:
        found = self._quiet.get(request)
        if found is None:
            found = self._quiet[request] = self.scenario.quiet(self._requests.values[request])
        return found

    def _wrong(self, state: _State) -> str | None:
        store, places, _, _, orders, calm, mark = state
        judge, content = self.scenario.judge, self._contents[store]
        key = (store, orders)
        if key not in self._judged:
            self._judged[key] = judge.wrong(content, self._orders.values[orders])
        if self._judged[key] is not None:
            return self._judged[key]
        what = judge.wrong_after(content, places)
        if what is not None or any(place is None or place >= 0 for place in places):
            return what
        rest = Rest(places, calm and IN_DOUBT not in places and DEAD not in places, mark)
        last = (store, orders, rest)
        if last not in self._rested:
            self._rested[last] = judge.wrong_at_rest(content, self._orders.values[orders], rest)
        return self._rested[last]


_LOST = Failure(OutcomeUnknownError, "the answer was lost")
_REFUSED = Failure(PermissionDeniedError, "the store refused it")
_TOO_OLD = Failure(OutcomeUnknownError, "the store refused it as too old")


def explore(scenario: Scenario, budget: Budget, *, most_states: int | None = None) -> Exploration:
    """Explore every schedule; stops at the first violation."""
    with mock.patch("secrets.token_hex", _nonces):
        return Explorer(scenario, budget).run(most_states)


def run_until(
    program: Program, storage: StampedStorage, stop: Callable[[Request], bool], index: int
) -> Request | None:
    """Run a program on a store until it asks for what `stop` names; return that request, None if it ended."""
    with mock.patch("secrets.token_hex", _nonces):
        life = _Life(program, index)
        answer: object = _BEGIN
        try:
            while True:
                life.go_on(answer, storage.stamps.ticks)
                if life.request is None or stop(life.request):
                    return life.request
                answer = carry_out(storage, life.request)
        finally:
            life.close()


def unexplored(work: Callable[[], Any], prefix: str) -> Any:
    """Do something with real code outside an exploration, with nonces of its own."""
    with mock.patch("secrets.token_hex", _nonces), Setup(prefix):
        return work()


__all__ = [
    "BEGINNING",
    "DEAD",
    "DOUBT",
    "ENDED",
    "IN_DOUBT",
    "TICK",
    "Budget",
    "Client",
    "Exploration",
    "Explorer",
    "Judge",
    "Program",
    "RelanceError",
    "Rest",
    "Scenario",
    "StampedStorage",
    "Store",
    "StoreClock",
    "Violation",
    "explore",
    "run_until",
    "unexplored",
]
