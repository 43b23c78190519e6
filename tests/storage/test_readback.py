"""Lost responses are resolved by reading back; the probe detects stores that ignore conditions."""

from __future__ import annotations

from contextlib import suppress

import pytest

from relance.errors import (
    KeyChangedError,
    KeyExistsError,
    OutcomeUnknownError,
    ServiceUnavailableError,
    UnsupportedOperationError,
)
from relance.storage.memory import MemoryStorage
from relance.storage.probe import Capabilities, probe, require_create_only, require_replace
from relance.storage.readback import create_once, replace_once
from relance.testing.faults import CarelessStorage, Fault, FaultyStorage


@pytest.mark.parametrize("fault", [Fault.LOST_ANSWER, Fault.RETRIED])
def test_create_that_landed_is_recognised_as_the_clients_own(fault: Fault) -> None:
    storage = FaultyStorage(MemoryStorage(), plan=lambda r: fault if r.verb == "create" else None)
    version = create_once(storage, "k", b"mine, nonce 1")
    assert storage.read("k").version == version


def test_create_that_did_not_land_stays_unknown() -> None:
    storage = FaultyStorage(MemoryStorage(), plan=lambda r: Fault.REFUSED if r.verb == "create" else None)
    with pytest.raises(OutcomeUnknownError):
        create_once(storage, "k", b"mine")


@pytest.mark.parametrize("fault", [None, Fault.LOST_ANSWER, Fault.RETRIED])
def test_create_over_a_foreign_object_is_never_mistaken_for_a_success(fault: Fault | None) -> None:
    inner = MemoryStorage()
    inner.create("k", b"theirs, nonce 2")
    storage = FaultyStorage(inner, plan=lambda r: fault if r.verb == "create" else None)
    with pytest.raises((KeyExistsError, OutcomeUnknownError)):
        create_once(storage, "k", b"mine, nonce 1")
    assert inner.read("k").body == b"theirs, nonce 2"


@pytest.mark.parametrize("fault", [Fault.LOST_ANSWER, Fault.RETRIED])
def test_replace_that_landed_is_recognised_as_the_clients_own(fault: Fault) -> None:
    storage = FaultyStorage(MemoryStorage(), plan=lambda r: fault if r.verb == "replace" else None)
    first = storage.create("k", b"old")
    version = replace_once(storage, "k", b"mine, nonce 1", expected=first)
    assert storage.read("k").version == version


def test_replace_that_lost_the_race_raises_key_changed() -> None:
    storage = MemoryStorage()
    first = storage.create("k", b"old")
    storage.replace("k", b"theirs", expected=first)
    with pytest.raises(KeyChangedError):
        replace_once(storage, "k", b"mine", expected=first)
    storage.delete("k")
    with pytest.raises(KeyChangedError):
        replace_once(storage, "k", b"mine", expected=first)


@pytest.mark.parametrize(("create", "replace"), [(False, False), (False, True), (True, False), (True, True)])
def test_probe_detects_which_condition_a_store_ignores(create: bool, replace: bool) -> None:
    storage = CarelessStorage(MemoryStorage(), ignores_create_only=create, ignores_replace=replace)
    assert probe(storage) == Capabilities(create_only=not create, replace=not replace)
    assert list(storage.list_recursive("")) == []


@pytest.mark.parametrize("fault", Fault)
@pytest.mark.parametrize("index", range(6))
def test_probe_beside_a_fault_is_right_or_can_be_repeated(fault: Fault, index: int) -> None:
    """A conflict with itself must neither end the caller's verb nor count against the store."""
    store = FaultyStorage(MemoryStorage(), lambda request: fault if request.index == index else None)
    with suppress(ServiceUnavailableError):
        assert probe(store) == Capabilities(create_only=True, replace=True)
    assert probe(store) == Capabilities(create_only=True, replace=True)


def test_careless_store_is_refused_by_name_and_probed_once_per_root() -> None:
    inner = MemoryStorage("careless://1")
    storage = CarelessStorage(inner, ignores_create_only=True)
    with pytest.raises(UnsupportedOperationError, match="careless://1"):
        require_replace(storage, to_do="purging")
    asked = len(storage.requests)
    with pytest.raises(UnsupportedOperationError, match="careless://1"):
        require_create_only(storage, to_do="declaring")
    assert len(storage.requests) == asked
