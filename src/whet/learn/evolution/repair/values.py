"""The values beside those that stand in a constant or in a file of values.

Of a wrong value nobody knows the right one, and mostly it is near: a number twice as high, the value of the row beside,
a step that the plan of another topic has.
"""

from __future__ import annotations

import ast
import json
import re
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest

from ....repository.text import SourceText

ENTRY = re.compile(
    r'(?:(")|^[ \t]*(?:-[ \t]+)?)(?P<name>(?(1)[^"\n]+|[A-Za-z_][\w.-]*))(?(1)")\s*[:=]\s*'
    r'(?P<value>"(?P<text>[^"\\\n]*)"|-?(?:0|[1-9]\d*)(?:\.\d+)?|true|false)(?=\s*(?:[,}\n;#]|\Z))',
    re.MULTILINE,
)
"""A name and its plain value in a file of values: JSON, or a line of TOML, YAML or INI."""
_LIST = re.compile(
    r'(?P<name>"[^"\n]+"|[A-Za-z_][\w.-]*)\s*[:=]\s*\[(?P<items>\s*(?:"[^"\\\n]*"\s*,?\s*)*)\]'
)
"""A name and its list of texts in JSON or TOML."""
_TABLE = re.compile(r"\{(?P<body>[^{}\n]+)\}")
"""A table on one line, as a row of a table of plans is."""
_TEXT = re.compile(r'"([^"\\\n]*)"')
_CELL = r'(?:"(?:[^"]|"")*"|[^{0}"\n]*)(?=[{0}\n]|$)'
_NUMBER = re.compile(r"-?(?:0|[1-9]\d*)(?:\.\d+)?")
"""Of a cell; what begins with a 0 and goes on is a name, as a telephone number is."""
_WORD = re.compile(r"[^\W\d_]{3,}")
_VALUES = 12
"""Values of a constant that are raced."""
_MOST = 36
"""Variants of a file of values."""
_FEW = 8
_FEWEST_ROWS = 3
_KINDS = 0.6
"""Texts of a column for each of its rows, up to which they are kinds of something, so that another one may be right."""


def neighbours(text: str) -> list[str]:
    """A constant with other values: around a number, or each entry of a table with the value of another one."""
    source = SourceText(text)
    node = source.tree.body[-1] if source.tree.body else None
    if not isinstance(node, ast.Assign | ast.AnnAssign) or node.value is None:
        return []
    changed: list[str] = []
    for place in _entries(node.value):
        try:
            now = ast.literal_eval(place)
        except (ValueError, TypeError, SyntaxError):
            continue
        for value in _around(now, node.value):
            changed.append(source.spliced([(source.span(place), repr(value))]))
    return list(dict.fromkeys(changed))[:_VALUES]


def values_near(
    text: str, words: Collection[str], *, table: bool = False, functions: Collection[str] = ()
) -> list[str]:
    """A file of values with another one.

    Numbers beside, switches turned, texts exchanged for others of the same file, a list with one item more, of another
    list of its name or a function where those are functions, or with one less, or a list that other rows have; of a
    table the cells that are a number, or a kind that other rows have.

    Args:
        words: entries that one of these is in the name of come first; the others only where they are few.
        table: it holds rows of cells, with their names in the first one.
        functions: names of the agent's functions.
    """
    places = (
        [*_cells(text, words)]
        if table
        else [
            *_plain_values(text),
            *_lists(text, words, functions),
            *_lacking(text, words),
        ]
    )
    places = [place for place in places if place.others]
    named = sorted(
        (place for place in places if place.told_by(words)), key=lambda place: -place.told_by(words)
    )
    chosen = named or (places if len(places) <= _VALUES else [])
    # One of each entry before a second one of any: not all of them are afforded.
    turns = zip_longest(*([place.put(text, other) for other in place.others] for place in chosen))
    changed = [each for turn in turns for each in turn if each is not None]
    return list(dict.fromkeys(changed))[:_MOST]


@dataclass(frozen=True, slots=True)
class _Place:
    """A value in a text."""

    name: str
    """What it is of, in words."""
    span: tuple[int, int]
    others: Sequence[str]
    """What may stand there instead, the likeliest first."""

    def told_by(self, words: Collection[str]) -> int:
        return sum(word in self.name.casefold() for word in words)

    def put(self, text: str, other: str) -> str:
        begin, end = self.span
        return f"{text[:begin]}{other}{text[end:]}"


def _plain_values(text: str) -> Iterator[_Place]:
    entries = list(ENTRY.finditer(text))
    strings = list(dict.fromkeys(match["text"] for match in entries if match["text"] is not None))
    for match in entries:
        if match["text"] is not None:
            others = [f'"{other}"' for other in strings if other != match["text"]]
        else:
            others = [json.dumps(other) for other in _around(json.loads(match["value"]), ast.Constant(0))]
        yield _Place(match["name"], match.span("value"), others)


