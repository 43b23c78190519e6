"""The properties a namespace is opened with, checked once. Storage option keys are in storage.options."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from urllib.parse import quote, quote_plus, unquote, unquote_plus

from relance.errors import InvalidInputError, RelanceError, UnsupportedOperationError
from relance.foreign_json import parse_json
from relance.units import parse_duration

STORAGE_PREFIX = "storage."

_TRUE = frozenset({"true", "1", "yes", "on"})
_FALSE = frozenset({"false", "0", "no", "off"})

SETTINGS: dict[str, str] = {
    "root": "Path or URI of the root directory (required).",
    "manifest_enabled": "Track namespaces and tables in the `__manifest` table (V2; default true).",
    "dir_listing_enabled": "Also find root tables by listing the root directory (V1; default true).",
    "manifest_upkeep": "Compact, index and clean up the `__manifest` table in the background (default true).",
    "table_version_tracking_enabled": "Tell clients to commit versions through the catalog (default false).",
    "table_version_management": "Store table versions in the manifest (default: as the root already does).",
    "vend_input_storage_options": "Pass the storage options on to clients that open a table (default true).",
    "drop_ttl": (
        "Retention period: how long a dropped table can be undropped before purge may delete it (default 7d)."
    ),
    "clock_skew": "Largest difference between the clocks of two clients (default 5m).",
    "claim_lease": "How long a claim lasts unless its purge or create renews it (default 10m).",
    "request_age_bound": (
        "How long after signing a request the store may still execute it (default 15m; set 24h for Garage)."
    ),
    "marker_quarantine": "How long obsolete markers are kept before they can be swept (default 7d).",
}
"""Every property that is read, with its meaning; `storage.*` comes on top."""

ENABLE_MANIFEST = (
    "set manifest_enabled = true under [catalog] in relance.toml, or RELANCE_MANIFEST_ENABLED=true"
)
"""The hint of errors about a manifest that is not used."""

_WITHOUT_EFFECT = frozenset(
    # Of the native directory namespace; they tune how it writes the manifest, which ours does otherwise.
    {"inline_optimization_enabled", "dir_listing_to_manifest_migration_enabled", "commit_retries"}
)

_UNAVAILABLE_PREFIXES = (
    "credential_vendor.",
    "dynamic_context_provider.",
    "ops_metrics_enabled",
    "vend_input_storage_options_refresh_interval_millis",
)


class StorageOptions(dict[str, str]):
    """Storage options; their values never appear in a repr."""

    def __repr__(self) -> str:
        return "{" + ", ".join(f"{key!r}: '***'" for key in self) + "}"

    __str__ = __repr__

    def copy(self) -> StorageOptions:
        return StorageOptions(self)

    def __or__(self, other: object) -> StorageOptions:  # type: ignore[override]  # of a dict's overloads
        return StorageOptions({**self, **other}) if isinstance(other, dict) else NotImplemented

    def __ror__(self, other: object) -> StorageOptions:  # type: ignore[override]  # likewise
        return StorageOptions({**other, **self}) if isinstance(other, dict) else NotImplemented

    def secrets(self) -> Iterator[str]:
        """Yield the values that must not reach a message or a log."""
        for key, value in self.items():
            inside = _secrets_inside(value)
            yield from inside
            if inside or any(word in key.lower() for word in _SECRET_WORDS):
                yield value

    def redact(self, text: str) -> str:
        """Return `text` without these secrets, however they are encoded, and without anyone's signatures.

        Every message that quotes a library passes through here before it is cut.
        """
        spellings = {spelling for secret in self.secrets() for spelling in _spellings(secret)}
        for spelling in sorted(spellings - {""}, key=len, reverse=True):
            # %2B and %2b are the same character.
            flags = re.IGNORECASE if "%" in spelling else 0
            text = re.sub(re.escape(spelling), "***", text, flags=flags)
        text = _PRIVATE_KEY.sub("***", text)
        return _SIGNATURE.sub(r"\1***", text)

    def hide_in(self, error: BaseException) -> None:
        """Redact an error and what it was caused by, so that no traceback shows a secret either."""
        each: BaseException | None = error
        while each is not None:
            text = str(each)
            redacted = self.redact(text)
            if redacted != text:
                each.args = (redacted,)
            if isinstance(each, RelanceError):
                each.detail = self.redact(each.detail)
            each = each.__cause__ or each.__context__


class CatalogProperties(tuple[tuple[str, str], ...]):
    """Names and values of a catalog's properties; the values of storage options never appear in a repr."""

    __slots__ = ()

    def __repr__(self) -> str:
        shown = ((key, "***" if key.startswith(STORAGE_PREFIX) else value) for key, value in self)
        return repr(tuple(shown))

    __str__ = __repr__


_SECRET_WORDS = ("key", "secret", "token", "password", "sas")
_USER_INFO = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://([^/@\s]+)@")
_PRIVATE_KEY = re.compile(
    r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(-----END [A-Z ]*PRIVATE KEY-----|\Z)", re.DOTALL
)
_SIGNATURE = re.compile(
    r"((?:\b|%26|%3F)(?:sig|(?:x-amz|x-goog)-(?:signature|security-token|credential)|access_token)(?:=|%3D))[^&\s\"'<>\\]+",
    re.IGNORECASE,
)
"""The parameters of a URL that let whoever reads them in."""


def _secrets_inside(value: str) -> list[str]:
    """Return what is secret in a value by its form: a password, a signature, the key in a JSON document."""
    found = _USER_INFO.findall(value)
    found += [part.partition("=")[2] for part in value.split("&") if part.lstrip("?").startswith("sig=")]
    if value.lstrip().startswith("{"):
        found.append(value)
        try:
            document = parse_json(value)
        except ValueError:
            return found  # half a document: none of it may be shown
        found += _secret_members(document)
    return found


