"""Storage options: one spelling of each key, split into what obstore and what pylance take. Pure.

Both libraries sit on the same Rust crate, so a value means the same to both; only the way in differs.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta

from relance.config import StorageOptions
from relance.errors import InvalidInputError
from relance.locations import Scheme

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

    Raises:
        InvalidInputError: a key is unknown for this kind of store, or given twice under two names.
    """
    plain: dict[str, str] = {}
    for key, value in options.items():
        name = _canonical(scheme, key)
        if any(ord(character) < 32 or ord(character) == 127 for character in value):
            raise InvalidInputError(
                f"storage option {key!r} contains a line break or other control character"
            )
        if plain.setdefault(name, value) != value:
            raise InvalidInputError(f"storage option {key!r} is set twice with different values")
    return SplitOptions(
        store={k: v for k, v in plain.items() if k in _STORE_KEYS.get(scheme, frozenset())},
        client={k: v for k, v in plain.items() if k in _CLIENT_KEYS},
        retry=_retry(plain),
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
    if not known:
        raise InvalidInputError(f"unknown storage option {key!r}: {scheme} roots have no storage options")
    near = difflib.get_close_matches(name, known, n=1)
    hint = f"did you mean {near[0]!r}?" if near else f"known options are {', '.join(sorted(known))}"
    raise InvalidInputError(f"unknown storage option {key!r} for {scheme}: {hint}")


def known_keys(scheme: Scheme) -> frozenset[str]:
    """Return the option keys that roots on this kind of store take."""
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
