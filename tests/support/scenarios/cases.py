"""Which scenarios the explorer is given: what was before, what runs at once, how much may go wrong."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import pairwise

from tests.support.scenarios.lifecycle import make_scenario

from relance.testing.explorer import Budget, Scenario
from relance.testing.lifecycle_model import Call
from relance.testing.requests import Request

BOTH, V1, V2 = "c", "1", "2"
PAIR = Budget(crashes=1, lost=1)
CRASH = Budget(crashes=1)
LOST = Budget(lost=1)
NO_FAULT = Budget()
REFUSAL = Budget(refused=1)


@dataclass(frozen=True)
class Case:
    """One scenario with its budget."""

    start: str
    calls: tuple[Call, ...]
    budget: Budget
    after: tuple[tuple[int, int], ...] = ()
    """Pairs (i, j): call i begins when call j has ended well."""
    kept: int | None = None
    """A call of another client whose data must stay."""
    coarse: bool = False
    stalled: tuple[tuple[int, str, str], ...] = ()
    """Calls that wait at a request from the beginning, by the request's verb and the end of its key."""

    @property
    def name(self) -> str:
        after = "".join(f" {i}>{j}" for i, j in self.after)
        budget = f"{self.budget.crashes}c {self.budget.lost}l {self.budget.ticks}t"
        budget += f" {self.budget.refused}r" * bool(self.budget.refused)
        return f"{self.start}: {' | '.join(map(str, self.calls))}{after} ({budget})"

    @property
    def without_faults(self) -> Case:
        """The case as it is explored every day: time passes only where it is all that does."""
        faults = self.budget.crashes or self.budget.lost or self.budget.refused
        return replace(self, budget=NO_FAULT if faults else self.budget)

    def scenario(self, *, compares: bool = True) -> Scenario:
        return make_scenario(
            self.start,
            self.calls,
            after=self.after,
            kept=self.kept,
            coarse=self.coarse,
            compares=compares,
            stalled={call: _stop(verb, key) for call, verb, key in self.stalled},
        )


def case(
    start: str,
    *calls: str,
    budget: Budget = CRASH,
    ticks: int = 0,
    after: Sequence[tuple[int, int]] = (),
    kept: int | None = None,
    stalled: Sequence[tuple[int, str, str]] = (),
) -> Case:
    """Return a case; calls are written verb/mode/data."""
    return Case(
        start,
        tuple(Call(*text.split("/")) for text in calls),
        replace(budget, ticks=ticks),
        tuple(after),
        kept,
        stalled=tuple(stalled),
    )


def _stop(verb: str, key: str) -> Callable[[Request], bool]:
    return lambda request: request.verb == verb and request.key.endswith(key)


def chain(length: int) -> tuple[tuple[int, int], ...]:
    """Return what makes calls follow one another."""
    return tuple((later, earlier) for earlier, later in pairwise(range(length)))


def _pairs() -> list[Case]:
    found = []
    for a, b in ((BOTH, BOTH), (BOTH, V1), (V2, V1), (V1, V1)):
        found += [
            case("live", f"drop/{a}", f"undrop/{b}", budget=PAIR),
            case("dropped", f"undrop/{a}", f"undrop/{b}", budget=PAIR),
            case("dropped", f"undrop/{a}", f"purge/{b}", budget=PAIR, ticks=1),
            case("dropped", f"create/{a}/b", f"undrop/{b}", budget=PAIR),
            case("dropped", f"create/{a}/b", f"purge/{b}", budget=PAIR, ticks=1),
            case("dropped", f"create/{a}/b", f"create/{b}/e", budget=PAIR),
            case("live", f"drop/{a}", f"drop/{b}", budget=PAIR),
        ]
    for a, b in ((BOTH, BOTH), (BOTH, V1), (V1, BOTH), (V1, V1)):
        found += [
            case("nothing", f"create/{a}/b", f"create/{b}/e", budget=PAIR),
            case("nothing", f"create/{a}/b", f"drop/{b}", budget=PAIR),
            case("nothing", f"create/{a}/b", f"declare/{b}", budget=PAIR),
            case("purged", f"create/{a}/b", f"create/{b}/e", budget=PAIR),
            case("dropped", f"purge/{a}", f"purge/{b}", "create/c/b", ticks=1, after=((2, 1),)),
        ]
    return found


