"""Drop, undrop, purge: what users of a directory of tables are afraid of."""

from __future__ import annotations

import lance
import pyarrow as pa
from examples.demo.show import console, expect_error, step

import relance

ROOF = ["prod", "sensors", "roof"]


def drop_under_a_reader(catalog: relance.DirectoryNamespace) -> None:
    """Drop a table while it is read, and bring it back."""
    step("'prod.sensors.roof' is dropped while a reader is in the middle of it")
    reader = lance.dataset(namespace_client=catalog, table_id=ROOF)
    batches = iter(reader.to_batches(batch_size=500))
    seen = next(batches).num_rows
    catalog.drop_table({"id": ROOF})
    seen += sum(batch.num_rows for batch in batches)
    console.print(f"the reader still got all {seen:,} rows; a new one is told:")
    expect_error(lambda: lance.dataset(namespace_client=catalog, table_id=ROOF))
    expect_error(lambda: catalog.purge_table(ROOF))
    catalog.undrop_table(ROOF)
    back = lance.dataset(namespace_client=catalog, table_id=ROOF)
    console.print(f"undrop brings it back: {back.count_rows():,} rows in {back.version} versions")


def drop_a_namespace(catalog: relance.DirectoryNamespace) -> None:
    """Drop a whole branch and bring it back; protect what must stay."""
    step("the namespace 'prod' is dropped with all that is in it, and brought back, in one commit each")
    expect_error(lambda: catalog.drop_namespace({"id": ["prod"]}))
    catalog.drop_namespace({"id": ["prod"], "behavior": "cascade"})
    back = catalog.undrop_namespace(["prod"])
    console.print(f"back: {', '.join('.'.join(each) for each in back)}")

    step("a new table of a dropped name has files of its own; both can be had")
    notes = ["scratch", "notes"]
    for text in ("first", "second"):
        lance.write_dataset(pa.table({"text": [text]}), namespace_client=catalog, table_id=notes)
        if text == "first":
            catalog.drop_table({"id": notes})
    catalog.undrop_table(notes, new_id=["scratch", "old_notes"])
    for name in ("notes", "old_notes"):
        rows = lance.dataset(namespace_client=catalog, table_id=["scratch", name]).to_table()
        console.print(f"scratch.{name}: {rows['text'].to_pylist()}")
    expect_error(lambda: catalog.declare_table({"id": ["../outside"]}))
