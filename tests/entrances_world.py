"""Every entrance of the record, each with the same two runs: one that goes right and one that goes wrong.

The question is which of two cities is warmer.  The good run looks at both and says Paris; the bad one looks three
times at the same and says Oslo.  Afterwards a person gives the one a thumb up and the other a thumb down.
"""

from __future__ import annotations

import asyncio
import functools
import json
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import entrances_spans
import gateway_world
import msgspec
import processes
import server_world
from entrances_agent import (
    PLAN,
    PLANS,
    PROMPT,
    QUESTION,
    SESSION,
    SPENT,
    TASK,
    WEATHER,
    Holder,
    Plan,
    awaiting,
    call,
    generating,
    plain,
    tokens_of,
)
from server_world import TOKENS

import whet
from whet.cli import app
from whet.models.base import Completion, ModelRequest, ToolCall
from whet.models.fakes import ScriptedServer
from whet.record.env import StepResult, rollout
from whet.record.policy import Action
from whet.record.store import Store
from whet.record.tracing import flush
from whet.record.tracing.assemble import Assembler
from whet.serve import Role
from whet.serve.worker import LitAgent, Triplet
from whet.serve.worker.agent import attempt
from whet.serve.worker.client import QueueClient
from whet.serve.worker.run import Worker
from whet.types import Bundle, Step, Task, Trajectory, Usage


@dataclass(frozen=True)
class Runs:
    """What came of the two in the record."""

    good: Trajectory
    bad: Trajectory
    agent: Callable[..., Any]
    """A function that does again what was done, for a replay."""

    @property
    def both(self) -> list[Trajectory]:
        return [self.good, self.bad]


# -- traced code -----------------------------------------------------------------------------------


def traced(function: Callable[..., Any], *before: Any, path: Path) -> dict[str, str]:
    ids = {}
    decorated = whet.trace(str(path))(function)
    for plan in PLANS:
        token = PLAN.set(plan)
        with whet.run(session=f"{SESSION} {plan.name}") as run:
            call(decorated, *before, QUESTION)
        ids[plan.name] = run.id
        PLAN.reset(token)
    flush()
    return ids


# -- the gateway -----------------------------------------------------------------------------------


_sampled: list[Plan] = []


def scripted(request: ModelRequest) -> Completion:
    """The model of an agent of ours, which samples now one plan and now the other."""
    (plan,) = _sampled
    turn = sum(message["role"] == "tool" for message in request.messages)
    usage = Usage(prompt_tokens=10, output_tokens=2)
    if turn == len(plan.cities):
        return Completion(text=plan.answer, usage=usage, tokens=tokens_of(turn, plan))
    city = json.dumps({"city": plan.cities[turn]})
    wanted = ToolCall(name="weather", arguments=city, id=f"call_{turn}")
    return Completion(tool_calls=[wanted], usage=usage, tokens=tokens_of(turn, plan))


def chat(made: gateway_world.World, plan: Plan, stream: bool, headers: dict[str, str]) -> None:
    messages: list[Any] = [
        {"role": "system", "content": PROMPT},
        {"role": "user", "content": QUESTION},
    ]
    with made.openai(plan.name) as client:
        for _ in range(len(plan.cities) + 1):
            given: dict[str, Any] = {"model": "scripted", "messages": messages, "extra_headers": headers}
            if stream:
                with client.chat.completions.stream(**given) as events:
                    message = events.get_final_completion().choices[0].message
            else:
                message = client.chat.completions.create(**given).choices[0].message
            messages.append({key: value for key, value in message.to_dict().items() if key != "parsed"})
            for asked in message.tool_calls or ():
                city = json.loads(asked.function.arguments)["city"]
                messages.append({"role": "tool", "tool_call_id": asked.id, "content": WEATHER[city]})


def responses(made: gateway_world.World, plan: Plan, stream: bool, headers: dict[str, str]) -> None:
    items: list[Any] = [{"role": "user", "content": QUESTION}]
    with made.openai(plan.name) as client:
        for _ in range(len(plan.cities) + 1):
            given: dict[str, Any] = {"model": "scripted", "input": items, "extra_headers": headers}
            given["instructions"] = PROMPT
            if stream:
                with client.responses.stream(**given) as events:
                    response = events.get_final_response()
            else:
                response = client.responses.create(**given)
            for item in response.output:
                items.append(item.to_dict())
                if item.type == "function_call":
                    city = json.loads(item.arguments)["city"]
                    output = {"type": "function_call_output", "call_id": item.call_id}
                    items.append({**output, "output": WEATHER[city]})


