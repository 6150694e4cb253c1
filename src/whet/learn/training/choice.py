"""A language model as a policy over given actions: each is worth the log-likelihood of its tokens.

GLAM (Carta et al. 2023): the probability of an action is the softmax, across the
admissible ones, of Σ log p(its tokens | prompt).  No action that is not admissible can
be said, and a model that has never spoken well enough to be understood can still choose.

The log-probability of a choice is one number, though the action has several tokens:
in `Tokens.logprobs` it stands on the first of them and the others have 0, so that their
sum is the choice's.  A sum of log-likelihoods favours short actions; `normalised` takes
their mean.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ...errors import InputError
from ...record.policy import Action
from ...types import Json, Tokens, Usage
from .batch import Merged, MicroBatch, parts
from .learner import chosen_logprobs
from .line import Line
from .losses import unit_sums
from .network import Network

Admissible = Callable[[Json], Sequence[tuple[Json, Sequence[int]]]]
"""An observation → its admissible actions, each with the ids that say it, in a fixed order."""
Prompt = Callable[[Sequence[Json]], Sequence[int]]
"""All observations so far → the ids that the model reads."""


PART_TOKENS = 16_384
"""Tokens scored at once; without a gradient there is room for more than training has."""


@dataclass(slots=True)
class _Request:
    prompt: tuple[int, ...]
    actions: list[tuple[int, ...]]
    future: asyncio.Future[list[float]]


def sequences_of(prompt: Sequence[int], actions: Sequence[Sequence[int]], unit: int) -> list[Merged]:
    """One sequence for each action; `row` numbers them within the unit, `first` marks the first target.

    Raises:
        InputError: no prompt, or an action without ids.
    """
    if not prompt or not actions or not all(actions):
        raise InputError("choosing needs a prompt and admissible actions of at least one id each")
    begin, sequences = len(prompt), []
    for row, action in enumerate(actions):
        count = len(action)
        sequences.append(
            Merged(
                unit,
                [*prompt, *action],
                list(range(begin, begin + count)),
                [0.0] * count,
                extra={"row": [float(row)] * count, "first": [float(row == 0)] + [0.0] * (count - 1)},
            )
        )
    return sequences


def choice_logprobs(logprobs: Tensor, part: MicroBatch, *, normalised: bool = False) -> tuple[Tensor, Tensor]:
    """(D,) units of a part and (D, K) log-probabilities of their actions, −∞ where there are fewer.

    Args:
        logprobs: (N,) of the targets.
    """
    units, places = torch.unique(part.units, return_inverse=True)
    rows = part.extra["row"].long()
    most = int(rows.max()) + 1
    # `row` numbers actions within a unit, and units of a part may have fewer than `most`.
    cells = places * most + rows
    sums = unit_sums(logprobs, cells, len(units) * most)
    lengths = torch.bincount(cells, minlength=len(units) * most)
    if normalised:
        sums = sums / lengths.clamp(min=1)
    sums = sums.masked_fill(lengths == 0, float("-inf"))
    return units, torch.log_softmax(sums.view(len(units), most), dim=-1)


class Chooser:
    """Scores admissible actions for many concurrent rollouts, in batches.

    Args:
        greedy: take the likeliest action instead of drawing one.
        policy_version: recorded with what is chosen.
    """

    def __init__(
        self,
        network: Network,
        *,
        greedy: bool = False,
        normalised: bool = False,
        policy_version: str | None = None,
    ) -> None:
        self.network = network
        self.greedy = greedy
        self.normalised = normalised
        self.policy_version = policy_version
        self._line: Line[_Request] = Line(self._score)

    def refresh(self, policy_version: str | None = None) -> None:
        """Take up weights that were changed in place."""
        self.policy_version = policy_version

    async def scores(self, prompt: Sequence[int], actions: Sequence[Sequence[int]]) -> list[float]:
        """Log-probability of each action.

        Raises:
            InputError: no prompt, no action, or more ids than the model takes.
            ModelError: the computation failed.
        """
        room = self.network.max_length
        if actions and len(prompt) + max(map(len, actions)) > room:
            raise InputError(
                f"a prompt of {len(prompt)} ids and an action of up to {max(map(len, actions))} do not fit "
                f"into {room}; show less of the past"
            )
        future: asyncio.Future[list[float]] = asyncio.get_running_loop().create_future()
        self._line.enqueue(_Request(tuple(prompt), [tuple(action) for action in actions], future))
        return await future

    @torch.no_grad()
    def _score(self, requests: list[_Request]) -> None:
        every = [s for unit, r in enumerate(requests) for s in sequences_of(r.prompt, r.actions, unit)]
        for part in parts(every, PART_TOKENS, block=lambda sequence: sequence.unit):
            units, logprobs = choice_logprobs(
                chosen_logprobs(self.network, part), part, normalised=self.normalised
            )
            for unit, row in zip(units.tolist(), logprobs.tolist(), strict=True):
                requests[unit].future.set_result(row[: len(requests[unit].actions)])


class ChoicePolicy:
    """The policy of one rollout.

    Args:
        admissible: what may be done, and the ids that say it.
        prompt: what the model reads of the observations so far.
    """

    def __init__(self, chooser: Chooser, admissible: Admissible, prompt: Prompt, seed: int) -> None:
        self._chooser = chooser
        self._admissible = admissible
        self._prompt = prompt
        self._random = random.Random(seed)
        self._seen: list[Json] = []

    async def act(self, observation: Json, /) -> Action:
        """Draw one of the admissible actions."""
        self._seen.append(observation)
        prompt = list(self._prompt(self._seen))
        actions = list(self._admissible(observation))
        scores = await self._chooser.scores(prompt, [ids for _, ids in actions])
        if self._chooser.greedy:
            index = max(range(len(scores)), key=scores.__getitem__)
        else:
            # One draw from the rollout's own stream: who else is scored in the batch changes nothing.
            weights = torch.tensor(scores, dtype=torch.float64).exp().tolist()
            index = self._random.choices(range(len(scores)), weights)[0]
        value, ids = actions[index]
        logprobs = [scores[index], *[0.0] * (len(ids) - 1)]
        tokens = Tokens(prompt, list(ids), logprobs, None, self._chooser.policy_version)
        return Action(value, tokens, Usage(prompt_tokens=len(prompt), output_tokens=len(ids), calls=1))
