"""Rows as JSON can hold them."""

from __future__ import annotations

import base64
import math
from collections.abc import Iterator, Mapping
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa


def rows_of(batch: pa.RecordBatch) -> Iterator[dict[str, Any]]:
    """Yield each row: times in ISO format, spans in seconds, decimals as text, bytes in base64."""
    for row in batch.to_pylist():
        yield {name: plain(value) for name, value in row.items()}


def plain(value: Any) -> Any:
    """Return a value of a row as JSON can hold it; what is no number becomes null."""
    if value is None or isinstance(value, str | bool | int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, datetime | date | time):
        return value.isoformat()
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, Decimal):
        return str(value)
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, Mapping):
        return {str(name): plain(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    return str(value)
