"""Calling functions by slot: how a small policy sees a request and what may be called, and how it answers.

A model of a hundred thousand parameters cannot copy a name that it never saw; it can choose.  So the
functions, the values that their arguments take and those that the request names become slots with features
(how many words of a function's name each clause of the request has, which values an argument's words and
type speak for), and an answer points at them:

    call f1 p4 v0 p5 v2 call f1 p4 v1 p5 v3        none

Everything that an answer can say is admissible: a function that is there, one of its arguments, a value
that the request names.  No token stands for a word, so a policy works on functions that it never saw.
An argument that is an object has one slot for each of its fields.  Nested calls cannot be written by slot.
Nothing here needs torch.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...learn.datasets.calls import FunctionCall, FunctionSpec
from .values import Kind, Value, values_of

FUNCTIONS, ARGUMENTS, VALUES, CLAUSES = 4, 24, 14, 3
"""Slots of each kind."""
END = "<end>"
# The order gives the token ids: a policy that was trained knows no other, so new ones go to the end.
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
    words = [word.lower() for word in _WORD.findall(text)]
    return [_stem(word) for word in words if word not in _STOP]


def _stem(word: str) -> str:
    for ending in ("ing", "ies", "es", "ed", "er", "s", "e", "y"):
        if word.endswith(ending) and len(word) - len(ending) >= 3:
            return word[: -len(ending)]
    return word


class CallView:
    """One request as a small policy sees it.

    Args:
        functions: what may be called; of more than FUNCTIONS those that the request says most about.
    """

    def __init__(self, request: str, functions: Sequence[FunctionSpec]) -> None:
        self.request = request
        self._stems = frozenset(stems(request))
        self._clauses = [
            0,
            *(clause.end() for clause in _CLAUSE.finditer(request) if clause.end() < len(request)),
        ]
        self._clauses = self._clauses[:CLAUSES]
        overlaps = [-sum(self._overlap(function, functions)) for function in functions]
        ranked = sorted(range(len(functions)), key=lambda number: (overlaps[number], number))
        self.functions = [functions[number] for number in sorted(ranked[:FUNCTIONS])]
        self._overlaps = [self._overlap(function, functions) for function in self.functions]
        self.arguments: list[tuple[int, _Argument]] = []
        """(function, argument) behind p0, p1, …"""
        for number, function in enumerate(self.functions):
            self.arguments += [(number, argument) for argument in _leaves(function.parameters, ())]
        self.arguments = self.arguments[:ARGUMENTS]
        self.values: list[Value] = self._values()
        self.candidates = self._candidates()
        """Argument → values that it may have, in the request's order."""

    def _overlap(self, function: FunctionSpec, others: Sequence[FunctionSpec]) -> tuple[int, int]:
        """Words of the name, and further ones of the description that no other has, that the request says."""
        name = set(stems(function.name))
        about = set(stems(function.description)) - name
        for rival in others:
            if rival is not function:
                about -= set(stems(rival.description))
        return len(name & self._stems), len(about & self._stems)

    def _values(self) -> list[Value]:
        """The values that the request names: an argument's choices first, so that nothing else holds them."""
        members: list[Value] = []
        unread = self.request
        for _, argument in self.arguments:
            for member in argument.schema.get("enum") or ():
                pattern = rf"(?<![\w'\"]){re.escape(str(member))}(?![\w'\"])"
                matches = list(re.finditer(pattern, unread)) or [
                    match
                    for match in re.finditer(pattern, unread, re.IGNORECASE)
                    if not _named(unread, match)
                ]
                for match in matches if len(str(member)) > 1 else ():
                    members.append(Value("text", member, *match.span()))
                    # NULs, so that what follows keeps its offset in the request.
                    unread = unread[: match.start()] + "\0" * len(match.group()) + unread[match.end() :]
        return sorted([*members, *values_of(unread)], key=lambda value: value.start)[:VALUES]

    def opening(self) -> list[str]:
        """Tokens of the functions, and of the values that the request names for each argument."""
        spans = zip(self._clauses, [*self._clauses[1:], len(self.request)], strict=True)
        names = [set(stems(function.name)) for function in self.functions]
        clauses = [frozenset(stems(self.request[start:end])) for start, end in spans]
        fits = [[len(name & clause) for name in names] for clause in clauses]
        shown: list[str] = []
        for number in range(len(self.functions)):
            shown += [f"f{number}", f"about{min(self._overlaps[number][1], 4)}"]
            for clause, counts in enumerate(fits):
                pairs, lacking = self._pairs(number, clause)
                shown += [f"c{clause}", f"name{min(counts[number], 3)}"]
                likeliest = counts[number] and counts.index(max(counts)) == number
                shown += ["likeliest"] * bool(likeliest) + ["lacking"] * lacking + ["pairs", *pairs]
        return [*shown, "act"]

    def _pairs(self, number: int, clause: int) -> tuple[list[str], bool]:
        """Arguments of a function with the values that a clause has for them, and whether a needed one has none."""
        pairs: list[str] = []
        lacking = False
        for slot, (owner, argument) in enumerate(self.arguments):
            if owner != number:
                continue
            fitting = [index for index in self.candidates[slot] if self._clause(self.values[index]) == clause]
            lacking |= argument.needed and not fitting
            for value in fitting:
                sure = _distance(argument.words, *self._around(value)) is not None
                pairs += [*(() if sure else ("perhaps",)), f"p{slot}", f"v{value}"]
        return pairs, lacking

    def _around(self, index: int) -> tuple[list[str], list[str]]:
        """Words before a value and after it, up to the next value on either side."""
        begin = self.values[index - 1].end if index else 0
        end = self.values[index + 1].start if index + 1 < len(self.values) else len(self.request)
        value = self.values[index]
        return stems(self.request[begin : value.start])[-6:], stems(self.request[value.end : end])[:3]

    def _clause(self, value: Value) -> int:
        return sum(start <= value.start for start in self._clauses) - 1

    def _candidates(self) -> dict[int, list[int]]:
        """Values of each argument: in a clause the one whose words stand nearest, among those that it takes."""
        candidates: dict[int, list[int]] = {slot: [] for slot in range(len(self.arguments))}
        near = [self._around(index) for index in range(len(self.values))]
        ranked = []
        for slot, (_, argument) in enumerate(self.arguments):
            for index, value in enumerate(self.values):
                if _takes(argument, value):
                    distance = _distance(argument.words, *near[index])
                    ranked.append((distance is None, distance or 0.0, index, slot))
        # Nearest first; a value is one argument's of a function, and an argument has one value in a clause.
        assigned: set[tuple[int, int]] = set()
        filled: set[tuple[int, int]] = set()
        for _, _, index, slot in sorted(ranked):
            owner, clause = self.arguments[slot][0], self._clause(self.values[index])
            if (owner, index) not in assigned and (slot, clause) not in filled:
                assigned.add((owner, index))
                filled.add((slot, clause))
                candidates[slot].append(index)
        return {slot: sorted(indices) for slot, indices in candidates.items()}

    def encode(self, calls: Sequence[FunctionCall]) -> list[str] | None:
        """The tokens of these calls, None where something in them has no slot."""
        answer: list[str] = []
        used: set[int] = set()
        for call in calls:
            owner = next((n for n, function in enumerate(self.functions) if function.name == call.name), None)
            if owner is None:
                return None
            answer += ["call", f"f{owner}"]
            arguments = dict(_flat(call.arguments))
            for slot, (number, argument) in enumerate(self.arguments):
                if number == owner and argument.path in arguments:
                    index = self._value_slot(slot, arguments.pop(argument.path), used)
                    if index is None:
                        return None
                    used.add(index)
                    answer += [f"p{slot}", f"v{index}"]
            if arguments:
                return None
        return [*(answer or ["none"]), END]

    def _value_slot(self, slot: int, argument_value: Any, used: set[int]) -> int | None:
        """Where a value stands: among the argument's candidates, and not pointed at yet, if possible."""
        argument = self.arguments[slot][1]
        fitted = [_fitted(value, argument) for value in self.values]
        indices = [
            n
            for n, fitted_value in enumerate(fitted)
            if fitted_value == argument_value
            and isinstance(fitted_value, bool) == isinstance(argument_value, bool)
        ]
        return min(indices, key=lambda n: (n in used, n not in self.candidates[slot], n), default=None)

    def decode(self, tokens: Sequence[str]) -> list[FunctionCall]:
        """The calls that an answer's tokens stand for.

        Raises:
            InvalidCall: they do not form any.
        """
        body = [token for token in tokens if token != END]
        if body == ["none"]:
            return []
        calls: list[FunctionCall] = []
        owner = -1
        while body:
            if body[0] == "call" and len(body) > 1:
                owner = _slot(body[1], "f", len(self.functions))
                calls.append(FunctionCall(self.functions[owner].name, {}))
            elif calls and len(body) > 1:
                number, argument = self.arguments[_slot(body[0], "p", len(self.arguments))]
                value = self.values[_slot(body[1], "v", len(self.values))]
                if number != owner:
                    raise InvalidCall(f"{body[0]} is not an argument of {calls[-1].name}")
                _put(calls[-1].arguments, argument.path, _fitted(value, argument))
            else:
                raise InvalidCall(f"no calls: {' '.join(tokens)}")
            body = body[2:]
        if not calls:
            raise InvalidCall("an empty answer")
        return calls


