"""Rounds of reinforcement learning: what every on-policy weight method has in common.

One `step` of a `Rounds` is one round: refuse what would mean nothing, turn groups
into sequences with an advantage on every token (`_credit`), make the optimizer
steps (`_learn`), watch for collapse, checkpoint and validate where due.  GRPO,
RLOO, REINFORCE and PPO differ in those two methods and in their options.

It refuses to start without a recorded baseline or from a policy that hardly ever
succeeds.  It stops by itself when the policy collapses (`alarms.py`), and then
returns the best validated weights, else the last ones before the alarm.

Weights change at every step and are written at checkpoints.  Between them the
Update's Bundle holds a live Version, and its state cannot be resumed from in
another process: `state["resumable"]` says which can.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Generic, TypeVar

import msgspec
import torch
from torch import nn

from ...errors import InputError, TrainingRefused
from ...record.store.findings import RewardFinding
from ...types import Bundle, Group, Json, Version
from ..loop import Context, Update
from . import off_policy
from .alarms import COLLAPSE, check
from .batch import MicroBatch, by_unit, merge, minibatches, parts
from .cloning import resumed
from .correction import corrected
from .credit import Credited, staleness
from .epochs import starting
from .learner import Learner, chosen_logprobs
from .local import LocalModels
from .network import Network, adapted, pretrained
from .one_call import Trainable
from .options import RoundOptions as RoundOptions
from .policy_gradient import PolicyLoss
from .processes import place

Validate = Callable[[Bundle], Awaitable[float]]
"""Success of a Bundle on validation tasks, the higher the better."""


Options = TypeVar("Options", bound=RoundOptions)


@dataclass(kw_only=True)
class RoundState:
    """State from step to step; saved as Update.state."""

    start: dict[str, Json]
    """The Version that training began with."""
    handle: str = ""
    policy_version: int = 0
    round: int = 0
    saved: Json = None
    """The last return of Learner.save."""
    older: list[str] = field(default_factory=list)
    """Files of earlier saves that are still there."""
    sampled: list[str] = field(default_factory=list)
    """Policy versions of the tokens that were compared with the weights."""
    first: dict[str, float] = field(default_factory=dict)
    held: dict[str, int] = field(default_factory=dict)
    best: float | None = None
    best_version: dict[str, Json] | None = None
    good_version: dict[str, Json] | None = None
    """The last checkpoint at which no alarm was counting."""
    worse: int = 0
    resumable: bool = False


class Rounds(Trainable, Generic[Options]):
    """The shared part of an on-policy Optimizer; one `step` is one round of trajectories.

    Args:
        models: where weights live; the process's own if None.  Policies must sample from the same.
        validate: asked at the start and at every checkpoint; the best one is what `done` returns.
    """

    name: str
    on_policy = True
    ordered = False
    needs_baseline = True
    needs_groups = True
    """True if a group of one has no baseline."""
    whole_units = False
    """True if a unit's sequences must be computed together, whatever the ratio is of."""
    corrects = True
    """True if its targets are sampled tokens, whose weights can be corrected."""
    penalises_loss = True
    """True if the divergence is a term of the loss; else it is subtracted from the reward."""

    def __init__(
        self,
        options: Options,
        *,
        models: LocalModels | None = None,
        validate: Validate | None = None,
    ) -> None:
        self.options: Options = options
        self.models = models or LocalModels.shared()
        self.group_size = self.options.group_size
        self.curriculum = self.options.curriculum
        self._validate = validate
        self._learner: Learner | None = None
        self._reference: Network | None = None
        self._compared = False
        self._entropy_bonus = options.entropy_bonus
        self._kl_every = options.kl_every

    async def step(self, bundle: Bundle, groups: Sequence[Group], context: Context) -> Update:
        """Learn from one round of groups.

        Raises:
            TrainingRefused: no recorded baseline, a base policy under the floor, no reward at all,
                groups of one, tokens that other weights sampled, or a loss that is not finite.
            InputError: a reward that is not finite, calls without log-probabilities, a Bundle
                without weights, or a state that cannot be resumed from.
        """
        self._refuse(bundle, groups, context)
        options = self.options = self.models.sized(self.options, bundle[self.options.resource])
        run = self._begin(bundle, context)
        assert self._learner is not None
        if run.round == 0 and self._validate is not None:
            run.best, run.best_version = await self._validate(bundle), run.start
        groups, late = fresh_enough(groups, self._learner.policy_version, options.max_staleness)
        if late and not groups:
            raise TrainingRefused(
                f"all {late} trajectories were sampled more than {options.max_staleness} updates ago; "
                "collect fresh ones, or raise max_staleness"
            )
        credited = self._credit(groups)
        self._refuse_groups(credited, groups)
        metrics = credited.metrics
        if options.max_staleness is not None:
            metrics["stale"] = float(late)
        age = staleness(groups, self._learner.policy_version)
        if age is not None:
            metrics["staleness"] = age
        metrics |= self._compare(self._learner, credited, groups, run)
        credited = self._corrected(self._learner, credited)
        metrics |= credited.metrics | await self._learn(self._learner, credited, run)
        run.round += 1
        # Measured by the weights that training began with: alarms compare with these.
        run.first = run.first or {name: metrics[name] for name in ("success", "unknown") if name in metrics}
        run.held, stop = check(options.alarms, metrics, run.first, run.held)
        context.progress(self.name, run.round, options.steps, **_shown(metrics))
        return await self._finish(bundle, context, run, metrics, stop)

    def _refuse(self, bundle: Bundle, groups: Sequence[Group], context: Context) -> None:
        options = self.options
        starting(bundle, options.resource)
        if context.baseline is None:
            raise TrainingRefused(
                "no baseline is recorded, so nobody could tell whether training helped. Measure the bundle before "
                "training with `await experiment.record_baseline(bundle)`; an experiment that has validation tasks "
                "does so by itself."
            )
        value = context.baseline.get(options.success)
        if value is None and options.success == "success" and not _any_outcome(groups):
            # Nothing says what succeeded, so the floor is the groups' own: one whose rewards are all alike teaches
            # nothing, and is refused below.
            return
        if value is None:
            raise TrainingRefused(
                f"the recorded baseline has {sorted(context.baseline)} and no {options.success!r}; "
                f"record it, or name another one in the option `success`{_why_none(groups, options.success)}."
            )
        if not value >= options.floor:
            raise TrainingRefused(
                f"the base policy's {options.success} is {value:.3g}, under the floor of {options.floor:g}: "
                "there is hardly anything to reinforce. Clone good trajectories first (SFT), or lower `floor`."
            )

    def _refuse_groups(self, credited: Credited, groups: Sequence[Group]) -> None:
        if "reward" not in credited.metrics:
            reward_name = f"the score {self.options.score!r}" if self.options.score else "a step reward"
            why = _why_none(groups, self.options.score or "")
            raise TrainingRefused(
                f"none of the {len(groups)} groups has {reward_name}; nothing to learn from{why}"
            )
        if self.needs_groups and all(len(group.trajectories) < 2 for group in groups):
            raise TrainingRefused(
                f"all {len(groups)} groups are of one trajectory, which has no baseline; "
                f"collect {self.options.group_size} of each task"
            )

    def _compare(
        self, learner: Learner, credited: Credited, groups: Sequence[Group], run: RoundState
    ) -> dict[str, float]:
        """Compare these weights with those that sampled the tokens, before the first update in a process.

        Tokens of a policy version that was looked at before have been found good: those of a recording are as
        old as the pass over it.
        """
        if self._compared or not credited.sequences:
            return {}
        self._compared = True
        new = [
            Group(group.task, [t for t in group.trajectories if not off_policy.tags(t) <= set(run.sampled)])
            for group in groups
        ]
        run.sampled = sorted(
            {*run.sampled, *(tag for g in new for t in g.trajectories for tag in off_policy.tags(t))}
        )
        gap = self._gap(learner, credited, new) if any(group.trajectories for group in new) else None
        if gap is None:
            return {}
        if not self.options.off_policy:
            off_policy.require_same(gap, new, learner.policy_version)
        # A resumed run looks too, and its rounds measure what they would have measured in one go.
        return gap.metrics if run.round == 0 else {}

    def _corrected(self, learner: Learner, credited: Credited) -> Credited:
        """The sequences corrected for the engine that sampled them, where that is asked for."""
        options, level = self.options, self.options.rollout_correction
        if level == "auto":
            level = "token" if self.models.elsewhere else "off"
        if level == "off" or not credited.sequences or not self.corrects:
            return credited
        sequences, mismatch = corrected(
            learner,
            credited.sequences,
            level=level,
            cap=options.rollout_correction_cap,
            temperature=options.temperature,
            part_tokens=options.part_tokens,
        )
        return replace(credited, sequences=sequences, metrics=mismatch)

    def _gap(self, learner: Learner, credited: Credited, groups: Sequence[Group]) -> off_policy.Gap | None:
        options = self.options
        return off_policy.gap(
            learner,
            off_policy.sequences(groups),
            temperature=options.temperature,
            part_tokens=options.part_tokens,
        )

    def _reference_of(self, start: Network, version: Version) -> Network | None:
        """What a KL penalty compares with, whole in every process; before `learn`, which owns `start`."""
        if not self._compares:
            return None
        # A start that is to be shared out may be no more than its shapes here.
        return self.models.decoder(version) if place().sharded else start.copy()

    def _begin(self, bundle: Bundle, context: Context) -> RoundState:
        """The run so far, with its learner: new, still in memory, or restored from the last checkpoint."""
        version = bundle[self.options.resource]
        if context.state is None:
            start = self.models.decoder(version, to_share=True)
            self._settle(start)
            self._reference = self._reference_of(start, version)
            self._learner = self.models.learn(
                start,
                self.options.optim,
                rates=self.options.rates,
                policy_version=int(version.meta.get("policy_version", 0)),
                heads=self._heads(start),
            )
            self.models.add(self._learner)
            return RoundState(start=msgspec.to_builtins(version))
        run = resumed(context.state, RoundState(start={}), self.name)
        live = self._learner
        # The handle too: the state of another run may be at the same policy version.
        if live and live.handle == run.handle and live.policy_version == run.policy_version:
            return run
        if not run.resumable:
            raise InputError(
                f"round {run.round} was not a checkpoint, and its weights are gone with the process. "
                'Resume from the last Update whose state["resumable"] is true.'
            )
        start = self.models.decoder(version, to_share=True)
        self._settle(start)
        self._reference = self._reference_of(start, version)
        self._learner = self.models.learn(
            start, self.options.optim, rates=self.options.rates, heads=self._heads(start)
        )
        # The Bundle holds the checkpoint's weights by now; those that the run began with are in the save.
        began = self._learner.restore(context.folder, run.saved)
        if self._reference is not None:
            self._reference.copy_from(began)
        self.models.add(self._learner)
        return run

    def _settle(self, network: Network) -> None:
        """Settle what the options leave to what is trained."""
        options, full = self.options, pretrained(network) and not adapted(network)
        self._entropy_bonus = options.entropy_bonus
        if self._entropy_bonus is None:
            self._entropy_bonus = 0.0 if pretrained(network) else options.fresh_entropy_bonus
        self._kl_every = options.measured_every(full=full)

    @property
    def _compares(self) -> bool:
        """True if the weights that training began with are kept beside those that it changes."""
        return self._kl_every is not None or self.options.kl_coefficient > 0

    def _heads(self, network: Network) -> Mapping[str, nn.Module]:
        """Modules trained beside the policy; none unless a method has some."""
        return {}

    def _credit(self, groups: Sequence[Group]) -> Credited:
        """Sequences with an advantage on every token, and what was left out."""
        raise NotImplementedError

    def _loss(self, cut: Sequence[MicroBatch], run: RoundState, measures: bool) -> PolicyLoss:
        """The loss of one optimizer step over these parts."""
        options = self.options
        penalty = options.kl_coefficient if self.penalises_loss else 0.0
        return PolicyLoss(
            parts=cut,
            aggregation=options.aggregation,
            clip_low=options.clip_low,
            clip_high=options.clip_high,
            entropy_bonus=(self._entropy_bonus or 0.0) * max(0.0, 1.0 - run.round / options.steps),
            kl_coefficient=penalty,
            reference=self._reference if penalty > 0 or measures else None,
            temperature=options.temperature,
            completion_length=options.completion_length,
            ratio=options.ratio,
        )

    def _update(
        self, learner: Learner, cut: Sequence[MicroBatch], loss: PolicyLoss, rate: float
    ) -> tuple[float, float]:
        """One optimizer step."""
        return learner.update(cut, loss, rate=rate, temperature=self.options.temperature)

    async def _learn(self, learner: Learner, credited: Credited, run: RoundState) -> dict[str, float]:
        """The optimizer steps of one round; what they measured, the last one's where there are several."""
        options = self.options
        if not credited.sequences:
            return {"updates": 0.0}
        measured: dict[str, float] = {}
        updates = shared = 0
        # A stream for each round: a resumed run ends in the same bits, and no generator's state is saved.
        rng = random.Random(f"{options.seed}/{run.round}")
        # By the round and not by the update: how many updates a round makes depends on its data.
        rate = learner.options.rate(run.round, options.steps)
        block = by_unit if self.whole_units or options.ratio != "token" else None
        for _ in range(options.passes):
            for batch in minibatches(credited.sequences, options.minibatch, rng):
                # A ratio of whole trajectories needs each in one part (`log_ratios`).
                cut = parts(batch, options.part_tokens, block=block)
                if not cut:
                    continue
                measures = self._kl_every is not None and run.round % self._kl_every == 0
                loss = self._loss(cut, run, updates == 0 and measures)
                value, norm = self._update(learner, cut, loss, rate)
                measured |= loss.metrics | {"loss": value, "gradient_norm": norm}
                updates += 1
                shared += sum(part.tokens - part.computed for part in cut)
                await asyncio.sleep(0)  # a long computation in an event loop others live in too
        return measured | {
            "updates": float(updates),
            "tokens_shared": shared / options.passes,
            "learning_rate": rate,
        }

    async def _finish(
        self,
        bundle: Bundle,
        context: Context,
        run: RoundState,
        metrics: dict[str, float],
        stop: RewardFinding | None,
    ) -> Update:
        """Checkpoint and validate where due, and say whether it is over."""
        options, learner, reason = self.options, self._learner, stop.reason if stop else ""
        collapsed = stop is not None and stop.kind == COLLAPSE
        assert learner is not None
        last = run.round >= options.steps
        if not (last or context.last or reason or run.round % options.checkpoint_every == 0):
            run = replace(run, handle=learner.handle, policy_version=learner.policy_version, resumable=False)
            live = learner.live(options.resource)
            return Update(bundle=bundle.put(live), state=msgspec.to_builtins(run), metrics=metrics)
        version = learner.checkpoint(
            options.resource,
            context.folder,
            run.start["id"],
            {"method": self.name, "seed": options.seed, "round": run.round},
        )
        run = self._save(replace(run, handle=learner.handle, policy_version=learner.policy_version), context)
        now = bundle.put(version)
        # A collapsed policy is not validated: it is not what is returned.
        if self._validate is not None and not collapsed:
            metrics["validation"] = value = await self._validate(now)
            if run.best is None or value > run.best:
                run = replace(run, best=value, best_version=msgspec.to_builtins(version), worse=0)
            else:
                run = replace(run, worse=run.worse + 1)
            if options.patience is not None and run.worse >= options.patience:
                reason = f"no better validation than {run.best:.3g} for {run.worse} checkpoints"
        if collapsed:
            now = bundle.put(msgspec.convert(run.best_version or run.good_version or run.start, Version))
        # Weights at which an alarm counts may have collapsed already; no_signal says that tasks are solved.
        elif not any(count for sign, count in run.held.items() if sign != "no_signal"):
            run = replace(run, good_version=msgspec.to_builtins(version))
        if last and not reason:
            reason = f"all {options.steps} rounds done"
        if reason and run.best_version is not None:
            now = bundle.put(msgspec.convert(run.best_version, Version))
        return Update(
            bundle=now, state=msgspec.to_builtins(run), metrics=metrics, done=bool(reason), reason=reason
        )

    def _save(self, run: RoundState, context: Context) -> RoundState:
        """Write what resuming needs; the save before it stays, in case this Update is never recorded."""
        assert self._learner is not None
        before = [run.saved["file"]] if run.saved else []
        self._learner.forget(context.folder, run.older)
        reference: dict[str, Any] = {} if self._reference is None else dict(self._reference.weights())
        saved = self._learner.save(context.folder, reference)
        return replace(run, saved=saved, older=before, resumable=True)


