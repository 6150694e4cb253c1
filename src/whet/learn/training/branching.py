"""Pairs and labels by search: a tree of a policy's own answers, grown where something is at stake.

Monte-Carlo tree search as Agent Q has it (Putta et al. 2024): go down by the upper confidence bound,
let the policy go on from there to the end, give what came of it to every answer on the way.  The
answers of a node are the policy's own samples, and how many are drawn grows with the root of its
visits.  Differences: no critic ranks the answers; every rollout is played to its end, so the tree is
a Group of whole trajectories with their own tokens, which `pairs.step_pairs` reads as any other.

A branch begins by saying again what was said before, id by id (`Recalling`): the policy sees all that
it saw, so a branch's prompts are those of an unbranched rollout.  The environment is played again
from its start and must be deterministic.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from ...errors import InputError
from ...models.sampling import Sampled, TokenSession
from ...types import Group, Task, Tokens, Trajectory, Version
from .credit import reward_of
from .local import LocalModels


class Recalling:
    """Models whose sessions may begin with answers that were given before; for policies that search.

    Args:
        models: where what is new is sampled.
    """

    def __init__(self, models: LocalModels) -> None:
        self.models = models
        self._said: dict[int, tuple[Tokens, ...]] = {}

    def begin(self, seed: int, answers: Sequence[Tokens]) -> None:
        """Let the next session of this seed say these first."""
        self._said[seed] = tuple(answers)

    def sampler(self, version: Version, *, greedy: bool = False, temperature: float = 1.0) -> Any:
        """As `LocalModels.sampler`."""
        return _Sampler(self.models.sampler(version, greedy=greedy, temperature=temperature), self._said)


class _Sampler:
    def __init__(self, inner: Any, recalled: dict[int, tuple[Tokens, ...]]) -> None:
        self.inner, self._said = inner, recalled

    def session(self, seed: int) -> TokenSession:
        inner: TokenSession = self.inner.session(seed)
        # Once: a later session of this seed begins without them.
        answers = self._said.pop(seed, ())
        return RecalledSession(inner, answers) if answers else inner


class RecalledSession:
    """A session that says again what was said, then goes on by itself."""

    def __init__(self, inner: TokenSession, answers: Sequence[Tokens]) -> None:
        self.inner, self._left = inner, list(answers)
        self.context: list[int] = []
        """All ids so far, prompts and outputs."""
        self._waiting: list[int] = []
        """Those that the inner session has not been shown."""

    async def generate(
        self, prompt_ids: Sequence[int], *, stop_id: int | None, max_new_tokens: int = 32
    ) -> Sampled:
        """As every session's; while something is left to say again, nothing is computed.

        Raises:
            InputError: the prompt is another one than what was said before answered.
        """
        self._waiting += prompt_ids
        self.context += prompt_ids
        if not self._left:
            waiting, self._waiting = self._waiting, []
            sampled = await self.inner.generate(waiting, stop_id=stop_id, max_new_tokens=max_new_tokens)
            self.context += sampled.output_ids
            return sampled
        tokens = self._left.pop(0)
        if self.context != list(tokens.prompt_ids):
            raise InputError(
                f"a branch saw {len(self.context)} ids where the rollout that it branches from saw "
                f"{len(tokens.prompt_ids)} others: the environment or the policy is not deterministic"
            )
        self._waiting += tokens.output_ids
        self.context += tokens.output_ids
        return Sampled(
            tuple(tokens.prompt_ids),
            tuple(tokens.output_ids),
            tuple(tokens.logprobs),
            policy_version=tokens.policy_version,
        )


@dataclass(frozen=True, kw_only=True)
class TreeOptions:
    """Settings of a tree's growth."""

    rollouts: int = 16
    """Trajectories in a tree, each played to its end."""
    width: float = 2.0
    """Answers drawn at a node: this many times the root of its visits."""
    exploration: float = 1.0
    """Weight of what is not known yet, against values in [0, 1]."""
    score: str | None = None
    """Score that a trajectory is worth; None for the sum of its step rewards."""

    def __post_init__(self) -> None:
        if self.rollouts < 1 or not self.width > 0 or self.exploration < 0:
            raise InputError(f"rollouts must be 1 or more, width above 0, exploration 0 or more; got {self}")


class Play(Protocol):
    """Plays one rollout."""

    async def __call__(self, task: Task, said: Sequence[Tokens], seed: int, /) -> Trajectory:
        """A scored trajectory whose first answers are `said`."""
        ...


@dataclass
class _Node:
    tokens: Tokens | None = None
    """The answer that leads here."""
    answers: dict[tuple[int, ...], _Node] = field(default_factory=dict)
    visits: int = 0
    drawn: int = 0
    """Visits that went on by a fresh sample."""
    total: float = 0.0


async def searched(task: Task, play: Play, options: TreeOptions, *, seed: int) -> Group:
    """A tree of one task, as the group of its trajectories.

    What has no reward (an infrastructure error) is in the group and not in the tree.

    Args:
        seed: rollout i is played with `seed + i`.
    """
    root, trajectories = _Node(), list[Trajectory]()
    low, high = math.inf, -math.inf
    for number in range(options.rollouts):
        path = _chosen(root, options, low, high)
        recalled = [node.tokens for node in path if node.tokens is not None]
        trajectory = await play(task, recalled, seed + number)
        # Before the reward is looked at: what the machine failed belongs to the group all the same.
        trajectories.append(trajectory)
        reward = reward_of(trajectory, options.score)
        if reward is not None:
            low, high = min(low, reward), max(high, reward)
            _credit(root, trajectory, len(recalled), reward)
    return Group(task, tuple(trajectories))


def _chosen(root: _Node, options: TreeOptions, low: float, high: float) -> list[_Node]:
    """From the root down to where a fresh answer is drawn."""
    # Until two rewards differ the range is 0, and before the first it is −∞: no value is divided by either.
    path, scale = [root], max(high - low, 1e-9)
    while path[-1].drawn >= options.width * math.sqrt(path[-1].visits):
        node = path[-1]
        # An answer that ended its episode has none after it: nothing can be drawn there.
        open_answers = [child for child in node.answers.values() if child.answers]
        if not open_answers:
            break

        def bound(child: _Node, visits: int = node.visits) -> float:
            mean = (child.total / child.visits - low) / scale
            return mean + options.exploration * math.sqrt(math.log(visits) / child.visits)

        path.append(max(open_answers, key=bound))
    return path


def _credit(root: _Node, trajectory: Trajectory, recalled: int, reward: float) -> None:
    node = root
    calls = [step.tokens for step in trajectory.steps if step.tokens is not None]
    for number, tokens in enumerate(calls):
        node.visits += 1
        node.drawn += number >= recalled
        node.total += reward
        node = node.answers.setdefault(tuple(tokens.output_ids), _Node(tokens))
    node.visits += 1
    node.total += reward
