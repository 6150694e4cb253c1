"""Small programs of everyday kinds, each with a bug as a person makes it: half lost an expression or a statement.

Parsers, intervals, matrices, text, dates, graphs, state machines.  All were written down with their bugs before the
search was run on any of them.
"""

from __future__ import annotations

import random
from typing import Any

from classics import Classic


def _word(rng: random.Random, letters: str = "abc", least: int = 1, most: int = 5) -> str:
    return "".join(rng.choice(letters) for _ in range(rng.randint(least, most)))


def _spans(rng: random.Random, most: int = 6, longest: int = 6) -> list[list[int]]:
    starts = [rng.randint(0, 20) for _ in range(rng.randint(0, most))]
    return [[start, start + rng.randint(0, longest)] for start in starts]


def _grid(rng: random.Random, low: int = 0, high: int = 9, tall: int = 1) -> list[list[int]]:
    width = rng.randint(1, 4)
    return [[rng.randint(low, high) for _ in range(width)] for _ in range(rng.randint(tall, 3 + tall))]


def _links(rng: random.Random, count: int) -> list[list[int]]:
    return [[a, b] for a in range(count) for b in range(a + 1, count) if rng.random() < 0.35]


def _query(rng: random.Random) -> dict[str, Any]:
    pairs = [
        rng.choice([f"{_word(rng)}={_word(rng)}", _word(rng), f"{_word(rng)}=", f"{_word(rng)}=a=b"])
        for _ in range(rng.randint(0, 4))
    ]
    return {"query": "&".join(pairs)}


def _product(rng: random.Random) -> dict[str, Any]:
    rows, inner, columns = (rng.randint(1, 3) for _ in range(3))
    return {
        "left": [[rng.randint(-3, 5) for _ in range(inner)] for _ in range(rows)],
        "right": [[rng.randint(-3, 5) for _ in range(columns)] for _ in range(inner)],
    }


def _sum(rng: random.Random) -> dict[str, Any]:
    signs = [rng.choice("+-*") + str(rng.randint(0, 30)) for _ in range(rng.randint(0, 3))]
    return {"text": (str(rng.randint(0, 40)) + "".join(signs)).replace("+", rng.choice(["+", " + "]))}


def _maze(rng: random.Random) -> dict[str, Any]:
    width = rng.randint(2, 4)
    rows = [
        "".join("#" if rng.random() < 0.25 else "." for _ in range(width)) for _ in range(rng.randint(2, 4))
    ]
    return {"rows": ["." + rows[0][1:], *rows[1:]]}


