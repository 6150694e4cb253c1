"""Stages of a release: one log, any number of trials, one that is live; what replaces a base ends its trials."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from whet.errors import GateError, InputError, NotFoundError
from whet.record.store import Release, Stage, Store, bundle_of
from whet.types import Bundle, Verdict


def proof(bundle: Bundle) -> Verdict:
    return Verdict(
        promote=True,
        effect=0.1,
        interval=(0.05, 0.15),
        e_value=40.0,
        n=200,
        candidate=bundle.id,
        baseline="b",
    )


def told(entries: list[Release]) -> list[tuple[str, Stage, float]]:
    return [(entry.candidate, entry.stage, entry.share) for entry in entries]


def test_a_candidate_goes_from_shadow_over_a_growing_canary_to_live_as_one_trial() -> None:
    first, second = bundle_of({"prompt": "first"}), bundle_of({"prompt": "second"})
    with Store(":memory:") as store:
        base = store.release(first, unproven=True, new_names=True)
        verdict = proof(second)
        shadow = store.release(second, stage=Stage.SHADOW)
        assert (shadow.share, shadow.unproven, store.live()) == (1.0, True, first), "a shadow needs no proof"
        with pytest.raises(GateError, match="nothing has proven"):
            store.release(second, stage=Stage.CANARY)
        store.put_verdict(verdict)
        canary = store.release(second, stage=Stage.CANARY, unit="subject")
        assert (canary.share, canary.unit, canary.verdict, canary.unproven) == (
            0.1,
            "subject",
            verdict.id,
            False,
        )
        wider = store.release(second, stage=Stage.CANARY, share=0.5, unit="subject")
        assert store.release(second, stage=Stage.CANARY, share=0.5, unit="subject") == wider, (
            "nothing to change"
        )
        assert {shadow.trial, canary.trial, wider.trial} == {shadow.id}
        assert (store.on_trial(), store.live()) == ([wider], first)
        live = store.release(second)
        assert (store.on_trial(), store.live()) == ([], second)
        assert (live.trial, live.previous, live.base) == (shadow.id, base.id, first.id)
        assert [entry.stage for entry in store.release_log()] == [
            "live",
            "shadow",
            "canary",
            "canary",
            "live",
        ]
        assert [entry.id for entry in store.history()] == [base.id, live.id]
        with pytest.raises(InputError, match="live already"):
            store.release(second, stage=Stage.CANARY)


def test_several_trials_stand_at_once_and_end_with_what_they_were_made_from() -> None:
    with Store(":memory:") as store:
        store.release(bundle_of({"prompt": "first", "limit": 1}), unproven=True, new_names=True)
        prompt, limit, both = (
            bundle_of(content) for content in ({"prompt": "a"}, {"limit": 2}, {"prompt": "b", "limit": 3})
        )
        for candidate in (prompt, limit):
            store.release(candidate, stage=Stage.CANARY, share=0.3, unproven=True)
        shadow = store.release(both, stage=Stage.SHADOW)
        assert told(store.on_trial()) == [
            (prompt.id, Stage.CANARY, 0.3),
            (limit.id, Stage.CANARY, 0.3),
            (both.id, Stage.SHADOW, 1.0),
        ]
        assert store.on_trial()[0].bundle == bundle_of({"prompt": "a", "limit": 1}), "beside what is live"
        with pytest.raises(InputError, match="leave nobody with what is live"):
            store.release(both, stage=Stage.CANARY, share=0.4, unproven=True)
        store.release(prompt, unproven=True)
        assert store.on_trial() == []
        ended = [entry for entry in store.release_log() if entry.stage is Stage.RETIRED]
        assert {entry.candidate for entry in ended} == {limit.id, both.id}
        assert all("no longer live" in entry.reason and "whet release" in entry.reason for entry in ended)
        again = store.release(both, stage=Stage.SHADOW)
        assert again.trial != shadow.trial, "on another base it is another trial"
        store.rollback()
        assert store.on_trial() == []


def test_a_trial_of_which_a_part_goes_live_goes_on_with_the_rest_until_that_part_is_taken_back() -> None:
    base, both = bundle_of({"knob": 1, "limit": 1}), bundle_of({"prompt": "a", "limit": 2})
    part = bundle_of({"prompt": "a"})
    with Store(":memory:") as store:
        store.release(base, unproven=True, new_names=True)
        trial = store.release(both, stage=Stage.CANARY, share=0.3, unproven=True, new_names=True)
        live = store.release(part, unproven=True, new_names=True)
        (standing,) = store.on_trial()
        assert (standing.trial, standing.share, standing.base) == (trial.trial, 0.3, live.bundle.id)
        assert standing.bundle == trial.bundle, "who has it is served the same"
        store.rollback()
        assert store.on_trial() == [], "what was live of it has been taken back"
        trial = store.release(both, stage=Stage.CANARY, share=0.3, unproven=True, new_names=True)
        store.release(part.put(*bundle_of({"knob": 2}).values()), unproven=True, new_names=True)
        assert store.on_trial() == [], "something else went live beside it"


def test_a_trial_is_ended_by_any_of_its_names_once() -> None:
    candidate = bundle_of({"prompt": "new"})
    with Store(":memory:") as store:
        canary = store.release(candidate, stage=Stage.CANARY, unproven=True, new_names=True)
        store.release(candidate, stage=Stage.CANARY, share=0.2, unproven=True, new_names=True)
        ended = store.retire(canary.id, reason="thumbs fell")
        assert (ended.stage, ended.share, ended.reason) == (Stage.RETIRED, 0.0, "thumbs fell")
        assert store.retire(candidate.id) == ended
        assert (store.on_trial(), store.live()) == ([], None)
        assert len(store.release_log()) == 3
        with pytest.raises(NotFoundError, match="nothing of the id 'other' is on trial"):
            store.retire("other")
        live = store.release(candidate, unproven=True, new_names=True)
        with pytest.raises(InputError, match="not on trial"):
            store.retire(live.id)


@pytest.mark.parametrize(
    ("stage", "share", "unit", "message"),
    [
        (Stage.CANARY, 1.0, "session", "between 0 and 1"),
        (Stage.CANARY, 0.0, "session", "between 0 and 1"),
        (Stage.SHADOW, 1.5, "session", "up to 1"),
        (Stage.LIVE, 0.5, "session", "a canary's"),
        (Stage.CANARY, 0.5, "country", "drawn by session, subject, run"),
        (Stage.GATED, None, "session", "a Verdict makes it gated"),
    ],
)
def test_a_stage_share_or_unit_that_makes_no_sense_is_refused(
    stage: Stage, share: float | None, unit: str, message: str
) -> None:
    with Store(":memory:") as store, pytest.raises(InputError, match=message):
        store.release(
            bundle_of({"p": "x"}), stage=stage, share=share, unit=unit, unproven=True, new_names=True
        )


def test_proving_what_is_live_leaves_its_trials_alone() -> None:
    live, candidate = bundle_of({"prompt": "live"}), bundle_of({"prompt": "new"})
    with Store(":memory:") as store:
        store.release(live, unproven=True, new_names=True)
        trial = store.release(candidate, stage=Stage.SHADOW)
        store.release(live, proof(live))
        assert store.on_trial() == [trial]


MOVES = """
import sys
from whet.record.store import Stage, Store, bundle_of
path, who = sys.argv[1], sys.argv[2]
with Store(path) as store:
    print("ready", flush=True)
    sys.stdin.readline()
    for number in range(8):
        candidate = bundle_of({"prompt": f"{who}{number}"})
        store.release(candidate, stage=Stage.CANARY, share=.4, unproven=True, new_names=True)
        store.release(candidate, unproven=True, new_names=True)
"""


def test_two_processes_that_move_trials_at_once_leave_one_live_and_no_trial_of_another_base(
    tmp_path: Path,
) -> None:
    path = tmp_path / "runs.db"
    Store(path).close()
    both = [
        subprocess.Popen(
            [sys.executable, "-c", MOVES, str(path), who],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for who in "ab"
    ]
    for process in both:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    for process in both:
        process.communicate("\n", timeout=300)
    assert [process.returncode for process in both] == [0, 0]
    with Store(path) as store:
        live = ""
        standing: dict[str, Release] = {}
        for entry in store.release_log():
            if entry.stage is Stage.LIVE:
                live = entry.bundle.id
            standing.pop(entry.trial, None)
            if entry.stage in (Stage.SHADOW, Stage.CANARY):
                assert entry.base == (live or Bundle().id), "made from what was live at its commit"
                standing[entry.trial] = entry
        assert [*standing.values()] == store.on_trial() == []
        assert len(store.history()) == 16
