"""The queue: work is handed to one worker at a time, survives its worker, and ends once."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from pathlib import Path

import pytest

from whet.errors import InputError, NotFoundError, StaleLeaseError, StoreError
from whet.record.store import Finish, Queue, Store
from whet.record.store.queue_index import Change, Commits, QueuedRollout, QueueIndex
from whet.types import Failure, Fault, Mode, Outcome, Rollout, Task, Trajectory


def rollout(name: str, mode: Mode = "train", max_attempts: int = 3) -> Rollout:
    return Rollout(id=name, task=Task(instruction=f"do {name}"), mode=mode, max_attempts=max_attempts)


def done(name: str, **fields: object) -> Trajectory:
    return Trajectory(task=Task(instruction=f"do {name}"), id=f"run-{name}", started=1.0, **fields)  # type: ignore[arg-type]


class Clock:
    """Seconds that move when told to."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def store() -> Iterator[Store]:
    with Store(":memory:") as opened:
        yield opened


def on_clock(store: Store, clock: Callable[[], float]) -> Queue:
    """The store's queue on a clock of the test's; the store has not made its own yet."""
    return Queue(store.database, clock=clock)


def test_the_longest_waiting_is_claimed_first_from_the_modes_asked_for(store: Store) -> None:
    queue = store.queue
    assert queue.add([rollout("a"), rollout("b", "val"), rollout("c"), rollout("d", "test")]).result() == [
        *"abcd"
    ]
    assert [each.rollout.id for each in queue.claim("w", n=2, modes=["val", "test"]).result()] == ["b", "d"]
    leases = queue.claim("w", n=9).result()
    assert [each.rollout.id for each in leases] == ["a", "c"]
    assert leases[0].rollout.task == Task(instruction="do a")
    assert (leases[0].rollout.status, leases[0].attempt, leases[0].worker) == ("running", 1, "w")
    assert queue.claim("w").result() == []
    assert queue.counts() == {"queued": 0, "running": 4, "succeeded": 0, "failed": 0, "cancelled": 0}


def test_a_result_is_recorded_with_its_trajectory_and_found_in_order_of_completion(store: Store) -> None:
    queue = store.queue
    queue.add([rollout("a"), rollout("b")]).result()
    first, second = queue.claim("w", n=2).result()
    queue.finish("b", second.fence, trajectory=done("b", outcome=Outcome.FAILURE)).result()
    queue.finish("a", first.fence, trajectory=done("a", outcome=Outcome.SUCCESS)).result()
    ((one, b), (two, a)) = queue.finished()
    assert [(b.id, b.result, b.status), (a.id, a.result, a.status)] == [
        ("b", "b.1", "succeeded"),  # it failed at its task, which is a result
        ("a", "a.1", "succeeded"),
    ]
    assert queue.finished(one) == [(two, a)]
    assert queue.finished(two) == []
    assert store.trajectory("b.1").outcome is Outcome.FAILURE
    assert queue.get("a") == a


def test_adding_again_changes_nothing_whatever_became_of_the_first(store: Store) -> None:
    queue = store.queue
    queue.add([rollout("a"), rollout("b")]).result()
    (lease,) = queue.claim("w").result()
    queue.finish("a", lease.fence, trajectory=done("a")).result()
    queue.add([rollout("a"), rollout("b"), rollout("a")]).result()
    assert queue.counts()["queued"] == 1
    assert [each.rollout.id for each in queue.claim("w", n=9).result()] == ["b"]


