"""A soak: processes that create, overwrite, drop, undrop, purge and read the same names, killed at random.

    python -m tests.support.soak --seconds 600 --root DIR

Every process writes down what it is about to do and what came of it; afterwards soak_checker replays
that. The leases, the clock skew and the request age are a second or two instead of many minutes, so
that claims of killed processes are taken over all the time. That is legitimate here and nowhere else:
all processes share one machine and one clock, and a killed process leaves no request on its way.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import lance
from tests.support.models.sequential import Call, Verb
from tests.support.patches import original, substituted
from tests.support.roots import stream_of
from tests.support.soak_checker import BROKEN, READ, SETTLED, Killed, Verdict, check_history

import relance
from relance import errors
from relance.catalog.resolve import SoftDeleted
from relance.catalog.states import State
from relance.clock import SystemClock
from relance.errors import (
    ConcurrentModificationError,
    RelanceError,
    TableAlreadyExistsError,
)

SHORT_TIMES = {"claim_lease": "2s", "clock_skew": "200ms", "request_age_bound": "2s"}
SETTLED_AFTER_SECONDS = 5.0
"""After a kill: lease, skew, request age, and something for the machine to breathe."""

CHANCES = {Verb.CREATE: 4, Verb.OVERWRITE: 3, Verb.DROP: 4, Verb.UNDROP: 2, Verb.PURGE: 3, READ: 4}

_HANGS_AFTER_SECONDS = 60.0
_NANO = 1_000_000_000


@dataclass(frozen=True, slots=True)
class Plan:
    """What to run, and on what."""

    properties: Mapping[str, str]
    logs: Path
    seconds: float
    processes: int = 8
    names: int = 20
    seconds_between_kills: float = 1.0
    seed: int = 0

    def open(self) -> relance.DirectoryNamespace:
        """Open the root with short times."""
        properties = {**SHORT_TIMES, **self.properties}
        return relance.DirectoryNamespace(clock=SystemClock(), manifest_enabled="false", **properties)


@dataclass(slots=True)
class Report:
    """What was done and what the checker made of it."""

    verdict: Verdict = field(default_factory=Verdict)
    kills: int = 0
    takeovers: Counter[str] = field(default_factory=Counter)
    oddities: list[str] = field(default_factory=list)
    """Errors that tell the caller neither what is the case nor to try again."""

    def summary(self) -> str:
        verdict = self.verdict
        calls = verdict.answers.total()
        lines = [
            f"{calls} calls, {self.kills} kills, takeovers {dict(self.takeovers)}",
            f"{verdict.checked} calls replayed, {verdict.unchecked} in windows too large to search, "
            f"{verdict.loose_reads} reads beside changes; largest window {verdict.largest_window}",
            *(f"  {count:6} {answer}" for answer, count in sorted(verdict.answers.items())),
            *self.oddities,
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


def work(plan: Plan, number: int, stop_at: float) -> None:
    """Do random things until the time is over or we are killed."""
    chance = random.Random(f"{plan.seed} {number}")
    log = Log(plan.logs / f"{number}.jsonl")
    catalog = plan.open()
    verbs, weights = list(CHANCES), list(CHANCES.values())
    with _takeovers_noted(log):
        for count in range(sys.maxsize):
            if time.monotonic() >= stop_at:
                return
            verb = chance.choices(verbs, weights)[0]
            name = f"t{chance.randrange(plan.names)}"
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

    with substituted("claim.taken_over", noted_create), substituted("claim.purging", noted_purge):
        yield


def soak(plan: Plan) -> Report:
    """Run the processes, kill and restart them, and check what they left."""
    report = Report()
    killed_at = _run_processes(plan, report)
    time.sleep(SETTLED_AFTER_SECONDS)
    catalog, log = plan.open(), Log(plan.logs / "checker.jsonl")
    report.verdict.violations += _look_at_the_end(plan, catalog, log)
    with _takeovers_noted(log):
        for number in range(plan.names):
            report.verdict.violations += _create_at_last(catalog, log, f"t{number}", tag=number)
    history = read_logs(plan.logs, killed_at)
    report.takeovers, report.oddities = history.takeovers, history.oddities
    for name, calls in sorted(history.calls.items()):
        found = check_history(calls, history.killed.get(name, []))
        found.violations = [f"{name}: {each}" for each in found.violations]
        report.verdict.add(found)
    report.verdict.violations += history.surprises
    # An InternalError means "report a bug": no race may end with one. Time-outs under load may happen.
    report.verdict.violations += [each for each in history.oddities if "OutcomeUnknownError" not in each]
    return report


def _run_processes(plan: Plan, report: Report) -> dict[int, int]:
    """Run until the time is over; returns when each killed process was dead, by its number."""
    spawn = multiprocessing.get_context("spawn")  # a forked pylance is not safe
    chance = random.Random(plan.seed)
    stop_at = time.monotonic() + plan.seconds
    killed_at: dict[int, int] = {}
    running: dict[int, Any] = {}

    def start(number: int) -> None:
        running[number] = spawn.Process(target=work, args=(plan, number, stop_at), daemon=True)
        running[number].start()

    for number in range(1, plan.processes + 1):
        start(number)
    while time.monotonic() + plan.seconds_between_kills < stop_at:
        time.sleep(plan.seconds_between_kills * chance.uniform(0.5, 1.5))
        started = [each for each in running if (plan.logs / f"{each}.jsonl").exists()]
        if not started:
            continue
        victim = chance.choice(started)
        process = running.pop(victim)
        process.kill()
        process.join()
        killed_at[victim] = time.monotonic_ns()
        report.kills += 1
        start(plan.processes + report.kills)
    for number, process in running.items():
        process.join(_HANGS_AFTER_SECONDS)
        if process.exitcode != 0:
            report.verdict.violations.append(f"process {number} ended with {process.exitcode}")
    return killed_at


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
    answers = [do(catalog, log, Verb.CREATE, name, tag)]
    if answers[-1] == TableAlreadyExistsError.__name__:
        answers.append(do(catalog, log, Verb.DROP, name, tag))
    elif answers[-1] == ConcurrentModificationError.__name__:
        answers.append(do(catalog, log, Verb.PURGE, name, tag))
    if answers[-1] == "ok" and len(answers) > 1:
        answers.append(do(catalog, log, Verb.CREATE, name, tag))
    answers.append(do(catalog, log, READ, name, tag))
    return [] if answers[-1] == "ok" and answers[-2] == "ok" else [f"{name} is wedged: {answers}"]


@dataclass(slots=True)
class History:
    """What the logs of all processes say, by table name."""

    calls: dict[str, list[Call]] = field(default_factory=dict)
    killed: dict[str, list[Killed]] = field(default_factory=dict)
    takeovers: Counter[str] = field(default_factory=Counter)
    oddities: list[str] = field(default_factory=list)
    surprises: list[str] = field(default_factory=list)


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
        for fields in begun.values():
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
    if answer == BROKEN and (verb is not READ or "torn table" in end["detail"]):
        history.surprises.append(f"{name}: {verb} ended with {end['detail']}")
    elif answer not in SETTLED | {ConcurrentModificationError.__name__, BROKEN}:
        history.oddities.append(f"{name}: {verb} ended with {answer}: {end['detail']}")
    if verb is not READ and answer in _UNDECIDED:
        _add_open(history, begin, died=end["at"])
    else:
        history.calls.setdefault(name, []).append(call)


_UNDECIDED = frozenset({"OutcomeUnknownError", "ServiceUnavailableError", "ThrottlingError", BROKEN})
"""Answers after which the call may still take effect."""


def _add_open(history: History, begin: dict[str, Any], *, died: int) -> None:
    if Verb(begin["verb"]) is not READ:
        call = Call(Verb(begin["verb"]), begin["data"], begin["at"], None, None)
        settled_by = died + int(SETTLED_AFTER_SECONDS * _NANO)
        history.killed.setdefault(begin["name"], []).append(Killed(call, settled_by))


def main() -> int:
    """Run a soak on a directory and print what was found."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--root", type=Path, required=True, help="an empty or new directory")
    parser.add_argument("--processes", type=int, default=8)
    parser.add_argument("--names", type=int, default=20)
    parser.add_argument("--seed", type=int, default=time.time_ns())
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="soak-") as logs:
        plan = Plan({"root": str(options.root)}, Path(logs), options.seconds)
        plan = replace(plan, processes=options.processes, names=options.names, seed=options.seed)
        report = soak(plan)
    sys.stdout.write(f"seed {options.seed}\n{report.summary()}\n")
    return 1 if report.verdict.violations else 0


if __name__ == "__main__":
    sys.exit(main())
