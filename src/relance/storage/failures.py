"""From the text or the number of a store's failure to our error. Pure.

obstore and pylance put the same Rust messages into differing exception classes, so the text decides.
"""

from __future__ import annotations

import errno
import re

from relance import errors

SETTINGS_HINT = "correct the option under [storage] in relance.toml, or its RELANCE_STORAGE_ variable"

_Meaning = tuple[type[errors.RelanceError], str]
"""Our error, and what to do."""

_BY_NUMBER: dict[int, _Meaning] = {
    **dict.fromkeys(
        (errno.EACCES, errno.EPERM),
        (errors.PermissionDeniedError, "this user may not do it: grant access to the file and its folder"),
    ),
    errno.EROFS: (
        errors.PermissionDeniedError,
        "the disk is mounted read-only: remount it for writing (a damaged disk is made read-only: check it)",
    ),
    errno.ENOSPC: (
        errors.StorageFullError,
        "the disk is full: drop and purge tables, which works on a full disk, or free space or inodes",
    ),
    errno.EDQUOT: (
        errors.StorageFullError,
        "the disk quota is used up: drop and purge tables, which still works, or raise the quota",
    ),
    errno.ENAMETOOLONG: (
        errors.InvalidInputError,
        "the path is longer than the disk allows: choose a shorter root or name",
    ),
    errno.EIO: (
        errors.StorageError,
        "the disk failed: check it and the system log, and restore damaged files from a backup",
    ),
    **dict.fromkeys(
        (errno.EMFILE, errno.ENFILE),
        (errors.StorageError, "too many files are open: raise the limit (ulimit -n) or run fewer clients"),
    ),
    **dict.fromkeys(
        (errno.ESTALE, errno.ETIMEDOUT, errno.ENOTCONN, errno.EHOSTDOWN),
        (errors.ServiceUnavailableError, "the network disk does not respond: check its server and the mount"),
    ),
}
"""By the number of a system error."""

_DAMAGE = (
    "a file is damaged, or a response was not the store's: retry, check the endpoint and the proxy, or "
    "restore the file from a backup"
)
"""What to do about bytes that Lance cannot read: from them alone nobody can tell where they come from."""

_NO_CREDENTIALS = (
    "no credentials are set, and this machine provides none: set the storage options access_key_id and "
    "secret_access_key (S3), service_account (Google) or account_key (Azure)"
)
_NO_BUCKET = "the root's bucket or container does not exist: create it or fix 'root'"
_WRONG_REGION = "the bucket is in another region: set the storage option region to the region of the bucket"
_NO_HTTP = "the endpoint is not encrypted: use https://, or set the storage option allow_http to true"
_NO_URL = "the storage option endpoint must begin with https:// or http://"

_MISSING = (
    "a file of the table is missing: another client may have removed this version, so retry; otherwise "
    "restore the file from a backup"
)

_HINTS = {
    _NO_CREDENTIALS: (
        "set them in the environment, such as RELANCE_STORAGE_ACCESS_KEY_ID and "
        "RELANCE_STORAGE_SECRET_ACCESS_KEY"
    ),
    **dict.fromkeys(
        (_DAMAGE, _MISSING), "restore the file from a backup; to give the table up: relance drop TABLE"
    ),
    _NO_BUCKET: "create the bucket, or correct the root",
    _WRONG_REGION: "set region under [storage] in relance.toml, or RELANCE_STORAGE_REGION",
    _NO_HTTP: "set allow_http = true under [storage] in relance.toml, or RELANCE_STORAGE_ALLOW_HTTP=true",
    _NO_URL: "set endpoint under [storage] in relance.toml, or RELANCE_STORAGE_ENDPOINT",
}
"""Where to set what is missing."""

_OS_ERROR = re.compile(r"\(os error (\d+)\)|\[Errno (\d+)\]")
"""How Rust ends, and pyarrow and Python begin, the text of a system error."""

