"""Moves in the space of literal values: mutation, crossover and merging inside each knob's domain.

These operators *tune*; they have no ideas.  They change numbers, switches, choices and lists that
a rule already holds, and draw only from the generator passed to them, so the same seed makes
the same proposals.  Text is left alone unless a hint lists its choices: rewriting it takes a model.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ....errors import InputError
from ....types import Json
from .targets import Domain, Path


@dataclass(frozen=True, slots=True)
class Knob:
    """One place in a value that may change."""

    path: Path
    domain: Domain


def knobs(value: Json, domains: Mapping[Path, Domain] | None = None) -> list[Knob]:
    """The places in `value` that may change, in its own order.

    A stated domain counts before an inferred one.  Inferred: a bool flips, an int keeps its sign, a
    float keeps its sign; strings and None stay; lists and dicts are entered.

    Raises:
        InputError: a domain for a path that the value does not have, or that its value lies outside of.
    """
    stated = dict(domains or {})
    movable: list[Knob] = []

    def visit(part: Json, path: Path) -> None:
        domain = stated.pop(path, None) or _inferred(part)
        if domain is not None:
            if not domain.holds(part):
                raise InputError(f"{_dotted(path)} = {part!r} lies outside its domain {domain}")
            if domain.kind != "fixed":
                movable.append(Knob(path, domain))
        elif isinstance(part, Mapping):
            for key, inner in part.items():
                visit(inner, (*path, key))
        elif isinstance(part, list):
            for index, inner in enumerate(part):
                visit(inner, (*path, index))

    visit(value, ())
    if stated:
        raise InputError(f"domains for what the value does not hold: {', '.join(map(_dotted, stated))}")
    return movable


def mutate(value: Json, places: Sequence[Knob], rng: random.Random, *, strength: float = 1.0) -> Json:
    """A copy of `value` in which at least one of `places` differs, if any can.

    The number of changed knobs is 1 plus a geometric count with mean `strength` (a parameter tuner's
    usual compromise: mostly single moves, sometimes several at once to cross a valley).
    """
    if not places:
        return value
    count = 1
    while count < len(places) and rng.random() < strength / (1.0 + strength):
        count += 1
    for knob in rng.sample(list(places), count):
        value = put(value, knob.path, _move(get(value, knob.path), knob.domain, rng))
    return value


def stepped(value: Json, places: Sequence[Knob], rng: random.Random) -> Json:
    """A copy of `value` with one knob moved: a number to a neighbour, by a share, to its double or half, or anywhere.

    Steps of all sizes, so that a number without a stated range comes from 1 to 1,000 in ten of them and still
    finds its last digit; within a stated range it may jump to any place.
    """
    if not places:
        return value
    knob = rng.choice(list(places))
    now = get(value, knob.path)
    if knob.domain.kind not in ("int", "float"):
        return put(value, knob.path, _move(now, knob.domain, rng))
    return put(value, knob.path, _stepped(now, knob.domain, rng))


def crossover(first: Json, second: Json, places: Sequence[Knob], rng: random.Random) -> Json:
    """A copy of `first` with each knob taken from `second` with probability one half."""
    for knob in places:
        if rng.random() < 0.5:
            first = put(first, knob.path, get(second, knob.path))
    return first


def merge(first: Json, second: Json, base: Json, places: Sequence[Knob]) -> Json:
    """A copy of `first` with the changes of `second` since `base` wherever `first` still has the base's value.

    The three-way merge of version control: two gains found apart come together in one child, which
    uniform crossover does once in four times for two changes and hardly ever for more.
    """
    for knob in places:
        if get(first, knob.path) == get(base, knob.path):
            first = put(first, knob.path, get(second, knob.path))
    return first


def get(value: Json, path: Path) -> Json:
    """The part of `value` at `path`."""
    for key in path:
        value = value[key]
    return value


def put(value: Json, path: Path, part: Json) -> Json:
    """A copy of `value` with the part at `path` replaced; the rest is shared."""
    if not path:
        return part
    if isinstance(value, Mapping):
        # In their order: where that changes, `targets.patch` writes the dict anew, its comments lost.
        return {key: put(held, path[1:], part) if key == path[0] else held for key, held in value.items()}
    return [put(held, path[1:], part) if index == path[0] else held for index, held in enumerate(value)]


def _dotted(path: Path) -> str:
    return ".".join(map(str, path)) or "the value"


def _inferred(part: Json) -> Domain | None:
    if isinstance(part, bool):
        return Domain("bool")
    if isinstance(part, (int, float)):
        # An unstated sign change is nearly always nonsense: a negative count, a negative weight.
        low, high = (0.0, None) if part > 0 else (None, 0.0) if part < 0 else (0.0, None)
        return Domain("int" if isinstance(part, int) else "float", low, high)
    if part is None or isinstance(part, str):
        return Domain("fixed")
    return None


def _move(now: Json, domain: Domain, rng: random.Random) -> Json:
    """Another value of the domain; the same one only where there is no other."""
    if domain.kind == "bool":
        return not now
    if domain.kind == "choice":
        # By type, too: True equals 1, and is another choice.
        others = [choice for choice in domain.choices if choice != now or type(choice) is not type(now)]
        return rng.choice(others) if others else now
    if domain.kind == "int":
        return _whole(now, domain, rng)
    if domain.kind == "float":
        return _real(now, domain, rng)
    if domain.kind == "subset":
        if not domain.choices:
            return now
        flipped = rng.randrange(len(domain.choices))
        return [
            choice for index, choice in enumerate(domain.choices) if (choice in now) != (index == flipped)
        ]
    if domain.kind == "order" and len(now) > 1:
        moved = list(now)
        item = moved.pop(rng.randrange(len(moved)))
        moved.insert(rng.choice([index for index in range(len(now)) if now[index] != item] or [0]), item)
        return moved
    return now


def _whole(now: int, domain: Domain, rng: random.Random) -> int:
    low, high = domain.low, domain.high
    if low is not None and high is not None and high > low and rng.random() < 0.3:
        drawn = rng.randint(int(low), int(high) - 1)
        return drawn + (drawn >= now)  # uniform over the others
    reach = max(1, round(abs(now) * 0.3))
    step = rng.randint(1, reach)
    ways = [
        value
        for value in (now - step, now + step)
        if (low is None or value >= low) and (high is None or value <= high)
    ]
    if not ways:
        ways = [int(edge) for edge in (low, high) if edge is not None and edge != now]
    return rng.choice(ways) if ways else now


def _real(now: float, domain: Domain, rng: random.Random) -> float:
    low, high = domain.low, domain.high
    if low is not None and high is not None:
        width = high - low
        drawn = rng.uniform(low, high) if rng.random() < 0.2 else now + rng.gauss(0.0, 0.15 * width)
    else:
        drawn = now * 2.0 ** rng.gauss(0.0, 0.5) if now else rng.gauss(0.0, 0.1)
    drawn = float(f"{drawn:.4g}")  # four digits: what a person would write into a rule
    drawn = drawn if low is None else max(low, drawn)
    return drawn if high is None else min(high, drawn)


def _stepped(now: float, domain: Domain, rng: random.Random) -> float:
    low, high, integer = domain.low, domain.high, domain.kind == "int"
    ways = (
        [now * 2.0, now / 2.0] if now else [sign * 10.0**power for sign in (1, -1) for power in (0, -1, -2)]
    )
    size = 10.0 ** rng.uniform(-3.0, -0.3)  # shares of 0.1 to 50 %
    width = abs(now) if low is None or high is None else high - low
    ways += [now + size * width, now - size * width] * 2
    if integer:
        ways += [now + 1, now - 1] * 2
    if low is not None and high is not None:
        ways += [rng.uniform(low, high)]
    moves = [round(way) if integer else float(f"{way:.4g}") for way in ways]
    inside = [move for move in moves if domain.holds(move) and move != now]
    return rng.choice(inside) if inside else _move(now, domain, rng)
