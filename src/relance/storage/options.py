"""Storage options: one spelling of each key, split into what obstore and what pylance take. Pure.

Both libraries sit on the same Rust crate, so a value means the same to both; only the way in differs.
Lance gets every option, known here or not: it ignores what it does not know. obstore refuses such keys.
"""

from __future__ import annotations

import difflib
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta

from relance.config import StorageOptions
from relance.errors import InvalidInputError
from relance.locations import Scheme
from relance.storage.failures import SETTINGS_HINT

_CLIENT_KEYS = frozenset(
    {
        "allow_http",
        "allow_invalid_certificates",
        "connect_timeout",
        "http1_only",
        "http2_only",
        "pool_idle_timeout",
        "pool_max_idle_per_host",
        "proxy_ca_certificate",
        "proxy_excludes",
        "proxy_url",
        "randomize_addresses",
        "read_timeout",
        "root_certificate",
        "timeout",
        "user_agent",
    }
)
"""Of the HTTP client, the same for every store."""

_RETRY_KEYS = frozenset({"client_max_retries", "client_retry_timeout"})
"""Lance's names for the retry settings: a count, and seconds."""

_LANCE_ONLY_KEYS = frozenset({"download_retry_count"})
"""Tune how Lance reads data files; the catalog's own small objects have no such thing."""

_STORE_KEYS: dict[Scheme, frozenset[str]] = {
    Scheme.S3: frozenset(
        {
            "access_key_id",
            "checksum_algorithm",
            "conditional_put",
            "container_authorization_token_file",
            "container_credentials_full_uri",
            "container_credentials_relative_uri",
            "copy_if_not_exists",
            "default_region",
            "disable_bulk_delete",
            "disable_tagging",
            "endpoint",
            "imdsv1_fallback",
            "metadata_endpoint",
            "region",
            "request_payer",
            "role_arn",
            "role_session_name",
            "s3_express",
            "secret_access_key",
            "server_side_encryption",
            "session_token",
            "skip_signature",
            "sse_bucket_key_enabled",
            "sse_customer_key_base64",
            "sse_kms_key_id",
            "sts_endpoint",
            "unsigned_payload",
            "virtual_hosted_style_request",
            "web_identity_token_file",
        }
    ),
    Scheme.GS: frozenset(
        {
            "application_credentials",
            "base_url",
            "bearer_token",
            "service_account",
            "service_account_key",
            "skip_signature",
        }
    ),
    Scheme.AZ: frozenset(
        {
            "account_key",
            "account_name",
            "authority_host",
            "client_id",
            "client_secret",
            "disable_tagging",
            "encryption_key",
            "endpoint",
            "federated_token_file",
            "msi_endpoint",
            "msi_resource_id",
            "object_id",
            "sas_key",
            "skip_signature",
            "tenant_id",
            "token",
            "use_azure_cli",
            "use_emulator",
            "use_fabric_endpoint",
        }
    ),
}

_URL_KEYS = frozenset({"base_url", "endpoint", "metadata_endpoint", "proxy_url", "sts_endpoint"})
"""Without a scheme in them the store's library ends with a panic."""

_PREFIXES: dict[Scheme, tuple[str, ...]] = {
    Scheme.S3: ("aws_",),
    Scheme.GS: ("google_",),
    Scheme.AZ: ("azure_storage_", "azure_"),
}

_ALIASES: dict[Scheme, dict[str, str]] = {
    Scheme.S3: {
        "endpoint_url": "endpoint",
        "endpoint_url_s3": "endpoint",
        "token": "session_token",
    },
    Scheme.GS: {"service_account_path": "service_account"},
    Scheme.AZ: {
        "access_key": "account_key",
        "master_key": "account_key",
        "bearer_token": "token",
        "sas_token": "sas_key",
        "authority_id": "tenant_id",
    },
}

_NEAR = 0.8
"""An unknown key this similar to a known one is probably misspelled."""

_LANCE_NAMES: dict[Scheme, dict[str, str]] = {
    # pylance parses the names of the Rust crate, which are the prefixed ones where the short is taken.
    Scheme.S3: {},
    Scheme.GS: {"application_credentials": "google_application_credentials"},
    Scheme.AZ: {
        "account_key": "azure_storage_account_key",
        "account_name": "azure_storage_account_name",
        "sas_key": "azure_storage_sas_key",
        "token": "azure_storage_token",
        "endpoint": "azure_endpoint",
        "use_emulator": "azure_storage_use_emulator",
    },
}


@dataclass(frozen=True, slots=True)
class SplitOptions:
    """The same options in the form each library takes."""

    store: dict[str, str]
    client: dict[str, str]
    retry: dict[str, int | timedelta]
    lance: StorageOptions


def split_options(scheme: Scheme, options: Mapping[str, str]) -> SplitOptions:
    """Return `options` sorted by the place each goes to.

    An unknown key goes to Lance as it is, with a warning if it looks like a slip of the pen.

    Raises:
        InvalidInputError: a key is given twice under two names, or a value is not usable.
    """
    plain: dict[str, str] = {}
    for key, value in options.items():
        name = _canonical(scheme, key)
        if any(ord(character) < 32 or ord(character) == 127 for character in value):
            raise InvalidInputError(
                f"storage option {key!r} contains a line break or other control character"
            )
        if name in _URL_KEYS and not value.lower().startswith(("https://", "http://")):
            what = f"storage option {key!r} must begin with https:// or http://"
            raise InvalidInputError(what, hint=SETTINGS_HINT)
        if plain.setdefault(name, value) != value:
            raise InvalidInputError(f"storage option {key!r} is set twice with different values")
    return SplitOptions(
        store={k: v for k, v in plain.items() if k in _STORE_KEYS.get(scheme, frozenset())},
        client={k: v for k, v in plain.items() if k in _CLIENT_KEYS & known_keys(scheme)},
        retry=_retry({k: v for k, v in plain.items() if k in known_keys(scheme)}),
        lance=StorageOptions({_LANCE_NAMES.get(scheme, {}).get(k, k): v for k, v in plain.items()}),
    )


def _canonical(scheme: Scheme, key: str) -> str:
    name = key.lower()
    for prefix in _PREFIXES.get(scheme, ()):
        if name.startswith(prefix):
            name = name[len(prefix) :]
            break
    name = _ALIASES.get(scheme, {}).get(name, name)
    known = known_keys(scheme)
    if name in known:
        return name
    if near := difflib.get_close_matches(name, known, n=1, cutoff=_NEAR):
        warnings.warn(
            f"storage option {key!r} is unknown for {scheme} and only passed on to Lance; did you mean "
            f"{near[0]!r}?",
            UserWarning,
            stacklevel=2,
        )
    return key


def known_keys(scheme: Scheme) -> frozenset[str]:
    """Return the options that Relance itself uses on this kind of store."""
    if scheme not in _STORE_KEYS:
        return frozenset()
    return _STORE_KEYS[scheme] | _CLIENT_KEYS | _RETRY_KEYS | _LANCE_ONLY_KEYS


def _retry(options: Mapping[str, str]) -> dict[str, int | timedelta]:
    retry: dict[str, int | timedelta] = {}
    for key in sorted(_RETRY_KEYS & set(options)):
        if not options[key].isdecimal():
            raise InvalidInputError(f"storage option {key!r} must be a whole number, got {options[key]!r}")
        number = int(options[key])
        if key == "client_max_retries":
            retry["max_retries"] = number
        else:
            retry["retry_timeout"] = timedelta(seconds=number)
    return retry
