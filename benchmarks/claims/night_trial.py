"""What is tried on people: nights without an effect, bad canaries, drift, and shadows that misbehave.

Outcomes are drawn, and the decisions are the product's own: the gate (`best_of`), the shadow's Verdict (`compare`), the
canary (`CanaryEvidence`, `decide`) and drift, each watched all the time.

- *A night without an effect*: three candidates that do nothing are proposed; the best is chosen on a third of 240 pairs
  and judged on the others; what is promoted is shadowed on 200 pairs and then becomes a canary, with the plan that the
  product gives a proven one, until it is live, taken back or out of traffic.  People differ from each other, and so do
  hours; a session has one to four runs, of each of which 40 % say something, 15 % of them the opposite of what they
  mean.
- *The canary alone*: the same without a gate before it, as an unproven candidate that has to be better.
- *The naive test beside it*: the usual z-test of two rates on as many words, looked at every 20 of them from the 100th
  on, and believed when p < .05.
- *A bad canary* loses what its plan names (as words show it), at a share and a rate drawn anew; the number of judged
  units and of requests is printed before it starts.
- *Drift*: runs with inputs, tools, costs and outcomes, 300 for a reference; beside it the population stability index
  with the rule that everyone uses (0.2).
"""

from __future__ import annotations

import math
import random
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, median
from typing import NamedTuple

from newcomers_shell import Noted, report

from whet.judge.drift import Drift, drift
from whet.prove.canary import CanaryAction, CanaryEvidence, CanaryPlan, CanaryUnit, decide
from whet.prove.gate import compare
from whet.prove.results import TaskResult
from whet.prove.selection import best_of
from whet.prove.watch import PROVEN_MARGIN, keep_plan, look
from whet.record.store import Stage, Store
from whet.record.store.trials import TRIALS, drawn
from whet.stats import wilson
from whet.types import Bundle, Feedback, Json, Outcome, Step, Task, Trajectory, Usage, Version

NIGHTS, BAD, WINDOWS, POWER = 1_000, 100, 400, 60
SAID, WRONG = 0.4, 0.15
UNITS = 3_000
"""Sessions of a night's canary."""
WORDS = int(UNITS * 2 * SAID)
"""That are said of its requests, which are those of the naive test."""
GATE_PAIRS, SHADOW_PAIRS, PROPOSED = 240, 200, 3


@dataclass(frozen=True, slots=True)
class Session:
    """A conversation: what was said of its runs, None where nothing was."""

    candidate: bool
    share: float
    words: tuple[float | None, ...]
    person: int

    @property
    def value(self) -> float | None:
        known = [word for word in self.words if word is not None]
        return fmean(known) if known else None


class People:
    """Sessions as they come, of a night drawn from the seed.

    Args:
        effect: of the candidate on the rate at which an answer is right.
    """

    def __init__(self, seed: int, *, effect: float = 0.0, rate: float | None = None) -> None:
        self.chance = random.Random(seed)
        self.rate = self.chance.uniform(0.45, 0.85) if rate is None else rate
        self.effect = effect
        spread = 0.0 if rate is not None else 0.12
        self._own = [self.chance.gauss(0.0, spread) for _ in range(60)]
        self._swing = 0.0 if rate is not None else 0.1

    def session(self, number: int, share: float) -> Session:
        chance = self.chance
        person, candidate = chance.randrange(60), chance.random() < share
        hour = self._swing * math.sin(number / 150)
        right = min(0.98, max(0.02, self.rate + self._own[person] + hour + self.effect * candidate))
        words: list[float | None] = []
        for _ in range(chance.choice((1, 1, 2, 4))):
            good = chance.random() < right
            said = chance.random() < SAID
            words.append(float(good is (chance.random() >= WRONG)) if said else None)
        return Session(candidate, share, tuple(words), person)


class Ended(NamedTuple):
    """A canary from its first share to its end."""

    share: float
    reason: str
    units: int
    """That were judged."""
    requests: int
    missed: bool
    """Its interval was beside the effect at some look."""


