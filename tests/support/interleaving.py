"""Random operations by the native namespace and by ours on one root, and a model that says what must happen.

The model knows what both do. Native removes what it drops; ours keeps it until a purge.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import lance
from lance.namespace import DirectoryNamespace as NativeNamespace
from lance_namespace import (
    CreateNamespaceRequest,
    CreateTableRequest,
    DeclareTableRequest,
    DeregisterTableRequest,
    DropNamespaceRequest,
    DropTableRequest,
    ListNamespacesRequest,
    ListTablesRequest,
)
from lance_namespace.errors import LanceNamespaceError
from tests.support.calls import ident, rename
from tests.support.codes import (
    INVALID_TABLE_STATE,
    NAMESPACE_EXISTS,
    NAMESPACE_NOT_EMPTY,
    NAMESPACE_NOT_FOUND,
    TABLE_EXISTS,
    TABLE_NOT_FOUND,
)
from tests.support.roots import stream_of

from relance import DirectoryNamespace
from relance.testing.clock import ManualClock

SPACES = ("a", "a/b", "c")
TABLES = ("t0", "t1", "t2")


def open_native(root: Path, mode: dict[str, str]) -> NativeNamespace:
    """Open the root with the native namespace, in the same mode as ours."""
    return NativeNamespace(root=str(root), manifest_enabled="true", **mode)


@dataclass(frozen=True, slots=True)
class Dropped:
    """A dropped generation of a table: its values, None when it was only declared."""

    path: str
    values: int | None
    number: int
    """Grows with time."""
    cascade: int | None = None


class Refusal(Exception):  # noqa: N818  # an answer, not a failure
    """What the model says an operation is refused with."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


def parent_of(path: str) -> str:
    """Return the namespace that a path lies in."""
    return path.rpartition("/")[0]


@dataclass(slots=True)
class Model:
    """What is in the catalog."""

    spaces: set[str] = field(default_factory=set)
    tables: dict[str, int | None] = field(default_factory=dict)
    dropped: list[Dropped] = field(default_factory=list)
    dropped_spaces: dict[int, set[str]] = field(default_factory=dict)
    """By the number of the drop that took them; the shortest path is the one that was named."""
    count: int = 0

    def require_space(self, path: str) -> None:
        if path and path not in self.spaces:
            raise Refusal(NAMESPACE_NOT_FOUND)

    def require_table(self, path: str) -> None:
        if path not in self.tables:
            raise Refusal(TABLE_NOT_FOUND)

    def require_free(self, path: str) -> None:
        self.require_space(parent_of(path))
        if path in self.tables:
            raise Refusal(TABLE_EXISTS)

    def inside(self, path: str) -> list[str]:
        return [each for each in (*self.spaces, *self.tables) if each.startswith(f"{path}/")]

    def generations(self, path: str) -> list[Dropped]:
        return sorted((each for each in self.dropped if each.path == path), key=lambda each: each.number)

    def make_space(self, path: str) -> None:
        self.require_space(parent_of(path))
        if path in self.spaces:
            raise Refusal(NAMESPACE_EXISTS)
        self.spaces.add(path)

    def remove_space(self, path: str) -> None:
        self.require_space(path)
        if self.inside(path):
            raise Refusal(NAMESPACE_NOT_EMPTY)
        self.spaces.remove(path)

    def drop_space(self, path: str, *, cascade: bool) -> None:
        self.require_space(path)
        if self.inside(path) and not cascade:
            raise Refusal(NAMESPACE_NOT_EMPTY)
        self.count += 1
        taken = {path, *(each for each in self.inside(path) if each in self.spaces)}
        for table in [each for each in self.inside(path) if each in self.tables]:
            self.dropped.append(Dropped(table, self.tables.pop(table), self.count, self.count))
        self.spaces -= taken
        self.dropped_spaces[self.count] = taken

    def undrop_space(self, path: str) -> None:
        drops = [number for number, taken in self.dropped_spaces.items() if min(taken, key=len) == path]
        if not drops:
            raise Refusal(NAMESPACE_NOT_FOUND)
        number = max(drops)
        self.require_space(parent_of(path))
        tables = [each for each in self.dropped if each.cascade == number]
        ids = sorted({*self.dropped_spaces[number], *(each.path for each in tables)})
        taken = [each for each in sorted(ids, key=_as_id) if each in self.spaces or each in self.tables]
        if taken:
            raise Refusal(NAMESPACE_EXISTS if taken[0] in self.spaces else TABLE_EXISTS)
        self.spaces |= self.dropped_spaces.pop(number)
        for each in tables:
            self.dropped.remove(each)
            self.tables[each.path] = each.values

    def declare(self, path: str) -> None:
        self.require_free(path)
        self.tables[path] = None

    def create(self, path: str, value: int, *, revives: bool) -> None:
        self.require_space(parent_of(path))
        if self.tables.get(path) is not None:
            raise Refusal(TABLE_EXISTS)
        if path not in self.tables and revives and self.generations(path):
            self.dropped.remove(self.generations(path)[-1])
        self.tables[path] = value

    def remove(self, path: str) -> None:
        self.require_table(path)
        del self.tables[path]

    def drop(self, path: str) -> None:
        self.require_space(parent_of(path))
        self.require_table(path)
        self.count += 1
        self.dropped.append(Dropped(path, self.tables.pop(path), self.count))

    def undrop(self, path: str, target: str) -> None:
        found = self.generations(path)
        if not found:
            raise Refusal(TABLE_EXISTS if path in self.tables else TABLE_NOT_FOUND)
        self.require_free(target)
        self.dropped.remove(found[-1])
        self.tables[target] = found[-1].values

    def rename(self, path: str, target: str) -> None:
        self.require_table(path)
        self.require_free(target)
        self.tables[target] = self.tables.pop(path)

    def purge(self, path: str) -> None:
        found = self.generations(path)
        if not found:
            raise Refusal(INVALID_TABLE_STATE if path in self.tables else TABLE_NOT_FOUND)
        self.dropped = [each for each in self.dropped if each.path != path]


