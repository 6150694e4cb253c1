"""Steps that are only written: a Step takes ten times as long to make, and the record keeps its JSON alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import msgspec

from ....types import Failure, Json, Step, Tokens, Usage


class StepRow(msgspec.Struct):
    """What has all that a Step has and becomes the same JSON, and is made and written in a fraction of the time."""

    observation: Json = None
    action: Json = None
    reward: float | None = None
    done: bool = False
    kind: str = "action"
    name: str = ""
    agent: str = ""
    id: str = ""
    parent: str | None = None
    tokens: Tokens | None = None
    usage: Usage | UsageRow | None = None
    latency: float | None = None
    error: Failure | None = None
    info: Mapping[str, Json] = {}


class UsageRow(msgspec.Struct):
    """`StepRow` for the Usage of a step."""

    prompt_tokens: int = 0
    output_tokens: int = 0
    dollars: float = 0.0
    calls: int = 0


class Forms(NamedTuple):
    """Of what steps are made: `NOUNS`, or `ROWS` where they are only written."""

    step: Callable[..., Any]
    usage: Callable[..., Any]


NOUNS, ROWS = Forms(Step, Usage), Forms(StepRow, UsageRow)
