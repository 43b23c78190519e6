"""How much of the catalog one verb goes through: modules touched, and reads of the arbiter."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from tests.support.patches import original, substitute
from tests.support.roots import stream_of

from relance import DirectoryNamespace
from relance.locations import CONTROL_SUFFIX
from relance.storage.local_disk import LocalDiskStorage
from relance.storage.protocol import Stored

MOST_MODULES = 15
MOST_READS = 2


def _create(catalog: DirectoryNamespace) -> object:
    return catalog.create_table({"id": ["new"]}, stream_of(1))


def _drop(catalog: DirectoryNamespace) -> object:
    return catalog.drop_table({"id": ["live"]})


def _undrop(catalog: DirectoryNamespace) -> object:
    return catalog.undrop_table(["dropped"])


def _create_over_dropped(catalog: DirectoryNamespace) -> object:
    return catalog.create_table({"id": ["dropped"]}, stream_of(2))


def _drop_again(catalog: DirectoryNamespace) -> object:
    return catalog.drop_table({"id": ["undropped"]})


VERBS = [_create, _create_over_dropped, _drop, _drop_again, _undrop]


@pytest.fixture
def catalog(tmp_path: Path) -> DirectoryNamespace:
    catalog = DirectoryNamespace(root=str(tmp_path))
    for name in ("live", "dropped", "undropped"):
        catalog.create_table({"id": [name]}, stream_of(0))
    catalog.drop_table({"id": ["dropped"]})
    catalog.drop_table({"id": ["undropped"]})
    catalog.undrop_table(["undropped"])
    return catalog


@pytest.mark.parametrize("verb", VERBS, ids=lambda verb: verb.__name__.strip("_"))
def test_a_verb_touches_few_modules_of_the_catalog(
    catalog: DirectoryNamespace, verb: Callable[[DirectoryNamespace], object]
) -> None:
    touched: set[str] = set()

    def note(frame: FrameType, event: str, _: Any) -> None:
        module = str(frame.f_globals.get("__name__", ""))
        if event == "call" and module.startswith("relance.catalog"):
            touched.add(module)

    sys.setprofile(note)
    try:
        verb(catalog)
    finally:
        sys.setprofile(None)
    assert 5 < len(touched) <= MOST_MODULES, sorted(touched)


@pytest.mark.parametrize("verb", VERBS, ids=lambda verb: verb.__name__.strip("_"))
def test_a_verb_reads_the_arbiter_at_most_twice(
    catalog: DirectoryNamespace,
    verb: Callable[[DirectoryNamespace], object],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    reads: list[str] = []
    real = original("disk.read")

    def read(self: LocalDiskStorage, key: str, **options: Any) -> Stored:
        reads.append(key)
        stored: Stored = real(self, key, **options)
        return stored

    substitute(monkeypatch, "disk.read", read)
    verb(catalog)
    of_arbiters = sum(key.endswith(CONTROL_SUFFIX) for key in reads)
    assert int(verb is not _create) <= of_arbiters <= MOST_READS, reads  # a new name has none