def canary(people: People, plan: CanaryPlan, units: int) -> Ended:
    """Try a candidate on so many sessions."""
    evidence, share, requests, reason = CanaryEvidence(plan), plan.shares[0], 0, "out of traffic"
    effect, missed = people.effect * (1 - 2 * WRONG), False
    for number in range(units):
        session = people.session(number, share)
        requests += len(session.words)
        tell(evidence, session, number)
        if number % 4:
            continue
        decision = decide(evidence, share)
        missed |= not decision.interval[0] <= effect <= decision.interval[1]
        if decision.action is not CanaryAction.HOLD:
            share, reason = decision.share, decision.reason
            if not 0 < share < 1:
                break
    return Ended(share, reason, evidence.n, requests, missed)


def tell(evidence: CanaryEvidence, session: Session, number: int) -> None:
    """One session, as the record would tell it."""
    first = next((word for word in session.words if word is not None), None)
    common = {"id": f"{number}", "candidate": session.candidate, "share": session.share}
    evidence.exposed(session.candidate, session.share)
    evidence.ran(CanaryUnit(**common))  # type: ignore[arg-type]
    evidence.spoke(CanaryUnit(**common, value=first))  # type: ignore[arg-type]
    evidence.settled(CanaryUnit(**common, value=session.value))  # type: ignore[arg-type]


def naive(people: People, share: float, words: int) -> bool:
    """True if the z-test, looked at now and then, ever finds the candidate better."""
    good, count, seen = [0.0, 0.0], [0, 0], 0
    number = 0
    while seen < words:
        session = people.session(number, share)
        number += 1
        for word in session.words:
            if word is None:
                continue
            good[session.candidate] += word
            count[session.candidate] += 1
            seen += 1
            if seen >= 100 and seen % 20 == 0 and min(count):
                rates = [good[arm] / count[arm] for arm in (0, 1)]
                pooled = sum(good) / sum(count)
                error = math.sqrt(pooled * (1 - pooled) * (1 / count[0] + 1 / count[1])) or 1.0
                if (rates[1] - rates[0]) / error > 1.645:
                    return True
    return False


def _results(chance: random.Random, rates: Sequence[float], name: str) -> list[TaskResult]:
    return [
        TaskResult(task=f"{name}{number}", scores={"success": float(chance.random() < rate)})
        for number, rate in enumerate(rates)
    ]


def night(seed: int) -> tuple[bool, bool, bool]:
    """Whether the gate, the shadow and at last the canary let one of three candidates without an effect through."""
    chance = random.Random(f"night {seed}")
    rates = [chance.betavariate(4, 2) for _ in range(GATE_PAIRS)]
    baseline = _results(chance, rates, "t")
    candidates = {f"c{number}": _results(chance, rates, "t") for number in range(PROPOSED)}
    if not best_of(baseline, candidates, metric="success").verdict.promote:
        return False, False, False
    rates = [chance.betavariate(4, 2) for _ in range(SHADOW_PAIRS)]
    shadow = compare(_results(chance, rates, "s"), _results(chance, rates, "s"), watched=True)
    if not shadow.promote:
        return True, False, False
    ended = canary(People(seed), CanaryPlan(margin=PROVEN_MARGIN), UNITS)
    return True, True, ended.share == 1.0


