"""The scripted model behind the results: a clerk who adds, and gets more sums right when told to check them.

Right are about 4 of 10 sums under most system prompts, and 9 of 10 under one that says `check`. Which ones depends
on the prompt's words, as with a real model, so that two prompts of equal worth still differ on single tasks.
"""

from __future__ import annotations

import hashlib
import json
import re
from typing import Any

from whet.models.base import Completion, ModelRequest
from whet.types import Usage

PLAIN, CAREFUL, REWORDED = "Add the numbers.", "Add the numbers and check the sum.", "Please add the numbers."
"""The baseline's prompt, one that is better, and one that is only worded otherwise: the null control."""
_SUM = re.compile(r"What is (\d+) \+ (\d+)\?")


def clerk(request: ModelRequest) -> Completion:
    """The model's answer to the last sum that it was asked."""
    prompt = " ".join(
        _text(turn["content"]) for turn in request.messages if turn["role"] in ("system", "developer")
    )
    spoken = " ".join(_text(turn.get("content")) for turn in request.messages)
    left, right = map(int, _SUM.findall(spoken)[-1])
    answer = str(left + right if _knows(prompt, left, right) else left + right + 1)
    if "[[ ## answer ## ]]" in spoken:  # as DSPy asks for it
        answer = f"[[ ## answer ## ]]\n{answer}\n\n[[ ## completed ## ]]"
    return Completion(text=answer, usage=Usage(prompt_tokens=20, output_tokens=3), finish="stop")


def _knows(prompt: str, left: int, right: int) -> bool:
    share = 0.9 if "check" in prompt else 0.4
    digest = hashlib.sha256(f"{prompt}|{left}+{right}".encode()).digest()
    return int.from_bytes(digest[:4], "big") / 2**32 < share


def _text(content: Any) -> str:
    if isinstance(content, str):
        return content
    return " ".join(
        part.get("text", "") for part in json.loads(json.dumps(content or [])) if isinstance(part, dict)
    )
