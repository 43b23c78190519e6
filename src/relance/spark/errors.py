"""Our own errors, found again in what Spark raises: it keeps only their text."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.errors import PySparkException

from relance import errors
from relance.errors import RelanceError

_OURS = re.compile(r"^\s*relance\.errors\.(\w+): (.*)$", re.MULTILINE)


def typed_error(raised: BaseException) -> RelanceError | None:
    """Return the error of Relance that an exception of Spark was caused by, if there is one."""
    if isinstance(raised, RelanceError):
        return raised
    if isinstance(raised, PySparkException) and raised.getCondition() == "UNSUPPORTED_DATA_SOURCE_SAVE_MODE":
        return errors.UnsupportedOperationError(
            "df.write supports only mode('append') and mode('overwrite') for this source, and its default "
            "is neither: for error and ignore use relance.spark.save(df, id, mode=...)"
        )
    found = _OURS.findall(str(raised))
    if not found:
        return None
    name, text = found[-1]
    kind = getattr(errors, name, None)
    if not (isinstance(kind, type) and issubclass(kind, RelanceError)):
        return None
    return kind(text.strip().removeprefix(kind.prefix))


@contextmanager
def typed_errors() -> Iterator[None]:
    """Raise our own error instead of Spark's, where ours was the cause.

    Raises:
        RelanceError: it was; anything else is raised as it came.
    """
    try:
        yield
    except PySparkException as raised:
        known = typed_error(raised)
        if known is None:
            raise
        raise known from raised
