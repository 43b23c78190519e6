"""Managed versions for the explorer: writers, readers, deleters, a rename, writers past the catalog."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from lance_namespace import (
    BatchCreateTableVersionsRequest,
    BatchDeleteTableVersionsRequest,
    CreateTableVersionEntry,
    ListTableVersionsRequest,
    RenameTableRequest,
)
from lance_namespace_urllib3_client.models.version_range import VersionRange
from tests.support.scenarios import lifecycle, manifest
from tests.support.scenarios.lifecycle import TIMING

from relance.config import StorageOptions
from relance.errors import RelanceError
from relance.listing.manifest_files import NamingScheme, list_manifests, manifest_key
from relance.manifest.entry import Entry, ObjectType
from relance.manifest.store import Change, transact
from relance.operations.context import Context
from relance.operations.rename import rename_table
from relance.operations.versions import (
    batch_create_table_versions,
    batch_delete_table_versions,
    list_table_versions,
)
from relance.storage.connect import Connection
from relance.storage.memory import MemoryStorage
from relance.storage.probe import capabilities
from relance.storage.protocol import ObjectStorage
from relance.testing.clock import ManualClock
from relance.testing.explorer import Run, Scenario, Start
from relance.testing.model_manifest import ModelManifest
from relance.testing.model_tables import ModelTables
from relance.version_store.management import switch_on

TABLES = {"t": "1_t", "u": "1_u"}
"""The directories of both tables."""

ROOT = "memory-model"

Call = tuple[str, Callable[[Context], Any]]
Batch = tuple[tuple[str, int], ...]
"""Versions, each with its table."""

_UNKNOWN = "OutcomeUnknownError"
_MAY_FAIL_WITH = {
    "commit": {
        "TableVersionAlreadyExistsError",
        "ConcurrentModificationError",
        "TableNotFoundError",
        _UNKNOWN,
    },
    "past": {"KeyExistsError", _UNKNOWN},
    "read": {"KeyNotFoundError", "TableNotFoundError", _UNKNOWN},
    "delete": {_UNKNOWN},
    "rename": {_UNKNOWN},
}
"""Beaten, or without an answer; a version may be deleted before its reader comes to it."""


def context_on(storage: ObjectStorage, clock: ManualClock) -> Context:
    """Return a context over the models of Lance and of the manifest; rows alone decide about tables."""
    return Context(
        settings=manifest.SETTINGS[manifest.Mode.ROWS],
        root=lifecycle.ROOT,
        connection=Connection(storage, ROOT, StorageOptions()),
        clock=clock,
        tables=ModelTables(storage, clock),
        timing=TIMING,
        manifest=ModelManifest(storage),
    )


def final_key(table: str, version: int) -> str:
    """Return where the manifest of a version is in the end."""
    return manifest_key(TABLES[table], None, version, NamingScheme.V2)


def staged_key(writer: str, table: str, version: int) -> str:
    """Return where a writer stages the manifest of a version."""
    return f"{TABLES[table]}/_versions/{version}.manifest-{writer}"


def body_of(writer: str, table: str, version: int) -> bytes:
    """Return what a writer's manifest says."""
    return f"{table}{version} of {writer}".encode()


def commits(writer: str, batch: Batch) -> Call:
    """Commit versions through the catalog, all or none."""
    return f"commit:{writer}", lambda context: _commit(context, writer, batch)


def _commit(context: Context, writer: str, batch: Batch, names: dict[str, str] | None = None) -> Batch:
    entries = [
        CreateTableVersionEntry(
            id=[(names or {}).get(table, table)],
            version=version,
            manifest_path=f"{ROOT}/{staged_key(writer, table, version)}",
        )
        for table, version in batch
    ]
    batch_create_table_versions(context, BatchCreateTableVersionsRequest(entries=entries))
    return batch


def goes_past(writer: str, table: str) -> Call:
    """Commit the next version as clients do that do not know the catalog."""

    def call(context: Context) -> Batch:
        latest = list_manifests(context.storage, TABLES[table], None)[-1].version
        context.storage.create(final_key(table, latest + 1), body_of(writer, table, latest + 1))
        return ((table, latest + 1),)

    return f"past:{writer}", call


