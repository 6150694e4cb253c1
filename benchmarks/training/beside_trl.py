"""TRL's side: the same model, trajectories, pairs and turns, at its fastest micro-batch size."""

from __future__ import annotations

import statistics
from pathlib import Path
from typing import Any

import torch
from world import ACTION, GROUP, OPTIONS, TASKS, VOCABULARY, credited, measured, observations, pairs_of

from whet.learn.training.batch import parts
from whet.learn.training.learner import Learner
from whet.learn.training.model import Decoder, to_transformers
from whet.learn.training.network import predict
from whet.learn.training.optim import OptimOptions
from whet.learn.training.policy_gradient import PolicyLoss
from whet.types import Group

SIZES = (8, 16, 32, 64)


class Trl:
    """TRL's trainer of a method over the same model and trajectories."""

    def __init__(self, decoder: Decoder, groups: list[Group], folder: Path, method: str = "grpo") -> None:
        self.method = method
        self.trainer = _trainer(method, decoder, folder)
        self.model = self.trainer.model
        self.model.train()
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-3, weight_decay=0.0)
        self.rows = _rows(groups)
        self.pairs = _pair_rows(groups) if method == "dpo" else []

    def batches(self, size: int) -> list[dict[str, torch.Tensor]]:
        """Micro-batches of so many sequences, by length and padded as TRL pads."""
        return {"grpo": self._grpo, "sft": self._sft, "dpo": self._dpo}[self.method](size)

    def _grpo(self, size: int) -> list[dict[str, torch.Tensor]]:
        """Prompts on the left, the rest on the right."""

        total = torch.tensor(float(sum(sum(row["mask"]) for row in self.rows)))
        made = []
        for start in range(0, len(self.rows), size):
            part = self.rows[start : start + size]
            made.append(
                {
                    "prompt_ids": _left([row["prompt"] for row in part]),
                    "prompt_mask": _left([[1] * len(row["prompt"]) for row in part]),
                    "completion_ids": _right([row["completion"] for row in part]),
                    "completion_mask": _right([[1] * len(row["completion"]) for row in part]),
                    "tool_mask": _right([row["mask"] for row in part]),
                    "old_per_token_logps": _right([row["old"] for row in part]),
                    "advantages": torch.tensor([row["advantage"][0] for row in part]),
                    "num_items_in_batch": total,
                }
            )
        return made

    def _sft(self, size: int) -> list[dict[str, torch.Tensor]]:
        made = []
        for start in range(0, len(self.rows), size):
            part = self.rows[start : start + size]
            whole = [[*row["prompt"], *row["completion"]] for row in part]
            labels = [
                [-100] * len(row["prompt"])
                + [i if chosen else -100 for i, chosen in zip(row["completion"], row["mask"], strict=True)]
                for row in part
            ]
            made.append(
                {
                    "input_ids": _right(whole),
                    "attention_mask": _right([[1] * len(one) for one in whole]),
                    "labels": _right(labels, value=-100),
                }
            )
        return made

    def _dpo(self, size: int) -> list[dict[str, torch.Tensor]]:
        made = []
        for start in range(0, len(self.pairs), max(1, size // 2)):
            part = self.pairs[start : start + max(1, size // 2)]
            sides = [side for place in (0, 1) for side in (pair[place] for pair in part)]
            made.append(
                {
                    "input_ids": _right([ids for ids, _ in sides]),
                    "attention_mask": _right([[1] * len(ids) for ids, _ in sides]),
                    "completion_mask": _right([mask for _, mask in sides]),
                }
            )
        return made

    def gradients(self, batches: list[dict[str, torch.Tensor]]) -> dict[str, torch.Tensor]:
        """Forward and backward over all micro-batches."""
        self.trainer.current_gradient_accumulation_steps = len(batches)
        if self.method == "grpo":
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


def _trainer(method: str, decoder: Decoder, folder: Path) -> Any:
    import trl
    from datasets import Dataset
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    words = Tokenizer(models.WordLevel({f"w{i}": i for i in range(VOCABULARY)}, unk_token="w0"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=words, pad_token="w0", eos_token="w3")
    shared: dict[str, Any] = {
        "output_dir": str(folder),
        "use_cpu": True,
        "report_to": [],
        "bf16": False,
        "gradient_checkpointing": False,
        "disable_tqdm": True,
    }
    more: dict[str, Any] = {}
    if method == "grpo":
        rows = {"prompt": ["w4"] * TASKS}
        more["reward_funcs"] = lambda completions, **_: [0.0] * len(completions)
        config = trl.GRPOConfig(
            **shared,
            num_generations=GROUP,
            per_device_train_batch_size=GROUP,
            loss_type="dapo",
            beta=0.0,
            epsilon=0.2,
            epsilon_high=0.28,
            scale_rewards="none",
            max_completion_length=OPTIONS.max_length,
        )
    elif method == "sft":
        rows, config = {"prompt": ["w4"], "completion": ["w5 w6"]}, trl.SFTConfig(**shared)
    else:
        rows = {"prompt": ["w4"], "chosen": ["w5"], "rejected": ["w6"]}
        config = trl.DPOConfig(**shared, beta=0.1)
        more["ref_model"] = to_transformers(decoder)
    made = getattr(trl, f"{method.upper()}Trainer")(
        model=to_transformers(decoder),
        args=config,
        train_dataset=Dataset.from_dict(rows),
        processing_class=tokenizer,
        **more,
    )
    made.current_gradient_accumulation_steps = 1
    return made


def _left(lists: list[list[Any]]) -> torch.Tensor:
    most = max(map(len, lists))
    return torch.tensor([[0] * (most - len(values)) + values for values in lists])


def _right(lists: list[list[Any]], value: int = 0) -> torch.Tensor:
    most = max(map(len, lists))
    return torch.tensor([values + [value] * (most - len(values)) for values in lists])


def _rows(groups: list[Group]) -> list[dict[str, list[Any]]]:
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


def _pair_rows(groups: list[Group]) -> list[tuple[tuple[list[int], list[int]], ...]]:
    """Ids and mask of both sides of our pairs, the shortest first."""
    found = []
    for pair in pairs_of(groups):
        sides = []
        for (sequence,) in (pair.chosen, pair.rejected):
            mask = [0] * len(sequence.ids)
            for place in sequence.targets:
                mask[place] = 1
            sides.append((list(sequence.ids), mask))
        found.append(tuple(sides))
    return sorted(found, key=lambda sides: max(len(ids) for ids, _ in sides))


def agreement(decoder: Decoder, groups: list[Group], theirs: dict[str, torch.Tensor]) -> float:
    """Largest relative difference between our gradients and TRL's, over parameters."""
    cut = parts(credited(groups).sequences)
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


def timed(other: Trl, repeat: int) -> tuple[int, float]:
    """The fastest micro-batch size, and the CPU seconds of a step at it."""
    once = {}
    for size in SIZES:
        batches = other.batches(size)
        once[size] = measured(lambda batches=batches: other.step(batches), 1)[1]
    best = min(once, key=once.__getitem__)
    batches = other.batches(best)
    return best, measured(lambda: other.step(batches), repeat)[1]
