"""Labels for a process reward model: how good each step was.

- `monte_carlo` (Math-Shepherd, Wang et al. 2024): from every prefix of a trajectory the
  policy goes on N times; a step's label is the share of completions that succeed.  The
  *soft* share is what is kept: the hard one ("any succeeds") gets worse with more
  completions wherever a later step can repair an earlier one.
- `recorded` takes the runs that were recorded anyway as completions, where nothing can be rolled out.
- `prm800k` (Lightman et al. 2023): people's ratings, +1 and 0 for good, −1 for bad.

A Monte-Carlo label is a value, not a judgement of correctness: it depends on who goes on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import msgspec

from ...errors import InputError
from ...escapes import read_json
from ...types import Bundle, Group, Json, Outcome, Step, Task, Tokens, Trajectory, digest
from ..loop import Context
from .cloning import succeeded


@dataclass(frozen=True, slots=True)
class Labelled:
    """A trajectory with a label in [0, 1] for some of its steps."""

    trajectory: Trajectory
    labels: Mapping[int, float]
    """Step number → how good."""


async def monte_carlo(
    trajectories: Sequence[Trajectory],
    bundle: Bundle,
    context: Context,
    *,
    completions: int = 8,
    seed: int = 0,
) -> list[Labelled]:
    """Label the steps of trajectories by how often the policy of `bundle` still succeeds after them.

    The last step is labelled by the trajectory itself, which costs nothing.

    Args:
        completions: rollouts from each prefix.

    Raises:
        BudgetExceeded: the completions of a step would overshoot the budget; none of them was run.
    """
    labelled = []
    for number, trajectory in enumerate(trajectories):
        actions, labels = _last_labelled(trajectory)
        for length in range(1, len(actions)):
            groups = await context.rollout(
                bundle,
                [trajectory.task],
                completions,
                # Every prefix draws by itself, as long as trajectories have fewer than 1,000 steps.
                seed=seed + 1000 * number + length,
                prefix=actions[:length],
            )
            # None is no failure: completions that nothing has judged are left out of the share.
            verdicts = [succeeded(completion) for completion in groups[0].trajectories]
            judged = [float(verdict) for verdict in verdicts if verdict is not None]
            if judged:
                labels[length - 1] = sum(judged) / len(judged)
        labelled.append(Labelled(trajectory, labels))
    return labelled


def recorded(
    trajectories: Sequence[Trajectory], groups: Sequence[Group], *, completions: int = 8
) -> list[Labelled]:
    """Label the steps of trajectories by the runs in the record that begin as they do.

    No policy is asked: the labels are those of the policies that made the recording.  A prefix that one
    run alone has is labelled by how that run ended, which is an estimate from one completion.

    Args:
        groups: the record.
        completions: runs looked at for each prefix, the first ones.
    """
    runs = {
        group.task.id: [(_actions(run), run) for run in group.trajectories if run.outcome.counts]
        for group in groups
    }
    labelled = []
    for trajectory in trajectories:
        actions, labels = _last_labelled(trajectory)
        for length in range(1, len(actions)):
            alike = [
                run
                for run_actions, run in runs.get(trajectory.task.id, [])
                # A trajectory of the record is among them: a prefix that it alone has gets its outcome.
                if run_actions[:length] == actions[:length]
            ]
            successes = [float(run.outcome is Outcome.SUCCESS) for run in alike[:completions]]
            if successes:
                labels[length - 1] = sum(successes) / len(successes)
        labelled.append(Labelled(trajectory, labels))
    return labelled


def _last_labelled(trajectory: Trajectory) -> tuple[list[Json], dict[int, float]]:
    """The actions, and the label of the last one: how the trajectory ended."""
    actions, ended_well = _actions(trajectory), succeeded(trajectory)
    return actions, {len(actions) - 1: float(ended_well)} if ended_well is not None and actions else {}


def _actions(trajectory: Trajectory) -> list[Json]:
    return [step.action for step in trajectory.steps if step.parent is None]


def hardened(labelled: Sequence[Labelled]) -> list[Labelled]:
    """Labels of 1 where any completion succeeded: the worse kind, for comparison."""
    return [
        Labelled(
            rated.trajectory,
            {step: float(label > 0) for step, label in rated.labels.items()},
        )
        for rated in labelled
    ]


def prm800k(lines: Iterable[str | bytes], encode: Callable[[str], Sequence[int]]) -> list[Labelled]:
    """Solutions with people's ratings of their steps, from lines of PRM800K.

    Every rated completion of a step is a label on the solution that was chosen up to there.

    Args:
        encode: text → token ids; a solution's text was never sampled from a model of ours.

    Raises:
        InputError: a line is not PRM800K's JSON.
    """
    solutions: list[Labelled] = []
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            record = read_json(msgspec.json.decode, line)
            problem, steps = record["question"]["problem"], record["label"]["steps"]
            solutions.extend(_solutions(str(problem), steps, encode))
        except (msgspec.DecodeError, KeyError, TypeError, IndexError, AttributeError) as error:
            raise InputError(f"line {number} is not a PRM800K record: {error!r}") from error
    return solutions


def _solutions(
    problem: str, steps: Sequence[Mapping[str, Json]], encode: Callable[[str], Sequence[int]]
) -> list[Labelled]:
    task = Task(instruction=problem)
    context = list(encode(problem))
    steps_so_far: list[Step] = []
    labels: dict[int, float] = {}
    solutions: list[Labelled] = []
    for number, step in enumerate(steps):
        chosen = step.get("chosen_completion")
        for index, completion in enumerate(step.get("completions") or ()):
            rating = completion.get("rating")
            if rating is None or index == chosen:
                continue
            written = _written(completion["text"], context, encode, number)
            solutions.append(
                _solution(task, (*steps_so_far, written), {**labels, number: float(rating >= 0)})
            )
        human = step.get("human_completion")
        if chosen is None and human is None:
            break
        # A step that a person wrote has no rating, and is taken for right.
        rating = 1 if chosen is None else step["completions"][chosen].get("rating")
        text = human["text"] if human is not None and chosen is None else step["completions"][chosen]["text"]
        written = _written(text, context, encode, number)
        steps_so_far.append(written)
        if rating is not None:
            labels[number] = float(rating >= 0)
        assert written.tokens is not None
        context = [*written.tokens.prompt_ids, *written.tokens.output_ids]
    if steps_so_far:
        solutions.append(_solution(task, tuple(steps_so_far), dict(labels)))
    return solutions


def _solution(task: Task, steps: tuple[Step, ...], labels: Mapping[int, float]) -> Labelled:
    # The same file read again gives the same ids, by which a run that goes on knows its data.
    trajectory_id = digest([task.id, [step.action for step in steps]])
    return Labelled(Trajectory(task=task, steps=steps, id=trajectory_id), labels)


def _written(text: str, context: list[int], encode: Callable[[str], Sequence[int]], number: int) -> Step:
    return Step(action=text, id=str(number), tokens=Tokens(tuple(context), tuple(encode(text)), ()))
