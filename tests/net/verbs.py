"""Every verb of the catalog as a story: steps in a fixed order, each of which is measured.

One root goes through all steps, so that each of them finds a warm client and what the steps before
left. A step that is refused is part of the story too: its record has the name of the error.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
from tests.net.table_verbs import tell_inside
from tests.support import modes
from tests.support.patches import substituted
from tests.support.roots import LocalPlace, Place, S3Place, ipc

from relance import DirectoryNamespace
from relance.errors import RelanceError
from relance.testing.clock import ManualClock

MODES: Mapping[str, dict[str, str]] = {
    **modes.MODES,
    "managed versions": {"table_version_management": "true"},
}
_HAVE_NAMESPACES = ("V2", "compatibility")
NOT_VERBS = frozenset({"namespace_id", "properties", "root_uri"})
"""Public attributes of the catalog that send no request."""

_BODY = ipc(pa.table({"x": pa.array([1, 2, 3], pa.int64())}))
_PAST_RETENTION = timedelta(days=30)

Counts = dict[str, int]
Record = dict[str, Any]
Count = Callable[[], Counts]
"""Returns the requests since it was last called."""


def verbs() -> set[str]:
    """Return the names of the catalog's methods, those that Relance defines."""
    owners = (each for each in DirectoryNamespace.__mro__ if each.__module__.startswith("relance"))
    return {name for each in owners for name in vars(each) if not name.startswith("_")} - NOT_VERBS


@dataclass(slots=True)
class Story:
    """Steps on one root, and what each of them cost."""

    place: Place
    count: Count
    catalog: DirectoryNamespace
    clock: ManualClock
    records: dict[str, Record] = field(default_factory=dict)
    _prefix: str = ""

    @contextmanager
    def chapter(self, name: str) -> Iterator[None]:
        """Put a name before the steps of the block."""
        self._prefix = f"{name} | "
        yield
        self._prefix = ""

    def step(self, verb: str, *args: Any, when: str = "", **options: Any) -> Any:
        """Call a verb of the catalog, record what it cost and return its response, or None if refused.

        `when` tells this case from others of the same verb.
        """
        self.count()
        record: Record = {}
        response = None
        try:
            response = getattr(self.catalog, verb)(*args, **options)
        except RelanceError as error:
            record["raises"] = type(error).__name__
        record.update(self.count())
        step = f"{self._prefix}{verb}" + (f", {when}" if when else "")
        assert step not in self.records, f"two steps are called {step!r}"
        self.records[step] = record
        return response

    def advance(self, period: timedelta) -> None:
        """Let time pass; S3 dates objects by whole seconds, so a real one passes too."""
        self.clock.advance(period)
        if isinstance(self.place, S3Place):
            time.sleep(1.1)

    def has(self, step: str) -> bool:
        """Tell whether a step was not refused."""
        return "raises" not in self.records[f"{self._prefix}{step}"]


def tell(place: Place, count: Count, mode: str, *, brief: bool = False) -> dict[str, Record]:
    """Go through all steps on an empty root, and return what each of them cost.

    The steps of tables are done at the root and in a namespace. A `brief` story, for a slow store, goes
    into namespaces in one mode only, and not inside tables: there Lance's own requests vary from run to run.
    """
    # A client re-reads a manifest after some seconds: on a stalled machine it would send more requests.
    with substituted("manifest.since_boot", lambda: 0.0):
        return _tell(place, count, mode, brief=brief)


def _tell(place: Place, count: Count, mode: str, *, brief: bool) -> dict[str, Record]:
    clock = ManualClock(datetime.now(UTC))  # the store dates files by the real time
    catalog = place.open(clock=clock, manifest_upkeep="false", **MODES[mode])
    story = Story(place, count, catalog, clock)
    _warm_up(catalog, [])
    story.step("maintain_manifest")
    if mode == "managed versions":
        with story.chapter("root"):
            _versions(story, [])
        return story.records
    with story.chapter("root"):
        _table(story, [])
    _namespaces(story)
    if mode in (_HAVE_NAMESPACES[-1:] if brief else _HAVE_NAMESPACES):
        _warm_up(catalog, ["n"])
        with story.chapter("namespace"):
            _table(story, ["n"])
    with story.chapter("root"):
        _versions(story, [])
    _upkeep(story)
    if not brief:
        for namespace in [[], ["n"]] if mode in _HAVE_NAMESPACES else [[]]:
            with story.chapter("namespace" if namespace else "root"):
                tell_inside(story, namespace)
    return story.records


def _warm_up(catalog: DirectoryNamespace, namespace: list[str]) -> None:
    """Have the client try out the store and read what it keeps in memory."""
    table = [*namespace, "warm"]
    if namespace:
        catalog.create_namespace({"id": namespace})
    for _ in range(2):
        catalog.create_table({"id": table}, _BODY)
        catalog.drop_table({"id": table})
    catalog.undrop_table(table)
    catalog.sweep_markers()
    catalog.describe_table({"id": table})


