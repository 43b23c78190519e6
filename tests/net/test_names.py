"""The names that users import and the errors that they catch, compared with the record."""

from __future__ import annotations

import pytest
from tests.net import goldens, names


@pytest.mark.parametrize("module", sorted(goldens.read("public_names")))
def test_public_names_and_signatures_of_a_module_are_as_recorded(module: str) -> None:
    found = names.public_names().get(module)
    goldens.assert_as_recorded(
        "public_names", {module: found}, {module: goldens.read("public_names")[module]}
    )


def test_every_public_module_is_recorded() -> None:
    assert set(goldens.read("public_names")) == set(names.public_names())


def test_error_classes_have_their_recorded_codes_prefixes_bases_and_exit_codes() -> None:
    goldens.assert_as_recorded("error_classes", names.error_classes(), goldens.read("error_classes"))