def reads(table: str) -> Call:
    """List the versions, and read what the listing leads to."""

    def call(context: Context) -> dict[int, bytes]:
        keys = {each.version: each.manifest_path.removeprefix(f"{ROOT}/") for each in _listed(context, table)}
        return {version: context.storage.read(key).body for version, key in keys.items()}

    return f"read:{table}", call


def _listed(context: Context, table: str) -> Sequence[Any]:
    return list_table_versions(context, ListTableVersionsRequest(id=[table])).versions


def deletes(table: str, version: int) -> Call:
    """Delete a version."""
    ranges = [VersionRange(start_version=version, end_version=version + 1)]

    def call(context: Context) -> int:
        request = BatchDeleteTableVersionsRequest(id=[table], ranges=ranges)
        return batch_delete_table_versions(context, request).deleted_count or 0

    return f"delete:{table}{version}", call


def renames(table: str, target: str) -> Call:
    """Give a table another name."""
    request = RenameTableRequest(id=[table], new_table_name=target)
    return f"rename:{table}", lambda context: rename_table(context, request)


@dataclass(frozen=True, slots=True)
class Rules:
    """What must hold in a scenario."""

    whole: tuple[str, Batch] | None = None
    """A writer whose versions come all or none, once everything is at rest."""
    chain: tuple[str, Batch] | None = None
    """A writer whose versions come only on top of one another."""
    renamed: str = "t"
    """Which name the first table may have in the end."""
    deleted: frozenset[int] = frozenset()
    """Versions of it that may go."""


def make_scenario(actors: Sequence[Call], staged: dict[str, Batch], rules: Rules) -> Scenario:
    """Return a scenario over two tables of two versions each, with the manifests that writers have staged."""
    rested: dict[frozenset[tuple[str, bytes]], str | None] = {}

    def prepare(beginning: Start) -> None:
        capabilities(beginning.store)
        _set_up(beginning.store, beginning.clock, staged)

    def check(run: Run) -> str | None:
        objects = run.store.snapshot()
        wrong = _check_told(run, objects, rules)
        if wrong is None and not any(actor.waiting for actor in run.actors):
            content = frozenset(objects.items())
            if content not in rested:
                rested[content] = _check_at_rest(run, rules)
            wrong = rested[content]
        return wrong

    return Scenario(
        actors=[[each] for each in actors],
        prepare=prepare,
        context=lambda run: context_on(run.storage, run.clock),
        check=check,
        tick=timedelta(minutes=30),
    )


def _set_up(store: MemoryStorage, clock: ManualClock, staged: dict[str, Batch]) -> None:
    context = context_on(store, clock)
    assert context.manifest is not None
    rows = tuple(Entry(name, ObjectType.TABLE, directory) for name, directory in TABLES.items())
    transact(context.manifest, lambda _: (Change(added=rows), None))
    switch_on(context.manifest)
    for name in TABLES:
        for version in (1, 2):
            store.create(final_key(name, version), body_of("setup", name, version))
        _listed(context, name)
    for writer, batch in staged.items():
        for table, version in batch:
            store.create(staged_key(writer, table, version), body_of(writer, table, version))


def _check_told(run: Run, objects: dict[str, bytes], rules: Rules) -> str | None:
    """Check that whatever anybody was told of is there, just so."""
    for actor in run.actors:
        for name, (outcome, value) in zip(actor.names, actor.outcomes, strict=False):
            kind, _, who = name.partition(":")
            if outcome != "ok":
                if outcome not in _MAY_FAIL_WITH[kind]:
                    return f"{name} failed with {outcome}"
                continue
            for (table, version), body in _told(kind, who, value).items():
                if version not in rules.deleted and objects.get(final_key(table, version)) != body:
                    return f"{name} was told of {table}{version} = {body!r}, which is not there"
    return None


