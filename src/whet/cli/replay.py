"""`whet replay`: run an agent again on what was recorded, and say how faithful that is."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import msgspec

from .app import AtLeastOne, Record, app, counted, existing
from .named import named

if TYPE_CHECKING:
    from ..tracing.replay import Divergence


@app.command
def replay(
    agent: str,
    /,
    *,
    store: Record,
    reward: tuple[str, ...] = (),
    run: tuple[str, ...] = (),
    limit: AtLeastOne | None = None,
    nearest: bool = False,
    live: bool = False,
    simulator: str | None = None,
    json: bool = False,
) -> int:
    """Run an agent again on recorded runs, with its tools answered from the record.

    Nothing that the agent does changes the world: tools (functions marked `@whet.step(kind="tool")`) get their
    recorded results, model calls are real. Says how often the replayed verdict equals the recorded one, and how
    many runs left the record and were therefore left out.

    Parameters
    ----------
    agent
        The function, as module:function; it is imported from the current folder.
    store
        The record.
    reward
        A reward that gives the verdict, as module:function; may be repeated. Without one it is the answer itself.
    run
        Only this run or trajectory; may be repeated.
    limit
        At most so many runs, the oldest first.
    nearest
        Answer a read that was not recorded with the most similar recorded read of that tool, instead of
        leaving the run out.
    live
        Run a read that was not recorded for real: a tool that declares effect="read". Every other tool is
        answered from the record or not at all; one that declares no effect counts as a write.
    simulator
        A function (tool, arguments) that answers every call that was not recorded, whatever its effect, as
        module:function.
    json
        Print one JSON object.
    """
    from ..errors import InputError, NotFoundError
    from ..replay import UNRECORDED, fidelity, runs_of
    from ..store import Store
    from ..tracing.signals import hear

    existing(store)
    function, rewards = named(agent), [named(one) for one in reward]
    if nearest + live + (simulator is not None) > 1:
        raise InputError(
            "give one of --nearest, --live and --simulator: a call that was not recorded has one answer"
        )
    with Store(store) as opened:
        hear(opened)
        found_runs = opened.trajectories(ids=run or None)
        recorded = (list(found_runs) if run else runs_of(function, found_runs))[:limit]
    if run and not recorded:
        raise NotFoundError(f"{store} holds no run or trajectory {', '.join(run)}")
    policy: Divergence = "nearest" if nearest else "live" if live else "exclude"
    if simulator is not None:
        policy = named(simulator)
    found = asyncio.run(fidelity(function, recorded, rewards=rewards, divergence=policy, guard=True))
    if json:
        print(msgspec.json.encode({**msgspec.to_builtins(found), "rate": found.rate}).decode())
        return 0
    low, high = found.interval
    rate = "nothing could be compared" if found.rate is None else f"{found.rate:.1%} [{low:.1%}, {high:.1%}]"
    print(
        f"replayed {counted(found.runs, 'run')}: the verdict is the recorded one "
        f"in {found.equal} of {found.compared}: {rate}"
    )
    print(
        f"tool calls answered: {found.exact} as recorded, {found.nearest} by the nearest read, "
        f"{found.simulated} by the simulator, {found.live} by running a read"
    )
    if found.diverged:
        print(f"left out: {counted(found.diverged, 'run')} {UNRECORDED}")
        for call, runs in list(found.reasons.items())[:5]:
            print(f"  {runs} x {call}")
    if found.unjudged:
        print(f"left out, without a verdict on one side: {counted(found.unjudged, 'run')}")
        for failure, runs in list(found.broken.items())[:5]:
            print(f"  {runs} x {failure[:300]}")
    for id in found.differing[:10]:
        print(f"differs: {id}")
    return 0
