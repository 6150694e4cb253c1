"""Tasks that an agent fails, done with the document at hand that says how, and kept as if it had known it.

After AgentTrek (Xu et al. 2024): a tutorial in the prompt, a run that an evaluator verifies, and the run kept without
the tutorial.  Differences: tasks come first, each with the document that it was written from or that fits it best; what
verifies a run is the task's own answer or checker, by the rewards of the gate; tasks of the gate are left alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ..errors import InputError
from ..judge import Reward, name_of
from ..judge.agent_env import calls
from ..types import Bundle, Json, Split, Task, Trajectory, digest
from .datasets.documents import Document, DocumentIndex, pieces
from .datasets.traffic import GOOD, GUIDED
from .experiment import Experiment

FITS = 0.3
"""Share of a task's telling words that a document must hold to be its guide."""
_FORM = "How this is done:\n{guide}\n\nThe request:\n{request}"


@dataclass(frozen=True, slots=True)
class GuidedAccount:
    """What guides brought."""

    tasks: int
    """That can be judged and are not the gate's."""
    solved: int
    """Without a guide."""
    guided: int
    """Of the others those with a guide."""
    helped: int
    """Solved with it, and kept."""
    misled: int | None = None
    """Solved with the guide of another task: what is no merit of the guides. None where that was not tried."""
    misguided: int = 0
    """Tasks that were tried with the guide of another."""


async def guide(
    agent: Callable[..., Any],
    tasks: Sequence[Task],
    documents: Sequence[Document],
    rewards: Sequence[Reward],
    *,
    bundle: Bundle | None = None,
    control: bool = True,
    seed: int = 0,
) -> tuple[list[Trajectory], GuidedAccount]:
    """Runs of an agent that its tasks verified, made with a guide and told without it.

    Args:
        agent: called with a task's instruction; it acts for real.
        rewards: the first says what is solved, from a half on.
        control: try each task with the guide of another one, too.

    Raises:
        InputError: no task can be judged.
    """
    able = [
        task for task in tasks if task.split is not Split.GATE and (task.answer_known or task.success_checker)
    ]
    if not able:
        raise InputError(
            f"none of {len(tasks)} tasks has a right answer or a checker and is not the gate's: there is nothing to "
            "verify a run by"
        )
    able = [replace(task, split=Split.TRAIN) for task in able]
    metric = name_of(rewards[0])
    running = _Runs(agent, rewards, bundle or Bundle(), seed)
    before = await running(able)
    failed = [task for task, run in zip(able, before, strict=True) if not _solved(run, metric)]
    parts = [piece for document in documents for piece in pieces(document)]
    index = DocumentIndex(parts)
    chosen = [(task, part) for task in failed if (part := _guide_of(task, parts, index)) is not None]
    after = await running([_guided(task, part) for task, part in chosen])
    verified = [
        _told(run, task, part)
        for (task, part), run in zip(chosen, after, strict=True)
        if _solved(run, metric)
    ]
    misled, wrong = None, list[tuple[Task, Document]]()
    if control:
        turned = [part for _, part in chosen[1:]] + [part for _, part in chosen[:1]]
        pairs = zip(chosen, turned, strict=True)
        wrong = [(task, other) for (task, part), other in pairs if other.id != part.id]
        misled = sum(_solved(run, metric) for run in await running([_guided(*pair) for pair in wrong]))
    solved = len(able) - len(failed)
    return verified, GuidedAccount(len(able), solved, len(chosen), len(verified), misled, len(wrong))


class _Runs:
    """Runs of the agent that nothing records: what is kept of them is told without the guide."""

    def __init__(
        self, agent: Callable[..., Any], rewards: Sequence[Reward], bundle: Bundle, seed: int
    ) -> None:
        self._env = calls(agent, record="live")
        self._rewards, self._bundle, self._seed = rewards, bundle, seed

    async def __call__(self, tasks: Sequence[Task]) -> list[Trajectory]:
        if not tasks:
            return []
        experiment = Experiment(
            env=self._env, tasks=tasks, rewards=self._rewards, seed=self._seed, name="guide"
        )
        groups = await experiment.collect(self._bundle, tasks)
        return [run for group in groups for run in group.trajectories]


def _solved(run: Trajectory, metric: str) -> bool:
    value = run.score(metric)
    return value is not None and value >= GOOD


def _guide_of(task: Task, parts: Sequence[Document], index: DocumentIndex) -> Document | None:
    evidence = task.meta.get("evidence")
    if isinstance(evidence, Mapping):
        own = next((part for part in parts if part.id == evidence.get("document")), None)
        if own is not None:
            return own
    fits = index.fitting(task.instruction)
    best = max(fits, key=lambda item: (fits[item], -item), default=None)
    return parts[best] if best is not None and fits[best] >= FITS else None


def _guided(task: Task, part: Document) -> Task:
    return replace(task, id="", instruction=_FORM.format(guide=part.shown, request=task.instruction))


def _told(run: Trajectory, task: Task, part: Document) -> Trajectory:
    """The run of the task without its guide: not its tokens, which have the guide among them."""
    request = _FORM.format(guide=part.shown, request=task.instruction)
    provenance: dict[str, Json] = {"how": GUIDED, "document": part.id}
    return replace(
        run,
        id=digest([GUIDED, task.id, part.id, run.output], 24),
        task=task,
        steps=tuple(
            replace(
                step,
                observation=_without(step.observation, request, task.instruction, part.shown),
                action=_without(step.action, request, task.instruction, part.shown),
                tokens=None,
            )
            for step in run.steps
        ),
        meta={**run.meta, "provenance": provenance},
    )


def _without(value: Json, request: str, instruction: str, guide: str) -> Json:
    if isinstance(value, str):
        return value.replace(request, instruction).replace(guide, "")
    if isinstance(value, Mapping):
        return {key: _without(inner, request, instruction, guide) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_without(inner, request, instruction, guide) for inner in value]
    return value
