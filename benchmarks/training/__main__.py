"""Speed and memory of weight training, and beside TRL's.

    python benchmarks/training [--json] [--repeat 5] [--no-trl] [--plot docs/turns.svg]

The comparison needs `pip install trl==1.16.0`.  Both sides run in this process, on one thread, with the
same weights, the same observations, the same number of turns and of sampled tokens, and the same
trajectories, advantages and pairs in the training steps.  Where they differ, the difference favours TRL:

- TRL's step is its trainer's loss, backward, clipping and AdamW on tensors made beforehand, at the
  fastest of several micro-batch sizes; ours begins at the trajectories (merging, advantages, packing),
  and that of a decoder of whet's own includes Muon.
- TRL's rollout is `model.generate` once a turn over the whole context, as its tool loop does, and
  nothing around it; ours goes through policies, sessions and the event loop.

The gradients of GRPO are compared, so that the same work is what is timed.  Times are CPU seconds of the
process, each figure a median; memory is of a process of its own for each side.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import sys
import tempfile
import warnings
from pathlib import Path
from typing import Any

import torch
from floor import floor
from memory import SIDES, memory
from turns import plot, turns
from world import GROUP, LEARNERS, OPTIONS, STEPS, TASKS, VOCABULARY, credited, learner_of, measured, rollouts

from whet.learn.training.batch import parts
from whet.learn.training.model import build
from whet.learn.training.sampler import Sampler

TARGETS = {
    "grpo_ratio": 0.5,
    "rollout_and_step_ratio": 0.6,
    "sft_ratio": 0.4,
    "dpo_ratio": 0.6,
}


def ours(repeat: int) -> dict[str, Any]:
    """Rollouts, steps, and what sharing saves."""
    sampler = Sampler(build(OPTIONS, VOCABULARY, 0))
    groups = asyncio.run(rollouts(sampler, 0))
    made = credited(groups)
    tokens, targets = made.counts.tokens, made.counts.targets
    found: dict[str, Any] = {
        "parameters": sampler.network.count(),
        "rollouts": TASKS * GROUP,
        "tokens": tokens,
        "action_tokens": targets,
        "computed_tokens": sum(part.computed for part in parts(made.sequences)),
        "unmerged_tokens": made.counts.unmerged_tokens,
        "rollout_seconds": round(measured(lambda: asyncio.run(rollouts(sampler, 1)), repeat)[1], 4),
    }
    found["rollout_tokens_per_second"] = round(targets / found["rollout_seconds"])
    found["steps"] = {path: {} for path in LEARNERS}
    for (path, seconds_of), (name, step) in itertools.product(found["steps"].items(), STEPS.items()):
        with tempfile.TemporaryDirectory() as place:
            learner = learner_of(path, Path(place) / "m")
            seconds = measured(lambda step=step, learner=learner: step(learner, groups), repeat)[1]
        seconds_of[name] = round(seconds, 4)
    found["episodes_per_second"] = {
        at_once: round(
            tasks
            * GROUP
            / measured(
                lambda n=at_once, t=tasks: asyncio.run(rollouts(sampler, 2, tasks=t, at_once=n)), repeat
            )[1],
            1,
        )
        for at_once, tasks in ((1, 2), (8, 8), (64, TASKS))
    }
    return found


def beside_trl(found: dict[str, Any], repeat: int) -> dict[str, Any]:
    """TRL's side, and the ratios."""
    import trl
    from beside_trl import Trl, agreement, timed

    decoder = build(OPTIONS, VOCABULARY, 0)
    groups = asyncio.run(rollouts(Sampler(decoder), 0))
    theirs: dict[str, Any] = {"version": trl.__version__}
    for name in STEPS:
        with tempfile.TemporaryDirectory() as folder:
            other = Trl(decoder, groups, Path(folder), name)
            if name == "grpo":
                difference = agreement(decoder, groups, other.gradients(other.batches(32)))
                theirs["gradient_difference"] = difference
                theirs["rollout_seconds"] = round(measured(other.rollouts, repeat)[1], 4)
            size, seconds = timed(other, repeat)
            theirs[name] = {"micro_batch": size, "seconds": round(seconds, 4)}
            theirs[f"{name}_ratio"] = {
                path: round(own[name] / seconds, 3) for path, own in found["steps"].items()
            }
    both = [side["rollout_seconds"] for side in (found, theirs)]
    theirs["rollout_speed"] = round(both[1] / both[0], 2)
    theirs["rollout_and_step_ratio"] = round(
        (found["steps"]["embedded"]["grpo"] + both[0]) / (theirs["grpo"]["seconds"] + both[1]), 3
    )
    theirs["memory"] = {name: memory(name) for name in STEPS}
    return theirs


