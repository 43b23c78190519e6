"""What racing processes do to namespaces and tables; who does so, and when, is in tests.support.racing.

Actions are values with the namespace they work in, because they are sent to processes.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pyarrow as pa
from tests.support.codes import SERVICE_UNAVAILABLE
from tests.support.internals import manifest_of
from tests.support.roots import ipc

from relance import DirectoryNamespace
from relance.catalog.manifest.upkeep import keep_up
from relance.errors import RelanceError


@dataclass(frozen=True, slots=True)
class Action:
    """Something done to a table, or a namespace, of the name of the round."""

    namespace: tuple[str, ...] = ()

    def id_of(self, name: str) -> list[str]:
        return [*self.namespace, name]

    def __call__(self, catalog: DirectoryNamespace, name: str, process: int) -> Any:
        raise NotImplementedError


class Create(Action):
    """Create a table whose rows tell who made it; returns where it is."""

    def __call__(self, catalog: DirectoryNamespace, name: str, process: int) -> Any:
        data = ipc(pa.table({"process": [process] * 3}))
        return catalog.create_table({"id": self.id_of(name)}, data).location


class CreateOwn(Action):
    """Create a table with a name that nobody else takes."""

    def __call__(self, catalog: DirectoryNamespace, name: str, process: int) -> Any:
        return Create(self.namespace)(catalog, f"{name}_{process}", process)


class Declare(Action):
    """Declare a table; returns where it is."""

    def __call__(self, catalog: DirectoryNamespace, name: str, process: int) -> Any:
        return catalog.declare_table({"id": self.id_of(name)}).location


class Drop(Action):
    """Drop a table; returns the deletion id."""

    def __call__(self, catalog: DirectoryNamespace, name: str, process: int) -> Any:
        properties = catalog.drop_table({"id": self.id_of(name)}).properties
        assert properties is not None
        return properties["deletion_id"]


class Undrop(Action):
    """Undrop a table."""

    def __call__(self, catalog: DirectoryNamespace, name: str, process: int) -> Any:
        catalog.undrop_table(self.id_of(name))


class UndropOwn(Action):
    """Undrop a table under a name that nobody else takes."""

    def __call__(self, catalog: DirectoryNamespace, name: str, process: int) -> Any:
        catalog.undrop_table(self.id_of(name), new_id=self.id_of(f"{name}_{process}"))


class RenameAway(Action):
    """Rename one table to a name that nobody else takes."""

    def __call__(self, catalog: DirectoryNamespace, name: str, process: int) -> Any:
        catalog.rename_table({"id": self.id_of(name), "new_table_name": f"{name}_{process}"})


class RenameOnto(Action):
    """Rename a table of one's own to a name that all want."""

    def __call__(self, catalog: DirectoryNamespace, name: str, process: int) -> Any:
        catalog.rename_table({"id": self.id_of(f"{name}_{process}"), "new_table_name": name})


class CreateNamespace(Action):
    """Create a namespace."""

    def __call__(self, catalog: DirectoryNamespace, name: str, process: int) -> Any:
        catalog.create_namespace({"id": self.id_of(name), "properties": {"process": str(process)}})


class DropNamespace(Action):
    """Drop an empty namespace."""

    def __call__(self, catalog: DirectoryNamespace, name: str, process: int) -> Any:
        catalog.drop_namespace({"id": self.id_of(name)})


class UndropNamespace(Action):
    """Undrop a namespace with all that was in it."""

    def __call__(self, catalog: DirectoryNamespace, name: str, process: int) -> Any:
        catalog.undrop_namespace(self.id_of(name))


@dataclass(frozen=True, slots=True)
class Divided(Action):
    """Half of the processes do one thing, half the other."""

    even: Action = Action()
    odd: Action = Action()

    def __call__(self, catalog: DirectoryNamespace, name: str, process: int) -> Any:
        return (self.odd if process % 2 else self.even)(catalog, name, process)


@dataclass(frozen=True, slots=True)
class WithUpkeep(Action):
    """One process keeps the manifest in shape while the others act."""

    act: Action = Action()
    keeper: int = 0

    def __call__(self, catalog: DirectoryNamespace, name: str, process: int) -> Any:
        if process == self.keeper:
            keep_manifest(catalog, timedelta(minutes=1))
            return None
        return self.act(catalog, name, process)


def keep_manifest(catalog: DirectoryNamespace, keep_versions_for: timedelta) -> None:
    """Do one round of upkeep."""
    keep_up(manifest_of(catalog), keep_versions_for=keep_versions_for)


@dataclass(frozen=True, slots=True)
class Event:
    """One call of a free-for-all: what it was to do, and what came of it."""

    verb: str
    name: str
    target: str = ""
    version: int = 0
    """That a create wrote: later than the first when it wrote over a dropped table."""
    code: int | None = None
    message: str = ""

    @property
    def done(self) -> bool:
        return self.code is None

    @property
    def in_doubt(self) -> bool:
        """Whether the call took effect, but was overtaken before it could tell how it ended."""
        return self.code == SERVICE_UNAVAILABLE

    @property
    def about(self) -> tuple[str, ...]:
        """The names that the call may have changed."""
        return (self.name, self.target) if self.verb in {"rename", "undrop as"} else (self.name,)


@dataclass(frozen=True, slots=True)
class FreeForAll(Action):
    """Each process does random things to a few names; returns all that it did."""

    maker: str = "create"
    """How tables come about. Not both ways: a create over a declared table takes no name."""
    names: int = 3
    calls: int = 15
    keeper: int | None = None
    """The process that does upkeep instead, if any."""

    def __call__(self, catalog: DirectoryNamespace, name: str, process: int) -> Any:
        if process == self.keeper:
            for _ in range(self.calls):
                keep_manifest(catalog, timedelta(minutes=1))
            return []
        chance = random.Random(f"{name} {process}")
        return [self._call(catalog, chance, process) for _ in range(self.calls)]

    def _call(self, catalog: DirectoryNamespace, chance: random.Random, process: int) -> Event:
        verb = chance.choice([self.maker, "drop", "undrop", "rename", "undrop as"])
        name, target = chance.sample([f"n{number}" for number in range(self.names)], 2)
        try:
            version = self._do(catalog, verb, name, target, process)
        except RelanceError as error:
            return Event(verb, name, target, code=int(error.code), message=str(error))
        return Event(verb, name, target, version)

    def _do(self, catalog: DirectoryNamespace, verb: str, name: str, target: str, process: int) -> int:
        table_id = self.id_of(name)
        match verb:
            case "create":
                data = ipc(pa.table({"process": [process] * 3}))
                return catalog.create_table({"id": table_id}, data).version or 0
            case "declare":
                catalog.declare_table({"id": table_id})
            case "drop":
                catalog.drop_table({"id": table_id})
            case "undrop":
                catalog.undrop_table(table_id)
            case "rename":
                catalog.rename_table({"id": table_id, "new_table_name": target})
            case _:
                catalog.undrop_table(table_id, new_id=self.id_of(target))
        return 0
