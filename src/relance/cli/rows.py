"""Read and write rows: query, import, export."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, TextIO, TypeVar

import click

from relance.cli.base import Command
from relance.cli.engines import spark_session, wants_spark
from relance.cli.exits import CliError, Exit
from relance.cli.grids import Grid
from relance.cli.output import Answer, TerminalSink
from relance.cli.params import ANY, TABLE, engine_options
from relance.cli.progress import rows_bar
from relance.cli.state import State, pass_state
from relance.cli.words import id_text
from relance.units import count, plural

if TYPE_CHECKING:
    from relance.operations.transfer.exporting import Selection

Id = tuple[str, ...]
_F = TypeVar("_F", bound=Callable[..., Any])

_SHOWN = 20
"""Rows that a query prints without --limit."""

_CELL = 60
"""Texts and lists longer than this are shortened."""

_LONGEST_ID = 128
"""A word of up to this many characters may be an id or a hash."""

_FORMATS = ["parquet", "csv", "arrow", "json"]


def _selection_options(command: _F) -> _F:
    """Add the options that select rows, columns and version."""
    for option in (
        click.option("--branch", help="Read this branch."),
        click.option("--tag", help="Read the version with this tag."),
        click.option("--version", type=click.IntRange(min=1), metavar="N", help="Read this version."),
        click.option("--limit", "-n", type=click.IntRange(min=0), metavar="N", help="At most N rows."),
        click.option("--where", metavar="SQL", help='Only rows that match, such as "value > 20".'),
        click.option("--columns", metavar="NAMES", help="Only these columns, separated by commas."),
    ):
        command = option(command)
    return command


def _selection(
    *,
    columns: str | None,
    where: str | None,
    limit: int | None,
    version: int | None,
    tag: str | None,
    branch: str | None,
) -> Selection:
    from relance.operations.transfer.exporting import Selection

    names = None if columns is None else [each.strip() for each in columns.split(",") if each.strip()]
    return Selection(names, where, limit, None, version, tag, branch)


@click.command(cls=Command)
@click.argument("table", type=TABLE)
@_selection_options
@click.option("--count", "only_count", is_flag=True, help="Print only the number of rows.")
@click.option(
    "--format",
    "file_format",
    type=click.Choice(["table", *_FORMATS]),
    help="Output format. Default: table, or the extension of --output. json: one object per line.",
)
@click.option("--output", "-o", type=click.Path(dir_okay=False), help="Write to this file.")
@click.option("--overwrite", is_flag=True, help="Replace the file if it exists.")
@pass_state
def query(
    state: State,
    /,
    table: Id,
    *,
    only_count: bool,
    file_format: str | None,
    output: str | None,
    overwrite: bool,
    **chosen: Any,
) -> Answer:
    """Print rows of a table.

    Without --limit, prints the first 20 rows as a table or with --json, and all rows in other formats.
    """
    catalog = state.catalog
    if only_count:
        return _count(state, table, chosen)
    if output is not None:
        if file_format == "table":
            raise CliError(
                "--format table cannot be written to a file", f"use one of {', '.join(_FORMATS)}", Exit.USAGE
            )
        with rows_bar("query") as progress:
            done = catalog.export_table(
                table,
                output,
                _selection(**chosen),
                file_format=file_format,
                overwrite=overwrite,
                progress=progress,
            )
        result = {"table": id_text(table), "path": output, "format": done.format, "rows": done.rows}
        return Answer(result, [f"wrote {plural(done.rows, 'row')} to {output}"])
    if file_format in {None, "table"} or state.json:
        return _shown(state, table, chosen)
    assert file_format is not None  # None is printed as a table above
    if file_format in {"parquet", "arrow"} and sys.stdout.isatty():
        raise CliError(
            f"{file_format} is binary and cannot be printed on a terminal",
            "write it to a file with --output, or pipe it to another program",
            Exit.USAGE,
        )
    return Answer({}, write=lambda stream: _stream(state, table, chosen, file_format, stream))


def _stream(state: State, table: Id, chosen: dict[str, Any], file_format: str, stream: TextIO) -> None:
    from relance.operations.transfer.exporting import write_rows
    from relance.operations.transfer.formats import Format

    reader = state.catalog.scan_table(table, _selection(**chosen))
    stream.flush()
    sink: Any = TerminalSink(stream) if stream.isatty() else stream.buffer
    write_rows(reader, sink, Format(file_format))
    sink.flush()
    stream.flush()


def _count(state: State, table: Id, chosen: dict[str, Any]) -> Answer:
    if chosen["tag"] is not None or chosen["columns"] is not None or chosen["limit"] is not None:
        raise CliError(
            "--count allows only --where, --version and --branch", "remove the other options", Exit.USAGE
        )
    request = {
        "id": list(table),
        "predicate": chosen["where"],
        "version": chosen["version"],
        "branch": chosen["branch"],
    }
    rows = state.catalog.count_table_rows(request).count or 0
    return Answer({"table": id_text(table), "rows": rows}, [count(rows)])


def _shown(state: State, table: Id, chosen: dict[str, Any]) -> Answer:
    """Return the first rows, and whether there are more."""
    from relance.operations.transfer.json_rows import rows_of

    asked = chosen["limit"]
    most = _SHOWN if asked is None else asked
    reader = state.catalog.scan_table(
        table, _selection(**{**chosen, "limit": most + 1 if asked is None else most})
    )
    found = [row for batch in reader for row in rows_of(batch)]
    more = len(found) > most
    rows, names = found[:most], reader.schema.names
    result = {"table": id_text(table), "columns": names, "rows": rows, "more": more}
    numbers = frozenset(each.name for each in reader.schema if _is_number(str(each.type)))
    most = None if state.vertical else _CELL
    cells = [[_cell(row[name], most) for name in names] for row in rows]
    grid = Grid(names, cells, numbers, "no rows", can_choose=True)
    return Answer(result, [grid, *(["… more rows: use --limit to see them"] if more else [])])


def _is_number(kind: str) -> bool:
    return kind.startswith(("int", "uint", "float", "double", "decimal", "half"))


def _cell(value: Any, most: int | None) -> str:
    """Return a value as text of about `most` characters; numbers and single words are never cut."""
    if value is None:
        return ""
    if isinstance(value, str):
        return value if most is None else _clipped(value, most)
    return _nested(value, most)


def _nested(value: Any, most: int | None) -> str:
    if isinstance(value, list):
        return f"[{_joined(map(_inner, value), len(value), most)}]"
    if isinstance(value, dict):
        pairs = (f"{name}: {_inner(each)}" for name, each in value.items())
        return f"{{{_joined(pairs, len(value), most)}}}"
    return str(value)


def _inner(value: Any) -> str:
    return repr(value) if isinstance(value, str) else "null" if value is None else _nested(value, None)


def _joined(texts: Iterable[str], total: int, most: int | None) -> str:
    """Return the first texts and how many more there are; none of them is cut."""
    shown: list[str] = []
    length = 0
    for text in texts:
        length += len(text) + 2
        if most is not None and shown and length > most:
            return ", ".join([*shown, f"… {total - len(shown):,} more"])
        shown.append(text)
    return ", ".join(shown)


def _clipped(text: str, most: int) -> str:
    """Return the first words of a text; never cut a first word that may be an id or a hash."""
    if len(text) <= most:
        return text
    words = text[: most + 1].rsplit(maxsplit=1)
    if len(words) == 2:
        return f"{words[0]} …"
    first = text.split(maxsplit=1)[0]
    if len(first) <= _LONGEST_ID:
        return text if len(first) == len(text) else f"{first} …"
    return f"{text[:most]}… ({len(text):,} characters)"


@click.command(cls=Command, name="import")
@click.argument("table", type=ANY)
@click.argument("files", nargs=-1, required=True, type=click.Path())
@click.option(
    "--mode",
    type=click.Choice(["create", "append", "overwrite"]),
    default="create",
    show_default=True,
    help="create: the table must not exist. append: add rows, creating the table if needed. "
    "overwrite: replace all rows in a new version; old versions remain.",
)
@click.option(
    "--format", "file_format", type=click.Choice(_FORMATS[:3]), help="Default: the first file's extension."
)
@click.option("--create-namespaces", is_flag=True, help="Create missing namespaces.")
@engine_options
@pass_state
def import_(
    state: State,
    table: Id,
    files: Sequence[str],
    *,
    mode: str,
    file_format: str | None,
    create_namespaces: bool,
    engine: str | None,
    master: str | None,
) -> Answer:
    """Import Parquet, CSV or Arrow files into a table, as one new version."""
    if wants_spark(engine, master):
        return _import_with_spark(
            state, table, files, mode=mode, file_format=file_format, spaces=create_namespaces, master=master
        )
    with rows_bar("import") as progress:
        done = state.new_catalog.import_files(
            table,
            files,
            mode=mode,
            file_format=file_format,
            create_namespaces=create_namespaces,
            progress=progress,
        )
    result = {"table": id_text(done.id), "version": done.version, "rows": done.rows, "engine": "local"}
    return Answer(
        result, [f"imported {plural(done.rows, 'row')} into {id_text(done.id)} (version {done.version})"]
    )


def _import_with_spark(
    state: State,
    table: Id,
    files: Sequence[str],
    *,
    mode: str,
    file_format: str | None,
    spaces: bool,
    master: str | None,
) -> Answer:
    from relance.operations.transfer.formats import format_of

    kind = format_of(files[0], file_format)
    session = spark_session(state, master)
    from relance.spark.files import import_files

    saved = import_files(
        session,
        files,
        table,
        file_format=kind.value,
        mode="error" if mode == "create" else mode,
        create_namespaces=spaces,
    )
    result = {"table": id_text(saved.id), "version": saved.version, "rows": None, "engine": "spark"}
    return Answer(result, [f"imported into {id_text(saved.id)} (version {saved.version})"])


@click.command(cls=Command)
@click.argument("table", type=TABLE)
@click.argument("path", type=click.Path())
@_selection_options
@click.option("--format", "file_format", type=click.Choice(_FORMATS), help="Default: the extension of PATH.")
@click.option("--overwrite", is_flag=True, help="Replace the file or folder if it exists.")
@engine_options
@pass_state
def export(
    state: State,
    /,
    table: Id,
    path: str,
    *,
    file_format: str | None,
    overwrite: bool,
    engine: str | None,
    master: str | None,
    **chosen: Any,
) -> Answer:
    """Export rows of a table to a file, or to a folder with Spark."""
    selection = _selection(**chosen)
    if not wants_spark(engine, master):
        with rows_bar("export") as progress:
            done = state.catalog.export_table(
                table, path, selection, file_format=file_format, overwrite=overwrite, progress=progress
            )
        result = {
            "table": id_text(table),
            "path": path,
            "format": done.format,
            "rows": done.rows,
            "engine": "local",
        }
        return Answer(result, [f"exported {plural(done.rows, 'row')} to {path}"])
    from relance.operations.transfer.formats import format_of

    kind = format_of(path, file_format)
    state.catalog.table_exists({"id": list(table)})
    session = spark_session(state, master)
    from relance.spark.files import export_files

    export_files(
        session,
        table,
        path,
        file_format=kind.value,
        columns=selection.columns,
        where=selection.where,
        limit=selection.limit,
        version=selection.version,
        tag=selection.tag,
        branch=selection.branch,
        overwrite=overwrite,
    )
    result = {"table": id_text(table), "path": path, "format": kind, "rows": None, "engine": "spark"}
    return Answer(result, [f"exported {id_text(table)} to {path}"])
