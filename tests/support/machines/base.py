"""The base of all state machines: two clients on one root, each with its own clock."""

from __future__ import annotations

import pickle
import shutil
import uuid
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule
from tests.support.machines.clock import TIME

import relance

WHO = st.integers(0, 1)


class TwoClients(RuleBasedStateMachine):
    """Two clients on one root, whose clocks may differ."""

    def __init__(self, properties: Mapping[str, str]) -> None:
        """Start on an empty root."""
        super().__init__()
        # The real date: stores stamp markers with theirs, and a sweep compares the two.
        TIME.moment = datetime.now(UTC).replace(microsecond=0)
        self.properties = dict(properties)
        self.clients: list[relance.DirectoryNamespace] = []
        self.offsets = [timedelta(0), timedelta(0)]
        self.written = 0
        self.turn = 0

    def now(self, who: int) -> datetime:
        """Return the time that a client sees."""
        return TIME.now() + self.offsets[who]

    def new_rows(self) -> list[int]:
        """Return rows that no other write has."""
        self.written += 2
        return [self.written - 1, self.written]

    @rule(who=WHO)
    def pickle_a_client(self, who: int) -> None:
        self.clients[who] = pickle.loads(pickle.dumps(self.clients[who]))


class OnDisk(RuleBasedStateMachine):
    """Gives each run of a machine a fresh root in a folder, and removes it afterwards."""

    root: Path

    def fresh_root(self, folder: Path) -> str:
        """Return a root that does not exist yet."""
        self.root = folder / uuid.uuid4().hex
        return str(self.root)

    def teardown(self) -> None:
        super().teardown()
        shutil.rmtree(self.root, ignore_errors=True)


def values(dataset: Any) -> list[int]:
    """Return the values of a table in their order."""
    return sorted(dataset.to_table()["x"].to_pylist())


def millis(moment: datetime) -> int:
    """Return a time as the responses write it."""
    return (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1)
