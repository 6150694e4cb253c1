"""A reader writes, the desk answers: the Messages API over plain HTTP, and the catalogue as a tool."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field
from pathlib import Path

import httpx

from counter.catalogue import TOOL, look_up

SETTINGS = Path(__file__).parent / "texts" / "desk.json"


@dataclass
class Desk:
    """One conversation with the model."""

    settings: dict = field(default_factory=lambda: json.loads(SETTINGS.read_text(encoding="utf-8")))
    turns: int = 3

    def briefing(self) -> str:
        return "\n".join(self.settings["briefing"])

    async def ask(self, http: httpx.AsyncClient, messages: list) -> dict:
        reply = await http.post(
            "/v1/messages",
            json={
                "model": self.settings["model"],
                "max_tokens": self.settings["max_tokens"],
                "system": [{"type": "text", "text": self.briefing()}],
                "tools": [TOOL],
                "messages": messages,
            },
        )
        reply.raise_for_status()
        return reply.json()

    async def answer(self, question: str) -> str:
        headers = {
            "x-api-key": os.environ.get("ANTHROPIC_API_KEY", "none"),
            "anthropic-version": "2023-06-01",
        }
        address = os.environ.get("ANTHROPIC_BASE_URL", "https://api.anthropic.com")
        messages = [{"role": "user", "content": question}]
        async with httpx.AsyncClient(base_url=address, headers=headers, timeout=60) as http:
            for _ in range(self.turns):
                said = await self.ask(http, messages)
                uses = [block for block in said["content"] if block["type"] == "tool_use"]
                if not uses:
                    break
                messages.append({"role": "assistant", "content": said["content"]})
                results = [
                    {
                        "type": "tool_result",
                        "tool_use_id": use["id"],
                        "content": json.dumps(look_up(**use["input"])),
                    }
                    for use in uses
                ]
                messages.append({"role": "user", "content": results})
        return "".join(block["text"] for block in said["content"] if block["type"] == "text").strip()


async def serve_reader(question):
    return await Desk().answer(question)
