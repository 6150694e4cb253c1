"""A trial begins with a small share of the traffic, which rises by evidence; how both arms are compared meanwhile."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from test_autopilot_alone import YEARS, Trial, in_years

from whet.autopilot.evidence import LiveArms, TrialSpan
from whet.autopilot.journal import read
from whet.record.store import Stage
from whet.types import Feedback, Task, Trajectory


@pytest.fixture
def trial(tmp_path: Path) -> Trial:
    trial = Trial(tmp_path)
    trial.budget = {"share": 0.4, "first_share": 0.05}
    trial.begin(years=("UNITS", YEARS))
    return trial


def shares(trial: Trial) -> list[float]:
    return [entry.share for entry in trial.store.release_log() if entry.stage is Stage.CANARY]


def test_the_share_of_a_trial_rises_as_harm_is_excluded_and_never_over_its_limit(trial: Trial) -> None:
    assert shares(trial) == [0.05]
    # Too few yet for its own proof, which would end it.
    trial.ask(260, likes=in_years)
    trial.look()
    assert shares(trial) == [0.05], "some ten pairs exclude nothing"
    for _ in range(4):
        trial.ask(400, likes=lambda text: True)
        trial.look()
    assert shares(trial)[0] == 0.05
    assert len(shares(trial)) > 1
    assert shares(trial) == sorted(shares(trial))
    assert max(shares(trial)) <= 0.4
    assert trial.store.state("autopilot/trial")["share"] == shares(trial)[-1]
    rows = [row.sentence for row in read(trial.store) if row.step == "ramp"]
    assert len(rows) == len(shares(trial)) - 1
    assert "exclude a loss of 15 points" in rows[0]


def test_a_trial_that_people_dislike_gets_no_more_of_them(trial: Trial) -> None:
    for _ in range(4):
        trial.ask(240, likes=lambda text: not in_years(text))
        trial.look()
    assert set(shares(trial)) == {0.05}
    assert not trial.shipped()


def night(seed: int, *shares: float) -> list[Trajectory]:
    """Runs on two arms between which there is no difference, while all of it gets better from hour to hour.

    Args:
        shares: of the candidate, one for each part of the night.
    """
    rng, runs = random.Random(seed), []
    for number in range(1_200):
        liked = rng.random() < 0.2 + 0.7 * number / 1_200
        version = "new" if rng.random() < shares[number * len(shares) // 1_200] else "old"
        runs.append(
            Trajectory(
                id=f"{seed}-{number}",
                task=Task(instruction="How long?"),
                versions={"desk.PROMPT": version},
                started=float(number),
                feedback=[Feedback(run=f"{seed}-{number}", value=1.0 if liked else -1.0, id=f"f{number}")],
            )
        )
    return runs


def proven(seed: int, *, thinned: bool) -> bool:
    share = 0.2 if thinned else 0.5
    arms = LiveArms.of(TrialSpan(night(seed, 0.2), {"new"}, lambda at: share))
    judged = arms.verdict("candidate", 0.05)
    return judged is not None and judged.promote


def test_what_the_traffic_does_meanwhile_is_no_effect_of_a_candidate_with_a_small_share() -> None:
    assert sum(proven(seed, thinned=True) for seed in range(20)) <= 1
    # The control: the first thumbs of what is live beside those of the candidate, which come later.
    assert sum(proven(seed, thinned=False) for seed in range(20)) >= 18


@pytest.mark.parametrize(("one_by_one", "false"), [(True, range(2)), (False, range(12, 21))])
def test_what_goes_along_to_the_next_trial_proves_nothing_by_the_time_between(
    one_by_one: bool, false: range
) -> None:
    """Pairs of two trials would set an early thumb beside a late one."""
    shares, proofs = (0.5, 0.1, 0.5), 0
    for seed in range(20):
        runs = night(seed, *shares)
        trials = [runs[begin : begin + 400] for begin in range(0, 1_200, 400)]
        spans = [TrialSpan(trial, {"new"}, lambda at, n=n: shares[n]) for n, trial in enumerate(trials)]
        together = [TrialSpan([run for trial in trials for run in trial], {"new"})]
        judged = LiveArms.of(*(spans if one_by_one else together)).verdict("candidate", 0.05)
        proofs += judged is not None and judged.promote
    assert proofs in false


def test_who_had_begun_with_what_is_live_is_of_neither_arm_once_the_share_has_risen() -> None:
    def run(number: int, session: str, version: str) -> Trajectory:
        feedback = [Feedback(run=f"r{number}", value=1.0, id=f"f{number}")]
        return Trajectory(
            id=f"r{number}", task=Task(instruction="How?"), versions={"p": version}, session=session,
            started=float(number), feedback=feedback,
        )  # fmt: skip

    runs = [
        run(0, "a", "old"),
        run(1, "b", "new"),
        run(2, "a", "new"),
        run(3, "a", "old"),
        run(4, "b", "new"),
    ]
    arms = LiveArms.of(TrialSpan(runs, {"new"}))
    assert [thumb.run for thumb in arms.live] == ["r0", "r3"]
    assert [thumb.run for thumb in arms.candidate] == ["r1", "r4"]
