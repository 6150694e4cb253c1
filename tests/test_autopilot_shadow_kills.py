"""Killed within its shadow step and begun again: no second trial, no shadow lost or made twice, each call paid once."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from test_autopilot_journey import Clock, Shop
from test_autopilot_shadow import BETTER, to_try

from whet.autopilot.journal import read
from whet.prove.shadow import replay_marks, shadow_pairs
from whet.record.store import Store

BROKEN = "UNITS = 3\n"
"""Every answer fails with it, so the agent as it is runs beside each shadow, too."""


@dataclass(frozen=True)
class Stand:
    """What the record says of the shadow and of what follows from it."""

    stages: list[str]
    """Of the release log, one for each entry."""
    trials: int
    on_trial: int
    pairs: int
    ended: int
    """Replays that came to their end."""
    begun: int
    """Runs of an agent that were begun for them, those included that a kill broke off."""
    spent: float
    """Calls of the agent that the night has counted."""
    rows: list[str]
    """Steps of the journal."""
    work: tuple[str, int]
    """Stage of the repair's issue, and its proposals that were tried in vain."""


def stand(path: Path) -> Stand:
    with Store(path) as store:
        log = store.release_log()
        trials = {entry.trial for entry in log}
        marks = [mark for trial in trials for mark in replay_marks(store, trial).values()]
        work = store.state("autopilot/work/issue-warranty")
        return Stand(
            stages=[entry.stage.value for entry in log],
            trials=len(trials),
            on_trial=len(store.on_trial()),
            pairs=sum(len(shadow_pairs(store, trial)) for trial in trials),
            ended=sum(bool(mark.ended) for mark in marks),
            begun=sum(mark.begun for mark in marks),
            spent=store.state("autopilot/000001/spent")["rollouts"],
            rows=[row.step for row in read(store) if row.step in ("shadow", "trial")],
            work=(str(work["stage"]), len(work.get("tried", ()))),
        )


def life(shop: Shop, clock: Clock, kill_at: int = 0) -> bool:
    """A process that does what is due, killed before its commit of that number; True if it was."""
    child = os.fork()
    if child == 0:
        sent = 0

        def count(statement: str) -> None:
            nonlocal sent
            if statement.strip().upper().startswith("COMMIT"):
                sent += 1
                if sent == kill_at:
                    os.kill(os.getpid(), signal.SIGKILL)

        try:
            shop.store = Store(shop.folder.parent / "runs.db")
            owner = shop.store.database.owner
            assert owner is not None
            owner.connection.set_trace_callback(count)
            while shop.stage() == "to try" and asyncio.run(shop.pilot(clock=clock).step()):
                pass
            # What a process that was killed behind its note has left to the next one.
            shop.pilot(clock=clock)._next()
            os._exit(0)
        finally:
            os._exit(1)
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status) or os.WEXITSTATUS(status) == 0
    return os.WIFSIGNALED(status)


@pytest.mark.parametrize(
    ("content", "stages", "rows", "work"),
    [
        (BETTER, ["shadow", "canary"], ["shadow", "shadow", "trial", "trial"], ("on trial", 0)),
        (BROKEN, ["shadow", "retired"], ["shadow", "shadow"], ("found", 1)),
    ],
    ids=["better", "broken"],
)
def test_killed_anywhere_in_the_shadow_it_goes_on_where_it_stood(
    tmp_path: Path, content: str, stages: list[str], rows: list[str], work: tuple[str, int]
) -> None:
    shop, clock = Shop(tmp_path), Clock()
    to_try(shop, clock, warranty=content)
    before = shop.store.state("autopilot/000001/spent")["rollouts"]
    shop.store.close()
    path, kept = tmp_path / "runs.db", tmp_path / "kept.db"
    shutil.copy(path, kept)

    assert not life(shop, clock)
    whole = stand(path)
    assert (whole.stages, whole.rows, whole.work) == (stages, rows, work)
    sides = 2 if content == BROKEN else 1
    assert whole.begun == whole.spent - before == sides * whole.ended
    assert whole.pairs == whole.ended > 20

    for file in tmp_path.glob("runs.db*"):
        file.unlink()
    shutil.copy(kept, path)
    lives, at, nearly = 0, 1, False
    while life(shop, clock, at):
        lives += 1
        with Store(path) as store:
            marks = [replay_marks(store, entry.trial) for entry in store.release_log()]
        ended = sum(bool(mark.ended) for each in marks[:1] for mark in each.values())
        if whole.ended - ended < 6 and not nearly:
            nearly, at = True, 1
        elif nearly or at < 5:
            at += 1
        else:
            # Within the replays every second commit is like the other; before and behind them each is its own place.
            at = 11 if at == 8 else 8
    assert nearly
    assert lives >= 10
    told = stand(path)
    again = told.begun - whole.begun
    assert 0 < again <= lives, "only what was under way is asked for again"
    assert told == replace(whole, begun=whole.begun + again, spent=whole.spent + again)
