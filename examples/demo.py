"""The demo behind `make demo`: a small lake on the local disk, step by step."""

from __future__ import annotations

import shutil
import warnings
from collections.abc import Callable
from pathlib import Path

import lance
import lancedb
import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812  # as everyone who uses Spark calls them
from rich.console import Console
from rich.table import Table

import relance
import relance.spark
from relance import CleanupPolicy
from relance.errors import RelanceError
from relance.maintenance import CleanUp, Compact, DeleteRows, Effect, PurgeDropped
from relance.maintenance.work import Job

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


def drop_under_a_reader(catalog: relance.DirectoryNamespace) -> None:
    """Drop a table while it is read, and bring it back."""
    step("'readings' is dropped while a reader is in the middle of it")
    reader = lance.dataset(namespace_client=catalog, table_id=["readings"])
    batches = iter(reader.to_batches(batch_size=2))
    seen = next(batches).num_rows
    catalog.drop_table({"id": ["readings"]})
    console.print(f"listed: {catalog.list_tables({'id': []}).tables}")
    seen += sum(batch.num_rows for batch in batches)
    console.print(f"the reader still got all {seen} rows")
    expect_error(lambda: lance.dataset(namespace_client=catalog, table_id=["readings"]))

    step("undrop brings it back as it was")
    catalog.undrop_table(["readings"])
    console.print(f"listed: {catalog.list_tables({'id': []}).tables}")


def create_over_a_dropped_table(catalog: relance.DirectoryNamespace) -> None:
    """Write over a dropped name: a new version, the old ones below it."""
    step("a create over the dropped name 'readings' is a new version; the old ones stay readable")
    catalog.drop_table({"id": ["readings"]})
    table = pa.table({"sensor": ["c"], "value": [19.9]})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    created = catalog.create_table({"id": ["readings"]}, sink.getvalue().to_pybytes())
    now = lance.dataset(namespace_client=catalog, table_id=["readings"])
    before = lance.dataset(namespace_client=catalog, table_id=["readings"], version=2)
    console.print(f"version {created.version}: {now.count_rows()} row, version 2: {before.count_rows()} rows")


def rows_of(catalog: relance.DirectoryNamespace, *parts: str) -> int:
    return int(lance.dataset(namespace_client=catalog, table_id=list(parts)).count_rows())


def namespaces(catalog: relance.DirectoryNamespace) -> None:
    """Nest, rename, drop a whole branch and bring it back."""
    step("namespaces nest; a table gets another name and namespace without copying a byte")
    catalog.create_namespace({"id": ["prod"], "properties": {"drop_ttl": "30d"}})
    catalog.create_namespace({"id": ["prod", "sales"]})
    for name in ("orders", "refunds"):
        table = pa.table({"id": [1, 2, 3]})
        lance.write_dataset(table, namespace_client=catalog, table_id=["prod", "sales", name])
    catalog.rename_table({"id": ["prod", "sales", "refunds"], "new_table_name": "returns"})
    catalog.rename_table({"id": ["readings"], "new_table_name": "readings", "new_namespace_id": ["prod"]})
    for space in ([], ["prod"], ["prod", "sales"]):
        name = ".".join(space) or "the root"
        console.print(f"tables in {name}: {catalog.list_tables({'id': space}).tables}")

    step("the namespace 'prod' is dropped with all that is in it, and brought back, in one commit each")
    expect_error(lambda: catalog.drop_namespace({"id": ["prod"]}))
    catalog.drop_namespace({"id": ["prod"], "behavior": "cascade"})
    console.print(f"dropped: {['.'.join(each.id) for each in catalog.list_dropped_tables()]}")
    back = catalog.undrop_namespace(["prod"])
    console.print(
        f"back: {['.'.join(each) for each in back]}, {rows_of(catalog, 'prod', 'sales', 'orders')} orders"
    )

    step("a new table of a dropped name has its own files; both can be had")
    catalog.drop_table({"id": ["prod", "sales", "orders"]})
    fresh = pa.table({"id": [4]})
    lance.write_dataset(fresh, namespace_client=catalog, table_id=["prod", "sales", "orders"])
    catalog.undrop_table(["prod", "sales", "orders"], new_id=["prod", "sales", "old_orders"])
    for name in ("orders", "old_orders"):
        console.print(f"prod.sales.{name}: {rows_of(catalog, 'prod', 'sales', name)} rows")

    step("what is protected cannot be dropped")
    catalog.protect(["prod", "sales", "orders"])
    expect_error(lambda: catalog.drop_table({"id": ["prod", "sales", "orders"]}))


def purge(catalog: relance.DirectoryNamespace) -> None:
    """Purge: refused for live tables and before the time, done when due or forced."""
    step("a purge refuses live tables, and dropped ones whose time has not passed")
    catalog.drop_table({"id": ["images"]})
    for name in ("readings", "images"):
        expect_error(lambda name=name: catalog.purge_table([name]))  # type: ignore[misc]  # bound per turn

    step("by force it goes now; a dry run says first what would go")
    plan = catalog.purge_tables([["images"]], force=True, dry_run=True)[0]
    console.print(f"would remove {plan.files} files, {plan.bytes:,} bytes")
    done = catalog.purge_table(["images"], force=True)
    console.print(f"removed {done.files} files, {done.bytes:,} bytes, left over: {len(done.left)}")
    console.print(catalog.table_status(["images"]))