def test_a_failed_attempt_is_retried_to_its_limit_and_says_whose_fault_it_was(store: Store) -> None:
    queue = store.queue
    queue.add([rollout("a", max_attempts=3)]).result()
    faults = [Fault.MODEL, Fault.AGENT]
    for number, fault in enumerate(faults, 1):
        (lease,) = queue.claim(f"w{number}").result()
        assert lease.attempt == number
        queue.finish("a", lease.fence, error=Failure(fault, "E", "it broke")).result()
        assert queue.get("a").status == "queued"
        assert queue.get("a").error == Failure(fault, "E", "it broke")
    (lease,) = queue.claim("w3").result()
    broken = done(
        "a", outcome=Outcome.INFRASTRUCTURE_ERROR, error=Failure(Fault.SANDBOX, "Gone", "no sandbox")
    )
    queue.finish("a", lease.fence, trajectory=broken).result()
    found = queue.get("a")
    assert (found.status, found.attempts, found.error) == ("failed", 3, broken.error)
    assert [each.outcome for each in queue.attempts("a")] == [
        "infrastructure_error",
        "failed",
        "infrastructure_error",
    ]
    assert [each.worker for each in queue.attempts("a")] == ["w1", "w2", "w3"]
    assert queue.claim("w").result() == []
    assert [each.id for _, each in queue.finished()] == ["a"]


def test_a_dead_workers_rollout_is_claimable_within_a_second_of_its_lease(tmp_path: Path) -> None:
    with Store(tmp_path / "runs.db") as store:
        queue = store.queue
        queue.add([rollout("a")]).result()
        woken, at = threading.Event(), list[float]()

        def wake() -> None:  # the time is taken where the news arrives, not when this thread has its turn
            at.append(time.monotonic())
            woken.set()

        asked = time.monotonic()
        (lost,) = queue.claim("dead", lease=1.0).result()
        given = time.monotonic()
        queue.on_available(wake)
        assert woken.wait(90)
        assert at[0] - asked >= 1.0
        assert at[0] - given < 1.0 + 1.0
        (lease,) = queue.claim("alive").result()
        assert lease.rollout.id == "a"
        assert lease.fence > lost.fence
        with pytest.raises(StaleLeaseError, match="not held"):
            queue.finish("a", lost.fence, trajectory=done("late")).result()
        assert store.counts()["trajectories"] == 0
        queue.finish("a", lease.fence, trajectory=done("a")).result()
        assert queue.attempts("a")[0].outcome == "expired"


def test_heartbeats_hold_a_lease_and_the_attempts_that_leases_cost_are_counted() -> None:
    clock = Clock()
    with Store(":memory:") as store:
        queue = on_clock(store, clock)
        queue.add([rollout("a", max_attempts=2)]).result()
        (lease,) = queue.claim("w", lease=10).result()
        for _ in range(5):
            clock.now += 9
            assert queue.heartbeat("a", lease.fence, lease=10).result() > time.time()
            assert queue.expire().result() == 0
        clock.now += 11
        assert queue.expire().result() == 1
        with pytest.raises(StaleLeaseError):
            queue.heartbeat("a", lease.fence)
        (lease,) = queue.claim("w", lease=10).result()
        clock.now += 100
        assert queue.expire().result() == 1
        found = queue.get("a")
        assert (found.status, found.attempts) == ("failed", 2)
        assert found.error is not None
        assert found.error.type == "LeaseExpired"
        assert found.error.fault is not Fault.AGENT


def test_a_result_right_after_a_heartbeat_of_another_length_is_accepted(store: Store) -> None:
    queue = store.queue
    queue.add([rollout(f"r{n}") for n in range(50)]).result()
    for lease in queue.claim("w", n=50, lease=60).result():
        name = lease.rollout.id
        beaten = queue.heartbeat(name, lease.fence, lease=90)
        finished = queue.finish(name, lease.fence, trajectory=done(name))
        assert beaten.result() > lease.until
        finished.result()
    assert queue.counts()["succeeded"] == 50


def test_the_same_report_twice_is_recorded_once_and_another_one_is_refused(tmp_path: Path) -> None:
    trajectory = done("a", outcome=Outcome.SUCCESS)
    with Store(tmp_path / "runs.db") as store:
        queue = store.queue
        queue.add([rollout("a")]).result()
        (lease,) = queue.claim("w").result()
        report = Finish("a", lease.fence, trajectory)
        assert queue.finish_many([report, report]).result() == [None, None]
        pending = [queue.finish("a", lease.fence, trajectory=trajectory) for _ in range(3)]
        assert [each.result() for each in pending] == [None] * 3
        with pytest.raises(StaleLeaseError):
            queue.finish("a", lease.fence, error=Failure(Fault.AGENT, "E", "changed its mind")).result()
        assert queue.counts()["succeeded"] == 1
    with Store(tmp_path / "runs.db") as store:  # and after a restart
        store.queue.finish("a", lease.fence, trajectory=trajectory).result()
        assert len(store.queue.finished()) == store.counts()["trajectories"] == 1


