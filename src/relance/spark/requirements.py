"""What a Spark session needs of the machine: PySpark and Java, and what to install when they are missing."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

from relance.errors import UnsupportedOperationError

MIN_PYSPARK = (4, 1)
MIN_JAVA = 17
_NEEDS_JAVA = f"Spark needs Java {MIN_JAVA} or newer"
_INSTALL_PYSPARK = "pip install 'relance[spark]'"
_INSTALL_JAVA = (
    "install one, for example with `apt-get install openjdk-17-jre-headless` or `brew install openjdk@17`, "
    "and put it on PATH or point JAVA_HOME at it"
)
_VERSION_LINE = re.compile(r'version "(?:1\.)?(\d+)')


def check_requirements() -> None:
    """Check that PySpark and Java are here and new enough.

    Raises:
        UnsupportedOperationError: one of them is not; the text says what to install.
    """
    check_pyspark()
    check_java()


def found_versions() -> tuple[str | None, str | None]:
    """Return the versions of PySpark and of the Java that Spark would start; None for what is missing."""
    java = _java()
    version = None if java is None else _VERSION_LINE.search(_version_text(java))
    return _pyspark_version(), None if version is None else version[1]


def check_pyspark(*, least: tuple[int, int] = MIN_PYSPARK, to_do: str = "relance.spark") -> None:
    """Check the version of PySpark.

    Raises:
        UnsupportedOperationError: it is missing or too old.
    """
    wanted = ".".join(map(str, least))
    found = _pyspark_version()
    if found is None:
        raise UnsupportedOperationError(
            f"{to_do} needs PySpark {wanted} or newer, which is not installed: {_INSTALL_PYSPARK}"
        )
    if tuple(int(part) for part in re.findall(r"\d+", found)[:2]) < least:
        raise UnsupportedOperationError(
            f"{to_do} needs PySpark {wanted} or newer, but found {found}: {_INSTALL_PYSPARK}"
        )


def _pyspark_version() -> str | None:
    # Not the installed package: on a worker, PySpark may come with Spark and pip does not know it.
    try:
        from pyspark.version import __version__
    except ModuleNotFoundError:
        return None
    return __version__


def check_java() -> None:
    """Check the version of the Java that Spark would start.

    Raises:
        UnsupportedOperationError: there is none, or it is too old.
    """
    java = _java()
    if java is None:
        raise UnsupportedOperationError(
            f"{_NEEDS_JAVA}, but there is none on PATH or in JAVA_HOME: {_INSTALL_JAVA}"
        )
    said = _version_text(java)
    found = _VERSION_LINE.search(said)
    if found is None:
        raise UnsupportedOperationError(
            f"{_NEEDS_JAVA}, but {java} does not run: {said.strip()[:200]!r}; {_INSTALL_JAVA}"
        )
    if int(found[1]) < MIN_JAVA:
        raise UnsupportedOperationError(f"{_NEEDS_JAVA}, but {java} is Java {found[1]}: {_INSTALL_JAVA}")


def _java() -> str | None:
    """Return the program that Spark's own start script would choose."""
    if home := os.environ.get("JAVA_HOME"):
        program = Path(home, "bin", "java")
        return str(program) if program.exists() else None
    return shutil.which("java")


def _version_text(java: str) -> str:
    try:
        asked = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=60, check=False)
    except OSError as cause:
        return str(cause)
    return asked.stderr + asked.stdout
