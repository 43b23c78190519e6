"""The manifest files of a table's versions: their names under both schemes, and listing them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum

from relance.errors import InvalidInputError, TableBranchNotFoundError
from relance.locations import VERSIONS_DIRECTORY
from relance.storage.protocol import ObjectInfo, ObjectStorage

_LARGEST = 2**64 - 1
_NAME = re.compile(r"(\d+)\.manifest")


class NamingScheme(StrEnum):
    """How a version number becomes a file name."""

    V1 = "V1"
    """`<version>.manifest`"""
    V2 = "V2"
    """`<2^64-1 - version, 20 digits>.manifest`: the newest sorts first."""


@dataclass(frozen=True, slots=True)
class ManifestFile:
    """One version's manifest."""

    version: int
    info: ObjectInfo


def parse_scheme(text: str | None) -> NamingScheme:
    """Return the naming scheme; none named means V2.

    Raises:
        InvalidInputError: there is no such scheme.
    """
    try:
        return NamingScheme(text.upper()) if text else NamingScheme.V2
    except ValueError:
        raise InvalidInputError(f"unknown naming scheme {text!r}: use V1 or V2") from None


def file_name(version: int, scheme: NamingScheme) -> str:
    """Return the name of the manifest of `version`."""
    return f"{version}.manifest" if scheme is NamingScheme.V1 else f"{_LARGEST - version:020d}.manifest"


def version_of(name: str) -> int | None:
    """Return the version that a file name stands for, or None: staged, detached and other files."""
    match = _NAME.fullmatch(name)
    if match is None:
        return None
    digits = match[1]
    return _LARGEST - int(digits) if len(digits) == 20 else int(digits)


def manifest_key(directory: str, branch: str | None, version: int, scheme: NamingScheme) -> str:
    """Return the key of a version's manifest."""
    return f"{_versions_of(directory, branch)}/{file_name(version, scheme)}"


def list_manifests(
    storage: ObjectStorage, directory: str, branch: str | None, *, missing_ok: bool = False
) -> list[ManifestFile]:
    """Return the versions of the table or of one of its branches, oldest first.

    Raises:
        TableBranchNotFoundError: there is no such branch, unless `missing_ok`.
    """
    found = (
        (version_of(info.key.rpartition("/")[2]), info)
        for info in storage.list_level(_versions_of(directory, branch)).files
    )
    manifests = [ManifestFile(version, info) for version, info in found if version is not None]
    if not manifests and _is_branch(branch) and not missing_ok:
        raise TableBranchNotFoundError(f"branch '{branch}' of the table at '{directory}'")
    return sorted(manifests, key=lambda each: each.version)


def _versions_of(directory: str, branch: str | None) -> str:
    if not _is_branch(branch):
        return f"{directory}/{VERSIONS_DIRECTORY}"
    if any(part in {"", ".", ".."} for part in str(branch).split("/")):
        raise InvalidInputError(f"invalid branch name {branch!r}")
    return f"{directory}/tree/{branch}/{VERSIONS_DIRECTORY}"


def _is_branch(branch: str | None) -> bool:
    return branch is not None and branch != "main"
