"""The names that users import, with signatures as text, and the tree of errors."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from enum import Enum
from functools import cache
from importlib import import_module
from pkgutil import iter_modules, walk_packages
from types import ModuleType
from typing import Any, Generic, Protocol

import relance
import relance.testing
from relance.errors import RelanceError

MODULES = ("relance", "relance.spark", "relance.jobs", "relance.policy", "relance.testing")
_EVERYTHING = (object, BaseException, Generic, Protocol)
_ADDRESS = re.compile(r" at 0x[0-9a-f]+")


@cache
def public_names() -> dict[str, dict[str, Any]]:
    """Return what each public module offers; `relance.testing` offers what its modules define."""
    found = {name: _offered(import_module(name)) for name in MODULES if name != "relance.testing"}
    for each in iter_modules(relance.testing.__path__, "relance.testing."):
        module = import_module(each.name)
        found[each.name] = {
            name: _described(value)
            for name, value in vars(module).items()
            if not name.startswith("_") and getattr(value, "__module__", None) == each.name
        }
    return found


def _offered(module: ModuleType) -> dict[str, Any]:
    return {name: _described(getattr(module, name)) for name in module.__all__}


def _described(value: Any) -> Any:
    if inspect.isclass(value):
        return _class(value)
    return _signature(value) if callable(value) else f"a {type(value).__name__}"


def _class(kind: type) -> dict[str, Any]:
    # Mixins of its own may come and go: what counts is what else it is.
    others = [each for each in kind.__mro__ if not each.__module__.startswith("relance")]
    described: dict[str, Any] = {"is a": [each.__name__ for each in others if each not in _EVERYTHING]}
    if issubclass(kind, Enum):
        return {**described, "members": {each.name: str(each.value) for each in kind}}
    described["new"] = _signature(kind)
    methods = {name: _member(value) for name, value in _members(kind)}
    return {**described, **({"members": methods} if methods else {})}


def _members(kind: type) -> Iterator[tuple[str, Any]]:
    """Yield the public attributes that the class has from Relance, inherited or its own."""
    owners = [each for each in kind.__mro__ if each.__module__.startswith("relance")]
    for name in sorted({name for each in owners for name in vars(each) if not name.startswith("_")}):
        yield name, inspect.getattr_static(kind, name)


def _member(value: Any) -> str:
    if isinstance(value, property):
        return f"property{_returned(value)}"
    if isinstance(value, staticmethod | classmethod):
        return f"{type(value).__name__} {_signature(value.__func__)}"
    return _signature(value) if inspect.isfunction(value) else "attribute"


def _returned(value: property) -> str:
    assert value.fget is not None
    return _signature(value.fget).partition(")")[2]


def _signature(value: Any) -> str:
    try:
        return _ADDRESS.sub("", str(inspect.signature(value)))
    except ValueError:  # a class of C, such as an error that defines no arguments
        return "(...)"


def error_classes() -> dict[str, dict[str, Any]]:
    """Return every error class of the package with what handlers and other clients see of it."""
    for each in walk_packages(relance.__path__, "relance."):
        if not each.name.endswith("__main__"):
            import_module(each.name)
    return {each.__name__: _error(each) for each in _subclasses(RelanceError)}


def _subclasses(kind: type[RelanceError]) -> Iterator[type[RelanceError]]:
    is_private = kind.__name__.startswith("_")
    if kind.__module__.startswith("relance.") and not is_private:  # tests make their own
        yield kind
    for each in kind.__subclasses__():
        yield from _subclasses(each)


def _error(kind: type[RelanceError]) -> dict[str, Any]:
    parents = [each for each in kind.__mro__[1:] if each not in _EVERYTHING]
    return {
        "in relance.errors": getattr(relance.errors, kind.__name__, None) is kind,
        "code": int(kind.code),
        "spec_code": kind("x").spec_code,
        "exit code": int(kind.exit_code),
        "prefix": kind.prefix,
        "is a": [f"{each.__module__.partition('.')[0]}.{each.__name__}" for each in parents],
    }
