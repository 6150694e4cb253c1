"""Speed of the embedded policy: rollouts, cloning and GRPO, and GRPO beside TRL's.

    python benchmarks/training.py [--json] [--repeat 5] [--no-trl]

The comparison needs `pip install trl==1.16.0`.  Both sides run in this process, on
one thread, with the same weights, the same observations, the same number of turns
and of sampled tokens, and the same trajectories and advantages in the training step.
Where they differ, the difference favours TRL:

- TRL's training step is `GRPOTrainer.compute_loss`, backward, clipping and AdamW on
  tensors made beforehand, at the fastest of several micro-batch sizes; ours begins at
  the trajectories (merging, advantages, padding) and includes Muon.
- TRL's rollout is `model.generate` once a turn over the whole context, as its tool loop
  does, and nothing around it; ours goes through policies, sessions and the event loop.

The gradients of both are compared, so that the same work is what is timed.
CPU-seconds are the process's; each figure is a median.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import statistics
import tempfile
import time
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from whet.training.batch import minibatches, parts
from whet.training.credit import credit
from whet.training.learner import Learner, cloning_loss
from whet.training.model import Decoder, ModelOptions, build, to_transformers
from whet.training.network import predict
from whet.training.optim import OptimOptions
from whet.training.policy_gradient import PolicyLoss
from whet.training.sampler import Sampler
from whet.types import Group, Outcome, Step, Task, Trajectory

TASKS, GROUP, OBSERVATION, ACTION, VOCABULARY = 32, 8, 60, 6, 150
OPTIONS = ModelOptions()


def observations(task: int) -> list[list[int]]:
    """2 to 6 turns of about 60 ids, the same for all rollouts of a task."""
    rng = random.Random(task)
    return [
        [rng.randrange(4, VOCABULARY) for _ in range(OBSERVATION + rng.randint(-15, 15))]
        for _ in range(rng.randint(2, 6))
    ]


async def rollouts(sampler: Sampler, seed: int) -> list[Group]:
    """Every task GROUP times, with exactly ACTION ids a turn."""

    async def one(task: Task, number: int, index: int) -> Trajectory:
        session = sampler.session(seed * 1_000_003 + number * GROUP + index)
        steps = []
        for observation in observations(number):
            sampled = await session.generate(observation, stop_id=None, max_new_tokens=ACTION)
            steps.append(Step(tokens=sampled.tokens))
        # a reward that no group can agree on, so that none is skipped
        steps[-1] = replace(steps[-1], reward=(index % 2) + 0.01 * index)
        return Trajectory(task=task, steps=steps, outcome=Outcome.FAILURE)

    made = [(Task(id=str(number)), number) for number in range(TASKS)]
    done = await asyncio.gather(
        *[one(task, number, index) for task, number in made for index in range(GROUP)]
    )
    return [Group(task, done[i * GROUP : (i + 1) * GROUP]) for i, (task, _) in enumerate(made)]


def ours_step(learner: Learner, groups: list[Group]) -> PolicyLoss:
    """What GRPO does with one round of groups."""
    credited = credit(groups, score=None, baseline="group", scale="none", unknown=None)
    (batch,) = minibatches(credited.sequences, None, random.Random(0))
    cut = parts(batch)
    loss = PolicyLoss(parts=cut, aggregation="dapo")
    learner.update(cut, loss, rate=1e-3)
    return loss


def cloning_step(learner: Learner, groups: list[Group]) -> None:
    """One update of SFT on a round of trajectories."""
    credited = credit(groups, score=None, baseline="group", scale="none", unknown=None)
    cut = parts(credited.sequences)
    learner.update(cut, cloning_loss(cut), rate=1e-3)


def measured(work: Callable[[], Any], repeat: int) -> tuple[float, float]:
    """Median wall-clock and CPU seconds, after one run that does not count."""
    work()
    wall, cpu = [], []
    for _ in range(repeat):
        before = time.perf_counter(), time.process_time()
        work()
        wall.append(time.perf_counter() - before[0])
        cpu.append(time.process_time() - before[1])
    return statistics.median(wall), statistics.median(cpu)


class Trl:
    """TRL's GRPO over the same model and trajectories."""

    def __init__(self, decoder: Decoder, groups: list[Group], folder: Path) -> None:
        from datasets import Dataset
        from tokenizers import Tokenizer, models, pre_tokenizers
        from transformers import PreTrainedTokenizerFast
        from trl import GRPOConfig, GRPOTrainer

        words = Tokenizer(models.WordLevel({f"w{i}": i for i in range(VOCABULARY)}, unk_token="w0"))
        words.pre_tokenizer = pre_tokenizers.Whitespace()
        tokenizer = PreTrainedTokenizerFast(tokenizer_object=words, pad_token="w0", eos_token="w3")
        config = GRPOConfig(
            output_dir=str(folder),
            use_cpu=True,
            report_to=[],
            bf16=False,
            gradient_checkpointing=False,
            num_generations=GROUP,
            per_device_train_batch_size=GROUP,
            loss_type="dapo",
            beta=0.0,
            epsilon=0.2,
            epsilon_high=0.28,
            scale_rewards="none",
            max_completion_length=OPTIONS.max_length,
        )
        self.trainer = GRPOTrainer(
            model=to_transformers(decoder),
            reward_funcs=lambda completions, **_: [0.0] * len(completions),
            args=config,
            train_dataset=Dataset.from_dict({"prompt": ["w4"] * TASKS}),
            processing_class=tokenizer,
        )
        self.model = self.trainer.model
        self.model.train()
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-3, weight_decay=0.0)
        self.rows = self._rows(groups)

    def _rows(self, groups: list[Group]) -> list[dict[str, list[Any]]]:
        """Prompt of the first turn, everything after it, and which of that the policy chose."""
        rows = []
        for group in groups:
            mean = statistics.fmean(t.reward or 0.0 for t in group.trajectories)
            for trajectory in group.trajectories:
                calls = [step.tokens for step in trajectory.steps if step.tokens]
                first, last = list(calls[0].prompt_ids), calls[-1]
                whole = [*last.prompt_ids, *last.output_ids]
                mask, old = [0] * len(whole), [0.0] * len(whole)
                for call in calls:
                    begin = len(call.prompt_ids)
                    mask[begin : begin + ACTION] = [1] * ACTION
                    old[begin : begin + ACTION] = call.logprobs
                rows.append(
                    {
                        "prompt": first,
                        "completion": whole[len(first) :],
                        "mask": mask[len(first) :],
                        "old": old[len(first) :],
                        "advantage": [(trajectory.reward or 0.0) - mean],
                    }
                )
        return sorted(rows, key=lambda row: len(row["prompt"]) + len(row["completion"]))

    def batches(self, size: int) -> list[dict[str, torch.Tensor]]:
        """Micro-batches by length, padded as TRL pads: prompts on the left, the rest on the right."""

        def left(lists: list[list[Any]]) -> torch.Tensor:
            most = max(map(len, lists))
            return torch.tensor([[0] * (most - len(values)) + values for values in lists])

        def right(lists: list[list[Any]]) -> torch.Tensor:
            most = max(map(len, lists))
            return torch.tensor([values + [0] * (most - len(values)) for values in lists])

        total = torch.tensor(float(sum(sum(row["mask"]) for row in self.rows)))
        made = []
        for start in range(0, len(self.rows), size):
            part = self.rows[start : start + size]
            made.append(
                {
                    "prompt_ids": left([row["prompt"] for row in part]),
                    "prompt_mask": left([[1] * len(row["prompt"]) for row in part]),
                    "completion_ids": right([row["completion"] for row in part]),
                    "completion_mask": right([[1] * len(row["completion"]) for row in part]),
                    "tool_mask": right([row["mask"] for row in part]),
                    "old_per_token_logps": right([row["old"] for row in part]),
                    "advantages": torch.tensor([row["advantage"][0] for row in part]),
                    "num_items_in_batch": total,
                }
            )
        return made

    def gradients(self, batches: list[dict[str, torch.Tensor]]) -> dict[str, torch.Tensor]:
        """Forward and backward over all micro-batches."""
        self.trainer.current_gradient_accumulation_steps = len(batches)
        self.trainer.args.steps_per_generation = len(batches)
        self.model.zero_grad(set_to_none=True)
        for batch in batches:
            self.trainer.compute_loss(self.model, batch).backward()
        return {name: p.grad for name, p in self.model.named_parameters() if p.grad is not None}

    def step(self, batches: list[dict[str, torch.Tensor]]) -> None:
        """One optimizer step."""
        self.gradients(batches)
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()

    @torch.no_grad()
    def rollouts(self) -> None:
        """Every rollout, all of them together, one `generate` a turn over the whole context."""
        self.model.eval()
        episodes = [(observations(number), [0][:0]) for number in range(TASKS) for _ in range(GROUP)]
        for turn in range(max(len(seen) for seen, _ in episodes)):
            active = [(seen, context) for seen, context in episodes if turn < len(seen)]
            for seen, context in active:
                context.extend(seen[turn])
            most = max(len(context) for _, context in active)
            ids = torch.tensor([[0] * (most - len(context)) + context for _, context in active])
            mask = torch.tensor([[0] * (most - len(c)) + [1] * len(c) for _, c in active])
            out = self.model.generate(
                input_ids=ids,
                attention_mask=mask,
                do_sample=True,
                temperature=1.0,
                top_k=0,
                top_p=1.0,
                min_new_tokens=ACTION,
                max_new_tokens=ACTION,
                pad_token_id=0,
            )
            for (_, context), row in zip(active, out[:, most:].tolist(), strict=True):
                context.extend(row)
        self.model.train()


