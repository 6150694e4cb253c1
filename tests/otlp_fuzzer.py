"""A fuzzer of the reader of spans, for as long as one likes: python tests/otlp_fuzzer.py FOLDER SECONDS [SEED]

It damages recorded requests (bytes changed, cut, doubled, two spliced), and makes trees of spans with
every attribute that a dialect looks at and any value in it.  What must hold: `decode` reads or raises
InputError, `survey` raises nothing, and every span is in a step, beside the steps, unread or left out.
"""

from __future__ import annotations

import json
import random
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from otlp_spans import TRACE, call, decoded, one, pairs

from whet.errors import InputError
from whet.record.store.codec import encode
from whet.record.tracing.dialects import form, survey
from whet.record.tracing.otlp import decode
from whet.types import Span

KEYS = [
    "openinference.span.kind",
    "traceloop.span.kind",
    "traceloop.entity.name",
    "traceloop.entity.input",
    "traceloop.entity.output",
    "traceloop.association.properties.user_id",
    "gen_ai.operation.name",
    "gen_ai.agent.name",
    "gen_ai.request.model",
    "gen_ai.response.id",
    "gen_ai.response.finish_reasons",
    "gen_ai.input.messages",
    "gen_ai.output.messages",
    "gen_ai.system_instructions",
    "gen_ai.usage.input_tokens",
    "gen_ai.usage.output_tokens",
    "gen_ai.tool.name",
    "gen_ai.tool.call.id",
    "gen_ai.tool.call.arguments",
    "gen_ai.tool.call.result",
    "gen_ai.prompt.0.role",
    "gen_ai.prompt.0.content",
    "gen_ai.prompt.0.tool_calls.0.arguments",
    "gen_ai.completion.0.content",
    "gen_ai.task.name",
    "agent_name",
    "pydantic_ai.all_messages",
    "pydantic_ai.new_message_index",
    "final_result",
    "events",
    "agent.name",
    "graph.node.id",
    "input.value",
    "output.value",
    "llm.model_name",
    "llm.invocation_parameters",
    "llm.input_messages.0",
    "llm.input_messages.0.message",
    "llm.input_messages.0.message.role",
    "llm.input_messages.0.message.content",
    "llm.input_messages.7.message.contents.0.message_content.text",
    "llm.input_messages.0.message.tool_calls.0.tool_call.function.arguments",
    "llm.output_messages.0.message.role",
    "llm.output_messages.0.message.content",
    "llm.token_count.prompt",
    "tool.name",
    "metadata",
    "session.id",
    "error.type",
]
WORDS = [
    "LLM",
    "TOOL",
    "AGENT",
    "CHAIN",
    "chat",
    "execute_tool",
    "invoke_agent",
    "create_agent",
    "execute_task",
    "workflow",
    "task",
    "agent",
    "tool",
    "user",
    "assistant",
    "system",
    "text",
    "m",
    "call_0",
    "get",
    "tool_call",
    "tool_use",
    "function_call",
    "tool_result",
    "reasoning",
    "message",
    "constructor",
    "human",
    "ai",
    "a.b",
    "function_call_output",
]
MEMBERS = [
    "role",
    "content",
    "parts",
    "type",
    "text",
    "tool_calls",
    "function",
    "name",
    "arguments",
    "id",
    "input",
    "messages",
    "kwargs",
    "lc",
    "data",
    "output",
    "outputs",
    "inputs",
    "input_str",
    "raw",
    "args",
    "choices",
    "tasks_output",
    "tool_call_id",
    "model",
    "event.name",
    "message",
    "usage",
]
KINDS = ("openinference.span.kind", "traceloop.span.kind", "gen_ai.operation.name", "agent_name")
NAMES = "abcdefg"


def value(chance: random.Random, depth: int = 0) -> Any:
    """Any JSON value, made of what dialects look for."""
    draw = chance.random()
    if depth > 3 or draw < 0.45:
        return chance.choice([None, True, 3, -1, 2.5, "", "x", [], {}, 10**18, chance.choice(WORDS)])
    if draw < 0.65:
        return [value(chance, depth + 1) for _ in range(chance.randint(0, 3))]
    return {
        chance.choice(MEMBERS): chance.choice(WORDS) if chance.random() < 0.2 else value(chance, depth + 1)
        for _ in range(chance.randint(0, 5))
    }


def attributes(chance: random.Random) -> dict[str, Any]:
    """Attributes of one span: words, values, and values as JSON text."""
    found: dict[str, Any] = {}
    for _ in range(chance.randint(0, 9)):
        drawn = chance.choice([chance.choice(WORDS), value(chance)])
        found[chance.choice(KEYS)] = json.dumps(drawn) if chance.random() < 0.4 else drawn
    if chance.random() < 0.8:
        found[chance.choice(KINDS)] = chance.choice(WORDS)
    return found


