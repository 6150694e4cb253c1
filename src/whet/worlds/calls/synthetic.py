"""Functions and requests made from a seed, in the shapes of the Berkeley Function-Calling Leaderboard.

A function is a verb and a noun with one to five arguments: texts, numbers, truth values, choices, lists
and objects.  A request offers up to four functions that share words with each other, and wants one call,
two of one function, two of different ones, or none because nothing offered does it.  `seen` and `unseen`
functions have no verb and no noun in common, so nothing learned about one's name helps with another's.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from ...learn.datasets.calls import FunctionCall, FunctionSpec
from ...types import Json, Task

Names = Literal["seen", "unseen"]
WORDS: dict[str, tuple[Sequence[str], Sequence[str]]] = {
    "seen": (
        ("book", "find", "cancel", "track", "compare", "rent", "translate", "estimate", "order", "plan"),
        (
            *(
                "hotel",
                "flight",
                "recipe",
                "parcel",
                "loan",
                "concert",
                "garden",
                "museum",
                "bicycle",
                "invoice",
            ),
            *("painting", "engine", "lecture", "harbor", "blanket"),
        ),
    ),
    "unseen": (
        ("reserve", "locate", "revoke", "monitor", "rank", "lease", "summarize", "predict", "ship", "draft"),
        (
            *("cabin", "ferry", "dessert", "shipment", "mortgage", "opera", "orchard", "gallery", "scooter"),
            *("receipt", "sculpture", "turbine", "seminar", "island", "carpet"),
        ),
    ),
}
"""Verbs and nouns of each kind of names."""

_CITIES = ("Paris", "Rome", "Oslo", "Lima", "New York", "Cairo", "Buenos Aires", "Delhi", "Sydney", "Boston")
_PEOPLE = ("Ada Lovelace", "Grace Hopper", "Alan Turing", "Rosa Parks", "Niels Bohr", "Marie Curie")


@dataclass(frozen=True, slots=True)
class _Kind:
    """An argument that functions may have: its schema, and how a request says a value of it."""

    name: str
    schema: dict[str, Any]
    draw: Callable[[random.Random], Any]
    say: Callable[[Any], str]


def _integer(name: str, low: int, high: int, *says: str) -> _Kind:
    schema = {"type": "integer", "description": f"The {name.replace('_', ' ')} to use."}
    return _Kind(name, schema, lambda rng: rng.randint(low, high), _in_one_of(says))


def _text(name: str, values: Sequence[str], *says: str) -> _Kind:
    schema = {"type": "string", "description": f"Which {name.replace('_', ' ')} it is about."}
    return _Kind(name, schema, lambda rng: rng.choice(values), _in_one_of(says))


def _choice(name: str, values: Sequence[str]) -> _Kind:
    schema = {"type": "string", "enum": list(values), "description": f"One of the {name} values."}
    return _Kind(
        name, schema, lambda rng: rng.choice(values), _in_one_of((f"with {name} {{}}", "{} " + name))
    )


def _in_one_of(says: Sequence[str]) -> Callable[[Any], str]:
    # Chosen by the value: wording takes nothing from the generator, which draws the requests.
    return lambda value: says[len(str(value)) % len(says)].format(value)


def _listed(values: Sequence[Any]) -> str:
    return f"{', '.join(map(str, values[:-1]))} and {values[-1]}"


def _address(name: str) -> _Kind:
    street = {"type": "string", "description": "Name of the street."}
    house = {"type": "integer", "description": "House number."}
    return _Kind(
        name,
        {"type": "object", "properties": {"street": street, "house": house}, "required": ["street", "house"]},
        lambda rng: {
            "street": rng.choice(("Elm Road", "Mill Lane", "High Street")),
            "house": rng.randint(1, 99),
        },
        lambda value: f"to the street {value['street']}, house {value['house']}",
    )


_KINDS: tuple[_Kind, ...] = (
    _text("city", _CITIES, "in the city {}", "for the city of {}"),
    _text("owner", _PEOPLE, "owned by {}", "for the owner {}"),
    _text(
        "title",
        ("blue moon", "late summer", "first light", "old river"),
        "with the title '{}'",
        "titled '{}'",
    ),
    _text(
        "date",
        tuple(f"2025-{month:02}-{day:02}" for month in range(1, 13) for day in (3, 17)),
        "on the date {}",
    ),
    _integer("guests", 1, 12, "for {} guests", "with guests set to {}"),
    _integer("max_price", 20, 900, "at a maximum price of {}", "with a price of at most {}"),
    _integer("duration", 1, 60, "with a duration of {} days", "lasting a duration of {}"),
    _Kind(
        "weight",
        {"type": "number", "description": "Weight in kilograms."},
        lambda rng: rng.randint(10, 400) / 8,
        lambda value: f"with a weight of {value} kilograms",
    ),
    _choice("currency", ("USD", "EUR", "GBP", "JPY")),
    _choice("priority", ("low", "medium", "high")),
    _choice("color", ("red", "green", "violet", "orange")),
    _Kind(
        "insured",
        {"type": "boolean", "description": "Whether it is insured."},
        lambda rng: rng.random() < 0.5,
        lambda value: f"insured: {'yes' if value else 'no'}",
    ),
    _Kind(
        "ratings",
        {"type": "array", "items": {"type": "integer"}, "description": "All ratings."},
        lambda rng: [rng.randint(1, 99) for _ in range(rng.randint(2, 4))],
        lambda value: f"with the ratings {_listed(value)}",
    ),
    _Kind(
        "tags",
        {"type": "array", "items": {"type": "string"}, "description": "Tags to put on it."},
        lambda rng: rng.sample(("quiet", "sunny", "cheap", "modern", "central"), rng.randint(2, 3)),
        lambda value: f"with the tags {_listed([repr(tag) for tag in value])}",
    ),
    _address("delivery"),
)


@dataclass(frozen=True, slots=True)
class _Generated:
    function: FunctionSpec
    verb: str
    noun: str
    kinds: tuple[_Kind, ...]


def functions(names: Names = "seen", *, count: int = 50, seed: int = 0) -> list[FunctionSpec]:
    """Functions of these names; the same seed gives the same ones."""
    return [generated.function for generated in _functions(names, count, seed)]


def _functions(names: Names, count: int, seed: int) -> list[_Generated]:
    rng = random.Random(f"{names}/{seed}")
    verbs, nouns = WORDS[names]
    pairs = rng.sample([(verb, noun) for verb in verbs for noun in nouns], count)
    return [_function(verb, noun, rng) for verb, noun in pairs]


def _function(verb: str, noun: str, rng: random.Random) -> _Generated:
    kinds = tuple(rng.sample(_KINDS, rng.randint(1, 5)))
    needed = [kind.name for kind in kinds[: max(1, rng.randint(1, len(kinds)))]]
    name = rng.choice((f"{verb}_{noun}", f"{noun}.{verb}", f"{verb}{noun.capitalize()}"))
    schema = {"type": "object", "properties": {kind.name: kind.schema for kind in kinds}, "required": needed}
    return _Generated(FunctionSpec(name, schema, f"{verb.capitalize()} a {noun}."), verb, noun, kinds)


def call_tasks(
    count: int, *, names: Names = "seen", functions: int = 50, seed: int = 0, wanted: int | None = None
) -> list[Task]:
    """Requests over one set of functions, with the calls that they want as the answer.

    Args:
        names: which functions; a policy that learned from `seen` has met none of the `unseen` ones.
        functions: how many there are.
        seed: of the requests; the functions are always those of seed 0.
        wanted: calls that each request wants; None for the usual mixture of none, one and two.
    """
    pool = _functions(names, functions, 0)
    rng = random.Random(f"requests/{names}/{seed}")
    return [_task(f"{names}-{seed}-{number}", pool, rng, wanted) for number in range(count)]


def _task(id: str, pool: Sequence[_Generated], rng: random.Random, call_count: int | None) -> Task:
    number = rng.choices((0, 1, 2), (1, 7, 4))[0] if call_count is None else call_count
    first = rng.choice(pool)
    twice = number == 2 and rng.random() < 0.5
    others = [candidate for candidate in pool if candidate is not first]
    second = first if twice else rng.choice(others)
    # What shares a verb or a noun is the harder to tell apart.
    rng.shuffle(others)
    others.sort(key=lambda candidate: not (candidate.verb == first.verb or candidate.noun == first.noun))
    if number == 0:
        others = [
            candidate for candidate in others if candidate.verb != first.verb and candidate.noun != first.noun
        ]
    offered = list(
        {candidate.function.name: candidate for candidate in ([first, second] if number else [])}.values()
    )
    size = max(len(offered), rng.randint(1, 4))
    offered += [candidate for candidate in others if candidate not in offered][: size - len(offered)]
    rng.shuffle(offered)
    calls, parts = list[FunctionCall](), list[str]()
    for target in [first, second][: max(1, number)]:
        call, words = _worded_call(target, rng)
        calls.append(call)
        parts.append(words)
    opening = rng.choice(("Please ", "I would like to ", "Could you ", ""))
    request = f"{opening}{rng.choice((', and also ', ', then ')).join(parts)}."
    return Task(
        id=id,
        instruction=request[0].upper() + request[1:],
        initial_state={"tools": [tool.function.tool for tool in offered]},
        answer=as_json(calls if number else []),
        meta={"kind": ("none", "simple", "parallel" if twice else "several")[number]},
    )


def _worded_call(target: _Generated, rng: random.Random) -> tuple[FunctionCall, str]:
    """A call of a function, and the words that ask for it."""
    chosen = [kind for kind in target.kinds if kind.name in target.function.required or rng.random() < 0.6]
    rng.shuffle(chosen)
    arguments: dict[str, Json] = {}
    words = [f"{target.verb} a {target.noun}"]
    for kind in chosen:
        arguments[kind.name] = kind.draw(rng)
        words.append(kind.say(arguments[kind.name]))
    return FunctionCall(target.function.name, arguments), " ".join(words)


def as_json(calls: Sequence[FunctionCall]) -> list[Json]:
    """Calls as JSON objects of `name` and `arguments`."""
    return [{"name": call.name, "arguments": dict(call.arguments)} for call in calls]
