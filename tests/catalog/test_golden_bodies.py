"""Golden bodies of format 2: arbiters in every state, markers, rows. docs/format shows no others."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from tests.support.paths import REPOSITORY

from relance.catalog.manifest.row import decode_row, encode_row
from relance.catalog.states import (
    SHORT_MAX_BYTES,
    TRANSITIONS,
    State,
    control_text,
    decode_control,
    decode_mark,
    encode_control,
    encode_mark,
    is_format_1,
)

GOLDEN = Path(__file__).parent / "golden" / "format2"
CONTROLS = sorted(GOLDEN.glob("*.control"))
MARKS = sorted(GOLDEN.glob("*.deleted"))
ROWS = sorted(GOLDEN.glob("*.row.json"))
PAGES = sorted((REPOSITORY / "docs" / "format").glob("*.md"))
SHORT = {State.CLEARED, State.WRITING}


def _name(path: Path) -> str:
    return path.name


@pytest.mark.parametrize("path", CONTROLS, ids=_name)
def test_arbiter_is_encoded_byte_for_byte_as_it_was_read(path: Path) -> None:
    body = path.read_bytes()
    control = decode_control(body, name="orders")
    assert encode_control(control) == body
    assert path.name.startswith(control.state.value)
    assert (len(body) <= SHORT_MAX_BYTES) is (control.state in SHORT)


@pytest.mark.parametrize("path", MARKS, ids=_name)
def test_marker_is_encoded_byte_for_byte_as_it_was_read(path: Path) -> None:
    body = path.read_bytes()
    mark = decode_mark(body, None)
    assert not is_format_1(body)
    assert mark.is_foreign is path.name.startswith("foreign")
    if not mark.is_foreign:
        assert encode_mark(mark) == body


@pytest.mark.parametrize("path", ROWS, ids=_name)
def test_row_is_encoded_as_it_was_read(path: Path) -> None:
    columns = json.loads(path.read_text())
    row = decode_row(columns)
    assert encode_row(row) == columns
    text = row.control_text
    if text is not None:
        assert control_text(decode_control(text.encode(), name=row.original_id, in_row=True)) == text
    if row.is_home:
        assert text is None


def test_there_is_a_golden_arbiter_of_every_state() -> None:
    states = {decode_control(path.read_bytes(), name="orders").state for path in CONTROLS}
    assert states == set(State)


def _bodies(page: Path) -> list[str]:
    """Return the examples of bodies on a page, one for each line or indented group of a json block."""
    blocks = re.findall(r"```(?:json|body)\n(.*?)```", page.read_text(), re.DOTALL)
    return [body for block in blocks for body in re.split(r"\n(?! )", block.strip("\n"))]


@pytest.mark.parametrize("page", PAGES, ids=_name)
def test_every_example_on_the_format_pages_is_a_golden_file(page: Path) -> None:
    texts = [path.read_text() for path in (*CONTROLS, *MARKS)]
    documents = [json.loads(text) for text in texts if text.startswith("{")]
    documents += [json.loads(path.read_text()) for path in ROWS]
    for body in _bodies(page):
        known = json.loads(body) in documents if body.startswith("{") else body in texts
        assert known, f"{page.name}: {body}"


def test_format_page_has_examples_of_every_state() -> None:
    bodies = _bodies(REPOSITORY / "docs" / "format" / "lifecycle.md")
    shown = {
        decode_control(" ".join(body.split()).encode().ljust(65 if body[0] == "{" else 0), name="t").state
        for body in bodies
        if '"deleted_at_ms": 1772323200000, "ttl_ms"' not in body and "object_id" not in body
    }
    assert shown == set(State)


def test_transition_table_on_the_format_page_is_the_one_in_the_code() -> None:
    page = (REPOSITORY / "docs" / "format" / "lifecycle.md").read_text()
    rows = re.findall(r"^\| (absent|`\w+`) \| ((?:`\w+`(?:, )?)+) \|$", page, re.MULTILINE)
    table = {
        None if state == "absent" else State(state.strip("`")): {
            State(name) for name in re.findall(r"`(\w+)`", to)
        }
        for state, to in rows
    }
    assert table == {state: set(targets) for state, targets in TRANSITIONS.items()}
