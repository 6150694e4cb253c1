"""Weights by the shell alone: recorded runs, training, proof on unseen tasks, release and rollback of one agent."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from processes import python

pytest.importorskip("torch")

from whet.learn.training.local import fresh
from whet.learn.training.model import ModelOptions

SIZE = ModelOptions(hidden=16, layers=1, heads=2, kv_heads=1, ffn=32, max_length=16)
AGENT = '''
import asyncio
import itertools
import os
import sys

import whet
from whet.learn.training.local import LocalModels, adopted

came = adopted("policy", "base", "base")
policy = whet.resource("policy", default=came.content, kind=came.kind)
seeds = itertools.count()


@whet.trace("runs.db")
async def answer(question: str) -> str:
    """Whether a number is odd, as the network has it."""
    sampler = LocalModels.shared().sampler(policy.version, greedy="SAMPLE" not in os.environ)
    with whet.step("reader", kind="llm", observation=question) as step:
        sampled = await sampler.session(next(seeds)).generate([3 + int(question) % 8], stop_id=0, max_new_tokens=1)
        step.action, step.tokens = list(sampled.output_ids), sampled.tokens
    return "yes" if sampled.output_ids[0] % 2 else "no"


async def stubborn(question: str) -> str:
    """The same by a model that asks nobody which weights it is to use."""
    sampler = LocalModels.shared().sampler(came, greedy=True)
    sampled = await sampler.session(0).generate([3 + int(question) % 8], stop_id=0, max_new_tokens=1)
    return "yes" if sampled.output_ids[0] % 2 else "no"


def right(trajectory: whet.Trajectory) -> bool:
    return trajectory.output == ("yes" if int(trajectory.task.instruction) % 2 else "no")


if __name__ == "__main__":
    async def use(count):
        print(*[await answer(str(number)) for number in range(count)])

    asyncio.run(use(int(sys.argv[1])))
'''


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    fresh("policy", tmp_path / "base", options=SIZE, vocab_size=11, seed=1)
    (tmp_path / "reader.py").write_text(AGENT)
    unseen = (json.dumps({"natural_language_instruction": str(number)}) for number in range(1000, 1400))
    (tmp_path / "unseen.jsonl").write_text("\n".join(unseen))
    return tmp_path


def ran(folder: Path, *words: str, fails: bool = False, **environment: str) -> str:
    done = python(*words, folder=folder, **environment)
    assert (done.returncode != 0) == fails, done.stdout + done.stderr
    return done.stdout + done.stderr


def whet(folder: Path, *words: str, fails: bool = False) -> str:
    return ran(folder, "-m", "whet", *words, fails=fails)


def test_weights_are_trained_on_the_record_proven_released_and_taken_back(folder: Path) -> None:
    ran(folder, "reader.py", "300", SAMPLE="1")
    came = ran(folder, "reader.py", "8")
    rewarded = ("--store", "runs.db", "--reward-function", "reader:right")
    whet(folder, "train", "sft", *rewarded, "--model", "base", "--output", "out", "--epochs", "12")
    assert "Judge it first (whet gate" in whet(folder, "release", "out", "--store", "runs.db", fails=True)

    unseen = ("--store", "runs.db", "--reward", "reader:right", "--data", "unseen.jsonl")
    assert "PROMOTE: shown to be better than live" in whet(
        folder, "gate", "out", "--entry", "reader:answer", *unseen
    )
    whet(folder, "release", "out", "--store", "runs.db")
    learned = ran(folder, "reader.py", "8")
    assert learned != came
    whet(folder, "rollback", "--store", "runs.db")
    assert ran(folder, "reader.py", "8") == came


def test_an_agent_that_takes_its_weights_from_elsewhere_proves_nothing(folder: Path) -> None:
    ran(folder, "reader.py", "100", SAMPLE="1")
    rewarded = ("--store", "runs.db", "--reward-function", "reader:right")
    whet(folder, "train", "sft", *rewarded, "--model", "base", "--output", "out", "--epochs", "1")
    unseen = ("--store", "runs.db", "--reward", "reader:right", "--data", "unseen.jsonl")
    said = whet(folder, "gate", "out", "--entry", "reader:stubborn", *unseen, "--margin", "0.1")
    assert "DO NOT PROMOTE" in said
    assert "read nothing in which the two sides differ (policy)" in " ".join(said.split())
    assert whet(folder, "release", "out", "--store", "runs.db", fails=True)
