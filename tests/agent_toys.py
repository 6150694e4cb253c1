"""A small repository to improve: three files, a table, two functions and the one that uses them all."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path

from whet.types import Json

FILES = {
    "desk/__init__.py": "",
    "desk/limits.py": '''"""Limits."""
import whet

# whet: evolve kind=planner
LIMITS = {  # by hand
    "small": 40,  # 0..100
    "large": 90,
}


@whet.evolve(kind="tool")
def size(amount: int) -> str:
    """Small, large, or neither."""
    if amount <= LIMITS["small"]:  # at most
        return "small"
    return "large" if amount > LIMITS["large"] else "medium"
''',
    "desk/rush.py": """import whet


class Clock:
    def __init__(self, hours: int = 8) -> None:
        self.hours = hours

    @whet.evolve(kind="tool")
    def rush(self, waited: int) -> bool:
        # a working day
        return waited > self.hours * 4
""",
    "desk/agent.py": '''"""The agent."""
import whet

from .limits import size
from .rush import Clock

GREETING = whet.resource("greeting", default="Hello")


@whet.trace("runs.db")
def decide(amount: int, waited: int) -> str:
    return f"{size(amount)}{'!' if Clock().rush(waited) else ''}"


@whet.evolve(kind="flow")
def greet(name: str) -> str:
    """Greets.

    >>> greet("Bo")
    'Hello Bo'
    """
    return f"{GREETING} {name}"
''',
    "tests/test_desk.py": """from desk.limits import size


def test_size():
    assert size(3) == "small"
    assert size(1000) == "large"
    size(77)
""",
}


def write(folder: Path) -> Path:
    """The repository, in a folder of its own."""
    for name, text in FILES.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return folder


def wanted_size(amount: int) -> str:
    """What people want: smaller limits than those in the source."""
    return "small" if amount <= 25 else "large" if amount > 90 else "medium"


def wanted(amount: int, waited: int) -> str:
    """What they want of the agent."""
    return wanted_size(amount) + ("!" if waited > 16 else "")


def rows(path: Path, count: int, make: Callable[[random.Random], tuple[Json, Json]], seed: int = 0) -> Path:
    """A file of rows with what is wanted."""
    rng = random.Random(seed)
    made = dict.fromkeys(json.dumps(make(rng)) for _ in range(3 * count))
    path.parent.mkdir(parents=True, exist_ok=True)
    pairs = [json.loads(each) for each in list(made)[:count]]
    path.write_text(
        "".join(json.dumps({"input": given, "expected": answer}) + "\n" for given, answer in pairs),
        encoding="utf-8",
    )
    return path


def decisions(rng: random.Random) -> tuple[Json, Json]:
    """One row for `decide`."""
    amount, waited = rng.randint(0, 120), rng.randint(0, 40)
    return {"amount": amount, "waited": waited}, wanted(amount, waited)
