"""Secrets out of what is recorded, before it is stored.

`rules.py` says what a secret is.  What matches a rule becomes `[redacted:<rule>]`.  Token ids and
log-probabilities spell the same text, so they go with it, and the trajectory is marked untrainable.

The screens of all rules are two automata over the bytes (RE2), so that text without secrets costs two passes in
linear time, however many rules there are.  A secret without a form or a name of its own is not found, unless the
Redactor knows it (`know`); nor one inside compressed text, or one that a stream's chunks cut in two.
"""

from __future__ import annotations

import re
import threading
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, lru_cache
from typing import Any

import msgspec
import re2

from ....errors import InputError
from ....types import Failure, Feedback, Json, Span, Step, Trajectory
from ..codec import encode_json
from ..protobuf import FIXED32, FIXED64, VARINT, fields, write_field, write_number
from .known import KnownSecrets
from .rules import CARD, EMAIL, RULES, WHET_TOKEN, Rule, luhn
from .structures import FIELD, PRIVATE_MEMBERS, typed

__all__ = ["CARD", "EMAIL", "RULES", "WHET_TOKEN", "Redactor", "Rule", "luhn", "redaction"]

ADDRESSES = frozenset({"whet-token"})
"""Rules for what stands in addresses and headers of the recorder itself, in nothing that a model read or said: a run
from which nothing else was taken can be trained on."""
KNOWN = "known-secret"
"""The rule that a secret of `Redactor.know` is counted under."""
MARK = "[redacted:{}]"
MARKED = re.compile(rb"\[redacted:([a-z0-9-]{1,40})\]")
"""A redaction mark in stored bytes."""
BYTES = re2.Options()
"""How a screen reads: byte by byte, with a dot for any of them."""
BYTES.encoding = re2.Options.Encoding.LATIN1
BYTES.dot_nl = True
BYTES.never_capture = True
BYTES.log_errors = False
# What RE2 keeps of the texts it has seen grows with every new one.  Where it is full too soon it gives up and walks ten
# times slower, as it did on mail, code and what agents say while all screens were one automaton.
BYTES.max_mem = 40 * 1024 * 1024
_COUNTS = 40
"""Letters from which on a screen that counts them has an automaton apart: it multiplies the states of all others."""
_COUNTED = re.compile(rb"\{(?:\d{1,4},)?(\d{1,4}),?\}")
_UNENDING = re.compile(rb"\][+*]")
"""Of a screen that has no need to count, and multiplies them as well."""
_NAMES, _VALUES = (
    ("name", "key", "header", "field", "variable", "Name", "Key", "ParameterKey"),
    ("value", "val", "content", "Value", "default", "defaultValue", "ParameterValue"),
)
"""Keys that a name stands under, and those that its value does."""
_LABELS = ("element", "selector", "label", "field", "locator", "target", "placeholder", "name", "ref", "id")
"""Keys under which the arguments of a tool say which field is meant, and those of what is entered there."""
_ENTERED = ("text", "value", "input", "content", "keys")
_LONGEST_NAME = 80
_REMEMBERED = 4096
"""Names of values for which it is known whether there is a rule, and short texts in which none finds anything."""
_SHORT = 64
"""Bytes of a text that is remembered: of the half million in three thousand runs all but one in fifty are as short,
and five thousand different ones."""
_TEXT, _INTEGER, _LIST = 1, 3, 5
"""Fields of an OTLP AnyValue."""
_TOKEN_KEYS = frozenset(
    {"logprobs", "top_logprobs", "prompt_logprobs", "token_ids", "prompt_token_ids", "output_token_ids"}
)
"""Where an API's answer spells its text a second time, in pieces that no pattern finds."""
_ESCAPED = re.compile(rb"\\(?:u00[2-7]|/)")
"""A letter of ASCII that JSON need not escape: text that a search of the bytes would miss."""

_OURS = frozenset(RULES)