def text(figures: dict[str, Any]) -> str:
    """For reading."""
    own = figures["ours"]
    lines = [
        f"{own['parameters']:,} parameters, {own['rollouts']} rollouts, {own['tokens']:,} tokens, "
        f"{own['action_tokens']:,} of them chosen, {own['computed_tokens']:,} computed "
        f"({own['unmerged_tokens']:,} if turns were not merged); 1 thread, CPU seconds",
        f"rollouts {own['rollout_seconds']} s, {own['rollout_tokens_per_second']:,} chosen tokens/s; "
        f"episodes/s at once {own['episodes_per_second']}",
        *(
            f"{path}: " + ", ".join(f"{name} step {s} s" for name, s in one.items())
            for path, one in own["steps"].items()
        ),
    ]
    if "trl" in figures:
        theirs = figures["trl"]
        lines.append(
            f"against TRL {theirs['version']} (gradients differ by {theirs['gradient_difference']:.1e}):"
        )
        lines += [
            f"  {name} step: {theirs[name]['seconds']} s in micro-batches of {theirs[name]['micro_batch']}"
            for name in STEPS
        ]
        lines += [f"  {name} {theirs[name]} (wanted ≤ {wanted})" for name, wanted in TARGETS.items()]
        lines.append(f"  rollout tokens/s × {theirs['rollout_speed']} of generate per turn (wanted ≥ 1.5)")
        for name, found in theirs["memory"].items():
            lines.append(
                f"  {name} peak memory {found['peak_ratio']} (wanted ≤ 0.7), of what the step adds "
                f"{found['added_ratio']}: { ({side: found[side] for side in (*SIDES, 'trl')}) }"
            )
    if "floor" not in figures:
        return "\n".join(lines)
    lines.append(f"matmul peak {figures['floor']['matmul_gflops']} GFLOP/s")
    for name in ("embedded", "wider"):
        one = figures["floor"][name]
        lines.append(f"  {name} shape: {one}")
    lines.append("turns: CPU ms (tokens) per trajectory, merged and with a sample per turn")
    lines += [
        f"  {row['turns']:>3} {row['merged_ms']:>8} ({row['merged_tokens']}) {row['per_turn_ms']:>9} "
        f"({row['per_turn_tokens']})"
        for row in figures["turns"]
    ]
    return "\n".join(lines)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--repeat", type=int, default=5, help="runs per figure, of which the median is shown")
    parser.add_argument("--no-trl", action="store_true", help="leave out the comparison")
    parser.add_argument("--only-trl", action="store_true", help="the comparison alone")
    parser.add_argument("--plot", type=Path, help="where to draw the cost of turns, as SVG")
    given = parser.parse_args()
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore")  # of the other library's dependencies
    figures: dict[str, Any] = {"ours": ours(given.repeat)}
    print("ours done", file=sys.stderr, flush=True)
    if not given.only_trl:
        figures["floor"] = floor(given.repeat)
        print("floor done", file=sys.stderr, flush=True)
        figures["turns"] = turns(given.repeat)
        print("turns done", file=sys.stderr, flush=True)
        if given.plot:
            plot(figures["turns"], given.plot)
    if not given.no_trl:
        figures["trl"] = beside_trl(figures["ours"], given.repeat)
    print(json.dumps(figures) if given.json else text(figures))


if __name__ == "__main__":
    main()
