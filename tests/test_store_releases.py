"""Releases at the same moment: none drops what another added, and the log is one chain."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

import pytest

from whet.errors import ConflictError
from whet.record.store import Store, bundle_of

ROUNDS = 12
RELEASES = """
import sys
from whet.record.store import Store, bundle_of
path, who, rounds = sys.argv[1], sys.argv[2], int(sys.argv[3])
with Store(path) as store:
    print("ready", flush=True)
    sys.stdin.readline()
    for number in range(rounds):
        store.release(bundle_of({f"{who}{number}": who}), unproven=True, new_names=True)
"""


def chained(store: Store) -> None:
    """Each release goes back to the one before it, and adds one name to it."""
    log = store.history()
    assert [release.previous for release in log] == [None, *(release.id for release in log[:-1])]
    assert [len(release.bundle) for release in log] == list(range(1, len(log) + 1))


def test_two_processes_that_release_at_once_keep_each_others_names(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    Store(path).close()
    command = [sys.executable, "-c", RELEASES, str(path)]
    both = [
        subprocess.Popen(
            [*command, who, str(ROUNDS)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for who in "ab"
    ]
    for process in both:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    for process in both:
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()
    assert [process.wait(90) for process in both] == [0, 0]
    for process in both:
        process.communicate()
    with Store(path) as store:
        assert set(store.live() or ()) == {f"{who}{number}" for who in "ab" for number in range(ROUNDS)}
        chained(store)


@pytest.mark.parametrize("path", [":memory:", "runs.db"])
def test_threads_that_release_and_roll_back_at_once_leave_a_log_that_adds_up(
    tmp_path: Path, path: str
) -> None:
    with Store(path if path == ":memory:" else tmp_path / path) as store:
        start = threading.Barrier(4)

        def release(who: str) -> None:
            start.wait()
            for number in range(ROUNDS):
                store.release(bundle_of({f"{who}{number}": who}), unproven=True, new_names=True)

        threads = [threading.Thread(target=release, args=(who,)) for who in "abcd"]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(store.live() or ()) == 4 * ROUNDS
        chained(store)
        log = store.history()
        rollers = [threading.Thread(target=store.rollback) for _ in range(4)]
        for roller in rollers:
            roller.start()
        for roller in rollers:
            roller.join()
        assert store.live() == log[-5].bundle, "each goes one further back"


def test_a_batch_that_releases_is_refused_where_another_release_came_first() -> None:
    with Store(":memory:") as store:
        store.set_live(bundle_of({"prompt": "one"}))
        batch = store.batch()
        batch.set_live(bundle_of({"prompt": "two"}))
        batch.put_state("beside it", 1)
        store.release(bundle_of({"prompt": "three"}), unproven=True)
        with pytest.raises(ConflictError, match="came meanwhile"):
            batch.submit().result()
        assert (store.live(), store.state("beside it")) == (bundle_of({"prompt": "three"}), None)
        # What was sent already and is sent again, as after a lost answer, is no conflict and no second release.
        again = store.batch()
        again.set_live(bundle_of({"prompt": "four"}))
        writes = again.writes
        again.submit().result()
        store.release(bundle_of({"limit": 5}), unproven=True, new_names=True)
        store.database.write(writes).result()
        assert store.live() == bundle_of({"prompt": "four", "limit": 5})
