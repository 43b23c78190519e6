"""What one call of the command line knows: the options that every command has, and the catalog they name."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import click

from relance.cli.catalog_options import Lake, find_lake
from relance.cli.exits import CliError, Exit
from relance.cli.failures import Failure, details_of, failure_of

if TYPE_CHECKING:
    from relance.namespace import DirectoryNamespace


@dataclass
class State:
    """Filled by the options as they are read."""

    root: str | None = None
    config: str | None = None
    json: bool = False
    debug: bool = False
    command: str = ""
    """What was called, without `relance`."""
    _known: list[Lake] = field(default_factory=list, repr=False)

    @cached_property
    def lake(self) -> Lake:
        """The catalog that is meant.

        Raises:
            CliError: none is named.
        """
        lake = find_lake(self.root, self.config, environ=os.environ, folder=Path.cwd())
        self._known.append(lake)
        return lake

    @cached_property
    def new_catalog(self) -> DirectoryNamespace:
        """The catalog, opened; its folder may be missing."""
        from relance.namespace import DirectoryNamespace

        return DirectoryNamespace(clock=None, **self.lake.properties)

    @cached_property
    def catalog(self) -> DirectoryNamespace:
        """The catalog, opened.

        Raises:
            CliError: it is in a folder that does not exist.
        """
        catalog = self.new_catalog
        root = catalog.root_uri
        if "://" not in root and not os.path.isdir(root):
            raise CliError(
                f"there is no folder {root} (named by {self.lake.named_by})",
                "check the path; relance create-namespace and relance import begin a new catalog",
                Exit.NOT_FOUND,
            )
        return catalog

    def failure(self, error: BaseException) -> Failure:
        """Return what to say about an error that did not end the command; with --debug also its traceback."""
        if self.debug:
            sys.stderr.write(details_of(error, self.redact))
        return failure_of(error, self.redact)

    def redact(self, text: str) -> str:
        """Return a text without the secrets among what the catalog and Spark are opened with."""
        for lake in self._known:
            from relance.config import StorageOptions

            text = StorageOptions({**lake.properties, **lake.conf}).redact(text)
        return text


pass_state = click.make_pass_decorator(State, ensure=True)