def agreement(decoder: Decoder, groups: list[Group], theirs: dict[str, torch.Tensor]) -> float:
    """Largest relative difference between our gradients and TRL's, over parameters."""
    credited = credit(groups, score=None, baseline="group", scale="none", unknown=None)
    cut = parts(credited.sequences)
    learner = Learner(decoder, OptimOptions())
    loss = PolicyLoss(parts=cut, aggregation="dapo")
    for part in cut:
        loss(predict(learner.decoder, part), part).backward()
    worst = 0.0
    for name, weight in decoder.weights().items():
        if name != "model.embed_tokens.weight":  # transformers gives its padding row no gradient
            worst = max(worst, float((weight.grad - theirs[name]).norm() / (theirs[name].norm() + 1e-12)))
    learner.optimizer.clear()
    return worst


def compare(repeat: int, *, with_trl: bool) -> dict[str, Any]:
    """All figures."""
    decoder = build(OPTIONS, VOCABULARY, 0)
    sampler = Sampler(decoder)
    groups = asyncio.run(rollouts(sampler, 0))
    made = credit(groups, score=None, baseline="group", scale="none", unknown=None)
    tokens, targets = made.counts.tokens, made.counts.targets
    learner = Learner(build(OPTIONS, VOCABULARY, 0), OptimOptions())
    figures: dict[str, Any] = {
        "parameters": decoder.count(),
        "rollouts": TASKS * GROUP,
        "tokens": tokens,
        "action_tokens": targets,
        "unmerged_tokens": made.counts.unmerged_tokens,
        "threads": torch.get_num_threads(),
    }
    work: dict[str, Callable[[], Any]] = {
        "rollout": lambda: asyncio.run(rollouts(sampler, 1)),
        "grpo_step": lambda: ours_step(learner, groups),
        "cloning_step": lambda: cloning_step(learner, groups),
    }
    for name, do in work.items():
        wall, cpu = measured(do, repeat)
        figures[name] = {
            "seconds": round(wall, 4),
            "cpu_seconds": round(cpu, 4),
            "tokens_per_cpu_second": round(tokens / cpu),
            "action_tokens_per_cpu_second": round(targets / cpu),
        }
    if with_trl:
        figures |= beside_trl(decoder, groups, figures, repeat)
    return figures


