"""`METHOD().train(...)`: from data, or an environment, and a model to weights in a folder, in one plain call.

It is the same run as `whet train METHOD` (`running.py`), without a command line around it, and works in a script as
in a notebook, whose event loop is running already.
"""

from __future__ import annotations

import asyncio
import contextvars
import copy
import warnings
from collections.abc import Coroutine, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from ...errors import InputError
from ...judge import Reward, ajudged, name_of, version_of
from ...judge.ranking import ranked
from ...record.exchange import formats
from ...record.exchange.text_rows import read_text_rows
from ...record.influence import weighed
from ...record.policy import PolicyFactory
from ...record.store import Store
from ...record.tracing.signals import hear
from ...types import Budget, Json, Preference, Split, Task, Trajectory
from ..loop import Progress, quiet
from .chat import ANSWER_TOKENS, codec_of
from .huggingface import LoRAOptions
from .options import learning_from
from .running import Trained, TrainingJob, run
from .sampling_world import ROUND_TASKS, SamplingPlan
from .templates import encoder
from .text_rows import TextRows, tokenised

T = TypeVar("T")

Data = str | Path | Store | Sequence[Trajectory] | Sequence[Preference] | Sequence[Mapping[str, Json]]
"""A file of trajectories or rows, a store or its file; or trajectories, preferences or rows themselves."""


class Trainable:
    """The `train` of every method that changes weights."""

    name: str
    options: Any
    group_size: int
    on_policy: bool

    def train(
        self,
        data: Data | None = None,
        *,
        model: str | Path,
        output: str | Path,
        env: Any = None,
        episodes: int | None = None,
        tasks: Sequence[Task] | None = None,
        policy: PolicyFactory | None = None,
        reward: Reward | None = None,
        system: str = "",
        answer_tokens: int = ANSWER_TOKENS,
        round_tasks: int | None = None,
        rollouts: int | None = None,
        lora_rank: int = 0,
        gate: bool = True,
        resume: bool = False,
        progress: Progress = quiet,
    ) -> Trained:
        """Train a model's weights to the end, on data or in an environment.

        The output folder is that of `whet train`: `bundle.json` for `whet release`, metrics, and what `resume` needs.

        Args:
            data: recorded runs (a store or its file, a file of trajectories, or trajectories), preferences, or rows of
                text in TRL's formats (`text_rows`), as a file of JSON lines or as a list.
            model: folder or hub name of a causal language model, or the output folder of another run.
            env: in the place of data, what to sample from: an environment, or what makes a fresh one per rollout, with
                Gymnasium's methods or an Env.
            episodes: learn from so many seeds of the environment; 100 if neither these nor tasks are given.
            tasks: of the environment; divided by their group.
            policy: acts in the environment; if None, its own, else a `ChatPolicy` of the model.
            reward: judges each run; if None, the recorded rewards and outcomes, or those of the environment.
            system: system message of the chat policy, and of rows whose prompts are text.
            answer_tokens: most tokens of the chat policy's answers.
            round_tasks: tasks per round of a method that samples; 16 of `episodes`, all of `tasks` if None.
            rollouts: most fresh rollouts; as many as the method asks for if None.
            lora_rank: train LoRA factors of this rank beside frozen weights; 0 trains all weights.
            gate: after training in an environment, compare with the weights before on tasks that nothing learned from.
            resume: go on with the run in the output folder; bit-identical to one that was not interrupted.
            progress: called as training goes on.

        Returns:
            The end of the run: its Bundle, the last metrics, and the gate's Verdict.

        Raises:
            InputError: data and env, or neither; they cannot be read; or the folder holds another run.
            TrainingRefused: there is nothing to learn from; says why.
        """
        if (data is None) == (env is None):
            raise InputError(f"{type(self).__name__}().train needs either data or env=, and not both")
        model, given = str(model), TextRows()
        learner = copy.copy(self)
        world, settings = None, dict[str, Json]()
        if env is None:
            given = _given(data, model, self.options.resource, system)
            if given.preferences and getattr(learner, "_encode", False) is None:
                learner._encode = encoder(model)  # type: ignore[attr-defined]
            if reward is not None:
                given.trajectories = waited(_judged(given.trajectories, reward))
        else:
            if not self.group_size:
                raise InputError(
                    f"{self.name} learns from data and does not sample; env= is for GRPO, PPO and the like"
                )
            plan = SamplingPlan(
                env=env,
                tasks=tasks,
                episodes=episodes,
                policy=policy,
                rewards=[] if reward is None else [reward],
                system=system,
                answer_tokens=answer_tokens,
                gate=gate,
            )
            world = plan.world(
                model,
                resource=self.options.resource,
                temperature=getattr(self.options, "temperature", 1.0),
                seed=self.options.seed,
            )
            settings = {"episodes": episodes, "system": system, "answer_tokens": answer_tokens}
        if reward is not None:
            judged_otherwise = env is not None or any(run.outcome.counts for run in given.trajectories)
            learner.options = learning_from(self.options, name_of(reward), has_success=judged_otherwise)
            settings["reward_function"] = [name_of(reward), version_of(reward)]
        job = TrainingJob(
            name=self.name,
            trajectories=given.trajectories,
            output=Path(output),
            model=model,
            lora=LoRAOptions(rank=lora_rank, alpha=2 * lora_rank) if lora_rank else None,
            score=getattr(learner.options, "score", None),
            rl=self.on_policy,
            preferences=given.preferences,
            world=world,
            tasks=round_tasks or (ROUND_TASKS if world is not None and tasks is None else None),
            budget=None if rollouts is None else Budget(rollouts=rollouts),
            gate=gate and world is not None,
            settings=msgspec.to_builtins(learner.options) | {"lora_rank": lora_rank} | settings,
            seed=self.options.seed,
            resource=self.options.resource,
            progress=progress,
        )
        return waited(run(job, lambda: learner, resume=resume))  # type: ignore[arg-type, return-value]