def nights(seed: int) -> list[Noted]:
    """Nights without an effect."""
    began = time.process_time()
    passed = [night(seed * NIGHTS + number) for number in range(NIGHTS)]
    gate, shadow, live = (sum(stage) for stage in zip(*passed, strict=True))
    plan = CanaryPlan(most=2_000)
    alone = [canary(People(seed * NIGHTS + number), plan, UNITS) for number in range(NIGHTS)]
    promoted = sum(ended.share == 1.0 for ended in alone)
    harmed = sum("does harm" in ended.reason for ended in alone)
    split = sum("mismatch" in ended.reason for ended in alone)
    beside = sum(ended.missed for ended in alone)
    fooled = sum(naive(People(seed * NIGHTS + number), 0.5, WORDS) for number in range(NIGHTS))
    spent = f"{time.process_time() - began:.0f}"
    return [
        Noted(
            f"{NIGHTS:,} nights without an effect",
            {
                "passed the gate": f"{gate}",
                "and the shadow": f"{shadow}",
                "false promotions": _share(live, NIGHTS),
                "CPU seconds": spent,
            },
            {"false promotion ≤ 5 %": live <= 0.05 * NIGHTS},
        ),
        Noted(
            f"{NIGHTS:,} canaries without an effect and without a gate",
            {
                "false promotions": _share(promoted, NIGHTS),
                "taken back for harm": _share(harmed, NIGHTS),
                "stopped for the split": _share(split, NIGHTS),
                "interval ever beside the effect": _share(beside, NIGHTS),
            },
            {
                "false promotion ≤ 5 %": promoted <= 0.05 * NIGHTS,
                "false harm ≤ 2 %": harmed <= 0.02 * NIGHTS,
                "false mismatch ≤ 0.5 %": split <= 0.005 * NIGHTS,
                "interval beside the effect ≤ 5 %": beside <= 0.05 * NIGHTS,
            },
        ),
        Noted(
            f"{NIGHTS:,} of the same by the naive test",
            {"false promotions": _share(fooled, NIGHTS)},
            {"naive > 25 %": fooled > 0.25 * NIGHTS},
        ),
    ]


def bad(seed: int) -> list[Noted]:
    """Canaries that lose what their plans name."""
    noted = []
    for share, harm in ((0.1, 0.3), (0.25, 0.2), (0.5, 0.15)):
        plan = CanaryPlan(shares=(share, 0.6), harm=harm, most=100_000)
        named = plan.units()
        assert named is not None
        judged = 1 - fmean((1 - SAID) ** runs for runs in (1, 1, 2, 4))
        print(plan.sentence(judged=judged, runs=2.0), flush=True)
        requests = math.ceil(named / judged * 2.0)
        taken: list[tuple[int, int]] = []
        late, words = 0, 1 - 2 * WRONG
        for number in range(BAD):
            # What words show of an effect is less than it: some people say the opposite of what they mean.
            true = harm / words
            rate = random.Random(f"bad {seed} {number}").uniform(true + 0.03, 0.97)
            people = People(seed * 10_000 + number, effect=-true, rate=rate)
            ended = canary(people, plan, math.ceil(named / judged * 1.2))
            back = ended.share == 0.0 and "harm" in ended.reason
            late += not back or ended.units > named or ended.requests > requests
            taken.append((ended.units, ended.requests))
        noted.append(
            Noted(
                f"a loss of {100 * harm:.0f} points at {share:.0%}",
                {
                    "named units": f"{named:,}",
                    "named requests": f"{requests:,}",
                    "taken back in time": f"{BAD - late} of {BAD}",
                    "median units": f"{median(units for units, _ in taken):,.0f}",
                    "most": f"{max(units for units, _ in taken):,}",
                },
                {f"{BAD} of {BAD} taken back within the named requests": late == 0},
            )
        )
    return noted


def through_the_record(seed: int, nights_: int = 10) -> Noted:
    """The same sessions, told and read back from a record: the decision must be the same."""
    same = 0
    for number in range(nights_):
        effect = (-0.4, 0.0, 0.3)[number % 3]
        plan = CanaryPlan(shares=(0.5,), harm=0.3, settle=60.0, most=600)
        with tempfile.TemporaryDirectory() as folder, Store(Path(folder) / "night.db") as store:
            store.set_live(Bundle([Version(resource="prompt", content="live")]))
            # Every other one is code that somebody deploys, whose runs name what they ran under and no arm.
            deployed = number % 2 == 1
            kind = "program" if deployed else "value"
            candidate = Bundle([Version(resource="prompt", content="candidate", kind=kind)])
            release = store.release(candidate, stage=Stage.CANARY, share=0.5, unproven=True)
            keep_plan(store, release, plan)
            evidence = _told_twice(store, release.trial, plan, seed * 100 + number, effect, deployed=deployed)
            seen = look(store, release, now=time.time() + 3_600 * 500).decision
            same += seen == decide(evidence, 0.5)
    return Noted(
        f"{nights_} nights through the record",
        {"the decision is that on the outcomes themselves": f"{same} of {nights_}"},
        {"the record tells the same": same == nights_},
    )


