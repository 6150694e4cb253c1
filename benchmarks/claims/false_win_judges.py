"""Recorded judges: a panel against the judge that did best elsewhere, one set of pairs left out at a time.

The panel is fitted on the other sets and reads the one that was left out without its labels.  Beside it stand the
single judge chosen on the other sets and the majority of all.  It is sure of nothing of a kind that it has no labels
of: for that, half of the set is labelled and the other half judged, each half in turn.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import fmean

from data_rows import AbsentData, json_rows, lacks
from newcomers_shell import Noted

from whet.errors import InputError
from whet.judge.panel import SURE, Panel, PanelReading, fit_panel
from whet.judge.votes import Ballot, model_of, pair_vote

Sets = Mapping[str, Sequence[Ballot]]

BETTER = 0.02
"""Macro accuracy by which the panel has to beat the single judge, and that it may lose on no set."""
NATURAL = "Natural"
ADVERSARIAL = ("GPTInst", "GPTOut", "Manual", "Neighbor")
STRONGEST = "GPT-4"


def measure(data: Path, folder: Path) -> list[Noted]:
    """All judges, all but those of the strongest model, and the two controls."""
    del folder
    sets = _sets(data / "recorded_judges")
    weaker = _judged_by(sets, lambda judge: model_of(judge) != STRONGEST)
    noted = _left_out("all judges", sets)
    if any(one.votes for ballots in weaker.values() for one in ballots):
        noted += _left_out(f"without {STRONGEST}", weaker, may_abstain=True)
    adversarial = [name for name in ADVERSARIAL if name in sets]
    if NATURAL in sets and adversarial:
        noted.append(_refused(sets, adversarial))
    noted.append(_shuffled(sets))
    return noted


def _sets(folder: Path) -> Sets:
    """Set → ballots, of every set that has pairs and verdicts.

    Raises:
        AbsentData: fewer than two sets, so that none can be left out.
    """
    sets: dict[str, Sequence[Ballot]] = {}
    for path in sorted(folder.glob("*.pairs.jsonl")):
        name = path.name.removesuffix(".pairs.jsonl")
        pairs = json_rows(path, _complaint)
        try:
            rows = json_rows(folder / f"{name}.verdicts.jsonl", lacks("judge", "winner"))
        except AbsentData as error:
            print(f"{name} is left out: {error}", flush=True)
            continue
        votes: dict[int, dict[str, float]] = {}
        short: set[str] = set()
        for row in rows:
            winners = row["winner"] if row is not None else []
            if row is None or not isinstance(winners, list) or len(winners) != len(pairs):
                short |= set() if row is None else {str(row["judge"])}
                continue
            for number, winner in enumerate(winners):
                vote = _vote(winner)
                if vote is not None:
                    votes.setdefault(number, {})[str(row["judge"])] = vote
        if short:
            print(
                f"{name}: {len(short)} judges left out, whose winners are not {len(pairs)}: {min(short)} first"
            )
        ballots = [
            Ballot(votes[number], pair["label"] == 1, name, str(pair.get("id", number)))
            for number, pair in enumerate(pairs)
            if pair is not None and number in votes
        ]
        if ballots:
            sets[name] = ballots
    if len(sets) < 2:
        raise AbsentData(f"{folder} holds {len(sets)} sets of pairs with verdicts, and two are needed")
    return sets


def _complaint(pair: Mapping[str, object]) -> str:
    return (
        "" if pair.get("label") in (1, 2) else f"the label is {repr(pair.get('label'))[:60]}, and not 1 or 2"
    )


def _vote(winner: object) -> float | None:
    orders = winner if isinstance(winner, list) and len(winner) == 2 else [winner, winner]
    first, second = (one if one in (1, 2) else None for one in orders)
    return pair_vote(first, second)


def _judged_by(sets: Sets, wanted: Callable[[str], bool]) -> Sets:
    return {
        name: [
            Ballot(
                {judge: vote for judge, vote in one.votes.items() if wanted(judge)},
                one.first,
                one.kind,
                one.id,
            )
            for one in ballots
        ]
        for name, ballots in sets.items()
        if any(wanted(judge) for one in ballots for judge in one.votes)
    }


def _others(sets: Sets, name: str) -> list[Ballot]:
    return [one for other, ballots in sets.items() if other != name for one in ballots]


def _rights(reading: PanelReading, ballots: Sequence[Ballot]) -> list[float]:
    """1 for right, 0 for wrong, a half for a tie."""
    return [
        0.5 if verdict.first is None else float(verdict.first is one.first)
        for verdict, one in zip(reading.verdicts, ballots, strict=True)
    ]


def _alone(panel: Panel, ballots: Sequence[Ballot]) -> tuple[str, float]:
    """The judge chosen on the other sets, and its accuracy over both orders."""
    judge = panel.single({judge for one in ballots for judge in one.votes})
    return judge, fmean((1 + one.votes.get(judge, 0.0) * one.sign) / 2 for one in ballots)


def _majority(ballots: Sequence[Ballot]) -> float:
    rights = []
    for one in ballots:
        total = sum(one.votes.values())
        rights.append(0.5 if total == 0 else float((total > 0) is one.first))
    return fmean(rights)


def _left_out(heading: str, sets: Sets, *, may_abstain: bool = False) -> list[Noted]:
    noted, panels, singles, majorities = [], [], [], []
    began = time.process_time()
    sure: list[float] = []
    known: list[float] = []
    for name, ballots in sets.items():
        try:
            panel = fit_panel(_others(sets, name))
            reading = panel.read(ballots)[name]
        except InputError as error:
            noted.append(Noted(f"{heading}, {name} left out", {"panel": "not fitted"}, said=str(error)))
            print(f"{heading}, {name} left out: {error}", flush=True)
            continue
        rights = _rights(reading, ballots)
        judge, single = _alone(panel, ballots)
        panels.append(fmean(rights))
        singles.append(single)
        majorities.append(_majority(ballots))
        sure += [right for right, verdict in zip(rights, reading.verdicts, strict=True) if verdict.sure]
        half_known = _half_known(sets, name)
        known += half_known
        noted.append(
            Noted(
                f"{heading}, {name} left out",
                {
                    "panel": f"{panels[-1]:.3f}",
                    "single": f"{single:.3f} ({judge})",
                    "majority": f"{majorities[-1]:.3f}",
                    "sure, half labelled": _share(half_known, len(ballots)),
                    "decided by": reading.decided_by,
                },
                {f"at most {BETTER:.0%} under the single judge": panels[-1] > single - BETTER - 1e-9},
                reading.refusal,
            )
        )
    if not panels:
        raise AbsentData(f"{heading}: no panel could be fitted on the sets that are there")
    pairs = sum(map(len, sets.values()))
    gain = fmean(panels) - fmean(singles)
    lines = {
        f"{BETTER:.0%} above the single judge": gain >= BETTER,
        f"sure verdicts are right, {SURE:.0%}": fmean(known) >= SURE if known else may_abstain,
        "sure without a label of the kind only where it is right": not sure or fmean(sure) >= SURE,
    }
    noted.append(
        Noted(
            f"{heading}, mean of sets",
            {
                "panel": f"{fmean(panels):.3f} ({gain:+.3f})",
                "single": f"{fmean(singles):.3f}",
                "majority": f"{fmean(majorities):.3f}",
                "sure, half labelled": _share(known, pairs),
                "sure, no label": _share(sure, pairs),
                "CPU s": f"{time.process_time() - began:.1f}",
            },
            lines,
        )
    )
    return noted


def _half_known(sets: Sets, name: str) -> list[float]:
    """Rights of the verdicts it is sure of, where the other half of the set is labelled; each half in turn."""
    rights: list[float] = []
    for side in (0, 1):
        labelled, rest = sets[name][side::2], sets[name][1 - side :: 2]
        reading = fit_panel([*_others(sets, name), *labelled]).read(rest)[name]
        rights += [
            right
            for right, verdict in zip(_rights(reading, rest), reading.verdicts, strict=True)
            if verdict.sure
        ]
    return rights


def _share(rights: Sequence[float], pairs: int) -> str:
    return f"{fmean(rights):.3f} of {len(rights) / pairs:.0%}" if rights else "none"


def _refused(sets: Sets, adversarial: Sequence[str]) -> Noted:
    """A panel of adversarial pairs alone reads natural ones; beside it what fixed weights would have said."""
    fitted_on = [one for name in adversarial for one in sets[name]]
    natural = sets[NATURAL]
    reading = fit_panel(fitted_on).read(natural)[NATURAL]
    return Noted(
        f"fitted on {', '.join(adversarial)}, reads {NATURAL}",
        {
            "panel": "refused" if reading.refusal else f"{fmean(_rights(reading, natural)):.3f}",
            "weights fitted on those pairs": f"{_stacked(fitted_on, natural):.3f}",
            "majority": f"{_majority(natural):.3f}",
            "distance": f"{reading.distance:.2f} (reach {reading.reach:.2f})",
        },
        {"refused": bool(reading.refusal)},
        reading.refusal,
    )


def _stacked(fitted_on: Sequence[Ballot], read: Sequence[Ballot]) -> float:
    """Accuracy of a logistic regression of the label on all votes, which is how votes are usually stacked."""
    judges = sorted(
        {judge for one in fitted_on for judge in one.votes} & {judge for one in read for judge in one.votes}
    )
    rows = [[one.votes.get(judge, 0.0) * one.sign for judge in judges] for one in fitted_on]
    weights = [0.0] * len(judges)
    for _ in range(300):
        slopes = [-0.01 * weight for weight in weights]
        for row in rows:
            pull = 1 / (
                1 + 2.718281828 ** sum(weight * vote for weight, vote in zip(weights, row, strict=True))
            )
            for number, vote in enumerate(row):
                slopes[number] += pull * vote / len(rows)
        weights = [weight + 0.5 * slope for weight, slope in zip(weights, slopes, strict=True)]
    rights = []
    for one in read:
        total = sum(weight * one.votes.get(judge, 0.0) for weight, judge in zip(weights, judges, strict=True))
        rights.append(0.5 if total == 0 else float((total > 0) is one.first))
    return fmean(rights)


def _shuffled(sets: Sets) -> Noted:
    """The labels of each set in another order: nothing can be learned, and a panel that learned it is refused."""
    refused, draws = 0, 20
    for seed in range(draws):
        drawn = random.Random(seed)
        shuffled = []
        for ballots in sets.values():
            labels = [one.first for one in ballots]
            drawn.shuffle(labels)
            shuffled += [
                Ballot(one.votes, label, one.kind, one.id) for one, label in zip(ballots, labels, strict=True)
            ]
        refused += bool(fit_panel(shuffled).refusal)
    return Noted(
        "control: labels shuffled",
        {"panel": f"refused {refused} of {draws}"},
        {"refused but for chance": refused >= draws - 2},
    )
