"""From an agent that people rate with thumbs to a proven prompt that is live, as a newcomer types it; and a control.

What a world is made of, newcomers_world/README.md says.  Only commands are run on the agent, which sees neither the
truth nor the people.
"""

from __future__ import annotations

import importlib
import json
import os
import random
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from types import ModuleType
from typing import Any

from newcomers_shell import Shell
from page import percent, publish, table

from whet.models.base import Completion, ModelRequest
from whet.models.fakes import ScriptedServer
from whet.record.store import Store
from whet.types import Feedback

WORLD = Path(__file__).with_name("newcomers_world")
FORMAT = WORLD / "README.md"
LIFT, AGENT_CALLS, COMMANDS = 0.3, 400, 8
"""What has to be reached: points of the truth, calls of the agent by `whet improve`, commands in all."""
FEW = 0.02
"""Share of the answers with a thumb that must be said to be too few."""
STORE = ".whet/whet.db"
"""Where `whet init` has the agent record."""
_ELSEWHERE = 1_000
"""Added to the seed for questions of people whom nothing has seen."""
_SERVICE = """import asyncio, inspect, json, sys
from contextvars import copy_context
import whet
from MODULE import FUNCTION

with asyncio.Runner() as loop:
    for line in open(sys.argv[1], encoding="utf-8"):
        asked = json.loads(line)
        with whet.run(subject=asked["person"]) as run:
            said = FUNCTION(asked["question"])
            said = loop.run(said, context=copy_context()) if inspect.iscoroutine(said) else said
        print(json.dumps({"run": run.id, **asked, "answer": said}), flush=True)
"""


@dataclass(frozen=True)
class World:
    """The modules of a world, imported from its folder."""

    folder: Path
    entry: str
    requires: Sequence[str]
    agent: Path
    model: ModuleType
    people: ModuleType
    truth: ModuleType
    models: Sequence[str] = ("desk-small",)
    """Names by which the agent may ask its model."""

    @classmethod
    def read(cls, folder: Path, *, agent: str = "agent") -> World:
        """Raises:
        RuntimeError: the folder is no world; says what it lacks.
        """
        needed = {agent: (), "world.json": (), "model.py": ("answer", "advise")}
        needed |= {"people.py": ("questions", "thumb"), "truth.py": ("right",)}
        lacking = [name for name in needed if not (folder / name).exists()]
        about = {} if lacking else json.loads((folder / "world.json").read_text(encoding="utf-8"))
        sys.path.insert(0, str(folder))
        parts = {} if lacking else {n: importlib.import_module(n) for n in ("truth", "model", "people")}
        lacking += [
            f"{n}.py: {each}" for n in parts for each in needed[f"{n}.py"] if not hasattr(parts[n], each)
        ]
        if about and not re.fullmatch(r"[\w.]+:\w+", str(about.get("entry"))):
            lacking.append("world.json: entry, as module:function")
        if lacking:
            raise RuntimeError(
                f"{folder} is no world, for it lacks {', '.join(lacking)}; {FORMAT} says what one has"
            )
        requires, models = tuple(about.get("requires", ())), tuple(about.get("models", cls.models))
        return cls(folder, about["entry"], requires, folder / agent, models=models, **parts)

    def check(self) -> None:
        """Raises:
        RuntimeError: what the agent imports is not installed here.
        """
        for need in self.requires:
            try:
                metadata.version(re.split(r"[<>=!~\[ ]", need)[0])
            except metadata.PackageNotFoundError:
                raise RuntimeError(f"the agent of {self.folder} needs {need}: pip install '{need}'") from None


@dataclass
class Trial:
    """One newcomer's way."""

    promoted: bool = False
    before: float = 0.0
    """Share of right answers to questions of people whom nothing has seen, after the rollback."""
    after: float = 0.0
    """The same of what was released."""
    thumbs_down: float = 0.0
    agent_calls: int = 0
    model_calls: int = 0
    commands: int = 0
    minutes: float = 0.0
    said: str = ""
    reason: str = ""
    missed: list[str] = field(default_factory=list)


