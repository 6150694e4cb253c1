"""What a search by thumbs finds, without commands: `python benchmarks/thumbs_search.py [--seeds 20] [--first 400]`.

The agent, the people and the adviser are those of `scripts/claims newcomers` (claims/newcomers_world), the rows, the
reward and the options those of `whet improve AGENT.py`; it runs in this process, so a seed takes a second. The truth is
the share of right answers to questions of people whom nothing has seen, under the prompt that the search found, proven
or not; proven is what the gate says of it, and reached what is proven and 30 points better. `--calls 300 --reflections
8` are what the trial of the frameworks allows. `--world DIR --prompt TEXT` takes another world, whose agent has one
prompt.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import statistics
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import whet
from whet.judge.fitted import agreement
from whet.learn.composition import Contender, judge
from whet.learn.datasets.thumbs import RatedRun, ThumbEvidence, thumb_rows
from whet.learn.evolution.prompts.reflecting import Reflect, ReflectOptions
from whet.learn.evolution.prompts.reflection import added, without
from whet.learn.evolution.prompts.thumbed import (
    KEPT,
    LIKED,
    LIKED_BY_ALL,
    LIKED_BY_OTHERS,
    MARGIN,
    KeptNumbers,
    ThumbReward,
)
from whet.models import ScriptedModel
from whet.models.base import ModelRequest
from whet.models.budget import Meter
from whet.prove.guardrails import Guardrail

sys.path.append(str(Path(__file__).parent / "claims"))
from newcomers_thumbs import LIFT, WORLD, World

PROMPT = "You work at the support desk of a garden shop. Be friendly and helpful."
ELSEWHERE = 1_000
"""Added to the seed for questions of people whom nothing has seen."""
THROWS, SAME = 6, 0.01
"""Throws of the model's dice that tell whether a rule does something, and what counts as nothing."""


def answered(world: World, prompt: str, question: str, seed: int) -> str:
    """What the agent answers under a prompt."""
    messages = [{"role": "system", "content": prompt}, {"role": "user", "content": question}]
    return str(world.model.answer(ModelRequest.of(messages, {}), seed))


def right(world: World, prompt: str, seed: int, dice: int = 0) -> float:
    """Share of right answers to people whom nothing has seen; with other dice the model errs elsewhere."""
    asked = world.people.questions(seed + ELSEWHERE)
    hits = [
        world.truth.right(each["question"], answered(world, prompt, each["question"], seed + dice))
        for each in asked
    ]
    return sum(hits) / len(hits)


def idle(world: World, prompt: str, start: str, seed: int) -> int:
    """Blocks of a prompt beside its start without which as many answers are right, over several throws of the dice."""

    def mean(text: str) -> float:
        return statistics.fmean(right(world, text, seed, 2 * ELSEWHERE * throw) for throw in range(THROWS))

    whole = mean(prompt)
    return sum(mean(without(prompt, [block])) >= whole - SAME for block in added(prompt, start))


@dataclass(frozen=True)
class Found:
    """What became of one seed."""

    before: float
    after: float
    calls: float
    """Of the agent, in the search."""
    idle: int
    """Rules that change nothing."""
    admitted: bool
    proven: bool
    prompt: str
    reason: str

    @property
    def reached(self) -> bool:
        """True if what the trial of the newcomers asks for is reached."""
        return self.admitted and self.proven and self.after - self.before >= LIFT


