"""Line numbers of TOML keys: correct in every notation, quick and safe on hostile text."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from tests.support.policy.toml_texts import Writer, toml_texts

from relance.policy.lines import KeyPath, scan

TEXT = '''\
# a comment
top = 1

[limits]
max_tables = 5 # [not.a.table]
"quoted \\u00e4" = """
[[rules]]
name = "no"
"""
dotted.'a.b'.c = { x = 1, y.z = [ 1,
  2, { w = 3 }
] }

[[rules]]
name = "a"
[rules.compact]
target_rows = 0

[[rules]]
compact.target_rows = 1
[[rules.inner]]
a = 1
[[rules.inner]]
a = 2
'''


@pytest.mark.parametrize(
    ("path", "line"),
    [
        (("top",), 2),
        (("limits",), 4),
        (("limits", "max_tables"), 5),
        (("limits", "quoted ä"), 6),
        (("limits", "dotted"), 10),
        (("limits", "dotted", "a.b", "c", "x"), 10),
        (("limits", "dotted", "a.b", "c", "y", "z", 1), 11),
        (("limits", "dotted", "a.b", "c", "y", "z", 2, "w"), 11),
        (("rules",), 14),
        (("rules", 0), 14),
        (("rules", 0, "name"), 15),
        (("rules", 0, "compact"), 16),
        (("rules", 0, "compact", "target_rows"), 17),
        (("rules", 0, "compact", "missing"), 16),
        (("rules", 1), 19),
        (("rules", 1, "compact", "target_rows"), 20),
        (("rules", 1, "inner", 1, "a"), 24),
        (("rules", 7, "a"), 14),
        ((), 1),
        (("nowhere",), 1),
    ],
)
def test_line_of_a_key_is_found(path: KeyPath, line: int) -> None:
    tomllib.loads(TEXT)
    assert scan(TEXT).line_of(path) == line


def _paths(value: Any, path: KeyPath = ()) -> Iterator[KeyPath]:
    if path:
        yield path
    if isinstance(value, dict):
        for name, each in value.items():
            yield from _paths(each, (*path, name))
    if isinstance(value, list):
        for number, each in enumerate(value):
            yield from _paths(each, (*path, number))


@settings(max_examples=120, suppress_health_check=list(HealthCheck))
@given(toml_texts())
def test_line_of_every_key_is_found_in_generated_toml(writer: Writer) -> None:
    found = scan(writer.text)
    assert found.end == len(writer.text)
    assert set(_paths(tomllib.loads(writer.text))) == set(found.lines), writer.text
    assert found.lines == writer.lines, writer.text


PIECES = st.sampled_from([*"[]{}=.,ab\n #\"'1\r\\", "[[", "]]", '"""', "'''"])


@settings(max_examples=300)
@given(st.lists(PIECES, max_size=25).map("".join) | st.text(max_size=30))
@example("a = 1979-05-27 07:32:00")
@example('a = """\\')
@example('a = """""""')
def test_scanner_follows_everything_that_tomllib_accepts(text: str) -> None:
    text = text.replace("\r\n", "\n")  # as the parser does before it scans
    found = scan(text)
    try:
        document = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, ValueError):
        return
    assert found.end == len(text)
    assert set(_paths(document)) == set(found.lines)


@pytest.mark.parametrize(
    "text",
    [
        "a = " + "[" * 500_000,
        "a = " + "{a=" * 300_000,
        "a." * 500_000 + "b = 1",
        "[" + "a." * 500_000 + "b]",
    ],
    ids=["lists", "tables", "keys", "headers"],
)
@pytest.mark.timeout(60)  # a scan that is not linear takes hours
def test_deep_nesting_is_detected_quickly(text: str) -> None:
    assert scan(text).too_deep == 1


@pytest.mark.parametrize(
    "text",
    [
        "a = [" + "1," * 400_000 + "]",
        "[[a]]\n" * 150_000,
        "a = '''" + "''x" * 300_000 + "'''",
        'a = """' + "\\\\" * 400_000,
        "#" * 1_000_000,
        "\n" * 1_000_000,
        "a = " + '"' * 1_000_000,
        " " * 1_000_000 + "=",
    ],
    ids=["items", "tables", "literal", "escapes", "comment", "lines", "quotes", "blanks"],
)
@pytest.mark.timeout(60)  # a scan that is not linear takes hours
def test_large_text_is_scanned_quickly(text: str) -> None:
    scanned = scan(text)
    assert not scanned.too_deep
    assert set(scanned.lines.values()) <= set(range(1, text.count("\n") + 2))
