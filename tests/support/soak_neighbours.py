"""The clients beside the processes of a soak: two that know nothing of Relance, and one that tidies up.

The literal client follows the page on soft delete: it drops and undrops the same names as the processes, and
its calls are replayed with theirs. The native client has names of its own, which a process of Relance drops,
undrops, purges and creates as well; nothing is replayed there, but every error must be a typed one. The kept
tables were created by the native client over names that Relance had purged: whatever scrubs, sweeps and
purges run meanwhile, they must be there at the end, with their rows.
"""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import lancedb
from botocore.exceptions import ClientError
from lance.namespace import DirectoryNamespace as NativeNamespace
from lance_namespace import CreateTableRequest, DropTableRequest
from tests.seeds.clients import DirectoryClient
from tests.support.models.sequential import Verb
from tests.support.roots import LocalPlace, Place, S3Place, rows, stream_of

import relance
from relance.errors import InternalError, InvalidTableStateError, RelanceError

if TYPE_CHECKING:
    from tests.support.soak import Log, Plan

KEPT = 4
THEIRS = 4
KEPT_ROWS = (7, 8, 9)
_PAUSE_SECONDS = 0.05
_WEEK_MS = 7 * 24 * 3600 * 1000


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
    """Have the native client create the kept tables over names that Relance has purged."""
    catalog, client = plan.place.open(), native_of(plan.place)
    for number in range(KEPT):
        name = f"k{number}"
        catalog.create_table({"id": [name]}, stream_of(0))
        catalog.drop_table({"id": [name]})
        assert catalog.purge_table([name], force=True).purged
        if number % 2 and "dir_listing_enabled" not in plan.place.mode:
            given = plan.place.properties.items()
            options = {
                key.removeprefix("storage."): text for key, text in given if key.startswith("storage.")
            }
            stock = lancedb.connect(plan.place.root, storage_options=options or None)
            stock.create_table(name, [{"x": value} for value in KEPT_ROWS])
        else:
            client.create_table(CreateTableRequest(id=[name]), stream_of(*KEPT_ROWS))


def tidy(plan: Plan, log: Log, stop_at: Any) -> None:
    """Scrub, sweep, purge and list, and meddle with the names of the native client."""
    chance, catalog = random.Random(f"{plan.seed} tidy"), plan.open()
    verbs: list[Callable[[str], Any]] = [
        lambda name: catalog.create_table({"id": [name]}, stream_of(1)),
        lambda name: catalog.drop_table({"id": [name]}),
        lambda name: catalog.undrop_table([name]),
        lambda name: catalog.purge_table([name], force=True),
        lambda name: catalog.describe_table({"id": [name]}),
        lambda name: catalog.table_status([name]),
    ]
    upkeep: list[Callable[[], Any]] = [
        lambda: catalog.scrub(repair=True),
        lambda: catalog.list_dropped_tables(),
        lambda: catalog.list_tables({"id": []}),
        lambda: catalog.purge_tables(),
        lambda: catalog.sweep_markers(),
        lambda: _purge_kept(catalog, f"k{chance.randrange(KEPT)}"),
    ]
    while time.monotonic() < stop_at.value:
        time.sleep(_PAUSE_SECONDS * chance.uniform(0, 4))
        try:
            if chance.random() < 0.5:
                chance.choice(verbs)(f"n{chance.randrange(THEIRS)}")
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
    """Return which kept tables are not what the native client created."""
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
