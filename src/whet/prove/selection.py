"""Which of many: the best candidate is chosen on some of the tasks and judged on the others.

The luckiest of twenty useless candidates looks better than the baseline on the tasks that it was chosen on: a test on
the same tasks passes it more often than not, and its effect there is too large even where it has one.  So tasks are
divided before anything is looked at (sample splitting, Cox 1975): `DEV` of them choose, the rest judge the one that was
chosen, at the full alpha, for one candidate is judged.  Its effect there is unbiased, and the effect on the first part
stands beside it.  What all tasks say of every candidate is told too, corrected for their number (`stats.discoveries`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean

from ..errors import GateError
from ..stats import BettingProcess, discoveries
from ..types import Sampling, Verdict, digest
from .gate import Comparison
from .guardrails import Guardrail, pairs_in_words
from .results import Side, pairs

DEV = 1 / 3
"""Share of the tasks, or of the groups, that choose."""


@dataclass(frozen=True, slots=True)
class Tried:
    """One of several candidates."""

    name: str
    dev_effect: float
    """On the tasks that choose."""
    e_value: float
    """On all tasks, which says more of the candidates that were not chosen; not corrected for their number."""
    holds: bool
    """Whether it is better than the baseline by e-BH over all candidates, on all tasks, as exchangeable ones."""


@dataclass(frozen=True, slots=True)
class Selection:
    """The best of several candidates, and the gate's verdict on it."""

    chosen: str
    verdict: Verdict
    """On tasks that it was not chosen on; it has the effect on the others, too."""
    tried: Sequence[Tried]
    any_better: float
    """Mean of all e-values, which is one again (Vovk and Wang 2021): evidence that any of them is better."""
    dev_tasks: frozenset[str] = frozenset()
    """Those that chose."""


def best_of(
    baseline: Side,
    candidates: Mapping[str, Side],
    *,
    metric: str = "success",
    margin: float = 0.0,
    alpha: float = 0.05,
    guardrails: Sequence[Guardrail] = (),
    against: str = "baseline",
    regime: Sampling = "new-group",
    unpaired: bool = False,
) -> Selection:
    """Choose the best of several candidates on some tasks, and judge it on the others.

    Args:
        candidates: name → results on the baseline's tasks.
        regime: exchangeable tasks are divided one by one, else whole groups.
        (others): as in `gate.compare`.

    Raises:
        GateError: no candidate, or as `gate.compare`; too few tasks or groups to divide.
    """
    if not candidates:
        raise GateError("no candidate to choose from")
    paired = {name: pairs(baseline, side, unpaired=unpaired) for name, side in candidates.items()}
    chooses = dev_tasks({pair.task: pair.group for both in paired.values() for pair in both}, regime)
    differences = {
        name: {pair.task: pair.difference(metric) for pair in both if not pair.broken}
        for name, both in paired.items()
    }
    dev_effects = {name: _mean(values, chooses, name) for name, values in differences.items()}
    evidence = {name: _e_value(values.values(), margin) for name, values in differences.items()}
    holds = {list(evidence)[place] for place in discoveries(list(evidence.values()), alpha=alpha)}
    tried = [Tried(name, dev_effects[name], evidence[name], name in holds) for name in candidates]
    chosen = max(tried, key=lambda candidate: candidate.dev_effect)  # of equals the first
    comparison = Comparison(
        metric=metric,
        margin=margin,
        alpha=alpha,
        guardrails=guardrails,
        against=against,
        watched=False,
        regime=regime,
    )
    for pair in paired[chosen.name]:
        if pair.task not in chooses:
            comparison.add(pair)
    any_better = fmean(evidence.values())
    verdict = comparison.verdict()
    if len(tried) > 1:
        count = sum(task in chooses for task in differences[chosen.name])
        verdict = beside_dev(
            verdict, len(tried), chosen.dev_effect, f"{chosen.name} was", pairs_in_words(count)
        )
        verdict = replace(verdict, reasons=(*verdict.reasons, *_corrected(tried, any_better, alpha)))
    return Selection(chosen.name, verdict, tried, any_better, frozenset(chooses))


def beside_dev(verdict: Verdict, tried: int, dev_effect: float, who: str, where: str) -> Verdict:
    """The Verdict on one that was chosen among several, with the effect on the tasks that it was chosen on."""
    reason = (
        f"{who} chosen among {tried} on {where} that are not judged here, where its effect was {dev_effect:+.3f}; on "
        f"the tasks that it was not chosen on it is {verdict.effect:+.3f}, without the luck of being chosen."
    )
    return replace(verdict, tried=tried, dev_effect=dev_effect, reasons=(*verdict.reasons, reason))


def _corrected(tried: Sequence[Tried], any_better: float, alpha: float) -> list[str]:
    """What all tasks say of all candidates, a line each."""
    holding = [candidate.name for candidate in tried if candidate.holds]
    lines = [
        f"On all tasks, as exchangeable ones, and corrected for {len(tried)} candidates (e-BH at {alpha:g}): "
        f"{', '.join(holding) if holding else 'none'} better; that any is, has an e-value of {any_better:.3g}."
    ]
    for candidate in sorted(tried, key=lambda candidate: -candidate.dev_effect):
        lines.append(
            f"  {candidate.name}: {candidate.dev_effect:+.3f} on the tasks that chose, "
            f"e-value {candidate.e_value:.3g} on all"
        )
    return lines


def dev_tasks(groups: Mapping[str, str], regime: Sampling) -> set[str]:
    """The tasks that choose: some by the hash of their unit, which has nothing to do with a result.

    Args:
        groups: task → its group; "" for one that stands alone.

    Raises:
        GateError: too few to divide.
    """
    unit = {task: group if group and regime == "new-group" else f"\0{task}" for task, group in groups.items()}
    units = sorted(set(unit.values()), key=lambda name: digest(("dev", name)))
    count = round(DEV * len(units))
    if not count or len(units) - count < 2:
        raise GateError(
            f"{len(units)} {'groups' if regime == 'new-group' else 'tasks'} are too few to choose on some and judge on "
            "others: at least 3 are needed"
        )
    first = set(units[:count])
    return {task for task, name in unit.items() if name in first}


def _mean(values: Mapping[str, float], chooses: set[str], name: str) -> float:
    known = [difference for task, difference in values.items() if task in chooses]
    if not known:
        raise GateError(f"every pair of {name!r} on the tasks that choose had an infrastructure error")
    return fmean(known)


def _e_value(differences: Iterable[float], margin: float) -> float:
    process = BettingProcess(-margin)
    for difference in differences:
        process.add(difference)
    return process.value
