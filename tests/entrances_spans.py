"""The two runs of `entrances_world` as each dialect of OpenTelemetry writes them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

from otlp_spans import one, request

Message = dict[str, Any]
"""role, and text, or calls [(id, city)], or the id and text of a result."""


def trace(plan: Any) -> bytes:
    return hashlib.sha256(f"trace {plan.name}".encode()).digest()[:16]


def run(dialect: str, plan: Any, question: str, weather: Mapping[str, str], session: str) -> bytes:
    """An export request with one run: an agent, its model calls and its tools."""
    write = DIALECTS[dialect]
    held: list[Message] = [{"role": "user", "text": question}]
    spans = []
    where = {"trace": trace(plan)}
    for turn in range(len(plan.cities) + 1):
        answer: Message = {"role": "assistant", "text": plan.answer}
        if turn < len(plan.cities):
            answer = {"role": "assistant", "call": (f"call_{turn}", plan.cities[turn])}
        name = f"chat {turn}"
        attributes = write("llm", messages=list(held), answer=answer)
        spans.append(one(name, attributes, parent="meteo", at=turn * 2 + 0.1, lasts=0.5, **where))
        held.append(answer)
        if "call" not in answer:
            break
        id, city = answer["call"]
        held.append({"role": "tool", "id": id, "text": weather[city]})
        attributes = write("tool", id=id, city=city, text=weather[city])
        at = turn * 2 + 1.0
        where_it_is = {"parent": "meteo", "at": at, "lasts": 0.5, "id": f"weather {turn}", **where}
        spans.append(one(TOOL_NAMES.get(dialect, "weather"), attributes, **where_it_is))
    attributes = write("agent", question=question, answer=plan.answer, session=session, whole=held)
    spans.append(one("meteo", attributes, lasts=20, **where))
    return request(*spans, scope="pydantic-ai" if dialect == "pydantic_ai" else "test")


TOOL_NAMES = {"genai": "execute_tool weather", "pydantic_ai": "running tool", "openllmetry": "weather.tool"}


def parts(messages: Sequence[Message]) -> str:
    """Messages in OpenTelemetry's form."""
    found = []
    for each in messages:
        if "call" in each:
            id, city = each["call"]
            part = {"type": "tool_call", "id": id, "name": "weather", "arguments": {"city": city}}
        elif each["role"] == "tool":
            part = {"type": "tool_call_response", "id": each["id"], "response": each["text"]}
        else:
            part = {"type": "text", "content": each["text"]}
        found.append({"role": each["role"], "parts": [part]})
    return json.dumps(found)


def chat(messages: Sequence[Message]) -> list[Message]:
    """Messages as OpenAI's API has them."""
    found: list[Message] = []
    for each in messages:
        if "call" in each:
            id, city = each["call"]
            function = {"name": "weather", "arguments": json.dumps({"city": city})}
            calls = [{"id": id, "type": "function", "function": function}]
            found.append({"role": "assistant", "content": None, "tool_calls": calls})
        elif each["role"] == "tool":
            found.append({"role": "tool", "tool_call_id": each["id"], "content": each["text"]})
        else:
            found.append({"role": each["role"], "content": each["text"]})
    return found


def genai(kind: str, **said: Any) -> dict[str, Any]:
    if kind == "agent":
        return {
            "gen_ai.operation.name": "invoke_agent",
            "gen_ai.agent.name": "meteo",
            "gen_ai.conversation.id": said["session"],
            "gen_ai.input.messages": parts(said["whole"][:1]),
            "gen_ai.output.messages": parts(said["whole"][-1:]),
        }
    if kind == "tool":
        return {
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": "weather",
            "gen_ai.tool.call.id": said["id"],
            "gen_ai.tool.call.arguments": json.dumps({"city": said["city"]}),
            "gen_ai.tool.call.result": said["text"],
        }
    return {
        "gen_ai.operation.name": "chat",
        "gen_ai.request.model": "m",
        "gen_ai.input.messages": parts(said["messages"]),
        "gen_ai.output.messages": parts([said["answer"]]),
        "gen_ai.usage.input_tokens": 10,
        "gen_ai.usage.output_tokens": 2,
    }


def pydantic_ai(kind: str, **said: Any) -> dict[str, Any]:
    if kind != "agent":
        return genai(kind, **said)
    return {
        "agent_name": "meteo",
        "gen_ai.conversation.id": said["session"],
        "pydantic_ai.all_messages": parts(said["whole"]),
        "final_result": said["answer"],
    }


