"""A process of its own: `plan_once ROOT` plans a policy over a lake, and prints what that took."""

from __future__ import annotations

import json
import sys
from collections import Counter
from time import perf_counter

from benchmarks.measure import watch_memory
from relance import DirectoryNamespace
from relance.policy.parse import parse_policy
from relance.policy.planning import plan

POLICY = """
[defaults]
compact = { min_fragments = 8 }
clean_up = { older_than = "0s", retain_versions = 5, allow_young = true }
purge = true
remove_orphans = {}
maintain_manifest = true
"""


def main(root: str) -> None:
    """Plan once, with the catalog as users open it."""
    catalog = DirectoryNamespace(root=root)
    policy = parse_policy(POLICY, file="bench.toml")
    with watch_memory() as memory:
        start = perf_counter()
        made = plan(catalog, policy, engine="local")
        seconds = perf_counter() - start
    outcomes = Counter(each.outcome.value for each in made.steps)
    figures = {"seconds": seconds, "before": memory.before, "peak": memory.peak}
    print(json.dumps({**figures, "tables": made.before.tables, "planned": outcomes["planned"]}))


if __name__ == "__main__":
    main(*sys.argv[1:])