def _late_marks() -> list[Case]:
    """Requests about the marker that come late: the delayed delete, the delayed write."""
    found = []
    for b in (BOTH, V1):
        found += [
            case("dead undrop", f"undrop/{b}", f"drop/{b}", f"read/{b}", budget=NO_FAULT, after=chain(3)),
            case("dead undrop", f"purge/{b}", "create/c/b", f"drop/{b}", ticks=1, after=chain(3)),
            case("dead undrop", f"create/{b}/b", "drop/c", ticks=1, after=chain(2)),
            case(
                "dead undrop",
                f"undrop/{b}",
                "drop/c",
                f"purge/{b}",
                "create/c/b",
                budget=NO_FAULT,
                ticks=1,
                after=chain(4),
            ),
            case("dropped", f"undrop/{b}", f"undrop/{b}", "drop/c", ticks=1, after=((2, 1),)),
            case("dead drop", f"drop/{b}", "undrop/c", f"read/{b}", budget=NO_FAULT, after=chain(3)),
            case(
                "dead drop",
                f"drop/{b}",
                "undrop/c",
                f"drop/{b}",
                "undrop/c",
                budget=NO_FAULT,
                after=chain(4),
            ),
            case("dead drop", f"drop/{b}", "purge/c", "ncreate/n/x", after=chain(3)),
            case("live", f"drop/{b}", "drop/c", f"undrop/{b}", budget=PAIR, after=((2, 1),)),
            case("live", f"drop/{b}", "drop/c", f"undrop/{b}"),
            case("late M", f"drop/{b}", "undrop/c", budget=PAIR),
            case("late M", f"purge/{b}", "drop/c", budget=PAIR),
            case(
                "late M",
                f"purge/{b}",
                "drop/c",
                f"undrop/{b}",
                "drop/c",
                budget=LOST,
                after=((2, 1), (3, 2), (3, 0)),
            ),
        ]
    found.append(
        case(
            "dropped",
            "purge/1",
            "purge/1",
            "create/1/b",
            "drop/1",
            budget=NO_FAULT,
            ticks=2,
            after=((2, 1), (3, 2)),
        )
    )
    return found


def _seed() -> list[Case]:
    """A client that follows the seed to the letter."""
    found = []
    for b in (BOTH, V1, V2):
        found += [
            case("live", "sdrop", f"drop/{b}", budget=PAIR),
            case("live", "sdrop", f"undrop/{b}", budget=PAIR),
            case("live", "sdrop", f"create/{b}/b", budget=PAIR, after=chain(2)),
            case("live", f"drop/{b}", "sundrop", budget=PAIR),
            case("dropped", "sundrop", f"undrop/{b}", budget=PAIR),
            case("dropped", "sundrop", f"purge/{b}", budget=PAIR, ticks=1),
            case("dropped", "sundrop", f"create/{b}/b", budget=PAIR),
            case("dropped", "sundrop", f"drop/{b}", budget=PAIR, after=chain(2)),
            case("seed-dropped", f"undrop/{b}", "purge/c", budget=PAIR, ticks=1),
            case("seed-dropped", "sundrop", f"purge/{b}", budget=PAIR, ticks=1),
            case("seed-undropped", f"drop/{b}", "purge/c", budget=PAIR, ticks=1),
            case("seed-undropped", "purge/c", f"create/{b}/b", budget=PAIR),
        ]
    for b in (BOTH, V1):
        found += [
            case(
                "seed-dropped",
                f"undrop/{b}",
                "sundrop",
                "drop/c",
                f"read/{b}",
                budget=NO_FAULT,
                after=((2, 1), (3, 0), (3, 2)),
            ),
            case("dropped", "sundrop", "sdrop", f"purge/{b}", budget=NO_FAULT, after=((1, 0),)),
            case("live", f"drop/{b}", "spurge", "create/c/b", budget=PAIR, after=chain(3)),
            case("dropped", f"undrop/{b}", "spurge", budget=PAIR, after=chain(2)),
            case("dropped", f"create/{b}/b", "spurge", budget=PAIR, after=chain(2)),
            case("dropped", f"purge/{b}", "spurge", "create/c/b", budget=NO_FAULT, after=((2, 0), (2, 1))),
            case("live", f"overwrite/{b}/w", "sdrop", budget=PAIR),
        ]
    return found


