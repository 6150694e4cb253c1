"""`whet replay`: an agent run again on its record, and how faithful that is."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from ..errors import InputError, NotFoundError
from .named import named
from .root import AtLeastOne, Print, Record, command, counted, existing, print_json
from .shadow import replay_folder_under, replay_under, told

if TYPE_CHECKING:
    from ..record.tracing.replay import Divergence


@command("replay")
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
    trial: str | None = None,
    folder: Path | None = None,
    control: Path | None = None,
    json: Print = False,
) -> int:
    """Run an agent again on recorded runs, with its tool calls answered from the record.

    Nothing in the world changes: tools (functions marked `@whet.step(kind="tool")`) return their recorded results;
    model calls are real. Prints how often the replayed verdict equals the recorded one, and how many runs were left out
    because they made calls that were not recorded.

    Parameters
    ----------
    agent
        The agent's function, as module:function, imported from the current folder.
    reward
        A reward that gives the verdict, as module:function. May be repeated. If omitted, the answers are compared.
    run
        Only this run or trajectory. May be repeated.
    limit
        Replay at most this many runs, the oldest first.
    nearest
        Answer an unrecorded read with the most similar recorded read of that tool, instead of leaving the run out.
    live
        Really make unrecorded reads, of tools that declare effect="read". All other tools are answered from the record
        or not at all; a tool that declares no effect counts as a write.
    simulator
        A function of (tool, arguments), as module:function, that answers every unrecorded call, whatever its effect.
    trial
        Replay under the candidate of this shadow or canary instead, and record the runs as its shadows, which whet
        verdict --shadow compares with what people were answered.
    folder
        With --trial: the candidate's folder, such as a trial of whet autopilot. It runs in a process that reaches
        nothing but its model, in a copy that ends with it, so no tool has to be marked: functions with the names of
        recorded tools are answered from the record.
    control
        With --folder: the agent's folder as it is. Where the candidate fails or asks for far more, this is run, too,
        and what it does as well is left out.
    """
    from ..judge.replay import UNRECORDED, fidelity, runs_of
    from ..record.store import Store
    from ..record.tracing.signals import hear

    existing(store)
    if (folder is not None and trial is None) or (control is not None and folder is None):
        raise InputError(
            "--folder is of a candidate on trial: give --trial ID; and --control is beside a --folder"
        )
    function = agent.partition(":")[2] if folder is not None else named(agent)
    rewards = [named(name) for name in reward]
    if nearest + live + (simulator is not None) > 1:
        raise InputError(
            "give only one of --nearest, --live and --simulator: an unrecorded call has one answer"
        )
    policy: Divergence = "nearest" if nearest else "live" if live else "exclude"
    if simulator is not None:
        policy = named(simulator)
    with Store(store) as opened:
        hear(opened)
        trajectories = opened.trajectories(ids=run or None)
        recorded = (list(trajectories) if run else runs_of(function, trajectories))[:limit]
        if trial is not None:
            if isinstance(function, str):
                assert folder is not None
                places = (folder, control)
                counts = replay_folder_under(opened, trial, agent, places, recorded, divergence=policy)
            else:
                counts = replay_under(opened, trial, function, recorded, divergence=policy)
            print_json(counts) if json else print("\n".join(told(opened, trial, counts)))
            return 0
    assert not isinstance(function, str)
    if run and not recorded:
        raise NotFoundError(f"{store} holds no run or trajectory {', '.join(run)}")
    # Guarded: this process only replays, so a tool call from a thread outside of any replay is refused.
    replayed = asyncio.run(fidelity(function, recorded, rewards=rewards, divergence=policy, guard=True))
    if json:
        print_json({**msgspec.to_builtins(replayed), "rate": replayed.rate})
        return 0
    low, high = replayed.interval
    rate = (
        "nothing could be compared"
        if replayed.rate is None
        else f"{replayed.rate:.1%} [{low:.1%}, {high:.1%}]"
    )
    print(
        f"replayed {counted(replayed.runs, 'run')}: the verdict is the recorded one "
        f"in {replayed.equal} of {replayed.compared}: {rate}"
    )
    print(
        f"tool calls answered: {replayed.exact} as recorded, {replayed.nearest} by the nearest read, "
        f"{replayed.simulated} by the simulator, {replayed.live} by running a read"
    )
    if replayed.diverged:
        print(f"left out: {counted(replayed.diverged, 'run')} {UNRECORDED}")
        for call, runs in list(replayed.reasons.items())[:5]:
            print(f"  {runs} x {call}")
    if replayed.unjudged:
        print(f"left out, without a verdict on one side: {counted(replayed.unjudged, 'run')}")
        for failure, runs in list(replayed.broken.items())[:5]:
            print(f"  {runs} x {failure[:300]}")
    for id in replayed.differing[:10]:
        print(f"differs: {id}")
    return 0