def _table(story: Story, namespace: list[str]) -> None:
    table, other = [*namespace, "t"], [*namespace, "u"]
    _create_and_look(story, namespace, table)
    _drop_and_undrop(story, namespace, table)
    _purge(story, table)
    _declare(story, [*namespace, "d"])
    _register(story, table)
    _rename(story, table, other)


def _create_and_look(story: Story, namespace: list[str], table: list[str]) -> None:
    request, step = {"id": table}, story.step
    step("table_status", table, when="no such table")
    step("table_exists", request, when="no such table")
    step("describe_table", request, when="no such table")
    step("drop_table", request, when="no such table")
    step("create_table", request, _BODY)
    step("create_table", request, _BODY, when="name taken")
    step("create_table", {**request, "mode": "ExistOk"}, _BODY, when="exist ok")
    step("create_table", {**request, "mode": "Overwrite"}, _BODY, when="overwrite")
    step("describe_table", request)
    step("describe_table", {**request, "load_detailed_metadata": True}, when="detailed")
    step("describe_table", {**request, "check_declared": True}, when="check declared")
    step("table_exists", request)
    step("table_status", table)
    step("list_tables", {"id": namespace})
    step("list_tables", {"id": namespace, "include_declared": False}, when="without declared")
    step("list_all_tables", {})
    step("list_table_versions", request)
    step("describe_table_version", request)
    step("describe_table_version", {**request, "version": 1}, when="by number")
    step("protect", table)
    step("is_protected", table)
    if story.has("protect"):
        step("drop_table", request, when="protected")
    step("unprotect", table)


def _drop_and_undrop(story: Story, namespace: list[str], table: list[str]) -> None:
    request, step = {"id": table}, story.step
    step("drop_table", request)
    step("drop_table", request, when="dropped")
    step("table_exists", request, when="dropped")
    step("describe_table", request, when="dropped")
    step("table_status", table, when="dropped")
    step("list_tables", {"id": namespace}, when="one dropped")
    step("list_dropped_tables")
    step("list_dropped_tables", namespace, when="of one namespace")
    step("list_purgable_tables", when="none expired")
    step("purge_table", table, when="not expired")
    step("undrop_table", table)
    step("undrop_table", table, when="not dropped")
    step("drop_table", request, when="undropped before")
    step("create_table", request, _BODY, when="over dropped")
    step("drop_table", request, when="created over dropped")
    step("create_table", {**request, "mode": "Overwrite"}, _BODY, when="overwrite over dropped")
    step("drop_table", request, when="overwritten")


def _purge(story: Story, table: list[str]) -> None:
    request, step = {"id": table}, story.step
    step("purge_tables", [table], dry_run=True, force=True, when="dry run")
    step("purge_table", table, force=True)
    step("purge_table", table, force=True, when="purged")
    step("undrop_table", table, when="purged")
    step("table_status", table, when="purged")
    step("create_table", request, _BODY, when="over purged")
    story.catalog.drop_table(request)
    story.advance(_PAST_RETENTION)
    step("list_purgable_tables", when="one expired")
    step("purge_tables", when="one expired")
    step("purge_tables", when="none expired")
    step("sweep_markers", dry_run=True, when="dry run")
    step("sweep_markers")
    step("sweep_markers", when="nothing to sweep")
    story.advance(_PAST_RETENTION)
    step("sweep_markers", when="after a purge")


def _declare(story: Story, table: list[str]) -> None:
    request, step = {"id": table}, story.step
    step("declare_table", request)
    step("declare_table", request, when="declared")
    step("describe_table", {**request, "check_declared": True}, when="declared")
    step("create_table", request, _BODY, when="over declared")
    story.catalog.drop_table(request)
    step("declare_table", request, when="over dropped")
    if story.has("declare_table, over dropped"):
        story.catalog.drop_table(request)
    story.catalog.purge_tables([table], force=True)
    step("declare_table", request, when="over purged")
    if not story.has("declare_table, over purged"):
        story.advance(timedelta(days=1))
        step("declare_table", request, when="over purged a day ago")
    step("drop_table", request, when="declared")
    story.catalog.purge_tables([table], force=True)


def _register(story: Story, table: list[str]) -> None:
    request, step = {"id": table}, story.step
    story.catalog.create_table(request, _BODY)
    location = {"location": _directory(story, table)}
    step("deregister_table", request)
    step("deregister_table", request, when="deregistered")
    step("describe_table", request, when="deregistered")
    step("table_status", table, when="deregistered")
    step("register_table", {**request, **location})
    step("register_table", {**request, **location}, when="name taken")


