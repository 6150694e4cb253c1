"""Teach a small policy to call your functions, from rows as OpenAI's fine-tuning files have them.

    python examples/function_calls.py                       on requests made from a seed
    python examples/function_calls.py --data calls.jsonl    on your own

A row is `{"messages": [..., {"role": "assistant", "tool_calls": [...]}], "tools": [...]}`.  One row in five is
kept aside; what is printed is the share of those whose calls are exactly right.  The policy chooses among
the functions that are offered and the values that the request names, so it can be asked about functions
that it never saw: `--ask "Please rent a garden for 3 guests"`.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec

from whet.learn.datasets.calls import FunctionCall, FunctionSpec, functions_of, message_of, same
from whet.learn.datasets.splits import split
from whet.learn.loop import Context
from whet.learn.optimizers.sft import SFT, SFTOptions
from whet.learn.training.local import LocalModels, fresh
from whet.learn.training.optim import OptimOptions
from whet.models.sampling import TokenSampler
from whet.types import Bundle, Split, Task
from whet.worlds.calls import (
    END,
    IDS,
    TOKENS,
    CallView,
    InvalidCall,
    call_tasks,
    functions,
    lessons,
    requests,
    wanted,
)


async def call(
    sampler: TokenSampler, request: str, offered: Sequence[FunctionSpec]
) -> list[FunctionCall] | None:
    """The calls that the policy makes; None if what it said is none."""
    view = CallView(request, offered)
    said = await sampler.session(0).generate(
        [IDS[token] for token in view.opening()], stop_id=IDS[END], max_new_tokens=64
    )
    try:
        return view.decode([TOKENS[id] for id in said.output_ids])
    except InvalidCall:
        return None


def told(what: str, done: int, total: int | None = None, **figures: float | str) -> None:
    """Progress, every 50 updates."""
    if done % 50 == 0:
        print(f"{what} {done}/{total}  loss {figures.get('loss', 0):.3f}", file=sys.stderr)


async def main() -> None:
    """Train, judge, and answer."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, help="JSON lines of messages and tools")
    parser.add_argument("--count", type=int, default=8_000, help="requests to make, without --data")
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--output", type=Path, default=Path("function-calls"), help="where the weights go")
    parser.add_argument("--ask", help="answer this request in the end")
    options = parser.parse_args()

    if options.data is None:
        tasks = call_tasks(options.count)
    else:
        tasks = requests(json.loads(line) for line in options.data.read_text().splitlines() if line.strip())
    parts: dict[Split, list[Task]] = {part: [] for part in Split}
    for task in split(tasks, seed=0, by="id"):
        parts[task.split or Split.TRAIN].append(task)
    learned = lessons(parts[Split.TRAIN])
    held = [*parts[Split.VALIDATION], *parts[Split.GATE]]
    print(f"{len(learned)} of {len(parts[Split.TRAIN])} rows have a form by slot; {len(held)} are kept aside")

    models = LocalModels()
    shutil.rmtree(options.output / "start", ignore_errors=True)  # of an earlier run
    start = Bundle([fresh("policy", options.output / "start", vocab_size=len(TOKENS), seed=0)])
    how = SFTOptions(epochs=options.epochs, batch=16, optim=OptimOptions(learning_rate=4e-3))
    context = Context(rollout=None, folder=options.output, progress=told)  # type: ignore[arg-type]
    update = await SFT(how, models=models).step(start, learned, context)
    sampler = models.sampler(update.bundle["policy"], greedy=True)
    right = 0
    for task in held:
        calls = await call(sampler, task.instruction, functions_of(task.initial_state["tools"]))
        right += calls is not None and same(calls, wanted(task))
    print(f"exactly right: {right} of {len(held)}; weights in {update.bundle['policy'].content['path']}")
    if options.ask:
        offered = functions() if options.data is None else functions_of(tasks[0].initial_state["tools"])
        calls = await call(sampler, options.ask, offered)
        print(msgspec.json.encode(message_of(calls)).decode() if calls else "no function does this")


if __name__ == "__main__":
    asyncio.run(main())
