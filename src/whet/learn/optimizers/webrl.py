"""WebRL's update: the policy's log-ratio is regressed on the advantage of a step.

Qi et al. 2024.  `loss="paper"`, the default: (β log π/π_ref − A)², whose minimiser is
π ∝ π_ref · exp(A/β); π_ref is the policy of the phase before, and old data needs no
importance ratio.  A = λ (r_t + V' − V) + (1 − λ)(r_T − V), with a critic trained by
cross-entropy on discounted outcomes.  `loss="released"` is what the authors' code does
instead: advantages become +1 or −0.6 and every negative one is then masked out, so that
it clones the better half; β is 1, or 5 where the advantage is negative; the loss is
smooth L1, and each further step of a trajectory is worth 0.05 less.

A phase is one `step`: critic, then actor, on this phase's trajectories and, at most
`replay_ratio` times as many, on earlier *successes* whose mean likelihood under the
current actor lies in a band: neither forgotten nor known by heart.  The other half of
WebRL, new tasks made of failed ones and kept where the critic gives them between .05
and .75, needs a generator of tasks and is not here;
`RoundOptions.curriculum` draws given tasks by the same band.  Differences: one critic, not two; a step is a call.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from ...errors import TrainingRefused
from ...types import Bundle, Group, Json, Trajectory
from ..loop import Context, Update
from ..training.assignment import step_rewards
from ..training.batch import Merged, MicroBatch, by_unit, marked, merge, parts
from ..training.cloning import Chosen, Kept, choose, joined, read_kept, resumed, succeeded, write_kept
from ..training.credit import reward_of
from ..training.epochs import epochs, learner_of, starting
from ..training.learner import Learner, chosen_logprobs, unit_logprobs
from ..training.local import LocalModels
from ..training.losses import discounted
from ..training.network import Network, target_states
from ..training.options import RewardModelOptions
from ..training.options import WebRLOptions as WebRLOptions
from ..training.scorer import Scorer, new_scorer


class WebRL:
    """WebRL's update as an Optimizer; one `step` is one phase.

    Args:
        models: where weights live; the process's own if None.
    """

    name = "webrl"
    on_policy = True
    ordered = False

    def __init__(self, options: WebRLOptions | None = None, *, models: LocalModels | None = None) -> None:
        self.options = options or WebRLOptions()
        self.models = models or LocalModels.shared()
        self.group_size = self.options.group_size

    async def step(self, bundle: Bundle, groups: Sequence[Group], context: Context) -> Update:
        """Train critic and actor on one phase.

        Raises:
            InputError: the Bundle has no weights, or the state is another method's.
            TrainingRefused: no trajectory has a reward and tokens.
        """
        options = self.options
        start = starting(bundle, options.resource)
        state = resumed(context.state, Kept(), self.name)
        critic = new_scorer(self.models.decoder(start))
        steps, figures = await self._phase(critic, groups, context)
        actor = learner_of(self.models, start, options)
        # The policy of the phase before, which `start` is; the learner changes its copy in place.
        reference = self.models.decoder(start)
        before = read_kept(context.folder, state.file)
        # The reference is the current actor here: nothing has been updated in this phase yet.
        replayed = self._replayed(before, reference, len(groups) * options.group_size)
        figures |= {"replayed": float(len(replayed))}
        figures |= await self._regress(actor, reference, [*steps, *_as_steps(replayed)], context)
        done = state.round + 1 >= options.steps
        meta: dict[str, Json] = {"method": self.name, "seed": options.seed, "round": state.round}
        version = actor.checkpoint(options.resource, context.folder, start.id, meta)
        return Update(
            bundle=bundle.put(version),
            state={"round": state.round + 1, "file": self._remember(before, groups, context)},
            metrics=figures,
            done=done,
            reason=f"all {options.steps} phases done" if done else "",
        )

    async def _phase(
        self, critic: Scorer, groups: Sequence[Group], context: Context
    ) -> tuple[list[Merged], dict[str, float]]:
        """The critic trained, and this phase's calls, each with its advantage on its tokens."""
        options = self.options
        judged = [
            (t, reward)
            for group in groups
            for t in group.trajectories
            if (reward := reward_of(t, options.score)) is not None and critic.steps(t, 0)
        ]
        if not judged:
            raise TrainingRefused(f"none of {len(groups)} groups has a trajectory with a reward and tokens")
        rewards = [step_rewards(t, reward, given=options.score is None) for t, reward in judged]
        places = [_befores(t, unit) for unit, (t, _) in enumerate(judged)]
        returns = [discounted(own, options.gamma) for own in rewards]
        for unit, own in enumerate(places):
            for mark in own:
                mark.extra["return"] = [min(1.0, max(0.0, returns[unit][int(s)])) for s in mark.extra["step"]]

        def objective(part: MicroBatch, count: int) -> Tensor:
            values = critic.head(target_states(critic.network, part))
            return F.binary_cross_entropy_with_logits(values, part.extra["return"], reduction="sum") / count

        learner = Learner(
            critic.network,
            options.optim,
            rates=RewardModelOptions.rates,
            heads={"score": critic.head},
        )
        measured = await epochs(
            learner,
            range(len(places)),
            lambda numbers: parts([m for n in numbers for m in places[n]], options.part_tokens),
            objective,
            options=options,
            context=context,
            name="webrl critic",
        )
        figures = {
            "critic_loss": measured["loss"],
            "reward": sum(reward for _, reward in judged) / len(judged),
            "trajectories": float(len(judged)),
        }
        verdicts = [good for t, _ in judged if (good := succeeded(t)) is not None]
        figures |= {"success": sum(verdicts) / len(verdicts)} if verdicts else {}
        steps = []
        values = _values(critic, places, options.part_tokens)
        for unit, (trajectory, _) in enumerate(judged):
            advantages = self._advantages(rewards[unit], values[unit])
            for sequence in merge(trajectory, unit)[0]:
                sequence.advantages = [advantages.get(call, 0.0) for call in sequence.calls]
                steps.append(sequence)
        return steps, figures

    def _advantages(self, rewards: Sequence[float], values: Mapping[int, float]) -> dict[int, float]:
        """A = λ (r_t + V' − V) + (1 − λ)(r_T − V) of each call; what is beyond the last is worth 0."""
        options, calls = self.options, sorted(values)
        outcome = sum(rewards)
        advantages = {}
        for position, call in enumerate(calls):
            following = calls[position + 1] if position + 1 < len(calls) else None
            earned = sum(rewards[call : following if following is not None else len(rewards)])
            ahead = 0.0 if following is None else values[following]
            one_step = earned + ahead - values[call]
            advantage = options.lam * one_step + (1 - options.lam) * (outcome - values[call])
            advantages[call] = advantage - (0.05 * position if options.loss == "released" else 0.0)
        return advantages

    async def _regress(
        self, actor: Learner, reference: Network, steps: Sequence[Merged], context: Context
    ) -> dict[str, float]:
        """The actor's update over calls."""
        options = self.options
        # `_by_call` makes new sequences, so numbering them anew leaves those of the phase alone.
        calls = [call for sequence in steps for call in _by_call(sequence)]
        for number, call in enumerate(calls):
            call.unit = number
        there = unit_logprobs(reference, calls, len(calls), options.part_tokens)
        advantages = torch.tensor([call.advantages[0] for call in calls])

        def objective(part: MicroBatch, count: int) -> Tensor:
            units, places = torch.unique(part.units, return_inverse=True)
            sums = torch.zeros(len(units)).index_add(0, places, chosen_logprobs(actor.decoder, part))
            return phase_loss(sums - there[units], advantages[units], options).sum() / count

        return await epochs(
            actor,
            range(len(calls)),
            lambda numbers: parts([calls[n] for n in numbers], options.part_tokens, block=by_unit),
            objective,
            options=options,
            context=context,
            name=self.name,
        )

    def _replayed(self, before: Sequence[Chosen], actor: Network, fresh: int) -> list[Chosen]:
        """Earlier successes in the band, those that the actor finds least likely first."""
        low, high = self.options.replay_band
        room = round(self.options.replay_ratio * fresh)
        if not before or not room:
            return []
        scored = zip(
            likely(actor, [s for _, (s, _) in before], self.options.part_tokens), before, strict=True
        )
        # By likelihood and number: trajectories themselves have no order to break a tie by.
        inside = sorted(
            ((p, n, earlier) for n, (p, earlier) in enumerate(scored) if low < p <= high), key=lambda x: x[:2]
        )
        return [earlier for _, _, earlier in inside[:room]]

    def _remember(self, before: Sequence[Chosen], groups: Sequence[Group], context: Context) -> str:
        try:
            won, _ = choose(groups, lambda t: succeeded(t), self.options.per_task)
        except TrainingRefused:  # nobody succeeded in this phase
            won = []
        everything = joined(before, won)
        return write_kept(context.folder, everything) if everything else ""


