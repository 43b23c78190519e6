"""The turns of phrase that text for people must not contain, and where such text stands.

Each pattern is the tell-tale part of a sentence that reads like a word-by-word translation; the value says
what a native-speaking engineer writes instead.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

from tests.support.paths import REPOSITORY

NOT_THIS_BUT: dict[str, str] = {
    # The pairs of the style guide.
    r"\bbring (a|the) run to its end\b|\bthe newest such\b": "resume the most recent interrupted run",
    r"\bdo not ask before\b|\bwhat cannot be undone\b": "skip the confirmation of irreversible actions",
    r"\b(its|their|the|whose) (own )?time has (not )?passed\b|\bbefore (its|their) time\b": "expired",
    r"\bfrom so many\b|\bso many (new )?rows on\b": "once this many rows",
    r"\bwith a larger share of\b|\bwritten anew\b|\bcreated anew\b|\bmade anew\b": "rewrite, re-create",
    r"\bkeeps? from no\b": "does not affect the others",
    r"\bpurged? again what\b|\bpurged half\b": "re-running an interrupted purge",
    r"\bis left as it is\b|\btells? what to do\b|\bdamaged: ": "nothing was changed; run ...",
    r"\bis not gone\b|\bare still there\b|\bpurge it again\b": "purge is incomplete: ... remain",
    r"\bmarker swept by\b|\bwhose claim holds\b|\btry again later\b": "locked by another client; retry",
    r"\bis being run\b|\bruns it since\b|\bwait for it\b": "another run is in progress; retry later",
    r"\bno clock shows\b|\bleads to a time\b": "out of range",
    r"\bstarts like\b|\band is none\b|\band are none\b": "looks like ... but is not",
    r"\bis another (table|one) now\b|\bplan again\b": "was replaced after the plan was made; re-plan",
    r"\bmend (what|it|the)\b|\bmended\b|\bshows how it is written\b": "fix the value above; see --help",
    r"\bsome at a time\b|\bthey are told\b|\bstays where it is\b": "yields ... in groups",
    r"\bwhat was (un)?dropped\b|\bis whole\b": "tables undropped after planning are left untouched",
    r"\blooks what is\b": "decides what is due",
    r"\bthe two lines of\b": "both rows",
    r"\bwho still holds\b|\bput back only by\b": "only while its claim is held",
    # The words that the glossary replaced.
    r"\b(is|are|was|were|be|been|being) told\b|\btold (so|that|by|of|what|how|in|as|with)\b": "reported",
    r"\bnobody (knows|looks|reads|wants|holds|told)\b": "name the subject",
    r"\bin (one|two) go\b": "in one request, at once",
    r"\bcan be had\b|\bcannot be had\b": "is available",
    r"\bbring(s|ing)? [^.\n]{0,40}\bin step\b|\bkept in step\b|\bbrought in step\b": "sync",
    r"\bset aside\b": "trash",
    r"\bkeeps? changing\b": "stale; retry",
    r"\bwhatever (it|they|is|was)\b": "name it",
    r"\bgives? way\b|\bmakes? way\b": "is replaced",
    r"\bof which one could\b|\bof one's own\b": "rephrase",
}
"""Patterns (any case) and what to write instead."""


def pages() -> list[Path]:
    """Return every page that people read."""
    return [
        REPOSITORY / "README.md",
        REPOSITORY / "CHANGELOG.md",
        *sorted((REPOSITORY / "docs").rglob("*.md")),
        *sorted((REPOSITORY / "examples").rglob("*.toml")),
    ]


def programs() -> list[Path]:
    """Return every source file whose string literals people see: errors, help, output."""
    return sorted([*(REPOSITORY / "src/relance").rglob("*.py"), *(REPOSITORY / "examples").rglob("*.py")])


def literals(source: Path) -> Iterator[tuple[int, str]]:
    """Yield the string literals of a module with their lines; docstrings only where they become help."""
    tree = ast.parse(source.read_text())
    docstrings = set() if "cli" in source.parts else _docstrings(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            parts = [part.value if isinstance(part, ast.Constant) else "…" for part in node.values]
            yield node.lineno, "".join(str(part) for part in parts)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings:
            yield node.lineno, node.value


def _docstrings(tree: ast.Module) -> set[int]:
    """Return the identities of the constants that stand alone as statements."""
    return {
        id(node.value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }


def objections(text: str) -> list[str]:
    """Return one line per turn of phrase in `text` that a reader would stumble over."""
    flat = " ".join(text.split())
    return [
        f"{hit.group()!r}: write {better!r}"
        for pattern, better in NOT_THIS_BUT.items()
        for hit in re.finditer(pattern, flat, re.IGNORECASE)
    ]


def main() -> None:
    """Print every objection: `python -m tests.support.english [path prefix]`."""
    prefix = sys.argv[1] if len(sys.argv) > 1 else ""
    for page in pages():
        _print(page, prefix, objections(page.read_text()))
    for source in programs():
        _print(
            source,
            prefix,
            [f"{line}: {each}" for line, text in literals(source) for each in objections(text)],
        )


def _print(path: Path, prefix: str, found: list[str]) -> None:
    name = str(path.relative_to(REPOSITORY))
    for objection in found if name.startswith(prefix) else ():
        print(f"{name}: {objection}")  # noqa: T201  # a command for whoever edits the texts


if __name__ == "__main__":
    main()
