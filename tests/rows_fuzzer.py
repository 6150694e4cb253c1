"""Files of rows as people, notebooks and exporters leave them: odd types, repeats, broken lines."""

from __future__ import annotations

import json
import random
from typing import Any

SOURCE = '''"""What the rows are about."""

# whet: evolve
LIMIT = 5


def sized(text, least=0):
    """long, short, or nothing at all."""
    size = len(text) if isinstance(text, str) else least
    return "long" if size > LIMIT else "short"
'''

_ODD: tuple[Any, ...] = (
    *(None, True, False, 0, -0.0, 1, 1.0, "", " ", [], {}, [[]], {"": None}, "\x00", "\u2028", "\ufeff"),
    *(
        10**25,
        -(2**63),
        2**64,
        1e308,
        5e-324,
        0.1 + 0.2,
        "NaN",
        "\ud83d",
        "\U0001f600",
        "é",
        "é",
        "ﬃ",
        "a" * 5000,
    ),
    *(
        float("nan"),
        float("inf"),
        {"text": "named"},
        {"text": 3, "least": 9},
        {"other": 1},
        [1, 2, 3],
        ["a", 2],
    ),
    *("long", "short", "a question of four words", "a question of four word", {"args": [1]}, {"self": 1}),
)
_NAMES = ("", " ", None, 0, 1, 2.0, "a", "b", "c", "d", "e", "a\x00b", "\x00", "\ud83d", "é", "é")
_GROUPS: tuple[Any, ...] = (*_NAMES, False, True, 1.5, [], ["x"], {"who": "x"})
_SPLITS: tuple[Any, ...] = (
    "train",
    "validation",
    "gate",
    "gate",
    "test",
    "",
    None,
    0,
    3,
    ["gate"],
    {},
    "GATE",
)
_OTHER: tuple[tuple[str, tuple[Any, ...]], ...] = (
    ("id", ("a", "b", 0, 7, None, "", ["x"], {}, "a/b", "../up", "x" * 3000)),
    ("provenance", ({"how": "trace"}, "by hand", ["a"], 7, None, {"line": "x"}, {"repeats": {}})),
    ("label", (1, -1, 0, True, False, "up", "down", "Good", None, "maybe", [], 1e308)),
    ("output", ("long", "short", None, 0, {})),
    ("function", ("sized", "other", 5)),
    ("meta", ({"a": 1}, 5)),
)
_LINES = (
    *(
        "",
        "   ",
        "[]",
        "5",
        "null",
        '"text"',
        "{",
        "{}",
        '{"input": 1}',
        '{"expected": }',
        "\ufeff",
        "# a comment",
    ),
    *(
        '{"input": 1, "expected": 2} trailing',
        '{"input": 1, "input": 2, "expected": 3}',
        "\x00",
        "input,expected",
    ),
)


def file(seed: int) -> bytes:
    """One file: a kind that mostly works with a share of what does not."""
    rng = random.Random(seed)
    rows = [
        _row(rng, place, kind)
        for kind in [rng.choice(_KINDS)]
        for place in range(rng.choice((0, 1, 2, 3, 5, 8, 12, 12, 20, 30)))
    ]
    if rows and rng.random() < 0.3:
        rows += rng.choices(rows, k=rng.randrange(1, 10))
    lines = [json.dumps(row, ensure_ascii=rng.random() < 0.7) for row in rows]
    if rng.random() < 0.08:
        lines.insert(rng.randrange(len(lines) + 1), rng.choice(_LINES))
    if rng.random() < 0.03:
        lines.append('{"input": ' + "[" * 3000 + "]" * 3000 + ', "expected": 1}')
    body = (
        rng.choice(("\n", "\n", "\r\n"))
        .join(lines)
        .encode("utf-8", rng.choice(("replace", "replace", "replace", "surrogatepass")))
    )
    return rng.choice((b"", b"", b"", b"\xef\xbb\xbf")) + body + rng.choice((b"", b"\n", b"\n\n"))


_KINDS = ("plain", "plain", "groups", "splits", "odd", "odd", "unknown", "repeats", "near", "all")


def _row(rng: random.Random, place: int, kind: str) -> dict[str, Any]:
    text, most = "x" * rng.randrange(12), 1 + place % 4 if kind == "all" else 4
    if kind == "near":
        text = f"the customer of shop {rng.randrange(4)} asks when the parcel number {place % 3} comes"
    if kind == "repeats":
        text = "y" * rng.randrange(3)
    row: dict[str, Any] = {"input": {"text": text + ("" if kind in ("repeats", "near") else f"{place}")}}
    row["expected"] = "long" if len(text) > 7 else "short"
    if rng.random() < 0.4:
        row["group"] = rng.choice(("a", "b", "c", "d", place))
    if kind in ("groups", "all"):
        row["group"] = rng.choice(_GROUPS if rng.random() < 0.02 else _NAMES)
    if kind in ("splits", "all"):
        row["split"] = rng.choice(_SPLITS if rng.random() < 0.02 else _SPLITS[:most])
    if kind == "unknown" and rng.random() < 0.7:
        row["output"] = row.pop("expected")
    if kind in ("odd", "all"):
        row["input"] = rng.choice((row["input"], rng.choice(_ODD)))
        row["expected"] = _nested(rng)
        if rng.random() < 0.1:
            name, values = rng.choice(_OTHER)
            row[name] = rng.choice(values)
        if rng.random() < 0.01:
            del row[rng.choice(list(row))]
    return row


def _nested(rng: random.Random) -> Any:
    value = rng.choice(_ODD)
    for _ in range(rng.choice((0, 0, 0, 1, 3, 60))):
        value = [value] if rng.random() < 0.5 else {"in": value}
    return value