def _lists(text: str, words: Collection[str], functions: Collection[str]) -> Iterator[_Place]:
    lists = list(_LIST.finditer(text))
    known: dict[str, Counter[str]] = {}
    for match in lists:
        known.setdefault(match["name"], Counter()).update(_TEXT.findall(match["items"]))
    # A function that is a step of no list any more may be the one that was lost.
    lost = sorted({*functions}.difference(*known.values()))
    for match in lists:
        items, name = _TEXT.findall(match["items"]), _whose(text, match.start())
        count = known[match["name"]]
        called = len({*functions} & count.keys()) > len(count) / 2
        more = [item for item in [*(lost if called else ()), *count] if item not in items]
        more.sort(key=lambda item: (-_alike(item, [name, *words]), -count[item]))
        others = [[*items, item] for item in more[:_VALUES]]
        others += [[*items[:place], *items[place + 1 :]] for place in reversed(range(len(items)))]
        written = [", ".join(json.dumps(item, ensure_ascii=False) for item in each) for each in others]
        yield _Place(name, match.span("items"), written)


def _lacking(text: str, words: Collection[str]) -> Iterator[_Place]:
    """Where a row has no list of a name that other rows have."""
    rows = [(match, list(_LIST.finditer(match["body"]))) for match in _TABLE.finditer(text)]
    known: dict[str, Counter[str]] = {}
    for _, lists in rows:
        for each in lists:
            known.setdefault(each["name"], Counter())[each[0]] += 1
    for row, lists in rows:
        name, end = _whose(text, row.start()), row.start("body") + len(row["body"].rstrip())
        for key in known.keys() - {each["name"] for each in lists}:
            kinds = known[key]
            chosen = sorted(kinds, key=lambda each: (-_alike(each, [name, *words]), -kinds[each]))
            yield _Place(name, (end, end), [f", {each}" for each in chosen[:_VALUES]])


def _whose(text: str, place: int) -> str:
    """What a value in a nested text is of: its line up to there, and the nearest line above that it is under."""
    *above, line = text[:place].split("\n")
    depth = len(line) - len(line.lstrip())
    under = next((each for each in reversed(above) if each.strip() and _heads(each, depth)), "")
    return f"{line} {under}"


def _heads(line: str, depth: int) -> bool:
    return line.startswith("[") or len(line) - len(line.lstrip()) < depth


def _cells(text: str, words: Collection[str]) -> Iterator[_Place]:
    header = text.partition("\n")[0]
    delimiter = max(",;\t|", key=header.count)
    cell = re.compile(_CELL.format(re.escape(delimiter)))
    rows, begin = [], 0
    for line in text.splitlines(keepends=True):
        spans, at = [], 0
        body = line.rstrip("\r\n")
        while (match := cell.match(body, at)) is not None:
            spans.append((begin + match.start(), begin + match.end()))
            at = match.end() + 1
            if at > len(body):
                break
        rows.append(spans)
        begin += len(line)
    width = len(rows[0]) if rows else 0
    # A row that is no row of this table is left as it is.
    rows = [row for row in rows[1:] if row and len(row) == width]
    if len(rows) < _FEWEST_ROWS:
        return
    columns = [Counter(text[slice(*row[number])] for row in rows) for number in range(width)]
    for row in rows:
        name = text[row[0][0] : row[-1][1]]
        for number, span in enumerate(row):
            now, kinds = text[slice(*span)], columns[number]
            others: list[str] = []
            if _NUMBER.fullmatch(now):
                others = [json.dumps(other) for other in _around(json.loads(now), ast.Constant(0))]
            elif now and len(kinds) <= _KINDS * len(rows):
                others = [kind for kind in kinds if kind and kind != now]
                others.sort(key=lambda kind: (-_alike(kind, [name, *words]), -kinds[kind]))
            yield _Place(name, span, others)


def _alike(item: str, texts: Sequence[str]) -> int:
    """Words of an item that begin as one of these texts' do: `repairs` and `repair`."""
    others = {word[:5] for text in texts for word in _WORD.findall(text.casefold().replace("_", " "))}
    return len({word[:5] for word in _WORD.findall(item.casefold().replace("_", " "))} & others)


def _entries(value: ast.expr) -> list[ast.expr]:
    if isinstance(value, ast.Dict):
        return value.values
    return value.elts if isinstance(value, ast.List | ast.Tuple) else [value]


def _around(now: object, whole: ast.expr) -> list[object]:
    """Other values for one place of a constant."""
    if isinstance(now, bool):
        return [not now]
    if isinstance(now, int):
        # One more of a few is much, and of a hundred nothing.
        next_to, further = (now + 1, now - 1), (4 * now, 10 * now, *([now // 10] if now % 10 == 0 else []))
        steps = (*next_to, *further) if abs(now) < _FEW else (*further, *next_to)
        return [value for value in dict.fromkeys((2 * now, now // 2, *steps, 0)) if value != now]
    if isinstance(now, float):
        return [round(now * factor, 6) for factor in (2, 0.5, 1.5, 0.75, 4, 0.25, 10, 0.1) if now] or [
            0.5,
            1.0,
        ]
    others = [ast.literal_eval(other) for other in _entries(whole) if isinstance(other, ast.Constant)]
    return [value for value in dict.fromkeys(others) if isinstance(now, str) and value != now]
