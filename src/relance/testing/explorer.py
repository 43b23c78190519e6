"""Runs real code of several actors over one memory store, in every order of their storage requests.

Each actor is a greenlet that stops before each request. The explorer decides who goes on, who
crashes, whose answer is lost, and when time passes; it replays a schedule from the start to come
back to a state, and does not explore a state twice. A state is the store's content plus what every
actor has seen so far, which determines all that can follow.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from enum import StrEnum
from typing import Any, NoReturn, TypeVar
from unittest import mock

from greenlet import getcurrent, greenlet

from relance.errors import OutcomeUnknownError, RelanceError
from relance.storage.memory import MemoryStorage
from relance.storage.protocol import Level, Stored
from relance.testing.clock import ManualClock
from relance.testing.stepped_storage import Pending, SteppedStorage

_T = TypeVar("_T")


class _Nonces:
    """Stands in for `secrets.token_hex`: gives the nonces of who is at work, in a replay the same ones."""

    source: Start | Run | None = None

    def __call__(self, size: int) -> str:
        assert self.source is not None
        return self.source.nonce()


_nonces = _Nonces()


class Fate(StrEnum):
    """What happens to the request an actor waits on."""

    STEP = "step"
    """It is carried out."""
    LOST = "lost"
    """It is carried out, but the actor is told that nobody knows."""
    RETRIED = "retried"
    """It is carried out twice, as a client library does after a lost answer."""
    CRASH = "crash"
    """It is not carried out, and the actor is never heard of again."""
    TICK = "tick"
    """Time passes; writes that were under way are refused as too old from now on."""


@dataclass(frozen=True, slots=True)
class Choice:
    """One decision of the explorer."""

    fate: Fate
    actor: int = -1


@dataclass(frozen=True, slots=True)
class Budget:
    """How much may go wrong in one run."""

    crashes: int = 0
    lost: int = 0
    ticks: int = 0


@dataclass(slots=True)
class Actor:
    """One actor of a run: a sequence of calls, each with the outcome it had."""

    index: int
    calls: Sequence[Callable[[Any], Any]]
    names: Sequence[str]
    outcomes: list[tuple[str, Any]] = field(default_factory=list)
    started: list[int] = field(default_factory=list)
    ended: list[int] = field(default_factory=list)
    seen: int = 0
    pending: Pending | None = None
    expired: bool = False
    crashed: bool = False
    nonces: int = 0

    @property
    def waiting(self) -> bool:
        return self.pending is not None and not self.crashed


class Start:
    """What all runs of a scenario begin with; it is made once."""

    def __init__(self, scenario: Scenario) -> None:
        self.clock = ManualClock()
        self.store = MemoryStorage("explorer", self.clock)
        self._count = 0
        _nonces.source = self
        scenario.prepare(self)

    def nonce(self) -> str:
        """Return the next nonce."""
        self._count += 1
        return f"setup-{self._count}"


class Run:
    """One execution of all actors under a given schedule."""

    def __init__(self, scenario: Scenario, start: Start) -> None:
        self.clock = replace(start.clock)
        self.store = start.store.copy(self.clock)
        self.storage = SteppedStorage(self.store, self, takes_away=scenario.takes_away)
        self.spent = Budget()
        self.time = 0
        self.schedule: list[Choice] = []
        self._scenario = scenario
        self._scheduler = getcurrent()
        _nonces.source = self
        self.actors = [
            Actor(index, [call for _, call in calls], [name for name, _ in calls])
            for index, calls in enumerate(scenario.actors)
        ]
        self._greenlets = [greenlet(lambda actor=actor: self._live(actor)) for actor in self.actors]
        for each in self._greenlets:
            each.switch()

    def request(self, pending: Pending, act: Callable[[], _T]) -> _T:
        """Called by an actor: wait for the explorer, then carry the request out as it decides."""
        actor = self._current()
        if self._scenario.quiet(pending.key):
            return act()
        actor.pending, actor.expired = pending, False
        fate = self._scheduler.switch()
        actor.pending = None
        if actor.expired and pending.writes:
            self._refuse(actor, pending, OutcomeUnknownError("the store refused it as too old"))
        try:
            result = act()
            if fate is Fate.RETRIED:
                result = act()
        except RelanceError as error:
            if fate is not Fate.LOST:
                self._note(actor, pending, type(error).__name__)
                raise
        if fate is Fate.LOST:
            self._refuse(actor, pending, OutcomeUnknownError("the answer was lost"))
        self._note(actor, pending, result)
        return result

    def _refuse(self, actor: Actor, pending: Pending, error: RelanceError) -> NoReturn:
        self._note(actor, pending, type(error).__name__)
        raise error

    def _note(self, actor: Actor, pending: Pending, answer: object) -> None:
        """Add to what the actor has seen, which with the store determines what it does next."""
        actor.seen = hash((actor.seen, pending, _digest(answer), self.clock.seconds))

    def nonce(self) -> str:
        """Return the current actor's next nonce, the same in every replay, or one for a check of the run."""
        current = getcurrent()
        if current is self._scheduler:
            self.time += 1
            return f"check-{self.time}"
        actor = self._current()
        actor.nonces += 1
        return f"actor{actor.index}-{actor.nonces}"

    def _current(self) -> Actor:
        return self.actors[self._greenlets.index(getcurrent())]

    def _live(self, actor: Actor) -> None:
        context = self._scenario.context(self)
        for call in actor.calls:
            actor.started.append(self.time)
            try:
                outcome = ("ok", call(context))
            except RelanceError as error:
                outcome = (type(error).__name__, None)
            actor.outcomes.append(outcome)
            self.time += 1
            actor.ended.append(self.time)

    def choices(self, budget: Budget) -> list[Choice]:
        """Return all that can happen next."""
        found = []
        for actor in self.actors:
            if not actor.waiting:
                continue
            found.append(Choice(Fate.STEP, actor.index))
            writes = actor.pending is not None and actor.pending.writes and not actor.expired
            if writes and self.spent.lost < budget.lost:
                found.append(Choice(Fate.LOST, actor.index))
                found.append(Choice(Fate.RETRIED, actor.index))
            if self.spent.crashes < budget.crashes:
                found.append(Choice(Fate.CRASH, actor.index))
        if found and self.spent.ticks < budget.ticks:
            found.append(Choice(Fate.TICK))
        return found

    def take(self, choice: Choice) -> None:
        """Carry out one choice."""
        self.schedule.append(choice)
        self.time += 1
        spent = self.spent
        if choice.fate is Fate.TICK:
            self.spent = Budget(spent.crashes, spent.lost, spent.ticks + 1)
            self.clock.advance(self._scenario.tick)
            for actor in self.actors:
                actor.expired = actor.waiting
            return
        actor = self.actors[choice.actor]
        if choice.fate is Fate.CRASH:
            self.spent = Budget(spent.crashes + 1, spent.lost, spent.ticks)
            actor.crashed = True
            return
        if choice.fate in {Fate.LOST, Fate.RETRIED}:
            self.spent = Budget(spent.crashes, spent.lost + 1, spent.ticks)
        self._greenlets[choice.actor].switch(choice.fate)

    def key(self) -> int:
        """Return what determines everything that can follow."""
        actors = tuple(
            (each.seen, len(each.outcomes), each.crashed, each.expired, each.pending, _order(self, each))
            for each in self.actors
        )
        return hash((frozenset(self.store.snapshot().items()), self.clock.seconds, self.spent, actors))

    def close(self) -> None:
        """End the actors that are still waiting."""
        for each in self._greenlets:
            if not each.dead:
                each.throw()


