"""A SPARK_HOME without PySpark's zip archives, for sessions on one machine.

Spark puts `python/lib/pyspark.zip` first on the path of its Python workers. Python cannot keep bytecode for
a zip, so that every worker compiles PySpark again. A home without it leaves them the installed package.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

_LINKED = ("bin", "jars", "sbin")


@contextmanager
def without_archives(*, enabled: bool = True) -> Iterator[None]:
    """Let a Spark that is started in the block use a home without archives, where one can be made.

    A SPARK_HOME that is set stays, and a cache folder that cannot be written is no failure: Spark then
    starts as it always does.
    """
    home = _home() if enabled and "SPARK_HOME" not in os.environ else None
    if home is None:
        yield
        return
    os.environ["SPARK_HOME"] = str(home)
    try:
        yield
    finally:
        # Spark has read it. Other programs that this one starts should not see it.
        del os.environ["SPARK_HOME"]


def _home() -> Path | None:
    spec = find_spec("pyspark")
    if spec is None or spec.origin is None:
        return None
    package = Path(spec.origin).resolve().parent
    if not (package / "bin" / "spark-submit").is_file():
        return None  # not from pip: Spark lives elsewhere and finds itself
    try:
        return make_home(package, _cache())
    except OSError:
        return None


def _cache() -> Path:
    # In the user's own folder: in a shared one, others could put their programs in place of Spark's.
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "relance"


def make_home(package: Path, cache: Path) -> Path:
    """Return a folder in `cache` with links to the parts of an installed PySpark, made once for each.

    Raises:
        OSError: the folder cannot be made.
    """
    digest = hashlib.sha256(f"{package}\n{version('pyspark')}".encode()).hexdigest()[:12]
    home = cache / f"spark-home-{digest}"
    if home.is_dir():
        return home
    cache.mkdir(parents=True, exist_ok=True)
    fresh = Path(tempfile.mkdtemp(prefix="making-", dir=cache))
    for name in _LINKED:
        (fresh / name).symlink_to(package / name)
    # Spark takes a home with this file for a released one, and looks for jars in `jars`.
    (fresh / "RELEASE").touch()
    try:
        fresh.rename(home)
    except OSError:
        if not home.is_dir():
            raise
        # Another process made it first: its links are the same. Ours is taken away again.
        for each in fresh.iterdir():
            each.unlink()
        fresh.rmdir()
    return home
