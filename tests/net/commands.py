"""Every command of the program on a small lake: what it prints with `--json`, and its exit code.

One lake goes through all command lines. What differs from run to run, and texts for people, are
replaced by placeholders; keys, structure, values and codes stay as they are.
"""

from __future__ import annotations

import json
import os
import re
import shlex
from collections.abc import Iterator, Mapping
from contextlib import chdir
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest import mock

import click
from tests.support.cli import RULES, make_lake, run

from relance.cli.app import app

POLICY = f"\n[limits]\nmax_rows_deleted = 2\n{RULES}"
BAD_POLICY = '[[rules]]\nname = "x"\ntables = "**"\ncompact = { min_fragmens = 2 }\n'
GREEDY_POLICY = POLICY.replace("id < 2", "id < 9")

LINES = """
ls
ls --tree
ls prod -r --sizes
ls --tables
ls --namespaces
ls --dropped
ls missing
show readings
show prod.users
show prod
show missing
status readings
status gone
status missing
versions prod.users
versions prod.users --limit 1
versions missing

create-namespace sales --property owner=me
create-namespace sales
create-namespace sales --exist-ok
create-namespace a.b.c
create-namespace a.b.c --parents
rename prod.raw.`odd.name` sales.plain
rename missing sales.other
rename readings prod.users
protect readings prod
protect missing
drop readings
unprotect readings prod
unprotect missing
drop readings --ttl 30d
drop readings
drop missing prod.users
undrop prod.users
undrop readings
undrop readings
undrop gone --as back
undrop missing
drop prod --namespace
drop prod --namespace --cascade
undrop prod --namespace
undrop prod --namespace --deletion-id none
drop back --purge
drop back --purge --yes
deregister readings
deregister readings
register readings readings.lance
register readings readings.lance
register readings readings.lance --overwrite --property team=b
register other nowhere.lance

query prod.users
query prod.users --columns id --where 'id > 2' --limit 1
query prod.users --count
query prod.users --tag first
query prod.users --version 9
query prod.users --where 'nothing > 2'
query prod.users --branch none
query prod.users --output users.csv
query prod.users --output users.csv
query missing
export prod.users users.parquet
export prod.users users.parquet
export prod.users users.parquet --overwrite --where 'id < 3'
export prod.users users.odd
import copied users.parquet
import copied users.parquet
import copied users.parquet --mode append
import copied users.parquet --mode overwrite
import new.space.copied users.parquet
import new.space.copied users.parquet --create-namespaces
import copied missing.parquet
delete-rows copied --where 'id = 1'
delete-rows copied --where 'id = 1' --dry-run
delete-rows copied --where 'id = 1' --yes
delete-rows copied --where 'nothing = 1' --yes
delete-rows missing --where 'id = 1' --yes
update-rows prod.users --set "name=upper(name)" --where 'id = 2' --dry-run
update-rows prod.users --set "name=upper(name)" --where 'id > 99'
update-rows prod.users --set nothing
update-rows --set "name='x'"

compact prod.users --dry-run
compact prod.users
compact missing
refresh-indexes prod.users
refresh-indexes missing
remove-orphans --dry-run
remove-orphans --yes
remove-orphans --older-than 1h
maintain-manifest
cleanup prod.users --dry-run
cleanup copied --retain-versions 1 --allow-young
cleanup copied --retain-versions 1 --yes
cleanup copied --retain-versions 1 --allow-young --yes
cleanup missing --yes
drop copied
purge
purge --yes
purge copied --yes
purge copied --force --dry-run
purge copied --force
purge copied --force --yes
purge copied --force --yes --deletion-id none
migrate --dry-run
migrate
migrate --to markers --dry-run
migrate --to markers
scrub
scrub --repair --yes
doctor

policy check policy.toml
policy check bad.toml
policy check missing.toml
policy explain prod.users --policy policy.toml
policy explain --policy policy.toml
policy explain gone --policy policy.toml
policy explain missing --policy policy.toml
policy schema
history
report
plan policy.toml
plan policy.toml --only prod.users --kind protect
plan bad.toml
plan greedy.toml
plan policy.toml --kind protect --save plan.json
run policy.toml
run greedy.toml --yes
run --plan plan.json --actor ops
run --plan plan.json --actor ops
run policy.toml --yes --actor ops --html report.html
run policy.toml --yes --actor ops
run --resume
history
history --actions
history --actions --kind protect --table prod.users
history --failed
report
report missing
completion bash
completion zsh
completion fish

nonsense
ls --nonsense
show
show ''
rename readings
query prod.users --limit many
drop readings --ttl soon
purge copied --deleted-before never
policy
policy nonsense
run policy.toml --resume
run --plan missing.json
run --plan policy.toml
versions prod.users --limit 0
--root relative/to/nothing ls
--root policy.toml ls
--root bogus://x ls
--config missing.toml ls
"""
"""The command lines, in the order in which they are run; an empty line only separates."""

