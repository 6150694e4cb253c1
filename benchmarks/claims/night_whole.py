"""The whole on an agent that only got another base URL: people's thumbs become a pull request that anybody repeats.

The agent is LangGraph's, of `newcomers_world`, in an environment of its own; its model and the one that proposes are
scripted. `whet serve` stands between the agent and its model, and nothing of the agent names whet. People ask, and give
thumbs, 15 of 100 wrongly; `whet autopilot` looks at the record between two days, its trials are deployed beside the
agent under the base URL that names their Bundle, and what it ships is a pull request at a real git remote and a fake
GitHub, which the team merges. A workflow of GitHub then judges the branch's files (`whet verdict --github`).

With the thumbs shuffled nothing may ship.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from newcomers import WORLD, World
from newcomers_frameworks import answers, environment
from newcomers_shell import Noted, report

from whet.autopilot.journal import read
from whet.models.fakes import ScriptedGitHub, ScriptedServer
from whet.record.store import Store
from whet.types import Feedback, digest

SLUG, TOKEN = "shop/desk", "token-of-the-night"
ROUNDS, SHARE = 6, 0.5
GAIN = 0.05
"""Of the share of right answers, that the merged agent has to have more."""
_SERVICE = """import json, sys
import whet
import desk

answer = whet.trace(desk.answer)
for line in open(sys.argv[1], encoding="utf-8"):
    asked = json.loads(line)
    with whet.run(subject=asked["person"]) as run:
        said = answer(asked["question"])
    print(json.dumps({"run": run.id, **asked, "answer": said}), flush=True)
"""
"""The service around the agent, which knows who asks and says so; the agent knows nothing of whet."""
_GIT = ("git", "-c", "user.name=team", "-c", "user.email=team@localhost")


@dataclass
class WholeNight:
    """One agent's night."""

    seed: int
    before: float = 0.0
    after: float = 0.0
    shipped: int = 0
    pulls: int = 0
    repeated: int = 0
    checks: Counter[int] = field(default_factory=Counter)
    """Exit codes of the workflow's step."""
    steps: Counter[str] = field(default_factory=Counter)
    tried: int = 0
    """Runs that name the Versions of the trial that they were served."""
    minutes: float = 0.0