def _order(run: Run, actor: Actor) -> tuple[int, ...]:
    """Return, for each call of the actor, how many calls of each other actor had ended when it began."""
    return tuple(
        sum(1 for end in other.ended if end <= start) for start in actor.started for other in run.actors
    )


def _digest(result: object) -> int:
    if isinstance(result, Stored):
        return hash(result.body)
    if isinstance(result, Level):
        return hash((result.directories, tuple((info.key, info.size) for info in result.files)))
    if isinstance(result, list):
        return hash(tuple(info.key for info in result))
    return hash(result)


@dataclass(frozen=True, slots=True)
class Scenario:
    """What to explore: how the store starts, what each actor does, what must hold."""

    actors: Sequence[Sequence[tuple[str, Callable[[Any], Any]]]]
    prepare: Callable[[Start], None]
    context: Callable[[Run], Any]
    check: Callable[[Run], str | None]
    """Called in every state; returns what is wrong, or None."""
    tick: timedelta
    quiet: Callable[[str], bool] = lambda key: False
    """Keys that nothing in the scenario depends on: requests for them do not wait."""
    takes_away: bool = False
    """Whether the store takes directories away whole, as a disk does."""


@dataclass(frozen=True, slots=True)
class Violation:
    """A schedule that breaks the rules."""

    what: str
    schedule: tuple[Choice, ...]
    trace: tuple[str, ...]

    def __str__(self) -> str:
        return self.what + "\n  " + "\n  ".join(self.trace)


@dataclass(slots=True)
class Exploration:
    """What was explored and what was found."""

    states: int = 0
    runs: int = 0
    violation: Violation | None = None


def explore(scenario: Scenario, budget: Budget, *, most_states: int = 5_000_000) -> Exploration:
    """Explore every schedule; stops at the first violation.

    Raises:
        OverflowError: there are more states than `most_states`.
    """
    with mock.patch("secrets.token_hex", _nonces):
        return _explore(scenario, budget, most_states)


def _explore(scenario: Scenario, budget: Budget, most_states: int) -> Exploration:
    start = Start(scenario)
    result = Exploration()
    seen: set[int] = set()
    todo: list[tuple[Choice, ...]] = [()]
    while todo:
        prefix = todo.pop()
        run = Run(scenario, start)
        result.runs += 1
        for choice in prefix:
            run.take(choice)
        while True:
            key = run.key()
            if key in seen:
                break
            seen.add(key)
            if len(seen) > most_states:
                raise OverflowError(f"more than {most_states} states")
            what = scenario.check(run)
            if what is not None:
                result.violation = _explain(scenario, start, tuple(run.schedule), what)
                break
            choices = run.choices(budget)
            if not choices:
                break
            todo.extend((*run.schedule, choice) for choice in choices[1:])
            run.take(choices[0])
        run.close()
        if result.violation is not None:
            break
    result.states = len(seen)
    return result


def _explain(scenario: Scenario, start: Start, schedule: tuple[Choice, ...], what: str) -> Violation:
    """Replay a schedule and write down each step."""
    run = Run(scenario, start)
    trace = []
    for choice in schedule:
        actor = run.actors[choice.actor] if choice.actor >= 0 else None
        request = f" {actor.pending.verb} {actor.pending.key}" if actor and actor.pending else ""
        trace.append(f"actor {choice.actor}: {choice.fate}{request}" if actor else "time passes")
        run.take(choice)
    for actor in run.actors:
        trace.append(f"actor {actor.index} {list(actor.names)}: {actor.outcomes}")
    run.close()
    return Violation(what, schedule, tuple(trace))