def beside_trl(decoder: Decoder, groups: list[Group], figures: dict[str, Any], repeat: int) -> dict[str, Any]:
    """TRL's side, and the two ratios."""
    import trl

    with tempfile.TemporaryDirectory() as folder:
        other = Trl(decoder, groups, Path(folder))
        difference = agreement(decoder, groups, other.gradients(other.batches(32)))
        sizes = {}
        for size in (8, 16, 32, 64):
            batches = other.batches(size)
            sizes[size] = measured(lambda batches=batches: other.step(batches), 1)[1]
        best = min(sizes, key=lambda size: sizes[size])
        batches = other.batches(best)
        wall, cpu = measured(lambda: other.step(batches), repeat)
        roll_wall, roll_cpu = measured(other.rollouts, repeat)
    step, rollout = figures["grpo_step"]["cpu_seconds"], figures["rollout"]["cpu_seconds"]
    return {
        "trl": {
            "version": trl.__version__,
            "micro_batch": best,
            "step": {"seconds": round(wall, 4), "cpu_seconds": round(cpu, 4)},
            "rollout": {"seconds": round(roll_wall, 4), "cpu_seconds": round(roll_cpu, 4)},
        },
        "gradient_difference": difference,
        "step_ratio": round(step / cpu, 3),
        "rollout_and_step_ratio": round((step + rollout) / (cpu + roll_cpu), 3),
    }


def table(figures: dict[str, Any]) -> str:
    """For reading."""
    lines = [
        f"{figures['parameters']:,} parameters, {figures['rollouts']} rollouts, {figures['tokens']:,} tokens "
        f"({figures['action_tokens']:,} chosen; {figures['unmerged_tokens']:,} if turns were not merged), "
        f"{figures['threads']} thread",
        f"{'':14}{'seconds':>10}{'CPU s':>10}{'tokens / CPU s':>16}{'chosen / CPU s':>16}",
    ]
    for name in ("rollout", "grpo_step", "cloning_step"):
        row = figures[name]
        lines.append(
            f"{name:14}{row['seconds']:>10.3f}{row['cpu_seconds']:>10.3f}"
            f"{row['tokens_per_cpu_second']:>16,}{row['action_tokens_per_cpu_second']:>16,}"
        )
    if "trl" in figures:
        for name in ("rollout", "step"):
            row = figures["trl"][name]
            lines.append(f"{'TRL ' + name:14}{row['seconds']:>10.3f}{row['cpu_seconds']:>10.3f}")
        lines.append(
            f"CPU time against TRL {figures['trl']['version']}: step {figures['step_ratio']}, "
            f"rollout + step {figures['rollout_and_step_ratio']}; "
            f"gradients differ by {figures['gradient_difference']:.1e}"
        )
    return "\n".join(lines)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description="Speed of the embedded policy, and of GRPO beside TRL's.")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--repeat", type=int, default=5, help="runs per figure, of which the median is shown")
    parser.add_argument("--no-trl", action="store_true", help="leave out the comparison")
    given = parser.parse_args()
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore")  # of the other library's dependencies
    figures = compare(given.repeat, with_trl=not given.no_trl)
    print(json.dumps(figures) if given.json else table(figures))


if __name__ == "__main__":
    main()
