"""Processes that all do the same thing at the same moment, round after round."""

from __future__ import annotations

import multiprocessing
import queue
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.synchronize import Barrier
from typing import Any

import pyarrow as pa
from lance_namespace.errors import LanceNamespaceError
from tests.support.roots import create, declare

from relance import DirectoryNamespace

TIMEOUT_SECONDS = 120

UNTYPED = -1
"""Stands for the code of an error that has none, which no caller may ever get."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one process got in one round: what the action returned, or the code of an error."""

    round: int
    process: int
    code: int | None
    message: str = ""
    value: Any = None

    @property
    def won(self) -> bool:
        return self.code is None


def create_own_rows(catalog: DirectoryNamespace, name: str, process: int) -> None:
    """Create a table whose rows tell who made it."""
    response = create(catalog, name, pa.table({"process": [process] * 3}))
    assert response.version == 1


def declare_it(catalog: DirectoryNamespace, name: str, process: int) -> None:
    """Declare a table."""
    declare(catalog, name)


def deregister_it(catalog: Any, name: str, process: int) -> None:
    """Hide a table."""
    catalog.deregister_table({"id": [name]})


Action = Callable[[DirectoryNamespace, str, int], Any]


class Team:
    """Processes that wait for races; starting them costs more than a race does."""

    def __init__(self, size: int) -> None:
        """Start the processes."""
        # Clean processes as with spawn, but what takes seconds to import is imported once for all of them.
        self._forkserver = multiprocessing.get_context("forkserver")
        self._forkserver.set_forkserver_preload(["relance.namespace"])
        self._size = size
        self._start()

    def race(
        self,
        properties: Mapping[str, Any],
        action: Action,
        *,
        rounds: int,
        timeout: float = TIMEOUT_SECONDS,
    ) -> dict[str, list[Outcome]]:
        """Let all processes do `action` on one name per round; return the outcomes by name.

        A race without an outcome for `timeout` seconds fails, and the next one gets fresh processes.
        """
        outcomes: list[Outcome] = []
        try:
            for connection in self._connections:
                connection.send((dict(properties), action, rounds))
            while len(outcomes) < self._size * rounds:
                outcomes.append(self._outcomes.get(timeout=timeout))
        except (queue.Empty, OSError) as cause:
            codes = [member.exitcode for member in self._members]
            self.stop()
            self._start()
            raise AssertionError(
                f"{len(outcomes)} of {self._size * rounds} outcomes within {timeout} s of the last one; "
                f"exit codes {codes}; outcomes {outcomes}"
            ) from cause
        return {
            _name(number): [each for each in outcomes if each.round == number] for number in range(rounds)
        }

    def stop(self) -> None:
        """End the processes, whatever they are doing."""
        for member in self._members:
            member.kill()
        for member in self._members:
            member.join(TIMEOUT_SECONDS)

    def _start(self) -> None:
        # Kept: a process that starts late still has to find the barrier.
        self._barrier, self._outcomes = self._forkserver.Barrier(self._size), self._forkserver.Queue()
        pipes = [self._forkserver.Pipe() for _ in range(self._size)]
        self._connections = [ours for ours, _ in pipes]
        self._members = [
            self._forkserver.Process(
                target=_take_part, args=(number, theirs, self._barrier, self._outcomes), daemon=True
            )
            for number, (_, theirs) in enumerate(pipes)
        ]
        for member in self._members:
            member.start()


@contextmanager
def team(size: int) -> Iterator[Team]:
    """Run a team of processes for the duration of the block."""
    members = Team(size)
    try:
        yield members
    finally:
        members.stop()


def _name(number: int) -> str:
    return f"t{number}"


def _take_part(process: int, jobs: Any, barrier: Barrier, outcomes: Any) -> None:
    while True:
        properties, action, rounds = jobs.recv()
        catalog = DirectoryNamespace(**properties)
        for number in range(rounds):
            barrier.wait(TIMEOUT_SECONDS)
            outcomes.put(_attempt(catalog, action, number, process))


def _attempt(catalog: DirectoryNamespace, action: Action, number: int, process: int) -> Outcome:
    try:
        value = action(catalog, _name(number), process)
    except LanceNamespaceError as error:
        return Outcome(number, process, int(error.code), str(error))
    except (OSError, ValueError, RuntimeError, LookupError, TypeError, AssertionError) as error:
        return Outcome(number, process, UNTYPED, repr(error))
    return Outcome(number, process, None, value=value)
