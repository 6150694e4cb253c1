"""`whet show`: the record of what agents did."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from ..errors import InputError
from .app import Print, Reward, command, existing, named_store, print_json
from .capture import Score, check


@command("show")
def show(
    *,
    store: Annotated[
        Path | None, Parameter(env_var="WHET_STORE", help="The record: a file, such as runs.db.")
    ] = None,
    trainable: bool = False,
    data: Path | None = None,
    score: Score = None,
    reward_function: Reward = None,
    json: Print = False,
) -> int:
    """Print what a store holds: counts of each kind, what is live, and the history of releases.

    With --trainable: which recorded runs can be trained on, and why the others cannot.

    Parameters
    ----------
    trainable
        Check each run instead: that calls, token ids and a reward were recorded, that each prompt extends the last one,
        and that the masks fit. Exits 1 if no run can be trained on.
    data
        With --trainable: trajectories of a file instead of a store, one JSON object per line.
    """
    if trainable:
        return check(
            data=data, store=None if data else store, score=score, reward_function=reward_function, json=json
        )
    if data or score or reward_function:
        raise InputError("--data, --score and --reward-function need --trainable")
    from ..store import Store

    with Store(existing(named_store(store))) as opened:
        live = opened.live()
        holdings: dict[str, Any] = {
            "counts": opened.counts(),
            "live": live.ids if live is not None else {},
            "releases": [
                {
                    "id": release.id,
                    "at": release.at,
                    "bundle": release.bundle.ids,
                    "reason": release.reason,
                    "verdict": release.verdict,
                    "unproven": release.unproven,
                }
                for release in opened.history()
            ],
        }
    if json:
        print_json(holdings)
        return 0
    for name, count in holdings["counts"].items():
        print(f"{name:32} {count:>10,}")
    for name, id in holdings["live"].items():
        print(f"live {name:27} {id}")
    for release in holdings["releases"]:
        day = time.strftime("%Y-%m-%d %H:%M", time.localtime(release["at"]))
        proof = "unproven, " if release["unproven"] else ""
        print(f"released {day}: {proof}{release['reason']}")
    return 0
