"""What the autopilot remembers of the record, beside a reader that begins anew."""

from __future__ import annotations

import random
import time
from pathlib import Path

import pytest

from whet.autopilot import work
from whet.autopilot.work import RecordedTraffic
from whet.record.store import Store
from whet.types import Feedback, Task, Trajectory


def _run(number: int) -> Trajectory:
    return Trajectory(
        id=f"t{number}",
        task=Task(instruction=f"Where is order {number}?"),
        subject=f"p{number % 7}",
        started=float(number),
        # A thumb may name the run or its trajectory.
        meta={"source": "gateway", "run": f"run-{number}" if number % 2 else f"t{number}"},
    )


def test_what_is_said_later_of_a_run_that_is_remembered_is_seen(tmp_path: Path) -> None:
    chance, asked, said = random.Random(3), 0, 0
    with Store(tmp_path / "runs.db") as store:
        remembered = RecordedTraffic(store)
        for _ in range(12):
            new = chance.randrange(40)
            store.put(*(_run(asked + number) for number in range(new)))
            asked += new
            notes = []
            for _ in range(chance.randrange(30) if asked else 0):
                of, said = chance.randrange(asked), said + 1
                run = _run(of).meta["run"] if chance.random() < 0.5 else f"t{of}"
                notes.append(Feedback(run=str(run), value=-1.0, id=f"n{said}", at=1_000.0 + said))
            store.add_feedback(*notes)
            fresh = RecordedTraffic(store)
            assert list(remembered.read().items()) == list(fresh.read().items())
            assert remembered.latest(1e9) == fresh.latest(1e9)
            assert remembered.as_of(1_000.0 + said / 2) == fresh.as_of(1_000.0 + said / 2)
        assert any(run.feedback for run in remembered.read().values())
        store.erase("p3")
        store.put(_run(asked))
        assert not [run for run in remembered.read().values() if run.subject == "p3"]
        assert list(remembered.read().items()) == list(RecordedTraffic(store).read().items())


def test_a_long_life_keeps_the_newest_runs_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(work, "NEWEST", 40)
    monkeypatch.setattr(work, "_MOST_KEPT", 44)
    with Store(tmp_path / "runs.db") as store:
        remembered = RecordedTraffic(store)
        for begin in range(0, 200, 10):
            store.put(*map(_run, range(begin, begin + 10)))
            assert len(remembered.read()) <= 44
        store.add_feedback(Feedback(run="t0", value=1.0, id="late", at=time.time()))
        assert "t0" not in remembered.read()
        assert [*remembered.read()][-1] == "t199"
