"""The clients beside the processes of a soak: three that know nothing of Relance, and one that tidies up.

The literal client follows the page on soft delete: it drops and undrops the same names as the processes, and
its calls are replayed with theirs. The client of the manifest follows the page on the implementation: it
merge-inserts rows and deletes them. Some tables are its alone, in the root and in a namespace; no row of
them may ever get lost, come back or lead elsewhere. The others, and those of the native client, a process
of Relance drops, undrops, purges and creates as well; nothing is replayed there, but every error must be a
typed one. The kept tables were created by other clients over names that Relance had purged: whatever
scrubs, sweeps and purges run meanwhile, they must be there at the end, with their rows.
"""

from __future__ import annotations

import json
import random
import re
import secrets
import shutil
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import lance
import lancedb
from botocore.exceptions import ClientError
from lance.namespace import DirectoryNamespace as NativeNamespace
from lance_namespace import CreateTableRequest, DropTableRequest
from tests.seeds.clients import DirectoryClient, ManifestClient
from tests.support import calls
from tests.support.calls import ident
from tests.support.models.sequential import Verb
from tests.support.roots import LocalPlace, Place, S3Place, numbers, rows, stream_of

import relance
from relance.errors import InternalError, InvalidTableStateError, RelanceError

if TYPE_CHECKING:
    from tests.support.soak import Log, Plan

KEPT = 4
THEIRS = 4
ALONE = ("m0", "m1", "s/m0", "s/m1")
"""Tables of the client of the manifest that nobody else touches."""
SHARED = ("x0", "x1", "s/x0", "s/x1")
"""Tables that this client and Relance create and drop."""
KEPT_ROWS = (7, 8, 9)
_PAUSE_SECONDS = 0.05
_WEEK_MS = 7 * 24 * 3600 * 1000
_CONFLICT = re.compile("conflict|incompatible|concurrent", re.IGNORECASE)
"""In what Lance says of a commit that came after one that it does not go with."""

_T = TypeVar("_T")


class _Literal(Protocol):
    def has_table(self, name: str) -> bool: ...
    def drop(self, name: str) -> None:
        """Create the marker; FileExistsError: there is one."""

    def undrop(self, name: str) -> None:
        """Delete the marker; FileNotFoundError: there is none."""


class _LiteralOnDisk:
    def __init__(self, folder: Path) -> None:
        self._client = DirectoryClient(folder)

    def has_table(self, name: str) -> bool:
        versions = self._client.directory(name) / "_versions"
        return versions.is_dir() and any(versions.glob("*.manifest"))

    def drop(self, name: str) -> None:
        self._client.drop(name)

    def undrop(self, name: str) -> None:
        self._client.undrop(name)


class _LiteralOnS3:
    def __init__(self, place: S3Place) -> None:
        self._place, self._client = place, place.server.client()

    def _marker(self, name: str) -> dict[str, str]:
        return {"Bucket": self._place.bucket, "Key": f"{self._place.prefix}/{name}.deleted"}

    def has_table(self, name: str) -> bool:
        prefix = f"{self._place.prefix}/{name}.lance/_versions/"
        found = self._client.list_objects_v2(Bucket=self._place.bucket, Prefix=prefix, MaxKeys=1)
        return bool(found["KeyCount"])

    def drop(self, name: str) -> None:
        body = {"deleted_at_ms": round(time.time() * 1000), "ttl_ms": _WEEK_MS}
        try:
            self._client.put_object(**self._marker(name), Body=json.dumps(body).encode(), IfNoneMatch="*")
        except ClientError as error:
            raise FileExistsError(name) from error

    def undrop(self, name: str) -> None:
        try:
            self._client.head_object(**self._marker(name))
        except ClientError as error:
            raise FileNotFoundError(name) from error
        self._client.delete_object(**self._marker(name))


def _literal_of(place: Place) -> _Literal:
    if isinstance(place, LocalPlace):
        return _LiteralOnDisk(place.folder)
    assert isinstance(place, S3Place)
    return _LiteralOnS3(place)


def literal(plan: Plan, log: Log, stop_at: Any) -> None:
    """Drop and undrop the names of the processes, as the page on soft delete says.

    Whether such a call had an effect is open: a marker in its way may be a late one, and deleting the marker
    of a drop soon after an undrop means nothing.
    """
    chance, client = random.Random(f"{plan.seed} literal"), _literal_of(plan.place)
    verbs: dict[Verb, Callable[[str], None]] = {Verb.DROP: client.drop, Verb.UNDROP: client.undrop}
    while time.monotonic() < stop_at.value:
        time.sleep(_PAUSE_SECONDS * chance.uniform(0, 4))
        name, verb = plan.choose_name(chance), chance.choice(list(verbs))
        if verb is Verb.DROP and not client.has_table(name):
            continue
        with log.call(verb, name, None) as outcome:
            outcome["answer"], outcome["detail"] = NEIGHBOUR, ""
            try:
                verbs[verb](name)
            except (FileExistsError, FileNotFoundError) as refusal:
                outcome["detail"] = repr(refusal)


