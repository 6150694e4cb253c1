"""The queue against a model of it: any sequence of calls, failures, restarts and clock steps."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from whet.errors import StaleLeaseError
from whet.record.store import Queue, Store
from whet.record.store.rollouts import Claim, Finish
from whet.types import Failure, Fault, Lease, Mode, Outcome, Rollout, Task, Trajectory

MODES: tuple[Mode, ...] = ("train", "val", "test")
LOST = "LeaseExpired"


class Model:
    """A rollout as the model knows it."""

    def __init__(self, name: str, mode: Mode, limit: int) -> None:
        self.name, self.mode, self.limit = name, mode, limit
        self.status = "queued"
        self.attempts = 0
        self.fence: int | None = None
        self.until = 0.0
        self.lease = 0.0
        self.result: str | None = None
        self.error: str | None = None


class QueueMachine(RuleBasedStateMachine):
    """Calls go to both; what the queue answers must be what the model says."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.now = 1000.0
        self.known: dict[str, Model] = {}
        self.waiting: list[str] = []
        self.finished: list[str] = []
        self.reports: dict[int, tuple[str, str]] = {}
        """Fence → what was reported under it and accepted."""
        self.fences: dict[int, str] = {}
        """Fence → rollout, of all leases that were ever given."""
        self.opens = 0
        self.tasks: dict[int, str] = {}
        """What each task says, as recorded last."""

    def teardown(self) -> None:
        self.store.close()
        self.folder.cleanup()

    @initialize()
    def open(self) -> None:
        self.store = Store(Path(self.folder.name) / "runs.db")
        self.queue = Queue(self.store.database, clock=lambda: self.now)

    def end(self, model: Model, status: str) -> None:
        model.status, model.fence = status, None
        self.finished.append(model.name)

    def give_up(self, model: Model) -> None:
        """After a failed attempt: to the end of the line, or over."""
        model.fence = None
        if model.attempts < model.limit:
            model.status = "queued"
            self.waiting.append(model.name)
        else:
            self.end(model, "failed")

    def expire(self) -> list[Model]:
        due = [one for one in self.known.values() if one.fence is not None and one.until <= self.now]
        due.sort(key=lambda one: (one.until, one.fence))
        for model in due:
            model.error = LOST
            self.give_up(model)
        return due

    @rule(number=st.integers(0, 12), mode=st.sampled_from(MODES), limit=st.integers(1, 3))
    def add(self, number: int, mode: Mode, limit: int) -> None:
        name = f"r{number}"
        self.tasks[number] = f"do it, for the {len(self.tasks)}th or {self.now:g}th time"
        task = Task(id=f"t{number}", instruction=self.tasks[number])
        given = Rollout(id=name, task=task, mode=mode, max_attempts=limit)
        assert self.queue.add([given]).result(90) == [name]
        if name not in self.known:
            self.known[name] = Model(name, mode, limit)
            self.waiting.append(name)

    @rule(
        n=st.integers(1, 4),
        lease=st.sampled_from([1.0, 5.0, 60.0]),
        modes=st.none() | st.lists(st.sampled_from(MODES), min_size=1, max_size=2),
    )
    def claim(self, n: int, lease: float, modes: list[Mode] | None) -> None:
        self.queue.expire().result(90)
        self.expire()
        wanted = [name for name in self.waiting if modes is None or self.known[name].mode in modes][:n]
        leases = self.queue.claim("worker", n=n, lease=lease, modes=modes).result(90)
        self.held(leases, wanted, lease)

    def held(self, leases: Sequence[Lease], wanted: Sequence[str], lease: float) -> None:
        """A claim gave just this."""
        assert [each.rollout.id for each in leases] == list(wanted)
        for each in leases:
            number = int(each.rollout.id[1:])
            assert each.rollout.task.instruction == self.tasks[number], "what was recorded last"
            model = self.known[each.rollout.id]
            model.status, model.attempts, model.fence = "running", model.attempts + 1, each.fence
            model.until, model.lease = self.now + lease, lease
            self.waiting.remove(model.name)
            assert each.attempt == model.attempts
            assert each.fence > max(self.fences, default=0)
            self.fences[each.fence] = model.name

    @rule(pick=st.randoms(use_true_random=False), lease=st.sampled_from([1.0, 60.0]))
    @precondition(lambda self: self.fences)
    def heartbeat(self, pick: object, lease: float) -> None:
        fence = pick.choice(sorted(self.fences))  # type: ignore[attr-defined]
        model = self.known[self.fences[fence]]
        if model.fence == fence:
            self.queue.heartbeat(model.name, fence, lease=lease).result(90)
            model.until, model.lease = self.now + lease, lease
        else:
            with pytest.raises(StaleLeaseError):
                self.queue.heartbeat(model.name, fence, lease=lease).result(90)

    @rule(pick=st.randoms(use_true_random=False), how=st.sampled_from(["success", "agent", "broken"]))
    @precondition(lambda self: self.fences)
    def finish(self, pick: object, how: str) -> None:
        fence = pick.choice(sorted(self.fences))  # type: ignore[attr-defined]
        model = self.known[self.fences[fence]]
        report = self.report(model, fence, how)
        done = self.queue.finish(model.name, fence, trajectory=report.trajectory, error=report.error)
        if self.taken(model, fence, how):
            done.result(90)
        else:
            with pytest.raises(StaleLeaseError):
                done.result(90)

    @rule(
        pick=st.randoms(use_true_random=False),
        how=st.sampled_from(["success", "agent", "broken"]),
        n=st.integers(1, 3),
    )
    @precondition(lambda self: self.fences)
    def turn(self, pick: object, how: str, n: int) -> None:
        """A report and a claim in one: as if one came after the other, but the claim cannot be given it back."""
        self.expire()
        fence = pick.choice(sorted(self.fences))  # type: ignore[attr-defined]
        model = self.known[self.fences[fence]]
        wanted = self.waiting[:n]
        turned = self.queue.turn([self.report(model, fence, how)], Claim("worker", n, 5.0)).result(90)
        kinds = [type(each) for each in turned.problems]
        assert kinds == [type(None) if self.taken(model, fence, how) else StaleLeaseError]
        self.held(turned.leases, wanted, 5.0)

    def report(self, model: Model, fence: int, how: str) -> Finish:
        if how == "agent":
            return Finish(model.name, fence, error=Failure(Fault.AGENT, "E", "raised"))
        outcome = Outcome.SUCCESS if how == "success" else Outcome.INFRASTRUCTURE_ERROR
        return Finish(
            model.name,
            fence,
            Trajectory(task=Task(id="t"), id=f"run{fence}{how}", started=1.0, outcome=outcome),
        )

    def taken(self, model: Model, fence: int, how: str) -> bool:
        """Whether the model takes a report, which it then has."""
        if model.fence != fence:
            return self.reports.get(fence) == (model.name, how)
        self.reports[fence] = (model.name, how)
        if how == "success":
            model.result, model.error = f"{model.name}.{model.attempts}", None
            self.end(model, "succeeded")
            return True
        model.error = "E" if how == "agent" else "InfrastructureError"
        self.give_up(model)
        if model.status == "failed" and how == "broken":
            model.result = f"{model.name}.{model.attempts}"
        return True

    @rule(pick=st.randoms(use_true_random=False))
    @precondition(lambda self: self.known)
    def cancel(self, pick: object) -> None:
        model = self.known[pick.choice(sorted(self.known))]  # type: ignore[attr-defined]
        open_ = model.status in ("queued", "running")
        assert self.queue.cancel(model.name).result(90) == open_
        if open_:
            if model.status == "queued":
                self.waiting.remove(model.name)
            model.error = None
            self.end(model, "cancelled")

    @rule(seconds=st.sampled_from([0.5, 2.0, 30.0, 100.0]))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds
        assert self.queue.expire().result(90) == len(self.expire())

    @rule(started_at=st.sampled_from([0.0, 5_000.0]))
    def restart(self, started_at: float) -> None:
        """Every lease lives on for its stated length; what waits does so in the order of adding."""
        self.store.close()
        self.now = started_at
        self.open()
        order = list(self.known)
        self.waiting.sort(key=order.index)
        for model in self.known.values():
            if model.fence is not None:
                model.until = self.now + model.lease
        self.opens += 1

    @invariant()
    def both_agree(self) -> None:
        found = {each.id: each for each in self.queue.list(limit=1000)}
        assert set(found) == set(self.known)
        for name, model in self.known.items():
            row = found[name]
            said = None if row.error is None else row.error.type
            assert (row.status, row.attempts, row.result) == (model.status, model.attempts, model.result), (
                name
            )
            if model.status != "running":
                assert said == model.error, name
        assert [each.id for _, each in self.queue.finished(limit=1000)] == self.finished
        counts = self.queue.counts()
        for status, count in counts.items():
            assert count == sum(one.status == status for one in self.known.values()), status


QueueMachine.TestCase.settings = settings(max_examples=15, stateful_step_count=30)
test_the_queue_does_what_its_model_does = QueueMachine.TestCase
