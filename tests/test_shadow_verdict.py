"""Shadows as evidence: traffic replayed whole under a candidate, and the Verdict on pairs of answers."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from commands import command

import whet
from whet.cli.shadow import replay_under, told
from whet.errors import GateError, NotFoundError
from whet.judge.base import reward
from whet.prove.shadow import shadow_pairs, shadow_verdict, trial_of
from whet.record.store import Release, Stage, Store
from whet.record.tracing import flush
from whet.types import Bundle, Version

PROMPT = whet.resource("shadowed_prompt", default="plain")
SENT: list[str] = []


@whet.step(kind="tool", effect="write")
def send(text: str) -> str:
    SENT.append(text)
    return f"sent {text}"


def agent(question: str) -> str:
    """Answers well under the prompt `well`; under `wild` it sends what was never sent."""
    prompt = f"{PROMPT}"
    send("a wild thing" if prompt == "wild" else question)
    return f"{question} right" if prompt == "well" else question


@reward
def right(trajectory: whet.Trajectory) -> float:
    return float("right" in trajectory.output_text)


def recorded(path: Path, runs: int = 60) -> None:
    with Store(path) as store:
        traced = whet.trace(store)(agent)
        for number in range(runs):
            with whet.run(subject=f"p{number}"):
                traced(f"question {number}")
        flush()


def shadow(store: Store, prompt: str) -> Release:
    candidate = Bundle([Version(resource="shadowed_prompt", content=prompt)])
    return store.release(candidate, stage=Stage.SHADOW)


def test_a_candidate_that_answers_better_on_replayed_traffic_may_become_a_canary(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    recorded(path)
    with Store(path) as store:
        release, runs, sent = shadow(store, "well"), list(store.trajectories()), len(SENT)
        counts = replay_under(store, release.trial, agent, runs, divergence="exclude")
        assert counts == {"paired": 60}
        assert len(SENT) == sent  # a tool that writes was answered from the record
        for run, answered in shadow_pairs(store, release.trial):
            assert answered.output == f"{run.output} right"
            assert (answered.session, answered.subject) == (None, run.subject)
        verdict = asyncio.run(shadow_verdict(store, release, [right]))
        assert verdict.promote
        assert (verdict.n, verdict.candidate) == (60, release.candidate)
        canary = store.release(store.bundle(release.candidate), stage=Stage.CANARY, share=0.1)
        assert not canary.unproven
        assert canary.trial == release.trial
        # Replayed again they are the same shadows, and shadows are no traffic.
        replay_under(store, release.trial, agent, list(store.trajectories()), divergence="exclude")
        assert len(shadow_pairs(store, release.trial)) == 60


def test_a_candidate_that_answers_alike_is_not_promoted(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    recorded(path, 40)
    with Store(path) as store:
        release = shadow(store, "otherwise put")
        replay_under(store, release.trial, agent, list(store.trajectories()), divergence="exclude")
        assert not asyncio.run(shadow_verdict(store, release, [right])).promote


def test_a_call_that_leaves_the_record_is_left_out_and_counted_or_answered_by_the_simulator(
    tmp_path: Path,
) -> None:
    path = tmp_path / "runs.db"
    recorded(path, 10)
    with Store(path) as store:
        release, runs, sent = shadow(store, "wild"), list(store.trajectories()), len(SENT)
        counts = replay_under(store, release.trial, agent, runs, divergence="exclude")
        assert counts["paired"] == 0
        assert counts.total() == 10
        assert "left out: 10 runs" in told(store, release.trial, counts)[1]
        assert shadow_pairs(store, release.trial) == []
        simulated = replay_under(
            store, release.trial, agent, runs, divergence=lambda tool, arguments: "simulated"
        )
        assert simulated == {"paired": 10}
        assert len(SENT) == sent


def test_the_commands_replay_and_judge_a_shadow(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "runs.db"
    recorded(path, 30)
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    with Store(path) as store:
        trial = shadow(store, "well").trial
    here = Path(__file__).stem
    replayed = command(capsys, "replay", f"{here}:agent", "--store", path, "--trial", trial)
    assert "30 runs replayed under the candidate" in replayed.stdout, replayed
    judged = command(capsys, "verdict", "--shadow", trial, "--store", path, "--reward", f"{here}:right")
    assert "keep" in judged.stdout.lower(), judged
    assert f"shadow {trial}" in command(capsys, "show", "trials", "--store", path).stdout


def test_what_cannot_be_judged_says_what_to_do(tmp_path: Path) -> None:
    with Store(tmp_path / "runs.db") as store:
        with pytest.raises(NotFoundError, match="whet show trials"):
            trial_of(store, "nothing")
        release = store.release(
            Bundle([Version(resource="shadowed_prompt", content="x")]), stage=Stage.SHADOW, new_names=True
        )
        with pytest.raises(GateError, match="--reward"):
            asyncio.run(shadow_verdict(store, release, []))
        with pytest.raises(GateError, match="no pair yet"):
            asyncio.run(shadow_verdict(store, release, [right]))