class Newcomer:
    """A folder with the agent, and the commands that are typed in it."""

    def __init__(self, world: World, folder: Path, seed: int, python: Path | None) -> None:
        self.world, self.folder, self.seed = world, folder, seed
        self.trial = Trial()
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(world.agent, folder)
        subprocess.run(["git", "init", "-q"], cwd=folder, check=True)
        self.shell = Shell(folder, python)

    def typed(self, *words: str, base_url: str, ok: Sequence[int] = (0,)) -> str:
        """One command, whose output comes back.

        Raises:
            RuntimeError: it ends with another code.
        """
        # The SDK of Anthropic writes the version itself.
        addresses = {"OPENAI_BASE_URL": base_url, "ANTHROPIC_BASE_URL": base_url.removesuffix("/v1")}
        paths = [path for path in (*self.sources, os.environ.get("PYTHONPATH")) if path]
        variables = {**addresses, "ANTHROPIC_API_KEY": "none", "PYTHONPATH": os.pathsep.join(paths)}
        done = self.shell.type(*words, variables=variables)
        if done.returncode not in ok or "Traceback" in done.stderr:
            raise RuntimeError(f"{' '.join(words)} ended with {done.returncode}: {done.stderr[-2000:]}")
        return done.stdout

    @property
    def sources(self) -> list[str]:
        """The folder of a package that lies in `src`, as its owner names it to Python."""
        return [str(self.folder / "src")] if (self.folder / "src").is_dir() else []

    @property
    def module(self) -> str:
        """The file of the entry, from the newcomer's folder.

        Raises:
            RuntimeError: there is none.
        """
        inside = f"{self.world.entry.partition(':')[0].replace('.', '/')}.py"
        module = next((name for name in (inside, f"src/{inside}") if (self.folder / name).is_file()), None)
        if module is None:
            raise RuntimeError(
                f"{self.world.folder}: entry is {self.world.entry}, and agent/{inside} is not there"
            )
        return module

    def wire(self, base_url: str) -> None:
        """Record the agent's function, and call it from a program that knows who asks."""
        self.typed("whet", "init", base_url=base_url)
        self.typed("git", "apply", ".whet/wiring.patch", base_url=base_url)
        module, _, function = self.world.entry.partition(":")
        service = _SERVICE.replace("MODULE", module).replace("FUNCTION", function)
        (self.folder / "service.py").write_text(service, encoding="utf-8")

    def serve(self, name: str, seed: int, base_url: str) -> list[dict[str, Any]]:
        """The agent answers the questions of a seed, recorded; each with its run."""
        lines = [json.dumps(asked) for asked in self.world.people.questions(seed)]
        (self.folder / name).write_text("\n".join(lines) + "\n", encoding="utf-8")
        words = ("whet", "run", "--store", STORE, "--", self.shell.python, "service.py", name)
        return [json.loads(line) for line in self.typed(*words, base_url=base_url).splitlines()]

    def rate(self, answered: Sequence[dict[str, Any]], *, shuffled: bool, share: float = 1.0) -> None:
        """People's thumbs on this share of the answers; shuffled, each stands on somebody else's answer."""
        thumb = self.world.people.thumb
        values = [thumb(self.seed, row["person"], row["question"], row["answer"]) for row in answered]
        self.trial.thumbs_down = sum(value < 0 for value in values) / max(1, sum(map(bool, values)))
        if shuffled:
            random.Random(self.seed).shuffle(values)
        notes = [
            Feedback(run=row["run"], value=float(value))
            for row, value in zip(answered, values, strict=True)
            if value
        ]
        with Store(self.folder / STORE) as store:
            store.add_feedback(*random.Random(self.seed).sample(notes, round(share * len(notes))))

    def right(self, answered: Sequence[dict[str, Any]]) -> float:
        """The share that is right, which only the test knows."""
        return sum(self.world.truth.right(row["question"], row["answer"]) for row in answered) / len(answered)


def try_once(
    world: World,
    folder: Path,
    seed: int,
    *,
    shuffled: bool = False,
    share: float = 1.0,
    python: Path | None = None,
) -> Trial:
    """Record, rate, improve and release; then see the truth of what is live, and roll back.

    Args:
        shuffled: each thumb stands on somebody else's answer.
        share: of the answers that get a thumb.
    """
    newcomer = Newcomer(world, folder, seed, python)

    def answer(request: ModelRequest) -> str | Completion:
        said: str | Completion = world.model.answer(request, seed)
        return said

    def advise(request: ModelRequest) -> str:
        return str(world.model.advise(request, seed))

    with (
        ScriptedServer(answer, models=world.models) as agent,
        ScriptedServer(advise, models=("adviser",)) as adviser,
    ):
        trial = improve_rated(newcomer, agent, adviser, shuffled=shuffled, share=share)
    lines = lines_of(trial, refused=shuffled or share < 1)
    trial.missed = [name for name, reached in lines.items() if not reached]
    return trial


