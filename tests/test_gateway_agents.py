"""Agents and sub-agents through the gateway: what the wire tells of them, and what it does not."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest
from gateway_world import TOKEN, World, http, world

from whet.learn.training.credit import credit
from whet.models.base import Completion, ModelRequest, ToolCall
from whet.models.fakes import ScriptedServer
from whet.record.tracing.assemble import Assembler
from whet.types import Group, Score, Step, Tokens, Trajectory

LEAD, RESEARCH = "You lead a team.", "You research facts."
QUESTION, SUB = "How warm is Paris?", "temperature in Paris now"


def said(role: str, text: str | None, **more: Any) -> dict[str, Any]:
    return {"role": role, "content": text, **more}


def asked(tool: str, id: str = "c1", **arguments: Any) -> dict[str, Any]:
    function = {"name": tool, "arguments": json.dumps(arguments)}
    return said("assistant", None, tool_calls=[{"type": "function", "id": id, "function": function}])


def result(text: str, id: str = "c1") -> dict[str, Any]:
    return said("tool", text, tool_call_id=id)


class Wire:
    """What a framework sends, call by call, and the model's answer to each."""

    def __init__(self) -> None:
        self.answers: list[dict[str, Any]] = []
        self.made: World | None = None

    def answer(self, request: ModelRequest) -> Completion:
        message = self.answers.pop(0)
        calls = [
            ToolCall(name=one["function"]["name"], arguments=one["function"]["arguments"], id=one["id"])
            for one in message.get("tool_calls") or ()
        ]
        return Completion(text=message["content"] or "", tool_calls=calls)

    def call(
        self, *messages: dict[str, Any], answer: dict[str, Any], headers: Any = None, **body: Any
    ) -> None:
        assert self.made is not None
        self.answers.append(answer)
        done = http(
            "POST",
            f"{self.made.base()}/v1/chat/completions",
            json={"model": "scripted", "messages": list(messages), **body},
            headers={"authorization": f"Bearer {TOKEN}", **(headers or {})},
        )
        assert done.status_code == 200, done.text

    def recorded(self) -> Trajectory:
        """The one trajectory that the calls have become."""
        assert self.made is not None
        assert self.made.calls()
        Assembler(self.made.store).flush()
        (found,) = self.made.store.trajectories()
        return found


@contextmanager
def wired() -> Iterator[Wire]:
    wire = Wire()
    with ScriptedServer(wire.answer, speaks=("chat",)) as upstream, world(upstream) as made:
        wire.made = made
        yield wire


def told(trajectory: Trajectory) -> list[tuple[str, str, str | None]]:
    """Kind, agent, and the agent of the step around it."""
    agents = {step.id: step.agent for step in trajectory.steps}
    return [(step.kind, step.agent, agents.get(step.parent or "")) for step in trajectory.steps]


def team(wire: Wire, *, lead: str = "", sub: str = "", headers: Any = None) -> None:
    """A lead that asks a researcher by a tool, as `create_agent` inside a tool does it."""
    first = asked("research", question=SUB)
    search = asked("search", query="Paris")
    names = {"name": sub} if sub else {}
    begun = [said("system", LEAD), said("user", QUESTION)]
    wire.call(*begun, answer=first)
    inner = [said("system", RESEARCH), said("user", SUB)]
    wire.call(*inner, answer=search, headers=headers)
    inner += [{**search, **names}, result("found 22 degrees")]
    wire.call(*inner, answer=said("assistant", "It is 22 degrees."), headers=headers)
    named = {"name": lead} if lead else {}
    begun += [{**first, **named}, result("It is 22 degrees.")]
    wire.call(*begun, answer=said("assistant", "22 degrees, says my team."))


@pytest.mark.parametrize(
    ("names", "agent"),
    [
        ({}, "research"),
        ({"lead": "boss", "sub": "researcher"}, "researcher"),
        ({"headers": {"x-whet-agent": "by header"}}, "by header"),
        ({"headers": {"baggage": "a=b, gen_ai.agent.name=by%20baggage;p=1"}}, "by baggage"),
    ],
)
def test_a_sub_agent_is_a_step_around_its_calls_and_has_its_name(names: dict[str, Any], agent: str) -> None:
    with wired() as wire:
        team(wire, **names)
        found = wire.recorded()
    lead = names.get("lead", "")
    assert told(found) == [
        ("llm", lead, None),
        ("agent", agent, None),
        ("llm", agent, agent),
        ("tool", agent, agent),
        ("llm", agent, agent),
        ("llm", lead, None),
    ]
    inner = found.steps[1]
    assert (inner.observation, inner.action) == ({"question": SUB}, "It is 22 degrees.")
    assert inner.info["tool_call_id"] == "c1"
    assert found.output == "22 degrees, says my team."
    assert found.task.instruction == QUESTION
    assert found.usage.calls == 4