def waited(work: Coroutine[Any, Any, T]) -> T:
    """The result of a coroutine, whether or not an event loop is running in this thread, as in a notebook."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(work)
    context = contextvars.copy_context()
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(context.run, asyncio.run, work).result()


async def _judged(trajectories: Sequence[Trajectory], reward: Reward) -> list[Trajectory]:
    return await ranked([await ajudged(trajectory, reward) for trajectory in trajectories], [reward])


def _given(data: Any, model: str, resource: str, system: str) -> TextRows:
    """The data as trajectories and preferences."""
    if isinstance(data, (str, Path)):
        data = _file(Path(data))
    if isinstance(data, TextRows):
        return data
    if isinstance(data, Store):
        hear(data)
        influence = weighed(run for run in data.trajectories() if run.task.split is not Split.GATE)
        if influence.sentence:
            warnings.warn(influence.sentence, UserWarning, stacklevel=3)
        runs = list(influence.runs)
        return TextRows(runs, list(data.preferences()))
    rows = list(data)
    kinds = {type(row).__name__ for row in rows}
    if all(isinstance(row, Trajectory) for row in rows):
        return TextRows([run for run in rows if run.task.split is not Split.GATE])
    if all(isinstance(row, Preference) for row in rows):
        return TextRows([], rows)
    if all(isinstance(row, Mapping) for row in rows):
        return tokenised(rows, codec_of(model, resource), system=system)
    raise InputError(
        f"data must be trajectories, preferences or rows, not a list of {', '.join(sorted(kinds))}"
    )


def _file(path: Path) -> Any:
    """The store, trajectories or rows of a file."""
    rows = read_text_rows(path)
    if rows is not None:
        return rows
    with open(path, "rb") as file:
        stored = file.read(16).startswith(b"SQLite format 3")
    if stored:
        with Store(path) as store:
            return _given(store, "", "", "")
    return list(formats.read_trajectories(path))