def messages(made: gateway_world.World, plan: Plan, stream: bool, headers: dict[str, str]) -> None:
    said: list[Any] = [{"role": "user", "content": QUESTION}]
    with made.anthropic(plan.name) as client:
        for _ in range(len(plan.cities) + 1):
            given: dict[str, Any] = {"model": "scripted", "messages": said, "max_tokens": 99}
            given |= {"system": PROMPT, "extra_headers": headers}
            if stream:
                with client.messages.stream(**given) as events:
                    answer = events.get_final_message()
            else:
                answer = client.messages.create(**given)
            said.append({"role": "assistant", "content": [block.to_dict() for block in answer.content]})
            results = [
                {"type": "tool_result", "tool_use_id": block.id, "content": WEATHER[block.input["city"]]}
                for block in answer.content
                if block.type == "tool_use"
            ]
            if results:
                said.append({"role": "user", "content": results})


def through_gateway(drive: Callable[..., None], stream: bool, path: Path) -> dict[str, str]:
    with (
        ScriptedServer(scripted, speaks=("chat",)) as upstream,
        Store(path) as store,
        gateway_world.world(upstream, store=store, options={"tokens": True}) as made,
    ):
        for plan in PLANS:
            _sampled[:] = [plan]
            drive(made, plan, stream, {"x-whet-session": f"{SESSION} {plan.name}"})
            assert len(made.calls(plan.name)) == len(plan.cities) + 1
        Assembler(store).flush()
    return {plan.name: plan.name for plan in PLANS}


PROGRAM = """
import json, os, sys, urllib.request
import whet
from entrances_agent import PROMPT, QUESTION, SESSION, WEATHER, weather

@whet.trace
def agent(question):
    messages = [{"role": "system", "content": PROMPT}, {"role": "user", "content": question}]
    while True:
        body = json.dumps({"model": "scripted", "messages": messages}).encode()
        headers = {"content-type": "application/json", "authorization": "Bearer none"}
        url = os.environ["OPENAI_BASE_URL"] + "/chat/completions"
        with urllib.request.urlopen(urllib.request.Request(url, body, headers)) as answer:
            message = json.load(answer)["choices"][0]["message"]
        messages.append(message)
        if not message.get("tool_calls"):
            return message["content"]
        for asked in message["tool_calls"]:
            city = json.loads(asked["function"]["arguments"])["city"]
            messages.append({"role": "tool", "tool_call_id": asked["id"], "content": weather(city)})

for name in sys.argv[1:]:
    with whet.run(session=f"{SESSION} {name}") as run:
        agent(QUESTION)
    print(run.id)
"""
"""An agent that is traced, and that is run as a program of its own."""


def run_as_a_program(path: Path) -> dict[str, str]:
    """`whet run`: the gateway has the model's calls and `@trace` the tools, and the two are one trajectory."""
    program = path.with_suffix(".py")
    program.write_text(PROGRAM)
    plans = iter(PLANS)

    def model(request: ModelRequest) -> Completion:
        if request.messages[-1]["role"] == "user":
            _sampled[:] = [next(plans)]
        return scripted(request)

    names = [plan.name for plan in PLANS]
    with ScriptedServer(model, speaks=("chat",)) as upstream:
        words = ["run", "--store", str(path), "--upstream", upstream.base_url, "--tokens", "--"]
        here = str(Path(__file__).parent)
        done = processes.whet(*words, sys.executable, program, *names, PYTHONPATH=here)
    assert done.returncode == 0, done.stderr
    return dict(zip(names, done.stdout.split(), strict=True))


# -- spans -----------------------------------------------------------------------------------------


def exported(dialect: str, path: Path) -> dict[str, str]:
    with server_world.world(path) as here:
        for plan in PLANS:
            body = entrances_spans.run(dialect, plan, QUESTION, WEATHER, f"{SESSION} {plan.name}")
            headers = {**server_world.bearer(Role.WRITE), "content-type": "application/json"}
            done = here.http.post("/v1/traces", content=body, headers=headers)
            assert done.status_code == 200, done.text
    return {plan.name: entrances_spans.trace(plan).hex() for plan in PLANS}


