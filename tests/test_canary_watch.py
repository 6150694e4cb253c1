"""The canaries of a record: evidence from its runs and what people say of them, and what the watcher makes of it."""

from __future__ import annotations

import itertools
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from commands import command

from whet.errors import ConflictError, GateError
from whet.prove.canary import CanaryAction, CanaryPlan
from whet.prove.watch import TrafficPart, keep_plan, look, look_at_parts, looks, plan_of
from whet.record.store import Release, Stage, Store, batch
from whet.record.store.trials import TRIALS, Trials
from whet.serve.trials import TrialWatcher
from whet.ship.canaries import carry_out
from whet.types import Bundle, Failure, Fault, Feedback, Outcome, Task, Trajectory, Version

CANDIDATE = Bundle([Version(resource="prompt", content="candidate")])
LIVE = Bundle([Version(resource="prompt", content="live")])
PLAN = CanaryPlan(shares=(0.5,), harm=0.3, settle=60.0, most=4_000)


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    # Who is drawn hangs on the id of the trial: with ids of their own the tests draw the same sessions each time.
    ids = itertools.count(1)
    monkeypatch.setattr(batch, "new_id", lambda: f"{next(ids):024x}")
    with Store(":memory:") as opened:
        opened.set_live(LIVE)
        yield opened


def canary(store: Store, share: float = 0.5, plan: CanaryPlan | None = PLAN) -> Release:
    release = store.release(CANDIDATE, stage=Stage.CANARY, share=share, unproven=True, new_names=True)
    if plan is not None:
        keep_plan(store, release, plan)
    return release


def traffic(
    store: Store,
    sessions: int,
    *,
    effect: float,
    seed: int = 0,
    delay: float = 5.0,
    at: float | None = None,
    per_session: int = 1,
    wrong: float = 0.0,
    name: str = "s",
) -> None:
    """Sessions as they would be served now, each with a thumb; `wrong` of the candidate's get what is live."""
    chance, began = random.Random(seed), time.time() if at is None else at
    live = store.live()
    assert live is not None
    trials = Trials(store.on_trial(), live)
    runs, words = [], []
    for number in range(sessions):
        session = f"{name}{seed}-{number}"
        for turn in range(per_session):
            id = f"{session}.{turn}"
            choice = trials.choose(id, session)
            candidate = choice.bundle is not None
            served = live if candidate and chance.random() < wrong else (choice.bundle or live)
            started = began + number / 100 + turn
            runs.append(
                Trajectory(
                    id=id,
                    task=Task(instruction="hello"),
                    session=session,
                    versions=served.ids,
                    started=started,
                    seconds=1.0,
                    meta={TRIALS: dict(choice.trials)},
                )
            )
            up = chance.random() < 0.5 + effect * candidate
            words.append(Feedback(run=id, value=1.0 if up else -1.0, at=started + delay))
    store.put(*runs)
    store.add_feedback(*words)


def later(seconds: float = 1_000.0) -> float:
    return time.time() + seconds


def test_a_better_candidate_goes_live_on_its_own_proof(store: Store) -> None:
    release = canary(store)
    traffic(store, 500, effect=0.3)
    (seen,) = TrialWatcher(store).step(later())
    assert seen.decision.share == 1.0
    assert store.live() == CANDIDATE
    assert not store.on_trial()
    (verdict,) = store.verdicts(candidate=release.candidate)
    assert verdict.promote
    assert "canary" in store.history(last=1)[0].reason
    assert not store.history(last=1)[0].unproven


def test_a_worse_candidate_is_taken_back_and_what_is_live_stays(store: Store) -> None:
    canary(store)
    traffic(store, 800, effect=-0.3)
    TrialWatcher(store).step(later())
    assert not store.on_trial()
    assert store.live() == LIVE
    assert "does harm" in store.release_log(last=1)[0].reason


def test_shuffled_thumbs_move_nothing(store: Store) -> None:
    canary(store)
    traffic(store, 500, effect=0.0)
    (seen,) = TrialWatcher(store).step(later())
    assert seen.decision.action is CanaryAction.HOLD
    assert [release.share for release in store.on_trial()] == [0.5]


def test_a_session_is_one_piece_of_evidence_however_long_it_is(store: Store) -> None:
    release = canary(store)
    traffic(store, 20, effect=0.4, per_session=30)
    seen = look(store, release, now=later())
    assert (seen.runs, seen.units, seen.decision.n) == (600, 20, 20)
    assert seen.decision.share == 0.5


def test_a_word_counts_until_its_units_time_is_over_and_for_the_arm_that_was_served(store: Store) -> None:
    release = canary(store)
    traffic(store, 60, effect=0.3, delay=50.0)
    assert look(store, release, now=time.time() + 30).decision.n == 0
    assert look(store, release, now=later()).decision.n == 60
    traffic(store, 10, effect=0.3, seed=1, delay=70.0)
    seen = look(store, release, now=later())
    assert (seen.decision.n, seen.late) == (60, 10)
    assert "came too late" in seen.sentence


