"""`whet capture check`: whether what was captured can be trained on."""

from __future__ import annotations

from pathlib import Path

import cyclopts
import msgspec
from cyclopts import Parameter

from ..errors import InputError
from .app import app
from .named import judged
from .train_input import read_trajectories

_capture = cyclopts.App(
    name="capture",
    help="Look at what was captured, before training on it.",
    help_format="plaintext",
    default_parameter=Parameter(negative=()),
)
app.command(_capture)


@_capture.command(name="check")
def check(
    *,
    data: Path | None = None,
    store: Path | None = None,
    score: str | None = None,
    reward_function: str | None = None,
    json: bool = False,
) -> int:
    """Say of each trajectory whether it can be trained on, and if not why.

    Calls seen, token ids present, reward present, each prompt an extension of the last, masks that fit.
    Exits with 1 if not one can be trained on.

    Parameters
    ----------
    data
        Trajectories, one JSON object a line.
    store
        Trajectories of this store instead.
    score
        The score that is the reward; the step rewards or else the outcome if left out.
    reward_function
        A reward to give now instead, as module:function; whet.reward:rated is the last value that people gave.
    json
        Print one JSON object a line: first the survey, then each trajectory.
    """
    from ..training import capture

    if score is not None and reward_function is not None:
        raise InputError("give --score for one that was recorded, or --reward-function for one to give now")
    trajectories = read_trajectories(data, store)
    if reward_function is not None:
        trajectories, score, _ = judged(trajectories, reward_function)
    found = capture.survey(trajectories, score=score)
    each = [capture.check(trajectory, score=score) for trajectory in trajectories]
    if json:
        print(msgspec.json.encode(found).decode())
        for one in each:
            row = msgspec.to_builtins(one) | {"trainable": one.trainable, "clonable": one.clonable}
            print(msgspec.json.encode(row).decode())
    else:
        print("\n".join(found.lines()))
        for one in each:
            if one.reasons:
                print(f"{one.id}  {', '.join(one.reasons)}")
    return 0 if found.trainable or found.clonable else 1
