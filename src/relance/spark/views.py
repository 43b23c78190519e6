"""The tables of a catalog as temporary views, for SQL."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from weakref import WeakKeyDictionary

from pyspark.sql import SparkSession

from relance.errors import RelanceError
from relance.identifiers import DELIMITER, format_id, parse_id
from relance.namespace import DirectoryNamespace
from relance.spark.registration import DEFAULT_NAME, ensure_registered
from relance.spark.session_properties import catalog_properties, keep_in_session
from relance.spark.table import table

Parts = tuple[str, ...]

_OWN: WeakKeyDictionary[SparkSession, set[str]] = WeakKeyDictionary()
"""The views that were made here, in lower case: only those may be replaced."""


def attach(
    spark: SparkSession,
    root: str | os.PathLike[str] | None = None,
    *,
    properties: Mapping[str, str] | None = None,
    namespace: str | Sequence[str] | None = None,
    source: str = DEFAULT_NAME,
) -> Attached:
    """Make a catalog the one of the session, and a view of each of its tables, or of those in a namespace.

    The view of table `users` in namespace `prod` is called `prod.users`, dot included: in SQL it is
    written in backticks.

    Raises:
        InvalidInputError: no root is given and the session has none, or a property cannot be used.
    """
    chosen = catalog_properties(spark, root, properties)
    catalog = DirectoryNamespace(clock=None, **chosen)
    chosen["root"] = catalog.root_uri
    ensure_registered(spark, source)
    keep_in_session(spark, chosen)
    within = parse_id(namespace) if isinstance(namespace, str) else tuple(namespace or ())
    attached = Attached(spark, catalog, chosen, within, source)
    attached.refresh()
    return attached


class Attached:
    """The views of one catalog in one session."""

    def __init__(
        self,
        spark: SparkSession,
        catalog: DirectoryNamespace,
        properties: Mapping[str, str],
        namespace: Parts,
        source: str,
    ) -> None:
        self._spark = spark
        self._catalog = catalog
        self._properties = dict(properties)
        self._namespace = namespace
        self._source = source
        self._views: dict[str, Parts] = {}
        self._skipped: dict[str, str] = {}

    def __enter__(self) -> Attached:
        return self

    def __exit__(self, *_: object) -> None:
        self.detach()

    def __repr__(self) -> str:
        return f"Attached({self._properties['root']!r}, {len(self._views)} views)"

    @property
    def views(self) -> dict[str, Parts]:
        """The name of each view, and the id of its table."""
        return dict(self._views)

    @property
    def skipped(self) -> dict[str, str]:
        """The tables that have no view, as text, and why."""
        return dict(self._skipped)

    def refresh(self) -> None:
        """Show the tables as they are now: new rows, new tables, and no view of one that is gone.

        A view keeps to the version that was there when it was made.
        """
        self._skipped = {}
        found = self._named(self._tables())
        for name in self._views.keys() - found.keys():
            self._remove(name)
        taken = self._taken()
        for name, parts in found.items():
            if name.lower() in taken:
                self._skip(parts, f"the session has another temporary view '{name}'; drop it first")
            else:
                self._show(name, parts)

    def detach(self) -> None:
        """Remove the views; the session keeps its catalog."""
        for name in list(self._views):
            self._remove(name)

    def _tables(self) -> list[Parts]:
        found = (tuple(each.split(DELIMITER)) for each in self._catalog.list_all_tables({}).tables)
        return [each for each in found if each[: len(self._namespace)] == self._namespace]

    def _named(self, tables: Iterable[Parts]) -> dict[str, Parts]:
        """Return the tables by the name of their view; of those that Spark cannot tell apart, none."""
        alike: defaultdict[str, list[Parts]] = defaultdict(list)
        for parts in tables:
            alike[".".join(parts).lower()].append(parts)
        for group in alike.values():
            for parts in group if len(group) > 1 else ():
                others = ", ".join(format_id(each) for each in group if each != parts)
                self._skip(parts, f"Spark cannot tell its name from {others}; use relance.spark.table")
        return {".".join(group[0]): group[0] for group in alike.values() if len(group) == 1}

    def _taken(self) -> set[str]:
        views = {each.name.lower() for each in self._spark.catalog.listTables() if each.isTemporary}
        return views - _OWN.get(self._spark, set())

    def _show(self, name: str, parts: Parts) -> None:
        try:
            frame = table(self._spark, parts, properties=self._properties, source=self._source)
        except RelanceError as reason:
            # One table that Spark cannot read is no reason to hide the others.
            self._skip(parts, reason.detail)
            self._remove(name)
            return
        frame.createOrReplaceTempView(_quoted(name))
        _OWN.setdefault(self._spark, set()).add(name.lower())
        self._views[name] = parts

    def _skip(self, parts: Parts, reason: str) -> None:
        self._skipped[format_id(parts)] = reason

    def _remove(self, name: str) -> None:
        if self._views.pop(name, None) is not None:
            self._spark.catalog.dropTempView(name)  # takes the name as it is, and no backticks
            _OWN.get(self._spark, set()).discard(name.lower())


def _quoted(name: str) -> str:
    return f"`{name.replace('`', '``')}`"
