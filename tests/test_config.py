"""Properties and storage options."""

from __future__ import annotations

import copy
import json
import pickle
import traceback
from datetime import timedelta
from typing import Any
from urllib.parse import quote, quote_plus, unquote

import pytest

import relance
from relance.config import StorageOptions, parse_properties
from relance.errors import InvalidInputError, UnsupportedOperationError
from relance.locations import Scheme, parse_root
from relance.storage.connect import connect
from relance.storage.options import split_options


def test_unknown_property_is_refused_and_a_similar_one_suggested() -> None:
    with pytest.raises(InvalidInputError, match="did you mean 'manifest_enabled'"):
        parse_properties({"root": "/x", "manifest_enable": "false"})


def test_missing_root_and_invalid_boolean_are_refused() -> None:
    with pytest.raises(InvalidInputError, match="'root' is missing"):
        parse_properties({})
    with pytest.raises(InvalidInputError, match="must be true or false"):
        parse_properties({"root": "/x", "manifest_enabled": "maybe"})


def test_unsupported_property_is_named_in_the_error() -> None:
    for name in ("credential_vendor.enabled", "dynamic_context_provider.x", "ops_metrics_enabled"):
        with pytest.raises(UnsupportedOperationError, match=name):
            parse_properties({"root": "/x", name: "true"})


def test_manifest_and_directory_listing_are_on_unless_disabled() -> None:
    settings = parse_properties({"root": "/x"})
    assert (settings.manifest, settings.dir_listing) == (True, True)
    assert not parse_properties({"root": "/x", "manifest_enabled": "false"}).manifest
    assert not parse_properties({"root": "/x", "dir_listing_enabled": "false"}).dir_listing
    with pytest.raises(InvalidInputError, match="enable one"):
        parse_properties({"root": "/x", "manifest_enabled": "false", "dir_listing_enabled": "false"})


@pytest.mark.parametrize("text", ["true", "True", "1", "yes", "ON"])
def test_boolean_properties_accept_the_usual_spellings(text: str) -> None:
    assert parse_properties({"root": "/x", "table_version_tracking_enabled": text}).table_version_tracking


def test_storage_options_never_show_their_values() -> None:
    options = StorageOptions({"secret_access_key": "hunter2", "region": "eu"})
    assert "hunter2" not in repr(options) + str(options) + f"{options}"
    assert options.redact("failed with hunter2 in eu") == "failed with *** in eu"
    assert dict(options)["secret_access_key"] == "hunter2"


def test_copies_of_storage_options_hide_their_values_too() -> None:
    options = StorageOptions({"secret_access_key": "hunter2"})
    grown = options.copy()
    grown |= {"session_token": "hunter3"}
    made = [
        options.copy(),
        copy.copy(options),
        copy.deepcopy(options),
        pickle.loads(pickle.dumps(options)),
        options | {"session_token": "hunter3"},
        {"session_token": "hunter3"} | options,
        grown,
    ]
    assert not [each for each in made if "hunter" in f"{each!r} {each}" or type(each) is not StorageOptions]
    assert {"secret_access_key": "hunter2"} | options == options.copy() == options
    assert ({"secret_access_key": "old"} | options)["secret_access_key"] == "hunter2"
    assert (options | {"secret_access_key": "new"})["secret_access_key"] == "new"
    with pytest.raises(TypeError):
        options | [("a", "b")]


def test_properties_of_a_catalog_hide_its_storage_options() -> None:
    given: dict[str, Any] = {
        "root": "s3://bucket/lake",
        "storage.access_key_id": "hunter1",
        "storage.secret_access_key": "hunter2",
        "storage.region": "eu",
    }
    properties = relance.DirectoryNamespace(**given).properties
    for each in (properties, pickle.loads(pickle.dumps(properties))):
        assert "hunter" not in f"{each!r} {each}"
        assert "s3://bucket/lake" in repr(each)
        assert dict(each)["storage.secret_access_key"] == "hunter2"
        assert (each, hash(each)) == (tuple(properties), hash(tuple(properties)))


PRIVATE_KEY = (
    "-----BEGIN PRIVATE KEY-----\nMIIEfirstline+of/it\nsecondlineofit==\n-----END PRIVATE KEY-----\n"
)
ACCOUNT = {
    "type": "service_account",
    "private_key_id": "4f1d2c3b",
    "private_key": PRIVATE_KEY,
    "client_id": "7",
}
SIGNATURE = "a+b/c d=="
SAS = f"sv=2022-11-02&se=2030-01-01T00%3A00%3A00Z&sig={quote(SIGNATURE, safe='')}"