def _secret_members(document: Any, *, is_secret: bool = False) -> Iterator[str]:
    """Yield the texts in a JSON value whose own key, or one above them, names a secret."""
    if isinstance(document, dict):
        for key, member in document.items():
            named = any(word in key.lower() for word in _SECRET_WORDS)
            yield from _secret_members(member, is_secret=is_secret or named)
    elif isinstance(document, list):
        for member in document:
            yield from _secret_members(member, is_secret=is_secret)
    elif isinstance(document, str) and is_secret:
        yield document
        # A library may name a single line of it.
        yield from (line for line in document.splitlines() if _LINE.fullmatch(line))


_LINE = re.compile(r"[^-\s]{8,}")
"""A line of a key. Shorter ones are no secret, and hiding them would hide ordinary words."""


def _spellings(secret: str) -> Iterator[str]:
    """Yield a secret as libraries quote it: in a URL, in JSON, as a literal, on one line."""
    for plain in {secret, unquote(secret), unquote_plus(secret)}:
        yield plain
        for encoded in (
            *(quote(plain, safe=safe) for safe in ("", "/", "/:", "=&", "/=&:")),
            quote_plus(plain),
        ):
            yield encoded
            yield quote(encoded, safe="")
        for literal in (json.dumps(plain)[1:-1], repr(plain)[1:-1]):
            yield literal
            yield json.dumps(literal)[1:-1]
        yield " ".join(plain.split())


@dataclass(frozen=True, slots=True)
class Settings:
    """The checked properties of one namespace."""

    root: str
    storage_options: StorageOptions
    manifest: bool
    dir_listing: bool
    manifest_upkeep: bool
    table_version_tracking: bool
    vend_storage_options: bool
    drop_ttl: timedelta
    clock_skew: timedelta
    claim_lease: timedelta
    request_age_bound: timedelta
    marker_quarantine: timedelta
    table_version_management: bool = False
    """Asks for it; whether a root has it, its manifest tells."""


def parse_properties(properties: Mapping[str, str]) -> Settings:
    """Return the settings that `properties` ask for.

    Raises:
        InvalidInputError: a property is unknown, missing or has an unusable value.
        UnsupportedOperationError: a property asks for something this catalog does not have.
    """
    _refuse_unknown(properties)
    if "root" not in properties:
        raise InvalidInputError(
            "property 'root' is missing: set it to a path or a URI such as s3://bucket/prefix"
        )
    manifest = _flag(properties, "manifest_enabled", default=True)
    dir_listing = _flag(properties, "dir_listing_enabled", default=True)
    if not manifest and not dir_listing:
        raise InvalidInputError(
            "manifest_enabled and dir_listing_enabled are both false, so tables could not be "
            "found: enable one"
        )
    managed = _flag(properties, "table_version_management", default=False)
    if managed and not manifest:
        raise InvalidInputError(
            "table_version_management=true requires manifest_enabled=true: versions are rows of the manifest",
            hint=ENABLE_MANIFEST,
        )
    options = {k[len(STORAGE_PREFIX) :]: v for k, v in properties.items() if k.startswith(STORAGE_PREFIX)}
    return Settings(
        root=properties["root"],
        storage_options=StorageOptions(options),
        manifest=manifest,
        dir_listing=dir_listing,
        manifest_upkeep=_flag(properties, "manifest_upkeep", default=True),
        table_version_tracking=_flag(properties, "table_version_tracking_enabled", default=False),
        vend_storage_options=_flag(properties, "vend_input_storage_options", default=True),
        drop_ttl=_span(properties, "drop_ttl", default=timedelta(days=7)),
        clock_skew=_span(properties, "clock_skew", default=timedelta(minutes=5)),
        claim_lease=_lease(properties),
        request_age_bound=_span(properties, "request_age_bound", default=timedelta(minutes=15)),
        marker_quarantine=_span(properties, "marker_quarantine", default=timedelta(days=7)),
        table_version_management=managed,
    )


def _refuse_unknown(properties: Mapping[str, str]) -> None:
    for name, value in properties.items():
        if not isinstance(value, str):
            raise InvalidInputError(f"property {name!r} must be a string, got {type(value).__name__}")
        if name in SETTINGS or name in _WITHOUT_EFFECT or name.startswith(STORAGE_PREFIX):
            continue
        if name.startswith(_UNAVAILABLE_PREFIXES):
            raise UnsupportedOperationError(f"property {name!r} is not supported: remove it")
        near = difflib.get_close_matches(name, SETTINGS, n=1)
        hint = (
            f"did you mean {near[0]!r}?"
            if near
            else f"known properties are {', '.join(SETTINGS)} and storage.*"
        )
        raise InvalidInputError(f"unknown property {name!r}: {hint}")


def _flag(properties: Mapping[str, str], name: str, *, default: bool) -> bool:
    value = properties.get(name)
    return default if value is None else parse_flag(value, what=f"property {name!r}")


def parse_flag(text: str, *, what: str) -> bool:
    """Return what a text such as `true`, `1`, `no` means.

    Raises:
        InvalidInputError: it means neither.
    """
    if text.lower() in _TRUE:
        return True
    if text.lower() in _FALSE:
        return False
    raise InvalidInputError(f"{what} must be true or false, got {text!r}")


def _span(properties: Mapping[str, str], name: str, *, default: timedelta) -> timedelta:
    value = properties.get(name)
    return default if value is None else parse_duration(value, what=f"property {name!r}")


def _lease(properties: Mapping[str, str]) -> timedelta:
    lease = _span(properties, "claim_lease", default=timedelta(minutes=10))
    if not lease:
        raise InvalidInputError("property 'claim_lease' must be longer than 0: nothing could be done in time")
    return lease
