"""Turns of workers that come while a commit is under way share the next one, and none pays for another."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from whet.errors import ConflictError, StaleLeaseError
from whet.record.store import Store
from whet.record.store.rollouts import Claim, Finish
from whet.record.store.turns import Turned
from whet.serve.durable import WAITING, Backlog
from whet.serve.http import Refused
from whet.serve.turns import SharedTurns
from whet.types import Lease, Rollout, Task, Trajectory

SIZE = 1_000


@contextmanager
def store_of(path: Path, rollouts: int) -> Iterator[tuple[Store, list[Lease], list[str]]]:
    """A store, a lease of each of its rollouts but one, and the statements that its writer runs."""
    with Store(path / "runs.db") as store:
        queued = [Rollout(id=f"r{number}", task=Task(id=f"t{number}")) for number in range(rollouts + 1)]
        store.queue.add(queued).result()
        leases = store.queue.claim("w", n=rollouts).result()
        owner = store.database.owner
        assert owner is not None
        statements: list[str] = []
        owner.connection.set_trace_callback(statements.append)
        yield store, leases, statements


def report(lease: Lease, output: str = "done") -> Finish:
    id = f"{lease.rollout.id}.{lease.attempt}"
    trajectory = Trajectory(task=lease.rollout.task, id=id, output=output, started=1.0)
    return Finish(lease.rollout.id, lease.fence, trajectory)


async def during_a_commit(
    store: Store, backlog: Backlog, first: Finish, others: list[tuple[Finish, Claim | None]]
) -> list[Turned]:
    """The answers to `others`, which come while the commit of `first` is held up."""
    owner = store.database.owner
    assert owner is not None
    turns = SharedTurns(store, backlog, asyncio.get_running_loop())
    with owner.mutex:  # the writer's thread waits for it
        tasks = [asyncio.create_task(turns.take([first], None, SIZE))]
        await asyncio.sleep(0.05)
        tasks += [asyncio.create_task(turns.take([finish], claim, SIZE)) for finish, claim in others]
        await asyncio.sleep(0.05)
        assert not any(task.done() for task in tasks)
        assert backlog.gathered == len(others) * SIZE
    answers = await asyncio.wait_for(asyncio.gather(*tasks), 90)
    assert answers[0] == ([None], [])
    assert backlog.gathered == 0
    return answers[1:]


def test_turns_that_come_during_a_commit_share_the_next_one_and_each_gets_its_own_answer(
    tmp_path: Path,
) -> None:
    with store_of(tmp_path, 5) as (store, leases, statements):
        late = Finish("r1", leases[1].fence + 1_000, Trajectory(task=Task(id="t1"), output="late"))
        others = [(report(lease), None) for lease in leases[1:4]]
        others += [(report(leases[1]), None), (report(leases[1], "something else"), None), (late, None)]
        last = (report(leases[4]), Claim("other"))
        answers = asyncio.run(during_a_commit(store, Backlog(store), report(leases[0]), [*others, last]))
        assert statements.count("COMMIT") == 2
        assert [answer.problems for answer in answers[:4]] == [[None]] * 4, "a repetition is taken once"
        assert [type(answer.problems[0]) for answer in answers[4:6]] == [StaleLeaseError] * 2
        assert answers[6].problems == [None]
        assert [lease.rollout.id for lease in answers[6].leases] == ["r5"]
        assert not any(answer.leases for answer in answers[:6])
        assert sorted(run.id for run in store.trajectories()) == [f"r{number}.1" for number in range(5)]
        assert {run.output for run in store.trajectories()} == {"done"}


def test_a_turn_that_cannot_be_recorded_costs_those_that_came_with_it_nothing(tmp_path: Path) -> None:
    with store_of(tmp_path, 4) as (store, leases, _):
        store.put(Trajectory(task=Task(id="t"), id="r2.1", output="somebody else's"))
        others = [(report(lease), None) for lease in leases[1:3]]
        last = (report(leases[3]), Claim("other"))
        answers = asyncio.run(during_a_commit(store, Backlog(store), report(leases[0]), [*others, last]))
        assert answers[0].problems == [None]
        assert isinstance(answers[1].problems[0], ConflictError)
        assert answers[2].problems == [None]
        assert [lease.rollout.id for lease in answers[2].leases] == ["r4"]
        outputs = {run.id: run.output for run in store.trajectories()}
        assert outputs == {"r0.1": "done", "r1.1": "done", "r2.1": "somebody else's", "r3.1": "done"}
        assert store.queue.get("r2").status == "running"


def test_turns_after_the_store_has_closed_are_all_refused(tmp_path: Path) -> None:
    async def closed(store: Store, leases: list[Lease]) -> list[Turned | BaseException]:
        turns = SharedTurns(store, Backlog(store), asyncio.get_running_loop())
        prepared = [asyncio.create_task(turns.take([report(lease)], None, SIZE)) for lease in leases]
        store.close()
        return await asyncio.wait_for(asyncio.gather(*prepared, return_exceptions=True), 90)

    with store_of(tmp_path, 2) as (store, leases, _):
        assert all(isinstance(answer, OSError) for answer in asyncio.run(closed(store, leases)))


def test_what_is_gathered_counts_among_what_waits_for_the_disk() -> None:
    with Store(":memory:") as store:
        backlog = Backlog(store)
        backlog.admit(WAITING + 1)  # nothing waits: it is let in alone
        backlog.gathered = 1
        with pytest.raises(Refused):
            backlog.admit(WAITING)
