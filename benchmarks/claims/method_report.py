"""The cells of `scripts/claims methods` as one section: every method's curve, beside the clone and the rule."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean
from typing import Protocol

from page import percent, points, table

from whet.stats import cluster_interval

ORDER = (
    *("rule", "cloned", "grpo", "ppo", "rloo", "dpo", "star"),
    *("grpo-control", "dpo-control", "star-control"),
)
REINFORCED = ("grpo", "ppo", "rloo")
ABOUT = {"mail": "E-mail agent, held-out mailboxes", "text": "Text world, unseen rooms"}


class Made(Protocol):
    """What a cell says."""

    method: str
    curve: list[float]
    chosen: str
    gate: dict[str, tuple[str, float]]
    rollouts: int
    cpu_seconds: float

    @property
    def success(self) -> float: ...


Cells = Mapping[int, Mapping[str, Made]]
"""Seed → name → cell, of one world."""


def describe(found: Mapping[str, Cells]) -> list[str]:
    """All lines of the section."""
    lines = [
        "All methods start from the same clone of the agent as it came and may sample the same number of",
        "rollouts. Curves are greedy success on validation, in percent, at each quarter of that budget; success",
        "is on the gate's tasks with the decoding that validation chose, for the clone too. Differences are over",
        "all seeds, task by task, clustered by mailbox within a seed (rooms stand alone). A control is the same",
        "run with every trajectory given another one's rewards; DPO's trees grow on such rewards too. GRPO,",
        "PPO and RLOO make four updates of each round's rollouts, at one learning rate, each token's ratio",
        "clipped.",
        "",
    ]
    for world, cells in found.items():
        lines += [f"### {ABOUT[world]}", "", *_table(cells), *_seeds(cells), *_asked(cells)]
    return lines


def _table(cells: Cells) -> list[str]:
    rows = []
    for name in _names(cells):
        some = _of(cells, name)
        rows.append(
            [
                some[0].method,
                f"{round(fmean(one.rollouts for one in some)):,}" if some[0].rollouts else "–",
                _curve(some),
                percent(fmean(one.success for one in some)),
                _difference(cells, name, "cloned"),
                _difference(cells, name, "rule"),
                f"{fmean(one.cpu_seconds for one in some):.0f}",
            ]
        )
    heads = ("method", "rollouts", "curve", "success %", "− cloned, points", "− tuned rule, points", "CPU s")
    return [f"Seeds {', '.join(map(str, sorted(cells)))}.", "", *table(heads, rows)]


def _curve(some: Sequence[Made]) -> str:
    curves = [one.curve for one in some if one.curve]
    if not curves:
        return "–"
    return " → ".join(percent(fmean(values)) for values in zip(*curves, strict=False))


def _names(cells: Cells) -> list[str]:
    """Cells that every seed has."""
    return [name for name in ORDER if all(name in one for one in cells.values())]


def _of(cells: Cells, name: str) -> list[Made]:
    return [one[name] for _, one in sorted(cells.items())]


def differences(cells: Cells, name: str, against: str) -> tuple[list[float], list[str]]:
    """Task by task over all seeds, and the cluster of each."""
    values, groups = [], []
    for seed, one in cells.items():
        for task, (group, value) in one[name].gate.items():
            values.append(value - one[against].gate[task][1])
            groups.append(f"{seed}/{group or task}")
    return values, groups


def _difference(cells: Cells, name: str, against: str) -> str:
    if name == against or not all(against in one for one in cells.values()):
        return "–"
    values, groups = differences(cells, name, against)
    return points(fmean(values), cluster_interval(values, groups, bounds=(-1.0, 1.0)))


def _seeds(cells: Cells) -> list[str]:
    names = _names(cells)
    rows = [
        [str(seed), *(f"{percent(one[name].success)} ({one[name].chosen or '–'})" for name in names)]
        for seed, one in sorted(cells.items())
    ]
    return [
        "By seed: success % and the temperature that validation chose.",
        "",
        *table(("seed", *(_of(cells, name)[0].method for name in names)), rows),
    ]


def _asked(cells: Cells) -> list[str]:
    """What was asked for, and whether it is so."""
    names = set(_names(cells))
    said = [
        _said(_above(cells, name), f"{_of(cells, name)[0].method} is above cloning (interval above zero)")
        for name in ("grpo", "ppo", "rloo", "dpo", "star")
        if name in names
    ]
    if names.issuperset(REINFORCED):
        means = [fmean(one.success for one in _of(cells, name)) for name in REINFORCED]
        spread = max(means) - min(means)
        said.append(_said(spread <= 0.03, f"GRPO, PPO and RLOO lie within 3 points ({100 * spread:.1f})"))
    said += [
        _said(not _above(cells, name), f"{_of(cells, name)[0].method} gains nothing")
        for name in ORDER
        if name.endswith("control") and name in names
    ]
    return [*said, ""] if said else []


def _above(cells: Cells, name: str) -> bool:
    values, groups = differences(cells, name, "cloned")
    return cluster_interval(values, groups, bounds=(-1.0, 1.0))[0] > 0


def _said(so: bool, what: str) -> str:
    return f"- {'yes' if so else '**no**'}: {what}"


def names_of(text: str, allowed: Iterable[str]) -> list[str]:
    """A list of names with commas between, as an option gives it.

    Raises:
        SystemExit: a name is not among those allowed.
    """
    allowed = list(allowed)
    found = [one for one in text.split(",") if one]
    if odd := [one for one in found if one not in allowed]:
        raise SystemExit(f"no {odd[0]!r}; choose among {', '.join(allowed)}")
    return found