# -- work and protocols ----------------------------------------------------------------------------


def planned(task: Task, plan: Plan) -> dict[str, Any]:
    """One rollout of the queue, whose task is the same for both."""
    return {"id": plan.name, "task": msgspec.to_builtins(task), "meta": {"seed": 0}}


def queued(here: server_world.World, plan: Plan) -> None:
    here.post("/api/rollouts", {"rollouts": [planned(TASK, plan)]})


def worked_off(agent: Any, path: Path) -> dict[str, str]:
    """`whet work` with an agent, one rollout after the other."""

    async def one(url: str) -> None:
        client = QueueClient(url, TOKENS[Role.WRITE])
        try:
            await Worker(attempt(agent), client, name="tester").run(asyncio.Event(), limit=1)
        finally:
            await client.close()

    with server_world.world(path) as here:
        for plan in PLANS:
            queued(here, plan)
            token = PLAN.set(plan)
            asyncio.run(one(here.url))
            PLAN.reset(token)
    return {plan.name: plan.name for plan in PLANS}


def triplets() -> list[Triplet]:
    plan = PLAN.get()
    turns = [Triplet(f"turn {number}", f"look at {city}") for number, city in enumerate(plan.cities)]
    return [*turns, Triplet("answer", plan.answer, float(plan.thumb > 0))]


class Lit(LitAgent):
    """An agent of the old interface."""

    def training_rollout(self, task: Any, rollout_id: str, resources: Mapping[str, Any]) -> Any:
        return triplets()


def legacy(path: Path) -> dict[str, str]:
    with server_world.world(path, open_legacy=True) as here:
        for plan in PLANS:
            queued(here, plan)
            work = here.http.get("/task").json()["task"]
            token = PLAN.set(plan)
            report = {
                "rollout_id": work["rollout_id"],
                "final_reward": float(plan.thumb > 0),
                "triplets": msgspec.to_builtins(triplets()),
            }
            PLAN.reset(token)
            assert here.http.post("/rollout", json=report).status_code == 200
    return {plan.name: plan.name for plan in PLANS}


# -- whole trajectories ----------------------------------------------------------------------------


def whole(plan: Plan) -> Trajectory:
    """A trajectory as somebody's own code writes it, with everything that one can have."""
    steps = []
    for turn, city in enumerate(plan.cities):
        model = Step(kind="llm", name="model", id=f"l{turn}", agent="meteo", usage=SPENT)
        steps.append(replace(model, tokens=tokens_of(turn, plan)))
        steps.append(
            Step(
                kind="tool",
                name="weather",
                id=f"t{turn}",
                agent="meteo",
                observation={"city": city},
                action=WEATHER[city],
                info={"tool_call_id": f"call_{turn}"},
            )
        )
    last = tokens_of(len(plan.cities), plan)
    steps.append(Step(kind="llm", name="model", id="last", agent="meteo", action=plan.answer, tokens=last))
    return Trajectory(
        task=TASK,
        id=plan.name,
        steps=steps,
        output=plan.answer,
        session=f"{SESSION} {plan.name}",
        seconds=1.0,
    )


def posted(path: Path) -> dict[str, str]:
    with server_world.world(path) as here:
        here.post("/api/trajectories", {"trajectories": [msgspec.to_builtins(whole(plan)) for plan in PLANS]})
    return {plan.name: plan.name for plan in PLANS}


def imported(lines: Callable[[Plan], Any], path: Path) -> dict[str, str]:
    known = path.with_name("tasks.jsonl")
    known.write_bytes(msgspec.json.encode(TASK) + b"\n")
    app(["tasks", "add", str(known), "--store", str(path), "--json"], result_action="return_value")
    file = path.with_suffix(".jsonl")
    file.write_bytes(b"".join(msgspec.json.encode(lines(plan)) + b"\n" for plan in PLANS))
    app(["import", str(file), "--store", str(path), "--json"], result_action="return_value")
    with Store(path) as store:
        runs = list(store.trajectories())
    return {plan.name: run.id for plan in PLANS for run in runs if run.output == plan.answer}