def likely(network: Network, trajectories: Sequence[Sequence[Merged]], part_tokens: int) -> list[float]:
    """exp(mean log-probability) of the chosen tokens of each trajectory under a network."""
    every = [
        Merged(unit, sequence.ids, sequence.targets, sequence.logprobs)
        for unit, own in enumerate(trajectories)
        for sequence in own
    ]
    counts = torch.tensor([float(sum(len(sequence.targets) for sequence in own)) for own in trajectories])
    sums = unit_logprobs(network, every, len(trajectories), part_tokens)
    means: list[float] = (sums / counts.clamp(min=1)).exp().tolist()
    return means


def phase_loss(log_ratio: Tensor, advantage: Tensor, options: WebRLOptions) -> Tensor:
    """The loss of each call, (C,).

    Args:
        log_ratio: (C,) log π − log π_ref, summed over the call's tokens.
    """
    if options.loss == "paper":
        return (options.beta * log_ratio - advantage).square()
    # The released code: thresholded to +1 and −0.6, and of those the negative ones are masked.
    positive = (advantage > 0).float()
    target = torch.where(advantage > 0, 1.0, -0.6)
    beta = torch.where(target > 0, 1.0, 5.0)
    # Detached: where it caps, β times the log-ratio would be the constant ±target, with no gradient.
    cap = (target / log_ratio.detach().abs().clamp(min=1e-6)).abs()
    beta = torch.minimum(beta, cap)
    return positive * F.smooth_l1_loss(beta * log_ratio, target, reduction="none")


