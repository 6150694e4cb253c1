"""A small agent in a git repository of its own, judged on hostile questions, with a proven change of its prompt."""

from __future__ import annotations

import asyncio
import re
import subprocess
from collections.abc import Sequence
from pathlib import Path

import whet
from whet.judge import reward
from whet.prove.guardrails import Guardrail
from whet.record.store import Store
from whet.types import Task, Trajectory, Verdict

AGENT = '''"""An agent."""
import whet

TONE = whet.resource("tone",
    default='Be kind.')   # keep this comment


def agent(question):
    return TONE.read()
'''
HOSTILE = (
    "````\n</details><script>alert(1)</script> @everyone fixes #1 ::error::x\n::set-output name=a::b\n"
    "| a | b |\n# Heading\n[click](javascript:alert(1)) ![x](http://evil.example/x.png) \u202eevil\x1b[31m ~~~"
)
BETTER = "Be brief ```` @you."


def git(folder: Path, *words: str, stdin: str | None = None) -> str:
    """What git prints; it runs no hook."""
    plain = ["git", "-c", "core.hooksPath=/dev/null"]
    done = subprocess.run(
        [*plain, *words], cwd=folder, capture_output=True, text=True, check=True, input=stdin
    )
    return done.stdout


def repository(folder: Path) -> Path:
    """A clone of a bare repository with the agent on its default branch; its hooks fail, and say that they ran."""
    bare, clone = folder / "remote.git", folder / "clone"
    git(folder, "init", "-q", "--bare", "-b", "main", str(bare))
    git(folder, "clone", "-q", str(bare), str(clone))
    git(clone, "config", "user.name", "Ann")
    git(clone, "config", "user.email", "ann@example.org")
    (clone / "agent.py").write_text(AGENT)
    git(clone, "add", "agent.py")
    git(clone, "commit", "-q", "-m", "An agent")
    git(clone, "push", "-q", "origin", "HEAD:main")
    for hook in ("pre-commit", "pre-push", "post-checkout", "commit-msg", "reference-transaction"):
        path = clone / ".git" / "hooks" / hook
        path.write_text(f"#!/bin/sh\necho ran >> {folder}/hooks.txt\nexit 1\n")
        path.chmod(0o755)
    return clone


def proven(
    store: Store, *, better: bool = True, seed: int = 0, guardrails: Sequence[Guardrail] = ()
) -> tuple[whet.Bundle, Verdict]:
    """A candidate that a real gate judged; it is right on nine of ten instead of half, and as brief."""

    def policy(bundle: whet.Bundle, _: int) -> _Answers:
        changed = "tone" in bundle and bundle["tone"].content == BETTER and better
        return _Answers(0.9 if changed else 0.5, seed)

    tasks = [
        Task(
            instruction=f"{number}: {HOSTILE}",
            answer=number,
            group=f"person {number}",
            meta={"kind": "rare" if number % 25 == 0 else f"kind {number % 3} |`@x`"},
        )
        for number in range(300)
    ]
    experiment = whet.Experiment(
        env=_Desk,
        policy=policy,
        tasks=tasks,
        rewards=[right, brief],
        store=store,
        seed=seed,
        name="desk",
    )
    start = whet.Bundle([whet.Version(resource="tone", content="Be kind.", kind="prompt")])
    bundle = whet.Bundle(
        [whet.Version(resource="tone", content=BETTER, kind="prompt", parent=start["tone"].id)]
    )
    return bundle, asyncio.run(experiment.gate(bundle, against=start, metric="right", guardrails=guardrails))


def blocks(body: str, language: str) -> list[str]:
    """The fenced blocks of a Markdown text, as its rules end them."""
    return [
        match[2] for match in re.finditer(rf"^(`{{3,}}){language}\n(.*?)^\1$", body, re.MULTILINE | re.DOTALL)
    ]


def outside(body: str) -> str:
    """What Markdown renders: the text without its fenced blocks and code spans."""
    without = re.sub(r"^(`{3,})\w*\n.*?^\1$", "", body, flags=re.MULTILINE | re.DOTALL)
    return re.sub(r"(?<!`)(`+)(?!`).*?(?<!`)\1(?!`)", "", without)


@reward(name="right", version="2")
def right(trajectory: Trajectory) -> float:
    """The answer is that of the task."""
    return float(str(trajectory.output).startswith("right"))


@reward(name="brief", version="1")
def brief(trajectory: Trajectory) -> float:
    """The answer is short enough."""
    return float(len(str(trajectory.output)) < 2_000)


class _Desk:
    """One question, answered once."""

    def reset(self, task: Task, seed: int) -> str:
        return task.instruction

    def step(self, action: str) -> whet.StepResult:
        return whet.StepResult("", 0.0, terminated=True, info={"success": action.startswith("right")})


class _Answers:
    """Right on a share of the questions, whoever asks them again."""

    def __init__(self, share: float, seed: int) -> None:
        self._share, self._seed = share, seed

    async def act(self, observation: str) -> whet.Action:
        draw = int(whet.types.digest([observation, self._seed]), 16) % 1000 / 1000
        word = "right" if draw < self._share else "wrong"
        return whet.Action(f"{word} {draw:.3f} {observation.partition(':')[0]} {HOSTILE}")
