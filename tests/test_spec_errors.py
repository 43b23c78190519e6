"""The published errors are loaded without the package they are in, and are the same classes as in it."""

from __future__ import annotations

import subprocess
import sys

import pytest

CHECK = """
import lance_namespace
from lance_namespace import errors as spec
from relance import errors
assert spec is lance_namespace.errors is sys.modules["lance_namespace.errors"]
assert spec.TableNotFoundError is lance_namespace.TableNotFoundError
assert issubclass(errors.TableNotFoundError, lance_namespace.TableNotFoundError)
assert issubclass(errors.RelanceError, lance_namespace.LanceNamespaceError)
try:
    raise errors.TableNotFoundError("t")
except lance_namespace.LanceNamespaceError as caught:
    assert caught.code == lance_namespace.ErrorCode.TABLE_NOT_FOUND
assert spec.__spec__.name == spec.__name__ and spec.__spec__.loader is spec.__loader__
assert importlib.util.find_spec("lance_namespace.errors") is spec.__spec__
assert not [each for each in sys.meta_path if type(each).__module__ == "relance.spec_errors"]
"""

FIRST = {
    "nothing": "",
    "our errors": "import relance.errors",
    "our errors, then theirs by name": "import relance.errors\nimport lance_namespace.errors",
    "our errors, then one of theirs": "import relance.errors\nfrom lance_namespace.errors import ErrorCode",
    "our errors, then a pickle of theirs": (
        "import relance.errors, pickle\n"
        "code = pickle.loads(pickle.dumps(relance.errors.TableNotFoundError.code))\n"
        "assert code is relance.errors.TableNotFoundError.code"
    ),
    "their package": "import lance_namespace",
    "their errors": "import lance_namespace.errors",
    "both at once": (
        "from threading import Barrier, Thread\n"
        "gate = Barrier(4)\n"
        "def load(name):\n"
        "    gate.wait()\n"
        "    importlib.import_module(name)\n"
        "names = ['relance.errors', 'lance_namespace', 'relance.errors', 'lance_namespace.errors']\n"
        "threads = [Thread(target=load, args=[each]) for each in names]\n"
        "for each in threads: each.start()\n"
        "for each in threads: each.join()"
    ),
}


def run(code: str) -> None:
    ran = subprocess.run(
        [sys.executable, "-c", f"import importlib, importlib.util, sys\n{code}"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr


@pytest.mark.parametrize("first", FIRST)
def test_each_published_error_is_one_class_whatever_is_imported_first(first: str) -> None:
    run(f"{FIRST[first]}\n{CHECK}")


def test_errors_are_imported_without_the_client_and_survive_pickling() -> None:
    run(
        "import pickle\n"
        "from relance.errors import InvalidInputError, RelanceError\n"
        "copy = pickle.loads(pickle.dumps(InvalidInputError('x', hint='y')))\n"
        "assert (type(copy), copy.detail, copy.hint) == (InvalidInputError, 'x', 'y')\n"
        "assert not [each for each in sys.modules if each.startswith('lance_namespace')], sys.modules\n"
    )


FROZEN = """
from importlib.machinery import PathFinder
class Frozen:
    folder = []
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        if name.partition(".")[0] != "lance_namespace":
            return None
        spec = PathFinder.find_spec(name, cls.folder or None)
        if spec is not None and spec.submodule_search_locations is not None:
            cls.folder = list(spec.submodule_search_locations)
            spec.submodule_search_locations = ["in the program"]
        return spec
sys.meta_path.insert(0, Frozen)
"""


def test_package_that_is_no_folder_of_files_is_imported_as_usual() -> None:
    run(f"{FROZEN}\nimport relance.errors\nassert 'lance_namespace' in sys.modules\n{CHECK}")
