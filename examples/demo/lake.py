"""Act 1: build a lake as an hourly job would leave it, with many small files and expired tables."""

from __future__ import annotations

import math
import shutil
import warnings
from datetime import UTC, datetime, timedelta
from pathlib import Path

import lance
import lancedb
import pyarrow as pa
from examples.demo.show import call, heading, say, show_table

import relance
from relance.testing.clock import ManualClock

LAKE = Path("demo-lake")
HOURS = 96
SENSORS = ("north", "south", "roof")
_MINUTE = timedelta(minutes=1)


def build_lake() -> relance.DirectoryNamespace:
    """Build the lake from scratch and list its tables."""
    heading("Act 1: a catalog is a folder")
    shutil.rmtree(LAKE, ignore_errors=True)
    call(f'catalog = relance.DirectoryNamespace(root="{LAKE}")')
    catalog = relance.DirectoryNamespace(root=LAKE)
    for parts in (["prod"], ["prod", "sensors"], ["prod", "media"], ["scratch"]):
        catalog.create_namespace({"id": parts})
    say("A catalog is a folder, or a prefix of a bucket. Any Lance client can write through it.")
    _write_sensors(catalog)
    _write_vectors()
    _drop_long_ago()
    _show_tables(catalog)
    return catalog


def _write_sensors(catalog: relance.DirectoryNamespace) -> None:
    call('lance.write_dataset(readings, namespace_client=catalog, table_id=["prod", "sensors", "north"])')
    now = datetime.now(UTC)
    for number, name in enumerate(SENSORS):
        for hour in range(HOURS):
            start = now - timedelta(hours=HOURS - hour)
            readings = pa.table(
                {
                    "ts": pa.array(
                        [start + minute * _MINUTE for minute in range(60)], pa.timestamp("us", "UTC")
                    ),
                    "value": [
                        20 + 10 * math.sin((hour * 60 + minute) / 500 + number) for minute in range(60)
                    ],
                }
            )
            mode = "append" if hour else "create"
            table_id = ["prod", "sensors", name]
            lance.write_dataset(readings, namespace_client=catalog, table_id=table_id, mode=mode)
    say(
        f"pylance appended {HOURS} hours of readings to {len(SENSORS)} tables, one file and version per hour."
    )


def _write_vectors() -> None:
    call(f'lancedb.connect_namespace("relance.DirectoryNamespace", {{"root": "{LAKE}"}})')
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        database = lancedb.connect_namespace("relance.DirectoryNamespace", {"root": str(LAKE)})
        rows = [
            {"name": f"image {number}", "vector": [math.cos(number / 100), math.sin(number / 100)]}
            for number in range(300)
        ]
        images = database.create_table("images", rows, namespace_path=["prod", "media"])
        nearest = images.search([0.0, 1.0]).limit(1).to_list()[0]["name"]
    say(f"lancedb stored 300 images with vectors and searched them: nearest to (0, 1) is {nearest!r}.")


def _drop_long_ago() -> None:
    """Drop two tables with a clock that is ten days slow, so that their retention period is over."""
    then = relance.DirectoryNamespace(root=LAKE, clock=ManualClock(datetime.now(UTC) - timedelta(days=10)))
    for name in ("trial", "import_of_may"):
        lance.write_dataset(
            pa.table({"id": range(10_000)}), namespace_client=then, table_id=["scratch", name]
        )
        then.drop_table({"id": ["scratch", name]})


def _show_tables(catalog: relance.DirectoryNamespace) -> None:
    call('catalog.list_tables({"id": ["prod", "sensors"]}), catalog.list_tables({"id": ["prod", "media"]})')
    rows = []
    for space in (["prod", "sensors"], ["prod", "media"]):
        for name in catalog.list_tables({"id": space}).tables:
            dataset = lance.dataset(namespace_client=catalog, table_id=[*space, name])
            figures = (dataset.count_rows(), len(dataset.get_fragments()), dataset.version)
            rows.append([".".join([*space, name]), *(f"{figure:,}" for figure in figures)])
    show_table(["table", "rows", "fragments", "versions"], rows)
    call("catalog.list_dropped_tables()")
    dropped = " and ".join(".".join(each.id) for each in catalog.list_dropped_tables())
    say(f"{dropped} were dropped ten days ago. Their retention period of 7 days is over.")