def test_one_bad_report_does_not_cost_the_others(store: Store) -> None:
    queue = store.queue
    queue.add([rollout("a"), rollout("b")]).result()
    a, b = queue.claim("w", n=2).result()
    bad = done("b", meta={"x": object()})
    problems = queue.finish_many(
        [Finish("a", a.fence, done("a")), Finish("b", b.fence, bad), Finish("c", 77)]
    ).result()
    assert [type(each) for each in problems] == [type(None), InputError, StaleLeaseError]
    assert queue.counts()["running"] == 1
    queue.finish("b", b.fence, trajectory=done("b")).result()


def test_a_cancelled_rollout_is_not_handed_out_and_its_worker_is_refused(store: Store) -> None:
    queue = store.queue
    queue.add([rollout("a"), rollout("b")]).result()
    (lease,) = queue.claim("w").result()
    assert queue.cancel("a").result()
    assert queue.cancel("b").result()
    assert not queue.cancel("b").result()
    with pytest.raises(StaleLeaseError):
        queue.finish("a", lease.fence, trajectory=done("a")).result()
    with pytest.raises(StaleLeaseError):
        queue.heartbeat("a", lease.fence)
    with pytest.raises(NotFoundError):
        queue.cancel("never")
    assert queue.claim("w").result() == []
    assert [each.status for _, each in queue.finished()] == ["cancelled", "cancelled"]
    assert queue.attempts("a")[0].outcome == "cancelled"


def test_cancelling_while_the_result_is_on_its_way_ends_as_one_of_both(store: Store) -> None:
    queue = store.queue
    queue.add([rollout(f"r{n}") for n in range(20)]).result()
    for lease in queue.claim("w", n=20).result():
        finished = queue.finish(lease.rollout.id, lease.fence, trajectory=done(lease.rollout.id))
        cancelled = queue.cancel(lease.rollout.id)
        finished.result()
        assert not cancelled.result()
    assert queue.counts()["succeeded"] == 20


def test_after_a_restart_work_goes_on_and_a_lease_lives_for_its_stated_length(tmp_path: Path) -> None:
    path, clock = tmp_path / "runs.db", Clock()
    with Store(path) as store:
        queue = on_clock(store, clock)
        queue.add([rollout(name) for name in "abcd"]).result()
        a, b = queue.claim("w", n=2, lease=30).result()
        queue.heartbeat("b", b.fence, lease=50).result()
        queue.finish("a", a.fence, error=Failure(Fault.AGENT, "E", "")).result()
        queue.cancel("d").result()
    clock.now = 0.0  # a machine that was started anew
    with Store(path) as store:
        queue = on_clock(store, clock)
        assert queue.counts() == {"queued": 2, "running": 1, "succeeded": 0, "failed": 0, "cancelled": 1}
        clock.now = 49.0
        assert queue.expire().result() == 0
        clock.now = 51.0
        assert queue.expire().result() == 1
        leases = queue.claim("x", n=9).result()
        assert sorted(each.rollout.id for each in leases) == ["a", "b", "c"]
        assert min(each.fence for each in leases) > b.fence


