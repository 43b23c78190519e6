"""A soak: processes that create, overwrite, drop, undrop, purge and read the same names, in trouble.

    python -m tests.support.soak --seconds 600 --mode compatibility --store disk --root DIR

They are killed and stopped at random, and one request in twenty fails, is carried out without a response,
or is carried out twice. soak_neighbours.py has the other clients on the root. Every process writes down
what it is about to do and what came of it; afterwards soak_checker replays that. The leases, the clock skew
and the request age are seconds instead of many minutes, so that claims of killed processes are taken over
all the time. That is legitimate here and nowhere else: all processes share one machine and one clock, and
no request is under way for longer than the request age.
"""

from __future__ import annotations

import argparse
import json
import math
import multiprocessing
import os
import random
import re
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import lance
from tests.support.internals import context_of, replace_context
from tests.support.models.sequential import Call, Verb
from tests.support.modes import MODES
from tests.support.patches import original, substituted
from tests.support.roots import Place, S3Place, local_place, stream_of
from tests.support.servers import S3Server, start_minio, start_moto, unreliable
from tests.support.soak_checker import BROKEN, READ, SETTLED, Killed, Verdict, check_history
from tests.support.soak_neighbours import (
    NEIGHBOUR,
    has_directories,
    has_manifest,
    inserting,
    kept_violations,
    literal,
    native,
    prepare,
    row_violations,
    tidy,
)

import relance
from relance import errors
from relance.catalog.resolve import SoftDeleted
from relance.catalog.states import State
from relance.clock import SystemClock
from relance.errors import ConcurrentModificationError, RelanceError, TableAlreadyExistsError
from relance.storage.probe import capabilities
from relance.testing.faults import Fault, FaultyStorage

SHORT_TIMES = {"claim_lease": "2s", "clock_skew": "200ms", "request_age_bound": "4s"}
SETTLED_AFTER_SECONDS = 8.0
"""After a kill: lease, skew, request age, and something for the machine to breathe."""

FAULTS = 0.05
"""Share of the requests that meet with a fault."""

NAMES_AT_ONCE = 6

LONGEST_STOP_SECONDS = 2.5
"""Longer than a lease. A request that a stop delays, or a copy of it, arrives within the request age."""

CHANCES = {Verb.CREATE: 4, Verb.OVERWRITE: 3, Verb.DROP: 4, Verb.UNDROP: 2, Verb.PURGE: 3, READ: 4}

_HANGS_AFTER_SECONDS = 60.0
_NANO = 1_000_000_000


@dataclass(frozen=True, slots=True)
class Plan:
    """What to run, and on what."""

    place: Place
    """How the root is reached where nothing fails."""
    logs: Path
    seconds: float
    unreliable: S3Server | None = None
    """The way to a root on S3 on which requests fail; on a disk they fail in the process."""
    processes: int = 6
    names: int = 120
    seconds_between_kills: float = 1.0
    seed: int = 0

    @property
    def seconds_a_name(self) -> float:
        """How often the processes move on to another name."""
        return 0.15 if self.unreliable is None else 0.6

    def choose_name(self, chance: random.Random) -> str:
        """Return one of the few names that all processes work on now.

        They come back to a name when its claims have ended: a history in which many calls may still take
        effect cannot be searched.
        """
        first = int(time.monotonic() / self.seconds_a_name)
        return f"t{(first + chance.randrange(NAMES_AT_ONCE)) % self.names}"

    def open(self) -> relance.DirectoryNamespace:
        """Open the root with short times."""
        catalog = self.place.open(clock=SystemClock(), **SHORT_TIMES)
        context = context_of(catalog)
        timing = replace(context.timing, patience=timedelta(seconds=1))
        replace_context(catalog, replace(context, timing=timing))
        return catalog

    def open_unreliably(self, number: int) -> relance.DirectoryNamespace:
        """Open the root so that one request in twenty meets with a fault."""
        if self.unreliable is not None:
            assert isinstance(self.place, S3Place)
            return replace(self, place=replace(self.place, server=self.unreliable)).open()
        catalog, chance = self.open(), random.Random(f"{self.seed} faults {number}")
        context = context_of(catalog)
        capabilities(context.storage)  # found out by writing, once for each process
        faulty = FaultyStorage(
            context.storage,
            lambda request: chance.choice(list(Fault)) if chance.random() < FAULTS else None,
        )
        replace_context(catalog, replace(context, connection=replace(context.connection, storage=faulty)))
        return catalog


