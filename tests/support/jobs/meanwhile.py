"""Changes that other clients make between a job's tasks and its commit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import lance
import pyarrow as pa
from tests.support.jobs.rows import ROWS, opened, rows
from tests.support.roots import Place, ipc


def nothing(place: Place) -> None:
    """Nobody does anything."""


def append(place: Place) -> None:
    place.open().insert_into_table({"id": ["t"]}, ipc(rows(ROWS, 20)))


def delete_in_the_first_fragment(place: Place) -> None:
    place.open().delete_from_table({"id": ["t"], "predicate": "id in (1, 2, 3)"})


def delete_the_second_fragment(place: Place) -> None:
    place.open().delete_from_table({"id": ["t"], "predicate": "id >= 10 and id < 20"})


def update(place: Place) -> None:
    updates = [["n", "n + 100"], ["name", "'new'"]]
    place.open().update_table({"id": ["t"], "predicate": "id % 5 = 0", "updates": updates})


def upsert(place: Place) -> None:
    ours = rows(ROWS - 5, 10)
    ours = ours.set_column(1, "n", pa.array([100] * 10, pa.int32()))
    request = {"id": ["t"], "on": ["id"]}
    how = {"when_matched_update_all": True, "when_not_matched_insert_all": True}
    place.open().merge_insert_into_table({**request, **how}, ipc(ours))


def compact(place: Place) -> None:
    opened(place).optimize.compact_files(target_rows_per_fragment=1000)


def delete_and_compact(place: Place) -> None:
    delete_in_the_first_fragment(place)
    compact(place)


def add_a_column(place: Place) -> None:
    opened(place).add_columns({"more": "id * 2"})


def index(place: Place) -> None:
    opened(place).create_scalar_index("id", "BTREE")


def overwrite(place: Place) -> None:
    place.open().insert_into_table({"id": ["t"], "mode": "overwrite"}, ipc(rows(0, 40)))


def restore(place: Place) -> None:
    """Delete, and take it back: the fragments are as they were."""
    before = opened(place)
    delete_in_the_first_fragment(place)
    before.restore()


def delete_all(place: Place) -> None:
    place.open().delete_from_table({"id": ["t"], "predicate": "true"})


def clean_up(place: Place) -> None:
    """Append, and keep only the latest version."""
    append(place)
    table = opened(place)
    table.cleanup_old_versions(retain_versions=1, delete_unverified=False)
    kept = [each["version"] for each in table.versions()]
    assert kept == [table.version]


EVENTS: list[Callable[[Place], Any]] = [
    nothing,
    append,
    delete_in_the_first_fragment,
    delete_the_second_fragment,
    update,
    upsert,
    compact,
    delete_and_compact,
    add_a_column,
    index,
    overwrite,
    restore,
    delete_all,
    clean_up,
]


def lose_the_answer(commits: list[int]) -> Callable[..., Any]:
    """Return a commit of Lance whose answer does not come."""
    real = lance.LanceDataset.commit

    def commit(*arguments: Any, **options: Any) -> Any:
        commits.append(int(real(*arguments, **options).version))
        raise OSError("error sending request: connection closed before message completed")

    return commit
