"""Merging Arrow rows in this process: keys of every type, columns that are missing, races of processes."""

from __future__ import annotations

import multiprocessing
import random
from collections import Counter
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import lance
import numpy as np
import pyarrow as pa
import pytest

import relance
from relance.errors import InvalidInputError, TableSchemaValidationError, UnsupportedOperationError
from relance.jobs import merge
from relance.jobs.merging.key_lookup import KeyIndex

LARGE = 1 << 63


@pytest.fixture
def catalog(tmp_path: Path) -> relance.DirectoryNamespace:
    return relance.DirectoryNamespace(root=str(tmp_path))


def _write(catalog: relance.DirectoryNamespace, name: str, rows: pa.Table, **options: Any) -> str:
    uri = f"{catalog.root_uri}/{name}.lance"
    lance.write_dataset(rows, uri, max_rows_per_file=50, **options)
    return uri


def _sorted(uri: str) -> list[str]:
    return sorted(map(str, lance.dataset(uri).to_table().to_pylist()))


KINDS: dict[str, tuple[pa.DataType, Any]] = {
    "close integers": (pa.int32(), lambda n: n - 40),
    "far integers": (pa.int64(), lambda n: (n - 40) * 10**15),
    "all integers": (pa.int64(), lambda n: (n * 2 - 81) * (LARGE // 81)),
    "large unsigned": (pa.uint64(), lambda n: LARGE - 40 + n),
    "text": (pa.string(), lambda n: f"key {n}"),
    "large text": (pa.large_string(), lambda n: "" if n == 3 else f"key {n}"),
    "bytes": (pa.binary(), lambda n: bytes([n, 0])),
    "days": (pa.date32(), lambda n: date(2026, 1, 1) + timedelta(days=n * 400)),
}


@pytest.mark.parametrize("kinds", [(each,) for each in KINDS] + [("text", "close integers", "days")])
def test_key_lookup_agrees_with_a_dictionary(kinds: tuple[str, ...]) -> None:
    chance = random.Random(str(kinds))
    few = 80 if len(kinds) == 1 else 4

    def draw(number: int) -> list[tuple[Any, ...]]:
        makers = [KINDS[each][1] for each in kinds]
        return [
            tuple(None if chance.random() < 0.05 else make(chance.randrange(few)) for make in makers)
            for _ in range(number)
        ]

    def table(rows: list[tuple[Any, ...]]) -> pa.Table:
        columns = [pa.array([row[n] for row in rows], KINDS[each][0]) for n, each in enumerate(kinds)]
        return pa.table(columns, names=[f"k{n}" for n in range(len(kinds))])

    for _ in range(20):
        new = [row for row in dict.fromkeys(draw(30)) if None not in row] + [
            row for row in draw(9) if None in row
        ]
        chance.shuffle(new)
        old = draw(200)
        there = pa.concat_tables([table(old[:90]), table(old[90:])])

        index = KeyIndex(table(new))
        hits, numbers = index.find(there.columns)

        wanted = {row: n for n, row in enumerate(new) if None not in row}
        expected = {n: wanted[row] for n, row in enumerate(old) if row in wanted}
        assert dict(zip(hits.tolist(), numbers.tolist(), strict=True)) == expected
        seen = 0
        in_heaps: dict[int, int] = {}
        for heap in index.heaps(there.to_batches()):
            hits, numbers = index.find(heap.columns)
            in_heaps.update(zip((hits + seen).tolist(), numbers.tolist(), strict=True))
            seen += heap.num_rows
        assert seen == len(old)
        assert in_heaps == expected


@pytest.mark.parametrize("stable", [False, True])
@pytest.mark.parametrize("seed", range(4))
def test_columns_missing_from_the_source_keep_their_values(
    catalog: relance.DirectoryNamespace, seed: int, stable: bool
) -> None:
    chance = random.Random(seed)
    keys = [chance.randrange(60) if chance.random() > 0.1 else None for _ in range(120)]  # many of them twice
    old = pa.table({"k": keys, "v": range(120), "text": [f"text {n}" for n in range(120)]})
    uri = _write(catalog, "t", old, enable_stable_row_ids=stable)
    lance.dataset(uri).create_scalar_index("k", "BTREE")
    lance.dataset(uri).delete("v % 5 = 0")
    new = pa.table({"v": range(1000, 1020), "k": [*chance.sample(range(90), 18), None, None]})
    old_ids = _ids(uri)

    made = merge(catalog, ["t"], new, "k", when_not_matched_by_source="delete", delete_if="v < 60")

    expected: list[tuple[int | None, int, str | None]] = []
    wanted = {
        key: value
        for key, value in zip(new["k"].to_pylist(), new["v"].to_pylist(), strict=True)
        if key is not None
    }
    there = Counter[int | None]()
    for key, value, text in zip(keys, range(120), old["text"].to_pylist(), strict=True):
        if value % 5:
            there[key] += 1
            if key in wanted:
                expected.append((key, wanted[key], text))
            elif value >= 60:
                expected.append((key, value, text))
    expected += [(key, value, None) for key, value in wanted.items() if key not in there]
    expected += [(None, 1018, None), (None, 1019, None)]
    rows = lance.dataset(uri).to_table().to_pylist()
    assert sorted(map(str, expected)) == sorted(str((row["k"], row["v"], row["text"])) for row in rows)
    assert made.updated == sum(there[key] for key in wanted)
    assert made.inserted == 2 + sum(key not in there for key in wanted)
    assert made.engine == "local: the rows are in this process"
    if stable:
        now = _ids(uri)
        assert {text: number for text, number in now.items() if text} == {
            text: number for text, number in old_ids.items() if text in now
        }
    for where in ("k = 5", "k between 10 and 40", "k is null"):
        found = [
            lance.dataset(uri).to_table(filter=where),
            lance.dataset(uri).scanner(filter=where, use_scalar_index=False).to_table(),
        ]
        assert len({str(sorted(map(str, each.to_pylist()))) for each in found}) == 1
    lance.dataset(uri).validate()


def _ids(uri: str) -> dict[str | None, int]:
    rows = lance.dataset(uri).scanner(columns=["text"], with_row_id=True).to_table().to_pylist()
    return {row["text"]: row["_rowid"] for row in rows}


@pytest.mark.parametrize("kind", list(KINDS))
def test_merge_by_any_key_type_matches_lance_merge_insert(
    catalog: relance.DirectoryNamespace, kind: str
) -> None:
    arrow, make = KINDS[kind]
    twice = [*range(60), *range(20, 40), 35]  # some keys are there two and three times
    old = pa.table({"k": pa.array([make(n) for n in twice], arrow), "v": range(len(twice))})
    new = pa.table({"k": pa.array([make(n) for n in range(30, 80)], arrow), "v": range(1000, 1050)})
    uri, other = _write(catalog, "ours", old), _write(catalog, "theirs", old)

    made = merge(catalog, ["ours"], new, ["k"])
    builder = lance.dataset(other).merge_insert("k").when_matched_update_all().when_not_matched_insert_all()
    counts = builder.execute(new)

    assert (
        (made.updated, made.inserted) == (counts["num_updated_rows"], counts["num_inserted_rows"]) == (41, 20)
    )
    assert _sorted(uri) == _sorted(other)


def test_rows_that_do_not_fit_the_schema_are_refused_and_nothing_is_written(
    catalog: relance.DirectoryNamespace,
) -> None:
    schema = pa.schema(
        [pa.field("k", pa.int32()), pa.field("v", pa.string(), nullable=False), ("x", pa.float32())]
    )
    uri = _write(catalog, "t", pa.table({"k": [1, 2], "v": ["a", "b"], "x": [0.5, 1.5]}, schema=schema))
    fits = pa.table({"k": pa.array([2, 3], pa.int64()), "v": ["c", "d"], "x": [2.5, 3.5]})
    wrong = {
        "'other'": fits.append_column("other", pa.array([1, 2])),
        "'v' has type int64": fits.set_column(1, "v", pa.array([1, 2])),
        "'v' has 1 nulls": fits.set_column(1, "v", pa.array(["c", None])),
        "'v' is missing": fits.drop_columns("v"),
        "'k': ": fits.set_column(0, "k", pa.array([1, 1 << 40])),
        "'x': a number is too large": fits.set_column(2, "x", pa.array([1e300, float("inf")])),
    }
    for text, rows in wrong.items():
        with pytest.raises(TableSchemaValidationError, match=text):
            merge(catalog, ["t"], rows, "k")
    with pytest.raises(UnsupportedOperationError, match="'x' has type float"):
        merge(catalog, ["t"], fits, "x")
    with pytest.raises(InvalidInputError, match=r"2 new rows have the same key \(k = 7, v = 'c'\)"):
        merge(catalog, ["t"], pa.table({"k": [7, 8, 7], "v": ["c", "c", "c"]}), ["k", "v"])
    for on in ("nothing", [], ["k", "k"]):
        with pytest.raises(InvalidInputError):
            merge(catalog, ["t"], fits, on)
    for condition in ("nonsense >", "k = 1; drop"):
        with pytest.raises(InvalidInputError):
            merge(catalog, ["t"], fits, "k", when_not_matched_by_source="delete", delete_if=condition)
    assert lance.dataset(uri).version == 1
    assert len(list(Path(uri, "data").iterdir())) == 1

    made = merge(catalog, ["t"], fits, "k")
    assert (made.updated, made.inserted) == (1, 1)
    assert lance.dataset(uri).schema.equals(schema)


def _race(root: str, number: int, start: Any) -> None:
    catalog = relance.DirectoryNamespace(root=root)
    start.wait(60)
    for turn in range(4):
        keys = np.arange(100 * turn, 100 * turn + 20)
        merge(catalog, ["t"], pa.table({"k": keys, "v": np.full(20, number)}), "k")


def test_processes_merging_the_same_new_keys_leave_one_row_per_key(
    catalog: relance.DirectoryNamespace,
) -> None:
    uri = _write(catalog, "t", pa.table({"k": pa.array([], pa.int64()), "v": pa.array([], pa.int64())}))
    spawn = multiprocessing.get_context("spawn")
    start = spawn.Barrier(2)
    racers = [spawn.Process(target=_race, args=(catalog.root_uri, number, start)) for number in range(2)]
    for racer in racers:
        racer.start()
    for racer in racers:
        racer.join(60)
    assert [racer.exitcode for racer in racers] == [0, 0]
    rows = lance.dataset(uri).to_table().sort_by("k")
    assert rows["k"].to_pylist() == [100 * turn + n for turn in range(4) for n in range(20)]
