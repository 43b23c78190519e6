"""A small lake with work for every kind of action, and the state to compare after a run."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
from tests.support.jobs.lakes import data_file
from tests.support.lakes import Lake
from tests.support.policy.policies import policy
from tests.support.roots import ipc

from relance.jobs.facts import TableFacts
from relance.jobs.gather import gather
from relance.jobs.runner import ThreadRunner
from relance.policy.actions import Unknown
from relance.policy.model import Policy
from relance.policy.records import Outcome, RunRecord

QUICK = {"clock_skew": "0s", "claim_lease": "1s", "request_age_bound": "0s", "manifest_upkeep": "false"}
"""Claims of a process that was killed are over soon."""

POLICY = """
[defaults]
drop_ttl = "30d"
purge = true
compact = { min_fragments = 2 }
refresh_indexes = {}
clean_up = { older_than = "0s", allow_young = true }
remove_orphans = { older_than = "24h" }
maintain_manifest = true

[[rules]]
name = "ninety days"
tables = ["readings", "events_*"]
delete_rows = { delete_where = "ts < now() - interval '90 days'", time_column = "ts" }

[[rules]]
name = "production"
tables = ["prod.**"]
protect = true
"""

ROWS = 40


def rows_of_days() -> pa.Table:
    """Return rows from today back to 200 days ago."""
    now = datetime.now(UTC)
    days = [now - timedelta(days=5 * each, hours=1) for each in range(ROWS)]
    return pa.table({"ts": days, "v": list(range(ROWS))})


OLD_ROWS = sum(5 * each >= 90 for each in range(ROWS))
"""Of each fragment."""


@dataclass
class PolicyLake(Lake):
    """A lake with something to do for a policy."""

    settings: dict[str, str] = field(default_factory=QUICK.copy)

    def make(self, *table: str, fragments: int = 1) -> None:
        """Create a table with rows of the last 200 days in each fragment."""
        self.catalog.create_table({"id": list(table)}, ipc(rows_of_days()))
        for _ in range(fragments - 1):
            self.append(*table)

    def append(self, *table: str) -> None:
        """Add a fragment."""
        self.write(rows_of_days(), *table, mode="append")

    def fill(self) -> None:
        """Make tables for every kind of action."""
        self.make("readings", fragments=4)
        self.make("gone")
        self.drop_long_ago("gone")
        self.make("kept")
        self.catalog.drop_table({"id": ["kept"], "context": {"ttl_ms": "30d"}})
        self.catalog.declare_table({"id": ["later"]})
        if self.mode.get("manifest_enabled") == "false":
            return
        self.catalog.create_namespace({"id": ["prod"]})
        self.make("prod", "orders", fragments=2)
        self.dataset("prod", "orders").create_scalar_index("v", "BTREE")
        self.append("prod", "orders")
        self.make("prod", "old")
        self.drop_long_ago("prod", "old")
        if not self.options:
            self.leave_orphan()

    def leave_orphan(self) -> None:
        data = Path(self.uri, "0123abcd_died", "data")
        data.mkdir(parents=True)
        file = data / data_file(1)
        file.write_bytes(b"x" * 100)
        then = time.time() - 3 * 24 * 3600
        os.utime(file, (then, then))

    def facts(self) -> dict[tuple[str, ...], TableFacts]:
        found = gather(self.ref, ThreadRunner(2))
        return {(*each.facts.table, each.facts.deletion_id or ""): each.facts for each in found}

    def state(self) -> dict[str, Any]:
        """Return what two runs with the same end have in common."""
        shown = {
            ".".join(key[:-1]): (
                each.state,
                each.rows,
                each.deleted_rows,
                each.fragments,
                each.versions,
                each.unindexed_rows,
                each.protected,
                each.drop_ttl,
                each.error,
            )
            for key, each in self.facts().items()
        }
        level = self.context.storage.list_level("")
        orphans = [each for each in level.directories if each.endswith("_died")]
        return {"tables": shown, "orphans": orphans, "problems": self.catalog.scrub()}


def the_policy(text: str = POLICY) -> Policy:
    return policy(text)


def outcomes(record: RunRecord) -> dict[tuple[str, tuple[str, ...], str], Outcome | Unknown]:
    """Return what became of each action of a run."""
    return {
        (each.action.kind, each.action.table, str(each.action.settings.get("deletion_id", ""))): each.outcome
        for each in record.actions
    }
