"""The scripted model behind every capture: a travel desk that is asked for the weather and a table.

Asked with the tools `weather` and `reserve`, it wants both called at once; `weather` answers and `reserve` raises, and
it then says both.  Where an agent can be handed the question, it hands it over first.  A question about Atlantis is
refused with HTTP 400.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from whet.models.base import Completion, ModelRequest, ToolCall
from whet.models.fakes import Reply
from whet.types import Usage

PROMPT = "You are the desk of a hotel. Be brief."
QUESTION = "What is the weather in Paris, and is there a table at Chez Paul?"
REFUSED = "What is the weather in Atlantis?"
ANSWER = "It is 22 degrees in Paris, and Chez Paul has no table."
_HANDOFF = re.compile(r"(transfer|hand_?off|delegate|ask)(_.*)?|guide", re.IGNORECASE)


def desk(request: ModelRequest) -> Completion | Reply:
    """The model's next answer; each call costs another number of tokens."""
    turns = request.messages
    spoken = json.dumps(turns)
    used = Usage(prompt_tokens=20 + 10 * len(turns), output_tokens=5 + len(turns))
    if "Atlantis" in spoken:
        refusal = {"error": {"message": "no such place: Atlantis", "type": "invalid_request_error"}}
        return Reply(status=400, body=json.dumps(refusal).encode())
    tools = [_tool(tool) for tool in request.tools or ()]
    results = sum(
        turn["role"] == "tool" or '"tool_result"' in json.dumps(turn.get("content")) for turn in turns
    )
    handoff = next((tool for tool in tools if _HANDOFF.fullmatch(tool["name"])), None)
    number = len(turns)
    if handoff is not None and not results:
        fields = (handoff.get("parameters") or handoff.get("input_schema") or {}).get("properties") or {}
        arguments = {name: _argument(name) for name in fields}
        call = ToolCall(name=handoff["name"], arguments=json.dumps(arguments), id=f"call_{number}0")
        return Completion(tool_calls=[call], usage=used, finish="tool_calls")
    # By its last part: some frameworks put the name of a plugin in front.
    named = {re.split(r"\W", tool["name"])[-1]: tool["name"] for tool in tools}
    if "weather" in named and "22 degrees" not in spoken:
        calls = [ToolCall(name=named["weather"], arguments='{"city": "Paris"}', id=f"call_{number}1")]
        if "reserve" in named:
            reserve = named["reserve"]
            calls.append(ToolCall(name=reserve, arguments='{"place": "Chez Paul"}', id=f"call_{number}2"))
        return Completion(tool_calls=calls, usage=used, finish="tool_calls")
    return Completion(text=ANSWER, usage=used, finish="stop")


def _argument(name: str) -> str:
    """What a handoff is called with: some take a question, some the name of the agent."""
    return "guide" if "agent" in name or name in ("coworker", "name", "member_id") else QUESTION


def _tool(tool: Mapping[str, Any]) -> Mapping[str, Any]:
    """Name and parameters of a tool: nested under `function` in chat, flat in the Responses API."""
    inner = tool.get("function")
    flat: Mapping[str, Any] = inner if isinstance(inner, Mapping) else tool
    return flat if isinstance(flat.get("name"), str) else {"name": ""}