def _as_id(path: str) -> str:
    return path.replace("/", "$")


@dataclass(frozen=True, slots=True)
class Option:
    """Something that may be done next: what the model says of it, and the call itself."""

    weight: int
    name: str
    expect: Callable[[Model], None]
    act: Callable[[], Any]


@dataclass(slots=True)
class Interleaving:
    """One root under two clients and a model."""

    root: Path
    mode: dict[str, str]
    seed: int
    at_root: bool
    """Whether there are tables at the root too."""
    clock: ManualClock = field(default_factory=ManualClock)
    model: Model = field(default_factory=Model)
    made: int = 0
    history: list[str] = field(default_factory=list)
    ours: DirectoryNamespace = field(init=False)
    native: NativeNamespace = field(init=False)
    _chance: random.Random = field(init=False)

    def __post_init__(self) -> None:
        """Open both."""
        self.ours = DirectoryNamespace(clock=self.clock, root=str(self.root), **self.mode)
        self.native = open_native(self.root, self.mode)
        self._chance = random.Random(self.seed)

    def step(self) -> None:
        """Do something to both the catalog and the model; the answers must agree."""
        self.clock.advance(timedelta(seconds=1))
        chosen = self._choose()
        wanted, got = _answer(lambda: chosen.expect(self.model)), _answer(chosen.act)
        self.history.append(f"{chosen.name} -> {got}")
        assert wanted == got, f"step {len(self.history)}, {chosen.name}: {got} instead of {wanted}"

    def _choose(self) -> Option:
        space, path, target = self._chance.choice(SPACES), self._table(), self._table()
        self.made += 1
        options = [
            *self._native_options(space, path, self.made),
            *self._our_options(space, path, self.made),
            *self._moves(path, target),
        ]
        (chosen,) = self._chance.choices(options, [each.weight for each in options])
        return chosen

    def _native_options(self, space: str, path: str, value: int) -> list[Option]:
        native, here, table = self.native, ident(space), ident(path)
        options = [
            Option(
                3,
                f"native create_namespace {space}",
                lambda model: model.make_space(space),
                lambda: native.create_namespace(CreateNamespaceRequest(id=here)),
            ),
            Option(
                1,
                f"native drop_namespace {space}",
                lambda model: model.remove_space(space),
                lambda: native.drop_namespace(DropNamespaceRequest(id=here)),
            ),
            Option(
                2,
                f"native deregister {path}",
                lambda model: model.remove(path),
                lambda: native.deregister_table(DeregisterTableRequest(id=table)),
            ),
            Option(
                2,
                f"native drop {path}",
                lambda model: model.remove(path),
                lambda: native.drop_table(DropTableRequest(id=table)),
            ),
            Option(
                2,
                f"native declare {path}",
                lambda model: model.declare(path),
                lambda: native.declare_table(DeclareTableRequest(id=table)),
            ),
            Option(
                4,
                f"native create {path}",
                lambda model: model.create(path, value, revives=False),
                lambda: native.create_table(CreateTableRequest(id=table), stream_of(value)),
            ),
        ]
        there = parent_of(path) in {"", *self.model.spaces}
        return options if there else options[:-2]  # native does not look whether the namespace is there

    def _our_options(self, space: str, path: str, value: int) -> list[Option]:
        ours, here, table = self.ours, {"id": ident(space)}, {"id": ident(path)}
        return [
            Option(
                3,
                f"create_namespace {space}",
                lambda model: model.make_space(space),
                lambda: ours.create_namespace(here),
            ),
            Option(
                1,
                f"drop_namespace {space}",
                lambda model: model.drop_space(space, cascade=False),
                lambda: ours.drop_namespace(here),
            ),
            Option(
                1,
                f"drop_namespace {space} with all in it",
                lambda model: model.drop_space(space, cascade=True),
                lambda: ours.drop_namespace({**here, "behavior": "Cascade"}),
            ),
            Option(
                2,
                f"undrop_namespace {space}",
                lambda model: model.undrop_space(space),
                lambda: ours.undrop_namespace(ident(space)),
            ),
            Option(
                2,
                f"declare {path}",
                lambda model: model.declare(path),
                lambda: ours.declare_table(table),
            ),
            Option(
                4,
                f"create {path}",
                lambda model: model.create(path, value, revives=True),
                lambda: ours.create_table(table, stream_of(value)),
            ),
            Option(4, f"drop {path}", lambda model: model.drop(path), lambda: ours.drop_table(table)),
            Option(
                1,
                f"purge {path}",
                lambda model: model.purge(path),
                lambda: ours.purge_table(ident(path), force=True),
            ),
        ]

    def _moves(self, path: str, target: str) -> list[Option]:
        ours = self.ours
        options = [
            Option(
                3,
                f"undrop {path}",
                lambda model: model.undrop(path, path),
                lambda: ours.undrop_table(ident(path)),
            ),
            Option(
                1,
                f"undrop {path} as {target}",
                lambda model: model.undrop(path, target),
                lambda: ours.undrop_table(ident(path), new_id=ident(target)),
            ),
            Option(
                3,
                f"rename {path} to {target}",
                lambda model: model.rename(path, target),
                lambda: rename(ours, path, target),
            ),
        ]
        return options[:-1] if path == target else options

    def _table(self) -> str:
        spaces = [*SPACES, ""] if self.at_root else SPACES
        space, name = self._chance.choice(spaces), self._chance.choice(TABLES)
        return f"{space}/{name}" if space else name

    def check(self) -> None:
        """Check that both clients see what the model says, and that no dropped row was lost."""
        model = self.model
        for space in ("", *sorted(model.spaces)):
            children = {each.rpartition("/")[2] for each in model.spaces if parent_of(each) == space}
            tables = {each.rpartition("/")[2] for each in model.tables if parent_of(each) == space}
            for client in (self.native, self.ours):
                found = client.list_namespaces(ListNamespacesRequest(id=ident(space))).namespaces
                assert set(found) == children, (space, self.history[-10:])
                listed = client.list_tables(ListTablesRequest(id=ident(space))).tables
                assert set(listed) == tables, (space, self.history[-10:])
        dropped = sorted(".".join(each.id) for each in self.ours.list_dropped_tables())
        assert dropped == sorted(each.path.replace("/", ".") for each in model.dropped)

    def check_values(self) -> None:
        """Check that both clients read the same values in every table."""
        for path, value in self.model.tables.items():
            if value is not None:
                for client in (self.native, self.ours):
                    assert values(client, path) == [value], path


def values(client: Any, path: str) -> list[int]:
    """Return the values of a table, read through a client."""
    found: list[int] = (
        lance.dataset(namespace_client=client, table_id=ident(path)).to_table()["x"].to_pylist()
    )
    return found


def _answer(act: Callable[[], Any]) -> int | None:
    try:
        act()
    except Refusal as refusal:
        return refusal.code
    except LanceNamespaceError as error:
        return int(error.code)
    return None


def steps(interleaving: Interleaving, count: int, *, check_every: int) -> Iterator[int]:
    """Do steps, look every so often, and yield their numbers."""
    for number in range(1, count + 1):
        interleaving.step()
        if number % check_every == 0:
            interleaving.check()
        yield number