def _befores(trajectory: Trajectory, unit: int) -> list[Merged]:
    """The places where each call begins: what is to be expected before it is made."""
    marks = []
    for sequence in merge(trajectory, unit)[0]:
        first: dict[int, int] = {}
        for call, position in zip(sequence.calls, sequence.targets, strict=True):
            first.setdefault(call, position)
        if first:
            before = [position - 1 for position in first.values()]
            marks.append(marked(sequence, before, step=[float(call) for call in first]))
    return marks


@torch.no_grad()
def _values(critic: Scorer, places: Sequence[Sequence[Merged]], part_tokens: int) -> list[dict[int, float]]:
    """For each trajectory, call → chance of success before it."""
    values_of: list[dict[int, float]] = [{} for _ in places]
    for part in parts([mark for own in places for mark in own], part_tokens):
        values = torch.sigmoid(critic.head(target_states(critic.network, part)))
        for unit, step, value in zip(part.units, part.extra["step"], values, strict=True):
            values_of[int(unit)][int(step)] = float(value)
    return values_of


def _by_call(sequence: Merged) -> list[Merged]:
    """One sequence for each call, ending where the call does."""
    calls = sequence.calls or [0] * len(sequence.targets)
    sequences = []
    for call in dict.fromkeys(calls):
        own = [n for n, other_call in enumerate(calls) if other_call == call]
        targets = [sequence.targets[n] for n in own]
        sequences.append(
            Merged(
                0,
                sequence.ids[: targets[-1] + 1],
                targets,
                [0.0] * len(targets),
                [sequence.advantages[n] for n in own],
            )
        )
    return sequences


def _as_steps(replayed: Sequence[Chosen]) -> list[Merged]:
    """Replayed successes with the advantage of a success that was not expected."""
    steps = []
    for _, (sequences, _) in replayed:
        for sequence in sequences:
            steps.append(
                Merged(0, sequence.ids, sequence.targets, sequence.logprobs, [0.5] * len(sequence.targets))
            )
    return steps
