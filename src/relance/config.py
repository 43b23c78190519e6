"""The properties a namespace is opened with, checked once. Storage option keys are in storage.options."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from relance.errors import InvalidInputError, UnsupportedOperationError

STORAGE_PREFIX = "storage."

_TRUE = frozenset({"true", "1", "yes", "on"})
_FALSE = frozenset({"false", "0", "no", "off"})

SETTINGS: dict[str, str] = {
    "root": "Path or URI of the root directory (required).",
    "manifest_enabled": "Track tables in the `__manifest` table (V2). Only `false` is available.",
    "dir_listing_enabled": "Find tables by listing the root directory (V1). Only `true` is available.",
    "table_version_tracking_enabled": "Tell clients to commit versions through the catalog (default false).",
    "vend_input_storage_options": "Give the storage options to clients that open a table (default true).",
}
"""Every property that is read, with its meaning; `storage.*` comes on top."""

_WITHOUT_EFFECT = frozenset(
    # Of the native directory namespace; they tune its manifest, which a V1 catalog does not have.
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

    def secrets(self) -> Iterator[str]:
        """Yield the values that must not reach a message or a log."""
        for key, value in self.items():
            if value and any(word in key.lower() for word in ("key", "secret", "token", "password", "sas")):
                yield value
            if "://" in value and "@" in value:
                yield value.partition("://")[2].rpartition("@")[
                    0
                ]  # user and password of an endpoint or proxy

    def redact(self, text: str) -> str:
        """Return `text` with every secret value blotted out."""
        for secret in sorted(self.secrets(), key=len, reverse=True):
            text = text.replace(secret, "***")
        return text


@dataclass(frozen=True, slots=True)
class Settings:
    """The checked properties of one namespace."""

    root: str
    storage_options: StorageOptions
    table_version_tracking: bool
    vend_storage_options: bool


def parse_properties(properties: Mapping[str, str]) -> Settings:
    """Return the settings that `properties` ask for.

    Raises:
        InvalidInputError: a property is unknown, missing or has an unusable value.
        UnsupportedOperationError: a property asks for something this catalog does not have.
    """
    _refuse_unknown(properties)
    if "root" not in properties:
        raise InvalidInputError("property 'root' is missing: give a path or a URI such as s3://bucket/prefix")
    if _flag(properties, "manifest_enabled", default=False):
        raise UnsupportedOperationError(
            "manifest_enabled=true: this release has the directory catalog (V1) only; "
            "open the root with manifest_enabled=false"
        )
    if not _flag(properties, "dir_listing_enabled", default=True):
        raise InvalidInputError(
            "dir_listing_enabled=false leaves nothing to find tables by while manifest_enabled is false"
        )
    options = {k[len(STORAGE_PREFIX) :]: v for k, v in properties.items() if k.startswith(STORAGE_PREFIX)}
    return Settings(
        root=properties["root"],
        storage_options=StorageOptions(options),
        table_version_tracking=_flag(properties, "table_version_tracking_enabled", default=False),
        vend_storage_options=_flag(properties, "vend_input_storage_options", default=True),
    )


def _refuse_unknown(properties: Mapping[str, str]) -> None:
    for name, value in properties.items():
        if not isinstance(value, str):
            raise InvalidInputError(f"property {name!r} must be a string, got {type(value).__name__}")
        if name in SETTINGS or name in _WITHOUT_EFFECT or name.startswith(STORAGE_PREFIX):
            continue
        if name.startswith(_UNAVAILABLE_PREFIXES):
            raise UnsupportedOperationError(f"property {name!r} is not available: leave it out")
        near = difflib.get_close_matches(name, SETTINGS, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"known are {', '.join(SETTINGS)} and storage.*"
        raise InvalidInputError(f"unknown property {name!r}: {hint}")


def _flag(properties: Mapping[str, str], name: str, *, default: bool) -> bool:
    value = properties.get(name)
    if value is None:
        return default
    if value.lower() in _TRUE:
        return True
    if value.lower() in _FALSE:
        return False
    raise InvalidInputError(f"property {name!r} must be true or false, got {value!r}")