class Desk:
    """The agent's repository, the server before its model, and the people."""

    def __init__(self, folder: Path, world: World, python: Path, seed: int, *, shuffled: bool) -> None:
        self.world, self.python, self.seed, self.shuffled = world, python, seed, shuffled
        self.agent, self.remote, self.store = folder / "agent", folder / "remote.git", folder / "runs.db"
        self.folder, self.day, self.asked = folder, 0, 0
        self.night = WholeNight(seed)
        self._merged: set[str] = set()
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        self._git(folder, "init", "-q", "--bare", "-b", "main", str(self.remote))
        self._git(folder, "clone", "-q", str(self.remote), str(self.agent))
        shutil.copytree(world.agent, self.agent, dirs_exist_ok=True)
        (self.agent / ".gitignore").write_text("__pycache__/\n")
        for words in (
            ["add", "-A"],
            ["commit", "-q", "-m", "The desk"],
            ["push", "-q", "origin", "HEAD:main"],
        ):
            self._git(self.agent, *words)

    def _git(self, folder: Path, *words: str) -> str:
        return subprocess.run([*_GIT, *words], cwd=folder, check=True, capture_output=True, text=True).stdout

    def whet(
        self, *words: object, folder: Path | None = None, **variables: str
    ) -> subprocess.CompletedProcess[str]:
        """A command in a folder, that of the agent unless another is named, and in the agent's environment."""
        return subprocess.run(
            [self.python, "-m", "whet", *map(str, words)],
            cwd=folder or self.agent,
            env={**os.environ, **variables},
            capture_output=True,
            text=True,
            timeout=900,
        )

    def say(
        self, folder: Path, questions: Sequence[dict[str, Any]], *, deployed: str = ""
    ) -> list[dict[str, Any]]:
        """The service of a folder, through the server; each question with its run and its answer."""
        asked = self.folder / "asked.jsonl"
        asked.write_text("".join(json.dumps(each) + "\n" for each in questions), encoding="utf-8")
        code = ("--deployed", deployed) if deployed else ()
        words = ("run", "--url", self.url, *code, "--", str(self.python), "-c", _SERVICE, str(asked))
        done = self.whet(*words, folder=folder, WHET_TOKEN=self.token, OPENAI_API_KEY="none")
        if done.returncode:
            raise RuntimeError(done.stderr[-2_000:])
        return [json.loads(line) for line in done.stdout.splitlines()]

    @contextmanager
    def served(self, upstream: str) -> Iterator[None]:
        """`whet serve` before the agent's model."""
        words = ("serve", "--store", self.store, "--port", "0", "--upstream", upstream)
        log = open(self.folder / "server.log", "w", encoding="utf-8")  # noqa: SIM115
        process = subprocess.Popen(
            [self.python, "-u", "-m", "whet", *map(str, words)], stdout=log, stderr=subprocess.STDOUT
        )
        try:
            deadline = time.monotonic() + 60
            while "http://127.0.0.1" not in (said := (self.folder / "server.log").read_text()):
                if process.poll() is not None or time.monotonic() > deadline:
                    raise RuntimeError(said)
                time.sleep(0.1)
            self.url = next(word for word in said.split() if word.startswith("http://127.0.0.1")).rstrip(
                "/.,;"
            )
            self.token = self.whet("token", "write", "--store", self.store).stdout.strip()
            yield
        finally:
            process.terminate()
            process.wait(30)
            log.close()

    def people_ask(self) -> None:
        """A day: everybody asks, those whom the trial's share draws are served its folder, and gives a thumb."""
        self.day += 1
        questions = self.world.people.questions(self.seed + 1_000 * self.day)
        with Store(self.store) as store:
            trial = store.state("autopilot/trial")
            newest = store.newest()
        standing = trial if trial and not trial["ended"] else None
        arms: dict[bool, list[dict[str, Any]]] = {False: [], True: []}
        for number, asked in enumerate(questions):
            draw = int(digest([standing and standing["release"], self.day, number], 8), 16) / 16**8
            arms[standing is not None and draw < standing["share"]].append(asked)
        answered, notes = [], []
        for tried, mine in arms.items():
            folder = Path(standing["folder"]) if tried and standing else self.agent
            deployed = str(standing["bundle"]) if tried and standing else ""
            answered += self.say(folder, mine, deployed=deployed) if mine else []
        time.sleep(2.0)  # a run is whole once its call is quiet
        with Store(self.store) as store:
            versions = set(store.bundle(standing["bundle"]).ids.values()) if standing else set()
            for said in answered:
                person, question, text = said["person"], said["question"], said["answer"]
                value = self.world.people.thumb(self.seed + self.day, person, question, text)
                notes.append(Feedback(run=said["run"], value=float(value)))
            for run in store.trajectories(after=newest):
                self.night.tried += not versions.isdisjoint(run.versions.values())
            if self.shuffled:
                values = [note.value for note in notes]
                random.Random(self.day).shuffle(values)
                notes = [replace(note, value=value) for note, value in zip(notes, values, strict=True)]
            store.add_feedback(*notes)
        self.asked += len(notes)

    def look(self, model: str, adviser: str, github: ScriptedGitHub) -> None:
        """One look of the autopilot."""
        variables = {
            "OPENAI_BASE_URL": model,
            "OPENAI_API_KEY": "none",
            "GITHUB_TOKEN": TOKEN,
            "GITHUB_API_URL": github.url,
            "GITHUB_REPOSITORY": SLUG,
        }
        done = self.whet(
            *(
                "autopilot",
                "--store",
                self.store,
                "--agent",
                self.agent / "desk.py",
                "--entry",
                "desk:answer",
            ),
            *("--model", "adviser", "--base-url", adviser, "--mode", "act", "--deliver", "remote"),
            *("--share", SHARE, "--calls", 300, "--proofs", 12, "--output", self.folder / "autopilot"),
            *("--seed", self.seed),
            **variables,
        )
        (self.folder / "autopilot.log").open("a").write(done.stdout + done.stderr)
        if done.returncode:
            raise RuntimeError(done.stderr[-2_000:])

    def merge(self) -> None:
        """Merge what was delivered, after the workflow's check and a stranger's look at it."""
        with Store(self.store) as store:
            works = [store.state(f"autopilot/work/{issue.id}") or {} for issue in store.issues.read()]
        for work in works:
            branch = work.get("branch")
            if work.get("stage") != "shipped" or not branch or branch in self._merged:
                continue
            self._merged.add(branch)
            self.night.shipped += 1
            clone = self.folder / f"clone-{len(self._merged)}"
            self._git(
                self.folder, "clone", "-q", "--single-branch", "-b", branch, str(self.remote), str(clone)
            )
            words = str(work["command"]).split()
            told = subprocess.run(
                [sys.executable, "-m", *words], cwd=clone, capture_output=True, check=False
            ).stdout
            self.night.repeated += any(
                file.read_bytes().strip() == told.strip()
                for file in clone.glob(".whet-proofs/*/verdict.json")
            )
            check = [word for word in words if word != "--json"] + ["--github"]
            summary = self.folder / "summary.md"
            ran = subprocess.run(
                [sys.executable, "-m", *check],
                cwd=clone,
                env={**os.environ, "GITHUB_STEP_SUMMARY": str(summary)},
                capture_output=True,
                check=False,
            )
            self.night.checks[ran.returncode] += 1
            self._git(self.agent, "fetch", "-q", "origin")
            self._git(self.agent, "merge", "-q", "--no-edit", f"origin/{branch}")
            self._git(self.agent, "push", "-q", "origin", "HEAD:main")

    def right(self, model: str) -> float:
        """The share of fresh questions that the agent answers rightly, which only the test knows; unrecorded."""
        questions = self.world.people.questions(self.seed + 99)
        asked = self.folder / "fresh.jsonl"
        asked.write_text("".join(json.dumps(each) + "\n" for each in questions), encoding="utf-8")
        done = subprocess.run(
            [self.python, "-c", _SERVICE, str(asked)],
            cwd=self.agent,
            env={**os.environ, "OPENAI_BASE_URL": model, "OPENAI_API_KEY": "none"},
            capture_output=True,
            text=True,
            check=True,
        )
        answered = [json.loads(line) for line in done.stdout.splitlines()]
        right = self.world.truth.right
        return sum(right(said["question"], said["answer"]) for said in answered) / len(questions)


