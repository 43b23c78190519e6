"""The error tree against the published one."""

from __future__ import annotations

import pickle

import pytest
from lance_namespace import errors as spec

from relance import errors
from relance.errors import RelanceError
from relance.exits import Exit

CLASSES = [
    each for each in vars(errors).values() if isinstance(each, type) and issubclass(each, RelanceError)
]


def test_every_error_code_of_the_spec_has_a_class() -> None:
    assert {int(each.code) for each in CLASSES} >= {int(code) for code in spec.ErrorCode}


@pytest.mark.parametrize(
    "error", [each for each in CLASSES if each is not RelanceError], ids=lambda e: e.__name__
)
def test_error_is_caught_as_its_spec_class_with_its_code(error: type[RelanceError]) -> None:
    raised = error("which 'x'")
    parents = [each for each in error.__mro__ if each.__module__ == spec.__name__]
    assert parents[0].code == raised.code  # type: ignore[attr-defined]  # all of them carry one
    assert str(raised) == f"{error.prefix}which 'x'"
    assert raised.detail == "which 'x'"


@pytest.mark.parametrize("error", CLASSES, ids=lambda e: e.__name__)
def test_pickled_error_keeps_a_single_prefix(error: type[RelanceError]) -> None:
    copy = pickle.loads(pickle.dumps(error("what")))
    assert type(copy) is error
    assert str(copy) == str(error("what"))


def test_version_exists_error_is_a_conflict_with_the_spec_code() -> None:
    raised = errors.TableVersionAlreadyExistsError("version 3")
    assert isinstance(raised, spec.ConcurrentModificationError)
    assert (int(raised.code), raised.spec_code) == (14, 12)
    assert errors.InvalidInputError("x").spec_code == 13


def test_pickled_error_keeps_its_own_hint_and_exit_code() -> None:
    raised = errors.InvalidTableStateError("x", hint="do this")
    raised.exit_code = Exit.NOT_FOUND
    copy = pickle.loads(pickle.dumps(raised))
    assert (copy.detail, copy.hint, copy.exit_code) == ("x", "do this", 3)
    plain = pickle.loads(pickle.dumps(errors.InvalidTableStateError("x")))
    assert plain.hint == errors.InvalidTableStateError.hint


@pytest.mark.parametrize("error", CLASSES, ids=lambda e: e.__name__)
def test_every_error_has_an_exit_code_and_a_hint(error: type[RelanceError]) -> None:
    assert error.exit_code in set(Exit) - {Exit.OK}
    is_bug = issubclass(error, errors.InternalError) and not issubclass(error, errors.StorageError)
    assert (error.hint == RelanceError.hint) == (is_bug or error is RelanceError)
