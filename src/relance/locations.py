"""Where things lie below a root: parsing of root URIs, and the key of every file we own. Pure."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from urllib.parse import unquote, urlsplit

from relance.errors import InvalidInputError

TABLE_SUFFIX = ".lance"
"""A directory with this suffix is a V1 table."""

CONTROL_SUFFIX = ".control"
"""`<name>.control`: the arbiter of the table, sibling of its directory."""

MARKER_SUFFIX = ".deleted"
"""`<name>.deleted`: the lifecycle marker, sibling of the table's directory."""

DEREGISTERED_SUFFIX = ".deregistered"
"""`<name>.deregistered`: a hint to look for DEREGISTERED_FILE."""

DECLARED_SUFFIX = ".declared"
"""`<name>.declared`: the table was declared here and may hold no version yet."""

CREATING_SUFFIX = ".creating"
"""`<name>.creating`: a create began here; without a version in its directory there is no table."""

LAYOUT_KEY = ".relance-root"
"""The root-level flag: no table of this root hides behind a marker inside its own directory."""

MANIFEST_DIRECTORY = "__manifest"
"""The table of all tables (the namespace spec's own name)."""

OWN_DIRECTORY = ".relance-local"
"""Under the root of a disk: lock files, half-written bodies and the trash. Never listed."""

POLICY_DIRECTORY = ".relance-policy"
"""What runs of policies keep in the root: who is at it, plans under way, the history."""

RESERVED_FILE = ".lance-reserved"
"""Inside a table's directory: declared (the namespace spec's own file)."""

DEREGISTERED_FILE = ".lance-deregistered"
"""Inside a table's directory: deregistered (the namespace spec's own file)."""

VERSION_HINT = "latest_version_hint.json"
"""In the versions directory: Lance writes it anew after each version."""

VERSIONS_DIRECTORY = "_versions"
"""Inside a table's directory: one manifest per version."""


_RESERVED_DIRECTORIES = frozenset({MANIFEST_DIRECTORY, OWN_DIRECTORY, POLICY_DIRECTORY})

_LONGEST_NAME = 255
"""Bytes: no file system takes more."""

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:/")
_ESCAPE = re.compile(r"%[0-9A-Fa-f]{2}")

_ONE_SLASH = re.compile(r"[a-z][a-z0-9+.-]+:/")


class Scheme(StrEnum):
    """What kind of store a root is on."""

    FILE = "file"
    S3 = "s3"
    GS = "gs"
    AZ = "az"
    MEMORY = "memory"


@dataclass(frozen=True, slots=True)
class Root:
    """A parsed root: `base` is a bucket or container (a name for memory), `path` what follows."""

    scheme: Scheme
    base: str
    path: str

    @property
    def uri(self) -> str:
        """The root as users write it, without a trailing slash."""
        if self.scheme is Scheme.FILE:
            return self.path
        return f"{self.scheme}://{self.base}" + (f"/{self.path}" if self.path else "")


def parse_root(text: str) -> Root:
    """Return the root that a plain path or a URI names.

    Raises:
        InvalidInputError: empty, of an unknown scheme, or with parts that no store can address.
    """
    if not text or not text.strip() or "\0" in text:
        raise InvalidInputError(
            "property 'root' is empty: set it to a path or a URI such as s3://bucket/prefix"
        )
    scheme, separator, _ = text.partition("://")
    if not separator:
        if _ONE_SLASH.match(text):
            raise InvalidInputError(f"root {text!r} is neither a path nor a URI: use the form scheme://…")
        return _local_root(text)
    if scheme == Scheme.FILE:
        return _local_root(_path_of_file_uri(text))
    if scheme not in set(Scheme):
        known = ", ".join(f"{each}://" for each in Scheme)
        raise InvalidInputError(f"root {text!r} has an unknown scheme: use a plain path or one of {known}")
    return _object_root(Scheme(scheme), text)


def _local_root(path: str) -> Root:
    return Root(Scheme.FILE, base="", path=os.path.abspath(os.path.expanduser(path)))


def _path_of_file_uri(text: str) -> str:
    parts = urlsplit(text)
    if parts.netloc not in {"", "localhost"}:
        raise InvalidInputError(
            f"root {text!r} contains the host {parts.netloc!r}: use the form file:///path"
        )
    return unquote(parts.path)


def _object_root(scheme: Scheme, text: str) -> Root:
    base, _, path = text.partition("://")[2].partition("/")
    path = path.strip("/")
    if "@" in base:
        raise InvalidInputError("credentials are not allowed in the root: set them as storage.* properties")
    if not base:
        raise InvalidInputError(f"root {text!r} has no bucket: use the form {scheme}://bucket/prefix")
    if any(character in text for character in "%#?"):
        # pylance decodes or cuts these in a URI, obstore does not: the two would see different keys.
        raise InvalidInputError(
            f"root {text!r} contains one of the characters % # ?, which Lance URIs do not allow"
        )
    if path and not all(part not in {"", ".", ".."} for part in path.split("/")):
        raise InvalidInputError(f"root {text!r} has an empty, '.' or '..' segment in its path")
    return Root(scheme, base, path)


def table_directory(name: str) -> str:
    """Return the key of a V1 table's directory."""
    return name + TABLE_SUFFIX


def table_file(name: str, file: str) -> str:
    """Return the key of a file inside a V1 table's directory."""
    return f"{name}{TABLE_SUFFIX}/{file}"


def directory_of_location(location: str, *, root_uri: str) -> str:
    """Return the root-relative directory that `location` (relative or absolute) names.

    Raises:
        InvalidInputError: it is the root itself or leaves the root.
    """
    relative = location.strip()
    if relative.startswith("file://"):
        relative = _path_of_file_uri(relative)
    base = root_uri.rstrip("/") + "/"
    if relative.startswith(base):
        relative = relative[len(base) :]
    relative = relative.rstrip("/")
    if table_location(relative) != relative:
        raise InvalidInputError(f"location {location!r} is not a directory below the root")
    return relative


@lru_cache(maxsize=4096)
def table_location(text: str) -> str:
    """Return the directory below the root that a location means: the one rule for rows and for requests.

    Raises:
        InvalidInputError: it leaves the root, is the root or reserved, or could be understood as another one.
    """
    # The first words are native's own, by which its users' tests recognise the refusal.
    if text.startswith("/") or _SCHEME.match(text):
        kind = "paths" if text.startswith("/") else "URIs"
        raise InvalidInputError(
            f"Absolute {kind} are not allowed: location {text!r} is outside the root; use one below it"
        )
    if ".." in re.split(r"[/\\]", text):
        raise InvalidInputError(
            f"Path traversal is not allowed: location {text!r} contains '..'; use one below the root"
        )
    if _ESCAPE.search(text) or any(character in text for character in "\0\\#?"):
        raise InvalidInputError(
            f"location {text!r} contains a character or an escape that leads elsewhere in some clients"
        )
    parts = [part for part in text.split("/") if part not in {"", "."}]
    if not parts or any(len(part.encode(errors="replace")) > _LONGEST_NAME for part in parts):
        raise InvalidInputError(f"location {text[:500]!r} is not a directory below the root")
    if parts[0] in _RESERVED_DIRECTORIES:
        raise InvalidInputError(f"location {text!r} is reserved for the catalog")
    return "/".join(parts)
