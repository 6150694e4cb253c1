"""Recorded prompts, answered afresh: rollouts of one call, which need no environment.

For methods that sample where all that is known is what the policy was asked.  Nothing judges the
answers, so the trajectories have no outcome and no reward: a learned reward scores them.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence

from ..errors import InputError, TrainingRefused
from ..types import Bundle, Group, Json, Outcome, Step, Task, Tokens, Trajectory, digest
from .local import LocalModels


class Prompts:
    """A `Rollout` over the prompts of recorded trajectories.

    Args:
        groups: whose tasks can be asked for; the first recorded prompt of each is answered.
        resource: the weights in the Bundle that answer.
        stop_id: token that ends an answer; if None, the one that more than half of the recorded answers of
            two tokens or more end with, if there is one.
        max_new_tokens: the longest recorded answer if None.

    Raises:
        TrainingRefused: a trajectory has several calls, or none of them has one with token ids.
    """

    def __init__(
        self,
        groups: Sequence[Group],
        *,
        resource: str = "policy",
        temperature: float = 1.0,
        stop_id: int | None = None,
        max_new_tokens: int | None = None,
        models: LocalModels | None = None,
    ) -> None:
        self._models = models or LocalModels.shared()
        self._resource, self._temperature = resource, temperature
        self._prompts: dict[str, tuple[int, ...]] = {}
        answers: list[tuple[int, ...]] = []
        for trajectory in (trajectory for group in groups for trajectory in group.trajectories):
            call = _only_call(trajectory)
            if call is not None:
                self._prompts.setdefault(trajectory.task.id, tuple(call.prompt_ids))
                answers.append(tuple(call.output_ids))
        if not answers:
            raise TrainingRefused(
                f"none of {len(groups)} tasks has a recorded prompt as token ids; record through whet's gateway "
                "or sampler"
            )
        self.stop_id = _common_end(answers) if stop_id is None else stop_id
        self.max_new_tokens = max_new_tokens or max(map(len, answers))

    @property
    def tasks(self) -> frozenset[str]:
        """Ids of the tasks that can be asked for."""
        return frozenset(self._prompts)

    async def __call__(
        self,
        bundle: Bundle,
        tasks: Sequence[Task],
        n: int = 1,
        *,
        seed: int = 0,
        prefix: Sequence[Json] | None = None,
    ) -> list[Group]:
        """`n` answers to the prompt of each task.

        Raises:
            InputError: a task without a recorded prompt, or a prefix, which one call has none of.
        """
        unknown = [task.id for task in tasks if task.id not in self._prompts]
        if unknown or prefix:
            raise InputError(
                f"prompts are answered in one call and have no prefix; unknown tasks: {unknown[:3]}"
            )
        done = await asyncio.gather(
            *(self._answer(bundle, task, [seed, task.id, number]) for task in tasks for number in range(n))
        )
        return [Group(task, tuple(done[k * n : (k + 1) * n])) for k, task in enumerate(tasks)]

    async def _answer(self, bundle: Bundle, task: Task, chance: list[Json]) -> Trajectory:
        sampler = self._models.sampler(bundle[self._resource], temperature=self._temperature)
        session = sampler.session(int(digest(chance, 12), 16))
        sampled = await session.generate(
            self._prompts[task.id], stop_id=self.stop_id, max_new_tokens=self.max_new_tokens
        )
        step = Step(action=list(sampled.output_ids), done=True, tokens=sampled.tokens, usage=sampled.usage)
        return Trajectory(
            task=task,
            steps=(step,),
            outcome=Outcome.UNKNOWN,
            id=digest([bundle.id, *chance], 24),
            versions=bundle.ids,
        )


def _only_call(trajectory: Trajectory) -> Tokens | None:
    calls = [step.tokens for step in trajectory.steps if step.tokens is not None and step.tokens.output_ids]
    if len(calls) > 1:
        raise TrainingRefused(
            f"trajectory {trajectory.id} has {len(calls)} calls, and what follows an answer only its environment "
            "knows; use Experiment.improve(whet.optimizers.rlhf.RLHF(...))"
        )
    return calls[0] if calls else None


def _common_end(answers: Sequence[tuple[int, ...]]) -> int | None:
    ends = Counter(answer[-1] for answer in answers if len(answer) > 1)
    if not ends:
        return None
    ((end, count),) = ends.most_common(1)
    return end if 2 * count > ends.total() else None
