"""A Gymnasium text task and a tiny local model: baseline, GRPO, the gate, served and rolled back, by commands alone."""

from __future__ import annotations

import json
import re
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import httpx2
from newcomers_shell import REPOSITORY, Noted, Shell
from page import percent

ENVIRONMENT = "digits.py"
WORLD = """\
import random

import gymnasium
from gymnasium import spaces


class Next(gymnasium.Env):
    observation_space, action_space = spaces.Text(1), spaces.Discrete(4)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.digit = int(self.np_random.integers(4))
        return str(self.digit), {}

    def step(self, action):
        return "", float(action == (self.digit + 1) % 4), True, False, {}


CHANCE = random.Random(SEED)


class Chance(Next):
    # Any text is an action: where some are refused, even these rewards teach which.
    action_space = spaces.Text(9)

    def step(self, action):
        won = action == str((self.digit + 1) % 4)
        return "", float(CHANCE.random() < 0.25), True, False, {"success": won}
"""
SMALL = """\
from pathlib import Path

from whet.learn.training.local import fresh
from whet.learn.training.model import ModelOptions
from whet.learn.training.vocabulary import Vocabulary

words = Vocabulary(list("0123"))
size = ModelOptions(hidden=16, layers=1, heads=2, kv_heads=1, ffn=32, max_length=32)
fresh("policy", Path("small"), options=size, vocab_size=len(words), seed=0)
words.save(Path("small/vocabulary.json"))
"""
LINES = 10
"""Of code that a newcomer may have to write beside the environment."""
_ADDRESS = re.compile(r"http://127\.0\.0\.1:\d+")


def _train(env: str, seed: int) -> list[str]:
    model = ["--env", f"digits:{env}", "--model", "small", "--answer-tokens", "1"]
    learning = ["--episodes", "40", "--steps", "20", "--optim.learning-rate", "0.02", "--seed", str(seed)]
    return ["whet", "train", "grpo", *model, *learning, "--output", "out", "--json"]


@contextmanager
def _served(shell: Shell) -> Iterator[str]:
    """The address of the policy server over what is live."""
    shell.commands += 1
    words = ["whet", "serve-policy", "--store", "out/runs.db", "--vocabulary", "small/vocabulary.json"]
    log = shell.folder / "served.log"
    with log.open("w") as said:
        process = subprocess.Popen(
            shell.program([*words, "--name", "policy", "--port", "0", "--token", "given"]),
            cwd=shell.folder,
            env=shell.environ({}),
            stdout=said,
            stderr=said,
        )
    try:
        deadline = time.monotonic() + 120
        while not (address := _ADDRESS.search(log.read_text())):
            assert time.monotonic() < deadline, log.read_text()
            assert process.poll() is None, log.read_text()
            time.sleep(0.2)
        yield address.group()
    finally:
        process.terminate()
        process.wait(30)


def _fingerprint(address: str) -> str:
    asked = {"model": "policy", "max_tokens": 1, "messages": [{"role": "user", "content": "1"}]}
    answer = httpx2.post(
        f"{address}/v1/chat/completions", json=asked, headers={"authorization": "Bearer given"}, timeout=60
    )
    return str(answer.json().get("system_fingerprint"))


def lines_of_code(folder: Path) -> int:
    """Lines with code of the Python that stands in a folder beside the environment."""
    texts = [path.read_text(encoding="utf-8") for path in folder.glob("*.py") if path.name != ENVIRONMENT]
    return sum(bool(line.split("#")[0].strip()) for text in texts for line in text.splitlines())


def _tried(folder: Path, python: Path | None, seed: int, env: str) -> Noted:
    shell = Shell(folder, python)
    # Other luck with each seed: one row of rewards would be one control, however often it is run.
    (folder / ENVIRONMENT).write_text(WORLD.replace("SEED", str(seed)), encoding="utf-8")
    (folder / "small.py").write_text(SMALL, encoding="utf-8")
    subprocess.run([shell.python, "small.py"], cwd=folder, env=shell.environ({}), check=True)
    done = shell.type(*_train(env, seed))
    verdict = json.loads(done.stdout)["verdict"] if done.returncode in (0, 1) else {}
    curve = [json.loads(row) for row in (folder / "out" / "metrics.jsonl").read_text().splitlines()]
    noted = Noted(
        f"{'reward by chance' if env == 'Chance' else 'GRPO'}, seed {seed}", said=done.stdout + done.stderr
    )
    released = shell.type("whet", "release", "out")
    success = [row["success"] for row in curve]
    findings = verdict.get("findings", [])
    stands = "held back" if findings else "promoted"
    noted.figures = {
        "verdict": stands if verdict.get("promote") else "not promoted",
        "success, first round %": percent(success[0]),
        "last five %": percent(sum(success[-5:]) / 5),
        "gain at the gate": f"{100 * verdict.get('effect', 0.0):+.1f}",
        "lines of code": str(written := lines_of_code(folder)),
    }
    if env == "Chance":
        noted.lines = {"not promoted": not verdict.get("promote"), "not released": released.returncode != 0}
    else:
        with _served(shell) as address:
            live = _fingerprint(address)
            rolled_back = shell.type("whet", "rollback", "--store", "out/runs.db")
        version = json.loads((folder / "out" / "bundle.json").read_text())
        noted.lines = {
            f"{LINES} lines of code": written <= LINES,
            "promoted": bool(verdict.get("promote")) and not findings,
            "success rises": sum(success[-5:]) / 5 > success[0] + 0.3,
            "released": released.returncode == 0,
            "what is served is what was released": live in json.dumps(version) or live in released.stdout,
            "rolled back": rolled_back.returncode == 0,
        }
    noted.figures |= {"commands": str(shell.commands), "minutes": shell.minutes}
    return noted


def gym(folder: Path, python: Path | None, seeds: Sequence[int]) -> list[Noted]:
    """Each seed, and the same with rewards that chance gives."""
    folder.mkdir(parents=True, exist_ok=True)
    if python is not None:
        # The bare environment has no learner of weights yet; this pin is what an index of CPU builds serves.
        for words in (["torch==2.13.0"], [f"{REPOSITORY}[server,train,gym]"]):
            subprocess.run([str(python), "-m", "pip", "install", "-q", *words], check=True)
    return [
        _tried(folder / f"{env}-{seed}", python, seed, env) for env in ("Next", "Chance") for seed in seeds
    ]
