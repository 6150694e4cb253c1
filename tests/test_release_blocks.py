"""What keeps a proven-looking candidate from being released, each with the sentence that says what would clear it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from whet.errors import GateError, InputError
from whet.prove.gate import compare
from whet.prove.verdict import guarded
from whet.record.store import Stage, Store, bundle_of
from whet.record.store.findings import RewardFinding
from whet.ship.releasing import record, with_findings
from whet.types import UNCALIBRATED, Json, Outcome, Score, Task, Trajectory, Verdict

BASE, BETTER = bundle_of({"prompt": "first"}), bundle_of({"prompt": "second"})
CLEARED_BY = {
    "unproven judge": "whet audit RUBRIC",
    "unsafe score": "without --unsafe-local",
    "co-resident score": "Judge its answers from outside",
    "other Versions": "Have the workers run what they are served",
    "failing guard suite": "Mend it",
    "missing baseline": "Judge it beside what is live",
}


def runs(share: int, *, meta: dict[str, Json] | None = None, evaluator: str = "") -> list[Trajectory]:
    """200 runs of which every `share`-th fails."""
    return [
        Trajectory(
            task=Task(id=f"t{number}", instruction="?"),
            outcome=Outcome.SUCCESS if number % share else Outcome.FAILURE,
            scores={"success": Score("success", float(bool(number % share)), evaluator=evaluator)},
            meta=meta or {},
        )
        for number in range(200)
    ]


def judged(kind: str) -> Verdict:
    """The Verdict of a real gate on a candidate that is plainly better, and blocked for one reason."""
    meta: dict[str, dict[str, Json]] = {
        "unsafe score": {"trusted_only": True},
        "co-resident score": {"co_resident": True},
        "other Versions": {"mismatch": {"versions": {"prompt": "x"}}},
    }
    evaluator = UNCALIBRATED + "v1" if kind == "unproven judge" else "v1"
    verdict = compare(
        runs(2, evaluator=evaluator), runs(20, meta=meta.get(kind), evaluator=evaluator), metric="success"
    )
    if kind == "failing guard suite":
        verdict = guarded(verdict, runs(20), runs(2), margin=0.02)
    baseline = "" if kind == "missing baseline" else BASE.id
    return replace(verdict, candidate=BETTER.id, baseline=baseline)


@pytest.mark.parametrize("kind", [*CLEARED_BY])
def test_a_candidate_that_something_forbids_is_told_what_would_clear_it_and_released_by_name_alone(
    kind: str,
) -> None:
    with Store(":memory:") as store:
        store.release(BASE, unproven=True, new_names=True)
        record(store, judged(kind), (BASE, BETTER), experiment="e")
        for stage in (Stage.CANARY, Stage.LIVE):
            with pytest.raises(GateError, match=CLEARED_BY[kind]):
                store.release(BETTER, stage=stage)
        assert store.live() == BASE
        released = store.release(BETTER, unproven=True, reason="it is urgent")
        assert released.unproven
        assert released.reason == f"it is urgent; released in spite of: {kind}"


def test_the_same_candidate_with_nothing_against_it_is_released_on_its_verdict() -> None:
    with Store(":memory:") as store:
        store.release(BASE, unproven=True, new_names=True)
        verdict = record(store, judged(""), (BASE, BETTER), experiment="e")
        assert (verdict.promote, verdict.metric, verdict.evaluator, verdict.blocks) == (
            True,
            "success",
            "v1",
            {},
        )
        released = store.release(BETTER)
        assert (released.verdict, released.unproven, released.reason) == (verdict.id, False, "")


def test_what_a_verdict_refuses_is_said_before_a_name_that_nothing_reads() -> None:
    """Who is told of the name alone corrects it, and is refused again."""
    misspelt = bundle_of({"promt": "second"})
    with Store(":memory:") as store:
        store.release(BASE, unproven=True, new_names=True)
        with pytest.raises(InputError, match=r"nothing reads a resource called 'promt'.*close to it: prompt"):
            store.release(misspelt)  # which nothing has judged, perhaps for its name
        worse = compare(runs(20), runs(2), metric="success")
        record(
            store, replace(worse, candidate=misspelt.id, baseline=BASE.id), (BASE, misspelt), experiment="e"
        )
        with pytest.raises(GateError, match=r"the Verdict on Bundle .* does not promote it"):
            store.release(misspelt)
        with pytest.raises(InputError, match="nothing reads a resource called 'promt'"):
            store.release(misspelt, unproven=True)


@pytest.mark.parametrize("stage", ["shadow", "canary", "live"])
def test_an_open_finding_keeps_a_candidate_from_every_stage_whatever_is_asked(stage: Stage) -> None:
    finding = RewardFinding(kind="length", sentence="answers grew from 10 to 90 words", runs=("r1",))
    with Store(":memory:") as store:
        store.release(BASE, unproven=True, new_names=True)
        record(store, with_findings(store, judged(""), [finding], ()), (BASE, BETTER), experiment="e")
        with pytest.raises(GateError, match="whet findings --clear"):
            store.release(BETTER, stage=stage, unproven=True)
        assert store.on_trial() == []