@dataclass(slots=True)
class Report:
    """What was done and what the checker made of it."""

    verdict: Verdict = field(default_factory=Verdict)
    kills: int = 0
    stops: int = 0
    neighbours: Counter[str] = field(default_factory=Counter)
    takeovers: Counter[str] = field(default_factory=Counter)

    def summary(self) -> str:
        verdict = self.verdict
        calls = verdict.answers.total()
        lines = [
            f"{calls} calls, {self.kills} kills, {self.stops} stops, takeovers {dict(self.takeovers)}",
            f"beside them: {dict(self.neighbours)}",
            f"{verdict.checked} calls replayed, {verdict.unchecked} in windows too large to search, "
            f"{verdict.loose_reads} reads beside changes; largest window {verdict.largest_window}",
            *(f"  {count:6} {answer}" for answer, count in sorted(verdict.answers.items())),
            *verdict.violations,
        ]
        return "\n".join(lines)


class Log:
    """One process's diary; each line is on its way to the disk before the next step."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        self._calls = 0

    def note(self, **fields: Any) -> None:
        os.write(self._file, json.dumps(fields).encode() + b"\n")

    @contextmanager
    def call(self, verb: Verb, name: str, data: int | None) -> Iterator[dict[str, Any]]:
        """Write down that a call begins, and what the block says came of it."""
        self._calls += 1
        outcome: dict[str, Any] = {}
        self.note(event="begin", call=self._calls, verb=verb, name=name, data=data, at=time.monotonic_ns())
        yield outcome
        self.note(event="end", call=self._calls, at=time.monotonic_ns(), **outcome)


def work(plan: Plan, number: int, stop_at: Any) -> None:
    """Do random things until the time is over or we are killed."""
    chance = random.Random(f"{plan.seed} {number}")
    log = Log(plan.logs / f"{number}.jsonl")
    catalog = plan.open_unreliably(number)
    verbs, weights = list(CHANCES), list(CHANCES.values())
    with _takeovers_noted(log):
        for count in range(sys.maxsize):
            if time.monotonic() >= stop_at.value:
                return
            verb = chance.choices(verbs, weights)[0]
            name = plan.choose_name(chance)
            do(catalog, log, verb, name, number * 1_000_000 + count)


def public_name(error: RelanceError) -> str:
    """Return what users call an error: modules of the catalog derive their own from the public ones."""
    public = (kind.__name__ for kind in type(error).__mro__ if hasattr(errors, kind.__name__))
    return next(public)


def do(catalog: relance.DirectoryNamespace, log: Log, verb: Verb, name: str, tag: int) -> str:
    """Make one call, with the log; returns the answer."""
    data = tag if verb in {Verb.CREATE, Verb.OVERWRITE} else None
    with log.call(verb, name, data) as outcome:
        try:
            outcome["data"] = _CALLS[verb](catalog, name, tag)
            outcome["answer"] = "ok"
        except RelanceError as error:
            outcome["answer"], outcome["detail"] = public_name(error), str(error)
        except (OSError, ValueError, RuntimeError) as error:
            # What pylance raises. Only a read beside a purge may: the checker looks at that.
            outcome["answer"], outcome["detail"] = BROKEN, repr(error)
    return str(outcome["answer"])


def _create(catalog: relance.DirectoryNamespace, name: str, tag: int, mode: str = "create") -> int:
    catalog.create_table({"id": [name], "mode": mode}, stream_of(*rows_of(tag)))
    return tag


def _read(catalog: relance.DirectoryNamespace, name: str, tag: int) -> int:
    del tag  # a read has none
    found = lance.dataset(namespace_client=catalog, table_id=[name]).to_table()["x"].to_pylist()
    if not found or found != rows_of(found[0]):
        raise ValueError(f"torn table: {found}")
    return int(found[0])


def _drop(catalog: relance.DirectoryNamespace, name: str, tag: int) -> None:
    catalog.drop_table({"id": [name]})


_CALLS: dict[Verb, Callable[[relance.DirectoryNamespace, str, int], Any]] = {
    Verb.CREATE: _create,
    Verb.OVERWRITE: lambda catalog, name, tag: _create(catalog, name, tag, "overwrite"),
    Verb.DROP: _drop,
    Verb.UNDROP: lambda catalog, name, tag: catalog.undrop_table([name]) and None,
    Verb.PURGE: lambda catalog, name, tag: catalog.purge_table([name], force=True) and None,
    READ: _read,
}


def rows_of(tag: int) -> list[int]:
    """Return the rows of a write: so many that half of them are noticed."""
    return [tag] * (tag % 5 + 1)


@contextmanager
def _takeovers_noted(log: Log) -> Iterator[None]:
    """Write down each claim of another process that is taken over."""
    take_over, claim_purge = original("claim.taken_over"), original("claim.purging")

    def noted_create(over: Any, timing: Any) -> Any:
        log.note(event="takeover", what=f"{over.state} taken over")
        return take_over(over, timing)

    def noted_purge(over: Any, timing: Any, **options: Any) -> Any:
        if over.state is State.PURGING:
            log.note(event="takeover", what="purging taken over")
        return claim_purge(over, timing, **options)

    with (
        substituted("claim.taken_over", noted_create),
        substituted("claim.purging", noted_purge),
        substituted("claim.margin", timedelta(seconds=1)),  # all processes have one clock
    ):
        yield


def soak(plan: Plan) -> Report:
    """Run the processes, kill and restart them, and check what they left."""
    report = Report()
    prepare(plan)
    killed_at = _run_processes(plan, report)
    time.sleep(SETTLED_AFTER_SECONDS)
    catalog, log = plan.open(), Log(plan.logs / "checker.jsonl")
    report.verdict.violations += kept_violations(plan, catalog)
    report.verdict.violations += row_violations(plan)
    report.verdict.violations += _look_at_the_end(plan, catalog, log)
    with _takeovers_noted(log):
        for number in range(plan.names):
            report.verdict.violations += _create_at_last(catalog, log, f"t{number}", tag=number)
    history = read_logs(plan.logs, killed_at)
    report.takeovers, report.neighbours = history.takeovers, history.neighbours
    for name, calls in sorted(history.calls.items()):
        # Where only the manifest counts, every generation of a name has a row and a directory of its own.
        generations = not has_directories(plan.place)
        found = check_history(calls, history.killed.get(name, []), generations=generations)
        found.violations = [f"{name}: {each}" for each in found.violations]
        report.verdict.add(found)
    report.verdict.violations += history.surprises
    return report


def _run_processes(plan: Plan, report: Report) -> dict[int, int]:
    """Run until the time is over; returns when each killed process was dead, by its number."""
    spawn = multiprocessing.get_context("spawn")  # a forked pylance is not safe
    chance = random.Random(plan.seed)
    stop_at = spawn.Value("d", math.inf, lock=False)
    killed_at: dict[int, int] = {}
    running: dict[int, Any] = {}
    stopped: dict[int, float] = {}
    longest = LONGEST_STOP_SECONDS - 1.5 * plan.seconds_between_kills  # they go on at the next round

    def start(number: int) -> None:
        running[number] = spawn.Process(target=work, args=(plan, number, stop_at), daemon=True)
        running[number].start()

    def go_on(number: int) -> None:
        del stopped[number]
        os.kill(running[number].pid, signal.SIGCONT)

    roles = ["native", "tidy"]
    roles += ["literal"] if has_directories(plan.place) else []
    roles += ["inserting"] if has_manifest(plan.place) else []
    beside = [spawn.Process(target=_beside, args=(plan, role, stop_at), daemon=True) for role in roles]
    for process in beside:
        process.start()
    for number in range(1, plan.processes + 1):
        start(number)
    _await_logs(plan)
    stop_at.value = time.monotonic() + plan.seconds
    while time.monotonic() + plan.seconds_between_kills < stop_at.value:
        time.sleep(plan.seconds_between_kills * chance.uniform(0.5, 1.5))
        for number in [number for number, until in stopped.items() if time.monotonic() >= until]:
            go_on(number)
        started = [number for number in running if (plan.logs / f"{number}.jsonl").exists()]
        if not started:
            continue
        victim = chance.choice(started)
        if chance.random() < 0.5:
            if victim not in stopped:
                os.kill(running[victim].pid, signal.SIGSTOP)
                stopped[victim] = time.monotonic() + chance.uniform(0, longest)
                report.stops += 1
            continue
        stopped.pop(victim, None)
        process = running.pop(victim)
        process.kill()
        process.join()
        killed_at[victim] = time.monotonic_ns()
        report.kills += 1
        start(plan.processes + report.kills)
    for number in list(stopped):
        go_on(number)
    for name, process in [*running.items(), *enumerate(beside, -len(beside))]:
        process.join(_HANGS_AFTER_SECONDS)
        if process.exitcode != 0:
            report.verdict.violations.append(f"process {name} ended with {process.exitcode}")
    return killed_at


def _await_logs(plan: Plan) -> None:
    """Wait until every process is at work: on a busy machine starting them takes as long as a short soak."""
    for _ in range(int(_HANGS_AFTER_SECONDS)):
        if all((plan.logs / f"{number}.jsonl").exists() for number in range(1, plan.processes + 1)):
            return
        time.sleep(1)


_ROLES = {"native": native, "tidy": tidy, "literal": literal, "inserting": inserting}


def _beside(plan: Plan, role: str, stop_at: Any) -> None:
    """Be one of the clients beside the processes."""
    _ROLES[role](plan, Log(plan.logs / f"{role}.jsonl"), stop_at)


def _look_at_the_end(plan: Plan, catalog: relance.DirectoryNamespace, log: Log) -> list[str]:
    """Read every listed table; undrop and read every dropped one."""
    wrong = []
    listed = list(catalog.list_tables({"id": []}).tables)
    for name in (f"t{number}" for number in range(plan.names)):
        answer = do(catalog, log, READ, name, 0)
        if (answer == "ok") is not (name in listed) or answer not in {"ok", "TableNotFoundError"}:
            wrong.append(f"{name} is {'' if name in listed else 'not '}listed, but a read says {answer}")
        status = catalog.table_status([name])
        if isinstance(status, SoftDeleted) and status.state == State.DELETED:
            do(catalog, log, Verb.UNDROP, name, 0)
            do(catalog, log, READ, name, 0)
    return wrong


def _create_at_last(catalog: relance.DirectoryNamespace, log: Log, name: str, tag: int) -> list[str]:
    """Create the table as a user would who reads the errors; a name where that fails is wedged."""
    answers: list[str] = []
    for _ in range(3):
        answers.append(do(catalog, log, Verb.CREATE, name, tag))
        if answers[-1] == "ok":
            answers.append(do(catalog, log, READ, name, tag))
            break
        # Live after all, or a dead purge: its end may bring a table back that another client undropped.
        remedy = Verb.DROP if answers[-1] == TableAlreadyExistsError.__name__ else Verb.PURGE
        answers.append(do(catalog, log, remedy, name, tag))
    return [] if answers[-2:] == ["ok", "ok"] else [f"{name} is wedged: {answers}"]


@dataclass(slots=True)
class History:
    """What the logs of all processes say, by table name."""

    calls: dict[str, list[Call]] = field(default_factory=dict)
    killed: dict[str, list[Killed]] = field(default_factory=dict)
    takeovers: Counter[str] = field(default_factory=Counter)
    neighbours: Counter[str] = field(default_factory=Counter)
    surprises: list[str] = field(default_factory=list)
    """Errors that tell the caller neither what is the case nor to try again, and what nobody may see."""


def read_logs(folder: Path, killed_at: Mapping[int, int]) -> History:
    """Return what the processes wrote down."""
    history = History()
    for path in sorted(folder.glob("*.jsonl")):
        begun: dict[int, dict[str, Any]] = {}
        for line in path.read_text().splitlines():
            fields = _fields(line)
            match fields.get("event"):
                case "begin":
                    begun[fields["call"]] = fields
                case "end":
                    _add(history, begun.pop(fields["call"]), fields)
                case "takeover":
                    history.takeovers[fields["what"]] += 1
                case "native done" | "native refused" | "rows done" | "rows refused":
                    history.neighbours[fields["event"]] += 1
                case "violation":
                    history.surprises.append(fields["what"])
        for fields in begun.values():  # only processes that are killed leave some
            _add_open(history, fields, died=killed_at[int(path.stem)])
    return history


def _fields(line: str) -> dict[str, Any]:
    try:
        found: dict[str, Any] = json.loads(line)
    except ValueError:
        return {}  # the process was killed while it wrote this
    return found


def _add(history: History, begin: dict[str, Any], end: dict[str, Any]) -> None:
    verb, name, answer = Verb(begin["verb"]), begin["name"], end["answer"]
    data = end.get("data") if verb is READ else begin["data"]
    call = Call(verb, data, begin["at"], end["at"], answer)
    if answer == NEIGHBOUR:
        history.neighbours[f"literal {verb}"] += 1
    elif answer == BROKEN and (verb is not READ or "torn table" in end["detail"]):
        history.surprises.append(f"{name}: {verb} ended with {end['detail']}")
    elif answer not in SETTLED | _UNDECIDED | {ConcurrentModificationError.__name__}:
        # An InternalError means "report a bug": no race and no fault of the store may end with one.
        history.surprises.append(f"{name}: {verb} ended with {answer}: {end['detail']}")
    if answer not in _UNDECIDED | {NEIGHBOUR}:
        history.calls.setdefault(name, []).append(call)
    elif verb is not READ:
        # Also what the literal client did under a claim: it counts once that has ended.
        _add_open(history, begin, died=end["at"])
    elif answer == BROKEN and not _CONNECTION.search(end["detail"]):
        history.calls.setdefault(name, []).append(call)


_UNDECIDED = frozenset({"OutcomeUnknownError", "ServiceUnavailableError", "ThrottlingError", BROKEN})
"""Answers after which a change may still take effect, and a read has seen nothing."""

_CONNECTION = re.compile(r"error sending request|503|retries|connection", re.IGNORECASE)
"""In what pylance says of a read that failed on its way to the store."""


def _add_open(history: History, begin: dict[str, Any], *, died: int) -> None:
    if Verb(begin["verb"]) is not READ:
        call = Call(Verb(begin["verb"]), begin["data"], begin["at"], None, None)
        settled_by = died + int(SETTLED_AFTER_SECONDS * _NANO)
        history.killed.setdefault(begin["name"], []).append(Killed(call, settled_by))


@contextmanager
def soaked_place(store: str, mode: str, folder: Path) -> Iterator[tuple[Place, S3Server | None]]:
    """Yield an empty root in a store, and the way to it on which requests fail."""
    if store == "disk":
        yield local_place(folder, MODES[mode]), None
        return
    with {"minio": start_minio, "moto": start_moto}[store]() as server:
        place = S3Place(server, server.make_bucket("soak"), "lake", MODES[mode])
        latest = LONGEST_STOP_SECONDS
        with unreliable(server, rate=FAULTS, latest=latest, seed=0) as network:
            yield place, network


def main() -> int:
    """Run a soak and print what was found."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--mode", choices=list(MODES), default="compatibility")
    parser.add_argument("--store", choices=["disk", "minio", "moto"], default="disk")
    parser.add_argument("--root", type=Path, help="for a disk: an empty or new directory")
    parser.add_argument("--logs", type=Path, help="an empty or new directory that keeps the logs")
    parser.add_argument("--processes", type=int, default=6)
    parser.add_argument("--names", type=int, default=120)
    parser.add_argument("--seed", type=int, default=time.time_ns())
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="soak-") as folder:
        root, logs = options.root or Path(folder) / "lake", options.logs or Path(folder)
        logs.mkdir(exist_ok=True)
        with soaked_place(options.store, options.mode, root) as (place, network):
            plan = Plan(place, logs, options.seconds, network)
            plan = replace(plan, processes=options.processes, names=options.names, seed=options.seed)
            report = soak(plan)
    sys.stdout.write(f"{options.mode} on {options.store}, seed {options.seed}\n{report.summary()}\n")
    return 1 if report.verdict.violations else 0


if __name__ == "__main__":
    sys.exit(main())