_TEXT_KEYS = frozenset(
    {"message", "hint", "why", "note", "detail", "remedy", "problem", "error", "engine", "script", "install"}
)
_VARYING_KEYS = {
    "deletion_id": "<id>",
    "cascade_id": "<id>",
    "run": "<run>",
    "actor": "<actor>",
    "seconds": "<seconds>",
    "duration": "<seconds>",
    "bytes": "<bytes>",
}
_OF_THE_MACHINE = ("java", "pyspark")
_TIME = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d(\.\d+)?)?(Z|[+-]\d\d:\d\d)?")
_RUN = re.compile(r"\b\d{8}T\d{6}-\w+")
_HASH = re.compile(r"\b[0-9a-f]{8,}(?=_)")


def commands() -> set[str]:
    """Return the paths of all commands, such as `policy check`."""
    return set(_paths(app, ""))


def _paths(group: click.Group, before: str) -> Iterator[str]:
    for name, command in group.commands.items():
        if isinstance(command, click.Group):
            yield from _paths(command, f"{before}{name} ")
        else:
            yield f"{before}{name}"


def covered(records: Mapping[str, Any]) -> set[str]:
    """Return the paths of the commands that have a record of success."""
    return {each["json"]["command"] for each in records.values() if each["exit"] == 0}


def record() -> dict[str, Any]:
    """Run all command lines in a fresh folder, and return what each gave."""
    with TemporaryDirectory() as folder:
        return record_in(Path(folder))


def record_in(folder: Path) -> dict[str, Any]:
    """Run all command lines in an empty folder, and return what each gave."""
    folder = folder.resolve()
    make_lake(folder / "lake")
    for name, text in {"policy": POLICY, "bad": BAD_POLICY, "greedy": GREEDY_POLICY}.items():
        (folder / f"{name}.toml").write_text(text)
    (folder / "relance.toml").write_text('root = "lake"\n\n[catalog]\nmanifest_upkeep = false\n')
    found: dict[str, Any] = {}
    with chdir(folder), mock.patch.dict(os.environ, without_settings(), clear=True):
        for line in filter(None, LINES.splitlines()):
            times = sum(1 for known in found if known.partition(" #")[0] == line)
            ran = run(*shlex.split(line), "--json")
            document = normalised(json.loads(ran.out), str(folder))
            found[f"{line} #{times + 1}" if times else line] = {"exit": ran.exit_code, "json": document}
    return found


def without_settings() -> dict[str, str]:
    """Return the environment without what this machine says of catalogs."""
    return {name: value for name, value in os.environ.items() if not name.startswith("RELANCE_")}


def normalised(value: Any, folder: str, key: str = "") -> Any:
    """Return a JSON value with placeholders for what differs from run to run and for texts."""
    if key == "schema":
        return "<schema>"  # it has a record of its own
    if isinstance(value, dict):
        if value.get("name") in _OF_THE_MACHINE and "verdict" in value:
            value = {**value, "verdict": "<verdict>"}
        return {name: normalised(each, folder, name) for name, each in value.items()}
    if isinstance(value, list):
        return [normalised(each, folder, key) for each in value]
    if value is None or value == "" or isinstance(value, bool):
        return value
    if key in _TEXT_KEYS:
        return "<text>"
    if key in _VARYING_KEYS:
        return _VARYING_KEYS[key]
    if isinstance(value, str):
        value = value.replace(folder, "<folder>")
        for pattern, placeholder in ((_TIME, "<time>"), (_RUN, "<run>"), (_HASH, "<hash>")):
            value = pattern.sub(placeholder, value)
    return value


def without_texts(value: Any, key: str = "") -> Any:
    """Return a JSON value with placeholders only for texts."""
    if isinstance(value, dict):
        return {name: without_texts(each, name) for name, each in value.items()}
    if isinstance(value, list):
        return [without_texts(each, key) for each in value]
    return "<text>" if key in _TEXT_KEYS and isinstance(value, str) and value else value
