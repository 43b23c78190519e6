"""Act 2: drop, undrop, purge. Mistakes can be undone, and readers are not disturbed."""

from __future__ import annotations

import lance
import pyarrow as pa
from examples.demo.show import call, expect_error, heading, say

import relance

ROOF = ["prod", "sensors", "roof"]


def drop_and_undrop(catalog: relance.DirectoryNamespace) -> None:
    """Drop a table, a namespace and a name that is used again, and restore all of them."""
    heading("Act 2: a drop can be undone")
    _drop_under_a_reader(catalog)
    _drop_a_namespace(catalog)
    _reuse_a_name(catalog)


def _drop_under_a_reader(catalog: relance.DirectoryNamespace) -> None:
    reader = lance.dataset(namespace_client=catalog, table_id=ROOF)
    batches = iter(reader.to_batches(batch_size=500))
    rows = next(batches).num_rows
    call('catalog.drop_table({"id": ["prod", "sensors", "roof"]})   # while it is being read')
    catalog.drop_table({"id": ROOF})
    rows += sum(batch.num_rows for batch in batches)
    say(f"The running reader still gets all {rows:,} rows. A new reader gets an error that says what to do:")
    expect_error(lambda: lance.dataset(namespace_client=catalog, table_id=ROOF))
    say("The files cannot be purged before the retention period ends:")
    expect_error(lambda: catalog.purge_table(ROOF))
    call('catalog.undrop_table(["prod", "sensors", "roof"])')
    catalog.undrop_table(ROOF)
    restored = lance.dataset(namespace_client=catalog, table_id=ROOF)
    say(f"Restored with {restored.count_rows():,} rows and all {restored.version} versions.")


def _drop_a_namespace(catalog: relance.DirectoryNamespace) -> None:
    call('catalog.drop_namespace({"id": ["prod"], "behavior": "cascade"})')
    catalog.drop_namespace({"id": ["prod"], "behavior": "cascade"})
    say("The namespace and everything in it are gone, in one commit. One commit brings all of it back:")
    call('catalog.undrop_namespace(["prod"])')
    restored = catalog.undrop_namespace(["prod"])
    say(f"Restored {', '.join('.'.join(each) for each in restored)}.")


def _reuse_a_name(catalog: relance.DirectoryNamespace) -> None:
    notes = ["scratch", "notes"]
    lance.write_dataset(pa.table({"text": ["first"]}), namespace_client=catalog, table_id=notes)
    catalog.drop_table({"id": notes})
    lance.write_dataset(pa.table({"text": ["second"]}), namespace_client=catalog, table_id=notes)
    call('catalog.undrop_table(["scratch", "notes"], new_id=["scratch", "old_notes"])')
    catalog.undrop_table(notes, new_id=["scratch", "old_notes"])
    new, old = (
        lance.dataset(namespace_client=catalog, table_id=["scratch", name]).to_table()["text"][0].as_py()
        for name in ("notes", "old_notes")
    )
    say(
        "The name was taken by a new table in the meantime, so the dropped one returns under another: "
        f"scratch.notes says {new!r}, scratch.old_notes says {old!r}."
    )