def test_work_added_by_another_process_is_handed_out_here(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    with Store(path) as server, Store(path) as client:
        woken = threading.Event()
        server.queue.on_available(woken.set)
        client.add_rollouts(rollout("a"), rollout("b", "val"))
        assert woken.wait(90)
        client.add_rollouts(rollout("a"))
        assert [each.rollout.id for each in server.queue.claim("w", n=9).result()] == ["a", "b"]
        assert client.rollouts.get("a").status == "running"
        with pytest.raises(StoreError, match="only it hands out work"):
            _ = client.queue
        assert [each.id for each in client.tasks()] == [rollout("a").task.id, rollout("b").task.id]


def test_rollouts_are_listed_by_status_and_mode_page_by_page(store: Store) -> None:
    queue = store.queue
    queue.add([rollout(f"r{n}", "val" if n % 2 else "train") for n in range(6)]).result()
    queue.claim("w", n=2).result()
    assert [each.id for each in queue.list(status="running")] == ["r0", "r1"]
    assert [each.id for each in queue.list(mode="val", limit=2)] == ["r1", "r3"]
    assert [each.id for each in queue.list(mode="val", after="r3")] == ["r5"]
    with pytest.raises(NotFoundError, match="never"):
        queue.get("never")


def test_what_cannot_be_meant_is_refused(store: Store) -> None:
    queue = store.queue
    with pytest.raises(InputError, match="mode"):
        queue.add([rollout("a", "prod")])  # type: ignore[arg-type]
    with pytest.raises(InputError, match="max_attempts"):
        queue.add([rollout("a", max_attempts=0)])
    with pytest.raises(InputError, match="lease"):
        queue.claim("w", lease=0)
    with pytest.raises(InputError, match="claim at least 1"):
        queue.claim("w", n=0)
    with pytest.raises(InputError, match="mode"):
        queue.claim("w", modes=["prod"])  # type: ignore[list-item]


def test_many_threads_claim_everything_once_and_finish_it(tmp_path: Path) -> None:
    total, workers = 400, 8
    with Store(tmp_path / "runs.db") as store:
        queue = store.queue
        queue.add([rollout(f"r{n}") for n in range(total)]).result()
        claimed: list[tuple[str, int]] = []

        def work(name: str) -> None:
            while leases := queue.claim(name, n=7).result():
                claimed.extend((each.rollout.id, each.fence) for each in leases)
                reports = [Finish(each.rollout.id, each.fence, done(each.rollout.id)) for each in leases]
                assert queue.finish_many(reports).result() == [None] * len(reports)

        threads = [threading.Thread(target=work, args=(f"w{n}",)) for n in range(workers)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(id for id, _ in claimed) == sorted(f"r{n}" for n in range(total))
        assert len({fence for _, fence in claimed}) == total
        assert queue.counts()["succeeded"] == store.counts()["trajectories"] == total
        assert len(queue.finished(limit=total + 1)) == total
        assert not queue._index.entries  # what has ended is not kept in memory


def test_the_queue_of_a_closed_store_says_so(tmp_path: Path) -> None:
    store = Store(tmp_path / "runs.db")
    queue = store.queue
    store.close()
    with pytest.raises(StoreError, match="closed"):
        queue.claim("w")


def test_an_extended_lease_still_ends_after_many_others_have_come_and_gone() -> None:
    index = QueueIndex()
    held = QueuedRollout(1, "held", "train", 1)
    index.hold(held, 1, "worker", 60.0, 60.0)
    index.extend(held, 120.0)
    for number in range(2, 2002):
        other = QueuedRollout(number, str(number), "train", 1)
        index.hold(other, number, "worker", 60.0, 60.0)
        index.drop(other)
    assert index.due(100.0) == []
    assert index.due(130.0) == [held]


def test_a_refusal_under_the_lock_does_not_lose_the_news_of_another_s_commit() -> None:
    with Store(":memory:") as store:
        commits, change = Commits(store.database, QueueIndex()), Change()
        change.add([], [("state", [("key", 1.0, b"{}")])])
        settled: list[Future[None]] = []

        def refused() -> None:
            with commits.held():
                settled.append(commits.submit(change))
                # Committed while the lock is held: its holder has to say so.
                store.database.write([("state", [("other", 1.0, b"{}")])]).result()
                raise ValueError("a stale lease, say")

        with pytest.raises(ValueError, match="stale"):
            refused()
        assert settled[0].result(timeout=90) is None