class _Pattern:
    """A rule, compiled once a text needs it: all of them take 60 ms, which a short command would feel.

    Raises:
        InputError: an expression of a rule of somebody's own does not compile.
    """

    def __init__(self, rule: Rule) -> None:
        self.rule = rule
        if rule not in _OURS:
            try:
                self.keys, self._pattern, self._anchor  # noqa: B018 - for what they raise
                re2.compile(rule.screening)
            except (re.error, re2.error) as exception:
                raise InputError(
                    f"the pattern of rule {rule.name} does not compile: {exception}."
                ) from exception

    @cached_property
    def screening(self) -> bytes:
        return self.rule.screening.encode()

    @cached_property
    def keys(self) -> re.Pattern[str]:
        return re.compile(self.rule.keys)

    @cached_property
    def _pattern(self) -> re.Pattern[str]:
        return re.compile(self.rule.pattern, re.DOTALL)

    @cached_property
    def _groups(self) -> Sequence[str]:
        return sorted(group for group in self._pattern.groupindex if group.startswith("secret"))

    @cached_property
    def _anchor(self) -> Any:
        return re2.compile(self.rule.anchor.encode(), BYTES) if self.rule.anchor else None

    def accepts(self, secret: str) -> bool:
        """True if what has the form of a secret is one, and none that was taken out before."""
        return not secret.startswith("[redacted:") and (self.rule.check is None or self.rule.check(secret))

    def sub(self, text: str, matches: Counter[str], *, stars: bool = False) -> str:
        """A text with what matches replaced, and counted; with stars, as many letters as before."""
        pieces, end = [], 0
        for start, stop in self._found(text):
            if start < end or not self.accepts(text[start:stop]):
                continue
            matches[self.rule.name] += 1
            pieces += [text[end:start], "*" * (stop - start) if stars else MARK.format(self.rule.name)]
            end = stop
        return "".join([*pieces, text[end:]]) if pieces else text

    def _found(self, text: str) -> Iterator[tuple[int, int]]:
        """Where what may be a secret begins and ends."""
        if self.rule.finder is not None:
            yield from self.rule.finder(text)
            return
        if self._anchor is None:
            yield from map(self._span, self._pattern.finditer(text))
            return
        octets = text.encode("utf-8", "surrogatepass")
        place, passed, end = 0, 0, 0
        for anchor in self._anchor.finditer(octets):
            # Of bytes that begin no letter there are as many as places to go back.
            place += len(octets[passed : anchor.start()].decode("utf-8", "surrogatepass"))
            passed = anchor.start()
            if place < end or (match := self._pattern.match(text, place)) is None:
                continue
            start, stop = self._span(match)
            # What is no secret may be the name of one: `KEY = env.KEY or "..."`.
            end = start if stop - start < _SHORT else match.end()
            if self.accepts(text[start:stop]):
                yield start, stop
                end = match.end()

    def _span(self, match: re.Match[str]) -> tuple[int, int]:
        return match.span(next((group for group in self._groups if match[group] is not None), 0))


class _Screen:
    """Some of the screens, as one automaton.

    Args:
        expressions: of RE2.
    """

    def __init__(self, expressions: Sequence[bytes]) -> None:
        self._expressions = expressions
        self.search = re2.compile(b"|".join(b"(?:%b)" % one for one in expressions), BYTES).search

    @cached_property
    def _set(self) -> Any:
        """Tells the expressions apart; made for the first text that one of them finds something in."""
        told_apart = re2.Set.SearchSet(BYTES)
        for expression in self._expressions:
            told_apart.Add(expression)
        told_apart.Compile()
        return told_apart

    def which(self, octets: bytes) -> list[bytes]:
        """The expressions that find something."""
        return [self._expressions[index] for index in self._set.Match(octets) or ()]


def _counts(expression: bytes) -> bool:
    """True of an expression that multiplies the states of all others in its automaton."""
    return _UNENDING.search(expression) is not None or any(
        int(most) >= _COUNTS for most in _COUNTED.findall(expression)
    )


