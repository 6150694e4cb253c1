"""One prompt and a table of 200 rows, whet beside GEPA: `python benchmarks/prompt_table.py [--seeds 20] [--first 60]`.

Both improve the prompt of the same scripted clerk (`whet.models.fakes.clerk`), which answers and proposes: it is
noisy, its rules interact, long prompts lose rules, and half of what it proposes is useless or harmful. Counted are all
its calls; whet's hold 60 that prove the result, which GEPA does not do. The truth is the share of 400 letters that
neither has seen. GEPA (extra `gepa`) gets the same rows, those of whet's gate included, 20 or 40 of them for its
validation set, and several budgets. The settings of Reflect were chosen on seeds below 50; the default ones are others.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import io
import statistics
import tempfile
from pathlib import Path
from typing import Any

from whet.learn.evolution.prompts.prompted import messages_of
from whet.learn.evolution.prompts.tabled import PromptSettings, TableInput, improve_prompt, plan_prompt
from whet.models import ScriptedModel
from whet.models.base import ModelRequest
from whet.models.fakes.clerk import Clerk
from whet.record.tables import RowTable

ROWS, FRESH = 200, 400


def truth(clerk: Clerk, prompt: str) -> float:
    """Share of the fresh letters that are answered right."""
    letters = clerk.rows(FRESH, seed=1000 + clerk.seed)
    asked = [ModelRequest.of(messages_of(prompt, letter["question"]), {}) for letter in letters]
    return sum(letter["answer"] in clerk(ask) for letter, ask in zip(letters, asked, strict=True)) / FRESH


def by_whet(seed: int, calls: int) -> tuple[int, float, bool]:
    """Calls, truth after, and whether the gate proved it."""
    clerk = Clerk(seed)
    rows = clerk.rows(ROWS, seed=seed)
    table = RowTable(Path("rows"), list(enumerate(rows, 1)), list(rows[0]), unit="row")
    model = ScriptedModel(clerk)
    with tempfile.TemporaryDirectory() as name:
        (Path(name) / "prompt.txt").write_text(clerk.prompt)
        settings = PromptSettings(calls=calls, seed=seed, output=Path(name) / "out")
        plan = plan_prompt(Path(name) / "prompt.txt", TableInput(data=table), settings, model)
        result = asyncio.run(improve_prompt(plan, model))
    return clerk.answered + clerk.proposed, truth(clerk, result.after), result.proven


def by_gepa(seed: int, metric_calls: int, held: int) -> tuple[int, float]:
    """Calls and truth after."""
    import gepa

    clerk = Clerk(seed)
    rows: list[Any] = [
        {"input": letter["question"], "answer": letter["answer"], "additional_context": {}}
        for letter in clerk.rows(ROWS, seed=seed)
    ]

    def ask(messages: Any) -> str:
        return clerk(ModelRequest.of(messages, {}))

    with contextlib.redirect_stdout(io.StringIO()):
        result = gepa.optimize(
            seed_candidate={"system_prompt": clerk.prompt},
            trainset=rows[held:],
            valset=rows[:held],
            task_lm=ask,
            reflection_lm=ask,
            max_metric_calls=metric_calls,
            seed=seed,
        )
    candidate: Any = result.best_candidate
    return clerk.answered + clerk.proposed, truth(clerk, candidate["system_prompt"])


def main() -> None:
    """Print a table: who, calls, truth before and after."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--first", type=int, default=60)
    parser.add_argument("--calls", type=int, nargs="*", default=[200, 300])
    parser.add_argument("--metric-calls", type=int, nargs="*", default=[200, 300, 600, 1200])
    words = parser.parse_args()
    seeds = range(words.first, words.first + words.seeds)
    before = statistics.fmean(truth(Clerk(seed), Clerk.prompt) for seed in seeds)
    print(f"as it stands: {before:.3f}")
    print(f"{'':24} {'calls':>7} {'after':>7}   each seed")
    for calls in words.calls:
        runs = [by_whet(seed, calls) for seed in seeds]
        proven = sum(run[2] for run in runs)
        each = " ".join(f"{run[1]:.2f}" for run in runs)
        spent, after = (statistics.fmean(run[column] for run in runs) for column in (0, 1))
        print(f"whet --calls {calls:<11} {spent:7.0f} {after:7.3f}   {each}; proven {proven} of {len(runs)}")
    for held in (20, 40):
        for metric_calls in words.metric_calls:
            gepas = [by_gepa(seed, metric_calls, held) for seed in seeds]
            each = " ".join(f"{after:.2f}" for _, after in gepas)
            spent, after = (statistics.fmean(run[column] for run in gepas) for column in (0, 1))
            print(f"GEPA {metric_calls:>5}, valset {held:<5} {spent:7.0f} {after:7.3f}   {each}", flush=True)


if __name__ == "__main__":
    main()
