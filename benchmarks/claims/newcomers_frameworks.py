"""Trial of the thumbs through LangGraph, CrewAI and smolagents: the same support agent, with no marker in it.

Each framework writes something of its own around the agent's prompt; the scripted model looks through that, as a model
would, and answers by the prompt and the question alone.  `scripts/test-integrations` runs it in each framework's own
environment, and so does `scripts/claims newcomers --trials frameworks`.
"""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable, Sequence
from itertools import product
from pathlib import Path

from newcomers_shell import REPOSITORY, Noted
from newcomers_thumbs import WORLD, Newcomer, Trial, World, improve_rated, lines_of
from page import percent

from whet.models.base import Completion, ModelRequest, ToolCall, text_of
from whet.models.fakes import ScriptedServer

FRAMEWORKS = ("langgraph", "crewai", "smolagents")
_AROUND = {
    "langgraph": (r"(.*)", r"(.*)"),
    "crewai": (
        r"You are support clerk\. (.*)\nYour personal goal is",
        r"Current Task: (.*?)\n\nThis is the expected",
    ),
    "smolagents": (
        r"Returns an output of type: any\n(.*?)\n\nHere are the rules you should",
        r"New task:\n(.*)",
    ),
}
"""Framework → where the agent's prompt and the question stand in what it sends."""


def looked_through(framework: str, request: ModelRequest) -> ModelRequest:
    """The prompt and the question, without what the framework writes around them."""
    prompt, question = _AROUND[framework]
    texts = []
    for role, pattern in (("system", prompt), ("user", question)):
        text = "\n".join(text_of(message) for message in request.messages if message["role"] == role)
        match = re.search(pattern, text, re.DOTALL)
        assert match is not None, f"{framework} sends something else now: {text[-2_000:]}"
        texts.append({"role": role, "content": match[1].strip()})
    return ModelRequest.of(texts, {})


def answers(
    framework: str, answer: Callable[[ModelRequest], str]
) -> Callable[[ModelRequest], str | Completion]:
    """The scripted model as the framework talks to it."""

    def said(request: ModelRequest) -> str | Completion:
        text = answer(looked_through(framework, request))
        if framework != "smolagents":
            return text
        call = ToolCall(name="final_answer", arguments=json.dumps({"answer": text}), id="call_1")
        return Completion(tool_calls=[call])

    return said


def try_framework(
    framework: str,
    python: Path,
    folder: Path,
    seed: int,
    *,
    shuffled: bool = False,
    options: Sequence[str] = (),
) -> tuple[Trial, dict[str, bool]]:
    """Record, rate, improve, release; run under what is live, and after the rollback.

    Args:
        python: of an environment with the framework and whet.
        shuffled: each thumb stands on somebody else's answer.
        options: of `whet improve`; by its own it searches as long as without a framework.
    """
    world = World.read(WORLD, agent=f"agent_{framework}")
    newcomer = Newcomer(world, folder, seed, python)
    with (
        ScriptedServer(
            answers(framework, lambda request: str(world.model.answer(request, seed))),
            models=("desk-small", "gpt-4o-mini"),
        ) as agent,
        ScriptedServer(
            lambda request: str(world.model.advise(request, seed)), models=("adviser",)
        ) as adviser,
    ):
        trial = improve_rated(newcomer, agent, adviser, shuffled=shuffled, options=options)
    source = (folder / "desk.py").read_text(encoding="utf-8")
    unmarked = "whet.resource" not in source and "whet.evolve" not in source
    return trial, {**lines_of(trial, refused=shuffled), "the source has no marker": unmarked}


def environment(framework: str, folder: Path) -> Path:
    """That of scripts/test-integrations if it is there, else a fresh one with the same requirements."""
    there = REPOSITORY / ".integrations" / framework / "bin" / "python"
    if there.exists():
        return there
    place = folder / f"{framework}-environment"
    requirements = REPOSITORY / "integrations" / framework / "requirements.txt"
    subprocess.run(["python3", "-m", "venv", str(place)], check=True)
    python = place / "bin" / "python"
    subprocess.run([python, "-m", "pip", "install", "-q", "-r", requirements], check=True, cwd=REPOSITORY)
    return python


def frameworks(folder: Path, python: Path | None, seeds: Sequence[int]) -> list[Noted]:
    """One seed of each framework, and with its thumbs shuffled: each takes some 1,000 calls of a whole framework."""
    folder.mkdir(parents=True, exist_ok=True)
    noted = []
    for framework, shuffled in product(FRAMEWORKS, (False, True)):
        own = environment(framework, folder)
        how = ", shuffled" * shuffled
        place = folder / f"{framework}{'-shuffled' * shuffled}"
        trial, lines = try_framework(framework, own, place, seeds[0], shuffled=shuffled)
        one = Noted(f"{framework}{how}, seed {seeds[0]}", lines=lines, said=trial.said)
        one.figures = {
            "verdict": "promoted" if trial.promoted else "refused" if trial.reason else "not promoted",
            "down %": percent(trial.thumbs_down),
            "truth before %": percent(trial.before),
            "after %": percent(trial.after) if trial.promoted else "–",
            "agent calls": str(trial.agent_calls),
            "model calls": str(trial.model_calls),
            "commands": str(trial.commands),
            "minutes": f"{trial.minutes:.1f}",
        }
        noted.append(one)
    return noted
