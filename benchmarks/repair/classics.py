"""Classic algorithms, each with a bug of one line as a person makes it, and inputs of them.

They were written down with their bugs before the search was run on any of them, and the search is not tuned on them.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

ROWS = 60


@dataclass(frozen=True)
class Classic:
    """One algorithm, the line that is wrong in it, and a draw of an input."""

    name: str
    right: str
    line: str
    """Of the right text, without its indentation."""
    wrong: str
    draw: Callable[[random.Random], dict[str, Any]]

    @property
    def text(self) -> str:
        """The wrong text."""
        assert self.right.count(self.line) == 1, self.name
        return self.right.replace(self.line, self.wrong)

    def rows(self) -> list[dict[str, Any]]:
        """Different inputs, with the right answers."""
        rng = random.Random(self.name)
        namespace: dict[str, Any] = {}
        exec(self.right, namespace)
        answers: dict[str, Any] = {}
        for _ in range(40 * ROWS):
            given = json.dumps(self.draw(rng))
            if given not in answers and len(answers) < ROWS:
                answers[given] = namespace[self.name](**json.loads(given))
        return [{"input": json.loads(given), "expected": answer} for given, answer in answers.items()]


def _numbers(rng: random.Random, most: int = 8, low: int = 0, high: int = 20) -> list[int]:
    return [rng.randint(low, high) for _ in range(rng.randint(0, most))]


def _letters(rng: random.Random, letters: str, most: int) -> str:
    return "".join(rng.choice(letters) for _ in range(rng.randint(0, most)))


def _roads(rng: random.Random, count: int) -> list[list[int]]:
    pairs = [(a, b) for a in range(count) for b in range(count) if a != b and rng.random() < 0.35]
    return [[a, b, rng.randint(1, 9)] for a, b in pairs]


def _travel(rng: random.Random) -> dict[str, Any]:
    count = rng.randint(1, 6)
    return {"count": count, "roads": _roads(rng, count), "start": 0}


CLASSICS = [
    Classic(
        "insertion_sort",
        """
def insertion_sort(values):
    for place in range(1, len(values)):
        value = values[place]
        hole = place
        while hole > 0 and values[hole - 1] > value:
            values[hole] = values[hole - 1]
            hole -= 1
        values[hole] = value
    return values
""",
        "while hole > 0 and values[hole - 1] > value:",
        "while hole > 1 and values[hole - 1] > value:",
        lambda rng: {"values": _numbers(rng)},
    ),
    Classic(
        "selection_sort",
        """
def selection_sort(values):
    for place in range(len(values)):
        least = place
        for other in range(place + 1, len(values)):
            if values[other] < values[least]:
                least = other
        values[place], values[least] = values[least], values[place]
    return values
""",
        "if values[other] < values[least]:",
        "if values[other] < values[place]:",
        lambda rng: {"values": _numbers(rng)},
    ),
    Classic(
        "bubble_sort",
        """
def bubble_sort(values):
    swapped = True
    while swapped:
        swapped = False
        for place in range(len(values) - 1):
            if values[place] > values[place + 1]:
                values[place], values[place + 1] = values[place + 1], values[place]
                swapped = True
    return values
""",
        "                swapped = True\n    return",
        "    return",
        lambda rng: {"values": _numbers(rng)},
    ),
    Classic(
        "partition",
        """
def partition(values, pivot):
    low, middle, high = 0, 0, len(values) - 1
    while middle <= high:
        if values[middle] < pivot:
            values[low], values[middle] = values[middle], values[low]
            low += 1
            middle += 1
        elif values[middle] > pivot:
            values[middle], values[high] = values[high], values[middle]
            high -= 1
        else:
            middle += 1
    return values
""",
        "while middle <= high:",
        "while middle < high:",
        lambda rng: {"values": _numbers(rng, 9, 0, 6), "pivot": rng.randint(1, 5)},
    ),
    Classic(
        "sieve",
        """
def sieve(limit):
    prime = [True] * (limit + 1)
    found = []
    for number in range(2, limit + 1):
        if prime[number]:
            found.append(number)
            for multiple in range(number * number, limit + 1, number):
                prime[multiple] = False
    return found