NEIGHBOUR = "done by a neighbour, or not"
"""The answer in the log to a call of the literal client."""


def has_directories(place: Place) -> bool:
    """Tell whether a directory alone is a table, so that markers mean something."""
    return "dir_listing_enabled" not in place.mode


def has_manifest(place: Place) -> bool:
    """Tell whether a row alone is a table."""
    return "manifest_enabled" not in place.mode


@dataclass(frozen=True, slots=True)
class _RowClient:
    """A V2 client: it writes a table and merge-inserts its row, or deletes the row and the table."""

    place: Place

    @property
    def manifest(self) -> ManifestClient:
        return ManifestClient(self.place.root, _storage_options(self.place))

    def location_of(self, path: str) -> str | None:
        row = self.manifest.rows().get(path.replace("/", "$"))
        return None if row is None else row["location"]

    def create(self, path: str, tag: int) -> str | None:
        """Write a table of one row; None: another client has the name."""
        object_id = path.replace("/", "$")
        at_home = has_directories(self.place) and "/" not in path
        location = f"{path}.lance" if at_home else f"{secrets.token_hex(4)}_{object_id}"
        uri = f"{self.place.root}/{location}"
        lance.write_dataset(numbers(tag), uri, storage_options=_storage_options(self.place))
        inserted = _persistently(lambda: self.manifest.insert(object_id, "table", location))
        return location if inserted else None

    def drop(self, path: str, location: str) -> None:
        _persistently(lambda: self.manifest.delete(path.replace("/", "$")))
        if isinstance(self.place, LocalPlace):
            shutil.rmtree(self.place.folder / location, ignore_errors=True)
            return
        assert isinstance(self.place, S3Place)
        client, bucket = self.place.server.client(), self.place.bucket
        found = client.list_objects_v2(Bucket=bucket, Prefix=f"{self.place.prefix}/{location}/")
        for each in found.get("Contents", []):
            client.delete_object(Bucket=bucket, Key=each["Key"])


def _persistently(commit: Callable[[], _T]) -> _T:
    """Commit to the manifest again until no other client is faster."""
    while True:
        try:
            return commit()
        except OSError as error:
            if not _CONFLICT.search(str(error)):
                raise


def inserting(plan: Plan, log: Log, stop_at: Any) -> None:
    """Create and drop tables as the page on the implementation says, and check those that are ours alone."""
    chance, client = random.Random(f"{plan.seed} inserting"), _RowClient(plan.place)
    catalog, mine = plan.place.open(), dict[str, tuple[str, int]]()
    for tag in count():
        if time.monotonic() >= stop_at.value:
            return
        time.sleep(_PAUSE_SECONDS * chance.uniform(0, 4))
        path = chance.choice(ALONE + SHARED)
        if path in SHARED:
            _meddle(client, log, path, tag)
        elif path not in mine:
            location = client.create(path, tag)
            if location is None:
                log.note(event="violation", what=f"'{path}' has a row that nobody inserted")
                continue
            mine[path] = location, tag
            log.note(event="rows done")
        else:
            location, expected = mine.pop(path)
            found, seen = client.location_of(path), calls.rows(catalog, path)
            if (found, seen) != (location, [expected]):
                what = f"'{path}' is at {found} with {seen}, instead of {location} with {expected}"
                log.note(event="violation", what=what)
            client.drop(path, location)
            log.note(event="rows done")


def _meddle(client: _RowClient, log: Log, path: str, tag: int) -> None:
    """Create or drop a table that Relance changes too; what this client is told is its own affair."""
    try:
        location = client.location_of(path)
        if location is None:
            client.create(path, tag)
        else:
            client.drop(path, location)
    except (OSError, ValueError, RuntimeError) as error:
        log.note(event="rows refused", what=repr(error))
    else:
        log.note(event="rows done")


def row_violations(plan: Plan) -> list[str]:
    """Return the ids that the manifest has twice."""
    if not has_manifest(plan.place):
        return []
    manifest = ManifestClient(plan.place.root, _storage_options(plan.place))
    dataset = lance.dataset(manifest.uri, storage_options=manifest.storage_options)
    ids = Counter(dataset.to_table()["object_id"].to_pylist())
    return [f"the manifest has {times} rows '{object_id}'" for object_id, times in ids.items() if times > 1]


def _storage_options(place: Place) -> dict[str, str] | None:
    given = place.properties.items()
    return {key.removeprefix("storage."): text for key, text in given if key.startswith("storage.")} or None