@pytest.mark.parametrize("option", ["service_account", "application_credentials", "service_account_key"])
@pytest.mark.parametrize(
    "shown",
    [
        json.dumps(ACCOUNT),
        json.dumps(json.dumps(ACCOUNT)),
        repr(json.dumps(ACCOUNT)),
        json.dumps(ACCOUNT["private_key"]),
        PRIVATE_KEY,
        " ".join(PRIVATE_KEY.split()),
        PRIVATE_KEY.splitlines()[1],
        PRIVATE_KEY[:60],
        "key 4f1d2c3b is disabled",
    ],
)
def test_inline_service_account_is_never_shown(option: str, shown: str) -> None:
    text = StorageOptions({option: json.dumps(ACCOUNT)}).redact(f"cannot use {shown} in eu")
    assert text.startswith("cannot use ")
    assert "***" in text
    for secret in ("MIIE", "firstline", "secondline", "4f1d2c3b"):
        assert secret not in text


@pytest.mark.parametrize("shown", ["nestedtoken", "headervalue", "second+secret"])
def test_secrets_inside_an_inline_document_are_never_shown_however_deep_they_are(shown: str) -> None:
    document = {
        "type": "external_account",
        "credential_source": {"headers": {"Authorization-Token": "headervalue"}},
        "accounts": [{"refresh_token": "nestedtoken"}, {"secrets": ["second+secret"]}],
    }
    options = StorageOptions({"application_credentials": json.dumps(document)})
    assert options.redact(f"the library says {shown}!") == "the library says ***!"
    assert options.redact("external_account is unknown") == "external_account is unknown"


@pytest.mark.parametrize("odd", ['{"a":' * 50_000, '{"a":' * 50_000 + "1" + "}" * 50_000, '{"a": NaN}', "{}"])
def test_inline_document_that_cannot_be_read_is_hidden_whole(odd: str) -> None:
    assert StorageOptions({"service_account": odd}).redact(f"no file {odd}: x") == "no file ***: x"


def test_half_a_service_account_is_hidden_whole() -> None:
    half = json.dumps(ACCOUNT)[:-30]
    assert StorageOptions({"service_account": half}).redact(f"no file {half}: x") == "no file ***: x"


@pytest.mark.parametrize("given", [SAS, f"?{SAS}", unquote(SAS), SAS.replace("%2B", "%2b")])
@pytest.mark.parametrize(
    "shown",
    [
        SAS,
        unquote(SAS),
        quote(SAS, safe=""),
        quote(unquote(SAS), safe="=&"),
        SAS.replace("%2B", "%2b"),
        f"https://acc.blob/c?restype=container&{SAS.partition('&')[2]}",
        f"https://acc.blob/c?sig={quote_plus(SIGNATURE)}&sv=2022-11-02",
        f"sent {SIGNATURE}",
    ],
)
def test_sas_token_is_never_shown_however_it_is_encoded(given: str, shown: str) -> None:
    text = StorageOptions({"sas_token": given}).redact(f"403 for {shown} (retried)")
    assert text.startswith("403 for ")
    assert text.endswith("(retried)")
    for secret in (SIGNATURE, "a+b", "a%2B", "a%2b", "%252B", "c d==", "%20d"):
        assert secret not in text


@pytest.mark.parametrize(
    "url",
    [
        "https://b.s3/k?X-Amz-Credential=AKIA&X-Amz-Signature=0badcafe&x=1",
        "https://acc.blob/c?sv=1&sig=0badcafe",
        "https://storage/k?X-Goog-Signature=0badcafe",
        "https://b.s3/k?X-Amz-Security-Token=0badcafe%2B",
    ],
)
def test_signatures_of_urls_are_never_shown_even_when_nobody_gave_them(url: str) -> None:
    assert "0badcafe" not in StorageOptions().redact(f"GET {url} failed")
    assert "AKIA" not in StorageOptions().redact(f"GET {url} failed")


def test_ordinary_texts_stay_as_they_are() -> None:
    text = "table id 't' (signature of the schema, sign=1, design=2): {'a': 1} @ s3://b/p 100%"
    assert StorageOptions({"region": "eu", "proxy_url": "http://host:1"}).redact(text) == text
    assert StorageOptions({"secret_access_key": ""}).redact(text) == text


