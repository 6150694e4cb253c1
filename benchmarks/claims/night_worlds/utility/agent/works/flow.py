"""The course of a case: the steps of its plan, one after another."""

from __future__ import annotations

import csv
import json
import tomllib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import date
from typing import Any

from works import memory, prompting, tools, upstream
from works.settings import ROOT, SETTINGS


@dataclass
class Case:
    """One message of a customer on its way through the desk."""

    question: str
    customer: str
    topic: str
    language: str
    notes: list[str] = field(default_factory=list)
    messages: list[dict[str, Any]] = field(default_factory=list)
    reply: str = ""


@dataclass(frozen=True)
class Plan:
    """The steps of a topic, the tools that the model is offered, and what is done to their results."""

    do: list[str]
    tools: list[str] = field(default_factory=list)
    finish: list[str] = field(default_factory=list)


with (ROOT / "plans.toml").open("rb") as _file:
    PLANS = {topic: Plan(**each) for topic, each in tomllib.load(_file).items()}
with (ROOT / "weekdays.csv").open(encoding="utf-8", newline="") as _table:
    WEEKDAYS = {row["en"]: row for row in csv.DictReader(_table)}

Step = Callable[[Case, Plan], Awaitable[None]]
STEPS: dict[str, Step] = {}
FINISHERS: dict[str, Callable[[dict[str, Any], Case], dict[str, Any]]] = {}


def step(run: Step) -> Step:
    STEPS[run.__name__] = run
    return run


def finisher(run: Any) -> Any:
    FINISHERS[run.__name__] = run
    return run


@step
async def recall(case: Case, plan: Plan) -> None:
    """Take what is noted about the customer."""
    case.notes = memory.recalled(case.customer)


@step
async def brief(case: Case, plan: Plan) -> None:
    """Begin the conversation with the model."""
    prompt = prompting.system(case.topic, case.language, case.notes)
    case.messages = [
        {"role": "system", "content": prompt},
        *prompting.shots(case.topic),
        {"role": "user", "content": case.question},
    ]


@step
async def gather(case: Case, plan: Plan) -> None:
    """Let the model use the tools, until it replies or its rounds are over."""
    offered = [tools.TOOLS[name].schema for name in plan.tools]
    for _ in range(SETTINGS.desk.rounds):
        message = await upstream.complete(_body(case, tools=offered))
        if not message.get("tool_calls"):
            case.reply = message.get("content") or ""
            return
        case.messages.append(message)
        for wanted in message["tool_calls"]:
            function = wanted["function"]
            result = await tools.call(function["name"], json.loads(function["arguments"]))
            for name in plan.finish:
                result = FINISHERS[name](result, case)
            content = json.dumps(result, ensure_ascii=False)
            case.messages.append({"role": "tool", "tool_call_id": wanted["id"], "content": content})


@step
async def tell(case: Case, plan: Plan) -> None:
    """Have the reply written, unless it is there."""
    if not case.reply:
        case.reply = (await upstream.complete(_body(case))).get("content") or ""


def _body(case: Case, **more: Any) -> dict[str, Any]:
    model = SETTINGS.model
    return {
        "model": model.name,
        "messages": list(case.messages),
        "temperature": model.temperature,
        "max_tokens": model.reply_words,
        **more,
    }


@finisher
def round_to_coin(result: dict[str, Any], case: Case) -> dict[str, Any]:
    """Francs, rounded to the smallest coin."""
    coin = SETTINGS.rules.smallest_coin
    return {
        name: round(round(value / coin) * coin, 2) if name == "francs" else value
        for name, value in result.items()
    }


@finisher
def local_date(result: dict[str, Any], case: Case) -> dict[str, Any]:
    """Days as people here write them."""
    return {
        name: f"{date.fromisoformat(value):%d.%m.%Y}" if name in ("due", "notice_by") else value
        for name, value in result.items()
    }


@finisher
def localise(result: dict[str, Any], case: Case) -> dict[str, Any]:
    """Weekdays in the customer's language."""
    return {
        name: WEEKDAYS[value][case.language] if name == "weekday" else value for name, value in result.items()
    }