FRESH = [
    Classic(
        "split_fields",
        """
def split_fields(line):
    fields, current, quoted = [], "", False
    for letter in line:
        if letter == '"':
            quoted = not quoted
        elif letter == "," and not quoted:
            fields.append(current)
            current = ""
        else:
            current += letter
    fields.append(current)
    return fields
""",
        '            fields.append(current)\n            current = ""\n',
        "            fields.append(current)\n",
        lambda rng: {"line": _word(rng, 'ab,,"c', 0, 12)},
    ),
    Classic(
        "duration",
        """
def duration(text):
    seconds, number = 0, ""
    units = {"h": 3600, "m": 60, "s": 1}
    for letter in text:
        if letter.isdigit():
            number += letter
        elif letter in units and number:
            seconds += int(number) * units[letter]
            number = ""
    return seconds
""",
        "seconds += int(number) * units[letter]",
        "seconds += int(number)",
        lambda rng: {"text": "".join(f"{rng.randint(0, 70)}{unit}" for unit in "hms" if rng.random() < 0.6)},
    ),
    Classic(
        "parse_query",
        """
def parse_query(query):
    values = {}
    for pair in query.split("&"):
        if not pair:
            continue
        name, _, value = pair.partition("=")
        values.setdefault(name, []).append(value)
    return values
""",
        'name, _, value = pair.partition("=")',
        'name, _, value = pair.rpartition("=")',
        _query,
    ),
    Classic(
        "tokens",
        """
def tokens(text):
    parts, number = [], ""
    for letter in text:
        if letter.isdigit():
            number += letter
            continue
        if number:
            parts.append(int(number))
            number = ""
        if letter != " ":
            parts.append(letter)
    if number:
        parts.append(int(number))
    return parts
""",
        "    if number:\n        parts.append(int(number))\n    return parts",
        "    return parts",
        _sum,
    ),
    Classic(
        "merged",
        """
def merged(spans):
    union = []
    for start, end in sorted(spans):
        if union and start <= union[-1][1]:
            union[-1][1] = max(union[-1][1], end)
        else:
            union.append([start, end])
    return union
""",
        "union[-1][1] = max(union[-1][1], end)",
        "union[-1][1] = end",
        lambda rng: {"spans": _spans(rng)},
    ),
    Classic(
        "overlap",
        """
def overlap(first, second):
    low = max(first[0], second[0])
    high = min(first[1], second[1])
    return max(0, high - low)
""",
        "return max(0, high - low)",
        "return high - low",
        lambda rng: {
            "first": [start := rng.randint(0, 9), start + rng.randint(0, 6)],
            "second": [start := rng.randint(0, 9), start + rng.randint(0, 6)],
        },
    ),
    Classic(
        "free_slots",
        """
def free_slots(busy, begin, end):
    slots, cursor = [], begin
    for start, stop in sorted(busy):
        if start > cursor:
            slots.append([cursor, min(start, end)])
        cursor = max(cursor, stop)
        if cursor >= end:
            break
    if cursor < end:
        slots.append([cursor, end])
    return slots
""",
        "        cursor = max(cursor, stop)\n",
        "        cursor = stop\n",
        lambda rng: {"busy": _spans(rng, 6, 12), "begin": 0, "end": rng.randint(20, 30)},
    ),
    Classic(
        "rotated",
        """
def rotated(grid):
    height, width = len(grid), len(grid[0])
    turned = []
    for column in range(width):
        turned.append([grid[height - 1 - row][column] for row in range(height)])
    return turned
""",
        "grid[height - 1 - row][column]",
        "grid[row][column]",
        lambda rng: {"grid": _grid(rng)},
    ),
    Classic(
        "spiral",
        """
def spiral(grid):
    top, bottom, left, right = 0, len(grid) - 1, 0, len(grid[0]) - 1
    order = []
    while top <= bottom and left <= right:
        for column in range(left, right + 1):
            order.append(grid[top][column])
        top += 1
        for row in range(top, bottom + 1):
            order.append(grid[row][right])
        right -= 1
        if top <= bottom:
            for column in range(right, left - 1, -1):
                order.append(grid[bottom][column])
            bottom -= 1
        if left <= right:
            for row in range(bottom, top - 1, -1):
                order.append(grid[row][left])
            left += 1
    return order
""",
        "        if left <= right:\n            for row in range(bottom, top - 1, -1):",
        "        if left < right:\n            for row in range(bottom, top - 1, -1):",
        lambda rng: {"grid": _grid(rng, tall=3)},
    ),
    Classic(
        "product",
        """
def product(left, right):
    rows, inner, columns = len(left), len(right), len(right[0])
    cells = [[0] * columns for _ in range(rows)]
    for row in range(rows):
        for column in range(columns):
            for place in range(inner):
                cells[row][column] += left[row][place] * right[place][column]
    return cells
""",
        "cells[row][column] += left[row][place] * right[place][column]",
        "cells[row][column] = left[row][place] * right[place][column]",
        _product,
    ),
    Classic(
        "saddle",
        """
def saddle(grid):
    points = []
    for row, values in enumerate(grid):
        for column, value in enumerate(values):
            above = [line[column] for line in grid]
            if value == max(values) and value == min(above):
                points.append([row, column])
    return points
""",
        "if value == max(values) and value == min(above):",
        "if value == max(values):",
        lambda rng: {"grid": _grid(rng, 0, 4)},
    ),
    Classic(
        "wrapped",
        """
def wrapped(text, width):
    lines, line = [], ""
    for word in text.split():
        if not line:
            line = word
        elif len(line) + 1 + len(word) <= width:
            line += " " + word
        else:
            lines.append(line)
            line = word
    if line:
        lines.append(line)
    return lines
""",
        "elif len(line) + 1 + len(word) <= width:",
        "elif len(line) <= width:",
        lambda rng: {
            "text": " ".join(_word(rng) for _ in range(rng.randint(0, 9))),
            "width": rng.randint(5, 12),
        },
    ),
    Classic(
        "roman",
        """
def roman(text):
    worth = {"I": 1, "V": 5, "X": 10, "L": 50, "C": 100}
    total = 0
    for index, letter in enumerate(text):
        value = worth[letter]
        if index + 1 < len(text) and value < worth[text[index + 1]]:
            total -= value
        else:
            total += value
    return total
""",
        "            total -= value\n",
        "            total += value\n",
        lambda rng: {
            "text": rng.choice(["", "X", "XX", "XL", "L", "LX", "XC", "C"])
            + rng.choice(["", "I", "II", "III", "IV", "V", "VI", "VII", "VIII", "IX"])
        },
    ),
    Classic(
        "shifted",
        """
def shifted(text, key):
    letters = []
    for letter in text:
        if letter.islower():
            letters.append(chr((ord(letter) - 97 + key) % 26 + 97))
        else:
            letters.append(letter)
    return "".join(letters)
""",
        "chr((ord(letter) - 97 + key) % 26 + 97)",
        "chr(ord(letter) - 97 + key + 97)",
        lambda rng: {"text": _word(rng, "amyz C", 0, 8), "key": rng.randint(0, 25)},
    ),
    Classic(
        "runs",
        """
def runs(text):
    pieces, count = [], 0
    for index, letter in enumerate(text):
        count += 1
        if index + 1 == len(text) or text[index + 1] != letter:
            pieces.append(letter + (str(count) if count > 1 else ""))
            count = 0
    return "".join(pieces)
""",
        'pieces.append(letter + (str(count) if count > 1 else ""))',
        "pieces.append(letter + str(count))",
        lambda rng: {"text": _word(rng, "aab", 0, 10)},
    ),
    Classic(
        "day_of_year",
        """
def day_of_year(year, month, day):
    lengths = [31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31]
    leap = year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
    if leap:
        lengths[1] = 29
    return sum(lengths[: month - 1]) + day
""",
        "leap = year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)",
        "leap = year % 4 == 0 and year % 100 != 0",
        lambda rng: {
            "year": rng.choice([1900, 2000, 2000, 2004, 2023, 2024, 2100, 2400]),
            "month": rng.randint(1, 12),
            "day": rng.randint(1, 28),
        },
    ),
    Classic(
        "working_days",
        """
def working_days(first, last, holidays):
    days = 0
    for day in range(first, last + 1):
        if day % 7 in (5, 6):
            continue
        if day in holidays:
            continue
        days += 1
    return days
""",
        "        if day in holidays:\n            continue\n",
        "",
        lambda rng: {
            "first": (first := rng.randint(0, 20)),
            "last": first + rng.randint(0, 15),
            "holidays": sorted(rng.sample(range(30), rng.randint(0, 6))),
        },
    ),
    Classic(
        "clock",
        """
def clock(minutes):
    hours, rest = divmod(minutes, 60)
    hours %= 24
    half = "am" if hours < 12 else "pm"
    return f"{hours % 12 or 12}:{rest:02d} {half}"
""",
        "    hours %= 24\n",
        "",
        lambda rng: {"minutes": rng.randint(0, 4000)},
    ),
    Classic(
        "build_order",
        """
def build_order(count, needs):
    waiting = [0] * count
    for _, after in needs:
        waiting[after] += 1
    ready = [node for node in range(count) if waiting[node] == 0]
    order = []
    while ready:
        node = ready.pop(0)
        order.append(node)
        for before, after in needs:
            if before == node:
                waiting[after] -= 1
                if waiting[after] == 0:
                    ready.append(after)
    return order
""",
        "                waiting[after] -= 1\n",
        "",
        lambda rng: {"count": (count := rng.randint(1, 6)), "needs": _links(rng, count)},
    ),
    Classic(
        "steps_out",
        """
def steps_out(rows):
    queue, seen = [(0, 0, 0)], {(0, 0)}
    while queue:
        y, x, steps = queue.pop(0)
        if y == len(rows) - 1 and x == len(rows[0]) - 1:
            return steps
        for ny, nx in ((y + 1, x), (y - 1, x), (y, x + 1), (y, x - 1)):
            if 0 <= ny < len(rows) and 0 <= nx < len(rows[0]) and (ny, nx) not in seen:
                if rows[ny][nx] != "#":
                    seen.add((ny, nx))
                    queue.append((ny, nx, steps + 1))
    return -1
""",
        "if 0 <= ny < len(rows) and 0 <= nx < len(rows[0]) and (ny, nx) not in seen:",
        "if ny < len(rows) and nx < len(rows[0]) and (ny, nx) not in seen:",
        _maze,
    ),
    Classic(
        "components",
        """
def components(count, links):
    parent = list(range(count))
    def root(node):
        while parent[node] != node:
            node = parent[node]
        return node
    for a, b in links:
        parent[root(a)] = root(b)
    return len({root(node) for node in range(count)})
""",
        "parent[root(a)] = root(b)",
        "parent[a] = b",
        lambda rng: {
            "count": (count := rng.randint(1, 7)),
            "links": rng.sample(links := _links(rng, count), len(links)),
        },
    ),
    Classic(
        "vending",
        """
def vending(events, price):
    balance, sold, returned = 0, 0, 0
    for event in events:
        if event == "buy":
            if balance >= price:
                sold += 1
                balance -= price
        elif event == "cancel":
            returned += balance
            balance = 0
        else:
            balance += int(event)
    return [sold, balance, returned]
""",
        "            returned += balance\n            balance = 0\n",
        "            returned += balance\n",
        lambda rng: {
            "events": [rng.choice(["buy", "cancel", "1", "2", "5", "2"]) for _ in range(rng.randint(0, 9))],
            "price": rng.randint(1, 5),
        },
    ),
    Classic(
        "door",
        """
def door(events):
    state, alarms = "closed", 0
    for event in events:
        if event == "open" and state == "closed":
            state = "open"
        elif event == "open" and state == "locked":
            alarms += 1
        elif event == "close" and state == "open":
            state = "closed"
        elif event == "lock" and state == "closed":
            state = "locked"
        elif event == "unlock" and state == "locked":
            state = "closed"
    return [state, alarms]
""",
        'elif event == "lock" and state == "closed":',
        'elif event == "lock":',
        lambda rng: {
            "events": [rng.choice(["open", "close", "lock", "unlock"]) for _ in range(rng.randint(0, 8))]
        },
    ),
    Classic(
        "newer",
        """
def newer(first, second):
    mine = [int(part) for part in first.split(".")]
    yours = [int(part) for part in second.split(".")]
    length = max(len(mine), len(yours))
    mine += [0] * (length - len(mine))
    yours += [0] * (length - len(yours))
    return mine > yours
""",
        '    mine = [int(part) for part in first.split(".")]\n    yours = [int(part) for part in second.split(".")]\n',
        '    mine = [part for part in first.split(".")]\n    yours = [part for part in second.split(".")]\n',
        lambda rng: {
            name: ".".join(str(rng.choice([0, 1, 2, 9, 10, 11])) for _ in range(rng.randint(1, 3)))
            for name in ("first", "second")
        },
    ),
    Classic(
        "averages",
        """
def averages(values, width):
    means = []
    for end in range(width, len(values) + 1):
        window = values[end - width : end]
        means.append(sum(window) / width)
    return means
""",
        "    for end in range(width, len(values) + 1):\n        window = values[end - width : end]\n",
        "    for end in range(width, len(values)):\n        window = values[end - width - 1 : end]\n",
        lambda rng: {
            "values": [rng.randint(0, 9) for _ in range(rng.randint(0, 8))],
            "width": rng.randint(1, 4),
        },
    ),
    Classic(
        "top_words",
        """
def top_words(text, most):
    counts = {}
    for word in text.lower().split():
        counts[word] = counts.get(word, 0) + 1
    ranked = sorted(counts, key=lambda word: (-counts[word], word))
    return ranked[:most]
""",
        "ranked = sorted(counts, key=lambda word: (-counts[word], word))",
        "ranked = sorted(counts, key=lambda word: counts[word])",
        lambda rng: {
            "text": " ".join(_word(rng, "aAb", 1, 2) for _ in range(rng.randint(0, 9))),
            "most": rng.randint(1, 4),
        },
    ),
    Classic(
        "flattened",
        """
def flattened(tree, prefix=""):
    flat = {}
    for key, value in tree.items():
        path = f"{prefix}.{key}" if prefix else key
        if isinstance(value, dict):
            flat.update(flattened(value, path))
        else:
            flat[path] = value
    return flat
""",
        "flat.update(flattened(value, path))",
        "flat.update(flattened(value, key))",
        lambda rng: {
            "tree": {
                _word(rng): {
                    _word(rng): rng.choice([1, {"x": 2, "y": {"z": 3}}]) for _ in range(rng.randint(0, 2))
                }
                if rng.random() < 0.7
                else rng.randint(0, 9)
                for _ in range(rng.randint(0, 3))
            }
        },
    ),
    Classic(
        "balanced",
        """
def balanced(text):
    pairs = {")": "(", "]": "["}
    stack = []
    for letter in text:
        if letter in "([":
            stack.append(letter)
        elif letter in pairs:
            if not stack or stack.pop() != pairs[letter]:
                return False
    return not stack
""",
        "    return not stack",
        "    return True",
        lambda rng: {"text": _word(rng, "([)]a", 0, 6)},
    ),
]
"""In the order of their kinds."""