def tree(chance: random.Random) -> list[Span]:
    """Spans of one trace in any shape, with a gateway's calls among them."""
    items = []
    for _ in range(chance.randint(1, 7)):
        event = {
            "name": chance.choice(
                ["exception", "gen_ai.choice", "gen_ai.user.message", "gen_ai.tool.message"]
            ),
            "timeUnixNano": "1",
            "attributes": pairs({chance.choice(MEMBERS): value(chance) for _ in range(3)}),
        }
        parent = chance.choice([None, *NAMES])
        status = {"code": chance.randint(0, 2), "message": chance.choice(["", "Boom: x", "XError: y"])}
        item = one(chance.choice(NAMES), attributes(chance), parent=parent, at=chance.randint(0, 5))
        items.append(item | {"status": status, "events": [event]})
    calls = [
        call(
            str(place),
            parent=chance.choice([None, *NAMES]),
            request=value(chance),
            response=value(chance),
            choices=value(chance),
            usage=value(chance),
            error=value(chance),
        )
        for place in range(chance.randint(0, 2))
    ]
    return [*decoded(*items, scope=chance.choice(["x", "pydantic-ai"])), *calls]


def accounted(spans: Sequence[Span], *, whole: bool = True) -> None:
    """Every span is in a step, beside the steps, unread or left out; what was read can be stored and shown.

    Args:
        whole: the bodies are sound, so none may be unread.
    """
    found = survey(spans)
    places: Counter[str] = Counter()
    for each in found.trajectories:
        encode(each)
        json.dumps(form(each))
        assert not (whole and each.meta.get("unread")), each.meta
        places.update(each.meta.get("unread_spans", []))
        for step in each.steps:
            places.update(step.info["span_ids"])
        places.update(apart["span_id"] for apart in each.meta.get("spans_not_steps", []))
        places.update(each.meta.get("loose_logs", []))
        ids = [step.id for step in each.steps]
        assert len(set(ids)) == len(ids)
        assert all(step.parent is None or step.parent in ids for step in each.steps)
        assert all(step.parent != step.id for step in each.steps)
    places.update(span.id.hex() for span in found.left_out)
    given = {(span.trace, span.id): span for span in spans}
    joined = Counter(span.id.hex() for span in given.values() if span.encoding.startswith("log"))
    missing = Counter(id.hex() for _, id in given) - places
    assert not missing - joined, "a log record is part of its span; every other span has a place of its own"
    assert not places - Counter(id.hex() for _, id in given), "a span has two places"


def damaged(chance: random.Random, bodies: Sequence[tuple[bytes, bool]]) -> None:
    """Read a recorded request with something wrong in it."""
    body, logs = chance.choice(bodies)
    data = bytearray(body)
    for _ in range(chance.randint(1, 8)):
        place = chance.randrange(len(data))
        match chance.randrange(4):
            case 0:
                data[place] = chance.randrange(256)
            case 1:
                del data[place:]
            case 2:
                data[place:place] = data[place : place + chance.randint(1, 40)]
            case _:
                other, _ = chance.choice(bodies)
                data[place:] = other[chance.randrange(len(other)) :]
        if not data:
            return
    try:
        found = decode(bytes(data), json=False, logs=logs)
    except InputError:
        return
    accounted([span._replace(trace=TRACE) for span in found.spans], whole=False)


def fuzz(bodies: Sequence[tuple[bytes, bool]], *, seed: int, rounds: int, seconds: float = 1e9) -> int:
    """Rounds done without a failure, until `rounds` or `seconds` are over."""
    end = time.monotonic() + seconds
    for place in range(rounds):
        chance = random.Random(f"{seed}:{place}")
        try:
            accounted(tree(chance)) if place % 2 else damaged(chance, bodies)
        except Exception as exception:
            raise AssertionError(f"seed {seed}, round {place}: {exception!r}") from exception
        if time.monotonic() > end:
            return place + 1
    return rounds


def recorded(folder: Path) -> list[tuple[bytes, bool]]:
    """Request bodies, and whether each is of log records."""
    return [(path.read_bytes(), "logs" in path.name) for path in sorted(folder.glob("*.pb"))]


if __name__ == "__main__":
    chosen = int(sys.argv[3]) if len(sys.argv) > 3 else 0
    done = fuzz(recorded(Path(sys.argv[1])), seed=chosen, rounds=sys.maxsize, seconds=float(sys.argv[2]))
    print(f"{done} rounds from seed {chosen}, nothing lost and nothing raised")
