"""Small correct programs of many kinds, and inputs of them, for mutants to be made of.

Half of them were looked at while the edits of `learn/evolution/singles.py` were chosen (`SEEN`), the others never.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Subject:
    """One program: its text, the function that rows call, and a draw of an input."""

    name: str
    text: str
    draw: Callable[[random.Random], dict[str, Any]]


def _numbers(rng: random.Random, most: int = 8, low: int = 0, high: int = 20) -> list[int]:
    return [rng.randint(low, high) for _ in range(rng.randint(0, most))]


def _words(rng: random.Random, most: int = 6) -> str:
    words = ["red", "Blue", "a", "green", "of", "Tea", "pot", "x1", "lamp"]
    return " ".join(rng.choice(words) for _ in range(rng.randint(0, most)))


def _edges(rng: random.Random, nodes: int) -> list[list[int]]:
    return [[a, b] for a in range(nodes) for b in range(nodes) if a != b and rng.random() < 0.3]


MERGE = """
def merge_intervals(spans):
    merged = []
    for start, end in sorted(spans):
        if merged and start <= merged[-1][1]:
            merged[-1][1] = max(merged[-1][1], end)
        else:
            merged.append([start, end])
    return merged
"""
SEARCH = """
def search(values, wanted):
    low, high = 0, len(values) - 1
    while low <= high:
        middle = (low + high) // 2
        if values[middle] == wanted:
            return middle
        if values[middle] < wanted:
            low = middle + 1
        else:
            high = middle - 1
    return -1
"""
COINS = """
def coins(amount, sizes):
    fewest = [0] + [None] * amount
    for total in range(1, amount + 1):
        for size in sizes:
            if size <= total and fewest[total - size] is not None:
                count = fewest[total - size] + 1
                if fewest[total] is None or count < fewest[total]:
                    fewest[total] = count
    return fewest[amount]
"""
INVOICE = """
def invoice(lines, member):
    total = 0
    for quantity, cents in lines:
        price = quantity * cents
        if quantity >= 10:
            price -= price * 5 // 100
        total += price
    if member and total > 5000:
        total -= 500
    shipping = 0 if total >= 3000 else 490
    return total + shipping
"""
DATES = """
def days_between(first, second):
    def number(year, month, day):
        lengths = [31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31]
        leap = year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
        days = day + sum(lengths[: month - 1])
        if leap and month > 2:
            days += 1
        before = year - 1
        return days + before * 365 + before // 4 - before // 100 + before // 400

    return number(*second) - number(*first)
"""
TITLE = """
def title(text):
    small = ("a", "of", "the")
    words = []
    for index, word in enumerate(text.split()):
        word = word.lower()
        if index == 0 or word not in small:
            word = word[0].upper() + word[1:]
        words.append(word)
    return " ".join(words)
"""
QUERY = """
def parse_query(text):
    fields = {}
    for part in text.split("&"):
        if not part:
            continue
        name, sign, content = part.partition("=")
        content = content.replace("+", " ") if sign else None
        fields.setdefault(name.strip(), []).append(content)
    return fields
"""
DISTANCES = """
def distances(count, edges, start):
    near = {node: [] for node in range(count)}
    for a, b in edges:
        near[a].append(b)
    found = {start: 0}
    queue = [start]
    while queue:
        node = queue.pop(0)
        for other in near[node]:
            if other not in found:
                found[other] = found[node] + 1
                queue.append(other)
    return [found.get(node, -1) for node in range(count)]
"""
ROMAN = """
def roman(text):
    worth = {"I": 1, "V": 5, "X": 10, "L": 50, "C": 100, "D": 500, "M": 1000}
    total = 0
    for index, letter in enumerate(text):
        value = worth[letter]
        if index + 1 < len(text) and worth[text[index + 1]] > value:
            total -= value
        else:
            total += value
    return total
"""
RUNS = """
def squeeze(text):
    out = ""
    count = 0
    for index, letter in enumerate(text):
        count += 1
        if index + 1 == len(text) or text[index + 1] != letter:
            out += letter if count == 1 else f"{letter}{count}"
            count = 0
    return out
"""
KNAPSACK = """
def pack(room, things):
    best = [0] * (room + 1)
    for weight, worth in things:
        for space in range(room, weight - 1, -1):
            best[space] = max(best[space], best[space - weight] + worth)
    return best[room]
"""
TOPOLOGY = """
def order(count, edges):
    waiting = [0] * count
    for _, b in edges:
        waiting[b] += 1
    ready = [node for node in range(count) if waiting[node] == 0]
    done = []
    while ready:
        node = min(ready)
        ready.remove(node)
        done.append(node)
        for a, b in edges:
            if a == node:
                waiting[b] -= 1
                if waiting[b] == 0:
                    ready.append(b)
    return done if len(done) == count else None
"""
LUHN = """
def valid_card(text):
    digits = [int(sign) for sign in text if sign.isdigit()]
    if len(digits) < 2:
        return False
    total = 0
    for place, digit in enumerate(reversed(digits)):
        if place % 2 == 1:
            digit *= 2
            if digit > 9:
                digit -= 9
        total += digit
    return total % 10 == 0