def _leaves(schema: Mapping[str, Any], path: tuple[str, ...]) -> list[_Argument]:
    """Arguments of a schema, the fields of objects one by one."""
    leaves: list[_Argument] = []
    required = schema.get("required") or ()
    for name, property_schema in (schema.get("properties") or {}).items():
        if property_schema.get("type") == "object" and property_schema.get("properties"):
            leaves += _leaves(property_schema, (*path, name))
        else:
            words = frozenset((*stems(name), *stems(str(property_schema.get("description") or ""))[:8]))
            leaves.append(_Argument((*path, name), property_schema, name in required, words))
    return leaves


def _named(text: str, match: re.Match[str]) -> bool:
    """True if a word is part of a name: "High" of "High Street"."""
    return match.group()[0].isupper() and re.match(r" [A-Z]", text[match.end() :]) is not None


def _takes(argument: _Argument, value: Value) -> bool:
    members = [str(member).lower() for member in argument.schema.get("enum") or ()]
    return str(value.value).lower() in members if members else value.kind in FITTING[argument.type]


def _distance(words: frozenset[str], before: Sequence[str], after: Sequence[str]) -> float | None:
    """The distance in words to the nearest of an argument's words; one that follows counts as farther."""
    ahead = [float(away) for away, word in enumerate(reversed(before)) if word in words]
    behind = [away + 6.5 for away, word in enumerate(after) if word in words]
    return min([*ahead, *behind], default=None)


def _fitted(value: Value, argument: _Argument) -> Any:
    """A value as the argument's type has it."""
    kind = argument.schema.get("type")
    content = value.value
    for member in argument.schema.get("enum") or ():
        if str(member).lower() == str(content).lower():
            return member
    if kind == "array":
        return content if isinstance(content, list) else [content]
    if kind == "string" and not isinstance(content, str):
        return str(content)
    return content


def _flat(arguments: Mapping[str, Any], path: tuple[str, ...] = ()) -> list[tuple[tuple[str, ...], Any]]:
    leaves: list[tuple[tuple[str, ...], Any]] = []
    for name, value in arguments.items():
        inner = isinstance(value, Mapping)
        leaves += _flat(value, (*path, name)) if inner else [((*path, name), value)]
    return leaves


def _put(arguments: Any, path: Sequence[str], value: Any) -> None:
    for name in path[:-1]:
        arguments = arguments.setdefault(name, {})
    arguments[path[-1]] = value


def _slot(token: str, kind: str, count: int) -> int:
    if token[:1] == kind and token[1:].isdigit() and int(token[1:]) < count:
        return int(token[1:])
    raise InvalidCall(f"no slot {token!r} among {count}")