def _directory(story: Story, table: list[str]) -> str:
    """Return the directory of a table, relative to the root."""
    location = story.catalog.describe_table({"id": table}).location
    assert location is not None
    return location.rpartition("/")[2]


def _rename(story: Story, table: list[str], other: list[str]) -> None:
    *namespace, name = other
    target = {"new_namespace_id": namespace, "new_table_name": name}
    step, catalog = story.step, story.catalog
    step("rename_table", {"id": table, **target})
    step("rename_table", {"id": table, **target}, when="renamed")
    old, new = (other, table) if story.has("rename_table") else (table, other)
    catalog.drop_table({"id": old})
    step("undrop_table", old, new_id=new, when="under another name")
    catalog.purge_tables(force=True)


def _namespaces(story: Story) -> None:
    step, catalog = story.step, story.catalog
    request = {"id": ["s"]}
    step("namespace_exists", {"id": []}, when="root")
    step("describe_namespace", {"id": []}, when="root")
    step("list_namespaces", {"id": []})
    step("namespace_exists", request, when="no such namespace")
    step("create_namespace", request)
    step("create_namespace", request, when="name taken")
    step("create_namespace", {**request, "mode": "ExistOk"}, when="exist ok")
    step("create_namespace", {"id": ["s", "inner"]}, when="nested")
    step("create_namespace", {"id": ["missing", "inner"]}, when="no such parent")
    step("namespace_exists", request)
    step("describe_namespace", request)
    step("list_namespaces", request, when="nested")
    if story.has("create_namespace"):
        catalog.create_table({"id": ["s", "t"]}, _BODY)
        catalog.create_table({"id": ["s", "u"]}, _BODY)
    step("drop_namespace", request, when="not empty")
    step("protect", ["s"], when="namespace")
    step("is_protected", ["s"], when="namespace")
    step("drop_namespace", {**request, "behavior": "Cascade"}, when="protected")
    step("unprotect", ["s"], when="namespace")
    step("drop_namespace", {**request, "behavior": "Cascade"}, when="cascade")
    step("undrop_namespace", ["s"])
    step("drop_namespace", {"id": ["s", "inner"]}, when="empty")
    step("undrop_namespace", ["missing"], when="no such namespace")


def _versions(story: Story, namespace: list[str]) -> None:
    table = [*namespace, "v"]
    request, step = {"id": table}, story.step
    story.catalog.create_table(request, _BODY)
    story.catalog.describe_table(request)
    staged = _stage(story, table, 2, 3, 4, 5, 6)
    step("create_table_version", staged[0])
    step("create_table_version", {**staged[4], "version": 2}, when="same manifest again")
    step("batch_create_table_versions", {"entries": staged[1:3]})
    step("list_table_versions", {**request, "limit": 2}, when="one page")
    step("describe_table_version", {**request, "version": 9}, when="no such version")
    gone = {"ranges": [{"start_version": 1, "end_version": 3}]}
    step("batch_delete_table_versions", {**request, **gone})
    operations = [{"declare_table": {"id": [*namespace, "w"]}}, {"create_table_version": staged[3]}]
    step("batch_commit_tables", {"operations": operations})
    story.catalog.drop_table(request)
    step("purge_table", table, force=True, when="several versions")


def _stage(story: Story, table: list[str], *versions: int) -> list[dict[str, Any]]:
    """Put copies of a table's manifest beside its versions, and return what makes versions of them."""
    directory = _directory(story, table)
    made = story.catalog.describe_table_version({"id": table, "version": 1}).version.manifest_path
    keys = {version: f"{directory}/_versions/{version}.manifest-staged" for version in versions}
    if isinstance(story.place, S3Place):
        client, bucket, folder = story.place.server.client(), story.place.bucket, story.place.prefix
        source = {"Bucket": bucket, "Key": made}
        for key in keys.values():
            client.copy_object(Bucket=bucket, Key=f"{folder}/{key}", CopySource=source)
    else:
        assert isinstance(story.place, LocalPlace)
        folder = str(story.place.folder).lstrip("/")
        for key in keys.values():
            shutil.copyfile(f"/{made.lstrip('/')}", story.place.folder / key)
    return [
        {"id": table, "version": version, "manifest_path": f"{folder}/{key}"} for version, key in keys.items()
    ]


def _upkeep(story: Story) -> None:
    step = story.step
    step("check_store")
    step("scrub")
    step("scrub", repair=True, when="repair")
    step("migrate_format", when="nothing to convert")
    step("migrate_markers", dry_run=True, when="dry run")
    step("migrate_markers")
    step("migrate_to_manifest", dry_run=True, when="dry run")
    step("migrate_to_manifest")


def told_verbs(records: Sequence[Mapping[str, Record]]) -> set[str]:
    """Return the verbs that have a record."""
    return {step.rpartition(" | ")[2].partition(",")[0] for each in records for step in each}
