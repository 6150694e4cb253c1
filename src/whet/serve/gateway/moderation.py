"""Moderation of prompts: a function sees every text that a model call would send, and may mask it or block the call.

It is called before the upstream is asked, and what is recorded is what was sent.  A moderation endpoint is asked
through `endpoint_moderation`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from ...errors import InputError, ModelError, PermissionDenied
from ...types import Fault, Json
from .failures import UpstreamFailed

Moderation: TypeAlias = Callable[[str], "str | None"]
"""A text → the text to send in its place, None for the text as it is; it raises PermissionDenied to block the call."""
_TEXTS = frozenset({"content", "text", "input", "instructions", "system", "prompt", "output", "arguments"})
_CONVERSATION = ("messages", "input", "instructions", "system", "prompt")
SECONDS = 30.0


async def moderated(body: Mapping[str, Any], moderation: Moderation) -> dict[str, Any]:
    """The request with its texts as the function wants them.

    Raises:
        UpstreamFailed: the function blocks it, or failed: what could not be looked at is not sent.
    """

    def changed() -> dict[str, Any]:
        return {
            name: _moderated(name, value, moderation) if name in _CONVERSATION else value
            for name, value in body.items()
        }

    try:
        return await asyncio.wait_for(asyncio.to_thread(changed), SECONDS)
    except PermissionDenied as denied:
        raise UpstreamFailed(
            Fault.AGENT, PermissionDenied.__name__, f"the prompt was blocked: {denied}", status=400
        ) from denied
    except Exception as error:
        raise UpstreamFailed(
            Fault.ENVIRONMENT,
            "moderation_failed",
            f"the prompt could not be moderated, and was not sent: {type(error).__name__}: {error}",
            status=503,
        ) from error


def _moderated(name: str, value: Json, moderation: Moderation) -> Json:
    if isinstance(value, str):
        if name not in _TEXTS or not value:
            return value
        masked = moderation(value)
        if masked is not None and not isinstance(masked, str):
            raise InputError(
                f"a moderation returned a {type(masked).__name__}; it must return a text or None"
            )
        return value if masked is None else masked
    if isinstance(value, list):
        return [_moderated(name, inner, moderation) for inner in value]
    if isinstance(value, dict):
        return {key: _moderated(key, inner, moderation) for key, inner in value.items()}
    return value


def endpoint_moderation(url: str, *, key: str | None = None, model: str | None = None) -> Moderation:
    """A function that asks an endpoint of the form of OpenAI's `/v1/moderations`, and blocks what it flags.

    Args:
        url: the endpoint, such as http://127.0.0.1:8001/v1/moderations.
    """
    import httpx2

    headers = {"authorization": f"Bearer {key}"} if key else {}

    def moderation(text: str) -> None:
        question: dict[str, Json] = {"input": text} | ({"model": model} if model else {})
        with httpx2.Client(timeout=SECONDS) as client:
            answer = client.post(url, json=question, headers=headers)
        if answer.status_code != 200:
            raise ModelError(f"{url} answered {answer.status_code}", status=answer.status_code)
        results = answer.json()["results"]
        flagged = [
            name
            for result in results
            if result["flagged"]
            for name, on in (result.get("categories") or {}).items()
            if on
        ]
        if any(result["flagged"] for result in results):
            raise PermissionDenied(
                f"the moderation endpoint flags it: {', '.join(flagged) or 'no category named'}"
            )

    return moderation
