"""All that goes over the network: the model, and the services of the works."""

from __future__ import annotations

import asyncio
import json
import os
import urllib.parse
import urllib.request
from typing import Any


def _sent(request: str | urllib.request.Request, seconds: float) -> Any:
    with urllib.request.urlopen(request, timeout=seconds) as response:
        return json.load(response)


async def complete(body: dict[str, Any]) -> dict[str, Any]:
    """One chat completion: its message."""
    request = urllib.request.Request(
        os.environ["OPENAI_BASE_URL"].rstrip("/") + "/chat/completions",
        json.dumps(body).encode(),
        {
            "content-type": "application/json",
            "authorization": "Bearer " + os.environ.get("OPENAI_API_KEY", "none"),
        },
    )
    return (await asyncio.to_thread(_sent, request, 30.0))["choices"][0]["message"]


async def fetch(service: str, key: str) -> Any:
    """What a service of the works holds under a key."""
    address = f"{os.environ['SHOP_URL']}/{service}?{urllib.parse.urlencode({'key': key})}"
    return await asyncio.to_thread(_sent, address, 10.0)
