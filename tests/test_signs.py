"""What people show without being asked counts as far as their thumbs confirm it, and not at all where they do not."""

from __future__ import annotations

import random
from pathlib import Path

from test_fitted import WRONG, asked
from test_improve_thumbs import AGENT

from whet.judge.fitted import FittedReward, Rated, agreement
from whet.learn.datasets.signatures import read
from whet.learn.datasets.thumbs import ThumbEvidence, rated_runs, thumb_rows
from whet.record.influence import weighed
from whet.record.store import Store
from whet.record.tracing.signals import hear
from whet.types import Feedback, Task, Trajectory

BLAME, PRAISE = "That is wrong.", "Thanks, that helped."


def spoken(
    folder: Path, seed: int, *, heartfelt: float, thumbs: float = 0.3, people: int = 60
) -> ThumbEvidence:
    """Sessions of a question, its answer and what the person says next; few give a thumb, too.

    Args:
        heartfelt: share of the replies that mean what they say; the others are blame or praise by a coin.
    """
    draw = random.Random(seed)
    runs, notes = [], []

    def recorded(id: str, person: str, session: str, question: str, answer: str) -> None:
        runs.append(
            Trajectory(
                id=id,
                task=Task(instruction=question),
                output=answer,
                subject=person,
                session=session,
                started=1_000_000.0 + 60 * len(runs),
                seconds=1.0,
                meta={"function": "answer"},
            )
        )

    for number in range(people * 4):
        question, answer, right = asked(draw)
        person, session = f"person-{number % people}", f"session-{number}"
        recorded(f"{number}-asked", person, session, question, answer)
        pleased = right if draw.random() < heartfelt else draw.random() < 0.5
        recorded(f"{number}-after", person, session, PRAISE if pleased else BLAME, "Good.")
        if draw.random() < thumbs:
            liked = right != (draw.random() < WRONG)
            notes.append(Feedback(run=f"{number}-asked", value=1.0 if liked else -1.0))
    with Store(folder / f"{seed}-{heartfelt}.db") as store:
        store.put(*runs)
        store.add_feedback(*notes)
        hear(store)
        return rated_runs(read(AGENT, "answer"), "answer", weighed(store.trajectories()))


def given(evidence: ThumbEvidence) -> list[Rated]:
    """The thumbs without the signs."""
    return [rated for rated in evidence.thumbs if rated.error is None]


def test_signs_that_thumbs_confirm_stand_in_for_thumbs(tmp_path: Path) -> None:
    evidence = spoken(tmp_path, 1, heartfelt=0.9)
    counting = {precision.kind: precision for precision in evidence.signs if precision.counts}
    assert set(counting) == {"criticised", "praised"}
    assert "they count where no thumb was given" in counting["praised"].sentence
    signs = [rated for rated in evidence.thumbs if rated.error is not None]
    assert len(signs) > 120
    assert all(0.0 < sign.error < 0.35 for sign in signs if sign.error is not None)
    assert "that nobody rated, by a sign" in evidence.sentence


def test_signs_at_random_do_not_count(tmp_path: Path) -> None:
    for seed in range(3):
        evidence = spoken(tmp_path, seed, heartfelt=0.0)
        assert evidence.signs
        assert not any(precision.counts for precision in evidence.signs)
        assert all(rated.error is None for rated in evidence.thumbs)


def test_a_reward_knows_more_with_them(tmp_path: Path) -> None:
    draw = random.Random(99)
    unseen = [asked(draw) for _ in range(100)]

    def error(rated: list[Rated]) -> float:
        reward = FittedReward(rated)
        return sum((reward(question, answer) - right) ** 2 for question, answer, right in unseen)

    errors = {"with": 0.0, "without": 0.0}
    for seed in range(3):
        evidence = spoken(tmp_path, seed, heartfelt=0.9, thumbs=0.2)
        errors["with"] += error(evidence.thumbs)
        errors["without"] += error(given(evidence))
    assert errors["with"] < errors["without"]


def test_only_thumbs_admit_a_reward(tmp_path: Path) -> None:
    evidence = spoken(tmp_path, 1, heartfelt=0.9, thumbs=0.2, people=40)
    assert agreement(evidence.thumbs).thumbs == len(given(evidence)) < len(evidence.thumbs)


def test_the_search_measures_signs_on_the_thumbs_of_its_own_people(tmp_path: Path) -> None:
    evidence = spoken(tmp_path, 1, heartfelt=0.9)
    rows = thumb_rows(evidence, "answer", most=70, seed=1)
    others = {thumb.person for thumb in rows.unseen}
    beside: dict[bool, list[bool]] = {True: [], False: []}
    for run in evidence.runs:
        if run.person not in others and run.up is not None and run.sign:
            beside[run.sign_up].append(run.up == run.sign_up)
    own = {1 - (sum(agrees) + 1) / (len(agrees) + 2) for agrees in beside.values()}
    everybodys = {rated.error for rated in rows.all if rated.error is not None}
    assert {rated.error for rated in rows.search if rated.error is not None} == own != everybodys
