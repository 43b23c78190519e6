"""From the text of a store's failure to our error. Pure.

obstore and pylance put the same Rust messages into differing exception classes, so the text decides.
"""

from __future__ import annotations

import re

from relance import errors

_BY_TEXT: tuple[tuple[re.Pattern[str], type[errors.RelanceError]], ...] = tuple(
    (re.compile(pattern, re.IGNORECASE), error)
    for pattern, error in (
        (r"NoSuchBucket|ContainerNotFound", errors.InvalidInputError),
        (
            r"403 Forbidden|AccessDenied|InvalidAccessKeyId|SignatureDoesNotMatch|Permission denied",
            errors.PermissionDeniedError,
        ),
        (r"401 Unauthorized|ExpiredToken", errors.UnauthenticatedError),
        (r"SlowDown|429 Too Many Requests", errors.ThrottlingError),
        (
            r"error sending request|timed out|connection (refused|reset|closed)|dns error"
            r"|after \d+ retries|50[0234] (internal|bad|service|gateway)",
            errors.ServiceUnavailableError,
        ),
    )
)

_HINTS: dict[type[errors.RelanceError], str] = {
    errors.InvalidInputError: "the root's bucket or container does not exist: create it or fix 'root'",
    errors.PermissionDeniedError: "the store rejected the credentials, or they lack a permission",
    errors.UnauthenticatedError: "the store requires valid, unexpired credentials",
    errors.ThrottlingError: "the store is throttling requests; retry later",
    errors.ServiceUnavailableError: "cannot reach the store: check the endpoint, network and proxy",
}


def error_for_text(text: str, *, where: str) -> errors.RelanceError | None:
    """Return the error that a failure with this text is, or None when the text says nothing known."""
    for pattern, error in _BY_TEXT:
        if pattern.search(text):
            return error(f"{where}: {_HINTS[error]} ({first_line(text)})")
    return None


def first_line(text: str) -> str:
    """Return the first line of `text` without a stack of source locations, at most 300 characters."""
    line = next(iter(text.strip().splitlines()), "no message")
    return re.sub(r", [^,]*\.rs:\d+:\d+", "", line)[:300]
