"""The service desk of `test_experiment_journey`: an agent with a prompt, a decision and the weights of a tiny reader.

Run as a program it answers questions, one a line, each as JSON: the answer and the id of its run.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import random
import re
import sys
from pathlib import Path

import whet
from whet.learn.training.local import LocalModels, adopted, fresh
from whet.learn.training.model import ModelOptions
from whet.models.heads import load_head
from whet.record.tracing import Resource, register_loader

SIZE = ModelOptions(hidden=16, layers=1, heads=2, kv_heads=1, ffn=32, max_length=16)
DIGITS, SPARE = 8, 3
"""What the reader reads, and the token ids below it."""
AS_IT_CAME = 90
models = LocalModels()
sampling: list[bool] = []
"""Not empty while the reader samples, and does not take what is likeliest."""
seeds = itertools.count()

register_loader("head", load_head)
prompt = whet.resource(
    "gateway.system_prompt", default=f"You are a clerk.\nSend claims from {AS_IT_CAME} on to a senior."
)
_weights: list[Resource] = []


def furnish(folder: Path) -> whet.Version:
    """Give the desk the reader that it comes with, made in the folder if it is not there; its Version."""
    if not folder.exists():
        fresh("policy", folder, options=SIZE, vocab_size=SPARE + DIGITS, seed=1)
    reader = adopted("policy", folder, folder)
    _weights[:] = [whet.resource("policy", default=reader.content, kind=reader.kind)]
    return _weights[0].default_version


@whet.evolve(name="pick")
def pick(candidates: list[dict[str, float]], remaining: int) -> int:
    """Which article answers: the first one, as it came."""
    return 0


def clerk(instructions: str, question: str) -> str:
    """What the desk's model answers about a claim."""
    least = re.search(r"from (\d+) on", instructions)
    return "senior" if int(question.split()[1]) % 100 >= int(least[1] if least else AS_IT_CAME) else "junior"


async def read(digit: int) -> str:
    """What the tiny network makes of a digit."""
    weights = _weights[0]
    sampler = models.sampler(weights.version, greedy=not sampling)
    with whet.step("reader", kind="llm", observation=digit) as now:
        sampled = await sampler.session(next(seeds)).generate([SPARE + digit], stop_id=0, max_new_tokens=1)
        now.action, now.tokens = list(sampled.output_ids), sampled.tokens
    return "yes" if sampled.output_ids[0] % 2 else "no"


def articles(number: str) -> list[dict[str, float]]:
    """Three candidates, one of which matches."""
    rng = random.Random(number)
    matches = [rng.uniform(0.6, 1.0), rng.uniform(0.0, 0.4), rng.uniform(0.0, 0.4)]
    rng.shuffle(matches)
    return [{"match": match, "age": rng.random()} for match in matches]


async def desk(question: str) -> str:
    """The agent: asks its model about a claim, finds an article, or reads a note."""
    kind, number = question.split()
    if kind == "claim":
        return clerk(str(prompt), question)
    if kind == "article":
        return str(pick(candidates=articles(number), remaining=0))
    return await read(int(number) % DIGITS)


def truth(question: str) -> str:
    kind, number = question.split()
    if kind == "claim":
        return "senior" if int(number) % 100 >= 60 else "junior"
    if kind == "article":
        return str(max(range(3), key=lambda place: articles(number)[place]["match"]))
    return "yes" if int(number) % DIGITS % 2 else "no"


def main() -> None:
    furnish(Path(sys.argv[1]))
    traced = whet.trace(desk)
    for line in sys.stdin:
        with whet.run() as run:
            answer = asyncio.run(traced(line.strip()))
        print(json.dumps([answer, run.id]), flush=True)


if __name__ == "__main__":
    main()