def test_runs_that_were_served_otherwise_than_assigned_are_counted_and_left_out(store: Store) -> None:
    release = canary(store)
    traffic(store, 1200, effect=0.0, wrong=0.5)
    seen = look(store, release, now=later())
    assert 220 <= seen.mismatched <= 380
    assert seen.units == 1200 - seen.mismatched
    assert "left out" in seen.sentence
    # What is left is no longer what was drawn.
    assert "sample-ratio mismatch" in seen.decision.reason


def test_a_unit_that_had_begun_with_what_is_live_stays_its_evidence_as_the_share_rises(store: Store) -> None:
    release = canary(store, 0.1)
    traffic(store, 100, effect=0.0)
    release = store.release(CANDIDATE, stage=Stage.CANARY, share=0.5, unproven=True, new_names=True)
    now = time.time() + 10
    for number in range(100):  # the same sessions again
        id, session = f"again-{number}", f"s0-{number}"
        choice = Trials(store.on_trial(), LIVE).choose(id, session)
        store.put(
            Trajectory(
                id=id,
                task=Task(),
                session=session,
                versions=(choice.bundle or LIVE).ids,
                started=now,
                meta={TRIALS: dict(choice.trials)},
            )
        )
    seen = look(store, release, now=later())
    assert 20 <= seen.crossed <= 65
    assert seen.units == 100


def test_a_candidate_that_breaks_is_taken_back_without_a_word(store: Store) -> None:
    release = canary(store)
    trials = Trials(store.on_trial(), LIVE)
    for number in range(300):
        choice = trials.choose(f"r{number}", f"s{number}")
        broken = choice.bundle is not None
        store.put(
            Trajectory(
                id=f"r{number}",
                task=Task(),
                session=f"s{number}",
                versions=(choice.bundle or LIVE).ids,
                started=time.time(),
                seconds=0.1,
                outcome=Outcome.INFRASTRUCTURE_ERROR if broken else Outcome.UNKNOWN,
                error=Failure(Fault.MODEL, "upstream_cut", "cut") if broken else None,
                meta={TRIALS: dict(choice.trials)},
            )
        )
    seen = look(store, release, now=later(2.0))
    assert seen.decision.action is CanaryAction.TAKE_BACK
    assert "by its errors" in seen.decision.reason


def test_who_was_taken_back_by_hand_is_not_brought_back_by_a_decision_made_before(store: Store) -> None:
    release = canary(store)
    store.retire(release.trial, reason="by hand")
    with pytest.raises(ConflictError, match=r'it is retired since .*, "by hand"'):
        carry_out(store, release, 0.9, reason="late")
    assert not store.on_trial()


@pytest.mark.parametrize("share", [0.0, 0.9, 1.0])
def test_what_was_decided_on_another_share_is_refused_and_says_so(store: Store, share: float) -> None:
    release = canary(store)
    wider = carry_out(store, release, 0.6, reason="harm is excluded")
    with pytest.raises(ConflictError, match=f'canary at 60% since {wider.id}, "harm is excluded'):
        carry_out(store, release, share, reason="late")
    assert store.on_trial() == [wider]


DECIDES = """
import sys
from whet.errors import ConflictError
from whet.record.store import Store
from whet.ship.canaries import carry_out
path, share = sys.argv[1], float(sys.argv[2])
with Store(path) as store:
    (canary,) = store.on_trial()
    print("ready", flush=True)
    sys.stdin.readline()
    try:
        print(carry_out(store, canary, share, reason=f"to {share}").id)
    except ConflictError as conflict:
        print(f"refused: {conflict}")
"""


