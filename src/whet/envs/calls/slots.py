"""Calling functions by slot: how a small policy sees a request and what may be called, and how it answers.

A model of a hundred thousand parameters cannot copy a name that it never saw; it can choose.  So what
may be called, what each of its arguments takes and what the request names become slots with features
(how many words of a function's name each clause of the request has, which values an argument's words and
type speak for), and an answer points at them:

    call f1 p4 v0 p5 v2 call f1 p4 v1 p5 v3        none

Everything that an answer can say is admissible: a function that is there, one of its arguments, a value
that the request names.  No token stands for a word, so a policy works on functions that it never saw.
An argument that is an object has one slot for each of its fields.  Nested calls have no form by slot.
Nothing here needs torch.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...data.calls import Call, Function
from .values import Kind, Value, values_of

FUNCTIONS, ARGUMENTS, VALUES, CLAUSES = 4, 24, 14, 3
"""Slots of each kind."""
END = "<end>"
TOKENS: tuple[str, ...] = (
    END,
    *("call", "none", "act"),
    *(f"f{number}" for number in range(FUNCTIONS)),
    *(f"p{number}" for number in range(ARGUMENTS)),
    *(f"v{number}" for number in range(VALUES)),
    *(f"c{number}" for number in range(CLAUSES)),
    *(f"name{count}" for count in range(4)),
    *(f"about{count}" for count in range(5)),
    *("likeliest", "lacking", "pairs", "perhaps"),
)
FITTING: dict[str, tuple[Kind, ...]] = {
    "string": ("text", "name", "date"),
    "integer": ("int",),
    "number": ("int", "float"),
    "boolean": ("bool",),
    "array": ("ints", "floats", "texts"),
    "enum": (),
    "other": ("text", "name", "date", "int", "float", "bool"),
}
"""Type of an argument → the values that it takes; a choice takes its members."""
_CLAUSE = re.compile(r"[,;.?!] (?:and |then |also )+|[;.?!] ")
_WORD = re.compile(r"[A-Za-z][a-z]*|\d+")
_STOP = frozenset(
    re.findall(
        r"\w+",
        "a an the of for to in on at by with and or is are be this that it its from as given value values default "
        "if not specified optional parameter name type string integer number e g i want please me my get",
    )
)


class InvalidCall(ValueError):
    """An answer that points at no slot that exists."""


@dataclass(frozen=True, slots=True)
class _Argument:
    path: tuple[str, ...]
    schema: Mapping[str, Any]
    needed: bool
    words: frozenset[str]

    @property
    def type(self) -> str:
        if self.schema.get("enum"):
            return "enum"
        kind = self.schema.get("type")
        return kind if kind in FITTING else "other"


def stems(text: str) -> list[str]:
    """The words of a text or of a name in any case, cut to what their forms share."""
    words = [one.lower() for one in _WORD.findall(text)]
    return [_stem(word) for word in words if word not in _STOP]


def _stem(word: str) -> str:
    for ending in ("ing", "ies", "es", "ed", "s", "e", "y"):
        if word.endswith(ending) and len(word) - len(ending) >= 3:
            return word[: -len(ending)]
    return word


class CallView:
    """One request as a small policy sees it.

    Args:
        functions: what may be called; of more than FUNCTIONS those that the request says most about.
    """

    def __init__(self, request: str, functions: Sequence[Function]) -> None:
        self.request = request
        self._said = frozenset(stems(request))
        self._clauses = [0, *(one.end() for one in _CLAUSE.finditer(request) if one.end() < len(request))]
        self._clauses = self._clauses[:CLAUSES]
        scored = sorted(
            enumerate(functions), key=lambda one: (-sum(self._overlap(one[1], functions)), one[0])
        )
        kept = sorted(scored[:FUNCTIONS], key=lambda one: one[0])
        self.functions = [one for _, one in kept]
        self._likeliest = next((n for n, one in enumerate(self.functions) if one is scored[0][1]), 0)
        self._overlaps = [self._overlap(one, functions) for one in self.functions]
        self.arguments: list[tuple[int, _Argument]] = []
        """(function, argument) behind p0, p1, …"""
        for number, function in enumerate(self.functions):
            self.arguments += [(number, one) for one in _leaves(function.parameters, ())]
        self.arguments = self.arguments[:ARGUMENTS]
        self.values: list[Value] = self._values()
        self.candidates = self._candidates()
        """Argument → values that it may have, in the request's order."""

    def _overlap(self, function: Function, others: Sequence[Function]) -> tuple[int, int]:
        """Words of the name, and further ones of the description that no other has, that the request says."""
        name = set(stems(function.name))
        about = set(stems(function.description)) - name
        for other in others:
            if other is not function:
                about -= set(stems(other.description))
        return len(name & self._said), len(about & self._said)

    def _values(self) -> list[Value]:
        """What the request names: members of an argument's choices first, so that they are part of nothing else."""
        members: list[Value] = []
        left = self.request
        for _, argument in self.arguments:
            for member in argument.schema.get("enum") or ():
                place = re.search(rf"(?<![\w'\"]){re.escape(str(member))}(?![\w'\"])", left, re.IGNORECASE)
                if place and place.end() - place.start() > 1:
                    members.append(Value("text", member, *place.span()))
                    left = left[: place.start()] + "\0" * (place.end() - place.start()) + left[place.end() :]
        return sorted([*members, *values_of(left)], key=lambda one: one.start)[:VALUES]

    def opening(self) -> list[str]:
        """Tokens of what may be called, and of what the request names for each argument."""
        spans = zip(self._clauses, [*self._clauses[1:], len(self.request)], strict=True)
        clauses = [frozenset(stems(self.request[start:end])) for start, end in spans]
        seen: list[str] = []
        for number, function in enumerate(self.functions):
            seen += [f"f{number}", f"about{min(self._overlaps[number][1], 4)}"]
            seen += ["likeliest"] * (number == self._likeliest)
            name = set(stems(function.name))
            for clause, said in enumerate(clauses):
                pairs, lacking = self._pairs(number, clause)
                seen += [f"c{clause}", f"name{min(len(name & said), 3)}"]
                seen += ["lacking"] * lacking + ["pairs", *pairs]
        return [*seen, "act"]

    def _pairs(self, number: int, clause: int) -> tuple[list[str], bool]:
        """Arguments of a function with the values that a clause has for them, and whether a needed one has none."""
        pairs: list[str] = []
        lacking = False
        for slot, (owner, argument) in enumerate(self.arguments):
            if owner != number:
                continue
            found = [one for one in self.candidates[slot] if self._clause(self.values[one]) == clause]
            lacking |= argument.needed and not found
            for value in found:
                sure = _distance(argument.words, *self._around(value)) is not None
                pairs += [*(() if sure else ("perhaps",)), f"p{slot}", f"v{value}"]
        return pairs, lacking

    def _around(self, place: int) -> tuple[list[str], list[str]]:
        """Words before a value and after it, up to the next value on either side."""
        begin = self.values[place - 1].end if place else 0
        end = self.values[place + 1].start if place + 1 < len(self.values) else len(self.request)
        value = self.values[place]
        return stems(self.request[begin : value.start])[-6:], stems(self.request[value.end : end])[:3]

    def _clause(self, value: Value) -> int:
        return sum(start <= value.start for start in self._clauses) - 1

    def _candidates(self) -> dict[int, list[int]]:
        """Of each function the argument that a value is for: it takes such values, and its words stand nearest."""
        found: dict[int, list[int]] = {slot: [] for slot in range(len(self.arguments))}
        for place, value in enumerate(self.values):
            before, after = self._around(place)
            for number in range(len(self.functions)):
                ranked = [
                    (
                        distance if (distance := _distance(one.words, before, after)) is not None else 99.0,
                        slot,
                    )
                    for slot, (owner, one) in enumerate(self.arguments)
                    if owner == number and _takes(one, value)
                ]
                if ranked and (min(ranked)[0] < 99 or len(ranked) == 1):
                    found[min(ranked)[1]].append(place)
        return found

    def encode(self, calls: Sequence[Call]) -> list[str] | None:
        """The tokens of these calls, None where something in them has no slot."""
        found: list[str] = []
        used: set[int] = set()
        for call in calls:
            owner = next((n for n, one in enumerate(self.functions) if one.name == call.name), None)
            if owner is None:
                return None
            found += ["call", f"f{owner}"]
            given = dict(_flat(call.arguments))
            for slot, (number, argument) in enumerate(self.arguments):
                if number == owner and argument.path in given:
                    place = self._place(slot, given.pop(argument.path), used)
                    if place is None:
                        return None
                    used.add(place)
                    found += [f"p{slot}", f"v{place}"]
            if given:
                return None
        return [*(found or ["none"]), END]

    def _place(self, slot: int, wanted: Any, used: set[int]) -> int | None:
        """Where a value stands: among the argument's candidates, and not pointed at yet, if possible."""
        argument = self.arguments[slot][1]
        fitted = [_fitted(one, argument) for one in self.values]
        places = [
            n
            for n, one in enumerate(fitted)
            if one == wanted and isinstance(one, bool) == isinstance(wanted, bool)
        ]
        return min(places, key=lambda n: (n in used, n not in self.candidates[slot], n), default=None)

    def decode(self, tokens: Sequence[str]) -> list[Call]:
        """The calls that an answer's tokens stand for.

        Raises:
            InvalidCall: they do not form any.
        """
        body = [token for token in tokens if token != END]
        if body == ["none"]:
            return []
        calls: list[Call] = []
        owner = -1
        while body:
            if body[0] == "call" and len(body) > 1:
                owner = _slot(body[1], "f", len(self.functions))
                calls.append(Call(self.functions[owner].name, {}))
            elif calls and len(body) > 1:
                number, argument = self.arguments[_slot(body[0], "p", len(self.arguments))]
                value = self.values[_slot(body[1], "v", len(self.values))]
                if number != owner:
                    raise InvalidCall(f"{body[0]} is no argument of {calls[-1].name}")
                _put(calls[-1].arguments, argument.path, _fitted(value, argument))
            else:
                raise InvalidCall(f"no calls: {' '.join(tokens)}")
            body = body[2:]
        if not calls:
            raise InvalidCall("an empty answer")
        return calls


