"""A process that uses the native namespace beside one that uses ours, on names that both want."""

from __future__ import annotations

import random
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lance.namespace import DirectoryNamespace as NativeNamespace
from lance_namespace import (
    CreateNamespaceRequest,
    CreateTableRequest,
    DeregisterTableRequest,
    DropNamespaceRequest,
    DropTableRequest,
)
from lance_namespace.errors import LanceNamespaceError
from tests.support.calls import ident, rename
from tests.support.interleaving import open_native
from tests.support.internals import context_of
from tests.support.race_processes import Action, Event
from tests.support.roots import stream_of

from relance import DirectoryNamespace

SHARED = ("s/c0", "s/c1")
"""Both create these, and ours drops them."""
CONTESTED = ("s/d0", "s/d1")
"""Both take these away too. Native says that it did even if ours was first, as it does to another native."""
NATIVE_ONLY = ("s/n0", "s/n1")
OURS_ONLY = ("s/o0", "s/o1")
SPACES = ("x", "y")
NATIVE_SPACES = ("nx", "ny")

NATIVE_VERBS = {
    "create": SHARED + CONTESTED + NATIVE_ONLY,
    "deregister": CONTESTED,
    "remove": NATIVE_ONLY,
    "create namespace": SPACES + NATIVE_SPACES,
    "drop namespace": NATIVE_SPACES,
}
OUR_VERBS = {
    "create": SHARED + CONTESTED + OURS_ONLY,
    "drop": SHARED + CONTESTED + OURS_ONLY,
    "undrop": SHARED + CONTESTED + OURS_ONLY,
    "rename": OURS_ONLY,
    "create namespace": SPACES,
    "drop namespace": SPACES,
}


@dataclass(frozen=True, slots=True)
class SideBySide(Action):
    """Even processes are native ones; returns all that was done."""

    mode: tuple[tuple[str, str], ...] = ()
    calls: int = 60

    def __call__(self, catalog: DirectoryNamespace, name: str, process: int) -> Any:
        chance = random.Random(f"{name} {process}")
        if process % 2:
            return [self._call(chance, OUR_VERBS, catalog, _do_ours) for _ in range(self.calls)]
        native = open_native(Path(context_of(catalog).root.uri), dict(self.mode))
        return [self._call(chance, NATIVE_VERBS, native, _do_native) for _ in range(self.calls)]

    @staticmethod
    def _call(chance: random.Random, verbs: dict[str, tuple[str, ...]], client: Any, do: Any) -> Event:
        verb = chance.choice(list(verbs))
        path, target = chance.choice(verbs[verb]), chance.choice(verbs[verb])
        try:
            version = do(client, verb, path, target)
        except LanceNamespaceError as error:
            return Event(verb, path, target, code=int(error.code), message=str(error))
        return Event(verb, path, target, version)


def _do_native(client: NativeNamespace, verb: str, path: str, target: str) -> int:
    del target  # native renames nothing
    parts = ident(path)
    match verb:
        case "create":
            client.create_table(CreateTableRequest(id=parts), stream_of(1))
        case "deregister":
            client.deregister_table(DeregisterTableRequest(id=parts))
        case "remove":
            client.drop_table(DropTableRequest(id=parts))
        case "create namespace":
            client.create_namespace(CreateNamespaceRequest(id=parts))
        case _:
            client.drop_namespace(DropNamespaceRequest(id=parts))
    return 1


def _do_ours(client: DirectoryNamespace, verb: str, path: str, target: str) -> int:
    request: dict[str, Any] = {"id": ident(path)}
    match verb:
        case "create":
            return client.create_table(request, stream_of(1)).version or 0
        case "drop":
            client.drop_table(request)
        case "undrop":
            client.undrop_table(ident(path))
        case "rename":
            rename(client, path, target)
        case "create namespace":
            client.create_namespace(request)
        case _:
            client.drop_namespace(request)
    return 1