""",
        "for multiple in range(number * number, limit + 1, number):",
        "for multiple in range(number * number, limit, number):",
        lambda rng: {"limit": rng.randint(0, 130)},
    ),
    Classic(
        "factors",
        """
def factors(number):
    found = []
    divisor = 2
    while divisor * divisor <= number:
        while number % divisor == 0:
            found.append(divisor)
            number //= divisor
        divisor += 1
    if number > 1:
        found.append(number)
    return found
""",
        "if number > 1:",
        "if number > divisor:",
        lambda rng: {"number": rng.randint(1, 700)},
    ),
    Classic(
        "power",
        """
def power(base, exponent, modulus):
    result = 1
    base %= modulus
    while exponent:
        if exponent & 1:
            result = result * base % modulus
        base = base * base % modulus
        exponent >>= 1
    return result
""",
        "base = base * base % modulus",
        "base = base * result % modulus",
        lambda rng: {
            "base": rng.randint(0, 40),
            "exponent": rng.randint(0, 30),
            "modulus": rng.randint(2, 50),
        },
    ),
    Classic(
        "edit_distance",
        """
def edit_distance(first, second):
    before = list(range(len(second) + 1))
    for row, letter in enumerate(first, 1):
        current = [row]
        for column, other in enumerate(second, 1):
            cost = 0 if letter == other else 1
            current.append(min(before[column] + 1, current[column - 1] + 1, before[column - 1] + cost))
        before = current
    return before[-1]
""",
        "current = [row]",
        "current = [0]",
        lambda rng: {"first": _letters(rng, "abc", 6), "second": _letters(rng, "abc", 6)},
    ),
    Classic(
        "common",
        """
def common(first, second):
    table = [[0] * (len(second) + 1) for _ in range(len(first) + 1)]
    for row in range(len(first)):
        for column in range(len(second)):
            if first[row] == second[column]:
                table[row + 1][column + 1] = table[row][column] + 1
            else:
                table[row + 1][column + 1] = max(table[row][column + 1], table[row + 1][column])
    return table[-1][-1]
""",
        "table[row + 1][column + 1] = table[row][column] + 1",
        "table[row + 1][column + 1] = table[row][column + 1] + 1",
        lambda rng: {"first": _letters(rng, "abc", 7), "second": _letters(rng, "abc", 7)},
    ),
    Classic(
        "rising",
        """
def rising(values):
    longest = [1] * len(values)
    for end in range(len(values)):
        for start in range(end):
            if values[start] < values[end]:
                longest[end] = max(longest[end], longest[start] + 1)
    return max(longest, default=0)
""",
        "longest[end] = max(longest[end], longest[start] + 1)",
        "longest[end] = longest[start] + 1",
        lambda rng: {"values": _numbers(rng, 9)},
    ),
    Classic(
        "largest_sum",
        """
def largest_sum(values):
    best = ending = 0
    for value in values:
        ending = max(0, ending + value)
        best = max(best, ending)
    return best
""",
        "ending = max(0, ending + value)",
        "ending = max(value, ending)",
        lambda rng: {"values": _numbers(rng, 8, -9, 9)},
    ),
    Classic(
        "shortest",
        """
def shortest(count, roads, start):
    distance = [None] * count
    distance[start] = 0
    waiting = [start]
    while waiting:
        place = waiting.pop(0)
        for a, b, length in roads:
            if a == place:
                total = distance[a] + length
                if distance[b] is None or total < distance[b]:
                    distance[b] = total
                    waiting.append(b)
    return distance
""",
        "if distance[b] is None or total < distance[b]:",
        "if distance[b] is None:",
        _travel,
    ),
    Classic(
        "all_pairs",
        """
def all_pairs(count, roads, start):
    far = 999
    best = [[0 if a == b else far for b in range(count)] for a in range(count)]
    for a, b, length in roads:
        best[a][b] = min(best[a][b], length)
    for via in range(count):
        for a in range(count):
            for b in range(count):
                best[a][b] = min(best[a][b], best[a][via] + best[via][b])
    return best[start]