def spend(folder: Path, python: Path, seed: int, *, shuffled: bool = False) -> WholeNight:
    """One night of the agent."""
    world = World.read(WORLD, agent="agent_langgraph")
    began = time.monotonic()
    with (
        ScriptedServer(
            answers("langgraph", lambda request: str(world.model.answer(request, seed))),
            models=("desk-small",),
        ) as model,
        ScriptedServer(
            lambda request: str(world.model.advise(request, seed)), models=("adviser",)
        ) as adviser,
        ScriptedGitHub(SLUG, token=TOKEN) as github,
    ):
        desk = Desk(folder, world, python, seed, shuffled=shuffled)
        night = desk.night
        with desk.served(model.base_url):
            night.before = desk.right(model.base_url)
            for _ in range(2):
                desk.people_ask()
            for _ in range(ROUNDS):
                desk.look(model.base_url, adviser.base_url, github)
                desk.merge()
                desk.people_ask()
            desk.look(model.base_url, adviser.base_url, github)
            desk.merge()
            night.after = desk.right(model.base_url)
        night.pulls = len(github.pulls)
        with Store(desk.store) as store:
            night.steps = Counter(row.step for row in read(store))
    night.minutes = (time.monotonic() - began) / 60
    return night


def night_whole(folder: Path, seeds: Sequence[int]) -> bool:
    """Print the table; True if no line was missed."""
    folder = folder.resolve()  # processes of several folders are given it
    folder.mkdir(parents=True, exist_ok=True)
    python = environment("langgraph", folder)
    noted = []
    for seed in seeds:
        night = spend(folder / f"langgraph-{seed}", python, seed)
        noted.append(
            Noted(
                f"LangGraph, seed {seed}",
                _figures(night),
                {
                    "a repair is a pull request": night.pulls >= 1 and night.pulls == night.shipped,
                    "each verdict is repeated in a clone": night.repeated == night.shipped > 0,
                    "the workflow's step says keep": night.checks == {0: night.shipped},
                    "each trial was shadowed first": night.steps["shadow"] >= night.steps["trial"] > 0,
                    f"+{100 * GAIN:.0f} points": night.after - night.before >= GAIN,
                },
            )
        )
        control = spend(folder / f"shuffled-{seed}", python, seed, shuffled=True)
        noted.append(
            Noted(
                f"thumbs shuffled, seed {seed}",
                _figures(control),
                {"nothing ships": control.shipped == control.pulls == 0},
            )
        )
    about = (__doc__ or "").partition("\n")[0]
    return report("A night: the whole", about, noted, page=False)


def _figures(night: WholeNight) -> dict[str, str]:
    return {
        "right before %": f"{100 * night.before:.1f}",
        "after %": f"{100 * night.after:.1f}",
        "shipped": str(night.shipped),
        "pull requests": str(night.pulls),
        "verdicts repeated": str(night.repeated),
        "runs on trial": str(night.tried),
        "checks": ", ".join(f"{count} x exit {code}" for code, count in sorted(night.checks.items()))
        or "none",
        "steps": ", ".join(f"{count} {step}" for step, count in night.steps.most_common()),
        "minutes": f"{night.minutes:.1f}",
    }
