"""How long commands take to start: CPU time beside that of `python -c 'import lance'`, taken in turns."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
from lance_namespace import CreateNamespaceRequest, CreateTableRequest

from benchmarks.results import Benchmark, Result, Sample, Unit, times_its_own
from benchmarks.roots import temporary_root
from relance import DirectoryNamespace

REPEATS = 9

_POLICY = '[[rules]]\nname = "all"\ntables = "**"\ndrop_ttl = "30d"\ncompact = { target_bytes = "128MiB" }\n'


@dataclass(frozen=True, slots=True)
class Start:
    """A command line, and how many times `import lance` it may take."""

    what: str
    arguments: Sequence[str]
    times: float
    variables: Mapping[str, str] = field(default_factory=dict)


def _completing(line: str) -> dict[str, str]:
    last = len(line.split(" ")) - 1
    return {"_RELANCE_COMPLETE": "bash_complete", "COMP_WORDS": line, "COMP_CWORD": str(last)}


STARTS = (
    Start("relance --help", ["--help"], 0.3),
    Start("relance compact --help", ["compact", "--help"], 0.3),
    Start("completion of a command", [], 0.3, _completing("relance und")),
    Start("completion script", ["completion", "bash"], 0.3),
    Start("usage error: unknown command", ["frob"], 0.3),
    Start("usage error: duration without a unit", ["drop", "--ttl", "30", "prod.users"], 0.3),
    Start("policy check", ["policy", "check", "policy.toml"], 0.4),
    Start("completion of a table", [], 1.2, _completing("relance show prod.u")),
    Start("ls", ["ls"], 1.2),
    Start("show", ["show", "prod.users"], 1.2),
    Start("status", ["status", "prod.users"], 1.2),
)


def start_commands() -> Iterator[Result]:
    """Measure each command in processes of its own, on a catalog of one table."""
    with temporary_root() as root:
        _make_catalog(f"{root}/lake")
        Path(root, "policy.toml").write_text(_POLICY)
        # With cached bytecode, as installed: otherwise most of the time goes into compiling our modules.
        plain = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        environment = {**plain, "RELANCE_ROOT": f"{root}/lake"}
        beside: list[float] = []
        taken: list[list[float]] = [[] for _ in STARTS]
        for repeat in range(REPEATS + 1):
            seconds = _cpu_seconds(["-c", "import lance"], environment, root)
            each = [
                _cpu_seconds(["-m", "relance", *start.arguments], {**environment, **start.variables}, root)
                for start in STARTS
            ]
            if repeat:  # the first one fills the caches
                beside.append(seconds)
                for values, value in zip(taken, each, strict=True):
                    values.append(value)
    lance = Sample(tuple(beside))
    for start, values in zip(STARTS, taken, strict=True):
        ours = Sample(tuple(values))
        yield Result(
            f"{start.what}: CPU time {ours.median / lance.median:.2f}x of import lance",
            Unit.SECONDS,
            ours,
            lance,
            times_its_own(start.times),
            by_median=True,
        )


def _make_catalog(root: str) -> None:
    catalog = DirectoryNamespace(root=root)
    catalog.create_namespace(CreateNamespaceRequest(id=["prod"]))
    sink = pa.BufferOutputStream()
    rows = pa.table({"id": [1, 2, 3]})
    with pa.ipc.new_stream(sink, rows.schema) as stream:
        stream.write_table(rows)
    catalog.create_table(CreateTableRequest(id=["prod", "users"]), sink.getvalue().to_pybytes())


def _cpu_seconds(arguments: Sequence[str], environment: Mapping[str, str], folder: str) -> float:
    """Return the user and system time of one process, which may fail: a usage error does."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(
        [sys.executable, *arguments],
        env=dict(environment),
        cwd=folder,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        check=False,
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime


BENCHMARKS = (Benchmark("cli-start", "CPU time of commands beside that of importing Lance", start_commands),)