def openinference(kind: str, **said: Any) -> dict[str, Any]:
    held: dict[str, Any] = {"openinference.span.kind": kind.upper()}
    if kind == "agent":
        asked = {"input.value": said["question"], "output.value": said["answer"]}
        return {**held, **asked, "agent.name": "meteo", "session.id": said["session"]}
    if kind == "tool":
        given = json.dumps({"city": said["city"]})
        id = {"tool_call.id": said["id"]}
        return {**held, **id, "tool.name": "weather", "input.value": given, "output.value": said["text"]}
    held["llm.model_name"] = "m"
    held |= {"llm.token_count.prompt": 10, "llm.token_count.completion": 2}
    for side, several in (("input", chat(said["messages"])), ("output", chat([said["answer"]]))):
        for number, message in enumerate(several):
            held |= flat(f"llm.{side}_messages.{number}.message", message)
    return held


def flat(prefix: str, message: Message) -> dict[str, Any]:
    held = {f"{prefix}.role": message["role"]}
    if message.get("content") is not None:
        held[f"{prefix}.content"] = message["content"]
    if "tool_call_id" in message:
        held[f"{prefix}.tool_call_id"] = message["tool_call_id"]
    for place, call in enumerate(message.get("tool_calls", ())):
        at = f"{prefix}.tool_calls.{place}.tool_call"
        held |= {f"{at}.id": call["id"], f"{at}.function.name": call["function"]["name"]}
        held[f"{at}.function.arguments"] = call["function"]["arguments"]
    return held


def openllmetry(kind: str, **said: Any) -> dict[str, Any]:
    held: dict[str, Any] = {"traceloop.span.kind": kind, "traceloop.entity.name": kind}
    if kind == "agent":
        held["traceloop.entity.name"] = "meteo"
        held["traceloop.association.properties.session_id"] = said["session"]
        held["traceloop.entity.input"] = json.dumps({"inputs": {"question": said["question"]}})
        return {**held, "traceloop.entity.output": json.dumps({"outputs": said["answer"]})}
    if kind == "tool":
        given = json.dumps(
            {"input_str": json.dumps({"city": said["city"]}), "inputs": {"city": said["city"]}}
        )
        held |= {"traceloop.entity.name": "weather", "gen_ai.tool.call.id": said["id"]}
        return {**held, "traceloop.entity.input": given, "traceloop.entity.output": json.dumps(said["text"])}
    held = {"llm.request.type": "chat", "gen_ai.request.model": "m"}
    held |= {"gen_ai.usage.prompt_tokens": 10, "gen_ai.usage.completion_tokens": 2}
    for side, several in (("prompt", chat(said["messages"])), ("completion", chat([said["answer"]]))):
        for number, message in enumerate(several):
            at = f"gen_ai.{side}.{number}"
            held |= flat(at, {**message, "tool_calls": []})
            for place, call in enumerate(message.get("tool_calls", ())):
                inner = f"{at}.tool_calls.{place}"
                held |= {f"{inner}.id": call["id"], f"{inner}.name": call["function"]["name"]}
                held[f"{inner}.arguments"] = call["function"]["arguments"]
    return held


def langfuse(kind: str, **said: Any) -> dict[str, Any]:
    key = "langfuse.observation."
    if kind == "agent":
        given = {"args": [said["question"]], "kwargs": {}}
        held = {f"{key}type": "agent", f"{key}input": json.dumps(given), f"{key}output": said["answer"]}
        return {**held, "session.id": said["session"]}
    if kind == "tool":
        given = {"args": [], "kwargs": {"city": said["city"]}}
        return {f"{key}type": "tool", f"{key}input": json.dumps(given), f"{key}output": said["text"]}
    return {
        f"{key}type": "generation",
        f"{key}model.name": "m",
        f"{key}usage_details": json.dumps({"input": 10, "output": 2}),
        f"{key}input": json.dumps(chat(said["messages"])),
        f"{key}output": json.dumps(chat([said["answer"]])[0]),
    }


def generic(kind: str, **said: Any) -> dict[str, Any]:
    """Spans of somebody's own."""
    if kind == "agent":
        return {"input": said["question"], "output": said["answer"], "session.id": said["session"]}
    if kind == "tool":
        return {"input": json.dumps({"city": said["city"]}), "output": said["text"]}
    answer = chat([said["answer"]])[0]
    return {"input": json.dumps(chat(said["messages"])), "output": json.dumps(answer)}


DIALECTS = {
    "genai": genai,
    "openinference": openinference,
    "openllmetry": openllmetry,
    "langfuse": langfuse,
    "pydantic_ai": pydantic_ai,
    "generic": generic,
}
