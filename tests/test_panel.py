"""A panel of judges: what it learns of labelled kinds, what it reads off one without labels, and where it refuses."""

from __future__ import annotations

import random
from statistics import fmean

import msgspec
import pytest

from whet.errors import InputError
from whet.judge.panel import Panel, fit_panel
from whet.judge.votes import Ballot, pair_vote

STRONG = {"plain": 0.85, "easy": 0.92, "trap": 0.8, "snare": 0.78}
WEAK = {"plain": 0.78, "easy": 0.85, "trap": 0.25, "snare": 0.35}
"""Kind → accuracy: answers made to mislead take weak judges in."""


def ballots(kind: str, count: int = 80, *, seed: int = 0, strong: float = 0, weak: float = 0) -> list[Ballot]:
    """A strong model with two prompts, and three weak ones that like the same answers."""
    drawn = random.Random(f"{kind}/{seed}")
    made = []
    for number in range(count):
        first = drawn.random() < 0.5
        side = 1.0 if first else -1.0
        votes = {}
        for prompt in ("short", "long"):
            votes[f"strong/{prompt}"] = side if drawn.random() < (strong or STRONG[kind]) else -side
        votes["middle/short"] = side if drawn.random() < ((strong or STRONG[kind]) - 0.15) else -side
        taste = side if drawn.random() < (weak or WEAK[kind]) else -side
        for name in ("one", "two", "three"):
            votes[f"{name}/short"] = taste if drawn.random() < 0.9 else -taste
        made.append(Ballot(votes, first, kind, f"{kind}-{number}"))
    return made


def accuracy(panel: Panel, own: list[Ballot]) -> float:
    (reading,) = panel.read(own).values()
    return fmean(
        0.5 if verdict.first is None else float(verdict.first is ballot.first)
        for verdict, ballot in zip(reading.verdicts, own, strict=True)
    )


def alone(judge: str, own: list[Ballot]) -> float:
    return fmean((1 + ballot.votes[judge] * ballot.sign) / 2 for ballot in own)


def test_unseen_traps_are_judged_as_by_the_best_judge_though_most_judges_are_wrong() -> None:
    panel = fit_panel([*ballots("plain"), *ballots("easy"), *ballots("trap")])
    gains = []
    for seed in range(5):
        unseen = ballots("snare", 200, seed=seed, weak=0.25)
        chosen = panel.single({judge for one in unseen for judge in one.votes})
        assert chosen.startswith("strong/")
        gains.append(accuracy(panel, unseen) - alone(chosen, unseen))
        majority = fmean(float((sum(one.votes.values()) > 0) is one.first) for one in unseen)
        assert accuracy(panel, unseen) > majority + 0.2
    assert fmean(gains) > 0
    assert accuracy(panel, ballots("easy", 100, seed=1)) > 0.9


def test_labels_of_what_it_reads_are_not_looked_at() -> None:
    panel = fit_panel([*ballots("plain"), *ballots("easy"), *ballots("trap")])
    own = ballots("snare")
    hidden = [Ballot(one.votes, None, one.kind, one.id) for one in own]
    assert panel.read(own) == panel.read(hidden)


def test_a_panel_of_traps_alone_refuses_plain_answers_and_lets_one_judge_speak_unproven() -> None:
    panel = fit_panel([*ballots("trap", 150), *ballots("snare", 150)])
    (reading,) = panel.read(ballots("easy", 150)).values()
    assert "the judges agree otherwise here" in reading.refusal
    assert reading.distance > reading.reach
    assert reading.decided_by.startswith("strong/")
    assert not any(verdict.sure for verdict in reading.verdicts)
    (same,) = panel.read(ballots("trap", 150, seed=1)).values()
    assert same.decided_by == "panel"


def test_shuffled_labels_leave_no_panel() -> None:
    own = [*ballots("plain"), *ballots("easy"), *ballots("trap")]
    labels = [one.first for one in own]
    random.Random(3).shuffle(labels)
    panel = fit_panel([Ballot(one.votes, label, one.kind) for one, label in zip(own, labels, strict=True)])
    assert "not right beyond chance" in panel.refusal
    assert not any(verdict.sure for verdict in panel.read(own)["plain"].verdicts)


def test_it_is_sure_only_of_kinds_whose_labels_bear_it_out() -> None:
    known = [*ballots("easy", 150, strong=0.985, weak=0.95), *ballots("plain"), *ballots("trap")]
    panel = fit_panel(known)
    own = ballots("easy", 200, seed=2, strong=0.985, weak=0.95)
    (reading,) = panel.read(own).values()
    sure = [
        verdict.first is ballot.first
        for verdict, ballot in zip(reading.verdicts, own, strict=True)
        if verdict.sure
    ]
    assert len(sure) > 50
    assert fmean(sure) >= 0.95
    assert not any(verdict.sure for verdict in panel.read(ballots("plain", seed=2))["plain"].verdicts)


def test_a_judge_that_failed_has_no_vote_and_the_other_prompts_speak_for_its_model() -> None:
    own = [*ballots("plain"), *ballots("easy"), *ballots("trap")]
    panel = fit_panel(own)
    unseen = ballots("snare", 200)
    gone = [
        Ballot(
            {judge: vote for judge, vote in one.votes.items() if judge != "strong/long"}, one.first, one.kind
        )
        for one in unseen
    ]
    assert accuracy(panel, gone) > accuracy(panel, unseen) - 0.06
    assert pair_vote(None, None) is None
    assert (pair_vote(1, None), pair_vote(2, 2), pair_vote(1, 2)) == (0.5, -1.0, 0.0)


def test_two_models_that_disagree_do_not_tell_who_is_right() -> None:
    panel = fit_panel([*ballots("plain"), *ballots("easy"), *ballots("trap")])
    two = [
        Ballot({judge: vote for judge, vote in one.votes.items() if judge[:3] in ("str", "one")}, None, "new")
        for one in ballots("snare")
    ]
    (reading,) = panel.read(two).values()
    assert "2 families of judges voted" in reading.refusal


def test_a_panel_is_kept_as_json_and_unknown_judges_are_named() -> None:
    panel = fit_panel([*ballots("plain"), *ballots("easy"), *ballots("trap")])
    kept = msgspec.json.decode(msgspec.json.encode(panel), type=Panel)
    own = ballots("snare")
    assert kept.read(own) == panel.read(own)
    with pytest.raises(InputError, match="knows none of these judges"):
        panel.read([Ballot({"stranger/short": 1.0}, None, "new")])
    with pytest.raises(InputError, match="without a label"):
        fit_panel([Ballot(one.votes, None, one.kind) for one in own])
