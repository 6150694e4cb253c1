"""DAgger: the policy acts, an expert says what it should have done there, and both are cloned.

Ross et al. 2011.  Cloning an expert's own trajectories teaches nothing about the states
that only a mistake leads to; here the states are the policy's and the actions the
expert's, and the data of all rounds is kept.  Differences: the policy always acts
itself (the paper's β is 0 after the first round, which is cloning, `sft`); an expert may
decline (None) and is then asked nothing of that state; each correction is the tokens of
one call on the prompt that the policy saw.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from ..errors import TrainingRefused
from ..loop import Context, Update
from ..training.batch import Counts, Merged
from ..training.cloning import (
    Chosen,
    FromBase,
    clone,
    joined,
    learner_of,
    read_kept,
    resumed,
    starting,
    write_kept,
)
from ..training.local import LocalModels
from ..training.options.records import DAggerOptions as DAggerOptions
from ..types import Bundle, Group, Json, Step, Task, Version

Expert = Callable[[Task, Step], Sequence[int] | None]
"""(task, what the policy saw and did) → the ids that should have been written there; None to decline."""


class DAgger:
    """DAgger as an Optimizer; one `step` is one round, training from the base included.

    Args:
        expert: says what should have been done.
        models: where weights live; the process's own if None.
    """

    name = "dagger"
    on_policy = True
    ordered = False

    def __init__(
        self, expert: Expert, options: DAggerOptions | None = None, *, models: LocalModels | None = None
    ) -> None:
        self.options = options or DAggerOptions()
        self.models = models or LocalModels.shared()
        self.group_size = self.options.group_size
        self._expert = expert

    async def step(self, bundle: Bundle, groups: Sequence[Group], context: Context) -> Update:
        """Ask the expert about every state of these groups, and clone all corrections so far.

        Raises:
            InputError: the Bundle has no weights, or the state is another method's.
            TrainingRefused: the expert declined everywhere.
        """
        options = self.options
        version = starting(bundle, options.resource)
        run = resumed(context.state, FromBase(base=msgspec.to_builtins(version)), self.name)
        corrections, figures = self._corrections(groups)
        everything = joined(read_kept(context.folder, run.file), corrections)
        if not everything:
            raise TrainingRefused(
                f"the expert declined all {figures['states']:g} states; it must say what to do in some of them"
            )
        learner = learner_of(self.models, msgspec.convert(run.base, Version), options.optim)
        figures |= await clone(learner, everything, options, context)
        meta: dict[str, Json] = {"method": self.name, "seed": options.seed, "round": run.round}
        made = learner.checkpoint(options.resource, context.folder, version.id, meta)
        run.round, run.file = run.round + 1, write_kept(context.folder, everything)
        done = run.round >= options.steps
        return Update(
            bundle=bundle.put(made),
            state=msgspec.to_builtins(run),
            metrics={**figures, "corrections": float(len(everything))},
            done=done,
            reason=f"all {options.steps} rounds done" if done else "",
        )

    def _corrections(self, groups: Sequence[Group]) -> tuple[list[Chosen], dict[str, float]]:
        found: list[Chosen] = []
        states = declined = agreed = 0
        for trajectory in (trajectory for group in groups for trajectory in group.trajectories):
            for step in trajectory.steps:
                if step.tokens is None or not step.tokens.prompt_ids:
                    continue
                states += 1
                wanted = self._expert(trajectory.task, step)
                if not wanted:
                    declined += 1
                    continue
                agreed += list(wanted) == list(step.tokens.output_ids)
                prompt = list(step.tokens.prompt_ids)
                targets = list(range(len(prompt), len(prompt) + len(wanted)))
                one = Merged(0, [*prompt, *wanted], targets, [float("nan")] * len(targets))
                size = len(one.ids)
                found.append((trajectory.task.id, ([one], Counts(1, 1, 0, size, len(targets), size))))
        figures = {"states": float(states), "declined": float(declined)}
        return found, figures | ({"agreement": agreed / (states - declined)} if states > declined else {})
