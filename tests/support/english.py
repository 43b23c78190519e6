"""Checks that text for people reads like English, not like a word-by-word translation.

Each pattern matches the telltale part of a phrase that no native-speaking engineer would write; its value
says what to write instead. The check is a floor: text can pass it and still read badly.

`python -m tests.support.english [path prefix]` prints every objection.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

from tests.support.paths import REPOSITORY

NOT_THIS_BUT: dict[str, str] = {
    # The pairs of the style guide (tests/support/test_english.py has them all).
    r"\bbring (a|the) run to its end\b|\bthe newest such\b": "resume the most recent interrupted run",
    r"\bdo not ask before\b|\bwhat cannot be undone\b": "skip the confirmation of irreversible actions",
    r"\b(its|their|the|whose) (own )?time has (not )?passed\b|\bbefore (its|their) time\b": (
        "expired, the retention period has (not) ended"
    ),
    r"\bso many\b": "once this many rows, the number of",
    r"\bwith a larger share of\b|\banew\b": "rewrite, re-create",
    r"\bkeeps? from (no|nothing)\b": "does not affect the others",
    r"\bpurg(e|ed|ing) again what\b|\bpurged half\b": "re-running an interrupted purge",
    r"\bis left as it is\b|\btells? what to do\b|\bdamaged: ": "corrupt. Nothing was changed; run ...",
    r"\bis not gone\b|\bare still there\b|\bpurge it again\b": "is incomplete: ... remain",
    r"\bmarker swept by\b|\bwhose claim holds\b|\btry again later\b": "locked by another client; retry",
    r"\bis being run\b|\bruns it since\b|\bwait for it\b": "another run is in progress; retry later",
    r"\bno clock (can )?shows?\b|\bleads to a time\b": "out of range",
    r"\bstarts like\b|\band (is|are) none\b": "looks like ... but is not",
    r"\bis another (table|one) now\b|\bplan again\b": "was replaced after the plan was made; re-plan",
    r"\bmend(s|ed|ing)?\b|\bshows how it is written\b": "fix, repair; see --help",
    r"\bsome at a time\b|\bthey are told\b|\bstays where it is\b": "yields ... in groups",
    r"\bwhat was (un)?dropped\b|\bis whole\b": "dropped tables; left untouched",
    r"\blooks what is\b": "decides what is due",
    r"\bthe two lines of\b|\bare (two|three|four|five|six) runs\b": "both rows are the best of six runs",
    r"\bwho (still )?holds\b|\bput back only by\b": "the holder of the claim; while its claim is held",
    # Words that the project's vocabulary replaces.
    r"\b(is|are|was|were|be|been|being) told\b|\btold (so|that|by|of|what|how|in|as|with)\b": "reported",
    r"\btells (more|what|which|when|why)\b": "reports, shows",
    r"\bnobody (can tell|knows|looks|reads|wants|needs|holds|told)\b": "name the subject; unknown",
    r"\bin (one|two) go\b": "in one request, at once",
    r"\bcan(not)? be had\b": "is (not) available",
    r"\bbring(s|ing)? [^.\n]{0,40}\bin step\b|\b(kept|brought) in step\b": "sync",
    r"\bset aside\b": "trash",
    r"\bkeeps? changing\b": "too many concurrent changes; retry",
    r"\bis not what it was\b": "has changed",
    # Turns of phrase that recur.
    r"\bwhatever (it|they|is|was)\b": "name it",
    r"\b(gives?|makes?) way\b": "is replaced",
    r"\bof which one could\b|\bof one's own\b|\bof (its|their) own\b": "its own ..., separate",
    r"\b(go|goes|went) by (itself|themselves)\b": "automatically",
    r"(?<!\bthere )\bis no (plan|time|size|number|span|policy|duration|name|list|scalar)\b": "is not a",
    r"\bthat (is|are) (not )?there\b": "existing, missing",
    r"\brows? leads? (to|where)\b": "row with a location, row that refers to",
    r"\bin turns\b": "alternating",
    r"\bby the way\b": "as part of, automatically",
}
"""Patterns, matched in any letter case, and what to write instead."""

_NAME_IN_CODE = re.compile(r"`[\w.]+`")
"""A name as Markdown shows it: a key or a method is called what it is called."""

_DOCSTRINGS_ARE_SHOWN = frozenset({"cli", "namespace.py", "methods.py"})
"""Folders and files whose docstrings become help or API documentation."""


def pages() -> list[Path]:
    """Return every page that people read."""
    return [
        REPOSITORY / "README.md",
        REPOSITORY / "CHANGELOG.md",
        *sorted((REPOSITORY / "docs").rglob("*.md")),
        *sorted((REPOSITORY / "examples").rglob("*.toml")),
        *sorted((REPOSITORY / "src/relance").rglob("*.html")),
    ]


def programs() -> list[Path]:
    """Return every source file with text that people see: errors, help, output."""
    return sorted([*(REPOSITORY / "src/relance").rglob("*.py"), *(REPOSITORY / "examples").rglob("*.py")])


def literals(source: Path) -> Iterator[tuple[int, str]]:
    """Yield a module's string literals with their lines; an f-string is one literal with `…` for values.

    Docstrings are included only where they become help or API documentation.
    """
    tree = ast.parse(source.read_text())
    skipped = set() if _DOCSTRINGS_ARE_SHOWN.intersection(source.parts) else _docstrings(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            skipped |= {id(part) for part in node.values}
            parts = [part.value if isinstance(part, ast.Constant) else "…" for part in node.values]
            yield node.lineno, "".join(str(part) for part in parts)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in skipped:
            yield node.lineno, node.value


def _docstrings(tree: ast.Module) -> set[int]:
    """Return the identities of the constants that are statements of their own."""
    return {
        id(node.value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }


def objections(text: str) -> list[str]:
    """Return one line for each phrase in `text` that should be rewritten."""
    flat = " ".join(text.split())
    return [
        f"{hit.group()!r}: write {better!r}"
        for pattern, better in NOT_THIS_BUT.items()
        for hit in re.finditer(pattern, flat, re.IGNORECASE)
    ]


def objections_to_page(page: Path) -> list[str]:
    """Return the objections to a page, each with the line it is on if it is on one."""
    text = _NAME_IN_CODE.sub("`…`", page.read_text())
    by_line = [
        f"{number}: {objection}"
        for number, line in enumerate(text.splitlines(), 1)
        for objection in objections(line)
    ]
    # A phrase may be wrapped; then only the text as a whole contains it.
    return by_line if len(by_line) == len(objections(text)) else [*by_line, *objections(text)]


def objections_to_program(source: Path) -> list[str]:
    """Return the objections to a module's literals, each with its line; a single word is a name, not text."""
    return [
        f"{line}: {objection}"
        for line, text in literals(source)
        if " " in text.strip()
        for objection in objections(text)
    ]


def main() -> None:
    """Print the objections to all files whose path starts with the prefix given as the first argument."""
    prefix = sys.argv[1] if len(sys.argv) > 1 else ""
    for path in [*pages(), *programs()]:
        name = str(path.relative_to(REPOSITORY))
        if not name.startswith(prefix):
            continue
        found = objections_to_program(path) if path.suffix == ".py" else objections_to_page(path)
        for objection in found:
            print(f"{name}:{objection}")  # noqa: T201  # a command line for people who edit the texts


if __name__ == "__main__":
    main()