""",
        "best[a][b] = min(best[a][b], best[a][via] + best[via][b])",
        "best[a][b] = min(best[a][b], best[a][via] + best[b][via])",
        _travel,
    ),
    Classic(
        "islands",
        """
def islands(grid):
    seen = set()
    count = 0
    for row in range(len(grid)):
        for column in range(len(grid[row])):
            if grid[row][column] == 0 or (row, column) in seen:
                continue
            count += 1
            stack = [(row, column)]
            while stack:
                y, x = stack.pop()
                if (y, x) in seen or not (0 <= y < len(grid) and 0 <= x < len(grid[y])) or grid[y][x] == 0:
                    continue
                seen.add((y, x))
                stack += [(y + 1, x), (y - 1, x), (y, x + 1), (y, x - 1)]
    return count
""",
        "stack += [(y + 1, x), (y - 1, x), (y, x + 1), (y, x - 1)]",
        "stack += [(y + 1, x), (y - 1, x), (y, x + 1), (x, y - 1)]",
        lambda rng: {
            "grid": [[int(rng.random() < 0.55) for _ in range(5)] for _ in range(rng.randint(1, 5))]
        },
    ),
    Classic(
        "components",
        """
def components(count, pairs):
    parent = list(range(count))

    def root(node):
        while parent[node] != node:
            node = parent[node]
        return node

    for a, b in pairs:
        parent[root(a)] = root(b)
    return len({root(node) for node in range(count)})
""",
        "parent[root(a)] = root(b)",
        "parent[a] = root(b)",
        lambda rng: {
            "count": 7,
            "pairs": [[rng.randint(0, 6), rng.randint(0, 6)] for _ in range(rng.randint(0, 6))],
        },
    ),
    Classic(
        "balanced",
        """
def balanced(text):
    closing = {")": "(", "]": "[", "}": "{"}
    stack = []
    for sign in text:
        if sign in closing.values():
            stack.append(sign)
        elif sign in closing:
            if not stack or stack.pop() != closing[sign]:
                return False
    return not stack
""",
        "return not stack",
        "return True",
        lambda rng: {"text": rng.choice(("", "()", "([{}])", "[]{}")) + _letters(rng, "()[]", 5)},
    ),
    Classic(
        "postfix",
        """
def postfix(tokens):
    stack = []
    for token in tokens:
        if token in ("+", "-", "*"):
            right = stack.pop()
            left = stack.pop()
            stack.append(left + right if token == "+" else left - right if token == "-" else left * right)
        else:
            stack.append(int(token))
    return stack.pop()
""",
        "            right = stack.pop()\n            left = stack.pop()",
        "            left = stack.pop()\n            right = stack.pop()",
        lambda rng: {"tokens": _postfix(rng)},
    ),
    Classic(
        "to_roman",
        """
def to_roman(number):
    worth = [(10, "X"), (9, "IX"), (5, "V"), (4, "IV"), (1, "I")]
    text = ""
    for value, letters in worth:
        while number >= value:
            text += letters
            number -= value
    return text
""",
        "while number >= value:",
        "if number >= value:",
        lambda rng: {"number": rng.randint(0, 120)},
    ),
    Classic(
        "in_base",
        """
def in_base(number, base):
    digits = "0123456789abcdef"
    if number == 0:
        return "0"
    text = ""
    while number:
        number, digit = divmod(number, base)
        text = digits[digit] + text
    return text
""",
        "text = digits[digit] + text",
        "text = text + digits[digit]",
        lambda rng: {"number": rng.randint(0, 900), "base": rng.randint(2, 16)},
    ),
    Classic(
        "encoded",
        """
def encoded(text):
    runs = []
    for letter in text:
        if runs and runs[-1][0] == letter:
            runs[-1][1] += 1
        else:
            runs.append([letter, 1])
    return runs
""",
        "if runs and runs[-1][0] == letter:",
        "if runs and runs[0][0] == letter:",
        lambda rng: {"text": _letters(rng, "aab", 10)},
    ),
    Classic(
        "rotated",
        """
