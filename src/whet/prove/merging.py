"""Verdicts of several experiments on one question, merged into one.

Two halves of a suite, judged on two days or by two teams, are one experiment: where they are of different tasks the
product of their e-values is an e-value again (Shafer 2021), even if the second was begun because of the first, and
where they share tasks their mean is (Vovk and Wang 2021).  Where the pairs themselves are at hand, give all of them to
`gate.compare`: nothing is lost then, and what is lost here is little.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from statistics import fmean

from ..errors import GateError
from ..stats import CEILING, t_quantile
from ..types import Regime, Verdict
from .regimes import WATCHED_LEVEL, both_regimes


def merged(verdicts: Sequence[Verdict], *, alpha: float = 0.05, same_tasks: bool = False) -> Verdict:
    """One Verdict of several on the same candidate and baseline.

    Args:
        verdicts: each with both regimes; the last one says how it is called and which regime decides.
        alpha: chance of promoting a candidate that has no effect.
        same_tasks: some task was judged in more than one of them.

    Raises:
        GateError: they are of different Bundles, margins or regimes, one is from before there were regimes, or there
            is none.
    """
    if not verdicts:
        raise GateError("no Verdict to merge")
    last = verdicts[-1]
    for name in ("candidate", "baseline", "margin", "regime"):
        values = {getattr(verdict, name) for verdict in verdicts}
        if len(values) > 1:
            raise GateError(
                f"these Verdicts have different {name}s, {sorted(map(str, values))}: they do not answer one question"
            )
    if not all(verdict.regimes for verdict in verdicts):
        raise GateError("a Verdict from before there were regimes cannot be merged: judge its results again")
    e_values = [verdict.e_value for verdict in verdicts]
    e_value = fmean(e_values) if same_tasks else min(math.prod(e_values), CEILING)
    held = {
        name: all(verdict.guardrails.get(name, False) for verdict in verdicts)
        for name in dict.fromkeys(name for verdict in verdicts for name in verdict.guardrails)
    }
    sound = all(verdict.sound for verdict in verdicts)
    proven = sound and e_value >= 1 / alpha and all(held.values())
    apart = not same_tasks
    regimes = {
        name: _pooled(
            [verdict.regimes[name] for verdict in verdicts],
            last.margin,
            proven=proven,
            apart=apart and (name == "exchangeable" or not _grouped(verdicts)),
        )
        for name in last.regimes
    }
    deciding = regimes[last.regime]
    parts = ", ".join(f"{verdict.n} pairs with {verdict.e_value:.3g}" for verdict in verdicts)
    how = "the mean, as tasks are shared" if same_tasks else "the product, as they are of different tasks"
    reason = f"Merged of {len(verdicts)} Verdicts: {parts}; e-value {e_value:.3g}, {how} (it takes {1 / alpha:.3g})."
    return replace(
        last,
        promote=deciding.promote,
        effect=deciding.effect,
        interval=deciding.interval,
        e_value=e_value,
        n=last.n if same_tasks else sum(verdict.n for verdict in verdicts),
        needed=None,
        after_passing=None,
        sound=sound,
        blocks={kind: why for verdict in verdicts for kind, why in verdict.blocks.items()},
        guardrails=held,
        regimes=regimes,
        tasks=tuple(sorted({task for verdict in verdicts for task in verdict.tasks})),
        reasons=(reason, both_regimes(regimes, last.regime), *(f"  {words}" for words in last.reasons)),
    )


def _grouped(verdicts: Sequence[Verdict]) -> bool:
    return any(verdict.regimes["new-group"].units < verdict.n for verdict in verdicts)


def _pooled(parts: Sequence[Regime], margin: float, *, proven: bool, apart: bool) -> Regime:
    """The mean by units, and its interval.

    Args:
        apart: their units are different ones. Otherwise nothing is gained in width: groups of one half may be those of
            the other.
    """
    units = [part.units for part in parts]
    effect = sum(part.units * part.effect for part in parts) / sum(units)
    halves = [part.units * (part.interval[1] - part.interval[0]) / 2 for part in parts]
    half = (math.hypot(*halves) if apart else sum(halves)) / sum(units)
    count = sum(units) if apart else max(units)
    # To merge is to look again.
    watched = half * t_quantile(0.5 + WATCHED_LEVEL / 2, count) / t_quantile(0.975, count)
    return Regime(
        promote=proven and effect - watched > -margin,
        effect=effect,
        interval=(max(-1.0, effect - half), min(1.0, effect + half)),
        units=count,
    )