def _native() -> list[Case]:
    """Native creates over tombstones and while a purge is at work, writes after a drop, hard drops."""
    found = []
    for b in (BOTH, V1):
        found += [
            case("purged", "ncreate/n/x", f"create/{b}/b", budget=PAIR),
            case("purged", "ncreate/n/x", f"purge/{b}", budget=PAIR),
            case("dropped", f"purge/{b}", "ncreate/n/x", ticks=1),
            case("dropped", f"purge/{b}", "ncreate/n/x", "create/c/b", budget=NO_FAULT),
            case("native over purged", f"drop/{b}", "undrop/c", budget=PAIR),
            case("native over purged", f"drop/{b}", "purge/c", budget=PAIR, ticks=1, after=chain(2)),
            case("native over purged", f"overwrite/{b}/w", "drop/c", budget=PAIR),
            case("dead create over purged", "ncreate/n/x", f"create/{b}/b", budget=NO_FAULT),
            case("dead create over purged", "ncreate/n/x", f"undrop/{b}", budget=NO_FAULT),
            case("dropped", "nappend/n/x", f"purge/{b}/due", budget=NO_FAULT, after=chain(2), kept=0),
            case("dropped", "nappend/n/x", f"create/{b}/b"),
            case("dropped", "nappend/n/x", f"undrop/{b}", budget=PAIR),
            case("live", "nappend/n/x", f"drop/{b}", "undrop/c", after=((2, 1),)),
            case("nothing", "ncreate/n/x", f"create/{b}/b", budget=PAIR),
            case(
                "nothing",
                f"create/{b}/b",
                f"drop/{b}",
                f"purge/{b}",
                "ncreate/n/x",
                budget=NO_FAULT,
                after=chain(4),
            ),
            case("live", f"drop/{b}", "ndrop/n", "undrop/c", after=chain(3)),
            case("live", "ndrop/n", f"create/{b}/b", budget=PAIR, after=chain(2)),
            case("dropped", "ndrop/n", f"purge/{b}", "create/c/b", after=((1, 0), (2, 1))),
        ]
    found.append(case("live", "drop/c", "ndrop/c", "undrop/c", budget=NO_FAULT, after=chain(3)))
    return found


def _dead_claims() -> list[Case]:
    found = []
    for b in (BOTH, V1, V2):
        found += [
            case("dead create", f"undrop/{b}", "create/c/b"),
            case("dead create", f"undrop/{b}", "purge/c", ticks=1),
            case("dead create over purged", f"undrop/{b}", "create/c/b"),
        ]
    for b in (BOTH, V1):
        found += [
            case(
                "dead create",
                f"undrop/{b}",
                "drop/c",
                f"purge/{b}",
                "create/c/b",
                budget=NO_FAULT,
                ticks=1,
                after=chain(4),
            ),
            case(
                "dead create",
                f"create/{b}/b",
                "drop/c",
                f"purge/{b}",
                "create/c/e",
                budget=NO_FAULT,
                ticks=1,
                after=chain(4),
            ),
            case(
                "dead create over purged",
                "create/c/b",
                f"drop/{b}",
                "purge/c",
                f"create/{b}/e",
                budget=NO_FAULT,
                ticks=1,
                after=chain(4),
            ),
            case(
                "dead create",
                f"undrop/{b}",
                f"drop/{b}",
                f"purge/{b}",
                "create/c/b",
                budget=LOST,
                ticks=1,
                after=chain(4),
            ),
            case("dead create", "sundrop", f"undrop/{b}", budget=NO_FAULT),
            case("dead purge", f"purge/{b}", "create/c/b", ticks=1),
            case("dead purge", "sundrop", f"purge/{b}", budget=NO_FAULT, ticks=1),
            case("dead purge", f"purge/{b}", "create/c/b", f"undrop/{b}", budget=NO_FAULT, ticks=1),
            case("dead create", "create/c/b", f"undrop/{b}", "drop/c", budget=NO_FAULT),
        ]
    return found


def _taken() -> list[Case]:
    """A name that is given to something else."""
    found = [
        case("nothing", "create/c/b", "take/2", budget=PAIR),
        case("nothing", "declare/c", "take/2", budget=PAIR),
        case("dropped", "take/c", "purge/1", budget=PAIR),
        case("dropped", "take/c", "create/c/b", budget=PAIR),
        case("dropped", "take/c", "sundrop", budget=PAIR),
        case("nothing", "create/c/b", "insert", budget=PAIR),
        case("dropped", "undrop/c", "insert", budget=PAIR),
        case("dropped", "take/c", "insert", budget=PAIR),
    ]
    for b in (BOTH, V2):
        found.append(case("dropped", "take/c", f"undrop/{b}", budget=PAIR))
        found.append(case("dropped", f"declare/{b}", "undrop/c", budget=PAIR))
        found.append(case("purged", f"declare/{b}", "create/c/b", budget=PAIR))
    return found