def _told(kind: str, who: str, value: Any) -> dict[tuple[str, int], bytes]:
    """Return the versions that a call which succeeded tells of."""
    if kind == "read":
        return {(who, version): body for version, body in value.items()}
    if kind in {"commit", "past"}:
        return {(table, version): body_of(who, table, version) for table, version in value}
    return {}


def _check_at_rest(run: Run, rules: Rules) -> str | None:
    """Check that the next client finds everything in step, and can go on; works on a copy of the store."""
    store = run.store.copy(run.clock)
    context = context_on(store, run.clock)
    assert context.manifest is not None
    is_renamed = rules.renamed in context.manifest.latest().get([rules.renamed])
    names = {"t": rules.renamed if is_renamed else "t", "u": "u"}
    found: dict[str, dict[int, bytes]] = {}
    for table, name in names.items():
        versions = [each.version for each in _listed(context, name)]
        files = [each.version for each in list_manifests(store, TABLES[table], None)]
        rows = [int(each.parts[-1]) for each in context.manifest.latest().below(f"{name}$")]
        if not versions == files == sorted(rows):
            return f"{name} lists {versions}, has the files {files} and the rows {rows}"
        found[table] = {version: store.read(final_key(table, version)).body for version in versions}
    return _check_whole(found, rules) or _check_not_wedged(context, store, names, max(found["t"]))


def _check_whole(found: dict[str, dict[int, bytes]], rules: Rules) -> str | None:
    if rules.whole is not None and len(set(_there(found, *rules.whole))) > 1:
        return f"half of what {rules.whole[0]} committed is there: {found}"
    if rules.chain is not None:
        there = _there(found, *rules.chain)
        if sorted(there, reverse=True) != there:
            return f"what {rules.chain[0]} committed is on top of something else: {found}"
    return None


def _there(found: dict[str, dict[int, bytes]], writer: str, batch: Batch) -> list[bool]:
    return [found[table].get(version) == body_of(writer, table, version) for table, version in batch]


def _check_not_wedged(
    context: Context, store: MemoryStorage, names: dict[str, str], latest: int
) -> str | None:
    store.create(staged_key("next", "t", latest + 1), b"next")
    try:
        _commit(context, "next", (("t", latest + 1),), names)
    except RelanceError as error:
        return f"no version can follow: {error}"
    return None


ONE: Batch = (("t", 3),)
BOTH: Batch = (("t", 3), ("u", 3))
CHAIN: Batch = (("t", 3), ("t", 4))

SCENARIOS: dict[str, tuple[Sequence[Call], dict[str, Batch], Rules]] = {
    "two writers of one version": ([commits("a", ONE), commits("b", ONE)], {"a": ONE, "b": ONE}, Rules()),
    "a writer and a reader": ([commits("a", ONE), reads("t")], {"a": ONE}, Rules()),
    "a batch and a reader": ([commits("a", BOTH), reads("t")], {"a": BOTH}, Rules(whole=("a", BOTH))),
    "a batch and a writer": (
        [commits("a", BOTH), commits("b", ONE)],
        {"a": BOTH, "b": ONE},
        Rules(whole=("a", BOTH)),
    ),
    "a chain and one who goes past": (
        [commits("a", CHAIN), goes_past("p", "t")],
        {"a": CHAIN},
        Rules(chain=("a", CHAIN)),
    ),
    "a writer, a reader and one who goes past": (
        [commits("a", ONE), goes_past("p", "t"), reads("t")],
        {"a": ONE},
        Rules(),
    ),
    "a deleter and a reader": ([deletes("t", 1), reads("t")], {}, Rules(deleted=frozenset({1}))),
    "a deleter and a writer": (
        [deletes("t", 1), commits("a", ONE)],
        {"a": ONE},
        Rules(deleted=frozenset({1})),
    ),
    "two deleters": ([deletes("t", 1), deletes("t", 1)], {}, Rules(deleted=frozenset({1}))),
    "a writer while the table is renamed": (
        [renames("t", "x"), commits("a", ONE)],
        {"a": ONE},
        Rules(renamed="x"),
    ),
}
"""What actors do, what is staged for them, and what must hold: the arguments of make_scenario."""