_BY_TEXT: tuple[tuple[re.Pattern[str], _Meaning], ...] = tuple(
    (re.compile(pattern, re.IGNORECASE), (error, to_do))
    for pattern, error, to_do in (
        # These addresses hand out the credentials of a machine in a cloud: they are asked if none are set.
        (
            r"//(169\.254\.169\.254|169\.254\.170\.2|metadata\.google\.internal|metadata)[/:]",
            errors.UnauthenticatedError,
            _NO_CREDENTIALS,
        ),
        (
            r"AuthorizationHeaderMalformed|PermanentRedirect|301 Moved|redirect without LOCATION"
            r"|incorrectly configured region|resolve (the )?bucket region|IllegalLocationConstraint",
            errors.InvalidInputError,
            _WRONG_REGION,
        ),
        (r"http://\S+ in \S+ - HTTP error: builder error", errors.InvalidInputError, _NO_HTTP),
        (r"InvalidUri", errors.InvalidInputError, _NO_URL),
        (
            r"NoSuchBucket|ContainerNotFound",
            errors.InvalidInputError,
            _NO_BUCKET,
        ),
        (
            r"not found: \S*/(data|_deletions|_indices)/"
            r"|location \S*/(data|_deletions|_indices)/\S+ not found",
            errors.StorageError,
            _MISSING,
        ),
        (
            r"403 Forbidden|AccessDenied|InvalidAccessKeyId|SignatureDoesNotMatch|Permission denied",
            errors.PermissionDeniedError,
            "the store rejected the credentials, or they lack a permission",
        ),
        (
            r"401 Unauthorized|ExpiredToken",
            errors.UnauthenticatedError,
            "the store requires valid, unexpired credentials",
        ),
        (
            r"SlowDown|429 Too Many Requests",
            errors.ThrottlingError,
            "the store is throttling requests; retry later",
        ),
        (
            r"error sending request|timed out|connection (refused|reset|closed)|dns error"
            r"|after \d+ retries|50[0234] (internal|bad|service|gateway)",
            errors.ServiceUnavailableError,
            "cannot reach the store: check the endpoint, network and proxy",
        ),
        (
            r"response body|error decoding|invalid \w+ response|missing from response"
            r"|reading a body from|end of file before message|unexpected end of file",
            errors.ServiceUnavailableError,
            "the response was cut short, or no store sent it: retry, and check the endpoint and the proxy",
        ),
        (
            r"Invalid range \d+\.\.\d+ for object of size|does not have sufficient data"
            r"|file size is (too small|smaller than)|(magic number|manifest length) does not match"
            r"|Encountered corrupt file|failed to decode Protobuf|shorter than its length prefix",
            errors.StorageError,
            _DAMAGE,
        ),
    )
)


def error_for_text(text: str, *, where: str) -> errors.RelanceError | None:
    """Return the error that a failure with this text is, or None when the text says nothing known."""
    system = _OS_ERROR.search(text)
    meaning = None if system is None else _BY_NUMBER.get(int(system[1] or system[2]))
    if meaning is None:
        meaning = next((meaning for pattern, meaning in _BY_TEXT if pattern.search(text)), None)
    return None if meaning is None else _told(meaning, where, first_line(text))


def damaged(where: str, text: str) -> errors.StorageError:
    """Return the error for a body that is not the one the store has."""
    return errors.StorageError(f"{where}: {_DAMAGE} ({text})")


def is_damage(error: errors.RelanceError) -> bool:
    """Tell whether an error from such a text is about bytes that nobody can read."""
    return type(error) is errors.StorageError and _DAMAGE in error.detail


def error_for_number(cause: OSError, *, where: str) -> errors.RelanceError | None:
    """Return the error that a failed system call is, or None when its number says nothing known."""
    meaning = _BY_NUMBER.get(cause.errno or 0)
    return None if meaning is None else _told(meaning, where, cause.strerror or str(cause))


def _told(meaning: _Meaning, where: str, text: str) -> errors.RelanceError:
    error, to_do = meaning
    return error(f"{where}: {to_do} ({text})", hint=_HINTS.get(to_do))


def first_line(text: str) -> str:
    """Return the first line of `text` without a stack of source locations, at most 300 characters."""
    line = next(iter(text.strip().splitlines()), "no message")
    return re.sub(r", [^,]*\.rs:\d+:\d+", "", line)[:300]