"""
MEDIAN = """
def summary(values):
    if not values:
        return None
    ranked = sorted(values)
    half = len(ranked) // 2
    median = ranked[half] if len(ranked) % 2 else (ranked[half - 1] + ranked[half]) / 2
    spread = ranked[-1] - ranked[0]
    above = sum(1 for value in values if value > median)
    return {"median": median, "spread": spread, "above": above}
"""
MONEY = """
def cents(text):
    text = text.strip().lstrip("$").replace(",", "")
    negative = text.startswith("-")
    whole, _, part = text.lstrip("-").partition(".")
    amount = int(whole or "0") * 100 + int(part.ljust(2, "0")[:2])
    return -amount if negative else amount
"""
WRAP = """
def wrap(text, width):
    lines = []
    line = ""
    for word in text.split():
        if line and len(line) + 1 + len(word) > width:
            lines.append(line)
            line = word
        else:
            line = f"{line} {word}" if line else word
    if line:
        lines.append(line)
    return lines
"""


def _date(rng: random.Random) -> list[int]:
    return [
        rng.choice((1899, 1900, 1996, 2000, 2001, 2004, 2023, 2100)),
        rng.randint(1, 12),
        rng.randint(1, 28),
    ]


def _graph(rng: random.Random, *, ordered: bool = False) -> dict[str, Any]:
    count = rng.randint(1, 6)
    edges = _edges(rng, count)
    if ordered and rng.random() < 0.8:
        edges = [edge for edge in edges if edge[0] < edge[1]]
    rng.shuffle(edges)
    return {"count": count, "edges": edges}


def _roman(rng: random.Random) -> str:
    number, text = rng.randint(1, 2400), ""
    for worth, sign in zip(
        (1000, 900, 500, 400, 100, 90, 50, 40, 10, 9, 5, 4, 1),
        ("M", "CM", "D", "CD", "C", "XC", "L", "XL", "X", "IX", "V", "IV", "I"),
        strict=True,
    ):
        text += sign * (number // worth)
        number %= worth
    return text


def _search(rng: random.Random) -> dict[str, Any]:
    values = sorted(set(_numbers(rng, 9)))
    return {"values": values, "wanted": rng.choice([*values, rng.randint(-1, 21)])}


def _graph_from(rng: random.Random) -> dict[str, Any]:
    graph = _graph(rng)
    return {**graph, "start": rng.randrange(graph["count"])}


SUBJECTS = [
    Subject(
        "merge_intervals",
        MERGE,
        lambda rng: {"spans": [sorted(rng.sample(range(12), 2)) for _ in range(rng.randint(0, 6))]},
    ),
    Subject("search", SEARCH, _search),
    Subject(
        "coins",
        COINS,
        lambda rng: {
            "amount": rng.randint(0, 20),
            "sizes": rng.sample([1, 2, 3, 5, 7, 10], rng.randint(1, 3)),
        },
    ),
    Subject(
        "invoice",
        INVOICE,
        lambda rng: {
            "lines": [
                [rng.choice((1, 2, 9, 10, 11, 12)), rng.randint(50, 900)] for _ in range(rng.randint(0, 4))
            ],
            "member": rng.random() < 0.5,
        },
    ),
    Subject("days_between", DATES, lambda rng: {"first": _date(rng), "second": _date(rng)}),
    Subject("title", TITLE, lambda rng: {"text": _words(rng)}),
    Subject(
        "parse_query",
        QUERY,
        lambda rng: {
            "text": "&".join(
                rng.choice(("a=1", "b=x+y", " c =2", "d", "", "a=3=4", "e="))
                for _ in range(rng.randint(0, 5))
            )
        },
    ),
    Subject("distances", DISTANCES, _graph_from),
    Subject("roman", ROMAN, lambda rng: {"text": _roman(rng)}),
    Subject(
        "squeeze", RUNS, lambda rng: {"text": "".join(rng.choice("aab") for _ in range(rng.randint(0, 9)))}
    ),
    Subject(
        "pack",
        KNAPSACK,
        lambda rng: {
            "room": rng.randint(0, 12),
            "things": [[rng.randint(1, 6), rng.randint(1, 20)] for _ in range(rng.randint(0, 5))],
        },
    ),
    Subject("order", TOPOLOGY, lambda rng: _graph(rng, ordered=True)),
    Subject(
        "valid_card",
        LUHN,
        lambda rng: {"text": "".join(rng.choice("0123456789 ") for _ in range(rng.randint(0, 7)))},
    ),
    Subject("summary", MEDIAN, lambda rng: {"values": _numbers(rng, 7)}),
    Subject(
        "cents",
        MONEY,
        lambda rng: {
            "text": rng.choice(("", " ", "$"))
            + rng.choice(("", "-"))
            + rng.choice(("1,204", "17", "0", "", "5"))
            + rng.choice((".5", ".25", "", ".", ".999", ".07"))
        },
    ),
    Subject("wrap", WRAP, lambda rng: {"text": _words(rng, 9), "width": rng.randint(4, 14)}),
]
SEEN = frozenset(
    {"merge_intervals", "search", "coins", "invoice", "days_between", "title", "parse_query", "distances"}
)
"""Programs whose mutants were looked at while edits were chosen."""
