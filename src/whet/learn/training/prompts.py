"""Recorded prompts, answered afresh: an environment of one call.

For methods that sample where all that is known is what the policy was asked.  Nothing judges the
answers, so the trajectories have no outcome and no reward: a learned reward scores them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from ...errors import EnvError, InputError, TrainingRefused
from ...models.sampling import TokenSession
from ...record.env import StepResult
from ...record.policy import Action
from ...types import Bundle, Group, Json, Task, Tokens, Trajectory
from .local import LocalModels


class Prompts:
    """An EnvFactory over the prompts of recorded trajectories; it brings the policy that answers them.

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
                # The first one: a task's later runs may have been asked with another prompt.
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

    def __call__(self) -> PromptEnv:
        """A fresh Env."""
        return PromptEnv(self._prompts)

    def policy(self, bundle: Bundle, seed: int) -> Answers:
        """The policy of one rollout."""
        sampler = self._models.sampler(bundle[self._resource], temperature=self._temperature)
        return Answers(sampler.session(seed), self.stop_id, self.max_new_tokens)


class PromptEnv:
    """One prompt: its ids are the observation, and any answer ends the episode.

    Args:
        prompts: task id → ids.
    """

    def __init__(self, prompts: dict[str, tuple[int, ...]]) -> None:
        self._prompts = prompts
        self._open = False

    def reset(self, task: Task, seed: int) -> Json:
        """The ids of the task's prompt."""
        if task.id not in self._prompts:
            raise InputError(f"task {task.id} has no recorded prompt")
        self._open = True
        return list(self._prompts[task.id])

    def step(self, action: Json) -> StepResult:
        """The end."""
        if not self._open:
            raise EnvError("the episode is over or was never started: a prompt is answered once")
        self._open = False
        return StepResult(None, None, True)


class Answers:
    """Samples one answer."""

    def __init__(self, session: TokenSession, stop_id: int | None, max_new_tokens: int) -> None:
        self._session, self._stop_id, self._max_new_tokens = session, stop_id, max_new_tokens

    async def act(self, observation: Sequence[int]) -> Action:
        """The ids of the answer."""
        sampled = await self._session.generate(
            observation, stop_id=self._stop_id, max_new_tokens=self._max_new_tokens
        )
        return Action(list(sampled.output_ids), sampled.tokens, sampled.usage)


def _only_call(trajectory: Trajectory) -> Tokens | None:
    calls = [step.tokens for step in trajectory.steps if step.tokens is not None and step.tokens.output_ids]
    if len(calls) > 1:
        raise TrainingRefused(
            f"trajectory {trajectory.id} has {len(calls)} calls, and what follows an answer only its environment "
            "knows; use Experiment.improve(whet.learn.optimizers.rlhf.RLHF(...))"
        )
    return calls[0] if calls else None


def _common_end(answers: Sequence[tuple[int, ...]]) -> int | None:
    ends = Counter(answer[-1] for answer in answers if len(answer) > 1)
    if not ends:
        return None
    ((end, count),) = ends.most_common(1)
    return end if 2 * count > ends.total() else None