class _Compiled:
    """What Redactors of the same rules share: it takes time to make, and never changes."""

    def __init__(self, rules: tuple[Rule, ...]) -> None:
        self.patterns = [_Pattern(rule) for rule in rules]
        self.keys = [pattern for pattern in self.patterns if pattern.rule.keys]
        # Rules may share a screen.
        self._behind: dict[bytes, list[int]] = {}
        for number, pattern in enumerate(self.patterns):
            if pattern.rule.screening:
                self._behind.setdefault(pattern.screening, []).append(number)
        self._unscreened = [n for n, pattern in enumerate(self.patterns) if not pattern.rule.screening]
        # A rule without hints may match anywhere, so that no search can rule a text out.
        self.everywhere = bool(self._unscreened)
        expressions = list(self._behind)
        dealt = [[one for one in expressions if _counts(one) == counting] for counting in (False, True)]
        self._screens = [_Screen(some) for some in dealt if some]
        # The same names come in every run; whoever sends others all the time makes it forget and fills nothing.
        self.named = lru_cache(maxsize=_REMEMBERED)(self._named)
        # Keys and short values come again all the time. Of a text that may hold a secret nothing is kept.
        self._nothing: set[bytes] = set()

    def _named(self, end: str) -> _Pattern | None:
        return next((pattern for pattern in self.keys if pattern.keys.search(end)), None)

    def stopped(self, octets: bytes) -> bool:
        """True if a rule may match; False is certain."""
        return any(screen.search(octets) is not None for screen in self._screens)

    def hit(self, octets: bytes) -> list[_Pattern]:
        """The rules that may match, in their order."""
        if octets in self._nothing:
            return []
        # By number: to ask each of three hundred rules took a third of the time of a text that has nothing.
        numbers = {
            number
            for screen in self._screens
            if screen.search(octets)
            for expression in screen.which(octets)
            for number in self._behind[expression]
        }
        if not numbers and not self._unscreened and len(octets) <= _SHORT:
            if len(self._nothing) >= _REMEMBERED:
                self._nothing.clear()
            self._nothing.add(octets)
        return [self.patterns[number] for number in sorted(numbers.union(self._unscreened))]


_compiled = lru_cache(maxsize=16)(_Compiled)


