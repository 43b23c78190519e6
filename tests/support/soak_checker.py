"""Whether the logs of many processes can be explained: a history is replayed in windows, name by name.

To search all orders of hundreds of calls is hopeless, but a name rests between most of them. The
history is cut where nothing is under way, and the set of states that are possible there is carried
over the cut. Calls of killed processes are carried too: each may take effect late, when somebody
recovers what it left, until a later call has certainly settled the name.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cache

from tests.support.models.sequential import NOTHING, Call, Kind, Name, Verb, is_explained

READ = Verb.OTHER
"""Reads change nothing; the model has no word for what they see, so it is checked here."""

SETTLED = frozenset({"ok", "TableNotFoundError", "TableAlreadyExistsError", "InvalidTableStateError"})
"""Answers of a call that found no claim of anybody else."""

_LEAVES_CLAIMS = frozenset({"TableNotFoundError"})
"""Of a name that looks dropped or empty, a drop does not ask whether a create is still to be finished."""

BROKEN = "broken"
"""The answer of a read that found a table and could not read it."""

_BUDGET = 20_000
"""Steps of the search in one window."""

_GIVE_UP_AFTER = 10
"""Windows of one name that were too large: what is possible only grows from there."""


@dataclass(frozen=True, slots=True)
class Killed:
    """A call whose process was killed at a known time, or that ended without telling what became of it."""

    call: Call
    settled_by: int
    """A call that begins later and gets a settled answer leaves nothing of this one."""


Configuration = tuple[Name, frozenset[int]]
"""A possible state, and the killed calls that may still take effect."""


@dataclass(slots=True)
class Verdict:
    """What the replay of one or more names found."""

    checked: int = 0
    unchecked: int = 0
    """Calls in windows that were too large to search."""
    loose_reads: int = 0
    """Reads beside changes, of which only the rows themselves are checked."""
    largest_window: int = 0
    violations: list[str] = field(default_factory=list)
    answers: Counter[str] = field(default_factory=Counter)

    def add(self, other: Verdict) -> None:
        self.checked += other.checked
        self.unchecked += other.unchecked
        self.loose_reads += other.loose_reads
        self.largest_window = max(self.largest_window, other.largest_window)
        self.violations += other.violations
        self.answers += other.answers


def check_history(calls: Sequence[Call], killed: Sequence[Killed], *, generations: bool = False) -> Verdict:
    """Tell whether some order of one name's calls, beginning from nothing, explains every answer.

    With `generations`, a name may have a live table beside a dropped one whose purge is not over.
    """
    verdict = Verdict(answers=Counter(f"{call.verb} {call.answer}" for call in calls))
    kept = []
    for call in calls:
        if call.verb is not READ or not _beside_changes(call, calls, killed):
            kept.append(call)
        else:
            verdict.loose_reads += 1
    _Replay(kept, killed, verdict, generations).run()
    return verdict


def _beside_changes(read: Call, calls: Sequence[Call], killed: Sequence[Killed]) -> bool:
    """Tell whether the name may have changed between the read's look-up and its last byte."""
    spans = [(call.started, call.ended) for call in calls if call.verb is not READ]
    spans += [(each.call.started, each.settled_by) for each in killed]
    return any(started < _end(read) and (ended is None or ended > read.started) for started, ended in spans)


def _end(call: Call) -> int:
    assert call.ended is not None  # calls without an end are among the killed
    return call.ended


def windows(calls: Sequence[Call]) -> list[list[Call]]:
    """Cut a history where nothing is under way."""
    cut: list[list[Call]] = []
    rests_at = -1
    for call in sorted(calls, key=lambda each: each.started):
        if not cut or call.started >= rests_at:
            cut.append([])
        cut[-1].append(call)
        rests_at = max(rests_at, _end(call))
    return cut


_Step = tuple[Name, frozenset[int], frozenset[int]]
"""A state, the calls of the window still to come, and the killed calls that may still take effect."""


def _add(
    steps: Iterable[_Step], widest: dict[tuple[Name, frozenset[int]], list[frozenset[int]]], todo: list[_Step]
) -> None:
    """Note steps that allow more than those seen so far.

    A killed call may take effect and need not: whatever follows with fewer of them follows with more.
    """
    for name, calls, left in steps:
        known = widest.setdefault((name, calls), [])
        if not any(left <= other for other in known):
            known[:] = [other for other in known if not other <= left] + [left]
            todo.append((name, calls, left))


