"""A process of its own: `maintain_many ROOT` runs a job over all tables and prints the memory it took."""

from __future__ import annotations

import json
import sys

from benchmarks.measure import peak_rss
from benchmarks.roots import V1
from relance.jobs import CleanUp, start
from relance.jobs.base import CatalogRef


def main(root: str) -> None:
    """Look at every table as a cleanup does, take the results one by one, and print the figures."""
    started = start(CatalogRef(tuple({"root": root, **V1}.items())), CleanUp(), dry_run=True)
    before = peak_rss()
    tables = sum(each.error is None for each in started.results)
    print(json.dumps({"tables": tables, "before": before, "peak": peak_rss()}))


if __name__ == "__main__":
    main(*sys.argv[1:])