def _leaves(schema: Mapping[str, Any], path: tuple[str, ...]) -> list[_Argument]:
    """Arguments of a schema, the fields of objects one by one."""
    found: list[_Argument] = []
    required = schema.get("required") or ()
    for name, one in (schema.get("properties") or {}).items():
        if one.get("type") == "object" and one.get("properties"):
            found += _leaves(one, (*path, name))
        else:
            words = frozenset((*stems(name), *stems(str(one.get("description") or ""))[:8]))
            found.append(_Argument((*path, name), one, name in required, words))
    return found


def _takes(argument: _Argument, value: Value) -> bool:
    members = [str(one).lower() for one in argument.schema.get("enum") or ()]
    return str(value.value).lower() in members if members else value.kind in FITTING[argument.type]


def _distance(words: frozenset[str], before: Sequence[str], after: Sequence[str]) -> float | None:
    """How many words away the nearest of an argument's words is; what follows counts as farther."""
    ahead = [float(away) for away, word in enumerate(reversed(before)) if word in words]
    behind = [away + 0.5 for away, word in enumerate(after) if word in words]
    return min([*ahead, *behind], default=None)


def _fitted(value: Value, argument: _Argument) -> Any:
    """A value as the argument's type has it."""
    kind = argument.schema.get("type")
    found = value.value
    for member in argument.schema.get("enum") or ():
        if str(member).lower() == str(found).lower():
            return member
    if kind == "array":
        return found if isinstance(found, list) else [found]
    if kind == "string" and not isinstance(found, str):
        return str(found)
    return found


def _flat(arguments: Mapping[str, Any], path: tuple[str, ...] = ()) -> list[tuple[tuple[str, ...], Any]]:
    found: list[tuple[tuple[str, ...], Any]] = []
    for name, value in arguments.items():
        inner = isinstance(value, Mapping)
        found += _flat(value, (*path, name)) if inner else [((*path, name), value)]
    return found


def _put(arguments: Any, path: Sequence[str], value: Any) -> None:
    for name in path[:-1]:
        arguments = arguments.setdefault(name, {})
    arguments[path[-1]] = value


def _slot(token: str, kind: str, count: int) -> int:
    if token[:1] == kind and token[1:].isdigit() and int(token[1:]) < count:
        return int(token[1:])
    raise InvalidCall(f"no slot {token!r} among {count}")