def improve_rated(
    newcomer: Newcomer,
    agent: ScriptedServer,
    adviser: ScriptedServer,
    *,
    shuffled: bool = False,
    share: float = 1.0,
    options: Sequence[str] = (),
) -> Trial:
    """The commands, and the truth of what is live then and after the rollback."""
    trial, seed, began = newcomer.trial, newcomer.seed, time.monotonic()
    newcomer.wire(agent.base_url)
    newcomer.rate(newcomer.serve("questions.jsonl", seed, agent.base_url), shuffled=shuffled, share=share)
    asked = len(agent.requests)
    model = ("--model", "adviser", "--base-url", adviser.base_url)
    words = (
        "whet",
        "improve",
        newcomer.module,
        "--store",
        STORE,
        *model,
        "--seed",
        str(seed),
        "--release",
        *options,
    )
    trial.said = newcomer.typed(*words, base_url=agent.base_url, ok=(0, 1))
    trial.agent_calls, trial.model_calls = len(agent.requests) - asked, len(adviser.requests)
    report = newcomer.folder / "whet_output" / "verdict.json"
    if trial.agent_calls and report.exists():
        # One call of an agent that uses tools is several requests of its model.
        trial.agent_calls = min(trial.agent_calls, json.loads(report.read_text())["agent_calls"])
    trial.promoted = "proven better, and live" in trial.said
    refused = re.search(r"nothing was spent: (.*)", trial.said)
    trial.reason = refused[1] if refused else ""
    if trial.promoted:
        trial.after = newcomer.right(newcomer.serve("fresh.jsonl", seed + _ELSEWHERE, agent.base_url))
        newcomer.typed("whet", "rollback", "--store", STORE, base_url=agent.base_url)
    # The last run is the measurement's own.
    trial.commands = newcomer.shell.commands
    trial.before = newcomer.right(newcomer.serve("fresh.jsonl", seed + _ELSEWHERE, agent.base_url))
    trial.minutes = (time.monotonic() - began) / 60
    return trial


def lines_of(trial: Trial, *, refused: bool) -> dict[str, bool]:
    """What has to be reached → whether it was.

    Args:
        refused: the thumbs tell nothing.
    """
    if refused:
        return {
            "nothing is promoted": not trial.promoted,
            "no model and no agent is asked": trial.model_calls == trial.agent_calls == 0,
            "the reason is said": bool(trial.reason),
        }
    return {
        "promoted": trial.promoted,
        f"+{100 * LIFT:.0f} points": trial.after - trial.before >= LIFT,
        f"{AGENT_CALLS} calls of the agent": trial.agent_calls <= AGENT_CALLS,
        f"{COMMANDS} commands": trial.commands <= COMMANDS,
    }


def thumbs(folder: Path, world: World, seeds: Sequence[int], python: Path | None, *, page: bool) -> bool:
    """With every seed: thumbs as given, shuffled, and on 2 of 100 answers; True if no line was missed."""
    rows, passed = [], True
    variants = (("as given", False, 1.0), ("shuffled", True, 1.0), ("on 2 %", False, FEW))
    for name, shuffled, share in variants:
        for seed in seeds:
            place = folder / f"{name.split()[0]}-{share:g}-{seed}"
            trial = try_once(world, place.resolve(), seed, shuffled=shuffled, share=share, python=python)
            passed = passed and not trial.missed
            rows.append(_row(seed, trial, name))
            print(" | ".join(rows[-1]), flush=True)
            if trial.missed:
                print(f"missed: {', '.join(trial.missed)}\n{trial.said}", flush=True)
    heads = ["seed", "thumbs", "down %", "verdict", "truth before %", "after %", "agent calls", "model calls"]
    lines = [
        f"World `{world.folder.name}`: {world.entry}, rated by people, a model that proposes and mostly does not help. "
        "The truth is that of questions of people whom nothing has seen, answered by what is live.",
        "",
        *table([*heads, "commands", "minutes"], rows),
    ]
    if page:
        publish("Newcomers: thumbs become a proven prompt", lines)
    return passed


def _row(seed: int, trial: Trial, thumbs: str) -> list[str]:
    verdict = "promoted" if trial.promoted else "refused" if trial.reason else "not proven"
    after = percent(trial.after) if trial.promoted else "–"
    cells = [str(seed), thumbs, percent(trial.thumbs_down), verdict]
    cells += [percent(trial.before), after, str(trial.agent_calls), str(trial.model_calls)]
    return [*cells, str(trial.commands), f"{trial.minutes:.1f}"]
