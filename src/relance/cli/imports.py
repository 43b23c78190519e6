"""Importing Lance for commands that only look, without the pandas that Arrow would import for nobody."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType


class _NoPandas(MetaPathFinder):
    """Says that pandas is not installed."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname == "pandas":
            raise ModuleNotFoundError("pandas is not imported for this command", name=fullname)
        return None


def import_lance_alone() -> None:
    """Import Lance, without pandas unless something else has imported it.

    The datasets of Arrow, which Lance imports, ask once whether there is pandas, and import it to find out:
    half of what `import lance` takes where it is installed. A process that has asked keeps the answer, so
    this is only for commands that convert nothing to or from pandas.
    """
    if "pandas" not in sys.modules and "pyarrow.dataset" not in sys.modules:
        finder = _NoPandas()
        sys.meta_path.insert(0, finder)
        try:
            import pyarrow.dataset  # noqa: F401  # for its effect
        finally:
            sys.meta_path.remove(finder)
    import lance  # noqa: F401  # likewise
