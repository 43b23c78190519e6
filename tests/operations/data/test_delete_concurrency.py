"""Deletes and cleanups while others append: nothing is lost."""

from __future__ import annotations

import threading
from datetime import timedelta

import pyarrow as pa
from tests.support.roots import LocalPlace, ipc

ROUNDS = 12


def test_appends_during_deletes_and_cleanups_are_not_lost(place: LocalPlace) -> None:
    catalog = place.open()
    catalog.create_table({"id": ["t"]}, ipc(pa.table({"a": list(range(ROUNDS))})))
    added: list[int] = []

    def append() -> None:
        mine = place.open()
        for number in range(100, 100 + ROUNDS):
            mine.insert_into_table({"id": ["t"]}, ipc(pa.table({"a": [number]})))
            added.append(number)

    writer = threading.Thread(target=append)
    writer.start()
    for number in range(0, ROUNDS, 2):
        catalog.delete_from_table({"id": ["t"], "predicate": f"a = {number}"})
        # Old, but not so old that the other client still works on it.
        catalog.cleanup_old_versions(["t"], older_than=timedelta(seconds=2))
    writer.join()
    assert added == list(range(100, 100 + ROUNDS))
    found = catalog.query_table({"id": ["t"], "k": 1000, "vector": {}})
    rows = pa.ipc.open_file(pa.py_buffer(found)).read_all()["a"].to_pylist()
    assert sorted(rows) == [*range(1, ROUNDS, 2), *added]
    assert catalog.validate_table(["t"], every_version=True).ok
