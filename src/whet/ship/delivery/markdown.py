"""Text from outside inside Markdown: it stays text, whatever is in it.

Inside a fence GitHub renders nothing, links no name and no number, and runs nothing; so all that is not ours stands in
one that is longer than any run of backticks in it, or in a code span.
"""

from __future__ import annotations

import re

from ...escapes import neutral

_RUN = re.compile(r"`+")
_LINES = re.compile(r"[\n\t]")
_KEPT = re.compile(r"[^\n\t]+")
_PLAIN = re.compile(r"[^A-Za-z0-9_.:/ +=,()\[\]%-]+")


def fenced(text: str, language: str = "text") -> str:
    """A block that shows a text as it is; characters that steer a terminal or turn the direction are spelt out."""
    shown = _KEPT.sub(lambda match: neutral(match[0]), text)
    return _fence(shown, language)


def verbatim(text: str, language: str) -> str:
    """A block with a text to the byte, for what a program reads again."""
    return _fence(text, language)


def _fence(text: str, language: str) -> str:
    longest = max((len(run) for run in _RUN.findall(text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}{language}\n{text}{'' if text.endswith(chr(10)) else chr(10)}{fence}"


def span(text: str, most: int = 80) -> str:
    """A code span, for a line or a cell of a table."""
    line = neutral(" ".join(_LINES.sub(" ", text).split()))[:most] or " "
    longest = max((len(run) for run in _RUN.findall(line)), default=0)
    ticks = "`" * (longest + 1)
    pad = " " if line.startswith("`") or line.endswith("`") else ""
    # In a table a bar ends the cell, also inside a span.
    return f"{ticks}{pad}{line}{pad}{ticks}".replace("|", "\\|")


def plain(text: str, most: int = 60) -> str:
    """A text for a title or a commit's message, where nothing quotes: no `@`, no `#`, no backtick."""
    return " ".join(_PLAIN.sub("_", text).split())[:most]
