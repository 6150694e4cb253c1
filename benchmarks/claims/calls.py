"""Function calling: a small policy is taught right calls, and judged on functions with names it never saw.

It chooses among admissible calls by slot (`whet.worlds.calls`), because free copying of an unseen name fails
at 0.1 M parameters.  An answer is right if it is exactly the wanted calls, every argument of each.  The
control is taught the same answers, dealt out among the requests at random.  Real questions of the Berkeley
Function-Calling Leaderboard are judged by its own possible answers: the policy has seen none of them, and
its slots hold only what a question names word for word.
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Any

from page import percent, publish, table

from whet.learn.datasets.calls import FunctionCall, allowed, functions_of, same
from whet.learn.loop import Context
from whet.learn.optimizers.sft import SFT, SFTOptions
from whet.learn.training.local import LocalModels, fresh, use_threads
from whet.learn.training.optim import OptimOptions
from whet.models.sampling import TokenSampler
from whet.types import Bundle, Group, Task
from whet.worlds.calls import END, IDS, TOKENS, CallView, InvalidCall, call_tasks, lessons, wanted

TAUGHT, HARDER, JUDGED = 12_000, 4_000, 400
"""Requests to teach, those among them that all want two calls, and requests to judge of each kind."""
OPTIONS = SFTOptions(epochs=4, batch=16, validation_share=0.05, optim=OptimOptions(learning_rate=4e-3))
REAL = {"BFCL simple": "BFCL_v4_simple_python", "BFCL multiple": "BFCL_v4_multiple"}


async def answered(sampler: TokenSampler, view: CallView) -> list[FunctionCall] | None:
    """The calls that a policy makes of a request; None if its answer is none."""
    ids = [IDS[token] for token in view.opening()]
    said = await sampler.session(0).generate(ids, stop_id=IDS[END], max_new_tokens=64)
    try:
        return view.decode([TOKENS[id] for id in said.output_ids])
    except InvalidCall:
        return None


async def exact(sampler: TokenSampler, tasks: Sequence[Task]) -> float:
    """Share of requests whose calls are exactly the wanted ones."""

    async def one(task: Task) -> bool:
        calls = await answered(sampler, CallView(task.instruction, functions_of(task.initial_state["tools"])))
        return calls is not None and same(calls, wanted(task))

    return fmean(await asyncio.gather(*map(one, tasks)))


async def real(sampler: TokenSampler, data: Path, name: str) -> dict[str, float]:
    """On one of the leaderboard's files: right calls, right functions, and what the slots could say at best."""
    questions = [json.loads(line) for line in (data / f"{name}.json").read_text().splitlines()]
    answers = (data / "possible_answer" / f"{name}.json").read_text().splitlines()
    possible = {one["id"]: one["ground_truth"] for one in map(json.loads, answers)}

    async def one(question: Mapping[str, Any]) -> tuple[bool, bool]:
        truth = possible[question["id"]]
        view = CallView(question["question"][0][-1]["content"], functions_of(question["function"]))
        calls = await answered(sampler, view) or []
        names = sorted(call.name for call in calls) == sorted(name for each in truth for name in each)
        return allowed(calls, truth), names

    found = await asyncio.gather(*map(one, questions))
    return {"exact": fmean(right for right, _ in found), "function": fmean(names for _, names in found)}


def dealt(groups: Sequence[Group], seed: int) -> list[Group]:
    """Every request with another one's answer."""
    rng = random.Random(seed)
    answers = [group.trajectories[0].steps[0].tokens for group in groups]
    rng.shuffle(answers)
    found = []
    for group, answer in zip(groups, answers, strict=True):
        run = group.trajectories[0]
        step = run.steps[0]
        assert step.tokens is not None
        assert answer is not None
        tokens = replace(step.tokens, output_ids=answer.output_ids, logprobs=answer.logprobs)
        found.append(Group(group.task, (replace(run, steps=(replace(step, tokens=tokens),)),)))
    return found


async def taught(seed: int, *, control: bool, data: Path | None, output: Path) -> dict[str, Any]:
    """Figures of one policy."""
    clock, models = time.process_time(), LocalModels()
    requests = call_tasks(TAUGHT - HARDER, seed=seed) + call_tasks(HARDER, seed=100 + seed, wanted=2)
    groups = lessons(requests)
    start = Bundle([fresh("policy", output / "start", vocab_size=len(TOKENS), seed=seed)])
    judged = {names: call_tasks(JUDGED, names=names, seed=1_000 + seed) for names in ("seen", "unseen")}
    untrained = models.sampler(start["policy"], greedy=True)
    before = {f"{names}, untrained": await exact(untrained, tasks) for names, tasks in judged.items()}
    optimizer = SFT(replace(OPTIONS, seed=seed), models=models)
    context = Context(rollout=None, folder=output)  # type: ignore[arg-type]
    update = await optimizer.step(start, dealt(groups, seed) if control else groups, context)
    sampler = models.sampler(update.bundle["policy"], greedy=True)
    found: dict[str, Any] = before | {names: await exact(sampler, tasks) for names, tasks in judged.items()}
    if data is not None:
        for title, name in REAL.items():
            own = await real(sampler, data, name)
            found |= {f"{title}, {what}": value for what, value in own.items()}
    return found | {"lessons": len(groups), "cpu_seconds": time.process_time() - clock}


def calls(folder: Path, *, data: Path, seeds: int) -> None:
    """Policy and control on each seed, as a section of docs/claims.md."""
    use_threads(1)
    place = folder / "calls"
    place.mkdir(parents=True, exist_ok=True)
    found: dict[bool, list[dict[str, Any]]] = {False: [], True: []}
    for seed in range(seeds):
        for control, runs in found.items():
            file = place / f"seed{seed}{'-control' if control else ''}.json"
            if not file.exists():
                with tempfile.TemporaryDirectory() as output:
                    made = asyncio.run(
                        taught(
                            seed, control=control, data=data if data.is_dir() else None, output=Path(output)
                        )
                    )
                file.write_text(json.dumps(made, indent=1))
            runs.append(json.loads(file.read_text()))
            print(f"seed {seed}{', control' if control else ''}: {runs[-1]}", file=sys.stderr, flush=True)
    publish("Function calls", describe(found[False], found[True]))


def describe(runs: Sequence[Mapping[str, Any]], controls: Sequence[Mapping[str, Any]]) -> list[str]:
    """The lines of the section."""
    asked = {"seen": 0.95, "unseen": 0.5}
    rows = []
    for name in (name for name in runs[0] if name not in ("lessons", "cpu_seconds")):
        values = [run[name] for run in runs]
        goal = asked.get(name)
        held = "–" if goal is None else f"{100 * goal:.0f}: {'yes' if min(values) >= goal else '**no**'}"
        rows.append(
            [
                f"{name}, exact" if name in asked else name,
                percent(fmean(values)),
                percent(min(values)),
                percent(fmean(run[name] for run in controls)),
                held,
            ]
        )
    return [
        "A policy of 0.1 M parameters chooses among admissible calls by slot; it copies no text. Requests want",
        "none, one or two calls with texts, numbers, truth values, choices, lists and objects, of up to four",
        f"functions that share words; it is taught {runs[0]['lessons']:,} of them over 50 functions. `unseen`: 50",
        "functions of other verbs and nouns. Control: the answers dealt out among the requests at random. The",
        f"leaderboard's questions are real ones, none of them taught. {len(runs)} seeds, "
        f"{fmean(run['cpu_seconds'] for run in runs):.0f} CPU s each.",
        "",
        *table(("share of requests, %", "mean", "least seed", "control", "asked for"), rows),
    ]
