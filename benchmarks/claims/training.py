"""Every weight method on one small task, three seeds, with its negative control: one table.

    scripts/claims training [--seeds 3]

The task is `tests/methods_toys.py`'s: which answer each of four digits wants, from random weights.
The control is the same run with the trajectories' rewards and outcomes exchanged (DAgger's with an
expert who guesses).  Reward models are measured by the share of unseen pairs that they rank rightly,
NLPO by its reward.  GLAM has a command of its own, `glam`.
"""

from __future__ import annotations

import asyncio
import random
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests"))
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "examples"))

import methods_toys as toys
import nlpo
import torch
from page import publish, table

from whet.learn.optimizers.awr import AWR, AWROptions
from whet.learn.optimizers.dagger import DAgger, DAggerOptions
from whet.learn.optimizers.dpo import DPO, DPOOptions
from whet.learn.optimizers.grpo import GRPO, GRPOOptions
from whet.learn.optimizers.kto import KTO, KTOOptions
from whet.learn.optimizers.ppo import PPO, A2COptions, PPOOptions
from whet.learn.optimizers.reinforce import REINFORCE, REINFORCEOptions
from whet.learn.optimizers.reward_model import RewardModel, RewardModelOptions
from whet.learn.optimizers.rloo import RLOO, RLOOOptions
from whet.learn.optimizers.sft import SFT, SFTOptions
from whet.learn.optimizers.star import STaR, STaROptions
from whet.learn.optimizers.webrl import WebRL, WebRLOptions
from whet.learn.training.alarms import AlarmOptions
from whet.learn.training.local import LocalModels
from whet.learn.training.optim import OptimOptions
from whet.learn.training.scorer import LearnedReward

FAST, SLOW = toys.FAST, OptimOptions(learning_rate=1e-2, schedule="constant")
NEVER = AlarmOptions(success_drop=None, min_entropy=None, max_no_signal=None)
ROUNDS: dict[str, Any] = {"steps": 22, "checkpoint_every": 22, "alarms": NEVER}
OFFLINE: dict[str, Any] = {"epochs": 12, "batch": 32, "optim": FAST, "validation_share": 0.0}

ON_POLICY: dict[str, tuple[int, Callable[[LocalModels], Any]]] = {
    "grpo": (22, lambda m: GRPO(GRPOOptions(optim=FAST, **ROUNDS), models=m)),
    "grpo, paper": (22, lambda m: GRPO(GRPOOptions.paper(optim=FAST, **ROUNDS), models=m)),
    "dr. grpo": (22, lambda m: GRPO(GRPOOptions.dr_grpo(1, optim=FAST, **ROUNDS), models=m)),
    "gspo": (22, lambda m: GRPO(GRPOOptions.gspo(optim=FAST, **ROUNDS), models=m)),
    "rloo": (22, lambda m: RLOO(RLOOOptions(optim=FAST, **ROUNDS), models=m)),
    "reinforce": (22, lambda m: REINFORCE(REINFORCEOptions(optim=FAST, **ROUNDS), models=m)),
    "ppo": (22, lambda m: PPO(PPOOptions(optim=SLOW, passes=3, entropy_bonus=0.03, **ROUNDS), models=m)),
    "a2c": (22, lambda m: PPO(A2COptions(optim=FAST, **ROUNDS), models=m)),
    "star": (
        4,
        lambda m: STaR(
            STaROptions(steps=4, accumulate=True, epochs=4, batch=16, optim=FAST, validation_share=0.0),
            models=m,
        ),
    ),
    "webrl": (
        3,
        lambda m: WebRL(WebRLOptions(steps=3, epochs=4, batch=64, optim=FAST, beta=0.3), models=m),
    ),
    "webrl, released": (
        3,
        lambda m: WebRL(
            WebRLOptions(steps=3, epochs=4, batch=64, optim=FAST, beta=0.3, loss="released"), models=m
        ),
    ),
}
RECORDED: dict[str, Callable[[LocalModels], Any]] = {
    "sft": lambda m: SFT(SFTOptions(**OFFLINE), models=m),
    "awr": lambda m: AWR(AWROptions(**OFFLINE, beta=0.2), models=m),
    "dpo": lambda m: DPO(DPOOptions(**OFFLINE, beta=0.5), models=m),
    "ipo": lambda m: DPO(DPOOptions(**OFFLINE, loss="ipo"), models=m),
    "step-dpo": lambda m: DPO(DPOOptions(**OFFLINE, beta=0.5, pairs="step"), models=m),
    "kto": lambda m: KTO(KTOOptions(**OFFLINE, beta=0.5, desirable_weight=3.0), models=m),
}


async def one(name: str, seed: int, *, control: bool) -> tuple[float, float]:
    """Success before and after."""
    relabel = toys.shuffled if control else list
    with tempfile.TemporaryDirectory() as path:
        folder, models = Path(path), LocalModels()
        start = toys.beginning(folder, seed)
        before = await toys.measured(start, models)
        if name in ON_POLICY:
            count, make = ON_POLICY[name]
            size = {"todo": 32, "n": 4 if count == 22 else 8}
            update, _ = await toys.rounds(
                make(models), start, folder, models, count=count, seed=seed, relabel=relabel, **size
            )
        else:
            groups = relabel(await toys.collect(start, toys.tasks(48, seed), 8, models=models, seed=seed))
            update = await RECORDED[name](models).step(start, groups, toys.context(folder))
        return before, await toys.measured(update.bundle, models)