def native_of(place: Place) -> NativeNamespace:
    """Open the root natively, in the mode of the soak."""
    return NativeNamespace(**(place.properties | {"vend_input_storage_options": "true"}))


def native(plan: Plan, log: Log, stop_at: Any) -> None:
    """Create and drop tables of its own; what it is told if Relance is faster is its own affair."""
    chance, client = random.Random(f"{plan.seed} native"), native_of(plan.place)
    while time.monotonic() < stop_at.value:
        time.sleep(_PAUSE_SECONDS * chance.uniform(0, 4))
        name = f"n{chance.randrange(THEIRS)}"
        try:
            if chance.random() < 0.6:
                client.create_table(CreateTableRequest(id=[name]), stream_of(*KEPT_ROWS))
            else:
                client.drop_table(DropTableRequest(id=[name]))
        except Exception as error:  # noqa: BLE001  # native raises several families of errors
            log.note(event="native refused", what=type(error).__name__)
        else:
            log.note(event="native done")


def prepare(plan: Plan) -> None:
    """Have other clients create the kept tables over names that Relance has purged."""
    catalog, client = plan.place.open(), native_of(plan.place)
    if has_manifest(plan.place):
        catalog.create_namespace({"id": ["s"]})
    for number in range(KEPT):
        name = f"k{number}"
        catalog.create_table({"id": [name]}, stream_of(0))
        catalog.drop_table({"id": [name]})
        assert catalog.purge_table([name], force=True).purged
        if number == 0 and has_manifest(plan.place):
            location = f"{name}.lance" if has_directories(plan.place) else None
            manifest = ManifestClient(plan.place.root, _storage_options(plan.place))
            manifest.create_table(name, numbers(*KEPT_ROWS), location)
        elif number % 2 and has_directories(plan.place):
            stock = lancedb.connect(plan.place.root, storage_options=_storage_options(plan.place))
            stock.create_table(name, [{"x": value} for value in KEPT_ROWS])
        else:
            client.create_table(CreateTableRequest(id=[name]), stream_of(*KEPT_ROWS))


def tidy(plan: Plan, log: Log, stop_at: Any) -> None:
    """Scrub, sweep, purge and list, and meddle with the names of clients that know nothing of Relance."""
    chance, catalog = random.Random(f"{plan.seed} tidy"), plan.open()
    verbs: list[Callable[[str], Any]] = [
        lambda path: catalog.create_table({"id": ident(path)}, stream_of(1)),
        lambda path: catalog.drop_table({"id": ident(path)}),
        lambda path: catalog.undrop_table(ident(path)),
        lambda path: catalog.purge_table(ident(path), force=True),
        lambda path: catalog.describe_table({"id": ident(path)}),
        lambda path: catalog.table_status(ident(path)),
    ]
    upkeep: list[Callable[[], Any]] = [
        lambda: catalog.scrub(repair=True),
        lambda: catalog.list_dropped_tables(),
        lambda: catalog.list_tables({"id": []}),
        lambda: catalog.purge_tables(),
        lambda: catalog.sweep_markers(),
        lambda: _purge_kept(catalog, f"k{chance.randrange(KEPT)}"),
    ]
    paths = [f"n{number}" for number in range(THEIRS)]
    paths += SHARED if has_manifest(plan.place) else ()
    while time.monotonic() < stop_at.value:
        time.sleep(_PAUSE_SECONDS * chance.uniform(0, 4))
        try:
            if chance.random() < 0.5:
                chance.choice(verbs)(chance.choice(paths))
            else:
                chance.choice(upkeep)()
        except InternalError as error:
            log.note(event="violation", what=f"tidying up ended with {error!r}")
        except RelanceError:
            continue  # typed, and the caller is told what to do


def _purge_kept(catalog: relance.DirectoryNamespace, name: str) -> None:
    try:
        catalog.purge_table([name], force=True)
    except InvalidTableStateError:
        return
    raise InternalError(f"'{name}' was purged, and nobody had dropped it")


def kept_violations(plan: Plan, catalog: relance.DirectoryNamespace) -> list[str]:
    """Return which kept tables are not what other clients created."""
    listed = catalog.list_tables({"id": []}).tables
    wrong = [f"k{number} is not listed" for number in range(KEPT) if f"k{number}" not in listed]
    expected = [{"x": value} for value in KEPT_ROWS]
    for name in (f"k{number}" for number in range(KEPT)):
        try:
            seen = rows(catalog, name)
        except (RelanceError, OSError, ValueError) as error:
            wrong.append(f"{name} cannot be read: {error!r}")
        else:
            wrong += [f"{name} has the rows {seen}"] if seen != expected else []
    return wrong
