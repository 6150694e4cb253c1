"""One LoRA-GRPO round of a wide model on the CPU: what it takes in memory.

    python benchmarks/wide.py [--limit 8] [--json]

Hidden width 2,048, a vocabulary of 150,000, 4 layers, random weights: the rows of logits of the chosen
tokens alone would be larger than the model.  One process makes the model's folder; another, whose
memory is measured, adopts it with LoRA factors, samples a group through the batched sampler and
takes one step of GRPO, its divergence from the reference measured too.  Exits with 1 above the limit.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import resource
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

HIDDEN, LAYERS, VOCABULARY = 2_048, 4, 150_000
GROUPS, GROUP, PROMPT, ANSWER = 2, 8, 256, 32


def make(folder: Path) -> None:
    """Save the model as one would download it."""
    import torch
    from transformers import Qwen2Config, Qwen2ForCausalLM

    torch.manual_seed(0)
    config = Qwen2Config(
        hidden_size=HIDDEN,
        num_hidden_layers=LAYERS,
        vocab_size=VOCABULARY,
        intermediate_size=5_504,
        num_attention_heads=16,
        num_key_value_heads=8,
        tie_word_embeddings=True,
    )
    Qwen2ForCausalLM(config).save_pretrained(folder)


async def round_of(folder: Path) -> dict[str, Any]:
    """Adopt, sample, learn; seconds of each and what the step measured."""
    from whet.learn.loop import Context
    from whet.learn.optimizers.grpo import GRPO, GRPOOptions
    from whet.learn.training.huggingface import LoRAOptions
    from whet.learn.training.local import LocalModels, adopted
    from whet.types import Bundle, Group, Outcome, Step, Task, Trajectory

    began = time.perf_counter()
    models = LocalModels()
    start = adopted("policy", folder / "model", folder / "factors", lora=LoRAOptions())
    sampler = models.sampler(start)
    rng = random.Random(0)
    loaded = time.perf_counter()

    async def one(task: Task, prompt: list[int], index: int) -> Trajectory:
        session = sampler.session(int(task.id) * GROUP + index)
        sampled = await session.generate(prompt, stop_id=None, max_new_tokens=ANSWER)
        step = Step(tokens=sampled.tokens, usage=sampled.usage)
        return Trajectory(task=task, steps=[replace(step, reward=float(index % 2))], outcome=Outcome.FAILURE)

    groups = []
    for number in range(GROUPS):
        task = Task(id=str(number))
        prompt = [rng.randrange(VOCABULARY) for _ in range(PROMPT)]
        groups.append(Group(task, await asyncio.gather(*[one(task, prompt, i) for i in range(GROUP)])))
    sampled = time.perf_counter()

    async def nothing(*_: Any, **__: Any) -> list[Group]:
        return []

    context = Context(rollout=nothing, folder=folder, baseline={"success": 0.5})
    optimizer = GRPO(GRPOOptions(steps=2, checkpoint_every=2), models=models)
    update = await optimizer.step(Bundle([start]), groups, context)
    return {
        "load_seconds": round(loaded - began, 1),
        "sample_seconds": round(sampled - loaded, 1),
        "step_seconds": round(time.perf_counter() - sampled, 1),
        "chosen_tokens": GROUPS * GROUP * ANSWER,
        "metrics": {name: round(value, 6) for name, value in update.metrics.items()},
    }


def measured(folder: Path) -> dict[str, Any]:
    """The figures of a process of its own, and its peak of resident memory."""
    done = subprocess.run(
        [sys.executable, __file__, "--inside", str(folder)], stdout=subprocess.PIPE, check=True, text=True
    )
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--limit", type=float, default=8.0, help="GB of resident memory")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--make", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--inside", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.make:
        make(given.make)
        return 0
    if given.inside:
        figures = asyncio.run(round_of(given.inside))
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9
        print(json.dumps({"peak_gb": round(peak, 2), **figures}))
        return 0
    with tempfile.TemporaryDirectory() as path:
        model = Path(path) / "model"
        subprocess.run([sys.executable, __file__, "--make", str(model)], check=True)
        figures = measured(Path(path))
    if given.json:
        print(json.dumps(figures))
    else:
        print(
            f"{figures['peak_gb']} GB at most (limit {given.limit:g}): hidden {HIDDEN:,}, {LAYERS} layers, "
            f"{VOCABULARY:,} ids, {figures['chosen_tokens']} chosen tokens; load {figures['load_seconds']} s, "
            f"sampling {figures['sample_seconds']} s, step {figures['step_seconds']} s; {figures['metrics']}"
        )
    return int(figures["peak_gb"] > given.limit)


if __name__ == "__main__":
    sys.exit(main())
