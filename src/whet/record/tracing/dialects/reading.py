"""The reading of one span: the common result of every dialect.

A dialect's module has one function, `read(content) -> SpanReading | None`: None says "not mine".  It
looks at one span alone; what needs its neighbours (which agent is whose, which spans are one step)
is `tree.py`.  A field that the span does not tell stays None and is never filled by a guess.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from math import isfinite
from typing import Any

import msgspec

from ....types import Json, Tokens
from ..content import ERROR, Content
from .messages import Message
from .values import structure

SHAPES, NAMES = 1024, 64
"""Most spans have the same names of attributes as many before, and what the names alone decide is worked out once for
them: so many such sets are remembered, of so many names."""
Usage = dict[str, int | None]
"""`input`, `output`, `cached_input`, `reasoning`: numbers of tokens; None where the span does not say."""

NODE = "node"
"""A graph node, turn or chain: not a step, unless it is the run itself."""
CONSTRUCTION = "construction"
"""Building an agent, not running it."""
OTHER = "other"
"""Nothing that a dialect knows: an HTTP request, a database query, a user's own span."""


class Wire(msgspec.Struct):
    """The signs of its agent in one request."""

    agent: str | None = None
    """Stated outright."""
    speakers: list[tuple[str, Message]] = []
    """Assistant's messages of the conversation that have a name."""
    system: str = ""
    tools: tuple[str, ...] = ()

    @property
    def persona(self) -> tuple[str, tuple[str, ...]] | None:
        """The common traits of one agent's calls; None where there are none."""
        return (self.system, self.tools) if self.system or self.tools else None


class SpanReading(msgspec.Struct):
    """One span, or several that are one step."""

    kind: str
    name: str
    named: bool = False
    """True if an agent's name is stated, rather than taken from its span."""
    model: str | None = None
    response_model: str | None = None
    response_id: str | None = None
    """The model server's id of its answer, which a gateway's record of the call has too."""
    input: list[Message] | None = None
    output: Message | None = None
    # msgspec makes a new list for each; a dataclass would refuse this default.
    others: list[Message] = []
    """Further answers to the same prompt."""
    arguments: Json = None
    result: str | None = None
    tool_call_id: str | None = None
    calls: list[Message] = []
    """The tool calls that a graph node was given: `name`, `args`, `id`."""
    finish: Json = None
    """The finish reason as the span says it."""
    usage: Usage | None = None
    aggregate: Usage | None = None
    dollars: float | None = None
    """What the call cost, where the span says so."""
    error: tuple[str, str] | None = None
    fault: str | None = None
    transcript: list[Message] | None = None
    """A conversation that stands in an agent's output, where no model call was recorded."""
    tokens: Tokens | None = None
    versions: dict[str, str] = {}
    """Resource name → id of the Version that was served."""
    trials: dict[str, Json] = {}
    """Canary → the arm that it was served (`record.store.trials`)."""
    extra: dict[str, Json] = {}
    """More for Step.info."""
    wire: Wire | None = None
    """The signs of its agent in the request of a gateway's call."""
    fill: Callable[[SpanReading], None] | None = None
    """Reads what only matters if this is an agent: called once that is known."""
    quoted: dict[str, tuple[Json, Json]] = {}
    """Attribute → its value, and what of the above is sure to say all of it: `unread` need not look."""


UNTYPED = "_OTHER"
"""OpenTelemetry's word for an error whose type is not known."""


def failure(content: Content) -> tuple[str, str] | None:
    """Type and message of what went wrong in a span, None if nothing did.

    The exception's event is preferred: a status message may hold a whole traceback.  An exception
    that was handled leaves an event and no status, and is not a failure of the span.  A type that nothing states is
    `UNTYPED`: a made-up one would be grouped and blamed as if it were real.
    """
    if content.status != ERROR and "error.type" not in content.attributes:
        return None
    stated = word(content.attributes, "error.type")
    if content.status != ERROR and not stated:
        return None
    # The last: one that was handled and raised again as another comes before it.
    for event in reversed(content.events):
        if event.name == "exception":
            kind = word(event.attributes, "exception.type") or stated or UNTYPED
            return kind, word(event.attributes, "exception.message") or content.message
    first = content.message.partition("Traceback (most recent call last)")[0].strip()
    kind, colon, rest = first.partition(": ")
    if stated:
        return stated, first
    if colon and kind.replace(".", "").replace("_", "").isalnum() and kind.endswith(("Error", "Exception")):
        return kind, rest
    return UNTYPED, first


def word(attributes: Mapping[str, Json], *keys: str) -> str | None:
    """The first of these attributes that is a text with something in it."""
    for key in keys:
        value = attributes.get(key)
        if isinstance(value, str) and value:
            return value
    return None


def first(attributes: Mapping[str, Json], *keys: str) -> Json:
    """The first of these attributes that is there."""
    for key in keys:
        value = attributes.get(key)
        if value is not None:
            return value
    return None