async def corrected(seed: int, *, control: bool) -> tuple[float, float]:
    """DAgger on episodes of three turns: success before, and after two rounds of an expert's corrections.

    The control's expert answers at random.
    """
    chance = random.Random(seed)

    def expert(_: Any, step: Any) -> list[int]:
        seen = toys.WORDS.tokens[step.tokens.prompt_ids[-2]]
        return list(toys.WORDS.encode([chance.choice(toys.DIGITS) if control else toys.RIGHT[seen]]))

    with tempfile.TemporaryDirectory() as path:
        folder, models = Path(path), LocalModels()
        start = toys.beginning(folder, seed)
        options = DAggerOptions(steps=2, epochs=8, batch=16, optim=FAST, validation_share=0.0)
        optimizer = DAgger(expert, options, models=models)
        before = await toys.measured(start, models, turns=3)
        update, _ = await toys.rounds(
            optimizer, start, folder, models, count=2, n=1, turns=3, seed=seed, todo=32
        )
        return before, await toys.measured(update.bundle, models, turns=3)


async def ranked(objective: str, seed: int, *, control: bool) -> tuple[float, float]:
    """A reward model: chance, and the share of unseen pairs that it ranks as the true reward does."""
    turns = 1 if objective == "outcome" else 2
    with tempfile.TemporaryDirectory() as path:
        folder, models = Path(path), LocalModels()
        start = toys.beginning(folder, seed)
        groups = await toys.collect(start, toys.tasks(48, seed, turns), 8, models=models, seed=seed)
        options = RewardModelOptions(**{**OFFLINE, "epochs": 14}, objective=objective)
        update = await RewardModel(options, models=models).step(
            start, toys.shuffled(groups) if control else groups, toys.context(folder)
        )
        reward = LearnedReward(update.bundle["reward_model"], models=models, squash=objective == "outcome")
        right = []
        for group in await toys.collect(start, toys.tasks(40, 555, turns), 8, models=models, seed=9):
            scored = [(t.reward, reward(t).value) for t in group.trajectories]
            for (first, one), (second, other) in zip(scored[::2], scored[1::2], strict=True):
                right += [(first > second) == (one > other)] if first != second else []
        return 0.5, fmean(right)


async def masked(seed: int, *, control: bool) -> tuple[float, float]:
    """NLPO of `examples/nlpo.py`: reward of the first batches and of the last."""
    curve = nlpo.train(seed, updates=50, shuffled=control)
    return fmean(curve[:2]), fmean(curve[-5:])


OTHERS: dict[str, Callable[..., Any]] = {
    "dagger": corrected,
    "reward model": partial(ranked, "pairs"),
    "outcome model": partial(ranked, "outcome"),
    "nlpo": masked,
}


def batches_to_threshold(seeds: int) -> dict[str, float]:
    """Mean batches that NLPO and PPO need; wanted: at most .7 of PPO's."""
    found = {
        name: fmean(
            nlpo.needed(nlpo.train(seed, nlpo.Options(top_mask=top), updates=70)) for seed in range(seeds)
        )
        for name, top in (("nlpo", nlpo.Options().top_mask), ("ppo", 1.0))
    }
    return {**found, "ratio": found["nlpo"] / found["ppo"]}


def methods(seeds: int) -> dict[str, dict[str, float]]:
    """Method → mean success before, after, least of the seeds, and of the control."""
    found = {}
    for name in (*ON_POLICY, *RECORDED, *OTHERS):
        run = OTHERS.get(name) or partial(one, name)
        clock = time.process_time()
        runs = [asyncio.run(run(seed, control=False)) for seed in range(seeds)]
        seconds = (time.process_time() - clock) / seeds
        controls = [asyncio.run(run(seed, control=True))[1] for seed in range(seeds)]
        after = [value for _, value in runs]
        found[name] = {
            "before": fmean(value for value, _ in runs),
            "after": fmean(after),
            "least": min(after),
            "control": fmean(controls),
            "cpu_seconds": seconds,
        }
        row = found[name]
        print(
            f"{name:16} {row['before']:.2f} → {row['after']:.3f} (least {row['least']:.3f})  "
            f"control {row['control']:.2f}  {seconds:.1f} CPU s",
            file=sys.stderr,
            flush=True,
        )
    return found


def training(*, seeds: int) -> None:
    """Measure and publish: the methods and NLPO's batches."""
    torch.set_num_threads(1)
    found, batches = methods(seeds), batches_to_threshold(seeds)
    rows = [
        [
            name,
            f"{one['before']:.2f}",
            f"{one['after']:.3f}",
            f"{one['least']:.3f}",
            f"{one['control']:.2f}",
            f"{one['cpu_seconds']:.1f}",
        ]
        for name, one in found.items()
    ]
    said = [
        f"Success on a task of four answers, means of {seeds} seeds; the control learns from exchanged rewards. "
        "Reward models: the share of unseen pairs ranked rightly. NLPO: its reward.",
        "",
        *table(["method", "before", "after", "least of the seeds", "control", "CPU s"], rows),
        f"NLPO reaches its threshold in {batches['nlpo']:.1f} batches, PPO in {batches['ppo']:.1f} "
        f"({batches['ratio']:.2f}; wanted: at most .7).",
    ]
    publish("Weight methods on a small task", said)