class _Replay:
    """The search, window by window."""

    def __init__(
        self, calls: Sequence[Call], killed: Sequence[Killed], verdict: Verdict, generations: bool
    ) -> None:
        self.calls, self.killed, self.verdict, self.generations = calls, killed, verdict, generations
        self.possible: set[Configuration] = {(NOTHING, frozenset())}
        self.begun: frozenset[int] = frozenset()

    def run(self) -> None:
        too_large = 0
        for window in windows(self.calls):
            if too_large == _GIVE_UP_AFTER:
                self.verdict.unchecked += len(window)
                continue
            self.verdict.largest_window = max(self.verdict.largest_window, len(window))
            last = max(_end(call) for call in window)
            begun = frozenset(i for i, each in enumerate(self.killed) if each.call.started < last)
            before = {(name, left | (begun - self.begun)) for name, left in self.possible}
            self.begun = begun
            after = self.search(window, before)
            if after is None:
                too_large += 1
                self.verdict.unchecked += len(window)
                after = self.anything(last)
            elif not after:
                self.verdict.violations.append(_describe(window, before, self.killed))
                return
            else:
                self.verdict.checked += len(window)
            self.possible = after

    def leaves(self, call: Call, left: frozenset[int]) -> frozenset[int]:
        """Return the killed calls that may still take effect once this call did."""
        if not left or call.verb is READ or call.answer not in SETTLED - _LEAVES_CLAIMS:
            return left
        return frozenset(i for i in left if self.killed[i].settled_by >= call.started)

    def search(self, window: Sequence[Call], before: set[Configuration]) -> set[Configuration] | None:
        """Return the configurations that the window may end in; None when that takes too long."""
        everything = frozenset(range(len(window)))
        widest: dict[tuple[Name, frozenset[int]], list[frozenset[int]]] = {}
        todo: list[_Step] = []
        seen = 0
        _add(((name, everything, left) for name, left in before), widest, todo)
        after: set[Configuration] = set()
        while todo:
            seen += 1
            if seen > _BUDGET:
                return None
            name, calls, left = todo.pop()
            if left not in widest[name, calls]:
                continue  # a wider one came since
            if not calls:
                after.add((name, left))
            must_end = min((_end(window[i]) for i in calls), default=None)
            late = (
                (then, calls, left - {i})
                for i in left
                if must_end is None or self.killed[i].call.started < must_end
                for then in successors(self.killed[i].call, name, self.generations)
                if then != name
            )
            steps = (
                (then, calls - {i}, self.leaves(window[i], left))
                for i in calls
                if must_end is None or window[i].started < must_end
                for then in successors(window[i], name, self.generations)
            )
            _add(late, widest, todo)
            _add(steps, widest, todo)  # looked at first: with more calls left they are the wider ones
        return {(name, left) for name, left in after if left in widest[name, frozenset()]}

    def anything(self, until: int) -> set[Configuration]:
        """Return every configuration that could be, when nothing is known any more."""
        data = {call.data for call in self.calls if call.started < until and call.data is not None}
        data |= {each.call.data for each in self.killed if each.call.data is not None}
        tables = [Name(Kind.LIVE, each) for each in data]
        names = [NOTHING, *tables, *(Name(Kind.DROPPED, table) for table in tables)]
        return {(name, self.begun) for name in names}


_OF_AN_OLDER_GENERATION = {(Verb.PURGE, "ok"), (Verb.UNDROP, "TableNotFoundError")}
"""What is said of a live table's name while an older generation of it is being purged."""


@cache
def successors(call: Call, name: Name, generations: bool) -> Sequence[Name]:
    """Return the states that the call and its answer allow after `name`."""
    if call.verb is READ:
        matches = name == Name(Kind.LIVE, call.data) if call.answer == "ok" else name.kind is not Kind.LIVE
        return [name] if matches and call.answer != BROKEN else []
    if generations and (call.verb, call.answer) in _OF_AN_OLDER_GENERATION and name.kind is Kind.LIVE:
        return [name]
    candidates = {name, NOTHING, Name(Kind.LIVE, call.data), Name(Kind.DROPPED, name)}
    if isinstance(name.data, Name):
        candidates.add(name.data)
    # Alone and with an end: the model must have it done, or refused, or undecided.
    alone = Call(call.verb, call.data, 0, 1, call.answer)
    return [each for each in candidates if is_explained([alone], name, each)]


def _describe(window: Sequence[Call], before: set[Configuration], killed: Sequence[Killed]) -> str:
    lines = [f"  {call.started}-{call.ended} {call.verb} {call.data} -> {call.answer}" for call in window]
    states = [
        f"  {name.kind} {name.data}, perhaps still {[str(killed[i].call.verb) for i in sorted(left)]}"
        for name, left in sorted(before, key=repr)[:10]
    ]
    return "\n".join(["no order explains", *lines, "from any of", *states])
