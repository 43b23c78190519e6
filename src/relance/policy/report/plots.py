"""Plots as SVG: bars, pairs of dots, waiting times. Pure; what they show is chosen in selection.

Places along a plot are in percent and heights in pixels, so that a plot fits a phone, a screen and paper
without scaling its letters. Each line has its name above its marks and its figures after them. What was
before is an outline, what is now is filled: no colour is needed to read them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta

from relance import units
from relance.policy.report.markup import Markup, element, joined, shortened
from relance.policy.report.selection import Bar, Queue, Waiting

LABEL_WIDTH = 44
"""Letters of a name in a plot; the whole name is in the title of its line and in the tables of the page."""

_SPAN = 54.0
"""How far marks reach, in percent; after them is room for the figures."""
_BAR_SHIFT = 1
_DOT_SHIFT = 6
"""How far all is moved to the right, in pixels, so that a mark at nothing is whole."""
_BAR, _PAIR, _DOT = 34, 38, 34
"""Heights of lines."""
_GAP = 4
_TOP = 18
_AXIS = 20
_FULL_NAME = 400

Show = Callable[[float], str]


def bar_plot(key: str, title: str, desc: str, bars: Sequence[Bar], show: Show) -> Markup:
    """Return a plot with a bar for each line, or two of them where there is an `after`."""
    paired = any(bar.after is not None for bar in bars)
    largest = max((max(bar.before, bar.after or 0) for bar in bars), default=0)
    pitch = _PAIR if paired else _BAR
    lines = [_bar_line(bar, _GAP + at * pitch, largest, show) for at, bar in enumerate(bars)]
    inside = joined(_grid(largest, show), *lines)
    return _plot(key, title, desc, _GAP + len(bars) * pitch, _BAR_SHIFT, inside)


def dot_plot(key: str, title: str, desc: str, bars: Sequence[Bar], show: Show) -> Markup:
    """Return a plot with a ring for what was, a dot for what is, and a line between them."""
    largest = max((max(bar.before, bar.after or 0) for bar in bars), default=0)
    lines = [_dot_line(bar, _GAP + at * _DOT, largest, show) for at, bar in enumerate(bars)]
    inside = joined(_grid(largest, show), *lines)
    return _plot(key, title, desc, _GAP + len(bars) * _DOT, _DOT_SHIFT, inside)


def waiting_plot(key: str, title: str, desc: str, queue: Queue) -> Markup:
    """Return a plot with a line for each dropped table, from its drop to its purge."""
    moments = [
        queue.now,
        *(each for one in queue.shown for each in (one.since, one.until) if each is not None),
    ]
    first, last = min(moments), max(moments)
    lines = [
        _waiting_line(one, _TOP + at * _DOT, queue.now, first, last) for at, one in enumerate(queue.shown)
    ]
    height = _TOP + len(queue.shown) * _DOT
    run = _moment_place(queue.now, first, last)
    near_end = run > _SPAN * 0.8
    grid = [
        element("line", x1=_percent(run), x2=_percent(run), y1=_TOP, y2=height, class_="now"),
        _text("tick", run, 10, "this run", anchor="end" if near_end else "start"),
        _text("tick", 0, height + 14, units.day(first)),
        _text("tick", _place(1.0), height + 14, units.day(last), anchor="end") if last > first else None,
    ]
    return _plot(key, title, desc, height, _DOT_SHIFT, joined(*grid, *lines))


def legend(*, dots: bool) -> Markup:
    """Return what the outline and the filled mark mean."""
    samples = {each: _sample(each, dots=dots) for each in ("before", "after")}
    return joined(*(element("span", mark, f" {each} ", class_="key") for each, mark in samples.items()))


def values(bar: Bar, show: Show) -> str:
    """Return the figures of a line as text."""
    note = f", {bar.note}" if bar.note else ""
    return (show(bar.before) if bar.after is None else f"{show(bar.before)} → {show(bar.after)}") + note


def waits(one: Waiting, now: datetime) -> str:
    """Return when a dropped table goes."""
    if one.until is None:
        return "no date"
    left = one.until - now
    if left <= timedelta():
        return f"{units.day(one.until)}, due now"
    return f"{units.day(one.until)}, in {units.duration(left)}"


def _plot(key: str, title: str, desc: str, height: int, shift: int, inside: Markup) -> Markup:
    return element(
        "svg",
        element("title", title, id=f"{key}-title"),
        element("desc", desc, id=f"{key}-desc"),
        element("g", inside, transform=f"translate({shift})"),
        class_="plot",
        role="img",
        aria_labelledby=f"{key}-title {key}-desc",
        width="100%",
        height=height + _AXIS,
    )


def _bar_line(bar: Bar, y: int, largest: float, show: Show) -> Markup:
    if bar.after is None:
        marks, end = [_rect("after", bar.before, largest, y + 15, 10)], bar.before
    else:
        end = max(bar.before, bar.after)
        marks = [
            _rect("before", bar.before, largest, y + 15, 7),
            _rect("after", bar.after, largest, y + 23, 7),
        ]
    middle = y + (27 if bar.after is not None else 24)
    place = _place(_ratio(end, largest))
    return _line(bar.label, y, values(bar, show), place, middle, marks, shift=_BAR_SHIFT)


def _dot_line(bar: Bar, y: int, largest: float, show: Show) -> Markup:
    before = _place(_ratio(bar.before, largest))
    if bar.after is None:
        marks, end = [_dot("after", before, y)], before
    else:
        after = _place(_ratio(bar.after, largest))
        end = max(before, after)
        track = element("line", x1=_percent(before), x2=_percent(after), y1=y + 20, y2=y + 20, class_="track")
        marks = [track, _dot("after", after, y), _dot("before", before, y)]
    return _line(bar.label, y, values(bar, show), end, y + 24, marks, shift=_DOT_SHIFT)


def _waiting_line(one: Waiting, y: int, now: datetime, first: datetime, last: datetime) -> Markup:
    begin, end = (_moment_place(each, first, last) for each in (one.since or first, one.until or last))
    due = one.until is not None and one.until <= now
    marks = [
        element("line", x1=_percent(begin), x2=_percent(end), y1=y + 20, y2=y + 20, class_="track"),
        _dot("before", begin, y) if one.since is not None else None,
        _dot("due" if due else "after", end, y) if one.until is not None else None,
    ]
    seen = [each for each in marks if each is not None]
    return _line(one.label, y, waits(one, now), max(begin, end), y + 24, seen, shift=_DOT_SHIFT)


def _line(
    label: str, y: int, figures: str, end: float, baseline: int, marks: Sequence[Markup], *, shift: int
) -> Markup:
    return element(
        "g",
        element("title", f"{shortened(label, _FULL_NAME)}: {figures}"),
        _text("name", 0, y + 11, shortened(label, LABEL_WIDTH), dx=-shift),
        *marks,
        _text("value", end, baseline, figures, dx=8),
        class_="line",
    )


def _grid(largest: float, show: Show) -> Markup:
    """Return lines at nothing, at half and at the largest figure."""
    if not largest:
        return joined()
    ticks = []
    for ratio, anchor in ((0.0, "start"), (0.5, "middle"), (1.0, "middle")):
        place = _place(ratio)
        ticks.append(element("line", x1=_percent(place), x2=_percent(place), y1=0, y2="100%", class_="rule"))
        ticks.append(_text("tick", place, "100%", show(largest * ratio), anchor=anchor, dy=-4))
    return joined(*ticks)


def _rect(kind: str, figure: float, largest: float, y: int, height: int) -> Markup:
    # A figure of nothing is still a mark: a hair at the origin.
    width = _percent(max(_SPAN * _ratio(figure, largest), 0.3)) if figure else "1"
    return element("rect", x=0, y=y, width=width, height=height, class_=kind)


def _dot(kind: str, place: float, y: int) -> Markup:
    return element("circle", cx=_percent(place), cy=y + 20, r=4, class_=kind)


def _text(
    kind: str,
    x: float,
    y: float | str,
    text: str,
    *,
    anchor: str | None = None,
    dx: int | None = None,
    dy: int | None = None,
) -> Markup:
    return element("text", text, x=_percent(x), y=y, dx=dx, dy=dy, text_anchor=anchor, class_=kind)


def _sample(kind: str, *, dots: bool) -> Markup:
    bar = element("rect", x=1, y=1, width=16, height=8, class_=kind)
    mark = element("circle", cx=12, cy=5, r=4, class_=kind) if dots else bar
    return element("svg", mark, class_="sample", width=18, height=10, aria_hidden="true")


def _ratio(figure: float, largest: float) -> float:
    return figure / largest if largest else 0.0


def _place(ratio: float) -> float:
    return _SPAN * min(max(ratio, 0.0), 1.0)


def _moment_place(moment: datetime, first: datetime, last: datetime) -> float:
    return _place((moment - first) / (last - first) if last > first else 0.5)


def _percent(place: float) -> str:
    return f"{place:.2f}%"