def test_errors_of_a_library_and_their_causes_are_redacted() -> None:
    secret = "hunter2"
    cause = OSError(f"GET with {secret}")
    error = InvalidInputError(f"bad: {cause}")
    error.__cause__ = cause
    StorageOptions({"secret_access_key": secret}).hide_in(error)
    assert secret not in "".join(traceback.format_exception(error))
    assert error.detail == "bad: GET with ***"


def test_storage_options_are_split_by_consumer() -> None:
    split = split_options(
        Scheme.S3,
        {
            "aws_access_key_id": "k",
            "AWS_ENDPOINT_URL": "http://e",
            "allow_http": "true",
            "client_max_retries": "3",
            "client_retry_timeout": "9",
        },
    )
    assert split.store == {"access_key_id": "k", "endpoint": "http://e"}
    assert split.client == {"allow_http": "true"}
    assert split.retry == {"max_retries": 3, "retry_timeout": timedelta(seconds=9)}
    assert split.lance["access_key_id"] == "k"


@pytest.mark.parametrize("scheme", list(Scheme))
def test_unknown_storage_option_goes_to_lance_alone_as_it_is(scheme: Scheme) -> None:
    split = split_options(scheme, {"Nonsense.Key": "hunter2"})
    assert split.lance == {"Nonsense.Key": "hunter2"}
    assert (split.store, split.client, split.retry) == ({}, {}, {})


@pytest.mark.parametrize("scheme", [Scheme.S3, Scheme.GS, Scheme.AZ])
def test_misspelled_storage_option_gives_a_warning_without_its_value(scheme: Scheme) -> None:
    with pytest.warns(UserWarning, match="did you mean 'allow_http'") as caught:
        split_options(scheme, {"alow_http": "hunter2"})
    assert "hunter2" not in str(caught[0].message)


@pytest.mark.parametrize("scheme", [Scheme.FILE, Scheme.MEMORY])
def test_options_of_other_stores_reach_lance_on_a_disk(scheme: Scheme) -> None:
    options = {"region": "eu", "allow_http": "true", "client_max_retries": "many", "AWS_REGION": "eu"}
    split = split_options(scheme, options)
    assert split.lance == options
    assert (split.store, split.client, split.retry) == ({}, {}, {})


ROOTS: dict[str, tuple[dict[str, str], dict[str, str], dict[str, str]]] = {
    "s3://bucket/lake": (
        {"region": "eu", "AWS_ENDPOINT": "http://localhost:1", "allow_http": "true", "new_option": "1"},
        {"region": "eu", "endpoint": "http://localhost:1"},
        {"region": "eu", "endpoint": "http://localhost:1", "allow_http": "true", "new_option": "1"},
    ),
    "gs://bucket/lake": (
        {"google_skip_signature": "true", "timeout": "5s", "new_option": "1"},
        {"skip_signature": "true"},
        {"skip_signature": "true", "timeout": "5s", "new_option": "1"},
    ),
    "az://container/lake": (
        {"account_name": "lake", "azure_storage_account_key": "a2V5", "new_option": "1"},
        {"account_name": "lake", "account_key": "a2V5"},
        {"azure_storage_account_name": "lake", "azure_storage_account_key": "a2V5", "new_option": "1"},
    ),
}
"""Per root: the options, those that obstore gets, and those that Lance gets."""


@pytest.mark.parametrize("root", ROOTS)
def test_obstore_and_lance_get_the_options_of_a_root(root: str) -> None:
    given, for_obstore, for_lance = ROOTS[root]
    assert split_options(parse_root(root).scheme, given).store == for_obstore
    assert connect(parse_root(root), given).lance_options == for_lance  # obstore refuses unknown keys


@pytest.mark.parametrize("root", ["memory://lake", "/lake"])
def test_lance_gets_all_options_of_a_root_on_disk(root: str) -> None:
    given = {"region": "eu", "new_option": "1"}
    assert connect(parse_root(root), given).lance_options == given


def test_storage_option_given_under_two_names_is_refused() -> None:
    with pytest.raises(InvalidInputError, match="twice"):
        split_options(Scheme.S3, {"region": "a", "aws_region": "b"})


def test_lease_of_no_time_is_refused() -> None:
    with pytest.raises(InvalidInputError, match="claim_lease"):
        parse_properties({"root": "/x", "claim_lease": "0s"})


@pytest.mark.parametrize(
    "name", ["drop_ttl", "clock_skew", "claim_lease", "request_age_bound", "marker_quarantine"]
)
def test_duration_without_a_unit_is_refused_and_named(name: str) -> None:
    with pytest.raises(InvalidInputError, match=f"property '{name}' has no unit: '30'; use "):
        parse_properties({"root": "/x", name: "30"})
