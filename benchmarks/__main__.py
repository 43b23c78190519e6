"""The command: choose benchmarks, run them, print one table. A missed target is no failure."""

from __future__ import annotations

import argparse
import platform
import sys
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

from benchmarks import (
    cli_start,
    data_operations,
    lifecycle,
    listing,
    lookups,
    maintenance_compaction,
    maintenance_delete,
    maintenance_executors,
    maintenance_purge,
    maintenance_upsert,
    manifest_local,
    manifest_s3,
    manifest_sustained,
    memory,
    policy_plan,
    spark_connector,
    spark_tables,
    verbs,
)
from benchmarks.results import Benchmark, Result
from benchmarks.table import as_json, as_table

MODULES = (
    listing,
    lookups,
    memory,
    policy_plan,
    lifecycle,
    manifest_local,
    manifest_sustained,
    manifest_s3,
    data_operations,
    maintenance_upsert,
    spark_tables,
    spark_connector,
    maintenance_compaction,
    maintenance_delete,
    maintenance_executors,
    maintenance_purge,
    verbs,
    cli_start,
)
"""Every topic; a new one is added here."""

_COMPARED = ("relance", "pylance", "obstore", "lance-namespace", "pyspark")


def main(arguments: Sequence[str] | None = None) -> None:
    """Run what the command line asks for."""
    known = {each.name: each for module in MODULES for each in module.BENCHMARKS}
    parser = _parser()
    options = parser.parse_args(arguments)
    if unknown := set(options.names) - set(known):
        parser.error(f"no such benchmark: {', '.join(sorted(unknown))}; known are {', '.join(known)}")
    if options.list:
        width = max(map(len, known))
        print("\n".join(f"{each.name:{width}}  {each.summary}" for each in known.values()))
        return
    _run([known[name] for name in options.names or known], options.json)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="which to run (default: all)")
    parser.add_argument("--list", action="store_true", help="show the benchmarks and run none")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write every sample to FILE")
    return parser


def _run(chosen: Sequence[Benchmark], json_file: Path | None) -> None:
    results: list[Result] = []
    try:
        for benchmark in chosen:
            print(f"{benchmark.name}: {benchmark.summary} ...", file=sys.stderr, flush=True)
            results.extend(benchmark.run())
    finally:
        # Also when one of them crashes: what was measured until then is worth seeing.
        print(as_table(results))
        if json_file:
            json_file.write_text(as_json(results, _versions()))


def _versions() -> dict[str, str]:
    return {"python": platform.python_version(), **{name: version(name) for name in _COMPARED}}


if __name__ == "__main__":
    main()
