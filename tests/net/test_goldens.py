"""How records are written and compared."""

from __future__ import annotations

import json

import pytest
from tests.net import goldens
from tests.net.record import RECORDERS


def test_a_difference_is_shown_with_the_command_that_records_again() -> None:
    recorded = {"same": 1, "drop": {"reads": 1, "writes": 2}, "gone": 1}
    with pytest.raises(AssertionError) as raised:
        goldens.assert_as_recorded("requests", {"same": 1, "drop": {"reads": 1, "writes": 3}}, recorded)
    text = str(raised.value)
    assert "python -m tests.net.record requests" in text
    assert '- "drop": {"writes": 2}' in text
    assert '+ "drop": {"writes": 3}' in text
    assert '- "gone": 1' in text
    assert "same" not in text


def test_a_document_is_written_as_json_with_sorted_keys_and_short_values_on_one_line() -> None:
    document = {"b": {"y": [1, 2], "x": None}, "a": ["word" * 10] * 9, "c": {}}
    text = goldens.as_text(document)
    assert json.loads(text) == document
    assert text.splitlines()[-4:] == [" ],", ' "b": {"x": null, "y": [1, 2]},', ' "c": {}', "}"]


def test_every_golden_file_has_a_recorder_and_every_recorder_a_file() -> None:
    files = {each.stem for each in goldens.FOLDER.glob("*.json")}
    assert files == {*RECORDERS}