def _told_twice(
    store: Store, trial: str, plan: CanaryPlan, seed: int, effect: float, *, deployed: bool
) -> CanaryEvidence:
    """Sessions told to the record and to an evidence alike, which is returned."""
    people, evidence = People(seed, effect=effect), CanaryEvidence(plan)
    live, candidate = store.live(), store.on_trial()[0].bundle
    assert live is not None
    began, runs, words, served_it = time.time(), [], [], not deployed
    for number in range(400):
        name = f"s{seed}-{number}"
        arm = drawn(trial, name, 0.5)
        session = people.session(number, float(arm))
        session = Session(arm, 0.5, session.words, session.person)
        drawing: dict[str, Json] = {"arm": "candidate" if arm else "live", "share": 0.5, "unit": name}
        for turn, word in enumerate(session.words):
            # An hour between sessions: one has settled when the next begins, so the order is theirs.
            at = began + 3_600 * number + 5 * turn
            runs.append(
                Trajectory(
                    id=f"{name}-{turn}",
                    task=Task(instruction="hello"),
                    session=name,
                    started=at,
                    versions=(candidate if arm else live).ids,
                    meta={} if deployed else {TRIALS: {trial: drawing}},
                )
            )
            if word is not None:
                words.append(Feedback(run=f"{name}-{turn}", value=1.0 if word else -1.0, at=at + 1))
        if served_it:
            tell(evidence, session, number)
        served_it = served_it or arm
    store.put(*runs)
    store.add_feedback(*words)
    return evidence


VOCABULARY = [f"word{number:03}" for number in range(400)]


def traffic(
    chance: random.Random,
    count: int,
    start: int,
    *,
    success: float = 0.8,
    words: int = 0,
    book: float = 0.4,
    cost: float = 1.0,
    slow: float = 1.0,
) -> list[Trajectory]:
    """Runs of an agent with two tools, each a session of its own."""
    runs = []
    for number in range(start, start + count):
        places = [min(399, int(chance.expovariate(1 / 60)) + words) for _ in range(12)]
        usage = Usage(
            200, int(cost * chance.lognormvariate(4, 0.5)), cost * chance.lognormvariate(-7, 0.5), 1
        )
        steps = [Step(kind="llm", name="model", usage=usage)]
        steps += [
            Step(kind="tool", name=tool)
            for tool, rate in (("search", 0.7), ("book", book), ("rare", 0.02))
            if chance.random() < rate
        ]
        runs.append(
            Trajectory(
                task=Task(instruction=" ".join(VOCABULARY[place] for place in places)),
                steps=steps,
                outcome=Outcome.SUCCESS if chance.random() < success else Outcome.FAILURE,
                started=float(number),
                seconds=slow * chance.expovariate(1.0),
                session=f"s{number}",
            )
        )
    return runs


SHIFTS: dict[str, tuple[dict[str, float], str]] = {
    "success .80 → .60": ({"success": 0.6}, "success"),
    "other words asked": ({"words": 25}, "input"),
    "a tool from 40 % to 15 %": ({"book": 0.15}, "tool book"),
    "half as dear again": ({"cost": 1.5}, "dollars"),
    "twice as slow": ({"slow": 2.0}, "seconds"),
}


