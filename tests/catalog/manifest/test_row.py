"""What a row of the manifest says, whoever wrote it, and how it changes."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from relance.catalog.manifest.row import (
    ObjectType,
    Row,
    check_properties,
    decode_row,
    encode_row,
    preferred,
)
from relance.errors import InvalidInputError


def read(metadata: str | None, object_id: str = "a$t", location: str | None = "dir") -> Row:
    return decode_row(
        {
            "object_id": object_id,
            "object_type": "table",
            "location": location,
            "metadata": metadata,
            "base_objects": ["x"],
            "extra": 7,
        }
    )


UNUSUAL = [
    '{"n": 1.10, "n2": 100000000000000000000000, "z": null, "d": {"a": [1, true]}}',
    '{ "spaced" : "x" }',
    r'{"half": "\ud800"}',
    '{"twice": "1", "twice": "2"}',
    '{"n":1e400,"deep":[{"n":-1e400}]}',
    '{"n": 0.1234567890123456789012, "m": 1e5, "text": "1e5"}',
    r'{"escaped": "\u00e9\/", "\u006b": "v", "k": "w"}',
    '\n{\t"spaced" :\r\n{"a":[ ]} , "b": 1 } ',
    '{"relance.text": "mine"}',
    '{"a": 1E5, "relance.id": 1e400, "relance.theirs": [1e5]}',
    "{}",
    '{"n": NaN}',
    "[]",
    "7",
    '"text"',
    "null",
    "not json",
    "",
    '{"n":',
    "[" * 100_000,
]


@pytest.mark.parametrize("text", UNUSUAL, ids=range(len(UNUSUAL)))
class TestUnusualMetadata:
    def test_unchanged_metadata_is_written_as_it_was(self, text: str) -> None:
        columns = encode_row(read(text).renamed("b$t"))
        assert columns["metadata"] == text
        assert columns["object_id"] == "b$t"
        assert (columns["extra"], columns["base_objects"]) == (7, ["x"])

    def test_dropped_row_is_still_a_row_and_comes_back(self, text: str) -> None:
        dropped = decode_row(encode_row(read(text).dropped("1", "state", cascade="2")))
        assert (dropped.original_id, dropped.control_text, dropped.cascade) == ("a$t", "state", "2")
        back = decode_row(encode_row(dropped.restored("a$t")))
        assert back.properties == read(text).properties
        assert back.is_visible
        assert not back.has_our_keys
        assert packed(encode_row(back)["metadata"]) == packed(text), "each literal comes back as it was"

    def test_other_members_are_written_as_they_were(self, text: str) -> None:
        protected = decode_row(encode_row(read(text).protected(on=True)))
        assert protected.is_protected
        assert protected.properties == read(text).properties
        back = encode_row(decode_row(encode_row(protected.dropped("1", None))).restored("a$t"))
        columns = encode_row(decode_row(back).protected(on=False))
        if text != '{"relance.text": "mine"}':  # read as text once it is alone
            assert packed(columns["metadata"]) == packed(text)


def packed(text: str | None) -> str:
    """Return metadata without spaces between its tokens."""
    return re.sub(r"\s", "", text or "{}")


@pytest.mark.parametrize("text", ["[]", "7", '"text"', "null", "not json", "", '{"n":'])
def test_metadata_that_is_no_object_survives_a_drop_to_the_letter(text: str) -> None:
    row = read(text)
    assert row.properties == {}
    assert row.is_visible
    dropped = decode_row(encode_row(row.protected(on=True).dropped("1", "state")))
    assert dropped.properties == {}
    assert encode_row(dropped.restored("a$t").protected(on=False))["metadata"] == text
    assert json.loads(encode_row(row.with_properties({"k": "v"}))["metadata"]) == {"k": "v"}


def test_properties_are_text_and_leave_out_our_keys() -> None:
    row = read('{"s": "x", "n": 1.5, "z": null, "d": {"é": [1]}, "relance.future": 1}')
    assert row.properties == {"s": "x", "n": "1.5", "z": "null", "d": '{"é": [1]}', "relance.future": "1"}
    assert row.protected(on=True).dropped("1", "state").properties == row.properties
    assert row.with_properties({"k": "v"}).metadata == {"k": "v", "relance.future": 1}
    assert encode_row(Row("a", ObjectType.NAMESPACE))["metadata"] is None


def test_values_of_our_keys_may_be_any_json() -> None:
    metadata = {"relance.id": "b", "relance.control": {"state": 1}, "relance.cascade": 7}
    row = read(json.dumps({**metadata, "relance.protected": True}), "__dropped$1")
    assert (row.control_text, row.is_protected, row.cascade) == ('{"state": 1}', True, "7")
    assert read('{"relance.id": 3}', "__dropped$1").original_id == "__dropped$1"
    assert read('{"relance.id": "b"}').original_id == "a$t", "only a dropped row has another id"


REVIVING = '{"format": 2, "state": "reviving"}'


@pytest.mark.parametrize("object_id", ["a$t", "__dropped"])
@pytest.mark.parametrize(
    "theirs",
    [
        {"relance.control": "mine"},
        {"relance.control": {"format": 2, "state": "deleted"}},
        {"relance.id": 7, "relance.cascade": ["x"], "relance.theirs": "y", "relance.protected": "perhaps"},
    ],
    ids=["state", "nested state", "others"],
)
def test_keys_of_a_dropped_row_are_the_users_in_any_other_row(object_id: str, theirs: dict[str, Any]) -> None:
    row = read(json.dumps({"k": "v", **theirs}), object_id)
    assert row.is_visible
    assert not row.has_our_keys
    assert not row.is_protected
    assert (row.original_id, row.control_text, row.cascade) == (object_id, None, None)
    assert row.properties.keys() == {"k", *theirs}
    dropped = decode_row(encode_row(row.dropped("1", REVIVING, cascade="2")))
    assert (dropped.original_id, dropped.control_text, dropped.cascade) == (object_id, REVIVING, "2")
    assert dropped.properties.keys() == {"k", *(set(theirs) & {"relance.protected"})}
    claimed = decode_row(encode_row(dropped.reviving(REVIVING)))
    assert claimed.is_reviving
    for hidden in (dropped, claimed):
        assert decode_row(encode_row(hidden.restored(object_id))).metadata == {"k": "v", **theirs}


def test_row_goes_through_its_positions() -> None:
    row = Row("a$t", ObjectType.TABLE, "dir", {"k": "v"})
    dropped = row.protected(on=True).dropped("77", "deleted")
    assert (dropped.object_id, dropped.original_parts) == ("__dropped$77", ("a", "t"))
    assert dropped.is_dropped
    assert not dropped.is_visible
    claimed = dropped.reviving(REVIVING)
    assert (claimed.object_id, claimed.original_id, claimed.control_text) == ("a$t", "a$t", REVIVING)
    assert claimed.is_reviving
    assert not claimed.is_visible
    again = claimed.dropped("77", "deleted")
    assert again == dropped
    assert again.restored("a$new") == row.protected(on=True).renamed("a$new")


def test_home_row_carries_no_state_in_either_position() -> None:
    row = Row("n", ObjectType.TABLE, "./n.lance/", {"k": "v"})
    dropped = row.dropped("77", None)
    assert row.is_home
    assert dropped.is_home
    assert dropped.metadata == {"k": "v", "relance.id": "n"}
    assert dropped.with_control("x").dropped("78", None).control_text is None
    assert dropped.restored("n") == row


@pytest.mark.parametrize(
    ("object_id", "object_type", "location"),
    [
        ("n", ObjectType.TABLE, "m.lance"),
        ("n", ObjectType.TABLE, None),
        ("n", ObjectType.TABLE, "/n.lance"),
        ("n", ObjectType.NAMESPACE, "n.lance"),
        ("a$n", ObjectType.TABLE, "a$n.lance"),
    ],
)
def test_other_rows_are_not_home(object_id: str, object_type: str, location: str | None) -> None:
    assert not Row(object_id, object_type, location).is_home


@pytest.mark.parametrize(
    ("text", "directory"),
    [
        ("a", "a"),
        ("a/b.lance", "a/b.lance"),
        ("./a//b/./c/", "a/b/c"),
        ("a/.", "a"),
        ("a.", "a."),
        (".a/..b", ".a/..b"),
        ("100%", "100%"),
        ("a:b", "a:b"),
        *((text, None) for text in ("", ".", "./", "/", "/a", "..", "a/../b", "a/..", "a%2fb", "a%2E")),
        *((text, None) for text in ("s3://b/a", "file:/a", "memory://a", "a\0b")),
    ],
)
def test_location_is_normalized_or_never_followed(text: str, directory: str | None) -> None:
    assert Row("a", ObjectType.TABLE, text).normalized_location == directory


def test_of_two_rows_the_one_without_our_keys_counts() -> None:
    ours = Row("a", ObjectType.TABLE, "x", {"relance.protected": "true"})
    foreign, other = Row("a", ObjectType.TABLE, "y", {"k": 1}), Row("a", ObjectType.TABLE, "z")
    assert preferred([ours, foreign]) is preferred([foreign, ours]) is foreign
    assert preferred([foreign, other]) == preferred([other, foreign])
    assert preferred([ours, other, foreign]) in (foreign, other)
    assert preferred([ours]) is ours


def test_reserved_property_is_refused() -> None:
    with pytest.raises(InvalidInputError):
        check_properties({"relance.x": "1"})
    assert check_properties(None) == {}
