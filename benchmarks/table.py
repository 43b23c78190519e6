"""Results as text: one aligned table, and JSON. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.results import Result, Sample, Unit

HEADINGS = ("what", "ours", "native", "ratio", "target", "")
_LEFT_ALIGNED = frozenset({"what", "target", ""})
_GAP = "  "


def as_table(results: Sequence[Result]) -> str:
    """Return one line per result below a line of headings."""
    lines = [HEADINGS, *(_cells(result) for result in results)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(HEADINGS))]
    return "\n".join(_aligned(line, widths) for line in lines)


def _aligned(cells: Sequence[str], widths: Sequence[int]) -> str:
    padded = (
        cell.ljust(width) if heading in _LEFT_ALIGNED else cell.rjust(width)
        for heading, cell, width in zip(HEADINGS, cells, widths, strict=True)
    )
    return _GAP.join(padded).rstrip()


def _cells(result: Result) -> tuple[str, ...]:
    verdict = {None: "", True: "ok", False: "MISS"}[result.meets_target]
    return (
        result.what,
        _amount(result.our_figure, result.unit),
        "-" if result.native_figure is None else _amount(result.native_figure, result.unit),
        _ratio(result),
        result.target.text if result.target else "-",
        verdict,
    )


def _amount(value: float, unit: Unit) -> str:
    if unit is Unit.BYTES:
        return f"{value / 1e6:,.0f} MB"
    if unit is Unit.REQUESTS:
        return f"{value:,.0f} requests"
    if value < 0.001:
        return f"{value * 1e6:.1f} µs"
    return f"{value * 1e3:.1f} ms" if value < 1 else f"{value:.2f} s"


def _ratio(result: Result) -> str:
    if result.ratio is None:
        return "-"
    ahead, behind = ("faster", "slower") if result.unit is Unit.SECONDS else ("fewer", "more")
    if result.unit is Unit.BYTES:
        ahead, behind = "less", "more"
    return f"{result.ratio:.1f}x {ahead}" if result.ratio >= 1 else f"{1 / result.ratio:.1f}x {behind}"


def as_json(results: Sequence[Result], versions: Mapping[str, str]) -> str:
    """Return the results with all that was sampled, and the versions they were taken with."""
    return json.dumps({"versions": versions, "results": [_fields(each) for each in results]}, indent=2) + "\n"


def _fields(result: Result) -> dict[str, Any]:
    return {
        "what": result.what,
        "unit": result.unit,
        "ours": _sample_fields(result.ours),
        "native": _sample_fields(result.native) if result.native else None,
        "ratio": result.ratio,
        "target": result.target.text if result.target else None,
        "meets_target": result.meets_target,
    }


def _sample_fields(sample: Sample) -> dict[str, Any]:
    return {"best": sample.best, "median": sample.median, "values": sample.values}
