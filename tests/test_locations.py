"""Root URIs and places below them."""

from __future__ import annotations

import os

import pytest

from relance.errors import InvalidInputError
from relance.locations import Scheme, directory_of_location, parse_root


@pytest.mark.parametrize(
    ("text", "scheme", "uri"),
    [
        ("/data/lake/", Scheme.FILE, "/data/lake"),
        ("file:///data/my%20lake", Scheme.FILE, "/data/my lake"),
        ("s3://bucket/a/b/", Scheme.S3, "s3://bucket/a/b"),
        ("gs://bucket", Scheme.GS, "gs://bucket"),
        ("az://container/p", Scheme.AZ, "az://container/p"),
        ("memory://mine", Scheme.MEMORY, "memory://mine"),
    ],
)
def test_root_is_recognised_by_its_scheme(text: str, scheme: Scheme, uri: str) -> None:
    root = parse_root(text)
    assert (root.scheme, root.uri) == (scheme, uri)


def test_relative_root_is_made_absolute() -> None:
    assert parse_root("lake").uri == os.path.join(os.getcwd(), "lake")


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "ftp://x/y",
        "s3://",
        "s3:///x",
        "s3://b/a/../c",
        "s3://b/a%20b",
        "s3://b/a?x",
        "file://host/x",
        "file:/x",
        "s3:/b",
        "s3://k:hunter2@b/x",
    ],
)
def test_invalid_root_is_refused_without_showing_secrets(text: str) -> None:
    with pytest.raises(InvalidInputError) as caught:
        parse_root(text)
    assert "hunter2" not in str(caught.value)


def test_location_may_be_relative_or_absolute_but_stays_below_the_root() -> None:
    assert directory_of_location("t.lance", root_uri="/lake") == "t.lance"
    assert directory_of_location("/lake/t.lance/", root_uri="/lake") == "t.lance"
    assert directory_of_location("file:///lake/t.lance", root_uri="/lake") == "t.lance"
    assert directory_of_location("s3://b/p/t.lance", root_uri="s3://b/p") == "t.lance"
    for bad in ("", ".", "..", "../x", "a/../../x", "/other/t.lance", "s3://c/t.lance", "/lake", "/lake2/t"):
        with pytest.raises(InvalidInputError):
            directory_of_location(bad, root_uri="/lake")
