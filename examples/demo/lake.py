"""A lake as it is after a while: tables of many small files, vectors, dropped and expired tables."""

from __future__ import annotations

import math
import shutil
import warnings
from datetime import UTC, datetime, timedelta
from pathlib import Path

import lance
import lancedb
import pyarrow as pa
from examples.demo.show import console, step
from rich.table import Table

import relance
from relance.testing.clock import ManualClock

LAKE = Path("demo-lake")
HOURS = 96
SENSORS = ("north", "south", "roof")
_A_MINUTE = timedelta(minutes=1)


def make_lake() -> relance.DirectoryNamespace:
    """Make the lake anew."""
    shutil.rmtree(LAKE, ignore_errors=True)
    catalog = relance.DirectoryNamespace(root=LAKE)
    step(f"a catalog is a directory: {catalog.namespace_id()}")
    for parts in (["prod"], ["prod", "sensors"], ["prod", "media"], ["scratch"]):
        catalog.create_namespace({"id": parts})
    _write_sensors(catalog)
    _write_vectors()
    _drop_long_ago()
    return catalog


def _write_sensors(catalog: relance.DirectoryNamespace) -> None:
    step(f"pylance appends {HOURS} hours of readings to {len(SENSORS)} tables: a fragment and a version each")
    now = datetime.now(UTC)
    for number, name in enumerate(SENSORS):
        for hour in range(HOURS):
            begun = now - timedelta(hours=HOURS - hour)
            readings = pa.table(
                {
                    "ts": pa.array(
                        [begun + minute * _A_MINUTE for minute in range(60)], pa.timestamp("us", "UTC")
                    ),
                    "value": [
                        20 + 10 * math.sin((hour * 60 + minute) / 500 + number) for minute in range(60)
                    ],
                }
            )
            mode = "append" if hour else "create"
            table_id = ["prod", "sensors", name]
            lance.write_dataset(readings, namespace_client=catalog, table_id=table_id, mode=mode)


def _write_vectors() -> None:
    step("lancedb writes images with vectors through the same catalog, and searches them")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        database = lancedb.connect_namespace("relance.DirectoryNamespace", {"root": str(LAKE)})
        rows = [
            {"name": f"image {number}", "vector": [math.cos(number / 100), math.sin(number / 100)]}
            for number in range(300)
        ]
        images = database.create_table("images", rows, namespace_path=["prod", "media"])
        nearest = images.search([0.0, 1.0]).limit(1).to_list()[0]["name"]
    console.print(f"nearest to (0, 1): {nearest}")


def _drop_long_ago() -> None:
    step("two tables were dropped ten days ago: by now their time has passed, and a purge may take them")
    then = relance.DirectoryNamespace(root=LAKE, clock=ManualClock(datetime.now(UTC) - timedelta(days=10)))
    for name in ("trial", "import_of_may"):
        lance.write_dataset(
            pa.table({"id": range(10_000)}), namespace_client=then, table_id=["scratch", name]
        )
        then.drop_table({"id": ["scratch", name]})


def show_tables(catalog: relance.DirectoryNamespace) -> None:
    """List and describe what is there."""
    step("the whole lake")
    table = Table("table", "version", "rows", "fragments")
    for space in (["prod", "sensors"], ["prod", "media"]):
        for name in catalog.list_tables({"id": space}).tables:
            dataset = lance.dataset(namespace_client=catalog, table_id=[*space, name])
            fragments = f"{len(dataset.get_fragments())}"
            table.add_row(
                ".".join([*space, name]), f"{dataset.version}", f"{dataset.count_rows():,}", fragments
            )
    console.print(table)
    dropped = [f"{'.'.join(each.id)}" for each in catalog.list_dropped_tables()]
    console.print(f"dropped: {', '.join(dropped)}")
