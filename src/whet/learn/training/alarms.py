"""When training must stop: the signs of collapse, measured while reward still rises.

Early runs on real mail all collapsed to "I don't know" while their reward went
up, so the reward is not among the signs.  A sign counts only when it holds for
several steps in a row; one odd batch is no collapse.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ...record.store.findings import RewardFinding


@dataclass(frozen=True, kw_only=True)
class AlarmOptions:
    """Thresholds of the alarms; none switches one off."""

    unknown_rise: float | None = 0.25
    """How far the rate of giving up may rise above that of the first round."""
    success_drop: float | None = 0.2
    """How far success may fall below that of the first round."""
    min_entropy: float | None = 0.005
    """Lowest mean entropy, in nats per sampled token."""
    max_no_signal: float | None = 0.98
    """Highest share of groups whose rewards are all equal."""
    max_kl: float | None = None
    """Highest mean divergence from the initial weights, in nats per token."""
    patience: int = 3
    """Consecutive rounds for which a sign must hold."""


COLLAPSE, DRY = "collapse", "nothing left to learn from"
"""Kinds of findings that stop training; the second where no group has a signal any more, as when all is solved."""


def check(
    options: AlarmOptions, metrics: Mapping[str, float], first: Mapping[str, float], held: Mapping[str, int]
) -> tuple[dict[str, int], RewardFinding | None]:
    """Look at one step.

    Args:
        metrics: of this step; a sign whose metric is missing is left as it stands.
        first: of the first step.
        held: sign → steps in a row so far.

    Returns:
        The new `held`, and the reason to stop, None if there is none.
    """
    limits = {
        "unknown": _moved(first.get("unknown"), options.unknown_rise),
        "success": _moved(first.get("success"), options.success_drop, down=True),
        "entropy": options.min_entropy,
        "no_signal": options.max_no_signal,
        "kl": options.max_kl,
    }
    counts: dict[str, int] = {}
    reasons: dict[str, str] = {}
    for sign, limit in limits.items():
        if limit is None:
            continue
        value = metrics.get(sign)
        if value is None:
            counts[sign] = held.get(sign, 0)
            continue
        below = sign in ("success", "entropy")
        counts[sign] = held.get(sign, 0) + 1 if (value < limit if below else value > limit) else 0
        if counts[sign] >= options.patience:
            side = "below" if below else "above"
            reasons[sign] = f"{sign} {value:.3g} is {side} {limit:.3g} for {counts[sign]} steps"
    if not reasons:
        return counts, None
    kind = DRY if set(reasons) == {"no_signal"} else COLLAPSE
    return counts, RewardFinding(kind=kind, sentence="; ".join(reasons.values()))


def _moved(first: float | None, by: float | None, *, down: bool = False) -> float | None:
    if first is None or by is None:
        return None
    return first - by if down else first + by
