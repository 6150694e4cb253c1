"""A clerk that asks a language model over the network: any OpenAI-compatible endpoint, by its two variables.

OPENAI_BASE_URL=http://127.0.0.1:8000/v1 OPENAI_API_KEY=... python -c "from shop.clerk import answer; ..."
"""

import json
import os
import urllib.request
from pathlib import Path

import whet

from .prices import total

HERE = Path(__file__).parent
PROMPT = whet.resource("clerk_prompt", "You are the clerk of a shop. Use the tools.")
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "total",
            "description": "Does sums.",
            "parameters": {
                "type": "object",
                "properties": {"item": {"type": "string"}, "count": {"type": "integer"}},
                "required": ["item", "count"],
            },
        },
    }
]


def answer(question: str) -> str:
    """What the clerk says to a customer."""
    skill = (HERE / "skills" / "refunds" / "SKILL.md").read_text(encoding="utf-8")
    messages: list[dict] = [
        {"role": "system", "content": f"{PROMPT}\n\n{skill}"},
        {"role": "user", "content": question},
    ]
    for _ in range(3):
        said = _chat(messages)
        calls = said.get("tool_calls") or []
        if not calls:
            return said["content"]
        messages.append(said)
        for call in calls:
            found = total(**json.loads(call["function"]["arguments"]))
            messages.append({"role": "tool", "tool_call_id": call["id"], "content": json.dumps(found)})
    return said.get("content") or ""


def _chat(messages: list[dict]) -> dict:
    orders = json.loads((HERE / "mcp.json").read_text(encoding="utf-8"))["tools"]
    body = {
        "model": os.environ.get("CLERK_MODEL", "scripted"),
        "messages": messages,
        "tools": [*TOOLS, *({"type": "function", "function": _function(each)} for each in orders)],
        "temperature": 0,
    }
    request = urllib.request.Request(
        f"{os.environ['OPENAI_BASE_URL']}/chat/completions",
        json.dumps(body).encode(),
        {
            "Content-Type": "application/json",
            "Authorization": f"Bearer {os.environ.get('OPENAI_API_KEY', 'none')}",
        },
    )
    with urllib.request.urlopen(request, timeout=60) as reply:
        return json.load(reply)["choices"][0]["message"]


def _function(tool: dict) -> dict:
    """An MCP tool as the chat API takes it."""
    return {"name": tool["name"], "description": tool["description"], "parameters": tool["inputSchema"]}
