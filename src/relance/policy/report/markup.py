"""HTML and SVG from values: every text is escaped here, once. Pure.

Names of tables, errors and reasons come from anywhere. Nothing but this module makes markup of them.
"""

from __future__ import annotations

import unicodedata
from html import escape

_UNSEEN = {"Cc", "Cf", "Cs", "Zl", "Zp"}
"""Control, format (they turn text around or hide it), lone surrogates, line ends."""

_VOID = {"meta", "link", "rect", "line", "circle", "br"}


class Markup(str):
    """Text that is markup already."""

    __slots__ = ()


def element(tag: str, *children: str | None, **attributes: str | float | None) -> Markup:
    """Return an element. Children that are not Markup are escaped; None is left out, of attributes too.

    In the names of attributes `_` stands for `-`, and a trailing one is dropped: `class_`, `aria_label`.
    """
    given = "".join(
        f' {name.rstrip("_").replace("_", "-")}="{escape(visible(str(value)))}"'
        for name, value in attributes.items()
        if value is not None
    )
    if tag in _VOID and not children:
        return Markup(f"<{tag}{given}/>")
    return Markup(f"<{tag}{given}>{joined(*children)}</{tag}>")


def joined(*children: str | None) -> Markup:
    """Return children one after another."""
    return Markup("".join(_escaped(each) for each in children if each is not None))


def visible(text: str) -> str:
    """Return the text with what cannot be seen spelt out: it neither hides nor turns around the rest."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(
        _spelt(each) if unicodedata.category(each) in _UNSEEN and each != "\n" else each for each in text
    )


def shortened(text: str, width: int) -> str:
    """Return the text with its middle left out where it is wider than `width` letters."""
    text = visible(text).replace("\n", " ")
    if len(text) <= width and width_of(text) <= width:
        return text
    head = _fitting(text, (width - 1) // 2)
    tail = _fitting(text[::-1], width - 1 - width_of(head))[::-1]
    return f"{head}…{tail}"


def width_of(text: str) -> int:
    """Return how many letters wide a text is: an ideograph takes two, an accent on a letter none."""
    return sum(map(_width, text))


def _fitting(text: str, width: int) -> str:
    used = 0
    for at, each in enumerate(text):
        used += _width(each)
        if used > width:
            return text[:at]
    return text


def _width(letter: str) -> int:
    if unicodedata.combining(letter):
        return 0
    return 2 if unicodedata.east_asian_width(letter) in "WF" else 1


def _spelt(letter: str) -> str:
    return f"\\u{{{ord(letter):X}}}"


def _escaped(text: str) -> str:
    return text if isinstance(text, Markup) else escape(visible(text))