def drifts(seed: int) -> list[Noted]:
    """Drift, and windows without any."""
    alarms = psi_alarms = 0
    for number in range(WINDOWS):
        chance = random.Random(f"quiet {seed} {number}")
        before, now = traffic(chance, 300, 0), traffic(chance, 300, 300)
        alarms += any(feature.drifted for feature in drift(before, now))
        psi_alarms += _psi_alarm(before, now)
    noted = [
        Noted(
            f"{WINDOWS} windows without drift",
            {"alarms": _share(alarms, WINDOWS), "by the index, > 0.2": _share(psi_alarms, WINDOWS)},
            {"false alarms ≤ 2 % at a level of 1 %": alarms <= 0.02 * WINDOWS},
        )
    ]
    for name, (shift, feature) in SHIFTS.items():
        told: list[Drift] = []
        for number in range(POWER):
            chance = random.Random(f"{name} {seed} {number}")
            quiet = traffic(chance, 300, 0), traffic(chance, 100, 300)
            now = [*quiet[1], *traffic(chance, 200, 400, **shift)]  # type: ignore[arg-type]
            told += [each for each in drift(quiet[0], now) if each.feature == feature and each.drifted]
        since = [each.since - 400 for each in told if each.since is not None]
        noted.append(
            Noted(
                name,
                {
                    "found within 200 runs": _share(len(told), POWER),
                    "its beginning, median error in runs": f"{median(map(abs, since)):.0f}" if since else "–",
                },
                {f"{name} found in 70 %": len(told) >= 0.7 * POWER},
            )
        )
    return noted


def _psi_alarm(before: Sequence[Trajectory], now: Sequence[Trajectory]) -> bool:
    """The population stability index of cost, time and length by tenths, over 0.2 in any, looked at every 50 runs."""
    features = (
        lambda run: run.usage.dollars,
        lambda run: run.seconds or 0.0,
        lambda run: float(run.usage.output_tokens),
    )
    for feature in features:
        old = sorted(map(feature, before))
        cuts = [old[len(old) * tenth // 10] for tenth in range(1, 10)]
        for upto in range(50, len(now) + 1, 50):
            index = 0.0
            rows = [feature(run) for run in now[:upto]]
            for low, high in zip((-math.inf, *cuts), (*cuts, math.inf), strict=True):
                share = max(sum(low <= value < high for value in rows) / upto, 1e-4)
                index += (share - 0.1) * math.log(share / 0.1)
            if index > 0.2:
                return True
    return False


def _share(count: int, of: int) -> str:
    low, high = wilson(count, of)
    return f"{count} of {of:,} ({100 * low:.1f} to {100 * high:.1f} %)"


PARTS = ("nights", "bad", "record", "drift", "shadow")


def night_trial(folder: Path, *, seed: int, parts: Sequence[str], requests: int, page: bool) -> bool:
    """Measure these parts, print each as it ends, and publish them all; True if no line was missed."""
    reached = True
    for part, noted in _measured(folder, seed, parts, requests):
        heading = {
            "nights": "A night's trials: no effect",
            "bad": "A night's trials: a bad canary",
            "record": "A night's trials: through the record",
            "drift": "A night's trials: drift",
            "shadow": "A night's trials: shadows that misbehave",
        }[part]
        about = (__doc__ or "").partition("\n")[0]
        reached &= report(heading, about, noted, page=page)
    return reached


def _measured(
    folder: Path, seed: int, parts: Sequence[str], requests: int
) -> Iterator[tuple[str, list[Noted]]]:
    from night_trial_shadow import shadows

    for part in parts:
        began, wall = time.process_time(), time.monotonic()
        if part == "shadow":
            noted = [shadows(folder, seed=seed, requests=requests)]
        elif part == "record":
            noted = [through_the_record(seed)]
        else:
            noted = {"nights": nights, "bad": bad, "drift": drifts}[part](seed)
        print(f"{part}: {time.process_time() - began:.0f} CPU s, {time.monotonic() - wall:.0f} s", flush=True)
        yield part, noted
