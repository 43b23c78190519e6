"""The errors of `lance_namespace`, without the HTTP client that importing that package imports.

The client, with a model for each request and response, takes longer to import than Lance, and no error needs
it. The module of errors imports nothing: `load` runs it from its file. Whoever imports it in the ordinary way
later gets that same module, so that there is one class of each name, whichever import came first.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import find_spec, module_from_spec
from threading import Lock
from types import ModuleType

_PACKAGE = "lance_namespace"
_MODULE = "lance_namespace.errors"


class _Handover(MetaPathFinder, Loader):
    """Answers the first ordinary import of the errors with the module that was loaded without the package."""

    def __init__(self) -> None:
        self._loading = Lock()
        self._module: ModuleType | None = None
        self._spec: ModuleSpec | None = None

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        spec = PathFinder.find_spec(fullname, path) if fullname == _MODULE else None
        if spec is not None:
            spec.loader = self
        return spec

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self.load()

    def exec_module(self, module: ModuleType) -> None:
        module.__spec__ = self._spec
        sys.meta_path.remove(self)  # it was executed when it was loaded, and is among the modules from now on

    def load(self) -> ModuleType | None:
        """Return the module, None where the package is not made of files."""
        with self._loading:
            if self._module is None:
                package = find_spec(_PACKAGE)
                found = PathFinder.find_spec(_MODULE, package.submodule_search_locations) if package else None
                if found is not None and found.loader is not None:
                    module = module_from_spec(found)
                    found.loader.exec_module(module)
                    self._module, self._spec = module, found
            return self._module


def load() -> ModuleType:
    """Return the module `lance_namespace.errors`."""
    handover = _Handover()
    # First, so that no import that starts from now on can load a second copy.
    sys.meta_path.insert(0, handover)
    module = None if _PACKAGE in sys.modules else handover.load()
    if module is None:
        sys.meta_path.remove(handover)
        return import_module(_MODULE)
    return module