def array(value: Json) -> list[Any]:
    """A list, or a text that holds one as JSON; an empty one of anything else."""
    members = structure(value)
    return members if isinstance(members, list) else []


def number(attributes: Mapping[str, Json], *keys: str) -> int | None:
    """The first of these attributes that is a count."""
    for key in keys:
        value = attributes.get(key)
        if value is None:
            continue
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        # type, not isinstance: a bool is no count. From 2**53 on a float is no exact one.
        if type(value) is int and 0 <= value < 1 << 53:
            return value
    return None


def usage(input: int | None, output: int | None, cached: int | None, reasoning: int | None) -> Usage | None:
    """None if the span does not state it: unknown is not 0."""
    if input is None and output is None and cached is None and reasoning is None:
        return None
    return {"input": input, "output": output, "cached_input": cached, "reasoning": reasoning}


_COSTS = (
    ("gen_ai.usage.cost", ""),
    ("llm.cost.total", ""),
    ("langfuse.observation.cost_details", "total"),
    ("mlflow.llm.cost", "total_cost"),
)
"""Attributes that say what a call cost, and the member of the object that some of them are."""


def cost(attributes: Mapping[str, Json]) -> float | None:
    """Dollars, as instrumentors and products state them; None where nothing does, and 0 only where it says 0."""
    for key, member in _COSTS:
        value = attributes.get(key)
        if value is not None and member:
            held = structure(value)
            value = held.get(member) if isinstance(held, dict) else None
        if isinstance(value, int | float) and not isinstance(value, bool) and isfinite(value) and value >= 0:
            return float(value)
    return None


def under(attributes: Mapping[str, Json], prefix: str) -> dict[str, Json]:
    """Attributes flattened with dots below `prefix`, as nested dictionaries."""
    tree: dict[str, Json] = {}
    for key, value in attributes.items():
        if not key.startswith(prefix):
            continue
        *path, last = key[len(prefix) :].split(".")
        branch = tree
        for part in path:
            inner = branch.setdefault(part, {})
            if not isinstance(inner, dict):
                break  # the same name as a value and as a prefix: the value came first
            branch = inner
        else:
            branch.setdefault(last, value)
    return tree


def indexed(tree: Json) -> list[dict[str, Json]]:
    """The branches of `under` whose names are numbers, in their order; indices may be sparse."""
    if not isinstance(tree, dict):
        return []
    # Sorted by index and never put at that place: one that says 999999999 would take the memory.
    branches = [(int(key), branch) for key, branch in tree.items() if key.isdecimal() and len(key) < 10]
    return [branch for _, branch in sorted(branches, key=lambda pair: pair[0]) if isinstance(branch, dict)]


_ASSOCIATED = ("traceloop.association.properties.", "langsmith.metadata.")
_WHOSE = frozenset({"metadata", "session.id", "gen_ai.conversation.id", "user.id", "enduser.id"})
_FRAMEWORK = (
    "ls_",
    "lc_",
    "langgraph_",
    "thread_id",
    "checkpoint_ns",
    "session_id",
    "user_id",
    "LANGSMITH_",
    "__",
)
_FRAMEWORK_KEYS = frozenset({"model", "model_name", "stream", "_type", "usage_metadata", "revision_id"})
"""In LangSmith's metadata: its own, not the user's."""


@dataclass(frozen=True, slots=True)
class Who:
    """The owner of a run, as its spans say."""

    session: str | None = None
    subject: str | None = None
    metadata: Mapping[str, Json] = field(default_factory=dict)


def _names_owner(held: Mapping[str, Json]) -> bool:
    return _own(tuple(held)) if len(held) <= NAMES else _own.__wrapped__(tuple(held))


@functools.lru_cache(maxsize=SHAPES)
def _own(keys: tuple[str, ...]) -> bool:
    return not _WHOSE.isdisjoint(keys) or any(prefix in "\n".join(keys) for prefix in _ASSOCIATED)


def who(contents: Iterable[Content]) -> Who:
    """Session, subject and the user's own metadata of a run."""
    session = subject = None
    metadata: dict[str, Json] = {}
    resource, owned = None, False
    for content in contents:
        if content.resource is not resource:
            resource, owned = content.resource, _names_owner(content.resource)
        if not (owned or _names_owner(content.attributes)):
            continue  # most spans say nothing of it
        held = {**content.resource, **content.attributes}
        stated = structure(held.get("metadata"))
        own = dict(stated) if isinstance(stated, dict) else {}
        for key, value in held.items():
            for prefix in _ASSOCIATED:
                if key.startswith(prefix):
                    own[key.removeprefix(prefix)] = value
        session = (
            session
            or word(held, "session.id", "gen_ai.conversation.id")
            or word(own, "session_id", "thread_id", "conversation_id")
        )
        subject = subject or word(held, "user.id", "enduser.id") or word(own, "user_id")
        for key, value in own.items():
            if not key.startswith(_FRAMEWORK) and key not in _FRAMEWORK_KEYS:
                metadata.setdefault(key, value)
    return Who(session, subject, metadata)
