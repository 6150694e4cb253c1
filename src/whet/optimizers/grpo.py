"""Multi-turn GRPO: trajectories of one task are each other's baseline.

Shao et al. 2024 (DeepSeekMath), with what was learned since.  Differences from
the paper: advantages are centred and not divided by the deviation (Dr. GRPO);
the clip is wider upward (DAPO); no KL penalty unless asked for, though the
divergence is measured; an entropy bonus that falls to zero; groups without a
signal are skipped; a sequence is a whole multi-turn trajectory, with loss on
what the policy chose alone.  `baseline="leave_one_out"` makes it RLOO,
`baseline="none"` REINFORCE.

It refuses to start without a recorded baseline or from a policy that hardly ever
succeeds.  It stops by itself when the policy collapses (`training/alarms.py`), and
then returns the best validated weights, else the last ones before the alarm.

Weights change at every step and are written at checkpoints.  Between them the
Update's Bundle holds a live Version, and its state cannot be resumed from in
another process: `state["resumable"]` says which can.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec

from ..errors import InputError, TrainingRefused
from ..loop import Context, Update
from ..training.alarms import AlarmOptions, check
from ..training.batch import minibatches, parts
from ..training.credit import Credited, credit, staleness
from ..training.learner import Learner
from ..training.local import LocalModels
from ..training.losses import Aggregation, Baseline, Scale
from ..training.model import Decoder
from ..training.optim import OptimOptions
from ..training.policy_gradient import PolicyLoss
from ..types import Bundle, Group, Json, Version

Validate = Callable[[Bundle], Awaitable[float]]
"""Success of a Bundle on validation tasks, the higher the better."""


@dataclass(frozen=True, kw_only=True)
class GRPOOptions:
    """How to train from rewards."""

    resource: str = "policy"
    """Name of the weights in the Bundle."""
    score: str | None = None
    """Score to learn from; None for the sum of the step rewards."""
    steps: int = 100
    """Rounds in all; learning rate and entropy bonus fall over them."""
    group_size: int = 8
    """Trajectories per task."""
    success: str = "success"
    """Name in the recorded baseline that the competence floor is for."""
    floor: float = 0.05
    """Lowest baseline to start from: a policy that never succeeds has nothing to reinforce."""
    baseline: Baseline = "group"
    """`group` (GRPO), `leave_one_out` (RLOO) or `none` (REINFORCE)."""
    scale: Scale = "none"
    """`group` divides advantages by the group's deviation, as the paper does."""
    aggregation: Aggregation = "dapo"
    """How token losses are averaged: `grpo`, `bnpo`, `dr_grpo` or `dapo`."""
    completion_length: int | None = None
    """Constant of `dr_grpo`: the longest output in tokens."""
    clip_low: float = 0.2
    """How far a token's probability ratio may fall below 1."""
    clip_high: float = 0.28
    """How far it may rise above 1."""
    entropy_bonus: float = 0.02
    """Weight of the mean token entropy at first; falls to zero over the steps."""
    kl_coefficient: float = 0.0
    """Weight of the divergence from the first weights."""
    kl_every: int = 10
    """Steps between measurements of that divergence, where it is no part of the loss."""
    passes: int = 1
    """Times each batch of trajectories is learned from."""
    minibatch: int | None = None
    """Trajectories in one update; None for all."""
    temperature: float = 1.0
    """What the trajectories were sampled at."""
    checkpoint_every: int = 10
    """Rounds between checkpoints: weights on disk, a Version, a state that resumes."""
    patience: int | None = None
    """Checkpoints without better validation before it stops; None goes on to the end."""
    unknown: str | None = None
    """Score that says whether the policy gave up on an answerable task, for the alarm."""
    alarms: AlarmOptions = field(default_factory=AlarmOptions)
    """When to stop because the policy collapses."""
    part_tokens: int = 8192
    """Padded tokens computed at once; changes speed and memory only."""
    seed: int = 0
    """Of the order of minibatches."""
    optim: OptimOptions = field(default_factory=OptimOptions)
    """How weights are updated."""

    def __post_init__(self) -> None:
        if min(self.steps, self.passes, self.checkpoint_every, self.kl_every, self.minibatch or 1) < 1:
            raise InputError(
                f"steps, passes, minibatch, checkpoint_every and kl_every must be 1 or more: {self}"
            )
        if self.group_size < 2 and self.baseline != "none":
            raise InputError(
                f"group_size is {self.group_size}: a group of one has no baseline; use 2 or more"
            )
        if self.aggregation == "dr_grpo" and not self.completion_length:
            raise InputError("aggregation dr_grpo needs completion_length, the longest output in tokens")


