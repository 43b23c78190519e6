"""The demo behind `make demo`: a small lake on the local disk, step by step."""

from __future__ import annotations

import shutil
import warnings
from pathlib import Path

import lance
import lancedb
import pyarrow as pa
from rich.console import Console
from rich.table import Table

import relance
from relance.errors import RelanceError

LAKE = Path("demo-lake")
console = Console(highlight=False, soft_wrap=True)


def step(text: str) -> None:
    console.print(f"\n[bold]» {text}[/bold]")


def write_tables(catalog: relance.DirectoryNamespace) -> None:
    """Write with pylance and with lancedb through one catalog."""
    readings = pa.table({"sensor": ["a", "b", "a"], "value": [20.5, 21.0, 20.7]})
    step("pylance writes 'readings', then appends to it")
    lance.write_dataset(readings, namespace_client=catalog, table_id=["readings"], mode="create")
    lance.write_dataset(readings, namespace_client=catalog, table_id=["readings"], mode="append")

    step("lancedb writes 'images' with vectors, and searches them")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        database = lancedb.connect_namespace("relance.DirectoryNamespace", {"root": str(LAKE)})
        images = database.create_table(
            "images", [{"name": "cat", "vector": [0.9, 0.1]}, {"name": "dog", "vector": [0.1, 0.9]}]
        )
        nearest = images.search([1.0, 0.0]).limit(1).to_list()[0]["name"]
    console.print(f"nearest to (1, 0): {nearest}")

    step("a third table is declared: its name and place are taken, data may follow")
    console.print(catalog.declare_table({"id": ["forecasts"]}).location)


def show_tables(catalog: relance.DirectoryNamespace) -> None:
    """List and describe everything."""
    step("the whole lake, from one listing")
    table = Table("table", "version", "rows", "columns", "location")
    for name in catalog.list_tables({"id": []}).tables:
        found = catalog.describe_table({"id": [name], "load_detailed_metadata": True})
        columns = ", ".join(field.name for field in found.var_schema.fields) if found.var_schema else ""
        rows = (found.metadata or {}).get("total_rows", "")
        version = "declared" if found.is_only_declared else str(found.version)
        table.add_row(name, version, rows, columns, str(Path(str(found.location)).relative_to(Path.cwd())))
    console.print(table)


def show_errors(catalog: relance.DirectoryNamespace) -> None:
    """Make the mistakes a newcomer makes."""
    step("mistakes are answered with what to do")
    for name in ("readings", "../outside"):
        try:
            catalog.declare_table({"id": [name]})
        except RelanceError as error:
            console.print(f"[red]{error}[/red]  (code {error.code.value})")


def main() -> None:
    shutil.rmtree(LAKE, ignore_errors=True)
    catalog = relance.DirectoryNamespace(root=LAKE, manifest_enabled="false")
    console.print(f"catalog: {catalog.namespace_id()}")
    write_tables(catalog)
    show_tables(catalog)
    show_errors(catalog)
    step("done; look into ./demo-lake, and at README.md for the ten-line example")


if __name__ == "__main__":
    main()
