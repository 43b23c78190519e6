"""State of one invocation: the shared options, and the catalog they select."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import click

from relance.cli.advice import Advice, advice_on
from relance.cli.catalog_options import Lake, find_lake
from relance.cli.exits import CliError, Exit
from relance.cli.failures import Failure, details_of, failure_of
from relance.cli.imports import import_lance_alone
from relance.cli.output import note
from relance.cli.words import printable

if TYPE_CHECKING:
    from relance.catalog import Catalog
    from relance.errors import RelanceError
    from relance.namespace import DirectoryNamespace

Id = tuple[str, ...]
_Opened = TypeVar("_Opened")


@dataclass
class State:
    """Filled in as the options are parsed."""

    root: str | None = None
    config: str | None = None
    json: bool = False
    vertical: bool = False
    debug: bool = False
    quiet: bool = False
    """Print no warnings: a shell is completing a word."""
    command: str = ""
    """The command, without `relance`."""
    ids: list[Id] = field(default_factory=list)
    """The tables and namespaces that the command names."""
    _known: list[Lake] = field(default_factory=list, repr=False)

    @cached_property
    def lake(self) -> Lake:
        """The catalog to use.

        Raises:
            CliError: no root is set.
        """
        lake = find_lake(self.root, self.config, environ=os.environ, folder=Path.cwd())
        self._known.append(lake)
        for each in () if self.quiet else lake.ignored:
            note(f"warning: settings ignored: {self.redact(each)}")
        return lake

    @cached_property
    def new_catalog(self) -> DirectoryNamespace:
        """The opened catalog; its folder may not exist yet."""
        from relance.namespace import DirectoryNamespace

        return DirectoryNamespace(clock=None, **self.lake.properties)

    @cached_property
    def catalog(self) -> DirectoryNamespace:
        """The opened catalog.

        Raises:
            CliError: its folder does not exist.
        """
        return self._in_existing_folder(lambda: self.new_catalog)

    @cached_property
    def view(self) -> Catalog:
        """The opened catalog for commands that only look: it opens in the time that Lance needs.

        Raises:
            CliError: its folder does not exist.
        """
        return self._in_existing_folder(self._open_view)

    def _open_view(self) -> Catalog:
        import_lance_alone()
        from relance.catalog import Catalog

        return Catalog.open(self.lake.properties)

    def _in_existing_folder(self, open_catalog: Callable[[], _Opened]) -> _Opened:
        from relance.locations import Scheme, parse_root

        root = parse_root(self.lake.properties["root"])
        is_missing = root.scheme is Scheme.FILE and not os.path.isdir(root.path)
        # Invalid settings are reported first, unless a file is there, in which nothing can be opened.
        catalog = None if is_missing and os.path.lexists(root.path) else open_catalog()
        if catalog is None or is_missing:
            raise CliError(
                f"folder {root.path} not found (set by {self.lake.named_by})",
                "check the path; to create a catalog, import a table: see relance import --help",
                Exit.NOT_FOUND,
            )
        return catalog

    def failure(self, error: BaseException, about: Id | None = None) -> Failure:
        """Return the message and hint for an error; with --debug, also print its traceback.

        Args:
            error: any exception.
            about: the table or namespace that it is about. Default: those that the command named.
        """
        if self.debug:
            sys.stderr.write(printable(details_of(error, self.redact), keep="\n"))
        ids = self.ids if about is None else (about,)
        return failure_of(error, self.redact, ids=ids, command=self.command, advise=self._advice)

    def _advice(self, error: RelanceError, ids: Sequence[Id]) -> Advice | None:
        if not ids or not {"new_catalog", "view"} & set(vars(self)):
            return None
        from relance.errors import RelanceError

        with suppress(RelanceError):  # what failed first is what the user is told
            return advice_on(error, vars(self).get("view") or self._open_view(), self.command, ids)
        return None

    def redact(self, text: str) -> str:
        """Return a text without the secrets in the properties of the catalog and of Spark."""
        for lake in self._known:
            from relance.config import StorageOptions

            text = StorageOptions({**lake.properties, **lake.conf}).redact(text)
        return text


pass_state = click.make_pass_decorator(State, ensure=True)
