"""Reports of a run: figures for a terminal, JSON, and one HTML page. Pure functions of its record."""

from relance.policy.report.page import to_html
from relance.policy.report.record_json import FORMAT, from_json, to_json
from relance.policy.report.run_summary import (
    KindFigures,
    Summary,
    TotalLine,
    lines_of,
    name_of,
    summary,
)

__all__ = [
    "FORMAT",
    "KindFigures",
    "Summary",
    "TotalLine",
    "from_json",
    "lines_of",
    "name_of",
    "summary",
    "to_html",
    "to_json",
]