def _overwrites() -> list[Case]:
    found = []
    for b in (BOTH, V1):
        found += [
            case("live", "overwrite/c/w", f"drop/{b}", budget=PAIR),
            case("live", "overwrite/c/w", f"overwrite/{b}/y", budget=PAIR),
            case("live", f"overwrite/{b}/w", "drop/c", f"purge/{b}", ticks=1, after=((2, 1),)),
            case("live", f"overwrite/{b}/w", "drop/c", f"create/{b}/b", after=((2, 1),)),
            case(
                "live",
                f"overwrite/{b}/w",
                "drop/c",
                f"undrop/{b}",
                "drop/c",
                f"purge/{b}",
                "create/c/b",
                budget=NO_FAULT,
                ticks=1,
                after=((2, 1), (3, 2), (4, 3), (5, 4)),
            ),
        ]
    return found


def _deregistered() -> list[Case]:
    found = []
    for a, b in ((BOTH, BOTH), (BOTH, V1), (V1, BOTH), (V2, V1)):
        found += [
            case("live", f"deregister/{a}", f"drop/{b}", budget=PAIR),
            case("live", f"deregister/{a}", f"deregister/{b}", budget=PAIR),
            case("deregistered", f"register/{a}", f"deregister/{b}", budget=PAIR),
            case("deregistered", f"register/{a}", f"drop/{b}", budget=PAIR),
            case("live", f"drop/{a}", f"undrop/{b}", f"deregister/{a}"),
        ]
    found.append(case("deregistered", "register/c", "create/c/b", budget=PAIR))
    found.append(case("deregistered", "register/c", "take/c", budget=PAIR))
    return found


def _three() -> list[Case]:
    found = []
    for b in (BOTH, V1):
        found += [
            case("live", "drop/c", f"undrop/{b}", "drop/2"),
            case("live", "drop/c", f"undrop/{b}", "purge/c"),
            case("dropped", "create/c/b", f"undrop/{b}", "purge/c"),
            case("dropped", "create/c/b", f"create/{b}/e", "undrop/c"),
            case("nothing", "create/c/b", f"drop/{b}", "purge/c"),
        ]
    for a in (BOTH, V1):
        found.append(
            case(
                "nothing",
                f"create/{a}/b",
                f"create/{a}/e",
                f"drop/{a}",
                f"purge/{a}",
                f"create/{a}/h",
                budget=NO_FAULT,
                ticks=1,
                after=((2, 1), (3, 2), (4, 3)),
            )
        )
    found.append(case("live", "drop/c", "purge/c", "create/c/b", "read/2", after=chain(4)))
    for mode in (BOTH, V1, V2):
        found.append(case("live", "drop/c", "undrop/c", f"read/{mode}"))
        found.append(case("dropped", "create/c/b", f"read/{mode}", f"read/{mode}", after=((2, 1),)))
    return found


@cache
def _refusals() -> list[Case]:
    """The store refuses one write: what a verb answers then is true, and nobody is kept waiting."""
    found = []
    for mode in (BOTH, V1, V2):
        found += [
            case("nothing", f"create/{mode}/b", f"read/{mode}", budget=REFUSAL),
            case("nothing", f"declare/{mode}", f"drop/{mode}", budget=REFUSAL),
            case("live", f"drop/{mode}", f"undrop/{mode}", budget=REFUSAL),
            case("live", f"overwrite/{mode}/b", f"drop/{mode}", budget=REFUSAL),
            case("live", f"deregister/{mode}", f"register/{mode}", budget=REFUSAL, after=((1, 0),)),
            case("dropped", f"undrop/{mode}", f"undrop/{mode}", budget=REFUSAL),
            case("dropped", f"create/{mode}/b", f"undrop/{mode}", budget=REFUSAL),
            case("dropped", f"purge/{mode}", f"create/{mode}/b", budget=REFUSAL),
            case("purged", f"create/{mode}/b", f"read/{mode}", budget=REFUSAL),
            case("declared", f"create/{mode}/b", f"drop/{mode}", budget=REFUSAL),
        ]
    return found


def all_cases() -> tuple[Case, ...]:
    """Return all cases, each once."""
    groups = (
        _pairs(),
        _late_marks(),
        _seed(),
        _native(),
        _dead_claims(),
        _taken(),
        _overwrites(),
        _deregistered(),
        _three(),
        _refusals(),
    )
    return tuple({each.name: each for group in groups for each in group}.values())