def test_of_two_processes_that_decide_on_one_look_one_acts_and_the_other_says_so(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    with Store(path) as store:
        store.set_live(LIVE)
        release = canary(store)
    both = [
        subprocess.Popen(
            [sys.executable, "-c", DECIDES, str(path), share],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for share in ("0", "0.8")
    ]
    for process in both:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    for process in both:
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()
    told = [process.communicate(timeout=300)[0].strip() for process in both]
    with Store(path) as store:
        last = store.release_log(last=1)[0]
        assert len([entry for entry in store.release_log() if entry.trial == release.trial]) == 2
    (lost,) = [line for line in told if line != last.id]
    assert f"it is {last.stage}" in lost
    assert f"refused: trial {release.trial} was moved meanwhile" in lost


def test_an_unproven_canary_must_be_better_and_a_proven_one_not_worse(store: Store) -> None:
    unproven = canary(store, 0.2, None)
    assert plan_of(store, unproven).margin == 0.0
    assert plan_of(store, unproven).shares == (0.2, 0.25, 0.5)
    with pytest.raises(GateError):
        store.release(CANDIDATE, new_names=True)


def test_looks_are_of_canaries_alone_and_say_what_waits(store: Store) -> None:
    first = canary(store, 0.3)
    time.sleep(0.002)  # trials are told apart in time by the millisecond
    other = Bundle([Version(resource="prompt", content="another")])
    store.release(other, stage=Stage.CANARY, share=0.3, unproven=True)
    store.release(other.put(Version(resource="knob", content=1)), stage=Stage.SHADOW, new_names=True)
    assert [seen.waits_for for seen in looks(store)] == [None, first.trial]
    assert "waits for" in looks(store)[1].sentence


def test_the_command_gives_a_canary_its_plan_and_says_what_it_promises(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "runs.db"
    with Store(path) as store:
        store.set_live(LIVE)
        traffic(store, 100, effect=0.0, per_session=2)
        store.put_bundle(CANDIDATE)
    words = ["release", CANDIDATE.id, "--store", path, "--unproven", "--to"]
    said = command(capsys, *words, "canary", "--share", "0.2", "--harm", "0.3", "--settle", "60")
    assert "A loss of 30 points is taken back within" in said.stdout, said
    assert "100% judged, 2.0 requests a session" in said.stdout
    with Store(path) as store:
        (release,) = store.on_trial()
        plan = plan_of(store, release)
        assert (plan.harm, plan.settle, plan.shares[0]) == (0.3, 60.0, 0.2)
    assert "at 20%" in command(capsys, "show", "trials", "--store", path).stdout
    assert "--harm" in command(capsys, *words, "live", "--harm", "0.3").stderr


CODE = Bundle([Version(resource="desk.answer", content="def answer(): ...", kind="program")])


def deployed(
    store: Store, release: Release, count: int, *, effect: float, lag: int = 0, person: str = ""
) -> None:
    """Runs of code that somebody deploys for half of those who come; no arm is recorded, and everyone says a word."""
    chance, began = random.Random(count), time.time()
    for number in range(lag + count):
        tried = number >= lag and chance.random() < 0.5
        up = chance.random() < 0.5 + effect * tried
        id = f"d{person}{number}"
        store.put(
            Trajectory(
                id=id,
                task=Task(instruction=f"how long is {('delivery', 'warranty')[number % 2]} {number}?"),
                subject=person or f"p{number}",
                versions=CODE.ids if tried else {},
                started=began + number * 1e-3,
                feedback=[Feedback(run=id, value=1.0 if up else -1.0, at=began + number * 1e-3)],
            )
        )


def test_a_canary_of_code_is_watched_by_what_each_run_ran_under(store: Store) -> None:
    release = store.release(CODE, stage=Stage.CANARY, share=0.5, unproven=True, new_names=True)
    deployed(store, release, 500, effect=-0.45, lag=200)
    seen = look(store, release, now=later())
    assert 480 < seen.units < 500, (
        "from the first run under it on, for nobody was drawn before it was deployed"
    )
    TrialWatcher(store).step(later())
    assert not store.on_trial()
    assert "does harm, by its success" in store.release_log(last=1)[0].reason


def test_each_part_of_the_traffic_has_evidence_of_its_own_and_one_person_counts_for_so_much(
    store: Store,
) -> None:
    release = store.release(CODE, stage=Stage.CANARY, share=0.5, unproven=True, new_names=True)
    deployed(store, release, 300, effect=0.0)
    deployed(store, release, 300, effect=-0.5, person="troll")
    parts = {
        name: TrafficPart(lambda question, name=name: name in question, most_of_one=20)
        for name in ("warranty", "delivery")
    }
    seen = look_at_parts(store, release, parts, now=later())
    uncapped = look(store, release, now=later())
    assert uncapped.units > 580
    assert sum(each.units for each in seen.values()) == pytest.approx(300 + 2 * 20, abs=8)
    assert {each.decision.action for each in seen.values()} == {CanaryAction.HOLD}
    assert uncapped.decision.harm > 10 * max(each.decision.harm for each in seen.values()), "the control"


def test_drift_is_reported_and_watched(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, chance = tmp_path / "runs.db", random.Random(0)
    with Store(path) as store:
        runs = []
        for number in range(700):
            right = chance.random() < (0.8 if number < 450 else 0.3)
            outcome = Outcome.SUCCESS if right else Outcome.FAILURE
            runs.append(Trajectory(id=f"r{number:03}", task=Task(), outcome=outcome, started=float(number)))
        store.put(*runs)
        (drifted,) = TrialWatcher(store).look_for_drift()
        assert drifted.feature == "success"
    assert "success drifted" in capsys.readouterr().err
    said = command(capsys, "report", "--drift", "--store", path).stdout
    assert "300 runs against 400" in said
    assert "success drifted" in said
    assert "steps is as before" in said
