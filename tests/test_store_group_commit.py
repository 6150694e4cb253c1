"""Who writes at the same time shares a commit; who writes alone waits for nobody."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence

import pytest

from whet.record.store import group_commit
from whet.record.store.group_commit import CommitThread, Submission

ROW = [("state", [("key", 1.0, b"{}")])]


class Disk:
    """A Link whose commits take their time and are counted."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.groups: list[int] = []

    def commit(self, group: Sequence[Submission]) -> list[Exception | None]:
        time.sleep(self.seconds)
        self.groups.append(len(group))
        return [None] * len(group)

    def close(self) -> None: ...

    def forget(self) -> None: ...


def test_workers_in_step_share_one_commit_a_turn() -> None:
    # Two a turn, one of them for the first that is back, where a commit does not wait for the others.  On a busy
    # machine some come too late in one try, and not in each of three.
    workers, turns = 8, 30
    assert any(_commits(workers, turns) < 1.6 * turns for _ in range(3))


def _commits(workers: int, turns: int) -> int:
    disk = Disk(0.02)
    writer = CommitThread(lambda _: disk)

    def work() -> None:
        for _ in range(turns):
            writer.submit(ROW).result()

    threads = [threading.Thread(target=work) for _ in range(workers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    writer.close()
    assert sum(disk.groups) == workers * turns
    return len(disk.groups)


def test_the_wait_for_others_ends_when_they_no_longer_come(monkeypatch: pytest.MonkeyPatch) -> None:
    disk = Disk(0.002)
    monkeypatch.setattr(group_commit, "LONGEST_GATHERING", 1.0)
    monkeypatch.setattr(group_commit, "GATHERING", 1e9)
    writer = CommitThread(lambda _: disk)
    together = [writer.submit(ROW) for _ in range(20)]
    for future in together:
        future.result()
    began = time.perf_counter()
    for _ in range(50):
        writer.submit(ROW).result()
    alone = time.perf_counter() - began
    writer.close()
    assert disk.groups[-50:] == [1] * 50
    # One wait of a second, not fifty: the rest is the disk's.
    assert alone < 25.0


def test_closing_does_not_wait_for_those_who_shared_the_last_commit() -> None:
    disk = Disk(0.0)
    writer = CommitThread(lambda _: disk)
    last = [writer.submit(ROW) for _ in range(5)][-1]
    last.result()
    future = writer.submit(ROW)
    writer.close()
    assert future.result(timeout=90) is None
    assert sum(disk.groups) == 6