class Redactor:
    """Applies rules to spans and trajectories; `counts` says how often each has matched so far."""

    def __init__(self, rules: Sequence[Rule] = RULES) -> None:
        self.rules = tuple(rules)
        compiled = self._compiled = _compiled(self.rules)
        self._patterns = compiled.patterns
        self._everywhere = compiled.everywhere
        self._known = KnownSecrets()
        self._counts: Counter[str] = Counter()
        self._lock = threading.Lock()

    def know(self, secret: str) -> bool:
        """Redact one secret by itself from now on, wherever it stands: as it is, or in JSON, a URL or base64.

        A server may know thousands: looking for them costs little more than for one.  Any thread may call it.

        Returns:
            False if the secret has fewer than 8 characters: it would take ordinary words out, and is not taken.
        """
        return self._known.add(secret)

    def forget(self, secret: str) -> None:
        """Undo `know`, once a secret is no longer valid; nothing happens if it was not known."""
        self._known.discard(secret)

    def knows_of(self, sent: bytes, *, json: bool) -> bool:
        """True if a request may hold a secret of `know`; False is certain."""
        return bool(self._known.within(sent)) or (
            json and self._known.any and _ESCAPED.search(sent) is not None
        )

    @property
    def counts(self) -> dict[str, int]:
        """Rule → matches redacted since this was made."""
        with self._lock:
            return dict(self._counts)

    def text(self, text: str) -> str:
        """A text without its secrets; the very same object if it has none."""
        matches: Counter[str] = Counter()
        redacted = self._text(text, matches)
        self._add(matches)
        return redacted

    def json(self, value: Json) -> Any:
        """A JSON value whose texts, keys too, are without their secrets."""
        matches: Counter[str] = Counter()
        redacted = self._json(value, matches)
        self._add(matches)
        return redacted

    def body(self, body: bytes, counts: Counter[str] | None = None, *, learned: bool = False) -> bytes:
        """JSON without its secrets; the very same object if it has none.

        Args:
            counts: rule → matches, added to.
            learned: it is the state of something that learns, whose numbers are weights whatever they are called.
        """
        # Before anything is made: most of what is written stops at this, some of it a hundred at a time.
        if not self._hit(body, "json"):
            return body
        clean, matches = self._without(body, learned)
        self._add(matches, counts)
        return clean

    def within(self, body: bytes) -> Mapping[str, int]:
        """Rule → secrets in JSON of something learned, of which nothing is taken out."""
        return self._without(body, learned=True)[1] if self._hit(body, "json") else {}

    def _without(self, body: bytes, learned: bool) -> tuple[bytes, Counter[str]]:
        matches: Counter[str] = Counter()
        value = msgspec.json.decode(body)
        redacted = self._learned(value, matches) if learned else self._json(value, matches)
        return (msgspec.json.encode(redacted) if matches else body), matches

    def span(self, span: Span) -> Span:
        """A span, log record or gateway call without its secrets; the very same object if it has none."""
        if not (self._hit(span.body, span.encoding) or self._hit(span.context, span.encoding)):
            return span
        matches: Counter[str] = Counter()
        try:
            body = self._body(span, matches)
            context = self._context(span, matches)
        except (InputError, msgspec.DecodeError, RecursionError):
            matches = Counter()
            body, context = (self._masked(part, matches) for part in (span.body, span.context))
        if not matches:
            return span
        self._add(matches)
        # The name stands in the body too, where what it held was counted.
        return span._replace(body=body, context=context, name=self._text(span.name, Counter()))

    def spans(self, spans: list[Span], sent: bytes, *, json: bool) -> list[Span]:
        """Each of them as `span` gives it.

        Args:
            sent: the request that they were cut out of, unpacked.  Where nothing in it is like the
                beginning of a secret, nothing in them is, and they are not looked at one by one.
            json: True for JSON, False for protobuf.
        """
        if not (json and _ESCAPED.search(sent)) and not self._suspicious(sent):
            return spans
        return [self.span(span) for span in spans]

    def suspects(self, body: bytes) -> bool:
        """True if JSON may hold a secret; False is certain."""
        return self._hit(body, "json")

    def suspects_runs(self, *bodies: bytes) -> bool:
        """True if encoded trajectories may hold a secret, which `trajectory` then decides; False is certain."""
        return self._hit(b"\n".join(map(_without_own_seed, bodies)), "json")

    def feedback(self, feedback: Feedback) -> Feedback:
        """Feedback without its secrets."""
        matches: Counter[str] = Counter()
        clean = self._feedback(feedback, matches)
        self._add(matches)
        return clean if matches else feedback

    def failure(self, failure: Failure) -> Failure:
        """A Failure whose message is without its secrets."""
        message = self.text(failure.message)
        return failure if message is failure.message else replace(failure, message=message)

    def trajectory(self, trajectory: Trajectory, counts: Counter[str] | None = None) -> Trajectory:
        """A trajectory without its secrets, marked untrainable; the very same object if it has none.

        A step that held one loses its token ids and log-probabilities.

        Args:
            counts: rule → matches, added to.

        Raises:
            InputError: something in it has no JSON form.
        """
        matches: Counter[str] = Counter()
        task = trajectory.task
        if self._stops(task):
            task = replace(
                task,
                instruction=self._text(task.instruction, matches),
                initial_state=self._json(dict(task.initial_state), matches),
                answer=self._json(task.answer, matches),
                meta=self._json(dict(task.meta), matches),
            )
        # Part by part: one suspicious step of a long run does not have the others looked through, and whet's own
        # fields, such as a seed of fourteen digits, none.
        steps = tuple(self._step(step, matches) if self._stops(step) else step for step in trajectory.steps)
        clean = replace(trajectory, task=task, steps=steps)
        if self._stops((trajectory.output, trajectory.error, trajectory.feedback, trajectory.meta)):
            clean = replace(
                clean,
                output=self._json(trajectory.output, matches),
                error=self._failure(trajectory.error, matches),
                feedback=tuple(self._feedback(feedback, matches) for feedback in trajectory.feedback),
                meta=self._json(dict(trajectory.meta), matches),
            )
        if not matches:
            return trajectory
        self._add(matches, counts)
        before = trajectory.meta.get("redacted")
        every = Counter(before if isinstance(before, dict) else {}) + matches
        return replace(clean, meta={**clean.meta, **redaction(every)})

    # -- inside -------------------------------------------------------------------------------

    def _hit(self, data: bytes, encoding: str) -> bool:
        """True if any rule may match, which for all but a few spans is False."""
        # An escaped letter hides a secret from a search of the bytes: such JSON is decoded and looked through.
        return self._suspicious(data) or (encoding.endswith("json") and _ESCAPED.search(data) is not None)

    def _stops(self, part: Any) -> bool:
        """True if any rule may match in a part of a trajectory.

        Raises:
            InputError: it has no JSON form.
        """
        return self._hit(encode_json(part), "json")

    def _suspicious(self, data: bytes) -> bool:
        return self._everywhere or self._compiled.stopped(data) or bool(self._known.within(data))

    def _text(self, text: str, matches: Counter[str]) -> str:
        for spelling in self._known.within(text):
            matches[KNOWN] += text.count(spelling)
            text = text.replace(spelling, MARK.format(KNOWN))
        octets = text.encode("utf-8", "surrogatepass")
        for pattern in self._compiled.hit(octets):
            text = pattern.sub(text, matches)
        return text

    def _json(self, value: Json, matches: Counter[str]) -> Any:
        if isinstance(value, str):
            return self._text(value, matches)
        if isinstance(value, Mapping):
            redacted = {
                self._text(key, matches): self._under(key, inner, matches) for key, inner in value.items()
            }
            return self._pair(value, self._structured(value, redacted, matches), matches)
        if isinstance(value, list | tuple):
            if len(value) == 2 and isinstance(value[0], str) and isinstance(value[1], str):
                return [self._text(value[0], matches), self._under(value[0], value[1], matches)]
            return [self._json(inner, matches) for inner in value]
        return value

    def _learned(self, value: Json, matches: Counter[str]) -> Any:
        if isinstance(value, str):
            return self._text(value, matches)
        if isinstance(value, list):
            return [self._learned(inner, matches) for inner in value]
        if not isinstance(value, Mapping):
            return value
        before = matches.total()
        redacted = {
            self._text(key, matches): self._under(key, inner, matches)
            if isinstance(inner, str)
            else self._learned(inner, matches)
            for key, inner in value.items()
        }
        # A model's answer: its tokens spell the text that was taken out.
        return _without_tokens(redacted) if matches.total() > before and "tokens" in redacted else redacted

    def _under(self, key: str, value: Json, matches: Counter[str]) -> Any:
        """A value without its secrets, of which it may be one by its key's name."""
        if value is None or isinstance(value, bool) or not key:
            return value
        pattern = self._named(key)
        if pattern is None:
            return self._json(value, matches)
        if isinstance(value, Mapping):  # {"adminPassword": {"value": ...}}
            redacted = self._json(value, matches)
            return redacted | {
                name: self._under(key, redacted[name], matches) for name in _VALUES if name in value
            }
        if isinstance(value, list | tuple):
            return [self._under(key, inner, matches) for inner in value]
        redacted = self._text(value, matches) if isinstance(value, str) else value
        # What was found in it by its form says more than that it has a name.
        if redacted is value and pattern.accepts(str(value)):
            matches[pattern.rule.name] += 1
            return MARK.format(pattern.rule.name)
        return redacted

    def _structured(
        self, given: Mapping[str, Json], redacted: dict[str, Any], matches: Counter[str]
    ) -> dict[str, Any]:
        """An object that says what it is: a Secret of Kubernetes, a JSON Web Key, a field that is typed into."""
        if given.get("kind") == "Secret":
            for key in ("data", "stringData"):
                if isinstance(redacted.get(key), Mapping):
                    redacted[key] = {
                        name: self._taken("kubernetes-secret", inner, matches)
                        for name, inner in redacted[key].items()
                    }
        if "kty" in given:
            taken = [name for name in PRIVATE_MEMBERS if isinstance(given.get(name), str)]
            redacted |= {name: self._taken("private-key", redacted[name], matches) for name in taken}
        if any(isinstance(given.get(key), str) and FIELD.search(given[key]) for key in _LABELS):
            entered = [key for key in _ENTERED if isinstance(given.get(key), str) and typed(given[key])]
            redacted |= {key: self._taken("password", redacted[key], matches) for key in entered}
        return redacted

    def _taken(self, rule: str, value: Json, matches: Counter[str]) -> Json:
        """The mark of a rule in the place of a text, unless something was found in it by its own form."""
        if not isinstance(value, str) or not value or "[redacted:" in value:
            return value
        matches[rule] += 1
        return MARK.format(rule)

    def _pair(
        self, given: Mapping[str, Json], redacted: dict[str, Any], matches: Counter[str]
    ) -> dict[str, Any]:
        """An object that holds a name and its value apart, as attributes of OTLP and headers of HAR do."""
        name = next((given[key] for key in _NAMES if isinstance(given.get(key), str)), None)
        if name is None or self._named(name) is None:
            return redacted
        for key in _VALUES:
            inner = redacted.get(key)
            if isinstance(inner, Mapping):
                redacted[key] = self._any_value(name, inner, matches)
            elif inner is not None:
                redacted[key] = self._under(name, inner, matches)
        return redacted

    def _any_value(self, name: str, value: Mapping[str, Json], matches: Counter[str]) -> Json:
        """An AnyValue of OTLP/JSON, which may be a secret by its attribute's name."""
        kind, held = next(iter(value.items()), ("", None))
        if kind == "arrayValue" and isinstance(held, Mapping) and isinstance(held.get("values"), list):
            inner = held["values"]
            return {
                kind: {
                    "values": [
                        self._any_value(name, each, matches) for each in inner if isinstance(each, Mapping)
                    ]
                }
            }
        redacted = {kind: self._under(name, held, matches) for kind, held in value.items()}
        # A number that was a secret is a text now.
        return (
            {"stringValue": redacted[kind]}
            if kind in ("intValue", "doubleValue") and redacted != value
            else redacted
        )

    def _named(self, key: str) -> _Pattern | None:
        """The first rule for values of this name."""
        return self._compiled.named(key[-_LONGEST_NAME:])

    def _body(self, span: Span, matches: Counter[str]) -> bytes:
        if span.encoding == "call+json":
            return self._call(span.body, matches)
        if span.encoding.endswith("+json"):
            return msgspec.json.encode(self._json(msgspec.json.decode(span.body), matches))
        return self._message(span.body, _SPAN if span.encoding == "span" else _LOG, matches)

    def _context(self, span: Span, matches: Counter[str]) -> bytes:
        if not span.context:
            return b""
        if span.encoding.endswith("+json"):
            return msgspec.json.encode(self._json(msgspec.json.decode(span.context), matches))
        return self._message(span.context, _CONTEXT, matches)

    def _call(self, body: bytes, matches: Counter[str]) -> bytes:
        """A gateway's record: without token ids and log-probabilities once a text of it was redacted."""
        clean = self._json(msgspec.json.decode(body), matches)
        if matches and isinstance(clean, dict):
            clean = {**clean, "choices": None, "redacted": dict(matches)}
            # Log-probabilities name each token with its text: a secret would stand there in pieces.
            for key in ("request", "response", "original_request"):
                if key in clean:
                    clean[key] = _without_tokens(clean[key])
        return msgspec.json.encode(clean)

    def _message(self, data: bytes, schema: Schema, matches: Counter[str]) -> bytes:
        """A protobuf message with its texts redacted and every length put right."""
        out, name = [], ""
        for number, kind, value, stop in fields(data, 0, len(data)):
            if kind in (VARINT, FIXED64, FIXED32):
                out.append(write_number(number, value, kind))
                continue
            held = data[value:stop]
            inner = schema.get(number)
            if inner == "value" and name and self._named(name) is not None:
                held = self._value(held, name, matches)
            elif inner is not None:
                held = self._message(held, _SCHEMAS[inner], matches)
            elif number in schema:
                # Bytes that are not UTF-8 must come out as they went in.
                text = held.decode("utf-8", "surrogateescape")
                name = text if number == 1 and schema is _SCHEMAS["pair"] else name
                held = self._text(text, matches).encode("utf-8", "surrogateescape")
            out.append(write_field(number, held))
        return b"".join(out)

    def _value(self, data: bytes, name: str, matches: Counter[str]) -> bytes:
        """An attribute's value, which may be a secret by its name."""
        out = []
        for number, kind, value, stop in fields(data, 0, len(data)):
            if number == _INTEGER and kind == VARINT:
                digits = self._under(name, value, matches)
                text = digits.encode() if isinstance(digits, str) else b""
                out.append(write_field(_TEXT, text) if text else write_number(number, value, kind))
            elif kind in (VARINT, FIXED64, FIXED32):
                out.append(write_number(number, value, kind))
            elif number == _TEXT:
                text = self._under(name, data[value:stop].decode("utf-8", "surrogateescape"), matches)
                out.append(write_field(number, text.encode("utf-8", "surrogateescape")))
            elif number == _LIST:
                inner = b"".join(
                    write_field(place, self._value(data[first:last], name, matches))
                    for place, _, first, last in fields(data, value, stop)
                )
                out.append(write_field(number, inner))
            else:
                schema = _SCHEMAS["value"].get(number)
                held = data[value:stop]
                out.append(
                    write_field(number, self._message(held, _SCHEMAS[schema], matches) if schema else held)
                )
        return b"".join(out)

    def _masked(self, data: bytes, matches: Counter[str]) -> bytes:
        """Bytes that cannot be taken apart, with what matches overwritten in place."""
        # One letter a byte, so that what is written over is as long as before: the lengths around it must still hold.
        text = data.decode("latin-1")
        for spelling in self._known.within(data):
            matches[KNOWN] += data.count(spelling)
            text = text.replace(spelling.decode("latin-1"), "*" * len(spelling))
        for pattern in self._patterns:
            text = pattern.sub(text, matches, stars=True)
        return text.encode("latin-1")

    def _step(self, step: Step, matches: Counter[str]) -> Step:
        own: Counter[str] = Counter()
        clean = replace(
            step,
            observation=self._json(step.observation, own),
            action=self._json(step.action, own),
            error=self._failure(step.error, own),
            info=self._json(dict(step.info), own),
        )
        if not own:
            return step
        matches.update(own)
        return replace(clean, tokens=None, info=_without_tokens(clean.info))

    def _feedback(self, feedback: Feedback, matches: Counter[str]) -> Feedback:
        return replace(
            feedback,
            comment=self._text(feedback.comment, matches),
            correction=self._json(feedback.correction, matches),
        )

    def _failure(self, failure: Failure | None, matches: Counter[str]) -> Failure | None:
        return None if failure is None else replace(failure, message=self._text(failure.message, matches))

    def _add(self, matches: Counter[str], counts: Counter[str] | None = None) -> None:
        if not matches:
            return
        if counts is not None:
            counts.update(matches)
        with self._lock:
            self._counts.update(matches)