def ingest_with_spark() -> None:
    """Write, read and stream tables of the catalog with Spark."""
    step("Spark writes a day of sensor readings: tasks write files, one commit shows them all")
    spark = relance.spark.session("relance demo", root=str(LAKE))
    readings = spark.range(0, 1_000_000, 1, 4).select(
        (F.col("id") % 500).alias("sensor"),
        F.timestamp_seconds(F.lit(1_760_000_000) + F.col("id") / 12).alias("at"),
        (F.sin(F.col("id") / 1000) * 10 + 20).alias("value"),
    )
    saved = relance.spark.save(readings, "prod.sensors.readings", create_namespaces=True)
    console.print(
        f"version {saved.version}, {rows_of(catalog_of_lake(), 'prod', 'sensors', 'readings'):,} rows"
    )
    expect_error(lambda: relance.spark.save(readings, "prod.sensors.readings"))

    step("columns, a filter and a limit reach Lance, so that little is read")
    hot = relance.spark.table(
        spark, "prod.sensors.readings", columns=["sensor", "value"], where="value > 29.99 AND sensor < 5"
    )
    console.print(f"{hot.count()} readings above 29.99 of sensors 0 to 4")

    step("SQL over all tables of the catalog")
    with relance.spark.attach(spark):
        spark.sql(
            "SELECT sensor, count(*) AS readings, round(avg(value), 2) AS mean "
            "FROM `prod.sensors.readings` GROUP BY sensor ORDER BY mean DESC, sensor LIMIT 3"
        ).show()

    step("a stream copies what is new, each row once, and can be stopped and started at any time")
    checkpoint = LAKE / ".demo-checkpoint"
    for _ in range(2):
        source = spark.readStream.format("lance").option("root", str(LAKE)).load("prod.sensors.readings")
        query = (
            source.where("value > 29.9")
            .writeStream.format("lance")
            .option("root", str(LAKE))
            .option("checkpointLocation", str(checkpoint))
            .trigger(availableNow=True)
            .start("prod.sensors.peaks")
        )
        query.awaitTermination()
        console.print(f"prod.sensors.peaks: {rows_of(catalog_of_lake(), 'prod', 'sensors', 'peaks'):,} rows")
        relance.spark.save(readings.limit(10_000), "prod.sensors.readings", mode="append")
    keep_healthy(spark)
    spark.stop()


def keep_healthy(spark: SparkSession) -> None:
    """Run maintenance jobs on Spark's executors."""
    readings = ["prod", "sensors", "readings"]
    step("maintenance: a dry run shows what a job would do, then it is done on Spark's executors")
    plan = relance.spark.maintain(spark, DeleteRows("sensor >= 450"), [readings], dry_run=True)
    console.print(f"would delete {plan.results[0].planned}")
    catalog_of_lake().drop_table({"id": ["prod", "sensors", "peaks"]})
    policy = CleanupPolicy(retain_versions=1)
    jobs: list[tuple[Job, list[list[str]] | None]] = [
        (DeleteRows("sensor >= 450"), [readings]),
        (Compact(), None),
        (CleanUp(policy, allow_young=True), None),
        (PurgeDropped(force=True), [["prod", "sensors", "peaks"]]),
    ]
    for job, tables in jobs:
        for row in relance.spark.maintain(spark, job, tables, engine="spark").results:
            if row.effect is None and row.error is None:
                continue  # nothing to do there
            done = row.effect or Effect()
            after = done.after.fragments
            fragments = f", fragments {done.before.fragments} to {after}" if after else ""
            console.print(
                f"{row.job:12} {'.'.join(row.table):24} {done.rows:,} rows, {done.files:,} files, "
                f"{done.bytes:,} bytes removed"
                f"{fragments}, {row.duration.total_seconds():.2f} s {row.error or ''}"
            )


def catalog_of_lake() -> relance.DirectoryNamespace:
    return relance.DirectoryNamespace(root=LAKE)


def show_errors(catalog: relance.DirectoryNamespace) -> None:
    """Make the mistakes a newcomer makes."""
    step("mistakes are answered with what to do")
    for name in ("forecasts", "../outside"):
        expect_error(lambda name=name: catalog.declare_table({"id": [name]}))  # type: ignore[misc]  # bound per turn


def expect_error(call: Callable[[], object]) -> None:
    """Make a call that must fail, and show what it says."""
    try:
        call()
    except RelanceError as error:
        console.print(f"[red]{error}[/red]  (code {error.code.value})")
    else:
        raise SystemExit("this should have been refused")


def main() -> None:
    shutil.rmtree(LAKE, ignore_errors=True)
    catalog = relance.DirectoryNamespace(root=LAKE)
    console.print(f"catalog: {catalog.namespace_id()}")
    write_tables(catalog)
    show_tables(catalog)
    drop_under_a_reader(catalog)
    create_over_a_dropped_table(catalog)
    purge(catalog)
    namespaces(catalog)
    ingest_with_spark()
    show_errors(catalog)
    step("done; look into ./demo-lake, and at README.md for the ten-line example")


if __name__ == "__main__":
    main()