def published(plan: Plan) -> dict[str, Any]:
    """The published form, with calls of tools as actions."""
    steps: list[dict[str, Any]] = []
    seen = QUESTION
    for city in plan.cities:
        steps.append({"obs": seen, "action": {"name": "weather", "arguments": {"city": city}}, "reward": 0.0})
        seen = WEATHER[city]
    steps.append({"obs": seen, "action": plan.answer, "reward": float(plan.thumb > 0), "done": True})
    return {"task_id": TASK.id, "steps": steps}


# -- environments ----------------------------------------------------------------------------------


class Warmer:
    """An environment of one's own: actions are calls of tools, and at last the answer."""

    def reset(self, task: Task, seed: int) -> str:
        self._task = task
        return task.instruction

    def step(self, action: Any) -> StepResult:
        if isinstance(action, dict):
            return StepResult(WEATHER[action["arguments"]["city"]], 0.0)
        right = action == self._task.answer
        return StepResult(None, float(right), True, False, {"success": right})


class Classic:
    """The same with four values."""

    def reset(self) -> str:
        return QUESTION

    def step(self, action: Any) -> tuple[Any, float, bool, dict[str, Any]]:
        if isinstance(action, dict):
            return WEATHER[action["arguments"]["city"]], 0.0, False, {}
        return None, float("Paris" in action), True, {"correct": "Paris" in action}


class Acting:
    """A policy with a model of its own: it says which tokens it has sampled."""

    def __init__(self, plan: Plan) -> None:
        self._plan, self._turn = plan, -1

    async def act(self, observation: Any, /) -> Action:
        self._turn += 1
        plan, turn = self._plan, self._turn
        last = turn == len(plan.cities)
        value = plan.answer if last else {"name": "weather", "arguments": {"city": plan.cities[turn]}}
        return Action(value, tokens_of(turn, plan), SPENT)


def acted(env: Callable[[], Any], policy: Callable[[Plan], Any], path: Path) -> dict[str, str]:
    async def all_of_them() -> list[Trajectory]:
        made = []
        for plan in PLANS:
            token = PLAN.set(plan)
            made.append(await rollout(env(), policy(plan), TASK, seed=0, id=plan.name))
            PLAN.reset(token)
        return made

    with Store(path) as store:
        store.put(*asyncio.run(all_of_them()))
    return {plan.name: plan.name for plan in PLANS}


def called(path: Path) -> dict[str, str]:
    env = whet.calls(plain, record="live")
    return acted(env, lambda plan: env.policy(Bundle(), 0), path)


GROUPS: dict[str, dict[str, Callable[[Path], dict[str, str]]]] = {
    "Traced code": {
        "sync": lambda path: traced(plain, path=path),
        "async": lambda path: traced(awaiting, path=path),
        "generator": lambda path: traced(generating, path=path),
        "method": lambda path: traced(Holder.method, Holder(), path=path),
    },
    "Gateway": {
        f"{drive.__name__}{', streamed' * stream}": functools.partial(through_gateway, drive, stream)
        for drive in (chat, responses, messages)
        for stream in (False, True)
    },
    "A program": {"whet run, @trace": run_as_a_program},
    "OpenTelemetry": {dialect: functools.partial(exported, dialect) for dialect in entrances_spans.DIALECTS},
    "Work, protocols and files": {
        "whet work": functools.partial(worked_off, plain),
        "LitAgent": functools.partial(worked_off, Lit()),
        "POST /rollout (0.1)": legacy,
        "POST /api/trajectories": posted,
        "import, whet": lambda path: imported(whole, path),
        "import, published": lambda path: imported(published, path),
    },
    "Environments": {
        "Env": lambda path: acted(Warmer, Acting, path),
        "whet.calls": called,
        "Gymnasium": lambda path: acted(Classic, Acting, path),
    },
}
ENTRANCES = {name: entrance for group in GROUPS.values() for name, entrance in group.items()}


def enter(name: str, folder: Path) -> Runs:
    """Go in by an entrance, have a person say how each run was, and read back what is recorded."""
    path = folder / "runs.db"
    ids = ENTRANCES[name](path)
    with Store(path) as store:
        for plan in PLANS:
            whet.feedback(ids[plan.name], plan.thumb, store=store)
        flush()
        found = {plan.name: next(iter(store.trajectories(ids=[ids[plan.name]]))) for plan in PLANS}
    return Runs(found["good"], found["bad"], plain)
