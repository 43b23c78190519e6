"""Properties and storage options."""

from __future__ import annotations

from datetime import timedelta

import pytest

from relance.config import StorageOptions, parse_properties
from relance.errors import InvalidInputError, UnsupportedOperationError
from relance.locations import Scheme
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
def test_unknown_storage_option_is_named_without_its_value(scheme: Scheme) -> None:
    with pytest.raises(InvalidInputError, match="'nonsense_key'") as caught:
        split_options(scheme, {"nonsense_key": "hunter2"})
    assert "hunter2" not in str(caught.value)


def test_storage_option_given_under_two_names_is_refused() -> None:
    with pytest.raises(InvalidInputError, match="twice"):
        split_options(Scheme.S3, {"region": "a", "aws_region": "b"})


def test_lease_of_no_time_is_refused() -> None:
    with pytest.raises(InvalidInputError, match="claim_lease"):
        parse_properties({"root": "/x", "claim_lease": "0s"})