def test_a_tool_that_starts_sub_agents_by_type_names_them() -> None:
    with wired() as wire:
        first = asked("task", description=SUB, subagent_type="researcher")
        wire.call(said("system", LEAD), said("user", QUESTION), answer=first)
        wire.call(said("system", RESEARCH), said("user", SUB), answer=said("assistant", "22 degrees"))
        assert [step.agent for step in wire.recorded().steps] == ["", "researcher", "researcher"]


def test_agents_that_hand_over_stand_beside_each_other() -> None:
    with wired() as wire:
        over = asked("transfer_to_researcher")
        asking = said("user", QUESTION)
        wire.call(said("system", LEAD), asking, answer=over)
        shared = [asking, {**over, "name": "supervisor"}, result("Successfully transferred to researcher")]
        wire.call(said("system", RESEARCH), *shared, answer=said("assistant", "It is 22 degrees."))
        found = wire.recorded()
        assert told(found) == [
            ("llm", "supervisor", None),
            ("agent", "researcher", None),
            ("llm", "researcher", "researcher"),
        ]
        assert found.output == "It is 22 degrees.", "who was handed the question answers it"


def test_the_metadata_of_a_request_names_its_agent_and_prompts_tell_agents_apart_as_a_last_resort() -> None:
    with wired() as wire:
        answer = said("assistant", "a plan")
        named = {"metadata": {"agent_name": "planner"}, "store": True}
        wire.call(said("system", "Plan."), said("user", "one"), answer=answer, **named)
        wire.call(said("system", "You are a Writer. Write."), said("user", "two"), answer=answer)
        found = wire.recorded()
        assert [step.agent for step in found.steps] == ["planner", "Writer"]
        assert [step.info["agent_told_by"] for step in found.steps] == ["request", "system prompt"]


def test_one_agent_alone_gets_no_name_of_its_prompt_and_is_no_sub_agent_of_itself() -> None:
    with wired() as wire:
        first = asked("weather", city="Paris")
        begun = [said("system", "You are a kind assistant."), said("user", "Paris")]
        tools = [{"type": "function", "function": {"name": "weather", "parameters": {}}}]
        wire.call(*begun, answer=first, tools=tools)
        wire.call(*begun, first, result("22 degrees"), answer=said("assistant", "22 degrees"))
        assert told(wire.recorded()) == [("llm", "", None), ("tool", "", None), ("llm", "", None)]


def test_agents_that_merely_run_at_once_are_not_put_inside_each_other() -> None:
    with wired() as wire:
        first = asked("weather", city="Paris")
        wire.call(said("system", LEAD), said("user", QUESTION), answer=first)
        # While that tool runs, somebody else asks another agent about the same city.
        wire.call(
            said("system", RESEARCH), said("user", "Who rules Paris?"), answer=said("assistant", "Anne.")
        )
        last = [said("system", LEAD), said("user", QUESTION), first, result("22 degrees")]
        wire.call(*last, answer=said("assistant", "22 degrees."))
        found = wire.recorded()
        assert {step.parent for step in found.steps} == {None}
        assert [step.kind for step in found.steps] == ["llm", "tool", "llm", "llm"]


def test_two_sub_agents_at_once_are_told_apart_by_their_questions() -> None:
    with wired() as wire:
        both = said("assistant", None)
        both["tool_calls"] = [
            *asked("research", "c1", question="the north of France")["tool_calls"],
            *asked("research", "c2", question="the south of France")["tool_calls"],
        ]
        wire.call(said("system", LEAD), said("user", QUESTION), answer=both)
        for where in ("south", "north"):
            question = said("user", f"the {where} of France")
            wire.call(said("system", RESEARCH), question, answer=said("assistant", f"{where} is warm"))
        agents = [step for step in wire.recorded().steps if step.kind == "agent"]
        assert [(one.info["tool_call_id"], one.action) for one in agents] == [
            ("c2", "south is warm"),
            ("c1", "north is warm"),
        ]


def with_tokens(step: Step, token: int) -> Step:
    if step.kind != "llm":
        return step
    return replace(step, tokens=Tokens((1, token), (5 + token,), (-0.5,), None, "0"))


def test_credit_by_agent_reaches_the_sub_agents_of_what_the_gateway_recorded() -> None:
    with wired() as wire:
        team(wire, lead="boss", sub="researcher")
        whole = wire.recorded()
    # The same team, which in its second run answers without its researcher.
    runs = [whole, replace(whole, id="alone", steps=[whole.steps[0], whole.steps[-1]])]
    runs.append(replace(whole, id="again"))
    judged = [
        replace(run, steps=[with_tokens(step, place) for place, step in enumerate(run.steps)]).scored(
            Score("good", value)
        )
        for run, value in zip(runs, (1.0, 0.0, 0.5), strict=True)
    ]
    found = credit([Group(whole.task, judged)], score="good", assignment="agent")
    advantages = {
        judged[sequence.unit].steps[call].agent: advantage
        for sequence in found.sequences
        if sequence.unit == 0
        for call, advantage in zip(sequence.calls, sequence.advantages, strict=True)
    }
    # The boss acted in all three runs (mean 0.5), the researcher in two of them (mean 0.75).
    assert advantages == pytest.approx({"boss": 0.5, "researcher": 0.25})