@dataclass(kw_only=True)
class _Run:
    """What goes from step to step; saved as Update.state."""

    start: dict[str, Json]
    """The Version that training began with."""
    handle: str = ""
    policy_version: int = 0
    round: int = 0
    saved: Json = None
    """What Learner.save returned last."""
    older: list[str] = field(default_factory=list)
    """Files of earlier saves that are still there."""
    first: dict[str, float] = field(default_factory=dict)
    held: dict[str, int] = field(default_factory=dict)
    best: float | None = None
    best_version: dict[str, Json] | None = None
    good_version: dict[str, Json] | None = None
    """The last checkpoint at which no alarm was counting."""
    worse: int = 0
    resumable: bool = False


class GRPO:
    """GRPO as an Optimizer; one `step` is one round of trajectories.

    Args:
        models: where weights live; the process's own if None.  Policies must sample from the same.
        validate: asked at the start and at every checkpoint; the best one is what `done` returns.
    """

    name = "grpo"
    on_policy = True
    ordered = False

    def __init__(
        self,
        options: GRPOOptions | None = None,
        *,
        models: LocalModels | None = None,
        validate: Validate | None = None,
    ) -> None:
        self.options = options or GRPOOptions()
        self.models = models or LocalModels.shared()
        self.group_size = self.options.group_size
        self._validate = validate
        self._learner: Learner | None = None
        self._reference: Decoder | None = None

    async def step(self, bundle: Bundle, groups: Sequence[Group], context: Context) -> Update:
        """Learn from one round of groups.

        Raises:
            TrainingRefused: no recorded baseline, a base policy under the floor, no reward at all,
                groups of one, or a loss that is not finite.
            InputError: a reward that is not finite, calls without log-probabilities, a Bundle
                without weights, or a state that cannot be resumed from.
        """
        options = self.options
        self._refuse(bundle, context)
        run = self._begin(bundle, context)
        assert self._learner is not None
        if run.round == 0 and self._validate is not None:
            run.best, run.best_version = await self._validate(bundle), run.start
        credited = credit(
            groups,
            score=options.score,
            baseline=options.baseline,
            scale=options.scale,
            unknown=options.unknown,
        )
        self._refuse_groups(credited, groups)
        metrics = credited.metrics
        age = staleness(groups, self._learner.policy_version)
        if age is not None:
            metrics["staleness"] = age
        metrics |= await self._learn(self._learner, credited, run)
        run.round += 1
        run.first = run.first or {name: metrics[name] for name in ("success", "unknown") if name in metrics}
        run.held, reason = check(options.alarms, metrics, run.first, run.held)
        context.progress("grpo", run.round, options.steps, **_shown(metrics))
        return await self._finish(bundle, context, run, metrics, reason)

    def _refuse(self, bundle: Bundle, context: Context) -> None:
        options = self.options
        if options.resource not in bundle:
            raise InputError(
                f"the bundle has no resource {options.resource!r}, only {sorted(bundle)}; "
                "put one there with whet.training.local.fresh(...)"
            )
        if context.baseline is None:
            raise TrainingRefused(
                "no baseline is recorded, so nobody could tell whether training helped. "
                "Measure the bundle before training and pass Context(baseline=...)."
            )
        value = context.baseline.get(options.success)
        if value is None:
            raise TrainingRefused(
                f"the recorded baseline has {sorted(context.baseline)} and no {options.success!r}; "
                "record it, or name another one in GRPOOptions(success=...)."
            )
        if not value >= options.floor:
            raise TrainingRefused(
                f"the base policy's {options.success} is {value:.3g}, under the floor of {options.floor:g}: "
                "there is hardly anything to reinforce. Clone good trajectories first (SFT)."
            )

    def _refuse_groups(self, credited: Credited, groups: Sequence[Group]) -> None:
        if "reward" not in credited.metrics:
            what = f"the score {self.options.score!r}" if self.options.score else "a step reward"
            raise TrainingRefused(f"none of the {len(groups)} groups has {what}; nothing to learn from")
        if self.options.baseline != "none" and all(len(group.trajectories) < 2 for group in groups):
            raise TrainingRefused(
                f"all {len(groups)} groups are of one trajectory, which has no baseline; "
                f"collect {self.options.group_size} of each task"
            )

    def _begin(self, bundle: Bundle, context: Context) -> _Run:
        """The run so far, with its learner: new, still in memory, or restored from the last checkpoint."""
        version = bundle[self.options.resource]
        if context.state is None:
            self._learner = Learner(
                self.models.decoder(version),
                self.options.optim,
                policy_version=int(version.meta.get("policy_version", 0)),
            )
            self._reference = self.models.decoder(version)
            self.models.add(self._learner)
            return _Run(start=msgspec.to_builtins(version))
        try:
            run = msgspec.convert(context.state, _Run)
        except msgspec.ValidationError as error:
            raise InputError(f"this is no state of {self.name}: {error}") from error
        live = self._learner
        if live and live.handle == run.handle and live.policy_version == run.policy_version:
            return run
        if not run.resumable:
            raise InputError(
                f"round {run.round} was not a checkpoint, and its weights are gone with the process. "
                'Resume from the last Update whose state["resumable"] is true.'
            )
        self._learner = Learner(self.models.decoder(version), self.options.optim)
        reference = self._learner.restore(context.folder, run.saved)
        self._reference = Decoder(self._learner.decoder.options, self._learner.decoder.vocab_size)
        self._reference.copy_from(reference)
        self.models.add(self._learner)
        return run

    async def _learn(self, learner: Learner, credited: Credited, run: _Run) -> dict[str, float]:
        """The optimizer steps of one round; what they measured, the last one's where there are several."""
        options = self.options
        if not credited.sequences:
            return {"updates": 0.0}
        done = run.round / options.steps
        measured: dict[str, float] = {}
        updates = 0
        rng = random.Random(f"{options.seed}/{run.round}")
        penalised = options.kl_coefficient > 0
        for _ in range(options.passes):
            for batch in minibatches(credited.sequences, options.minibatch, rng):
                cut = parts(batch, options.part_tokens)
                if not cut:
                    continue
                measures = updates == 0 and run.round % options.kl_every == 0
                loss = PolicyLoss(
                    parts=cut,
                    aggregation=options.aggregation,
                    clip_low=options.clip_low,
                    clip_high=options.clip_high,
                    entropy_bonus=options.entropy_bonus * max(0.0, 1.0 - done),
                    kl_coefficient=options.kl_coefficient,
                    reference=self._reference if penalised or measures else None,
                    temperature=options.temperature,
                    completion_length=options.completion_length,
                )
                rate = options.optim.rate(run.round, options.steps)
                updated = learner.update(cut, loss, rate=rate, temperature=options.temperature)
                measured |= loss.metrics | {"loss": updated.loss, "gradient_norm": updated.gradient_norm}
                updates += 1
                await asyncio.sleep(0)  # a long computation in an event loop others live in too
        return measured | {
            "updates": float(updates),
            "learning_rate": options.optim.rate(run.round, options.steps),
        }

    async def _finish(
        self, bundle: Bundle, context: Context, run: _Run, metrics: dict[str, float], reason: str
    ) -> Update:
        """Checkpoint and validate where due, and say whether it is over."""
        options, learner, collapsed = self.options, self._learner, bool(reason)
        assert learner is not None
        last = run.round >= options.steps
        if not (last or reason or run.round % options.checkpoint_every == 0):
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
        if self._validate is not None and not reason:
            metrics["validation"] = value = await self._validate(now)
            if run.best is None or value > run.best:
                run = replace(run, best=value, best_version=msgspec.to_builtins(version), worse=0)
            else:
                run = replace(run, worse=run.worse + 1)
            if options.patience is not None and run.worse >= options.patience:
                reason = f"no better validation than {run.best:.3g} for {run.worse} checkpoints"
        if collapsed:
            now = bundle.put(msgspec.convert(run.best_version or run.good_version or run.start, Version))
        elif not any(run.held.values()):
            run = replace(run, good_version=msgspec.to_builtins(version))
        if last and not reason:
            reason = f"all {options.steps} rounds done"
        if reason and run.best_version is not None:
            now = bundle.put(msgspec.convert(run.best_version, Version))
        return Update(
            bundle=now, state=msgspec.to_builtins(run), metrics=metrics, done=bool(reason), reason=reason
        )

    def _save(self, run: _Run, context: Context) -> _Run:
        """Write what resuming needs; the save before it stays, in case this Update is never recorded."""
        assert self._learner is not None
        assert self._reference is not None
        before = [run.saved["file"]] if run.saved else []
        self._learner.forget(context.folder, run.older)
        reference: dict[str, Any] = dict(self._reference.weights())
        saved = self._learner.save(context.folder, reference)
        return replace(run, saved=saved, older=before, resumable=True)


def _shown(metrics: dict[str, float]) -> dict[str, float]:
    names = ("reward", "success", "unknown", "entropy", "kl", "no_signal")
    return {name: metrics[name] for name in names if name in metrics}