def redaction(counts: Mapping[str, int]) -> dict[str, Json]:
    """What `meta` says of a trajectory that was redacted: the rules with their counts, and why it cannot be trained on.

    Args:
        counts: rule → matches.
    """
    texts = sorted(counts.keys() - ADDRESSES)
    reason: dict[str, Json] = {"untrainable": f"text was redacted: {', '.join(texts)}"} if texts else {}
    return {"redacted": dict(counts), **reason}


_SEED = b',"seed":'
_OWN_SEED = re.compile(rb',"seed":[0-9]{1,20}(?=,"started":[0-9])')


def _without_own_seed(body: bytes) -> bytes:
    """A trajectory's JSON without the seed that whet gave it, which a rule for seeds would stop at in every run."""
    # Every trajectory has one, if only null: a second is somebody's own and may be a secret, and then none is left out.
    return body if body.count(_SEED) != 1 else _OWN_SEED.sub(b"", body, count=1)


def _without_tokens(value: Json) -> Any:
    """A JSON value without token ids and log-probabilities, wherever they stand in it."""
    if isinstance(value, Mapping):
        return {
            key: _without_tokens(inner)
            for key, inner in value.items()
            if key not in _TOKEN_KEYS and not (key == "tokens" and isinstance(inner, Mapping))
        }
    if isinstance(value, list):
        return [_without_tokens(inner) for inner in value]
    return value


Schema = Mapping[int, str | None]
"""Field number → the message in it, or None for a text.  Fields that are not here hold neither."""

_SPAN: Schema = {3: None, 5: None, 9: "pair", 11: "event", 13: "link", 15: "status"}
_LOG: Schema = {3: None, 5: "value", 6: "pair", 12: None}
_CONTEXT: Schema = {1: "resource", 2: "scoped"}
_SCHEMAS: dict[str, Schema] = {
    "pair": {1: None, 2: "value"},
    "value": {1: None, 5: "list", 6: "map", 7: None},
    "list": {1: "value"},
    "map": {1: "pair"},
    "event": {2: None, 3: "pair"},
    "link": {3: None, 4: "pair"},
    "status": {2: None},
    "resource": {1: "pair"},
    "scoped": {1: "scope"},
    "scope": {1: None, 2: None, 3: "pair"},
}