def rotated(text, shift):
    out = []
    for letter in text:
        if letter.isalpha():
            first = "A" if letter.isupper() else "a"
            out.append(chr((ord(letter) - ord(first) + shift) % 26 + ord(first)))
        else:
            out.append(letter)
    return "".join(out)
""",
        "out.append(chr((ord(letter) - ord(first) + shift) % 26 + ord(first)))",
        "out.append(chr((ord(letter) - ord(first) + shift) + ord(first)))",
        lambda rng: {"text": _letters(rng, "azMZ q!", 9), "shift": rng.randint(0, 25)},
    ),
    Classic(
        "leap",
        """
def leap(year):
    if year % 400 == 0:
        return True
    return year % 4 == 0 and year % 100 != 0
""",
        "return year % 4 == 0 and year % 100 != 0",
        "return year % 4 == 0",
        lambda rng: {"year": rng.choice((rng.randint(1600, 2100), 100 * rng.randint(15, 24)))},
    ),
    Classic(
        "triangle",
        """
def triangle(rows):
    table = []
    for row in range(rows):
        line = [1] * (row + 1)
        for place in range(1, row):
            line[place] = table[row - 1][place - 1] + table[row - 1][place]
        table.append(line)
    return table[-1] if table else []
""",
        "line[place] = table[row - 1][place - 1] + table[row - 1][place]",
        "line[place] = table[row - 1][place] + table[row - 1][place]",
        lambda rng: {"rows": rng.randint(0, 70)},
    ),
    Classic(
        "subsets",
        """
def subsets(values, total):
    def count(place, rest):
        if place == len(values):
            return 1 if rest == 0 else 0
        return count(place + 1, rest) + count(place + 1, rest - values[place])

    return count(0, total)
""",
        "return 1 if rest == 0 else 0",
        "return 1 if rest >= 0 else 0",
        lambda rng: {"values": _numbers(rng, 7, 0, 6), "total": rng.randint(0, 14)},
    ),
    Classic(
        "merge",
        """
def merge(first, second):
    first, second = sorted(first), sorted(second)
    out = []
    while first and second:
        if first[0] <= second[0]:
            out.append(first.pop(0))
        else:
            out.append(second.pop(0))
    return out + first + second
""",
        "return out + first + second",
        "return out + first",
        lambda rng: {"first": _numbers(rng, 5), "second": _numbers(rng, 5)},
    ),
    Classic(
        "spiral",
        """
def spiral(grid):
    out = []
    while grid:
        out += grid[0]
        grid = [list(row) for row in zip(*grid[1:])][::-1]
    return out
""",
        "grid = [list(row) for row in zip(*grid[1:])][::-1]",
        "grid = [list(row) for row in zip(*grid[1:])]",
        lambda rng: _grid(rng),
    ),
    Classic(
        "two_sum",
        """
def two_sum(values, total):
    places = {}
    for place, value in enumerate(values):
        if total - value in places:
            return [places[total - value], place]
        places[value] = place
    return None
""",
        "places[value] = place",
        "places[place] = value",
        lambda rng: {"values": _numbers(rng, 7, 0, 9), "total": rng.randint(3, 14)},
    ),
    Classic(
        "window",
        """
def window(values, size):
    if size > len(values):
        return []
    total = sum(values[:size])
    sums = [total]
    for end in range(size, len(values)):
        total += values[end] - values[end - size]
        sums.append(total)
    return sums
""",
        "total += values[end] - values[end - size]",
        "total += values[end] - values[end - size + 1]",
        lambda rng: {"values": _numbers(rng, 8), "size": rng.randint(1, 4)},
    ),
]


def _grid(rng: random.Random) -> dict[str, Any]:
    width = rng.randint(1, 4)
    return {"grid": [[rng.randint(0, 9) for _ in range(width)] for _ in range(rng.randint(1, 4))]}


def _postfix(rng: random.Random) -> list[str]:
    tokens = [str(rng.randint(0, 9))]
    for _ in range(rng.randint(0, 4)):
        tokens += [str(rng.randint(0, 9)), rng.choice("+-*")]
    return tokens