def _why_none(groups: Sequence[Group], name: str) -> str:
    """What the first run of these says of why it has no value of a score; "" if none does."""
    scores = (run.scores.get(name) for group in groups for run in group.trajectories)
    return next(
        (
            f": {score.reason}"
            for score in scores
            if score is not None and score.value is None and score.reason
        ),
        "",
    )


def _any_outcome(groups: Sequence[Group]) -> bool:
    return any(trajectory.outcome.counts for group in groups for trajectory in group.trajectories)


@torch.no_grad()
def divergences(
    groups: Sequence[Group], reference: Network, part_tokens: int | None, temperature: float
) -> dict[str, float]:
    """Trajectory id → Σ log π − log π_ref over its tokens, as they were sampled."""
    every = [trajectory for group in groups for trajectory in group.trajectories]
    sequences = [sequence for unit, run in enumerate(every) for sequence in merge(run, unit)[0]]
    sums = torch.zeros(len(every))
    for part in parts(sequences, part_tokens):
        there = chosen_logprobs(reference, part, temperature)
        sums.index_add_(0, part.units, part.logprobs - there)
    return {run.id: float(value) for run, value in zip(every, sums, strict=True)}


def fresh_enough(
    groups: Sequence[Group], policy_version: int, limit: int | None
) -> tuple[Sequence[Group], int]:
    """The groups without trajectories sampled more than `limit` updates ago, and how many those were.

    A trajectory is as old as its oldest call; calls that do not say are taken for fresh.
    """
    if limit is None:
        return groups, 0
    young_groups = []
    for group in groups:
        ages = [
            staleness([Group(group.task, [trajectory])], policy_version) for trajectory in group.trajectories
        ]
        young = [
            trajectory
            for trajectory, age in zip(group.trajectories, ages, strict=True)
            if age is None or age <= limit
        ]
        young_groups.append(Group(group.task, young))
    before, after = (sum(len(group.trajectories) for group in some) for some in (groups, young_groups))
    return [group for group in young_groups if group.trajectories], before - after


def _shown(metrics: dict[str, float]) -> dict[str, float]:
    names = (
        *("reward", "success", "unknown", "entropy", "kl", "clip_share", "gradient_norm"),
        *("turns", "tokens", "no_signal", "staleness", "gap", "effective_share"),
        *("mismatch", "mismatch_kl", "mismatch_max", "truncated"),
    )
    return {name: metrics[name] for name in names if name in metrics}
