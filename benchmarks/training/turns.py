"""What a trajectory costs to train on as its turns grow: one merged sequence, or a sample per turn."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

from world import ACTION, OBSERVATION, VOCABULARY, measured

from whet.learn.training.batch import Merged, merge, parts
from whet.learn.training.learner import Learner, cloning_loss
from whet.learn.training.model import ModelOptions, build
from whet.learn.training.optim import OptimOptions
from whet.types import Outcome, Step, Task, Tokens, Trajectory

TURNS = (1, 2, 5, 10, 15, 20, 25, 30)
TRAJECTORIES = 2


def trajectory(turns: int, seed: int) -> Trajectory:
    """Each turn reads OBSERVATION new ids after all that came before, and writes ACTION."""
    rng = random.Random(seed)
    context: list[int] = []
    steps = []
    for _ in range(turns):
        context += [rng.randrange(4, VOCABULARY) for _ in range(OBSERVATION)]
        wrote = [rng.randrange(4, VOCABULARY) for _ in range(ACTION)]
        steps.append(Step(tokens=Tokens(tuple(context), tuple(wrote), (-1.0,) * ACTION)))
        context += wrote
    return Trajectory(task=Task(id=str(seed)), steps=steps, outcome=Outcome.SUCCESS)


def per_turn(one: Trajectory) -> list[Merged]:
    """What there is to compute if every call is a sample of its own."""
    found = []
    for step in one.steps:
        assert step.tokens is not None
        ids = [*step.tokens.prompt_ids, *step.tokens.output_ids]
        places = list(range(len(step.tokens.prompt_ids), len(ids)))
        found.append(Merged(len(found), ids, places, [-1.0] * len(places)))
    return found


def turns(repeat: int) -> list[dict[str, Any]]:
    """CPU seconds and tokens per trajectory at each number of turns, both ways."""
    longest = max(TURNS) * (OBSERVATION + ACTION)
    learner = Learner(build(ModelOptions(max_length=longest), VOCABULARY, 0), OptimOptions())
    rows = []
    for count in TURNS:
        every = [trajectory(count, seed) for seed in range(TRAJECTORIES)]
        row: dict[str, Any] = {"turns": count}
        ways = {
            "merged": ([s for n, t in enumerate(every) for s in merge(t, n)[0]], True),
            "per_turn": ([s for t in every for s in per_turn(t)], False),
        }
        for name, (sequences, share) in ways.items():

            def step(sequences: list[Merged] = sequences, share: bool = share) -> None:
                cut = parts(sequences, share=share)
                learner.update(cut, cloning_loss(cut), rate=1e-3)

            row[f"{name}_ms"] = round(1e3 * measured(step, repeat)[1] / TRAJECTORIES, 1)
            row[f"{name}_tokens"] = sum(len(s.ids) for s in sequences) // TRAJECTORIES
        rows.append(row)
    return rows


def plot(rows: list[dict[str, Any]], path: Path) -> None:
    """The two curves as an SVG that needs nothing to be looked at."""
    wide, high, left, low = 560, 320, 56, 40
    most_x, most_y = max(row["turns"] for row in rows), max(row["per_turn_ms"] for row in rows)

    def point(row: dict[str, Any], name: str) -> tuple[float, float]:
        x = left + (wide - left - 20) * row["turns"] / most_x
        return x, high - low - (high - low - 20) * row[f"{name}_ms"] / most_y

    def curve(name: str, colour: str, label: str) -> str:
        places = " ".join(f"{x:.1f},{y:.1f}" for x, y in (point(row, name) for row in rows))
        x, y = point(rows[-1], name)
        line = f'<polyline points="{places}" fill="none" stroke="{colour}" stroke-width="2"/>'
        return f'{line}<text x="{x - 6:.1f}" y="{y - 8:.1f}" text-anchor="end" fill="{colour}">{label}</text>'

    marks = "".join(
        f'<text x="{point(row, "merged")[0]:.1f}" y="{high - low + 18}" text-anchor="middle">{row["turns"]}</text>'
        for row in rows
    )
    levels = "".join(
        f'<text x="{left - 6}" y="{high - low - (high - low - 20) * share + 4:.1f}" text-anchor="end">'
        f"{most_y * share:.0f}</text>"
        for share in (0.0, 0.5, 1.0)
    )
    path.write_text(
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{wide}" height="{high}" font-family="sans-serif" '
        f'font-size="12"><rect width="{wide}" height="{high}" fill="white"/>'
        f'<path d="M{left},20V{high - low}H{wide - 20}" fill="none" stroke="#888"/>{marks}{levels}'
        f'<text x="{wide / 2}" y="{high - 6}" text-anchor="middle">turns</text>'
        f'<text x="14" y="14">CPU ms per trajectory</text>'
        f"{curve('per_turn', '#b3402a', 'a sample per turn')}{curve('merged', '#1f6f8b', 'one merged sequence')}"
        "</svg>\n",
        encoding="utf-8",
    )
