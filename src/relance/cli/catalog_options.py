"""Find the catalog: --root, the environment, or the nearest relance.toml. Values are never printed."""

from __future__ import annotations

import difflib
import os
import re
import stat
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from relance.cli.exits import CliError, Exit

FILE_NAME = "relance.toml"
ROOT_VARIABLE = "RELANCE_ROOT"
CONFIG_VARIABLE = "RELANCE_CONFIG"
STORAGE_VARIABLES = "RELANCE_STORAGE_"
_KEYS = ("root", "storage", "catalog", "spark", "policy")
_EXAMPLE = 'root = "path or URI"'
_MAX_BYTES = 1024 * 1024
_AT_LINE = re.compile(r"\(at line ([0-9]+), column [0-9]+\)$")


@dataclass(frozen=True, slots=True)
class Lake:
    """The catalog to use, as the user specified it."""

    properties: dict[str, str] = field(repr=False)
    """Catalog properties, including storage options: never printed."""
    named_by: str
    """Where the root was set."""
    master: str | None = None
    """The Spark master, if the file sets one."""
    conf: dict[str, str] = field(default_factory=dict, repr=False)
    policy: str | None = None
    """The policy file, if one is set."""
    ignored: tuple[str, ...] = ()
    """Why settings files were ignored."""

    @property
    def root(self) -> str:
        return self.properties["root"]


@dataclass(frozen=True, slots=True)
class _File:
    path: Path
    root: str | None
    properties: dict[str, str] = field(repr=False)
    master: str | None
    conf: dict[str, str] = field(repr=False)
    policy: str | None


def find_lake(root: str | None, config: str | None, *, environ: Mapping[str, str], folder: Path) -> Lake:
    """Return the catalog to use.

    If a file sets a root, it applies to that root only. A file that nobody named counts only if nobody but
    the user and root can have written it.

    Raises:
        CliError: no root is set, or the file is invalid.
    """
    file, ignored = _find_file(config or environ.get(CONFIG_VARIABLE), folder)
    named = root or environ.get(ROOT_VARIABLE) or None
    if named is None and (file is None or file.root is None):
        where = "" if file is None else f": {file.path} does not set root"
        where = "".join(f"; settings ignored: {each}" for each in ignored) + where
        raise CliError(
            f"no catalog specified{where}",
            f"pass --root PATH, set {ROOT_VARIABLE}, or create a {FILE_NAME} with the line: {_EXAMPLE}",
            Exit.USAGE,
        )
    if named is not None:
        named_by = "--root" if root else ROOT_VARIABLE
        if file is not None and file.root is not None and not _is_same_root(file.root, named):
            ignored.append(f"{file.path} is for {file.root}, not {named}")
            file = None
    else:
        assert file is not None
        assert file.root is not None  # both were refused above
        named, named_by = file.root, str(file.path)
    properties = {} if file is None else dict(file.properties)
    properties |= _from_environment(environ)
    properties["root"] = named
    if file is None:
        return Lake(properties, named_by, ignored=tuple(ignored))
    return Lake(properties, named_by, file.master, file.conf, file.policy, tuple(ignored))


def _is_same_root(one: str, other: str) -> bool:
    from relance.errors import InvalidInputError
    from relance.locations import parse_root

    try:
        return one == other or parse_root(one) == parse_root(other)
    except InvalidInputError:
        return False  # it is reported when the catalog is opened


def why_untrusted(file: Path) -> str | None:
    """Return why a file that nobody named is not to be obeyed: others may have written it. None: it is.

    Raises:
        OSError: there is no such file.
    """
    trusted = {0, _user_id()}
    if not {file.lstat().st_uid, file.stat().st_uid} <= trusted:  # a link's target may be anybody's
        return f"{file} belongs to another user"
    if file.stat().st_mode & stat.S_IWOTH:
        return f"anyone can write to {file}"
    # A sticky folder such as /tmp too: there anyone can be the first to create the file.
    if any(each.stat().st_mode & stat.S_IWOTH for each in {file.parent, file.resolve().parent}):
        return f"anyone can write to the folder of {file}"
    return None


def _user_id() -> int:
    return os.geteuid()


