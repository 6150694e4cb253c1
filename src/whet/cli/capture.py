"""`whet show --trainable`, which is `whet capture check`, too: which recorded runs can be trained on."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import cyclopts
import msgspec
from cyclopts import Parameter

from ..errors import InputError
from .app import Print, Reward, app, print_json
from .named import judged
from .train_input import read_trajectories

Score = Annotated[
    str | None,
    Parameter(help="The score that is the reward. If omitted, the rewards of the steps, else the outcome."),
]

_capture = cyclopts.App(name="capture", help="An earlier name of whet show --trainable.", show=False)
app.command(_capture)


@_capture.command(name="check")
def check(
    *,
    data: Path | None = None,
    store: Path | None = None,
    score: Score = None,
    reward_function: Reward = None,
    json: Print = False,
) -> int:
    """Say of each recorded run whether it can be trained on, and if not, why.

    The same as whet show --trainable. Checks that calls, token ids and a reward were recorded, that each prompt extends
    the last one, and that the masks fit. Exits 1 if no run can be trained on.

    Parameters
    ----------
    data
        Trajectories, one JSON object per line.
    store
        Trajectories of this store instead.
    """
    from ..training import capture

    if score is not None and reward_function is not None:
        raise InputError(
            "give --score for a recorded score, or --reward-function for a reward to compute now"
        )
    trajectories = read_trajectories(data, store)
    if reward_function is not None:
        trajectories, score, _ = judged(trajectories, reward_function)
    survey = capture.survey(trajectories, score=score)
    checks = [capture.check(trajectory, score=score) for trajectory in trajectories]
    if json:
        print_json(survey)
        for run in checks:
            row = msgspec.to_builtins(run) | {"trainable": run.trainable, "clonable": run.clonable}
            print_json(row)
    else:
        print("\n".join(survey.lines()))
        for run in checks:
            if run.reasons:
                print(f"{run.id}  {', '.join(run.reasons)}")
    return 0 if survey.trainable or survey.clonable else 1
