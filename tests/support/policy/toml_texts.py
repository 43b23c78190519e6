"""TOML written in every way that TOML allows, together with the line in which each key stands."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field

from hypothesis import strategies as st

from relance.policy.lines import KeyPath

Draw = Callable[[st.SearchStrategy[str]], str]

_BARE = st.text("abcXYZ019_-", min_size=1, max_size=6)
_ODD = st.text(st.characters(codec="utf-8", exclude_characters="\x7f"), max_size=4)
_GAPS = st.sampled_from(["", " ", "\t", "  "])
_TEXTS = st.sampled_from(
    [
        "1",
        "-3.5e2",
        "true",
        "2026-01-01 10:00:00",
        "0xff",
        '"plain"',
        '"with # and = and ] and } and \\" inside"',
        "'literal \\'",
        '""',
        "''",
        '"""\n[[rules]]\nname = 3 # no comment\n"""',
        '"""a "quoted" ""part"" \\"""\n\n end"""""',
        "'''\n[a]\nb = 'c'\n''x''\n'''",
        "''''two quotes before'''",
        '"""\\\n   folded\\\\"""',
    ]
)
_BREAKS = st.sampled_from(["", " ", "\n", " # a, ] comment\n", "\n\n  "])


@dataclass
class Writer:
    """Writes a text and remembers in which line each key came."""

    draw: Draw
    text: str = ""
    lines: dict[KeyPath, int] = field(default_factory=dict)

    def put(self, text: str) -> None:
        self.text += text

    def gap(self) -> None:
        self.put(self.draw(_GAPS))

    def note(self, path: KeyPath) -> None:
        self.lines.setdefault(path, self.text.count("\n") + 1)

    def key(self, within: KeyPath, names: tuple[str, ...]) -> KeyPath:
        """Write a dotted key; all its parts stand where it begins."""
        path = within
        for name in names:
            path = (*path, name)
            self.note(path)
        for number, name in enumerate(names):
            if number:
                self.gap()
                self.put(".")
                self.gap()
            self.put(self.written(name))
        return path

    def written(self, name: str) -> str:
        is_bare = bool(name) and all(each in "abcXYZ019_-" for each in name)
        ways = [json.dumps(name, ensure_ascii=each) for each in (True, False)]
        ways = [each for each in ways if "\\ud" not in each]  # TOML has no halves of characters
        ways += [name] * is_bare
        ways += [f"'{name}'"] * (is_bare or (name.isprintable() and "'" not in name))
        return self.draw(st.sampled_from(ways))

    def value(self, path: KeyPath, depth: int) -> None:
        way = self.draw(st.sampled_from(["plain", "plain", "list", "table"])) if depth < 3 else "plain"
        if way == "list":
            self.items(path, depth)
        elif way == "table":
            self.put("{")
            for number, name in enumerate(self.names()):
                self.put("," if number else "")
                self.gap()
                self.assignment(path, (name,), depth + 1)
                self.gap()
            self.put("}")
        else:
            self.put(self.draw(_TEXTS))

    def items(self, path: KeyPath, depth: int) -> None:
        self.put("[")
        count = int(self.draw(st.sampled_from("0123")))
        for number in range(count):
            self.put(self.draw(_BREAKS))
            self.note((*path, number))
            self.value((*path, number), depth + 1)
            self.put(self.draw(_BREAKS))
            self.put("," if number < count - 1 else self.draw(st.sampled_from(["", ","])))
        self.put(self.draw(_BREAKS))
        self.put("]")

    def names(self) -> list[str]:
        count = int(self.draw(st.sampled_from("0123")))
        return list(dict.fromkeys(self.draw(_BARE | _ODD) for _ in range(count)))

    def assignment(self, within: KeyPath, names: tuple[str, ...], depth: int) -> None:
        path = self.key(within, names)
        self.gap()
        self.put("=")
        self.gap()
        self.value(path, depth)

    def end(self) -> None:
        self.put(self.draw(st.sampled_from(["", "  ", "# [x]", ' # "a'])) + "\n")
        self.put(self.draw(st.sampled_from(["", "\n", "# comment\n", "  \n\n"])))

    def body(self, within: KeyPath) -> None:
        for number, name in enumerate(self.names()):
            self.gap()
            # A first part of its own, since a dotted key must not reach into what is a value already.
            more = tuple(self.names()) if self.draw(st.sampled_from("yn")) == "y" else ()
            self.assignment(within, (f"k{number}", *more) if more else (f"{number}{name}",), 0)
            self.end()

    def document(self) -> None:
        self.end()
        self.body(())
        for table in range(int(self.draw(st.sampled_from("0123")))):
            self.gap()
            name = f"t{table}"
            if self.draw(st.sampled_from("yn")) == "y":
                self.header("[", (name,), (name,), "]")
                self.body((name,))
                continue
            for number in range(int(self.draw(st.sampled_from("123")))):
                self.note((name,))
                self.header("[[", (name,), (name, number), "]]")
                self.body((name, number))
                if self.draw(st.sampled_from("yn")) == "y":
                    self.header("[", (name, "sub"), (name, number, "sub"), "]")
                    self.body((name, number, "sub"))

    def header(self, bracket: str, names: tuple[str, ...], path: KeyPath, closing: str) -> None:
        self.note(path)
        self.put(bracket)
        for number, name in enumerate(names):
            self.gap()
            self.put("." if number else "")
            self.gap()
            self.put(self.written(name) if name != "sub" else name)
        self.gap()
        self.put(closing)
        self.end()


@st.composite
def toml_texts(draw: st.DrawFn) -> Writer:
    """Texts that are TOML."""
    writer = Writer(draw)
    writer.document()
    return writer