def _from_environment(environ: Mapping[str, str]) -> dict[str, str]:
    from relance.config import SETTINGS, STORAGE_PREFIX

    found = {
        STORAGE_PREFIX + name[len(STORAGE_VARIABLES) :].lower(): value
        for name, value in environ.items()
        if name.startswith(STORAGE_VARIABLES) and len(name) > len(STORAGE_VARIABLES)
    }
    for setting in SETTINGS:
        if setting != "root" and (value := environ.get(f"RELANCE_{setting.upper()}")) is not None:
            found[setting] = value
    return found


def _find_file(named: str | None, folder: Path) -> tuple[_File | None, list[str]]:
    """Return the file to use, and why files before it were ignored."""
    ignored: list[str] = []
    if named is not None:
        return _read(Path(named).expanduser()), ignored
    for each in (folder, *folder.parents):
        file = each / FILE_NAME
        if file.is_file():
            why = why_untrusted(file)
            if why is None:
                return _read(file), ignored
            ignored.append(f"{why}; to use it, pass --config")
    return None, ignored


def _read(path: Path) -> _File:
    try:
        with path.open("rb") as stream:
            data = stream.read(_MAX_BYTES + 1)
        if len(data) > _MAX_BYTES:
            what = f"{path} is larger than {_MAX_BYTES:,} bytes"
            raise CliError(what, "pass a settings file such as relance.toml", Exit.USAGE)
        content = tomllib.loads(data.decode())
    except OSError as cause:
        raise CliError(
            f"cannot read {path}: {cause.strerror}", "check the path and its permissions", Exit.USAGE
        ) from cause
    except (ValueError, RecursionError) as cause:  # invalid TOML or UTF-8, or absurdly long or deep
        # Not the parser's text: it may quote a line with a secret.
        found = _AT_LINE.search(str(cause))
        line = f" (line {found[1]})" if found else ""
        to_do = f"fix the file; it needs lines such as: {_EXAMPLE}"
        raise CliError(f"{path} is not valid TOML{line}", to_do, Exit.USAGE) from None
    return _checked(path, content)


def _checked(path: Path, content: Mapping[str, Any]) -> _File:
    _refuse_unknown(path, content, _KEYS, "")
    spark = _table(path, content, "spark")
    _refuse_unknown(path, spark, ("master", "conf"), "spark.")
    properties = {f"storage.{name}": value for name, value in _texts(path, content, "storage").items()}
    properties |= _texts(path, content, "catalog")
    properties.pop("root", None)
    root, policy = _text(path, content, "root"), _text(path, content, "policy")
    return _File(
        path=path,
        root=None if root is None else _below(path.parent, root),
        properties=properties,
        master=_text(path, spark, "master"),
        conf=_texts(path, spark, "conf"),
        policy=None if policy is None else _below(path.parent, policy),
    )


def _below(folder: Path, text: str) -> str:
    """Resolve a path relative to this folder; return a URI unchanged."""
    return text if "://" in text else os.path.abspath(folder / Path(text).expanduser())


def _refuse_unknown(path: Path, table: Mapping[str, Any], known: tuple[str, ...], prefix: str) -> None:
    for name in table:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            to_do = f"did you mean {near[0]!r}?" if near else f"known keys: {', '.join(known)}"
            raise CliError(f"{path}: unknown key {prefix + name!r}", to_do, Exit.USAGE)


def _table(path: Path, content: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    table = content.get(name, {})
    if not isinstance(table, dict):
        raise CliError(f"{path}: {name!r} must be a table", f"write it as a section: [{name}]", Exit.USAGE)
    return table


def _texts(path: Path, content: Mapping[str, Any], name: str) -> dict[str, str]:
    return {key: _as_text(path, f"{name}.{key}", value) for key, value in _table(path, content, name).items()}


def _text(path: Path, content: Mapping[str, Any], name: str) -> str | None:
    return None if name not in content else _as_text(path, name, content[name])


def _as_text(path: Path, name: str, value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str | int | float):
        return str(value)
    raise CliError(f"{path}: {name!r} must be a string", f'put it in quotes: {name} = "…"', Exit.USAGE)
