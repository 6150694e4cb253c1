"""An evaluator fitted to what people preferred: each time they say more, a new version of it.

Bradley and Terry's model (1952) on plain features of an answer, fitted by gradient descent: the
weights stand in the evaluator's own text, where people can read and change them.  It replaces the one
before only if it agrees better with preferences that it was not fitted to, beyond chance, and
passes the proof that every evaluator has to pass.  It learns taste, not truth.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ..errors import InputError
from ..record.rows import row
from ..sandbox import Limits, Pool
from ..stats import Interval, wilson
from ..types import Preference, digest
from .evaluator import from_source
from .generation import Folder, Generated
from .proof import prove

_WEIGHTS = re.compile(r"^WEIGHTS: dict\[str, float\] = .*$", re.MULTILINE)
_HELD = 0.3
"""Share of the preferences, by the hash of their prompt, that nothing is fitted to."""
_FEWEST = 20
_STEPS, _RATE, _DECAY = 400, 0.5, 0.01


@dataclass(frozen=True, slots=True)
class Refit:
    """The outcome of a fit."""

    made: Generated
    fitted: int
    """Preferences that it was fitted to."""
    held: int
    """Preferences that it was judged by."""
    before: float
    """Share of those that the version before agrees with; ties count half."""
    after: float
    interval: Interval
    """95 %, of `after`."""
    taken: bool
    reason: str


async def refit(folder: Folder, preferences: Sequence[Preference], *, name: str) -> Refit:
    """Fit `name_preference` in a folder to preferences, and keep it if it agrees better with the others.

    Args:
        preferences: between texts; ties say nothing and are left out.

    Raises:
        InputError: fewer than 20 that can be used.
    """
    usable = [
        pair
        for pair in preferences
        if not pair.tie and isinstance(pair.chosen, str) and isinstance(pair.rejected, str)
    ]
    if len(usable) < _FEWEST:
        raise InputError(
            f"{len(usable)} preferences between texts: {_FEWEST} are needed to fit and to judge by"
        )
    # By the prompt: pairs of one question share a side, and keep it when more are recorded.
    held = [pair for pair in usable if int(digest(["held", pair.prompt]), 16) % 1000 < 1000 * _HELD]
    fitting = [pair for pair in usable if pair not in held]
    called = f"{name}_preference"
    path = folder.path / f"{called}.py"
    template = (Path(__file__).parent / "templates" / "preference.py").read_text(encoding="utf-8")
    old = path.read_text(encoding="utf-8") if path.is_file() else template
    async with Pool(Limits(wall_seconds=20.0, cpu_seconds=20.0)) as pool:
        # Fitted into the template; `old`, with whatever people changed in it, is only what has to be beaten.
        differences = await _features(template, fitting, pool)
        source = _WEIGHTS.sub(f"WEIGHTS: dict[str, float] = {_fit(differences)!r}", template)
        before, after = await _agreement(old, held, pool), await _agreement(source, held, pool)
    interval = wilson(after * len(held), len(held))
    rows = [row(pair.prompt, pair.chosen, label=1.0) for pair in held]
    parent = from_source(old, called).version if path.is_file() else None
    evaluator = from_source(source, called)
    proof = await prove(evaluator, rows=rows)
    generated = Generated(called, source, "preferences", proof, parent)
    accepted, reason = _taken(generated, before, after, interval)
    if accepted:
        folder.add([generated])
    return Refit(generated, len(fitting), len(held), before, after, interval, accepted, reason)


def _taken(generated: Generated, before: float, after: float, interval: Interval) -> tuple[bool, str]:
    if not generated.admitted:
        return False, f"it did not pass its proof: {'; '.join(generated.reasons)}"
    if interval[0] <= 0.5:
        return False, f"its agreement of {after:.2f} [{interval[0]:.2f}, {interval[1]:.2f}] may be chance"
    if after <= before:
        return False, f"it agrees no better than the version before ({after:.2f} and {before:.2f})"
    return (
        True,
        f"it agrees with {after:.2f} of the preferences held back, the version before with {before:.2f}",
    )


async def _features(template: str, preferences: Sequence[Preference], pool: Pool) -> list[dict[str, float]]:
    """Features of the chosen answer minus those of the rejected one, as the evaluator itself sees them."""
    differences = []
    async with pool.open({"evaluator.py": template}, "evaluator:features") as session:
        for pair in preferences:
            results = [await session.call([text, pair.prompt]) for text in (pair.chosen, pair.rejected)]
            if all(result.ok for result in results):
                chosen, rejected = results[0].value, results[1].value
                differences.append({name: chosen[name] - rejected[name] for name in chosen})
    return differences


def _fit(differences: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Weights that make the chosen ones likely, kept small."""
    names = sorted({name for difference in differences for name in difference})
    weights = dict.fromkeys(names, 0.0)
    for _ in range(_STEPS):
        slope = {name: -_DECAY * weights[name] for name in names}
        for difference in differences:
            margin = sum(weights[name] * value for name, value in difference.items())
            # math.exp raises OverflowError from about 710 on.
            wrong = 1 / (1 + math.exp(max(-30.0, min(30.0, margin))))
            for name, value in difference.items():
                slope[name] += wrong * value / len(differences)
        for name in names:
            weights[name] += _RATE * slope[name]
    return {name: round(weight, 3) for name, weight in weights.items()}


async def _agreement(source: str, held: Sequence[Preference], pool: Pool) -> float:
    """Share of preferences whose chosen answer scores above the rejected one; a tie counts half."""
    evaluator, right = from_source(source), 0.0
    async with pool.open(evaluator.staged, "adapter:judge") as session:
        for pair in held:
            results = [
                await session.call([evaluator.arguments(pair.prompt, text, None)])
                for text in (pair.chosen, pair.rejected)
            ]
            if all(result.ok for result in results):
                chosen, rejected = (float(result.value["score"]) for result in results)
                right += 1.0 if chosen > rejected else 0.5 if chosen == rejected else 0.0
    return right / len(held) if held else 0.0
