"""The agent of `entrances_world`: one question, two plans, and tools of every kind of function."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Iterator, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import whet
from whet.types import Task, Tokens, Usage

PROMPT = "Be brief."
QUESTION = "Is it warmer in Paris or in Oslo?"
WEATHER = {"Paris": "22 degrees", "Oslo": "9 degrees"}
SESSION = "a conversation"
FIRST = 20
SPENT = Usage(prompt_tokens=10, output_tokens=2, dollars=0.001, calls=1)


@dataclass(frozen=True)
class Plan:
    """What a run does: the cities that it looks at, and what it answers."""

    name: str
    cities: Sequence[str]
    answer: str
    thumb: float


PLANS = (
    Plan("good", ("Paris", "Oslo"), '{"city": "Paris", "degrees": 22}', 1.0),
    Plan("bad", ("Paris",) * 3, '{"city": "Oslo", "degrees": 9}', -1.0),
)
NEEDED = [{"name": "weather", "arguments": {"city": city}} for city in WEATHER]
ASKED = {
    "required_calls": NEEDED,
    "subgoals": [
        {"call": "weather", "arguments": {"city": "Paris"}},
        {"call": "weather", "arguments": {"city": "Oslo"}, "after": [0]},
    ],
    "intent": [{"name": "weather", "arguments": {"city": {"one_of": ["Oslo"]}}}],
    "forbidden_calls": ["shoot"],
    "format": {"includes": ["Paris"], "max_words": 9},
    "schema": {"type": "object", "properties": {"city": {"const": "Paris"}}, "required": ["city", "degrees"]},
}
TASK = Task(id="warmer", instruction=QUESTION, answer=PLANS[0].answer, meta=ASKED)
PLAN: ContextVar[Plan] = ContextVar("plan", default=PLANS[0])
"""Which of them the agent of this context follows: the two are asked the same question."""


def tokens_of(turn: int, plan: Plan) -> Tokens:
    """As a policy would sample them: each prompt goes on from what was read and written before."""
    prompt: list[int] = []
    for number in range(turn + 1):
        output = [FIRST + number, FIRST + 10 + len(plan.cities)]
        prompt += [1, 2 + number]
        if number < turn:
            prompt += output
    return Tokens(tuple(prompt), tuple(output), (-0.5, -0.25), None, "0")


@whet.step(kind="tool", effect="read")
def weather(city: str) -> str:
    """Weather of a city."""
    return WEATHER[city]


def think(turn: int, what: str) -> None:
    """A model call of a program that notes its tokens itself."""
    with whet.step("model", kind="llm", observation=f"turn {turn}") as now:
        now.action, now.tokens = what, tokens_of(turn, PLAN.get())
        now.usage = SPENT


@whet.step("weather", kind="tool", effect="read")
async def weather_soon(city: str) -> str:
    await asyncio.sleep(0)
    return WEATHER[city]


@whet.step("weather", kind="tool", effect="read")
def weather_piecewise(city: str) -> Iterator[str]:
    yield from WEATHER[city].split(" ", 1)


def plain(question: str) -> str:
    """The plan of this context, tool by tool."""
    plan = PLAN.get()
    for turn, city in enumerate(plan.cities):
        think(turn, f"look at {city}")
        weather(city)
    think(len(plan.cities), plan.answer)
    return plan.answer


async def awaiting(question: str) -> str:
    plan = PLAN.get()
    for turn, city in enumerate(plan.cities):
        think(turn, f"look at {city}")
        await weather_soon(city)
    think(len(plan.cities), plan.answer)
    return plan.answer


def generating(question: str) -> Iterator[str]:
    plan = PLAN.get()
    for turn, city in enumerate(plan.cities):
        think(turn, f"look at {city}")
        list(weather_piecewise(city))
    think(len(plan.cities), plan.answer)
    middle = len(plan.answer) // 2
    yield plan.answer[:middle]
    yield plan.answer[middle:]


class Holder:
    """An agent whose tool is a method, too."""

    @whet.step("weather", kind="tool", effect="read")
    def look(self, city: str) -> str:
        return WEATHER[city]

    def method(self, question: str) -> str:
        plan = PLAN.get()
        for turn, city in enumerate(plan.cities):
            think(turn, f"look at {city}")
            self.look(city)
        think(len(plan.cities), plan.answer)
        return plan.answer


def call(function: Callable[..., Any], *arguments: Any) -> None:
    """Run it to its end, whatever kind of function it is."""
    made = function(*arguments)
    if inspect.iscoroutine(made):
        asyncio.run(made)
    elif hasattr(made, "__next__"):
        list(made)