def searched(
    world: World, seed: int, calls: int, reflections: int, prompt: str, shuffled: bool = False
) -> Found:
    """Search and proof; with thumbs that are dealt anew, too."""
    runs = []
    for number, asked in enumerate(world.people.questions(seed)):
        question, person = asked["question"], asked["person"]
        answer = answered(world, prompt, question, seed)
        if thumb := world.people.thumb(seed, person, question, answer):
            runs.append(RatedRun(str(number), question, question, answer, person, thumb > 0))
    if shuffled:
        ups = random.Random(f"shuffled {seed}").sample([run.up for run in runs], len(runs))
        runs = [replace(run, up=up) for run, up in zip(runs, ups, strict=True)]
    # As `plan_agent` divides them: of the calls 35 in 100 prove.
    evidence = ThumbEvidence(runs, len(runs), unnamed=False)
    rows = thumb_rows(evidence, "desk:answer", most=int(0.35 * calls / 2), seed=seed)
    agreed = agreement(evidence.thumbs)
    fitted = agreed.fit(rows.search)
    reward, numbers = ThumbReward(LIKED, fitted, coarse=True), KeptNumbers(fitted)
    meter = Meter(whet.Budget(rollouts=calls - 2 * rows.gate_inputs))

    async def rollout(
        bundle: whet.Bundle, tasks: Sequence[whet.Task], n: int = 1, **_: object
    ) -> list[whet.Group]:
        meter.reserve(rollouts=len(tasks))
        groups = []
        for task in tasks:
            output = answered(world, str(bundle["prompt"].content), task.instruction, seed)
            run = whet.Trajectory(task=task, output=output, outcome=whet.Outcome.SUCCESS)
            kept = numbers(run)
            scores = {LIKED: reward(run)} if kept is None else {LIKED: reward(run), KEPT: kept}
            groups.append(whet.Group(task, [replace(run, scores=scores)]))
        return groups

    train = [task for task in rows.tasks if task.split is whet.types.Split.TRAIN]
    context = whet.Context(rollout=rollout, train=train, meter=meter)
    options = ReflectOptions(rounds=reflections, patience=reflections, seed=seed, tasks=40, first=4)
    adviser = ScriptedModel(lambda request: world.model.advise(request, seed))
    reflect = Reflect("prompt", LIKED, model=adviser, right=0.55, options=options, keeps=KEPT)
    start = whet.Bundle([whet.Version(resource="prompt", content=prompt, kind="prompt")])
    update = asyncio.run(reflect.step(start, [], context))
    after = str(update.bundle["prompt"].content)
    by_all, by_others = agreed.fit(rows.all), agreed.fit(rows.unseen)
    gate_rewards = [
        ThumbReward(LIKED_BY_ALL, by_all, unrated=True),
        ThumbReward(LIKED_BY_OTHERS, by_others, unrated=True),
    ]

    def judged(text: str) -> Contender:
        groups = []
        for task in rows.gate:
            run = whet.Trajectory(
                task=task,
                output=answered(world, text, task.instruction, seed),
                outcome=whet.Outcome.SUCCESS,
            )
            scores = {each.name: each(run) for each in gate_rewards}
            groups.append(whet.Group(task, [replace(run, scores=scores)]))
        return Contender("", text, groups)

    verdict = None
    if after != prompt:
        verdict = judge(
            [judged(after)],
            judged(prompt),
            metric=LIKED_BY_ALL,
            guardrails=[Guardrail(LIKED_BY_OTHERS, MARGIN, higher_is_better=True)],
        )
    return Found(
        right(world, prompt, seed),
        right(world, after, seed),
        meter.spent["rollouts"],
        idle(world, after, prompt, seed),
        agreed.admitted,
        verdict is not None and verdict.promote,
        after,
        update.reason + "".join(f"\n  {each}" for each in (verdict.reasons if verdict is not None else ())),
    )


def main() -> None:
    """Print the means, and the truth of each seed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--first", type=int, default=400)
    parser.add_argument("--calls", type=int, default=400, help="of the agent, those that prove included")
    parser.add_argument("--reflections", type=int, default=32)
    parser.add_argument("--world", type=Path, default=WORLD, help="its folder")
    parser.add_argument("--prompt", default=PROMPT, help="of its agent")
    parser.add_argument(
        "--shuffled", action="store_true", help="thumbs dealt anew: proven is what passes without admission"
    )
    parser.add_argument("--reasons", action="store_true", help="print each seed's prompt and verdict")
    words = parser.parse_args()
    opened = World.read(words.world.resolve())
    found = [
        searched(opened, seed, words.calls, words.reflections, words.prompt, words.shuffled)
        for seed in range(words.first, words.first + words.seeds)
    ]
    columns = [[each.before, each.after, each.calls, each.idle] for each in found]
    before, after, runs, spare = map(statistics.fmean, zip(*columns, strict=True))
    proven = sum(each.proven for each in found)
    promoted = sum(each.proven and each.admitted for each in found)
    print(
        f"truth {before:.3f} -> {after:.3f}, {runs:.0f} calls of the agent in the search, "
        f"{spare:.2f} rules that change nothing; of {len(found)} {sum(each.admitted for each in found)} admitted, "
        f"{proven} proven, {promoted} both, {sum(each.reached for each in found)} reached"
    )
    print(" ".join(f"{each.after:.2f}{'' if each.reached else '*'}" for each in found))
    if words.reasons:
        for number, each in enumerate(found, words.first):
            print(
                f"{number} {each.before:.2f} {each.after:.2f} {each.admitted}\n{each.prompt}\n{each.reason}\n"
            )


if __name__ == "__main__":
    main()
